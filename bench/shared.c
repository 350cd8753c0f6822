/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/shared.h"

#include <sys/mman.h>

void *
shared_alloc(size_t len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

void
shared_free(void *memory, size_t len)
{
	if (memory)
		munmap(memory, len);
}
