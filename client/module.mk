# SPDX-License-Identifier: BSD-2-Clause
client_SRC += client/op.c client/session.c client/alloc.c client/cache.c client/arena.c \
	client/control.c client/links.c client/hello.c client/channel.c client/client.c \
	client/call.c client/identity.c
