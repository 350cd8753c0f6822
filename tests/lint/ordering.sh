# SPDX-License-Identifier: BSD-2-Clause
#
# Ordering tags, [PUBLISH] and the like, and the rules of GET and INSERT: each one that a comment of
# the sources names stands in proto/ORDERING.md, and each one there is named by a comment.
. tests/lint/lint.sh

tag='\[[A-Z]([A-Z0-9-]*[A-Z0-9])\]'

used()
{
	local file
	files '*.[ch]' | grep -E '^(proto|common|client|server)/' | while read -r file; do
		comments "$file" | grep -oE "(^|[^A-Za-z0-9_])$tag"
	done | grep -oE "$tag" | sort -u
}

# A link, [TEXT](address), is no tag.
explained()
{
	grep -oE "$tag(\$|[^(])" proto/ORDERING.md 2>/dev/null | grep -oE "$tag" | sort -u
}

unexplained()
{
	comm -23 <(used) <(explained) | sed 's|$| is named by a comment, but not in ORDERING.md|'
}

unused()
{
	comm -13 <(used) <(explained) | sed 's|$| is in ORDERING.md, but no comment names it|'
}

if [ -e proto/ORDERING.md ]; then
	holds "tags in comments stand in proto/ORDERING.md" unexplained
	holds "tags of proto/ORDERING.md are used in comments" unused
else
	not_ok "proto/ORDERING.md is there"
fi

plant client/op.c <<'TEXT'
/* The store [PUBLISH] makes visible, as
 * in [G1]. */
int a = counts[MAX]; // and [ONE-WORD]
TEXT
accepts "tags of both kinds, all explained" unexplained proto/ORDERING.md <<'TEXT'
[PUBLISH] [G1] [ONE-WORD]
TEXT
plant client/op.c <<<'/* [PUBLISH] */ /* [G1] */'
catches "a tag that is not explained" unexplained proto/ORDERING.md <<<'[G1] and [G2]'
plant client/op.c <<<'/* [G1] */ int a = b [PUBLISH]; /* c[WRAP] */'
catches "a tag that no comment names" unused proto/ORDERING.md <<<'- [G1], [PUBLISH]'
plant client/op.c <<<'/* [G1] */'
accepts "a link in the text" unused proto/ORDERING.md <<<'[G1], see [LAYOUT](LAYOUT.md)'

finish
