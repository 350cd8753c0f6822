# SPDX-License-Identifier: BSD-2-Clause
#
# Runs fuzz targets:   run.sh SECONDS [TARGET...]
#
# Each replays its corpus (tests/fuzz/corpus/TARGET), then searches for SECONDS, as many targets at
# once as there are processors. One line a target: "ok TARGET RUNS", "skip TARGET REASON", or
# "fail TARGET ARTIFACT", with the reason and how to run it again behind it. What is found is kept
# in build/fuzz/TARGET: a later search goes on there. RKV_FUZZ: where the programs are. Fails if a
# target does.
set -u
seconds=$1
shift
programs=${RKV_FUZZ:-build/clang-address-undefined-fuzzer-no-link/tests/fuzz}
kept=${RKV_FUZZ_KEPT:-build/fuzz}
export ASAN_OPTIONS="quarantine_size_mb=8:detect_leaks=1:${ASAN_OPTIONS-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS-}"

explain()
{
	local target=$1 log=$2 artifact=$3
	sed -n '/ERROR: \|runtime error: /,$p' "$log" | grep -aE \
		'ERROR: |runtime error: |^ +#[0-9]+ |SUMMARY: ' | head -n 25 | sed 's/^/#   /'
	echo "#   again: $programs/fuzz_$target $artifact"
}

run_target()
{
	local target=$1 found=$kept/$1 log=$kept/$1.log artifact status
	mkdir -p "$found"
	rm -f "$kept/$target"-*-*
	# What the target prints is dropped, not what the sanitizers do.
	"$programs/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
		-close_fd_mask=3 -artifact_prefix="$kept/$target-" -print_final_stats=1 \
		"$found" "tests/fuzz/corpus/$target" >"$log" 2>&1
	status=$?
	if [ $status = 0 ]; then
		echo "ok $target $(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
	elif [ $status = 3 ]; then
		echo "skip $target io_uring is not allowed here"
	else
		artifact=$(find "$kept" -maxdepth 1 -name "$target-*-*" | head -n 1)
		echo "fail $target ${artifact:-none (exit status $status, see $log)}
$(explain "$target" "$log" "$artifact")"
	fi
}

export -f run_target explain
export seconds programs kept
[ $# != 0 ] || set -- $(ls tests/fuzz/corpus)
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'run_target {}' | {
	status=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		[[ $line != "fail "* ]] || status=1
	done
	exit $status
}
