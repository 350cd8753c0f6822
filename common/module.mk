# SPDX-License-Identifier: BSD-2-Clause
common_SRC += common/err.c common/log.c common/memory.c common/net.c common/fabric_shm.c
common_SRC += common/loop.c
