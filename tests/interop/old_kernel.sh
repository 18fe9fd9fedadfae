#!/usr/bin/env bash
# `roce run` on an old kernel: programs of libibverbs transfer data in a guest, by UDP and by shared memory.
#
#   tests/interop/old_kernel.sh [KERNEL]      5.10 unless named, the oldest that Debian's mirrors still have
#
# environment: ROCE      the command to test, instead of the one that cargo builds, with its libraries beside it
set -euo pipefail
cd "$(dirname "$0")/../.."

vm=tools/rxe-vm/rxe-vm
target=${CARGO_TARGET_DIR:-target}
export RXE_VM_CACHE=${RXE_VM_CACHE:-$target/rxe-vm}
kernel=${1:-5.10}
# Seconds for one command: the guest's processor is emulated.
LIMIT=120

if [ -z "${ROCE:-}" ]; then
    cargo build --release --package softroce-tools --package softroce-capi --package softroce-paths
    ROCE=$target/release/roce
fi

# The client of two programs in the guest tries again until the server listens.
TRANSFER='
transfer() {
    "$@" >/tmp/server 2>&1 &
    server=$!
    n=0
    until "$@" 127.0.0.1 >/tmp/client 2>&1; do
        n=$((n + 1))
        if [ $n -ge 20 ] || ! kill -0 $server; then
            cat /tmp/server /tmp/client
            return 1
        fi
        sleep 0.5
    done
    wait $server
    tail -n 3 /tmp/client
}
'

in_guest() { "$vm" run -t "$LIMIT" a "$1"; }

"$vm" up a -k "$kernel"
trap '"$vm" down' EXIT
"$vm" put a "$ROCE" "${ROCE%/*}"/lib{ibverbs,softroce_paths}.so
# Kernel rxe holds the UDP port at all addresses of the guest.
in_guest 'rdma link delete rxe0 && { modprobe -r rdma_rxe; ! grep -q rdma_rxe /proc/modules; }'
in_guest 'roce doctor'
in_guest 'roce run -- ibv_devinfo'
for port in udp shm; do
    for program in 'ib_write_bw -n 200' 'ib_send_lat -n 200' 'ibv_rc_pingpong -g 0 -n 200' 'ibv_ud_pingpong -g 0 -n 200'; do
        echo "-- $program by $port"
        in_guest "$TRANSFER transfer roce run --via $port -- $program"
    done
done
echo "old_kernel.sh: passed on Linux $kernel, $SECONDS s"
