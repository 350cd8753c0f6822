/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for those who could still change the pool of a server before this one, [DEAD]: clients
 * that map its file. One that runs lets go of it as soon as its connection is lost; one that is
 * stopped, or whose process dies slowly, does not. There is no deadline: going on would be wrong,
 * and giving up no better. Who connects meanwhile is told whom the server waits for.
 */
#ifndef RKV_SERVER_WAITING_H
#define RKV_SERVER_WAITING_H

#include <stdint.h>

#include "common/log.h"
#include "common/pool_file.h"
#include "server/ports.h"

/*
 * Waits until nobody maps the file; ports: the control port. Returns how long it took, in
 * milliseconds.
 */
uint64_t waiting_for_former(const struct pool_file *file, const struct ports *ports,
			    const struct log *log);

#endif
