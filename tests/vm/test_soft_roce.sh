# SPDX-License-Identifier: BSD-2-Clause
#
# deploy/soft-roce.sh makes a device, leaves one that is there alone, and removes its own. Runs in
# the virtual machine with one device, which it replaces and puts back.
. tests/lib.sh

soft_roce()
{
	bash deploy/soft-roce.sh "$@"
}

devices()
{
	rdma link show | awk '{ print $2, $NF }'
}

before=$(devices)
check "another's device is left alone" soft_roce up d0
is "it is still there" "$(devices)" "$before"
check "nothing of ours to remove" soft_roce down d0
is "it is still there" "$(devices)" "$before"

rdma link delete rxe0
check "a device is made" soft_roce up d0
is "and is there" "$(devices)" "rxe_d0/1 d0"
check "once more changes nothing" soft_roce up d0
is "there is still one" "$(devices)" "rxe_d0/1 d0"
is "it is shown with its address" "$(soft_roce show)" "rxe_d0 on d0: 10.77.0.1"
check "it can be removed" soft_roce down d0
is "and is gone" "$(devices)" ""
check_not "an interface that is not there" soft_roce up d9
check_not "no default route" soft_roce up
check_not "an unknown command" soft_roce sideways
as_nobody()
{
	setpriv --reuid=65534 --regid=65534 --clear-groups bash deploy/soft-roce.sh "$@"
}
check_not "not without root" as_nobody up d0
check "the help needs no rights" as_nobody help
rdma link add rxe0 type rxe netdev d0
chmod 666 /dev/infiniband/*
finish
