# SPDX-License-Identifier: BSD-2-Clause
#
# The layout of files: clang-format's for C, and what it leaves alone.
. tests/lint/lint.sh

formatter=${CLANG_FORMAT:-clang-format}

c_layout()
{
	local output
	output=$(files '*.c' '*.h' | tr '\n' '\0' | xargs -0 -r \
		"$formatter" --style="file:$root/.clang-format" --dry-run -Werror 2>&1) ||
		sed -n 's/^\([^ ]*:[0-9]*\):.* code should be clang-formatted.*/\1/p' <<<"$output" |
		sort -u | grep . || printf '%s\n' "$output"
}

# clang-format breaks code, but neither comments nor strings.
columns()
{
	local file
	files '*.[ch]' '*.sh' '*.mk' '*/run' Makefile | while read -r file; do
		expand -t 8 "$file" |
			awk -v file="$file" 'length($0) > 100 {
				print file ":" FNR ": " length($0) " columns"
			}'
	done
}

ends()
{
	local file
	files '*' | grep -v '^tests/fuzz/corpus/' | while read -r file; do
		grep -nHI '[[:blank:]]$' "$file"
		if [ -s "$file" ] && [ "$(tail -c 1 "$file" | od -An -tx1)" != " 0a" ]; then
			echo "$file: no newline at the end"
		fi
	done
}

root=$PWD
if command -v "$formatter" >/dev/null; then
	holds "C files are laid out by .clang-format (make format)" c_layout
	catches "a brace on the wrong line" c_layout proto/a.h <<<'int f(void) { return 1; }'
	accepts "a function as we write it" c_layout proto/a.h <<'TEXT'
static inline int
f(int a)
{
	if (a == 2) {
		return 1;
	} else {
		return 0;
	}
}
TEXT
else
	skip "C files are laid out by .clang-format" "no $formatter"
fi

holds "lines end by column 100" columns
catches "a line of 101 columns" columns proto/a.h < <(printf '\t/* %087d */\n' 0)
accepts "a line of 100 columns" columns proto/a.h < <(printf '\t/* %086d */\n' 0)

holds "no blanks at the ends of lines, and a newline at the end of files" ends
catches "a blank at the end of a line" ends proto/a.h <<<'int a; '
catches "no newline at the end" ends proto/a.h < <(printf 'int a;')

finish
