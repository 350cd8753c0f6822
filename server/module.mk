# SPDX-License-Identifier: BSD-2-Clause
server_SRC += server/main.c server/options.c server/region.c server/sessions.c server/census.c \
	server/reach.c server/unlink.c server/blocks.c server/scrub.c server/expire.c \
	server/fsck.c server/fsck_file.c server/audit.c \
	server/warm.c server/recover.c server/waiting.c server/evict.c \
	server/client.c server/conn.c server/handout.c server/peers.c server/ports.c \
	server/service.c server/store.c server/guard.c server/tenants.c \
	server/messages.c server/stats.c \
	server/metrics.c server/exposition.c server/exporter.c server/check.c server/notify.c \
	server/release.c \
	server/records.c server/loader.c server/restore.c server/writer.c server/snapshot.c
server/release_CFLAGS = -DRELEASE='"$(version)"'
$(O)/obj/server/release.o: client/include/rkv.h
