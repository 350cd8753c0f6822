# SPDX-License-Identifier: BSD-2-Clause
#
# Instructions of a warm GET, counted by callgrind: they repeat for the same binary, whatever else
# the machine is doing. Counted is everything inside rkv_get; the first calls are subtracted.
. tests/lib.sh

LIMIT_100=800 # instructions for a value of 100 bytes

command -v valgrind >/dev/null || skip_all "valgrind is not installed"
start_server --pool-size 16M

# counted VALUE_LEN N TRY: instructions inside rkv_get of N calls
counted()
{
	local key
	key=$(printf 'key%05d%06d%02d' "$2" "$1" "$3") # one of its own
	valgrind --tool=callgrind --collect-atstart=no --toggle-collect=rkv_get \
		--callgrind-out-file="$DIR/callgrind" \
		"$RKV_BUILD/tests/proc/warm_get" "$SERVER" "$1" "$2" "$key" \
		>"$DIR/counted" 2>&1 || return 1
	sed -n 's/.*Collected : *//p' "$DIR/counted"
}

# per_get VALUE_LEN. The smallest of three: a call may meet the control thread, and waits for it.
per_get()
{
	local few many least='' try
	for try in 1 2 3; do
		few=$(counted "$1" 100 $try) && many=$(counted "$1" 10100 $try)
		[ -n "$few" ] && [ -n "$many" ] || return 1
		many=$(((many - few) / 10000))
		[ -n "$least" ] && [ "$least" -le "$many" ] || least=$many
	done
	echo "$least"
}

small=$(per_get 100)
large=$(per_get 1000)
echo "# a warm GET of 100 bytes: $small instructions; of 1,000 bytes: $large"
if [ -n "$small" ] && [ "$small" -gt 0 ] && [ "$small" -le $LIMIT_100 ]; then
	ok "a warm GET of 100 bytes takes at most $LIMIT_100 instructions"
else
	not_ok "a warm GET of 100 bytes takes at most $LIMIT_100 instructions" "${small:-unknown}"
fi
if [ -n "$large" ] && [ "$large" -gt "$small" ]; then
	ok "a longer value takes more: the count is of the whole call"
else
	not_ok "a longer value takes more: $large"
fi
finish
