# SPDX-License-Identifier: BSD-2-Clause
#
# The whole tree compiles without a warning with clang too. (CI makes the other builds, all with
# gcc, with WERROR=1.)
. tests/lint/lint.sh

case $RKV_BUILD in
*/build) ;;
*) skip_all "only where the plain build is gcc's" ;;
esac
command -v clang >/dev/null || skip_all "no clang (deploy/deps.sh test)"

builds()
{
	env MAKEFLAGS= make -s -j"$(nproc)" CC=clang WERROR=1 CFLAGS=-O1 O="$DIR/clang" "$@"
}

check "clang builds the programs and the tests" builds all tests
check_not "a warning would be an error" \
	builds CFLAGS="-O1 -Weverything" "$DIR/clang/obj/common/loop.o"

finish
