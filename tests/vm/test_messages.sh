# SPDX-License-Identifier: BSD-2-Clause
#
# Starts that cannot work over verbs: each says which thing is missing, and what to do. The messages
# are shown with V=1. Runs in the virtual machine with one device; it undoes what it breaks.
. tests/lib.sh

SERVER_COMMAND=("$RKV_BUILD/kv-server" --listen 127.0.0.1:0 --pool-size 16M --fabric verbs)

# says NAME PARTS COMMAND...: it fails with an ordinary status, and its text holds each of the
# parts, which are separated by |.
says()
{
	local name=$1 parts=$2 status part missing=
	shift 2
	timeout 30 "$@" >"$DIR/said" 2>&1
	status=$?
	comment "$name:" && sed 's/^/#   /' "$DIR/said"
	while read -r -d '|' part; do
		grep -qF -- "$part" "$DIR/said" || missing="$missing, $part"
	done <<<"$parts|"
	if [ $status -ge 1 ] && [ $status -le 123 ] && [ -z "$missing" ]; then
		ok "$name"
	else
		not_ok "$name" "exit status $status; it does not say: ${missing#, }"
	fi
}

# In front of LIMIT_KIB COMMAND...: without CAP_IPC_LOCK, with so much memory that may be locked
as_nobody=(bash -c 'ulimit -l "$1" && shift &&
	exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"' nobody)

says "a device that is not there" "mlx5_7|rxe0" "${SERVER_COMMAND[@]}" --rdma-device mlx5_7
says "an address that no device has" "10.99.0.1" "${SERVER_COMMAND[@]}" --rdma-address 10.99.0.1
says "an address of no device" "no RDMA device|127.0.0.1" \
	"${SERVER_COMMAND[@]}" --rdma-device rxe0 --rdma-address 127.0.0.1
says "64 KiB of locked memory" "64 KiB|RLIMIT_MEMLOCK|ulimit -l" \
	"${as_nobody[@]}" 64 "${SERVER_COMMAND[@]}"

chmod 600 /dev/infiniband/*
says "no permission" "/dev/infiniband" \
	"${as_nobody[@]}" unlimited "${SERVER_COMMAND[@]}"
chmod 666 /dev/infiniband/*

mv /etc/libibverbs.d/rxe.driver "$DIR/"
says "no provider library" "ibverbs-providers" "${SERVER_COMMAND[@]}"
mv "$DIR/rxe.driver" /etc/libibverbs.d/

start_server --pool-size 16M
comment "$(cat "$DIR/server.err")"
check "the log names device and GID" grep -q 'rxe0.*10\.77\.0\.1' "$DIR/server.err"
client=("$RKV_BUILD/kv-cli" --server "$SERVER")
says "64 KiB of locked memory, client" "64 KiB|RLIMIT_MEMLOCK|ulimit -l" \
	"${as_nobody[@]}" 64 "${client[@]}" put key value
chmod 600 /dev/infiniband/*
says "no permission, client" "/dev/infiniband" \
	"${as_nobody[@]}" unlimited "${client[@]}" put key value
chmod 666 /dev/infiniband/*
check "enough locked memory, client" "${as_nobody[@]}" 65536 "${client[@]}" put key value
is "and the value is there" "$("${as_nobody[@]}" 65536 "${client[@]}" get key)" value
check "the server stops" stop_server

rdma link del rxe0
says "no device at all" "deploy/soft-roce.sh" "${SERVER_COMMAND[@]}"
rdma link add rxe0 type rxe netdev d0
chmod 666 /dev/infiniband/*
check "then it starts again" start_server --pool-size 16M

finish
