/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members meet at a count of arrivals that only grows: the k-th meeting is over when k * n have
 * come. They look every fifth of a millisecond, which is how much later than another a member may
 * start. Member 0 looks as well whether a child has ended before it should.
 */
#include "bench/crew.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/clock.h"
#include "bench/shared.h"

#define LOOK_NS UINT64_C(200000)

/* What all see. */
struct board {
	_Atomic uint64_t n_arrivals;
	_Atomic int code; /* the first failure that was brought */
	_Atomic bool is_broken;
	_Atomic uint64_t n_done[]; /* of each member */
};

struct crew {
	uint32_t n;
	uint32_t index;
	uint32_t n_meetings;
	size_t board_len;
	size_t result_len;
	struct board *board;
	char *results;
};

/* In a child: ends with its parent, also if that was gone before prctl could be called. */
static void
join(struct crew *crew, uint32_t index, pid_t parent)
{
	crew->index = index;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
}

static void
discard(struct crew *crew)
{
	shared_free(crew->board, crew->board_len);
	shared_free(crew->results, crew->n * crew->result_len);
	free(crew);
}

struct crew *
crew_form(uint32_t n, size_t result_len)
{
	pid_t parent = getpid();
	struct crew *crew = calloc(1, sizeof(*crew));
	if (crew == NULL)
		return NULL;
	crew->n = n;
	crew->result_len = result_len;
	crew->board_len = sizeof(*crew->board) + n * sizeof(crew->board->n_done[0]);
	crew->board = shared_alloc(crew->board_len);
	crew->results = shared_alloc(n * result_len);
	if (crew->board == NULL || crew->results == NULL)
		goto fail;
	for (uint32_t i = 1; i < n; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			join(crew, i, parent);
			return crew;
		}
		if (pid < 0)
			goto fail;
	}
	return crew;
fail:
	if (crew->board)
		atomic_store(&crew->board->is_broken, true); /* who is there already goes home */
	discard(crew);
	return NULL;
}

uint32_t
crew_index(const struct crew *crew)
{
	return crew->index;
}

void *
crew_result(struct crew *crew, uint32_t index)
{
	return crew->results + index * crew->result_len;
}

bool
crew_is_broken(struct crew *crew)
{
	if (crew->index == 0 && crew->n > 1 && waitpid(-1, NULL, WNOHANG) != 0)
		atomic_store(&crew->board->is_broken, true);
	return atomic_load(&crew->board->is_broken);
}

int
crew_meet(struct crew *crew, int code)
{
	struct board *board = crew->board;
	int none = 0;
	if (code < 0)
		atomic_compare_exchange_strong(&board->code, &none, code);
	atomic_fetch_add(&board->n_arrivals, 1);
	uint64_t n_expected = (uint64_t)crew->n * ++crew->n_meetings;
	while (atomic_load(&board->n_arrivals) < n_expected) {
		if (crew_is_broken(crew))
			return CREW_BROKEN;
		clock_sleep(LOOK_NS);
	}
	return atomic_load(&board->code);
}

void
crew_tell(struct crew *crew, uint64_t n_done)
{
	atomic_store(&crew->board->n_done[crew->index], n_done);
}

uint64_t
crew_n_done(const struct crew *crew)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < crew->n; i++)
		n += atomic_load(&crew->board->n_done[i]);
	return n;
}

void
crew_part(struct crew *crew)
{
	if (crew == NULL)
		return;
	if (crew->index > 0)
		_exit(EXIT_SUCCESS);
	for (uint32_t i = 1; i < crew->n; i++)
		waitpid(-1, NULL, 0);
	discard(crew);
}
