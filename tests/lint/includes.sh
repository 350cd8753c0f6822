# SPDX-License-Identifier: BSD-2-Clause
#
# Who may include whom. An arrow upwards or sideways is how layers stop being layers.
. tests/lint/lint.sh

# "file:line:header" of all includes; quotes are kept, so that <> and "" can be told apart.
includes()
{
	local file
	files '*.c' '*.h' | while read -r file; do
		grep -noE '^[ \t]*#[ \t]*include[ \t]*["<][^">]*[">]' "$file" |
			sed -E "s|^([0-9]+):[^\"<]*|$file:\1:|"
	done
}

allowed()
{
	local file=$1 header=$2
	case $file,$header in
	client/examples/*,*) return 1 ;;
	bench/*,bench/* | bench/*,client/include/rkv.h | bench/*,rkv.h) ;;
	bench/raw.c,common/* | bench/raw_region.[ch],common/*) ;;
	proto/*,proto/*) ;;
	common/*,common/* | common/*,proto/*) ;;
	client/*,client/* | client/*,common/* | client/*,proto/* | client/*,rkv.h) ;;
	server/*,server/* | server/*,common/* | server/*,proto/*) ;;
	tests/*,*) ;;
	*) return 1 ;;
	esac
}

direction()
{
	local file line header name
	includes | while IFS=: read -r file line header; do
		name=${header:1:-1}
		case $header in
		'"'*) allowed "$file" "$name" || echo "$file:$line: may not include $header" ;;
		esac
	done
}

from_the_root()
{
	local file line header name
	includes | while IFS=: read -r file line header; do
		name=${header:1:-1}
		case $header in
		'"rkv.h"') ;;
		'"'*/*) [ -e "$name" ] || echo "$file:$line: $header is not a path from the root" ;;
		'"'*) echo "$file:$line: $header is not a path from the root" ;;
		'<'*) [ ! -e "$name" ] || echo "$file:$line: $header is ours: use quotes" ;;
		esac
	done
}

verbs_in_one_place()
{
	includes | grep -E ':.(infiniband|rdma)/' |
		grep -vE '^(tests/.*|common/(fabric_verbs|cm_)[^/]*):'
}

# The C library and xxHash.
proto_is_pure()
{
	local standard='assert|ctype|errno|inttypes|limits|stdalign|stdatomic|stdbool|stddef|stdint'
	includes | grep -E '^proto/.*<' |
		grep -vE "<($standard|stdio|stdlib|string|xxhash)\.h>"
}

holds "no include goes against the direction" direction
catches "proto does not see common" direction proto/a.h <<<'#include "common/err.h"'
catches "common does not see the client" direction common/a.c <<<'#include "client/client.h"'
catches "client does not see the server" direction client/a.c <<<'#include "server/region.h"'
catches "server does not see the client" direction server/a.c <<<'# include "client/include/rkv.h"'
catches "bench does not see the client's inside" direction bench/a.c <<<'#include "client/client.h"'
catches "bench does not see common" direction bench/a.c <<<'#include "common/fabric.h"'
catches "an example sees only rkv.h" direction client/examples/a.c <<<'#include "common/err.h"'
accepts "bench/raw.c sees fabric.h" direction bench/raw.c <<<'#include "common/fabric.h"'
catches "bench/raw.h does not" direction bench/raw.h <<<'#include "common/fabric.h"'
accepts "client sees proto" direction client/a.c <<<'#include "proto/slot.h"'
accepts "tests see all" direction tests/unit/a.c <<<'#include "server/region.h"'

holds "includes are paths from the root" from_the_root
catches "no include from the same folder" from_the_root proto/a.h <<<'#include "slot.h"'
catches "no include through .." from_the_root proto/a.h <<<'#include "../slot.h"'
plant proto/slot.h <<<''
catches "no header of ours in <>" from_the_root proto/a.h <<<'#include <proto/slot.h>'

holds "verbs headers are seen by the verbs files only" verbs_in_one_place
catches "no verbs in the client" verbs_in_one_place client/a.c <<<'#include <infiniband/verbs.h>'
catches "no rdma_cm in another fabric" verbs_in_one_place common/fabric_shm.c \
	<<<'#include <rdma/rdma_cma.h>'
accepts "verbs in the verbs fabric" verbs_in_one_place common/fabric_verbs.c \
	<<<'#include <infiniband/verbs.h>'
accepts "verbs in a device that tests fake" verbs_in_one_place tests/fabric/fake.c \
	<<<'#include <infiniband/verbs.h>'
accepts "rdma_cm in its file" verbs_in_one_place common/cm_rdma.c <<<'#include <rdma/rdma_cma.h>'

holds "proto needs the C library only" proto_is_pure
catches "no system calls in proto" proto_is_pure proto/a.h <<<'#include <unistd.h>'

finish
