/* SPDX-License-Identifier: BSD-2-Clause */
/* Text that grows within a buffer: what does not fit is left out whole. */
#ifndef RKV_SERVER_TEXT_H
#define RKV_SERVER_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct text {
	char *bytes;
	size_t max; /* of the buffer; a NUL is always within */
	size_t len;
	bool is_cut; /* something did not fit */
};

static inline void __attribute__((format(printf, 2, 3)))
text_add(struct text *text, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	size_t room = text->max - text->len;
	int len = vsnprintf(text->bytes + text->len, room, format, ap);
	va_end(ap);
	if (len >= 0 && (size_t)len < room)
		text->len += (size_t)len;
	else
		text->is_cut = true;
	text->bytes[text->len] = '\0';
}

#endif
