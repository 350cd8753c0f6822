/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What travels in the private data of rdma_cm's messages: a request, as the server takes it, an
 * acceptance and a refusal, as a client does. Each is a good one, changed where the input is not 0.
 * The first byte says how much of it is cut off, the second the status of the event.
 */
#include "common/err.h"
#include "common/fabric_verbs_internal.h"
#include "tests/fuzz/fuzz.h"

#define REGION_LEN UINT64_C(0x1000000)
#define BASE UINT64_C(0x7f0000000000)

static struct cm_event
event_with(struct fuzz_input in, const void *good, size_t len)
{
	struct cm_event event = {.responder_resources = 1};
	uint8_t cut = fuzz_byte(&in);
	event.status = fuzz_byte(&in);
	event.private_len = (uint8_t)(cut < len ? len - cut : 0);
	memcpy(event.private_data, good, event.private_len);
	for (size_t i = 0; i < event.private_len; i++)
		event.private_data[i] ^= fuzz_byte(&in);
	return event;
}

static void
take_request(struct fuzz_input in)
{
	struct wire_cm_request good = {.magic = WIRE_CM_MAGIC, .version = WIRE_VERSION}, got;
	struct cm_event event = event_with(in, &good, sizeof(good));
	char reason[VERBS_REASON_MAX] = "";
	if (cm_take_request(&event, &got, reason))
		fuzz_must(reason[0]);
	else
		fuzz_must(got.magic == WIRE_CM_MAGIC && got.reserved == 0);
}

/* Every byte of the region is in one segment, and no segment reaches beyond it. */
static void
check_segments(const struct verbs_endpoint *ep)
{
	fuzz_must(ep->n_segments >= 1 && ep->n_segments <= WIRE_SEGMENTS_MAX);
	fuzz_must(ep->segment_len > 0 && ep->base + ep->len > ep->base);
	fuzz_must((ep->len - 1) / ep->segment_len == ep->n_segments - 1);
}

static void
take_accept(struct fuzz_input in)
{
	struct wire_cm_accept good = {
		.magic = WIRE_CM_MAGIC,
		.version = WIRE_VERSION,
		.n_segments = 4,
		.base = BASE,
		.segment_len = REGION_LEN / 4,
		.r_key = {1, 2, 3, 4},
	};
	struct wire_cm_accept got;
	struct cm_event event = event_with(in, &good, sizeof(good));
	struct verbs_region region = {.offer = {.len = REGION_LEN, .base = BASE, .r_key = 1}};
	struct verbs_endpoint *ep = calloc(1, sizeof(*ep));
	char reason[VERBS_REASON_MAX] = "";
	fuzz_must(ep);
	ep->ep.region = &region.region;
	int rc = cm_take_accept(&event, "fuzz:1", &got, reason);
	if (!rc)
		rc = verbs_take_accept(ep, &got, reason);
	if (rc)
		fuzz_must(rc < 0 && reason[0]);
	else
		check_segments(ep);
	free(ep);
}

static void
take_reject(struct fuzz_input in)
{
	struct wire_cm_reject good = {.magic = WIRE_CM_MAGIC, .code = ERR_PERM, .reason = "no"};
	struct cm_event event = event_with(in, &good, sizeof(good));
	char reason[VERBS_REASON_MAX] = "";
	int rc = cm_take_reject(&event, "fuzz:1", reason);
	fuzz_must(rc < 0 && reason[0] && memchr(reason, '\0', sizeof(reason)));
	for (char *c = reason; *c; c++)
		fuzz_must(*c >= ' ' && *c < 0x7f);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	take_request(in);
	take_accept(in);
	take_reject(in);
	return 0;
}
