/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring remembers which of the numbers behind `last` have been acknowledged: the entry of a number
 * holds the number itself. It is used again only for a number one ring further on, which is not
 * given out before `last` has passed this one; so nothing is ever cleared.
 *
 * Whoever acknowledges writes the entry, then looks whether it is the one that `last` waits for;
 * whoever moves `last` on looks at the entry behind it afterwards. Both are sequentially
 * consistent: one of the two sees the other, and the last of several acknowledgements never stays
 * behind.
 */
#include "bench/inserts.h"

#include <pthread.h>
#include <stdatomic.h>

#include "bench/shared.h"

#define RING (UINT64_C(1) << 16)

struct inserts {
	_Alignas(64) _Atomic uint64_t next;
	_Alignas(64) _Atomic uint64_t last;
	_Alignas(64) _Atomic uint32_t n_returned;
	pthread_mutex_t lock;    /* of returned; only failures take it */
	uint64_t returned[RING]; /* no more than that are ahead of last */
	_Atomic uint64_t ring[RING];
};

struct inserts *
inserts_create(uint64_t first)
{
	pthread_mutexattr_t attributes;
	struct inserts *inserts = shared_alloc(sizeof(*inserts));
	if (inserts == NULL)
		return NULL;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&inserts->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	atomic_init(&inserts->next, first);
	atomic_init(&inserts->last, first - 1);
	atomic_init(&inserts->n_returned, 0);
	for (uint64_t i = 0; i < RING; i++)
		atomic_init(&inserts->ring[i], 0);
	return inserts;
}

void
inserts_destroy(struct inserts *inserts)
{
	if (inserts == NULL)
		return;
	pthread_mutex_destroy(&inserts->lock);
	shared_free(inserts, sizeof(*inserts));
}

static bool
take_returned(struct inserts *inserts, uint64_t *ret_number)
{
	if (atomic_load_explicit(&inserts->n_returned, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&inserts->lock);
	uint32_t n = atomic_load_explicit(&inserts->n_returned, memory_order_relaxed);
	if (n > 0) {
		*ret_number = inserts->returned[n - 1];
		atomic_store_explicit(&inserts->n_returned, n - 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&inserts->lock);
	return n > 0;
}

bool
inserts_take(struct inserts *inserts, uint64_t *ret_number)
{
	if (take_returned(inserts, ret_number))
		return true;
	uint64_t number = atomic_load_explicit(&inserts->next, memory_order_relaxed);
	do {
		if (number - atomic_load(&inserts->last) > RING)
			return false;
	} while (!atomic_compare_exchange_weak(&inserts->next, &number, number + 1));
	*ret_number = number;
	return true;
}

void
inserts_acknowledge(struct inserts *inserts, uint64_t number)
{
	atomic_store(&inserts->ring[number % RING], number);
	uint64_t last = atomic_load(&inserts->last);
	while (atomic_load(&inserts->ring[(last + 1) % RING]) == last + 1) {
		if (atomic_compare_exchange_strong(&inserts->last, &last, last + 1))
			last++;
	}
}

void
inserts_give_back(struct inserts *inserts, uint64_t number)
{
	pthread_mutex_lock(&inserts->lock);
	uint32_t n = atomic_load_explicit(&inserts->n_returned, memory_order_relaxed);
	inserts->returned[n] = number;
	atomic_store_explicit(&inserts->n_returned, n + 1, memory_order_relaxed);
	pthread_mutex_unlock(&inserts->lock);
}

uint64_t
inserts_last(struct inserts *inserts)
{
	return atomic_load_explicit(&inserts->last, memory_order_acquire);
}
