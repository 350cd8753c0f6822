# SPDX-License-Identifier: BSD-2-Clause
examples_SRC += client/examples/basic.c client/examples/async.c client/examples/counter.c \
	client/examples/multi.c client/examples/buffer.c
