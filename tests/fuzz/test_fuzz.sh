# SPDX-License-Identifier: BSD-2-Clause
#
# Fuzz targets: each replays its corpus and searches for a while (a minute in CI, else two seconds),
# and each fails over an input of its corpus when a fault is planted (tests/fuzz/faults).
# (timeout: 2400)
. tests/lib.sh

command -v clang >/dev/null || skip_all "no clang (deploy/deps.sh test)"
echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' >"$DIR/probe.c"
clang -fsanitize=fuzzer,address,undefined -o "$DIR/probe" "$DIR/probe.c" >"$DIR/probe.out" 2>&1 ||
	skip_all "clang has no libFuzzer: install libclang-rt-dev (deploy/deps.sh test)"

seconds=2
[ "${CI-}" != true ] || seconds=60
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

# The target with a fault fails over an input of the corpus.
finds()
{
	local name="the planted fault $1 is found" log=$DIR/$1.log status
	timeout 120 "$build/faults/$1/fuzz" -runs=0 -timeout=20 -rss_limit_mb=2048 \
		-close_fd_mask=3 -artifact_prefix="$DIR/$1-" "tests/fuzz/corpus/${1%%-*}" \
		>"$log" 2>&1
	status=$?
	# 1, and 70 to 77, are those of the sanitizers and of libFuzzer; 3: it cannot run here.
	case $status in
	1 | 7[0-7]) ok "$name" ;;
	3) skip "$name" "io_uring is not allowed here" ;;
	0) not_ok "$name" "no input of its corpus shows it: tests/fuzz/search $1 looks for one" ;;
	*) not_ok "$name" "exit status $status: $(tail -n 5 "$log")" ;;
	esac
}

check "targets can be built" build_all
[ $tap_failed = 0 ] || finish
report < <(tests/fuzz/run $seconds)
for fault in $(sed -n 's/^mutant //p' tests/fuzz/faults); do
	finds "$fault"
done
finish
