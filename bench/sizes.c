/* SPDX-License-Identifier: BSD-2-Clause */
/* Both laws are drawn by their inverse; u is made of the record's number, mixed. */
#include "bench/sizes.h"

#include <math.h>

#include "bench/generator.h"

#define KEY_LOCATION 30.7984
#define KEY_SCALE 8.20449
#define KEY_SHAPE 0.078688

#define VALUE_LOCATION 15.0
#define VALUE_SCALE 214.476
#define VALUE_SHAPE 0.348238

/* So that a record's key and value lengths do not go together. */
#define KEY_SALT UINT64_C(0x6b65790000000000)
#define VALUE_SALT UINT64_C(0x76616c7565000000)

double
sizes_etc_key_law(double u)
{
	return KEY_LOCATION + KEY_SCALE / KEY_SHAPE * (pow(-log(u), -KEY_SHAPE) - 1);
}

double
sizes_etc_value_law(double u)
{
	return VALUE_LOCATION + VALUE_SCALE / VALUE_SHAPE * (pow(1 - u, -VALUE_SHAPE) - 1);
}

/* Never 0, for which the first law has no value. */
static double
unit(uint64_t number)
{
	return ((double)(gen_mix(number) >> 12) + 0.5) * 0x1p-52;
}

static uint64_t
within(double len, uint64_t min, uint64_t max)
{
	if (len < (double)min)
		return min;
	return len > (double)max ? max : (uint64_t)len;
}

uint32_t
sizes_etc_key(uint64_t number)
{
	double len = sizes_etc_key_law(unit(number ^ KEY_SALT));
	return (uint32_t)within(len, SIZES_ETC_KEY_MIN, SIZES_ETC_KEY_MAX);
}

uint64_t
sizes_value_max(const struct sizes *sizes)
{
	return sizes->kind == SIZES_ETC ? SIZES_ETC_VALUE_MAX : sizes->value_len;
}

uint64_t
sizes_value(const struct sizes *sizes, uint64_t number)
{
	if (sizes->kind == SIZES_FIXED)
		return sizes->value_len;
	return within(sizes_etc_value_law(unit(number ^ VALUE_SALT)), 0, SIZES_ETC_VALUE_MAX);
}
