/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The location cache against a plain model: it may forget, but never answer with another key's
 * place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/cache.h"

#define N_KEYS 5000u

struct model {
	uint64_t slot_off;
	uint64_t word;
};

static uint32_t
make_key(uint32_t i, unsigned char *key)
{
	uint32_t len = 4 + i * 7 % 60 + (i % 97 == 0 ? 900 : 0);
	for (uint32_t b = 0; b < len; b++)
		key[b] = (unsigned char)(i >> (b % 4 * 8));
	return len;
}

static void
check_all(struct cache *cache, const struct model *model, uint32_t *ret_n_found)
{
	unsigned char key[LIMIT_KEY_MAX];
	*ret_n_found = 0;
	for (uint32_t i = 0; i < N_KEYS; i++) {
		uint32_t len = make_key(i, key);
		struct hash h = hash_key(key, len, 1);
		const struct cache_entry *e = cache_find(cache, &h, key, len);
		if (!e)
			continue;
		++*ret_n_found;
		assert_int_equal(e->slot_off, model[i].slot_off);
		assert_int_equal(e->word, model[i].word);
	}
}

static void
test_random_use(void **state)
{
	(void)state;
	static const size_t sizes[] = {CACHE_BYTES_MIN, 10000, 65536, 1 << 20};
	struct model *model = calloc(N_KEYS, sizeof(*model));
	unsigned char key[LIMIT_KEY_MAX];
	srand(7);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		struct cache cache;
		assert_int_equal(cache_create(&cache, sizes[s]), 0);
		for (uint32_t step = 0; step < 200000; step++) {
			uint32_t i = (uint32_t)rand() % N_KEYS;
			uint32_t len = make_key(i, key);
			struct hash h = hash_key(key, len, 1);
			if (rand() % 10 == 0) {
				cache_drop(&cache, &h, key, len);
				assert_null(cache_find(&cache, &h, key, len));
				continue;
			}
			model[i] = (struct model){8 * step, step};
			cache_put(&cache, &h, key, len, 8 * step, step, 0, 0);
			const struct cache_entry *e = cache_find(&cache, &h, key, len);
			assert_non_null(e);
			assert_int_equal(e->word, step);
		}
		uint32_t n_found;
		check_all(&cache, model, &n_found);
		assert_true(n_found > 0);
		cache_clear(&cache);
		check_all(&cache, model, &n_found);
		assert_int_equal(n_found, 0);
		cache_destroy(&cache);
	}
	free(model);
}

/* What is used again and again survives a stream of keys that are used once. */
static void
test_second_chance(void **state)
{
	(void)state;
	struct cache cache;
	assert_int_equal(cache_create(&cache, 65536), 0);
	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t hot = i % 50;
		struct hash h = hash_key(&hot, sizeof(hot), 1);
		if (!cache_find(&cache, &h, &hot, sizeof(hot)))
			cache_put(&cache, &h, &hot, sizeof(hot), hot, hot, 0, 0);
		uint32_t cold = 1000 + i;
		h = hash_key(&cold, sizeof(cold), 1);
		cache_put(&cache, &h, &cold, sizeof(cold), cold, cold, 0, 0);
	}
	uint32_t n_hot = 0;
	for (uint32_t hot = 0; hot < 50; hot++) {
		struct hash h = hash_key(&hot, sizeof(hot), 1);
		n_hot += cache_find(&cache, &h, &hot, sizeof(hot)) != NULL;
	}
	assert_true(n_hot >= 45);
	cache_destroy(&cache);
}

static void
test_no_cache(void **state)
{
	(void)state;
	struct cache cache;
	struct hash h = hash_key("k", 1, 1);
	assert_int_equal(cache_create(&cache, 0), 0);
	cache_put(&cache, &h, "k", 1, 8, 9, 0, 0);
	assert_null(cache_find(&cache, &h, "k", 1));
	cache_drop(&cache, &h, "k", 1);
	cache_clear(&cache);
	cache_destroy(&cache);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_use),
		cmocka_unit_test(test_second_chance),
		cmocka_unit_test(test_no_cache),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
