/* SPDX-License-Identifier: BSD-2-Clause */
/* See ring.h. */
#include "common/ring.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/err.h"
#include "common/tsan.h"

/*
 * Memory of a ring that was closed comes back as another thread's ring. Between its munmap and its
 * mmap the kernel has put one after the other; liburing calls the kernel without libc.
 */
static char memory_goes_round;

int
ring_open(struct io_uring *ring, unsigned n_entries, struct io_uring_params *params)
{
	int error = -io_uring_queue_init_params(n_entries, ring, params);
	if (error)
		return error;
	tsan_acquire(&memory_goes_round);
	if (ring->features & IORING_FEAT_FAST_POLL)
		return 0;
	ring_close(ring);
	return ENOSYS;
}

void
ring_close(struct io_uring *ring)
{
	tsan_release(&memory_goes_round);
	io_uring_queue_exit(ring);
}

/* ---- Refusals ---- */

int
ring_disabled(void)
{
	int value = -1;
	FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

static const char *
remedy(int error, int disabled)
{
	switch (error) {
	case EPERM:
	case EACCES:
		if (disabled > 0)
			return "kernel.io_uring_disabled forbids it: sysctl "
			       "kernel.io_uring_disabled=0 (or 1 and a group named by "
			       "kernel.io_uring_group)";
		return "a seccomp filter forbids it, as the default profile of containers does: "
		       "run the container with a profile that allows io_uring_setup, "
		       "io_uring_enter and io_uring_register (or --security-opt "
		       "seccomp=unconfined); in a systemd unit add SystemCallFilter=@io-event";
	case ENOSYS:
		return "this kernel has no io_uring, or a seccomp filter hides it: Linux 5.7 or "
		       "later with CONFIG_IO_URING is needed, and in a container a profile that "
		       "allows io_uring_setup";
	case ENOMEM:
		return "no memory for the ring: kernels before 5.12 count it against locked "
		       "memory, raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK= in a systemd "
		       "unit), or give the cgroup more memory";
	case EMFILE:
	case ENFILE:
		return "no file descriptor is left: raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE= "
		       "in a systemd unit) or fs.file-max";
	default:
		return "io_uring of Linux 5.7 or later is needed";
	}
}

int
ring_refused(int error, char *reason, size_t size)
{
	snprintf(reason, size, "io_uring_setup: %s (errno %d): %s", strerror(error), error,
		 remedy(error, ring_disabled()));
	return err_from_errno(error);
}
