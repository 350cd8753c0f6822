/* SPDX-License-Identifier: BSD-2-Clause */
/* The checker broken on purpose: it lets all operations overlap. test_lin must notice. */
#define LIN_MUTANT_NO_REALTIME
#define lin_history_new no_realtime_history_new
#define lin_history_add no_realtime_history_add
#define lin_history_free no_realtime_history_free
#define lin_result_of_status no_realtime_result_of_status
#define lin_check no_realtime_check
#define lin_dump no_realtime_dump
#include "tests/sim/lin.c"
