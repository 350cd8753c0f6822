/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The frames of one data connection, as a responder takes them: in pieces, with a reply buffer that
 * is emptied when it is full. The first byte says whether the peer may only READ, the second how
 * long pieces are.
 */
#include "common/tcp_frames.h"
#include "tests/fuzz/fuzz.h"

#define R_KEY UINT32_C(0x01020304)
#define REGION_LEN 4096u

static enum tcp_progress
consume(struct tcp_frames *frames, struct fuzz_input *in, size_t piece)
{
	enum tcp_progress progress = TCP_HUNGRY;
	while (progress == TCP_FULL || (progress == TCP_HUNGRY && in->len > 0)) {
		size_t len = in->len < piece ? in->len : piece;
		void *bytes = fuzz_copy(in->at, len);
		struct tcp_input input = {.at = bytes, .len = len};
		progress = tcp_frames_consume(frames, &input);
		fuzz_must(input.len <= len && frames->out_len <= TCP_OUT_LEN);
		fuzz_must(progress != TCP_HUNGRY || input.len == 0);
		in->at += len - input.len;
		in->len -= len - input.len;
		if (progress == TCP_FULL)
			frames->out_len = 0;
		free(bytes);
	}
	return progress;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	unsigned char *region = calloc(1, REGION_LEN), *out = malloc(TCP_OUT_LEN);
	struct tcp_service service = {.base = region, .len = REGION_LEN, .r_key = R_KEY};
	struct tcp_frames *frames = calloc(1, sizeof(*frames));
	struct wire_tcp_frame first;
	fuzz_must(region && out && frames);
	frames->service = &service;
	frames->out = out;
	frames->is_read_only = fuzz_byte(&in) & 1;
	size_t piece = 1 + fuzz_byte(&in) * (size_t)8;
	struct fuzz_input peek = in;
	fuzz_take(&peek, &first, sizeof(first));
	consume(frames, &in, piece);
	if (frames->is_read_only || first.r_key != R_KEY)
		for (size_t i = 0; i < REGION_LEN; i++)
			fuzz_must(region[i] == 0);
	free(frames);
	free(out);
	free(region);
	return 0;
}
