/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Warm restart: a region in a file, which outlives its servers. A *life* of it is one server's
 * time. Between two lives nothing is forgotten but who the sessions were: they are all dead, their
 * chunks orphans, and clients that come again join anew, with new serials, as the epoch is new.
 *
 *   judge    before anything else: what is in the file, and may it be used?
 *   (wait)   until no client of an earlier life can reach it any more (waiting.h), [DEAD]
 *   begin    a new epoch; what a crash of the machine has torn is mended first (recover.h)
 *   end      all bytes on the disk, and a word that says so
 */
#ifndef RKV_SERVER_WARM_H
#define RKV_SERVER_WARM_H

#include "common/pool_file.h"
#include "server/options.h"
#include "server/region.h"

enum warm_kind {
	WARM_NEW,        /* empty, or to be formatted whatever it holds */
	WARM_UNFINISHED, /* somebody died while formatting it */
	WARM_FORMER,     /* a region of the sizes that are asked for */
};

/*
 * Failures, with a sentence that says what differs and what to do: ERR_VERSION, ERR_CORRUPT,
 * ERR_INVALID.
 */
int warm_judge(const struct pool_file *file, const struct options *options,
	       enum warm_kind *ret_kind, char ret_reason[POOL_FILE_REASON_MAX]);

/* On a formatted region's mapped pool: its first life. */
void warm_begin_first(struct region *region);

/*
 * On a former region's mapped pool: the next life; fills in the identity of the region. Failures,
 * which the log has heard of: ERR_NOMEM.
 */
int warm_begin_next(struct region *region);

/* Everything has stopped, in good order. */
void warm_end(struct region *region);

#endif
