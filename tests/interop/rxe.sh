#!/usr/bin/env bash
# Our engine against kernel rxe in a guest: the stock pingpong programs and `roce pingpong`, then the
# tests of this folder, which drive rxe through `peer.c`.
#
#   tests/interop/rxe.sh [--write] [KERNEL…]      6.1 and 6.12 unless named; newest is a third
#
# A line a combination; the exit status says whether all of them passed and whether docs/INTEROP.md
# says the same. With --write it is made to. This side runs as a user without privileges, but for packet
# and TAP ports. What it sent is captured beside the guest, and every packet of the capture must be one for tshark
# and have a right ICRC, and none of ours break a rule. Where guests cannot be booted it says so and passes,
# unless CI=true.
#
# environment: ROCE      the command to test, instead of the one that cargo builds, with its libraries beside it
#              INTEROP   the tests, likewise
#              ONLY      connections: these rows alone, and INTEROP.md is neither compared nor written
set -euo pipefail
cd "$(dirname "$0")/../.."

vm=tools/rxe-vm/rxe-vm
document=docs/INTEROP.md
target=${CARGO_TARGET_DIR:-target}
export RXE_VM_CACHE=${RXE_VM_CACHE:-$target/rxe-vm}
write=
if [ "${1:-}" = --write ]; then
    write=yes
    shift
fi
kernels=("$@")
[ ${#kernels[@]} -gt 0 ] || kernels=(6.1 6.12)

# Of RC and UC; a message of UD has the size of a packet at most.
MTUS=(256 512 1024 2048 4096)
PORT=18515
PEER_PORT=4790
# Seconds for one game: the guest's processor is emulated, and shares ours.
LIMIT=40
# Tests that send what no engine of ours would, and are not captured therefore.
CORRUPT=corrupt
HANDMADE=handmade

# shellcheck source=tests/interop/rxe_cm.sh
. tests/interop/rxe_cm.sh

passed=0 failed=0

missing() {
    echo "rxe.sh: $*" >&2
    [ "${CI:-}" = true ] && exit 1
    echo "rxe.sh: not run" >&2
    exit 0
}

prerequisites() {
    local command why
    # In CI what is missing is an error, for a test that is not run proves nothing.
    why=$("$vm" check 2>&1) || missing "$why"
    for command in cpio depmod gcc setpriv dumpcap tshark ib_send_bw rping; do
        command -v $command >/dev/null ||
            missing "$command is not there (apt-get install cpio kmod gcc util-linux tshark perftest rdmacm-utils)"
    done
}

# A command in the namespace of the guests, without privileges, for so many seconds.
unprivileged() {
    local user=()
    [ "$(id -u)" -ne 0 ] || user=(--reuid=65534 --regid=65534 --clear-groups)
    "$vm" host setpriv "${user[@]}" --inh-caps=-all --bounding-set=-all --no-new-privs timeout "$@"
}

# This side. Packet sockets and interfaces require privileges.
via=udp
roce() {
    case $via in
    udp) unprivileged "$LIMIT" "$work/roce" "$@" ;;
    *) "$vm" host timeout "$LIMIT" "$work/roce" "$@" ;;
    esac
}

# What tells ours who it is: by its options, for an IP version.
device() {
    case $via/$1 in
    tap/ipv4) echo "--via tap:roce0,ip=10.77.0.99/24,bridge=br0" ;;
    tap/ipv6) echo "--via tap:roce0,ip=fd77::99/64,bridge=br0" ;;
    */ipv4) echo "--via $via --ip 10.77.0.1" ;;
    */ipv6) echo "--via $via --ip fd77::1" ;;
    esac
}

# Succeeds when a process listens at this TCP port, in the namespace of the guests or in the guest.
listens_here() { "$vm" host grep -qiE ":$(printf %04x "$1") .* 0A " /proc/net/tcp /proc/net/tcp6; }
listens_there() { "$vm" run a "grep -q ':$(printf %04X "$1") .* 0A ' /proc/net/tcp /proc/net/tcp6"; }

# ---- the stock programs --------------------------------------------------------------------------

# ibv_*_pingpong in the guest, and ours: which one begins, and with which options.
pingpong() {
    local begins=$1 ip=$2 transport=$3 gid ours theirs status=0
    shift 3
    case $ip in
    ipv4) gid=1 ;;
    ipv6) gid=2 ;;
    esac
    read -ra ours <<<"$(device "$ip")"
    # The one with a shared receive queue does not look at what it gets.
    case $transport in
    srq) theirs=(ibv_srq_pingpong -g "$gid") ours+=(--use-srq) ;;
    *) theirs=("ibv_${transport}_pingpong" -g "$gid" -c) ours+=(-c "$transport" --chk) ;;
    esac
    [ "$transport" = ud ] || ours+=(-m "$mtu") theirs+=(-m "$mtu")
    if [ "$begins" = rxe ]; then
        roce pingpong "${ours[@]}" "$@" >"$work/ours" 2>&1 &
        local pid=$!
        until listens_here $PORT || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
        "$vm" run -t "$LIMIT" a "${theirs[@]}" "$@" 10.77.0.1 >"$work/theirs" 2>&1 || status=1
        wait $pid || status=1
    else
        # The stock server takes its names by IPv4 alone; the GIDs it tells are of the family asked for.
        "$vm" run -t "$LIMIT" a "${theirs[@]}" "$@" >"$work/theirs" 2>&1 &
        local pid=$!
        until listens_there $PORT || ! kill -0 $pid 2>/dev/null; do :; done
        roce pingpong "${ours[@]}" "$@" 10.77.0.2 >"$work/ours" 2>&1 || status=1
        wait $pid || status=1
    fi
    # With -c the stock programs say what they do not like, and pass.
    ! grep -q 'invalid data' "$work/theirs" && return $status
}

# Runs a game, of UC and UD up to three times: they lose messages where a socket has no room.
tried() {
    local transport=$1 left=1
    shift
    case $transport in uc | ud) left=3 ;; esac
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
    done
}

# The same in several sizes, the first also without sleeping.
pingpongs() {
    local begins=$1 ip=$2 transport=$3 size iters
    shift 3
    for size in "$@"; do
        iters=20
        [ "$size" -lt 1048576 ] || iters=3
        if ! tried "$transport" pingpong "$begins" "$ip" "$transport" -s "$size" -n $iters -e; then
            echo "$size bytes, events" >>"$work/ours"
            return 1
        fi
    done
    tried "$transport" pingpong "$begins" "$ip" "$transport" -s "$1" -n 20
}

# Words with commas between.
list() {
    printf %s "$1"
    shift
    printf ', %s' "$@"
}

stock_programs() {
    local ip=$1 begins transport mtu sizes
    for begins in roce rxe; do
        for transport in rc uc; do
            for mtu in "${MTUS[@]}"; do
                sizes=(1 $((mtu + 1)) 65536)
                [ "$mtu" -ne 1024 ] && [ "$mtu" -ne 4096 ] || sizes+=(1048576)
                check "$ip" "ibv_${transport}_pingpong, $begins begins, MTU $mtu: $(list "${sizes[@]}") bytes" \
                    pingpongs $begins "$ip" $transport "${sizes[@]}"
            done
        done
        mtu=1024 sizes=(1 1025 65536)
        check "$ip" "ibv_srq_pingpong, $begins begins: 16 queue pairs, $(list "${sizes[@]}") bytes" \
            pingpongs $begins "$ip" srq "${sizes[@]}"
        sizes=(1 1023 1024 2048 4096)
        check "$ip" "ibv_ud_pingpong, $begins begins: $(list "${sizes[@]}") bytes" \
            pingpongs $begins "$ip" ud "${sizes[@]}"
    done
}

# The same against another port of ours.
other_ports() {
    local ip=$1 begins transport mtu=1024 sizes=(1 1023 1024) via
    for via in packet tap; do
        for begins in roce rxe; do
            for transport in rc uc ud; do
                [ $transport = ud ] || sizes=(1 1025 65536)
                check "$ip" "ibv_${transport}_pingpong with our $via port, $begins begins: $(list "${sizes[@]}") bytes" \
                    pingpongs $begins "$ip" $transport "${sizes[@]}"
                sizes=(1 1023 1024)
            done
        done
    done
}

# perftest at both ends, on our libibverbs here and on rxe's there: which one begins, and the program.
perftest() {
    local begins=$1 ip=$2 gid ours status=0
    shift 2
    case $ip in
    ipv4) gid=1 ours=10.77.0.1 ;;
    ipv6) gid=2 ours=fd77::1 ;;
    esac
    if [ "$begins" = rxe ]; then
        roce run --ip $ours -- "$@" -x 0 >"$work/ours" 2>&1 &
        local pid=$!
        until listens_here $PORT || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
        "$vm" run -t "$LIMIT" a "$@" -x $gid 10.77.0.1 >"$work/theirs" 2>&1 || status=1
        wait $pid || status=1
    else
        "$vm" run -t "$LIMIT" a "$@" -x $gid >"$work/theirs" 2>&1 &
        local pid=$!
        until listens_there $PORT || ! kill -0 $pid 2>/dev/null; do :; done
        roce run --ip $ours -- "$@" -x 0 10.77.0.2 >"$work/ours" 2>&1 || status=1
        wait $pid || status=1
    fi
    return $status
}

perftests() {
    local begins=$1 ip=$2 transport=$3 program
    shift 3
    for program in "$@"; do
        # shellcheck disable=SC2086  # words of a command
        if ! tried "$transport" perftest "$begins" "$ip" $program -F; then
            echo "$program" >>"$work/ours"
            return 1
        fi
    done
}

PERFTEST_RC=("ib_send_bw -s 4096 -n 200" "ib_write_bw -s 65536 -n 50" "ib_read_bw -s 65536 -n 50"
    "ib_atomic_bw -n 200" "ib_send_lat -s 64 -n 100" "ib_write_lat -s 64 -n 100" "ib_read_lat -s 64 -n 100"
    "ib_atomic_lat -n 100")
PERFTEST_UD=("ib_send_bw -c UD -s 1024 -n 200" "ib_send_lat -c UD -s 64 -n 100")

perftest_programs() {
    local ip=$1 begins
    for begins in roce rxe; do
        check "$ip" "perftest on our libibverbs, $begins begins: ib_{send,write,read,atomic}_{bw,lat} over RC" \
            perftests $begins "$ip" rc "${PERFTEST_RC[@]}"
        check "$ip" "perftest on our libibverbs, $begins begins: ib_send_{bw,lat} over UD" \
            perftests $begins "$ip" ud "${PERFTEST_UD[@]}"
    done
}

# ---- results -------------------------------------------------------------------------------------

# Notes a result, and prints it.
result() {
    local ip=$1 name=$2 verdict=$3
    case $verdict in
    ok | 'not tried'*) passed=$((passed + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '%s\t%s\t%s\n' "$ip" "$name" "$verdict" >>"$work/results"
    printf '%-6s Linux %s, %s, %s%s\n' "${verdict%%:*}" "$kernel" "$ip" "$name" "${4:-}"
}

# Runs a combination, and says how it went.
check() {
    local ip=$1 name=$2 start=$SECONDS verdict=ok
    shift 2
    "$@" || verdict=FAILED
    result "$ip" "$name" $verdict " ($((SECONDS - start)) s)"
    if [ $verdict = FAILED ]; then
        tail -n 20 "$work/ours" | sed 's/^/    ours:   /'
        tail -n 20 "$work/theirs" | sed 's/^/    theirs: /'
        if [ "$1" = capture_check ]; then
            tail -n 20 "$work/violations" | sed 's/^/    broken: /'
        fi
    fi
}

# What the document says of this kernel is what the results are; or it is made to.
documented() {
    awk -f tests/interop/matrix.awk "$work/results" >"$work/matrix"
    if [ -n "$write" ]; then
        awk -v kernel="$kernel" -v release="$release" -v matrix="$work/matrix" '
            $0 == "<!-- end of " kernel " -->" { skipping = 0 }
            !skipping
            $0 == "<!-- written by rxe.sh: " kernel " -->" {
                print "\nThe last run was against " release ".\n"
                while ((getline line < matrix) > 0) print line
                print ""
                skipping = 1
            }' $document >"$work/document"
        cat "$work/document" >$document
    fi
    sed -n "/^<!-- written by rxe.sh: $kernel -->/,/^<!-- end of $kernel -->/p" $document |
        grep '^|' >"$work/said" || :
    if ! diff -u --label "$document" --label "this run" "$work/said" "$work/matrix"; then
        echo "rxe.sh: $document does not say this of Linux $kernel (tests/interop/rxe.sh --write $kernel)" >&2
        failed=$((failed + 1))
    fi
}

# ---- the tests of this folder --------------------------------------------------------------------

peer_start() {
    # FLUSH and ATOMIC WRITE are not in the headers of old guests.
    "$vm" cc a peer -DPLACEMENT tests/interop/peer.c -libverbs 2>/dev/null ||
        "$vm" cc a peer tests/interop/peer.c -libverbs
    "$vm" run -t 7200 a peer rxe0 $PEER_PORT >"$work/peer" 2>&1 &
    until listens_there $PEER_PORT; do :; done
}

# Runs those that the options select.
operations() {
    local ip=$1 address name verdict
    shift
    case $ip in
    ipv4) address=10.77.0.2 ;;
    ipv6) address='[fd77::2]' ;;
    esac
    ROCE_PEER=$address:$PEER_PORT RUST_BACKTRACE=0 unprivileged 1200 \
        "$work/interop" --ignored --test-threads=1 --show-output "$@" >"$work/tests" 2>&1 || :
    while IFS=$'\t' read -r name verdict; do
        result "$ip" "$name" "$verdict"
    done < <(awk -f tests/interop/verdicts.awk "$work/tests" "$work/tests")
    if ! grep -q '^test result: ok' "$work/tests"; then
        failed=$((failed + 1))
        sed -n '/^failures:/,$p' "$work/tests" | head -n 100
    fi
}

# ---- the wire ------------------------------------------------------------------------------------

capture_start() {
    capture=$work/capture.pcapng
    "$vm" host dumpcap -q -B 64 -i tapa -f 'udp port 4791' -w "$capture" >"$work/dumpcap" 2>&1 &
    dumpcap=$!
    until grep -qs '^File:' "$work/dumpcap"; do
        kill -0 "$dumpcap" 2>/dev/null || missing "dumpcap cannot capture: $(cat "$work/dumpcap")"
        sleep 0.1
    done
}

# Every packet of the capture is one of RoCEv2, and tshark sees a BTH in it; its ICRC is right, or that
# of a FLUSH as rxe has it and wants it; and ours break no rule that `roce check` knows. A capture of which that is
# not true stays, to be looked at.
capture_check() {
    sleep 1
    kill "$dumpcap"
    wait "$dumpcap" || :
    "$work/roce" dump "$capture" >"$work/dump"
    grep -v ' icrc good' "$work/dump" | grep -vE '  RC FLUSH .* icrc as rxe has it' >"$work/ours" || :
    tshark -r "$capture" --disable-protocol rpcordma -T fields -e frame.number \
        -Y 'udp.dstport == 4791 && !infiniband.bth' >"$work/theirs" 2>/dev/null
    "$work/roce" check --max 1000000 "$capture" >"$work/check" || [ $? -eq 1 ] || return
    # Tests have us post a misaligned atomic and a misaligned ATOMIC WRITE.
    grep ' violation ' "$work/check" | grep -E ' (10\.77\.0\.|fd77::)(1|99)[: ]' |
        grep -vE ' (atomic\.alignment|atomic_write\.shape) ' >"$work/violations" || :
    echo "       $(wc -l <"$work/dump") packets were captured"
    if [ -s "$work/dump" ] && ! [ -s "$work/ours" ] && ! [ -s "$work/theirs" ] && ! [ -s "$work/violations" ]; then
        rm "$capture"
        return
    fi
    mv "$capture" "$RXE_VM_CACHE/broken.pcapng"
    echo "       the capture is $RXE_VM_CACHE/broken.pcapng"
    return 1
}

# ---- all of it -----------------------------------------------------------------------------------

prerequisites
if [ -z "${ROCE:-}" ]; then
    cargo build --release --package softroce-tools --package softroce-capi --package softroce-paths
    ROCE=$target/release/roce
fi
if [ -z "${INTEROP:-}${ONLY:-}" ]; then
    INTEROP=$(cargo test --release --workspace --features softroce/futures --test interop --no-run --message-format=json |
        sed -nE 's/.*"executable":"([^"]*interop-[^"]*)".*/\1/p')
fi
work=$(mktemp -d)
trap '"$vm" down; rm -rf "$work"' EXIT
cp "$ROCE" "$work/roce"
cp "${ROCE%/*}"/lib{ibverbs,softroce_paths}.so "$work"
[ -n "${ONLY:-}" ] || cp "$INTEROP" "$work/interop"
chmod -R a+rX "$work"

for kernel in "${kernels[@]}"; do
    : >"$work/results"
    "$vm" down
    "$vm" up a -k "$kernel"
    release=$("$vm" run a cat /share/ready)
    if [ "${ONLY:-}" = connections ]; then
        for ip in ipv4 ipv6; do
            capture_start
            connections $ip
            check $ip "every packet on the wire: a BTH for tshark, a right ICRC, no rule broken by us" capture_check
        done
        continue
    fi
    peer_start
    for ip in ipv4 ipv6; do
        capture_start
        stock_programs $ip
        other_ports $ip
        perftest_programs $ip
        connections $ip
        operations $ip --skip $CORRUPT --skip $HANDMADE
        check $ip "every packet on the wire: a BTH for tshark, a right ICRC, no rule broken by us" capture_check
        operations $ip $HANDMADE
        operations $ip $CORRUPT --skip $HANDMADE
    done
    documented
done
echo "rxe.sh: $passed passed, $failed failed, $SECONDS s"
[ "$failed" -eq 0 ]
