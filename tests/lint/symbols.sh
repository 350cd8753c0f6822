# SPDX-License-Identifier: BSD-2-Clause
#
# What librkv exports is what rkv.h declares and librkv.map lists; and what it must not use, it does
# not. Needs the built library (RKV_BUILD).
. tests/lint/lint.sh

declared()
{
	code client/include/rkv.h | cut -d: -f2- | tr '\n' ' ' | grep -oE 'RKV_API [^;]*;' |
		grep -oE '\brkv_[a-z_]+\(' | tr -d '(' | sort
}

mapped()
{
	sed -n '/global:/,/local:/p' client/librkv.map |
		grep -oE '\brkv_[a-z_]+;' | tr -d ';' | sort
}

exported()
{
	nm -D --defined-only "$RKV_BUILD/librkv.so" |
		awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
		grep -v '^__\(a\|t\|ub\)san' | sort
}

exported_statically()
{
	nm -g --defined-only "$RKV_BUILD/librkv.a" | awk 'NF == 3 { print $3 }' |
		grep -v '^__\(a\|t\|ub\)san' | sort
}

map_is_complete()
{
	diff <(declared) <(mapped)
}

shared_library_is_complete()
{
	diff <(declared) <(exported)
}

static_library_is_complete()
{
	diff <(declared) <(exported_statically)
}

# The C library's functions that would end, print for, or interrupt the application.
uses_nothing_forbidden()
{
	forbidden_in "$RKV_BUILD/librkv.so"
}

forbidden_in()
{
	local ending='(_|quick_)?exit|_Exit|abort|atexit|system|signal|sigaction'
	local printing='(__)?v?f?printf(_chk)?|f?puts|putchar|perror|std(out|err)'
	nm -D --undefined-only "$1" | awk '{ sub(/@.*/, "", $2); print $2 }' |
		grep -xE "$ending|$printing"
}

holds "librkv.map lists the functions of rkv.h" map_is_complete
plant client/include/rkv.h <<<'RKV_API int rkv_get(int a); RKV_API int rkv_put(int a);'
catches "a function that the map lacks" map_is_complete client/librkv.map <<'TEXT'
RKV_0.1 {
global:
	rkv_get;
local:
	*;
};
TEXT

holds "librkv.so exports the functions of rkv.h" shared_library_is_complete
catches "a function that is not exported" shared_library_is_complete client/include/rkv.h <<'TEXT'
RKV_API int
rkv_no_such_function(void);
TEXT
holds "librkv.a exports the functions of rkv.h" static_library_is_complete
is "the name programs will look for" \
	"$(readelf -d "$RKV_BUILD/librkv.so" | grep -oE '\[librkv.*\]')" "[librkv.so.0]"

case $RKV_BUILD in
*address* | *thread*) skip "librkv.so does not exit, print or handle signals" "a sanitizer does" ;;
*) holds "librkv.so does not exit, print or handle signals" uses_nothing_forbidden ;;
esac
printf '#include <stdio.h>\nvoid f(void);\nvoid f(void) { printf("%%d", 1); }\n' >"$DIR/prints.c"
${CC:-gcc} -shared -fPIC "$DIR/prints.c" -o "$DIR/prints.so"
is "a library that prints is caught" "$(forbidden_in "$DIR/prints.so")" printf

finish
