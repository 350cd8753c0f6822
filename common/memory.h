/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Would so much shared memory be had now? Asked before the memory is reserved, because the kernel's
 * own answers come too late: it kills the process (cgroup limit, machine full) or sends SIGXFSZ
 * (file size limit). Any thread.
 */
#ifndef RKV_COMMON_MEMORY_H
#define RKV_COMMON_MEMORY_H

#include <stdint.h>

#define MEMORY_REASON_MAX 512u /* a sentence, NUL included */

/* len bytes of ordinary pages. Failure: ERR_NOMEM, and a sentence with cause and remedy. */
int memory_fits(uint64_t len, char reason[MEMORY_REASON_MAX]);

/* len bytes of huge pages of the default size. Failure as above. */
int memory_fits_huge(uint64_t len, char reason[MEMORY_REASON_MAX]);

/* A file of len bytes, mapped, on a disk. Failure as above. */
int memory_fits_file(uint64_t len, char reason[MEMORY_REASON_MAX]);

/* The default huge page size in bytes; 0: the kernel has none. */
uint64_t memory_huge_page_size(void);

#endif
