# SPDX-License-Identifier: BSD-2-Clause
common_SRC += common/err.c common/log.c common/memory.c common/net.c common/pool.c \
	common/pool_file.c \
	common/fabric_host.c common/fabric_shm.c
common_SRC += common/loop.c common/ring.c
common_SRC += common/cm_rdma.c common/fabric_verbs.c common/fabric_verbs_connect.c \
	common/fabric_verbs_device.c common/fabric_verbs_server.c
common_SRC += common/fabric_tcp.c common/tcp_frames.c common/tcp_hello.c common/tcp_link.c \
	common/tcp_outbox.c common/tcp_responder.c common/tcp_server.c common/tcp_spin.c
common_SRC += common/auth.c common/secret.c common/tls.c
