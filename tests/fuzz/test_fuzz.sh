# SPDX-License-Identifier: BSD-2-Clause
#
# Fuzz targets: each replays its corpus and searches for a while (45 seconds in CI, else two),
# and each finds the fault that was planted for it (tests/fuzz/faults). (timeout: 1800)
. tests/lib.sh

command -v clang >/dev/null || skip_all "no clang (deploy/deps.sh test)"
echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' >"$DIR/probe.c"
clang -fsanitize=fuzzer,address,undefined -o "$DIR/probe" "$DIR/probe.c" >"$DIR/probe.out" 2>&1 ||
	skip_all "clang has no libFuzzer: install libclang-rt-dev (deploy/deps.sh test)"

seconds=2
[ "${CI-}" != true ] || seconds=45
export RKV_FUZZ_KEPT=$DIR/kept
build=build/clang-address-undefined-fuzzer-no-link

build_all()
{
	MAKEFLAGS='' make -s -j"$(nproc)" fuzz-programs && MAKEFLAGS='' make -s -j"$(nproc)" \
		fault-programs
}

# A target's result, of tests/fuzz/run; what follows "fail" is shown, and the input as text, as
# its file does not outlive this test.
report()
{
	local word target rest
	while read -r word target rest; do
		case $word in
		ok) ok "$target: nothing was found in $rest runs" ;;
		skip) skip "$target" "$rest" ;;
		fail)
			not_ok "$target" "$rest"
			[ ! -f "$rest" ] || comment "to make the input: base64 -d <<END >input
$(base64 "$rest")
END"
			;;
		*) echo "$word $target $rest" ;;
		esac
	done
}

# Does the target with a fault fall over an input of the corpus, or else over one that it finds?
finds()
{
	local fault=$1 corpus=tests/fuzz/corpus/${1%%-*} status
	mkdir -p "$DIR/found/$fault"
	timeout 120 "$build/faults/$fault/fuzz" -max_total_time=30 -timeout=20 \
		-rss_limit_mb=2048 -close_fd_mask=3 -artifact_prefix="$DIR/found/$fault-" \
		"$DIR/found/$fault" "$corpus" >"$DIR/found/$fault.log" 2>&1
	status=$?
	# 1, and 70 to 77, are those of the sanitizers and of libFuzzer; 3: it cannot run here.
	[ $status = 1 ] || [ $status -ge 70 -a $status -le 77 ] || [ $status = 3 ]
}

check "targets can be built" build_all
[ $tap_failed = 0 ] || finish
report < <(tests/fuzz/run $seconds)
for fault in $(sed -n 's/^mutant //p' tests/fuzz/faults); do
	check "the planted fault $fault is found" finds "$fault"
done
finish
