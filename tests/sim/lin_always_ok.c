/* SPDX-License-Identifier: BSD-2-Clause */
/* The checker broken on purpose: to it every history is linearisable. test_lin must notice. */
#define LIN_MUTANT_ALWAYS_OK
#define lin_history_new always_ok_history_new
#define lin_history_add always_ok_history_add
#define lin_history_free always_ok_history_free
#define lin_result_of_status always_ok_result_of_status
#define lin_check always_ok_check
#define lin_dump always_ok_dump
#include "tests/sim/lin.c"
