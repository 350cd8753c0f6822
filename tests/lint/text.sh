# SPDX-License-Identifier: BSD-2-Clause
#
# What every file has, and what no file has. The patterns are written so that they do not match
# themselves.
. tests/lint/lint.sh

licence()
{
	local file
	files '*' | grep -vE '\.json$|^tests/fuzz/corpus/' | while read -r file; do
		head -n 5 "$file" | grep -q 'SPDX-License-Identifier: BSD-2-Clause' || echo "$file"
	done
}

# Hosts of package registries, and paths of the machines this was written on.
places()
{
	local hosts='(deb|security)[.]debian[.]org|ubuntu[.]com/ubuntu|pypi[.]org|npmjs[.](org|com)'
	hosts="$hosts|crates[.]io|proxy[.]golang[.]org|(docker|ghcr|quay)[.]io"
	files '*' | tr '\n' '\0' |
		xargs -0 -r grep -nHIE "$hosts|(^|[^A-Za-z0-9_.}])/(wor[k]|roo[t])/"
}

unfinished()
{
	files '*.c' '*.h' '*.sh' '*.mk' Makefile | tr '\n' '\0' |
		xargs -0 -r grep -nHwE 'TOD[O]|FIXM[E]|XX[X]'
}

# As a qualifier. `asm volatile` is something else.
no_volatile()
{
	local file
	files '*.c' '*.h' | while read -r file; do
		code "$file" | sed "s|^|$file:|" | grep -w volatile | grep -vE 'asm(__)? +volatile'
	done
}

# ThreadSanitizer is told there what it cannot see.
rings_in_one_place()
{
	files '*.c' '*.h' | grep -v '^common/ring[.]c$' | tr '\n' '\0' |
		xargs -0 -r grep -nHE 'io_uring_queue_(init|exit|mmap)[a-z_]*\('
}

holds "every file names its licence" licence
catches "a file without licence" licence proto/a.h <<<'int a;'
accepts "a file with licence" licence tests/a.sh <<<'# SPDX-License-Identifier: BSD-2-Clause'

holds "no registry hosts and no paths of one machine" places
catches "a registry host" places deploy/a.sh <<<"curl https://pypi"".org/simple"
catches "a path of one machine" places proto/a.h <<<"/* see /work""/shared/design */"
catches "a home" places deploy/a.sh <<<"cd /root""/x"
accepts "a path that only ends like one" places deploy/a.sh <<<"cd \"\$DIR/work""/tree\""

holds "nothing is left for later" unfinished
catches "a note to oneself" unfinished proto/a.h <<<"/* TO""DO: more */"

holds "no volatile: _Atomic with an explicit order" no_volatile
catches "a volatile" no_volatile proto/a.h <<<'volatile int a;'
accepts "asm volatile" no_volatile proto/a.h <<<'void f(void) { __asm__ volatile("nop"); }'
accepts "the word in a comment" no_volatile proto/a.h <<<'int a; /* volatile would not do */'

holds "common/ring.c opens and closes all rings" rings_in_one_place
catches "a ring opened elsewhere" rings_in_one_place server/a.c <<<'io_uring_queue_init(4, &r, 0);'
accepts "the ring's own file" rings_in_one_place common/ring.c <<<'io_uring_queue_exit(&r);'

finish
