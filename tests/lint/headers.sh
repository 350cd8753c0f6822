# SPDX-License-Identifier: BSD-2-Clause
#
# Every header compiles alone and twice; rkv.h also as C99, as C++11, and with nothing else of ours.
. tests/lint/lint.sh

strict="-fsyntax-only -Wall -Wextra -Wundef -Werror"
compiler=${CC:-gcc}

# Only inline functions are there, so that unused ones are no fault of the header.
compile_alone()
{
	printf '#include "%s"\n#include "%s"\n' "$1" "$1" >"$DIR/alone.c"
	$compiler -std=gnu11 -D_GNU_SOURCE $strict -I. -Iclient/include "$DIR/alone.c"
}

alone()
{
	local header
	files '*.h' | while read -r header; do
		compile_alone "$header" 2>&1 || echo "$header does not compile alone"
	done
}

public_header_as()
{
	cp client/include/rkv.h "$DIR/rkv.h"
	printf '#include "rkv.h"\nint main(void) { return RKV_OK; }\n' >"$DIR/public.c"
	(cd "$DIR" && "$@" $strict -pedantic-errors -Wshadow public.c) 2>&1
}

as_c99()
{
	public_header_as $compiler -std=c99 -x c
}

as_cpp11()
{
	public_header_as g++ -std=c++11 -x c++
}

holds "every header compiles alone" alone
catches "a header that needs another one first" alone proto/a.h <<'TEXT'
static inline uint32_t half(uint32_t n) { return n / 2; }
TEXT
catches "a header without a guard" alone proto/a.h <<<'struct a { int b; };'

holds "rkv.h is C99" as_c99
catches "what C99 has not" as_c99 client/include/rkv.h <<'TEXT'
enum { RKV_OK };
_Static_assert(1, "C11");
TEXT
catches "our own headers in rkv.h" as_c99 client/include/rkv.h <<<'#include "proto/limits.h"'
if command -v g++ >/dev/null; then
	holds "rkv.h is C++11" as_cpp11
	catches "what C++ has not" as_cpp11 client/include/rkv.h <<'TEXT'
enum { RKV_OK };
void f(int n, int a[static 4], char *restrict p);
TEXT
else
	skip "rkv.h is C++11" "no g++"
fi

finish
