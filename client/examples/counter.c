/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts in several threads without a lock: read the number and its version, store the next number
 * only if that version is still there, else try again. No increment is lost and none counts twice.
 *
 *   counter localhost:7440
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rkv.h>

#define N_THREADS 4
#define N_INCREMENTS 250 /* of each thread */

static const char key[] = "example/counter";

struct worker {
	pthread_t thread;
	struct rkv_client *client; /* shared by all */
	uint64_t n_lost;           /* races lost to other threads */
	int status;
};

/* One try. RKV_MISMATCH: another thread was faster. */
static int
try_increment(struct rkv_session *session)
{
	struct rkv_item item;
	uint64_t number;
	int status = rkv_get(session, key, strlen(key), &number, sizeof(number), &item);

	if (status != RKV_OK)
		return status;
	number++;
	return rkv_cas(session, key, strlen(key), &number, sizeof(number), item.version, NULL,
		       NULL);
}

/*
 * RKV_E_MAYBE and RKV_E_TIMEOUT leave open whether the number was stored. A counter that must be
 * exact cannot try again after them, and stops here.
 */
static int
increment(struct rkv_session *session, uint64_t *n_lost)
{
	int status;

	while ((status = try_increment(session)) == RKV_MISMATCH || status == RKV_AGAIN)
		*n_lost += status == RKV_MISMATCH;
	return status;
}

static void *
work(void *arg)
{
	struct worker *worker = arg;
	struct rkv_session *session = NULL; /* of this thread alone */

	worker->status = rkv_session_open(worker->client, &session);
	for (int i = 0; i < N_INCREMENTS && worker->status == RKV_OK; i++)
		worker->status = increment(session, &worker->n_lost);
	rkv_session_close(session);
	return NULL;
}

/* Runs the threads; the number of them that failed. */
static int
run_workers(struct rkv_client *client)
{
	struct worker workers[N_THREADS] = {0};
	int n_started = 0, n_failed = 0;

	for (; n_started < N_THREADS; n_started++) {
		struct worker *worker = &workers[n_started];

		worker->client = client;
		if (pthread_create(&worker->thread, NULL, work, worker) != 0)
			break;
	}
	for (int i = 0; i < n_started; i++) {
		pthread_join(workers[i].thread, NULL);
		printf("thread %d: %s, %" PRIu64 " races lost\n", i,
		       rkv_strerror(workers[i].status), workers[i].n_lost);
		n_failed += workers[i].status != RKV_OK;
	}
	return n_failed + N_THREADS - n_started;
}

static int
count(struct rkv_client *client, struct rkv_session *session)
{
	uint64_t number = 0, expected = (uint64_t)N_THREADS * N_INCREMENTS;
	int status = rkv_put(session, key, strlen(key), &number, sizeof(number), NULL, NULL);
	int n_failed;

	if (status != RKV_OK)
		return status;
	n_failed = run_workers(client);
	status = rkv_get(session, key, strlen(key), &number, sizeof(number), NULL);
	if (status != RKV_OK)
		return status;
	printf("%d x %d increments: %" PRIu64 "\n", N_THREADS, N_INCREMENTS, number);
	return n_failed || number != expected ? RKV_MISMATCH : RKV_OK;
}

int
main(int argc, char **argv)
{
	struct rkv_client *client = NULL;
	struct rkv_session *session = NULL;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: counter HOST:PORT\n");
		return 2;
	}
	status = rkv_open(argv[1], NULL, &client);
	if (status == RKV_OK)
		status = rkv_session_open(client, &session);
	if (status == RKV_OK)
		status = count(client, session);
	if (status != RKV_OK)
		fprintf(stderr, "%s: %s\n", argv[1], rkv_strerror(status));
	rkv_session_close(session);
	rkv_close(client);
	return status != RKV_OK;
}
