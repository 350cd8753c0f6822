# SPDX-License-Identifier: BSD-2-Clause
#
# What test_mutants.sh does with a mutant. The table is described at its beginning.
TABLE=tests/sim/mutants/table
RUN_LIMIT_S=60

mutants()
{
	sed -n 's/^mutant //p' $TABLE
}

# The values of a mutant's lines that begin with a word.
lines_of()
{
	awk -v name="$1" -v word="$2" '
		$1 == "mutant" { is_ours = $2 == name }
		is_ours && $1 == word { print substr($0, length(word) + 2) }' $TABLE
}

has_line()
{
	awk -v name="$1" -v word="$2" '
		$1 == "mutant" { is_ours = $2 == name }
		is_ours && $1 == word { found = 1 }
		END { exit !found }' $TABLE
}

program_of()
{
	echo "$RKV_BUILD/mutants/$1/test_store"
}

# One run of a program: says how it came out. 0: passed, 1: failed or died, 2: it did not run.
run_store()
{
	local program=$1 out status
	shift
	out=$(env -i LC_ALL=C "$@" timeout -k 5 $RUN_LIMIT_S "$program" 2>&1)
	status=$?
	out=${out##*$'\n'}
	case $status:$out in
	0:'passed after'* | 1:'failed after'*) echo "$out" && return $status ;;
	esac
	echo "died after 0 steps: status $status, $out"
	[ $status -gt 128 ] && [ $status != 137 ] && return 1
	return 2
}

steps_of()
{
	sed -n 's/.* after \([0-9]*\) steps.*/\1/p' <<<"$1"
}

seed_of()
{
	sed -n 's/.*SEED=\([0-9]*\).*/\1/p' <<<"$1"
}

with_seed()
{
	sed "s/SEED=[0-9]*/SEED=$2/" <<<"$1"
}

# The same settings, but with nothing reordered.
in_order()
{
	echo "$(sed 's/ PROFILE=[A-Z]*//' <<<"$1") PROFILE=SC"
}

# Does a run catch the mutant, while the code as it is passes it? Says how.
catches()
{
	local name=$1 settings=$2 how
	# shellcheck disable=SC2086 # settings are words
	how=$(run_store "$(program_of "$name")" $settings)
	[ $? = 1 ] || return 1
	# shellcheck disable=SC2086
	run_store "$RKV_BUILD/tests/sim/test_store" $settings >/dev/null || return 1
	echo "$how"
}

# Nobody can tell where nothing is reordered: runs with the next seeds, for as many steps.
survives_in_order()
{
	local name=$1 settings=$2 steps=$3 seed so_far=0 how
	seed=$(seed_of "$settings")
	while [ "$so_far" -lt "$steps" ]; do
		# shellcheck disable=SC2046
		how=$(run_store "$(program_of "$name")" \
			$(in_order "$(with_seed "$settings" "$seed")")) || {
			echo "with SEED=$seed PROFILE=SC: $how"
			return 1
		}
		so_far=$((so_far + $(steps_of "$how")))
		seed=$((seed + 1))
	done
}
