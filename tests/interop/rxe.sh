#!/usr/bin/env bash
# Our engine against kernel rxe in a guest: the stock ibv_rc_pingpong and `roce pingpong`, then the
# tests of this folder, which drive rxe through `peer.c`.
#
#   tests/interop/rxe.sh [KERNEL…]      6.1 and 6.12 unless named
#
# A line a combination; the exit status says whether all of them passed. This side runs as a user
# without privileges. What it sent is captured beside the guest, and every packet of the capture must
# have a right ICRC. Where QEMU or root is missing it says so and passes, unless CI=true.
#
# environment: ROCE      the command to test, instead of the one that cargo builds
#              INTEROP   the tests, likewise
set -euo pipefail
cd "$(dirname "$0")/../.."

vm=tools/rxe-vm/rxe-vm
target=${CARGO_TARGET_DIR:-target}
export RXE_VM_CACHE=${RXE_VM_CACHE:-$target/rxe-vm}
kernels=("$@")
[ ${#kernels[@]} -gt 0 ] || kernels=(6.1 6.12)

SIZES=(1 1023 1025 4096 65536 1048576)
MTUS=(1024 4096)
PORT=18515
PEER_PORT=4790
# Seconds for one combination: the guest's processor is emulated, and shares ours.
LIMIT=60

passed=0 failed=0

missing() {
    echo "rxe.sh: $*" >&2
    [ "${CI:-}" = true ] && exit 1
    echo "rxe.sh: not run" >&2
    exit 0
}

prerequisites() {
    local command
    # In CI what is missing is an error, for a test that is not run proves nothing.
    for command in qemu-system-x86_64 ip cpio depmod gcc setpriv dumpcap; do
        command -v $command >/dev/null ||
            missing "$command is not there (apt-get install qemu-system-x86 iproute2 cpio kmod gcc util-linux tshark)"
    done
    [ "$(id -u)" -eq 0 ] || missing "the guests' network namespace needs root"
    [ -c /dev/net/tun ] || missing "/dev/net/tun is not there"
}

# A command in the namespace of the guests, without privileges, for so many seconds.
unprivileged() {
    "$vm" host setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
        --bounding-set=-all --no-new-privs timeout "$@"
}

roce() { unprivileged "$LIMIT" "$work/roce" "$@"; }

# Whether somebody listens at PORT, in the namespace of the guests.
listens() { "$vm" host grep -qiE ":$(printf %04x $PORT) .* 0A " /proc/net/tcp /proc/net/tcp6; }

# ibv_rc_pingpong in the guest, and ours: which one begins, and with which options.
pingpong() {
    local begins=$1 ip=$2 gid ours theirs status=0
    shift 2
    case $ip in
    ipv4) gid=1 ours=10.77.0.1 ;;
    ipv6) gid=2 ours=fd77::1 ;;
    esac
    if [ "$begins" = rxe ]; then
        roce pingpong --ip $ours --chk "$@" >"$work/ours" 2>&1 &
        local pid=$!
        until listens || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
        "$vm" run -t "$LIMIT" a ibv_rc_pingpong -g $gid "$@" 10.77.0.1 >"$work/theirs" 2>&1 || status=1
        wait $pid || status=1
    else
        # The stock server takes its names by IPv4 alone; the GIDs it tells are of the family asked for.
        "$vm" run -t "$LIMIT" a ibv_rc_pingpong -g $gid "$@" >"$work/theirs" 2>&1 &
        theirs=$!
        until "$vm" run a "grep -q ':$(printf %04X $PORT) .* 0A ' /proc/net/tcp" ||
            ! kill -0 $theirs 2>/dev/null; do :; done
        roce pingpong --ip $ours --chk "$@" 10.77.0.2 >"$work/ours" 2>&1 || status=1
        wait $theirs || status=1
    fi
    return $status
}

# Runs a combination, and says how it went.
check() {
    local name=$1 start=$EPOCHREALTIME seconds
    shift
    if "$@"; then
        passed=$((passed + 1)) verdict=ok
    else
        failed=$((failed + 1)) verdict=FAILED
    fi
    seconds=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }")
    printf '%-6s %s (%s s)\n' $verdict "$name" "$seconds"
    if [ $verdict = FAILED ]; then
        head -n 20 "$work/ours" | sed 's/^/    ours:   /'
        head -n 20 "$work/theirs" | sed 's/^/    theirs: /'
    fi
}

matrix() {
    local kernel=$1 ip begins mtu size iters
    for ip in ipv4 ipv6; do
        for begins in roce rxe; do
            for mtu in "${MTUS[@]}"; do
                for size in "${SIZES[@]}"; do
                    iters=20
                    [ "$size" -lt 1048576 ] || iters=3
                    check "Linux $kernel, $ip, rc pingpong, $begins begins, mtu $mtu, $size bytes, events" \
                        pingpong $begins $ip --mtu="$mtu" --size="$size" --iters=$iters --events
                done
            done
            check "Linux $kernel, $ip, rc pingpong, $begins begins, mtu 1024, 64 bytes, polling" \
                pingpong $begins $ip --mtu=1024 --size=64 --iters=20
        done
    done
}

# The tests of this folder, with the peer of the guest.
operations() {
    local kernel=$1 name verdict
    "$vm" cc a peer tests/interop/peer.c -libverbs
    "$vm" run -t 3600 a peer rxe0 $PEER_PORT >"$work/theirs" 2>&1 &
    until "$vm" run a "grep -q ':$(printf %04X $PEER_PORT) .* 0A ' /proc/net/tcp6"; do :; done
    ROCE_PEER=10.77.0.2:$PEER_PORT RUST_BACKTRACE=0 unprivileged 900 \
        "$work/interop" --ignored --test-threads=1 >"$work/tests" 2>&1 || :
    while read -r _ name _ verdict; do
        if [ "$verdict" = ok ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1)) verdict=FAILED
        fi
        printf '%-6s Linux %s, %s\n' "$verdict" "$kernel" "$name"
    done < <(grep '^test .* \.\.\. ' "$work/tests")
    if ! grep -q '^test result: ok' "$work/tests"; then
        failed=$((failed + 1))
        sed -n '/^failures:/,$p' "$work/tests" | head -n 100
    fi
}

capture_start() {
    capture=$work/$1.pcapng
    "$vm" host dumpcap -q -i tapa -f 'udp port 4791' -w "$capture" >"$work/dumpcap" 2>&1 &
    dumpcap=$!
    until grep -q '^File:' "$work/dumpcap"; do
        kill -0 "$dumpcap" 2>/dev/null || missing "dumpcap cannot capture: $(cat "$work/dumpcap")"
        sleep 0.1
    done
}

# Every packet of the capture is one of RoCEv2 with a right ICRC.
capture_check() {
    sleep 1
    kill "$dumpcap"
    wait "$dumpcap" || :
    "$work/roce" dump "$capture" >"$work/dump"
    grep -vE ' icrc good' "$work/dump" >"$work/ours" || :
    : >"$work/theirs"
    [ -s "$work/dump" ] && ! [ -s "$work/ours" ]
}

prerequisites
if [ -z "${ROCE:-}" ]; then
    cargo build --release --package softroce-tools
    ROCE=$target/release/roce
fi
if [ -z "${INTEROP:-}" ]; then
    INTEROP=$(cargo test --package softroce --test interop --no-run --message-format=json |
        sed -nE 's/.*"executable":"([^"]*interop-[^"]*)".*/\1/p')
fi
work=$(mktemp -d)
trap '"$vm" down; rm -rf "$work"' EXIT
cp "$ROCE" "$work/roce"
cp "$INTEROP" "$work/interop"
chmod -R a+rX "$work"

for kernel in "${kernels[@]}"; do
    "$vm" down
    "$vm" up a -k "$kernel"
    capture_start "$kernel"
    matrix "$kernel"
    check "Linux $kernel, the ICRC of every packet on the wire" capture_check
    operations "$kernel"
done
echo "rxe.sh: $passed passed, $failed failed, $SECONDS s"
[ "$failed" -eq 0 ]
