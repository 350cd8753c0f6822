/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads litmus programs. They are part of the tests, so the first mistake is the last. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/litmus_program.h"

#define TEXT_MAX 1024u

struct word_of {
	const char *word;
	enum op op;
	bool is_fenced;
};

static const struct word_of words[] = {
	{"st", OP_STORE, false},        {"ld", OP_LOAD, false},       {"lcas", OP_LOCAL_CAS, false},
	{"mfence", OP_MFENCE, false},   {"await", OP_AWAIT, false},   {"send", OP_SEND, false},
	{"recv", OP_RECV, false},       {"unless", OP_UNLESS, false}, {"skip", OP_SKIP, false},
	{"poll", OP_POLL, false},       {"w", OP_WRITE, false},       {"wf", OP_WRITE, true},
	{"wi", OP_WRITE_INLINE, false}, {"r", OP_READ, false},        {"rf", OP_READ, true},
	{"cas", OP_CAS, false},         {"casf", OP_CAS, true},       {"faa", OP_FAA, false},
	{"faaf", OP_FAA, true},
};

static void
check(bool ok, const char *what, const char *text)
{
	if (ok)
		return;
	fprintf(stderr, "litmus: %s: '%s'\n", what, text ? text : "");
	abort();
}

static char *
next_word(char **rest)
{
	return strtok_r(NULL, " ", rest);
}

static void
copy_name(char *to, const char *name, size_t len)
{
	check(len > 0 && len < LITMUS_NAME_MAX, "no name", name);
	memcpy(to, name, len);
	to[len] = '\0';
}

unsigned
litmus_location(const struct litmus *litmus, const char *name)
{
	for (unsigned i = 0; i < litmus->n_locations; i++) {
		if (strcmp(litmus->location[i].name, name) == 0)
			return i;
	}
	check(false, "unknown location", name);
	return 0;
}

unsigned
litmus_thread(const struct litmus *litmus, const char *name)
{
	for (unsigned i = 0; i < litmus->n_threads; i++) {
		if (strcmp(litmus->thread[i].name, name) == 0)
			return i;
	}
	check(false, "unknown thread", name);
	return 0;
}

static unsigned
qp_of(const struct litmus *litmus, const char *name)
{
	for (unsigned i = 0; name && i < litmus->n_qps; i++) {
		if (strcmp(litmus->qp[i].name, name) == 0)
			return i;
	}
	check(false, "unknown queue pair", name);
	return 0;
}

static unsigned
register_of(const char *name)
{
	check(name && *name >= 'a' && *name < 'a' + (int)LITMUS_REGISTERS && !name[1],
	      "no register", name);
	return (unsigned)(*name - 'a');
}

static struct operand
operand_of(const char *text)
{
	check(text, "no value", text);
	if (isalpha((unsigned char)*text))
		return (struct operand){true, register_of(text)};
	return (struct operand){false, (uint64_t)strtoll(text, NULL, 10)};
}

/* "a=b,c=d": left sides of a READ or an atomic are local, those of a WRITE remote. */
static void
parse_pieces(const struct litmus *litmus, struct statement *st, char *text)
{
	char *rest = NULL;

	check(text, "no pieces", text);
	for (char *p = strtok_r(text, ",", &rest); p; p = strtok_r(NULL, ",", &rest)) {
		char *right = strchr(p, '=');
		unsigned i = st->n_pieces++;

		check(right && i < LITMUS_PIECES, "bad pieces", p);
		*right++ = '\0';
		if (st->op == OP_WRITE_INLINE) {
			st->piece[i].remote = litmus_location(litmus, p);
			st->value[i] = operand_of(right);
		} else if (st->op == OP_WRITE) {
			st->piece[i].remote = litmus_location(litmus, p);
			st->piece[i].local = litmus_location(litmus, right);
		} else {
			st->piece[i].local = litmus_location(litmus, p);
			st->piece[i].remote = litmus_location(litmus, right);
		}
	}
}

static void
parse_operands(const struct litmus *litmus, struct statement *st, char **rest)
{
	switch (st->op) {
	case OP_STORE:
	case OP_AWAIT:
		st->location = litmus_location(litmus, next_word(rest));
		st->value[0] = operand_of(next_word(rest));
		break;
	case OP_LOAD:
		st->reg = register_of(next_word(rest));
		st->location = litmus_location(litmus, next_word(rest));
		break;
	case OP_LOCAL_CAS:
		st->reg = register_of(next_word(rest));
		st->location = litmus_location(litmus, next_word(rest));
		st->value[0] = operand_of(next_word(rest));
		st->value[1] = operand_of(next_word(rest));
		break;
	case OP_UNLESS:
		st->reg = register_of(next_word(rest));
		st->value[0] = operand_of(next_word(rest));
		st->ahead = (unsigned)operand_of(next_word(rest)).v;
		break;
	case OP_SKIP:
		st->ahead = (unsigned)operand_of(next_word(rest)).v;
		break;
	case OP_MFENCE:
	case OP_SEND:
	case OP_RECV:
		break;
	default:
		st->qp = qp_of(litmus, next_word(rest));
		if (st->op != OP_POLL)
			parse_pieces(litmus, st, next_word(rest));
		if (st->op == OP_CAS || st->op == OP_FAA)
			st->value[0] = operand_of(next_word(rest));
		if (st->op == OP_CAS)
			st->value[1] = operand_of(next_word(rest));
	}
}

static struct statement
parse_statement(const struct litmus *litmus, char *text)
{
	char *rest = NULL;
	char *word = strtok_r(text, " ", &rest);
	struct statement st = {0};

	for (unsigned i = 0; word && i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(word, words[i].word) != 0)
			continue;
		st.op = words[i].op;
		st.is_fenced = words[i].is_fenced;
		parse_operands(litmus, &st, &rest);
		check(!next_word(&rest), "too many words", word);
		return st;
	}
	check(false, "unknown statement", word);
	return st;
}

static void
parse_thread(struct litmus *litmus, char *text)
{
	unsigned t = litmus->n_threads++;
	char *rest = NULL;
	char *colon = strchr(text, ':');

	check(colon && t < LITMUS_THREADS, "bad thread", text);
	text += strspn(text, " ");
	copy_name(litmus->thread[t].name, text, (size_t)(colon - text));
	for (char *p = strtok_r(colon + 1, ";", &rest); p; p = strtok_r(NULL, ";", &rest)) {
		struct statement st = parse_statement(litmus, p);

		check(litmus->thread[t].n < LITMUS_STATEMENTS, "too many statements", text);
		litmus->thread[t].statement[litmus->thread[t].n++] = st;
		if (st.op == OP_LOAD || st.op == OP_LOCAL_CAS)
			litmus->thread[t].loads[st.reg] = true;
	}
}

static void
parse_location(struct litmus *litmus, const char *text)
{
	unsigned i = litmus->n_locations++;
	const char *equals = strchr(text, '=');

	check(equals && i < LITMUS_LOCATIONS, "bad location", text);
	copy_name(litmus->location[i].name, text, (size_t)(equals - text));
	litmus->location[i].node = (unsigned)(equals[-1] - '0');
	litmus->location[i].init = (uint64_t)strtoll(equals + 1, NULL, 10);
	check(!i || strcmp(litmus->location[i - 1].name, litmus->location[i].name) < 0,
	      "locations are not in order", text);
}

static void
parse_qp(struct litmus *litmus, const char *text)
{
	unsigned i = litmus->n_qps++;
	const char *equals = strchr(text, '=');
	const char *node = strchr(text, '>');

	check(equals && node && i < LITMUS_QPS, "bad queue pair", text);
	copy_name(litmus->qp[i].name, text, (size_t)(equals - text));
	litmus->qp[i].node = (unsigned)strtoul(node + 1, NULL, 10);
}

static void
sort_threads(struct litmus *litmus)
{
	for (unsigned i = 0; i < litmus->n_threads; i++) {
		unsigned at = 0;

		for (unsigned j = 0; j < litmus->n_threads; j++)
			at += strcmp(litmus->thread[j].name, litmus->thread[i].name) < 0;
		litmus->by_name[at] = i;
	}
}

struct litmus *
litmus_parse(const char *locations, const char *qps, const char *threads)
{
	struct litmus *litmus = calloc(1, sizeof(*litmus));
	char text[TEXT_MAX];
	char *rest = NULL;

	assert(litmus);
	check(strlen(locations) < TEXT_MAX && strlen(qps) < TEXT_MAX && strlen(threads) < TEXT_MAX,
	      "too long", threads);
	strcpy(text, locations);
	for (char *p = strtok_r(text, " ", &rest); p; p = strtok_r(NULL, " ", &rest))
		parse_location(litmus, p);
	strcpy(text, qps);
	for (char *p = strtok_r(text, " ", &rest); p; p = strtok_r(NULL, " ", &rest))
		parse_qp(litmus, p);
	strcpy(text, threads);
	for (char *p = strtok_r(text, "|", &rest); p; p = strtok_r(NULL, "|", &rest))
		parse_thread(litmus, p);
	sort_threads(litmus);
	return litmus;
}

void
litmus_destroy(struct litmus *litmus)
{
	free(litmus);
}
