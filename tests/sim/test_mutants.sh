# SPDX-License-Identifier: BSD-2-Clause
#
# The mutation gate: each mutant of tests/sim/mutants/table is built and run as recorded there, and
# must be caught, by a run that the code as it is passes. One that breaks ordering only must then
# survive as many steps where nothing is reordered: it takes the weak profiles to tell.
#
# A recorded run stops catching its mutant when the client or the harness changes what they draw;
# then the next seeds are tried, and a comment says that `make mutants` should record anew.
#
#   bash tests/sim/test_mutants.sh                 the test
#   bash tests/sim/test_mutants.sh search SECONDS  (make mutants) looks for runs, and records them;
#                                                  MUTANTS="a b": for these only
# timeout: 900
. tests/lib.sh
. tests/sim/mutants/mutants.sh

MORE_SEEDS=200
WORKERS=$(nproc)

# A run that catches it: the recorded one, or the recorded settings with another seed.
caught_by()
{
	local name=$1 settings=$2 first n
	first=$(seed_of "$settings")
	for ((n = 0; n <= MORE_SEEDS; n++)); do
		if catches "$name" "$(with_seed "$settings" $((first + n)))" >"$DIR/$name.how"; then
			with_seed "$settings" $((first + n))
			return
		fi
	done
	return 1
}

# Writes the mutant's result as one line: ok or not ok, a tab, and what the summary says of it.
judge()
{
	local name=$1 recorded settings how
	recorded=$(lines_of "$name" run)
	if ! settings=$(caught_by "$name" "$recorded"); then
		printf 'not ok\t%s and %s seeds more: not caught\n' "$recorded" $MORE_SEEDS
		return
	fi
	how=$(cat "$DIR/$name.how")
	if has_line "$name" order && ! survives_in_order "$name" "$settings" "$(steps_of "$how")" \
		>"$DIR/$name.order"; then
		printf 'not ok\tit breaks more than ordering: %s\n' "$(cat "$DIR/$name.order")"
		return
	fi
	[ "$settings" = "$recorded" ] || settings="$settings (not as recorded: run make mutants)"
	has_line "$name" order && settings="$settings, survives SC"
	printf 'ok\t%s: %s\n' "$settings" "$how"
}

# Runs a function for each of the names on its input, some at once.
for_each()
{
	local name
	while read -r name; do
		while [ "$(jobs -pr | wc -l)" -ge "$WORKERS" ]; do
			wait -n
		done
		"$@" "$name" >"$DIR/$name.result" &
	done
	wait
}

build()
{
	make -s -j"$WORKERS" O="$(realpath --relative-to . "$RKV_BUILD")" ${CC:+"CC=$CC"} \
		mutant-programs >"$DIR/make.out" 2>&1 </dev/null
}

test_all()
{
	local name result
	mutants | for_each judge
	for name in $(mutants); do
		result=$(cat "$DIR/$name.result")
		comment "$(printf '%-31s %s' "$name" "$(lines_of "$name" breaks)")"
		if [ "${result%%$'\t'*}" = ok ]; then
			comment "    ${result#*$'\t'}"
			ok "$name"
		else
			not_ok "$name" "${result#*$'\t'}"
		fi
	done
}

# ---- Searching ----

# Puts a run into the table in the place of the recorded one.
record()
{
	awk -v name="$1" -v run="$2" '
		function put() { if (is_ours) print "run " run; is_ours = 0 }
		$1 == "mutant" { is_ours = $2 == name }
		is_ours && $1 == "run" { next }
		is_ours && $1 == "edit" { put() }
		{ print }' $TABLE >"$DIR/table" && cp "$DIR/table" $TABLE
}

# One seed for one mutant. A run of fewer steps is a better one.
search_one()
{
	local name=$1 seed=$2 settings how
	settings="SEED=$seed $(lines_of "$name" with)"
	settings=${settings% }
	how=$(catches "$name" "$settings") || return
	if has_line "$name" order; then
		survives_in_order "$name" "$settings" "$(steps_of "$how")" >/dev/null || return
	fi
	printf '%s\t%s\t%s\n' "$(steps_of "$how")" "$settings" "$how"
}

search()
{
	local end=$((SECONDS + $1)) seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
	local name steps settings how
	declare -A best
	for name in ${MUTANTS:-$(mutants)}; do
		how=$(catches "$name" "$(lines_of "$name" run)") && best[$name]=$(steps_of "$how")
	done
	for (( ; SECONDS < end; seed++)); do
		printf '%s\n' ${MUTANTS:-$(mutants)} | for_each search_seed "$seed"
		for name in ${MUTANTS:-$(mutants)}; do
			IFS=$'\t' read -r steps settings how <"$DIR/$name.result" || continue
			[ -z "${best[$name]-}" ] || [ "$steps" -lt "${best[$name]}" ] || continue
			best[$name]=$steps
			record "$name" "$settings"
			echo "$name: $settings: $how"
		done
	done
	for name in ${MUTANTS:-$(mutants)}; do
		[ -n "${best[$name]-}" ] || echo "$name: nothing catches it"
	done
}

search_seed()
{
	search_one "$2" "$1"
}

if ! build; then
	not_ok "the mutants are built" "$(cat "$DIR/make.out")"
	finish
fi
if [ "${1-}" = search ]; then
	search "$2"
	exit
fi
ok "the mutants are built"
test_all
finish
