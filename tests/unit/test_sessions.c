/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions and stamps without sockets: G, its holder, lingering, slots, serials. [STAMP], [DEAD] */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "server/sessions.h"

#define FIRST_STAMP 1000

struct fixture {
	struct sessions s;
	uint64_t superblock_serial;
	struct session_owner owner[3];
};

static int
set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	f->superblock_serial = 1;
	sessions_init(&f->s, &f->superblock_serial, FIRST_STAMP);
	for (size_t i = 0; i < 3; i++) {
		f->owner[i].connected = true;
		LIST_INIT(&f->owner[i].sessions);
	}
	*state = f;
	return 0;
}

static int
tear_down(void **state)
{
	free(*state);
	return 0;
}

static struct session *
join_numbered(struct fixture *f, int owner, uint32_t attempt)
{
	struct session *session;
	const char *reason;
	assert_int_equal(sessions_join(&f->s, &f->owner[owner], attempt, &session, &reason), 0);
	return session;
}

static struct session *
join(struct fixture *f, int owner)
{
	return join_numbered(f, owner, 0);
}

static void
map(struct fixture *f, int owner, pid_t pid)
{
	f->owner[owner].mapped = true;
	f->owner[owner].pid = pid;
}

static void
tick(struct fixture *f, unsigned n)
{
	while (n--)
		sessions_tick(&f->s);
}

/* 0: nobody holds G back. */
static pid_t
holder_pid(const struct fixture *f)
{
	const struct session *holder = sessions_holder(&f->s);
	return holder ? holder->owner->pid : 0;
}

static void
sweep(struct fixture *f)
{
	sessions_sweep_begin(&f->s);
	sessions_sweep_end(&f->s);
}

static void
without_sessions_g_is_newest(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP);
	tick(f, 7);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 7);
}

static void
a_joiner_counts_from_the_newest_stamp(void **state)
{
	struct fixture *f = *state;
	tick(f, 5);
	struct session *session = join(f, 0);
	assert_int_equal(session->a, FIRST_STAMP + 5);
	tick(f, 3);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 5);
}

static void
g_is_the_smallest_a(void **state)
{
	struct fixture *f = *state;
	struct session *one = join(f, 0), *two = join(f, 1);
	tick(f, 10);
	struct session *three = join(f, 1);
	sessions_announce(&f->s, one, FIRST_STAMP + 4);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP);
	sessions_announce(&f->s, two, FIRST_STAMP + 2);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 2);
	sessions_announce(&f->s, two, FIRST_STAMP + 9);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 4);
	sessions_announce(&f->s, one, FIRST_STAMP + 10);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 9);
	sessions_announce(&f->s, two, FIRST_STAMP + 10);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 10);
	assert_int_equal(three->a, FIRST_STAMP + 10);
}

static void
a_never_falls_and_is_never_ahead(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	tick(f, 5);
	sessions_announce(&f->s, session, FIRST_STAMP + 3);
	sessions_announce(&f->s, session, FIRST_STAMP + 1);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 3);
	sessions_announce(&f->s, session, FIRST_STAMP + 6);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 3);
	sessions_announce(&f->s, session, UINT64_MAX);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 3);
}

/* Against a recount, over many random steps: G never falls and is what its definition says. */
static void
g_is_right_after_random_steps(void **state)
{
	struct fixture *f = *state;
	uint64_t last = 0;
	srandom(4711);
	for (int i = 0; i < 20000; i++) {
		struct session *session = &f->s.slot[1 + random() % 20];
		switch (random() % 8) {
		case 0:
			sessions_tick(&f->s);
			break;
		case 1:
			f->s.last_slot = 0;
			if (f->s.n_living + f->s.n_ending < 20)
				join(f, (int)(random() % 3));
			break;
		case 2:
			if (session->state == SESSION_LIVING && random() % 4 == 0)
				sessions_end(&f->s, session, random() % 2);
			break;
		case 3:
			sessions_sweep_begin(&f->s);
			break;
		case 4:
			sessions_sweep_end(&f->s);
			break;
		default:
			if (session->state == SESSION_LIVING)
				sessions_announce(&f->s, session,
						  session->a + (uint64_t)random() % 9 - 2);
		}
		uint64_t least = f->s.newest;
		for (uint32_t slot = 1; slot <= LIMIT_SESSIONS; slot++)
			if (f->s.slot[slot].state != SESSION_FREE && f->s.slot[slot].a < least)
				least = f->s.slot[slot].a;
		assert_int_equal(sessions_g(&f->s), least);
		assert_true(least >= last);
		last = least;
	}
	assert_true(last > FIRST_STAMP + 100);
}

static void
an_ended_session_counts_until_swept(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	uint32_t slot = session->slot;
	tick(f, 5);
	assert_true(sessions_is_living(&f->s, slot));
	sessions_end(&f->s, session, false);
	assert_false(sessions_is_living(&f->s, slot));
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP);
	sweep(f);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 5);
	assert_int_equal(f->s.n_ending, 0);
}

static void
a_sweep_frees_only_who_ended_before_it(void **state)
{
	struct fixture *f = *state;
	struct session *early = join(f, 0), *late = join(f, 0);
	sessions_end(&f->s, early, true);
	sessions_sweep_begin(&f->s);
	sessions_end(&f->s, late, true);
	sessions_sweep_end(&f->s);
	assert_int_equal(early->state, SESSION_FREE);
	assert_int_equal(late->state, SESSION_ENDING);
	/* A pass that failed and is begun again proves something only from its new beginning. */
	sessions_sweep_begin(&f->s);
	sessions_sweep_begin(&f->s);
	sessions_sweep_end(&f->s);
	assert_int_equal(late->state, SESSION_FREE);
	assert_int_equal(f->s.n_left, 2);
	assert_int_equal(f->s.n_died, 0);
}

/* A slot that ended, was freed and ended again during one sweep is not freed by that sweep. */
static void
a_slot_in_use_again_is_not_freed_by_an_old_sweep(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	sessions_end(&f->s, session, true);
	sweep(f);
	f->s.last_slot = session->slot - 1;
	sessions_sweep_begin(&f->s);
	assert_ptr_equal(join(f, 0), session);
	sessions_end(&f->s, session, false);
	sessions_sweep_end(&f->s);
	assert_int_equal(session->state, SESSION_ENDING);
}

static void
slots_run_out_and_come_back(void **state)
{
	struct fixture *f = *state;
	struct session *session;
	const char *reason = NULL;
	for (uint32_t i = 0; i < LIMIT_SESSIONS; i++)
		join(f, 0);
	assert_int_equal(f->owner[0].n_sessions, LIMIT_SESSIONS);
	assert_int_equal(sessions_join(&f->s, &f->owner[1], 0, &session, &reason), ERR_NOMEM);
	assert_non_null(strstr(reason, "slot"));
	sessions_end(&f->s, &f->s.slot[17], false);
	assert_int_equal(sessions_join(&f->s, &f->owner[1], 0, &session, &reason), ERR_NOMEM);
	sweep(f);
	assert_int_equal(join(f, 1)->slot, 17);
}

static void
serials_are_never_used_twice(void **state)
{
	struct fixture *f = *state;
	struct session *session;
	const char *reason = NULL;
	uint32_t first = join(f, 0)->serial;
	session = join(f, 0);
	assert_int_equal(session->serial, first + 1);
	assert_int_equal(f->superblock_serial, first + 2);
	f->superblock_serial = 1; /* a client that scribbles there changes nothing */
	assert_int_equal(sessions_renew(&f->s, session, &reason), 0);
	assert_int_equal(session->serial, first + 2);
	assert_int_equal(f->superblock_serial, first + 3);
	f->s.next_serial = UINT32_MAX;
	assert_int_equal(join(f, 0)->serial, UINT32_MAX);
	assert_int_equal(sessions_renew(&f->s, session, &reason), ERR_NOMEM);
	assert_non_null(strstr(reason, "serial"));
	assert_int_equal(sessions_join(&f->s, &f->owner[0], 0, &session, &reason), ERR_NOMEM);
	assert_int_equal(f->superblock_serial, UINT64_C(1) << 32);
}

static void
a_session_is_found_by_its_owner_only(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	const char *reason;
	uint32_t serial = session->serial;
	assert_ptr_equal(sessions_find(&f->s, &f->owner[0], session->slot, serial), session);
	assert_null(sessions_find(&f->s, &f->owner[1], session->slot, serial));
	assert_null(sessions_find(&f->s, &f->owner[0], session->slot + 1, serial));
	assert_null(sessions_find(&f->s, &f->owner[0], session->slot, serial + 1));
	assert_null(sessions_find(&f->s, &f->owner[0], session->slot, 0));
	assert_null(sessions_find(&f->s, &f->owner[0], UINT32_MAX, serial));
	assert_null(sessions_find(&f->s, &f->owner[0], 0, serial));
	/* After a renewal the client may still say its old serial: the answer is under way. */
	assert_int_equal(sessions_renew(&f->s, session, &reason), 0);
	assert_ptr_equal(sessions_find(&f->s, &f->owner[0], session->slot, serial), session);
	assert_ptr_equal(sessions_find(&f->s, &f->owner[0], session->slot, session->serial),
			 session);
	sessions_end(&f->s, session, true);
	assert_null(sessions_find(&f->s, &f->owner[0], session->slot, serial));
}

static void
sessions_linger_while_the_process_lives(void **state)
{
	struct fixture *f = *state;
	join(f, 0);
	map(f, 0, 4242);
	sessions_disconnected(&f->s, &f->owner[0]);
	tick(f, SESSIONS_LAG_MAX + 1);
	assert_int_equal(sessions_lingering(&f->s), 1);
	assert_int_equal(f->s.n_living, 1);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP);
	assert_int_equal(holder_pid(f), 4242);
	sessions_process_gone(&f->s, &f->owner[0]);
	assert_int_equal(sessions_lingering(&f->s), 0);
	assert_int_equal(f->owner[0].n_sessions, 0);
	assert_int_equal(f->s.n_died, 1);
	sweep(f);
	assert_int_equal(sessions_g(&f->s), f->s.newest);
	assert_int_equal(holder_pid(f), 0);
}

static void
without_the_pool_sessions_end_with_the_connection(void **state)
{
	struct fixture *f = *state;
	join(f, 0);
	sessions_disconnected(&f->s, &f->owner[0]);
	assert_int_equal(f->s.n_living, 0);
	assert_int_equal(f->s.n_ending, 1);
}

/* A process whose number we cannot see (another pid namespace) may have the pool mapped as well. */
static void
an_unknown_process_lingers_too(void **state)
{
	struct fixture *f = *state;
	join(f, 0);
	map(f, 0, 0);
	sessions_disconnected(&f->s, &f->owner[0]);
	assert_int_equal(f->s.n_living, 1);
}

static void
only_a_lagging_session_is_a_holder(void **state)
{
	struct fixture *f = *state;
	struct session *slow = join(f, 0), *quick = join(f, 1);
	map(f, 0, 11);
	map(f, 1, 22);
	tick(f, SESSIONS_LAG_MAX);
	assert_int_equal(holder_pid(f), 0);
	sessions_announce(&f->s, quick, FIRST_STAMP + 1);
	tick(f, 1);
	assert_int_equal(holder_pid(f), 11);
	sessions_announce(&f->s, slow, f->s.newest);
	assert_int_equal(holder_pid(f), 0);
	tick(f, 1);
	assert_int_equal(holder_pid(f), 22);
}

static void
a_former_session_is_named_by_who_may(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	const char *reason;
	map(f, 0, 11);
	uint32_t serial = session->serial;
	assert_ptr_equal(sessions_find_former(&f->s, &f->owner[0], serial), session);
	assert_null(sessions_find_former(&f->s, &f->owner[1], serial));
	map(f, 1, 11); /* the same process over a new connection, the old one not yet seen closed */
	assert_ptr_equal(sessions_find_former(&f->s, &f->owner[1], serial), session);
	map(f, 1, 22);
	assert_null(sessions_find_former(&f->s, &f->owner[1], serial));
	sessions_disconnected(&f->s, &f->owner[0]);
	assert_null(sessions_find_former(&f->s, &f->owner[1], serial)); /* another one for sure */
	map(f, 1, 0);
	assert_ptr_equal(sessions_find_former(&f->s, &f->owner[1], serial), session);
	/* The answer to its renewal was lost: it knows itself by its old serial. */
	assert_int_equal(sessions_renew(&f->s, session, &reason), 0);
	assert_ptr_equal(sessions_find_former(&f->s, &f->owner[1], serial), session);
	assert_null(sessions_find_former(&f->s, &f->owner[1], 0));
	assert_null(sessions_find_former(&f->s, &f->owner[1], 99));
}

/* The answer to a JOIN was lost: its number finds what it made, until the client knows it. */
static void
a_session_is_found_by_its_attempt(void **state)
{
	struct fixture *f = *state;
	struct session *lost = join_numbered(f, 0, 77);
	join(f, 0);
	map(f, 0, 11);
	map(f, 1, 22);
	assert_null(sessions_find_attempt(&f->s, &f->owner[0], 0));
	assert_null(sessions_find_attempt(&f->s, &f->owner[0], 78));
	assert_null(sessions_find_attempt(&f->s, &f->owner[1], 77));
	map(f, 1, 11);
	assert_ptr_equal(sessions_find_attempt(&f->s, &f->owner[1], 77), lost);
	sessions_end(&f->s, lost, false);
	assert_null(sessions_find_attempt(&f->s, &f->owner[1], 77));
	struct session *known = join_numbered(f, 1, 77);
	assert_ptr_equal(sessions_find_attempt(&f->s, &f->owner[1], 77), known);
	assert_non_null(sessions_find(&f->s, &f->owner[1], known->slot, known->serial));
	assert_null(sessions_find_attempt(&f->s, &f->owner[1], 77));
}

/* Who has no pool has nothing in flight, and no reason to hold G. */
static void
an_idle_holder_never_took_the_pool(void **state)
{
	struct fixture *f = *state;
	struct session *idle, *slow;
	slow = join(f, 0);
	map(f, 0, 11);
	tick(f, 1);
	idle = join(f, 1);
	tick(f, SESSIONS_LAG_MAX);
	assert_null(sessions_stalled(&f->s, SESSIONS_LAG_MAX));
	tick(f, 1);
	/* nor if one holds G more */
	assert_ptr_equal(sessions_stalled(&f->s, SESSIONS_LAG_MAX), idle);
	assert_null(sessions_stalled(&f->s, SESSIONS_LAG_MAX + 1));
	sessions_announce(&f->s, idle, FIRST_STAMP + 2);
	assert_null(sessions_stalled(&f->s, SESSIONS_LAG_MAX));
	tick(f, 1);
	sessions_announce(&f->s, slow, f->s.newest);
	assert_ptr_equal(sessions_stalled(&f->s, SESSIONS_LAG_MAX), idle);
	sessions_process_gone(&f->s, &f->owner[1]);
	assert_null(sessions_stalled(&f->s, SESSIONS_LAG_MAX));
}

/* ---- Peers ---- */

static struct session *
admit(struct fixture *f, int owner, const struct session *session, const char *refusal)
{
	const char *reason = "";
	struct session *admitted =
		sessions_admit(&f->s, &f->owner[owner], session->slot, session->serial, &reason);
	if (refusal)
		assert_non_null(strstr(reason, refusal));
	return admitted;
}

/* One connection for every JOIN or RELINK that is answered, and none without. */
static void
a_session_is_due_one_peer(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	assert_null(admit(f, 0, session, "since its last JOIN"));
	sessions_expect(session);
	assert_ptr_equal(admit(f, 0, session, NULL), session);
	assert_null(admit(f, 0, session, "since its last JOIN"));
	sessions_expect(session); /* RELINK, and again before anybody came */
	sessions_expect(session);
	assert_ptr_equal(admit(f, 0, session, NULL), session);
	assert_null(admit(f, 0, session, "since its last JOIN"));
}

static void
only_a_living_session_of_that_client_is_admitted(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	const char *reason;
	sessions_expect(session);
	uint32_t serial = session->serial;
	assert_null(admit(f, 1, session, "no such session"));
	assert_null(sessions_admit(&f->s, &f->owner[0], session->slot, serial + 1, &reason));
	assert_null(sessions_admit(&f->s, &f->owner[0], 0, 0, &reason));
	assert_null(sessions_admit(&f->s, &f->owner[0], UINT32_MAX, serial, &reason));
	sessions_end(&f->s, session, true);
	assert_null(sessions_admit(&f->s, &f->owner[0], session->slot, serial, &reason));
	sweep(f);
	/* What the last one in the slot was due is not the next one's. */
	f->s.last_slot = session->slot - 1;
	struct session *next = join(f, 0);
	assert_ptr_equal(next, session);
	assert_null(admit(f, 0, next, "since its last JOIN"));
}

/* A session of which something may still land cannot end, [DEAD]. */
static void
a_session_with_a_peer_cannot_end(void **state)
{
	struct fixture *f = *state;
	struct session *session = join(f, 0);
	static char peer;
	int status;
	session->peer = (void *)&peer;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		signal(SIGABRT, SIG_DFL); /* cmocka's handler is the parent's */
		close(STDERR_FILENO);
		sessions_end(&f->s, session, true);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	session->peer = NULL;
	sessions_end(&f->s, session, true);
	assert_int_equal(f->s.n_ending, 1);
}

/* A worker counts from its beginning, and no longer than it works; G does not fall with it. */
static void
a_worker_counts_while_it_is_at_work(void **state)
{
	struct fixture *f = *state;
	struct sessions_worker worker = {0}, other = {0};
	sessions_work_begin(&f->s, &worker);
	tick(f, 3);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP);
	sessions_work_begin(&f->s, &other);
	struct session *session = join(f, 0);
	tick(f, 1);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP);
	sessions_work_end(&worker);
	sessions_work_end(&worker);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 3);
	sessions_announce(&f->s, session, FIRST_STAMP + 4);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 3);
	sessions_work_end(&other);
	assert_int_equal(sessions_g(&f->s), FIRST_STAMP + 4);
}

/* The stamp of a moment passes only when all that were at work then have ended. */
static void
a_moment_passes_behind_everybody(void **state)
{
	struct fixture *f = *state;
	struct sessions_worker worker = {0};
	struct session *session = join(f, 0);
	sessions_work_begin(&f->s, &worker);
	uint64_t moment = sessions_moment(&f->s);
	assert_int_equal(moment, FIRST_STAMP + 1);
	tick(f, 2);
	assert_true(sessions_g(&f->s) <= moment);
	sessions_announce(&f->s, session, f->s.newest);
	assert_true(sessions_g(&f->s) <= moment);
	sessions_work_end(&worker);
	assert_true(sessions_g(&f->s) > moment);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(without_sessions_g_is_newest),
		TEST(a_joiner_counts_from_the_newest_stamp),
		TEST(g_is_the_smallest_a),
		TEST(a_never_falls_and_is_never_ahead),
		TEST(g_is_right_after_random_steps),
		TEST(an_ended_session_counts_until_swept),
		TEST(a_sweep_frees_only_who_ended_before_it),
		TEST(a_slot_in_use_again_is_not_freed_by_an_old_sweep),
		TEST(slots_run_out_and_come_back),
		TEST(serials_are_never_used_twice),
		TEST(a_session_is_found_by_its_owner_only),
		TEST(sessions_linger_while_the_process_lives),
		TEST(without_the_pool_sessions_end_with_the_connection),
		TEST(an_unknown_process_lingers_too),
		TEST(only_a_lagging_session_is_a_holder),
		TEST(a_former_session_is_named_by_who_may),
		TEST(a_session_is_found_by_its_attempt),
		TEST(an_idle_holder_never_took_the_pool),
		TEST(a_session_is_due_one_peer),
		TEST(only_a_living_session_of_that_client_is_admitted),
		TEST(a_session_with_a_peer_cannot_end),
		TEST(a_worker_counts_while_it_is_at_work),
		TEST(a_moment_passes_behind_everybody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
