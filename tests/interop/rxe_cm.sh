# shellcheck shell=bash disable=SC2154  # rxe.sh, which reads this file, has the variables
# The connection manager: programs of librdmacm at both ends, ours on our libibverbs and the system's librdmacm.

# Waits until a program listens or has joined a group, or process $1 has ended.
until_ready() {
    local pid=$1
    shift
    until "$@" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
}

# Our device has its socket. The program listens when a process of the guest has started.
opened_here() { "$vm" host grep -q ':12B7 ' /proc/net/udp /proc/net/udp6; }
# A listener without an address has one of its own for each device.
listening_there() { "$vm" run a "rdma resource show cm_id | grep -q LISTEN"; }
# The group of mckey, as the kernel prints it.
MCKEY_GROUP=239.7.7.7
joined_here() { "$vm" host grep -q 070707EF /proc/net/igmp; }
joined_there() { "$vm" run a "grep -q 070707EF /proc/net/igmp"; }

# What clients say when nothing listens: reject reason 8.
CM_TOO_EARLY='REJECTED|Connection refused|Unexpected CM event bl blka 8'

# Runs a server and a client, one of them in the guest: which one begins, and the commands of both. There %S is the
# address of the server, and %C that of the client.
cm_pair() {
    local begins=$1 ip=$2 server=$3 client=$4 here there pid status=0 ready=(opened_here listening_there)
    case $ip in
    ipv4) here=10.77.0.1 there=10.77.0.2 ;;
    ipv6) here=fd77::1 there=fd77::2 ;;
    esac
    case $server in mckey*) ready=(joined_here joined_there) ;; esac
    local of_server=$here of_client=$there
    [ "$begins" = rxe ] || of_server=$there of_client=$here
    server=${server//%S/$of_server} client=${client//%S/$of_server}
    client=${client//%C/$of_client}
    # shellcheck disable=SC2086  # words of a command
    if [ "$begins" = rxe ]; then
        roce run --ip $here -- $server >"$work/ours" 2>&1 &
        pid=$!
        until_ready $pid "${ready[0]}"
        "$vm" run -t "$LIMIT" a $client >"$work/theirs" 2>&1 || status=1
        wait $pid || status=1
    else
        "$vm" run -t "$LIMIT" a $server >"$work/theirs" 2>&1 &
        pid=$!
        until_ready $pid "${ready[1]}"
        # The state of a listener changes before it hears requests.
        roce run --ip $here -- $client >"$work/ours" 2>&1 ||
            { grep -qE "$CM_TOO_EARLY" "$work/ours" &&
                roce run --ip $here -- $client >"$work/ours" 2>&1; } || status=1
        wait $pid || status=1
    fi
    # Some examples say what went wrong, and pass.
    ! grep -qiE 'error|mismatch|failed' "$work/ours" "$work/theirs" && return $status
}

# Several pairs: a line each, with | between server and client.
cm_pairs() {
    local begins=$1 ip=$2 pair
    shift 2
    for pair in "$@"; do
        if ! cm_pair "$begins" "$ip" "${pair%%|*}" "${pair#*|}"; then
            echo "$pair" >>"$work/ours"
            return 1
        fi
    done
}

# A client without a server learns that at once. The other side has a device, for another program.
cm_rejected() {
    local begins=$1 ip=$2 here=10.77.0.1 there=10.77.0.2 pid status=0
    [ "$ip" = ipv4 ] || here=fd77::1 there=fd77::2
    if [ "$begins" = rxe ]; then
        roce run --ip $here -- rping -s -a $here -C 1 >"$work/ours" 2>&1 &
        pid=$!
        until_ready $pid opened_here
        "$vm" run -t "$LIMIT" a "ucmatose -s $here; rping -c -a $here -C 1" >"$work/theirs" 2>&1 || status=1
        wait $pid || status=1
        grep -q 'RDMA_CM_EVENT_REJECTED, error: 8' "$work/theirs" && return $status
    else
        roce run --ip $here -- ucmatose -s $there >"$work/ours" 2>&1 || :
        grep -q 'RDMA_CM_EVENT_REJECTED, error: 8' "$work/ours"
    fi
}

CM_RPING="rping -s -a %S -C 10 -S 1000 -V|rping -c -a %S -C 10 -S 1000 -V"
CM_UCMATOSE="ucmatose -b %S -c 10 -C 20 -S 9000|ucmatose -s %S -c 10 -C 20 -S 9000"
CM_UDADDY="udaddy -b %S -c 4 -C 10 -S 1000|udaddy -s %S -c 4 -C 10 -S 1000"
# mckey waits for no completion, and Linux drops what its queue pair has not sent when it ends: a work queue of 6.12 has sent
# 68 to 459 of 1,000 datagrams, and more than 1,000 of 10,000. The receiver waits for 4.
CM_MCKEY="mckey -m $MCKEY_GROUP -b %S -C 4 -S 200|mckey -m $MCKEY_GROUP -b %C -s -C 10000 -S 200"
CM_RSOCKETS=("rstream -b %S -C 50 -S 4096 -T v|rstream -s %S -C 50 -S 4096 -T v"
    "riostream -b %S -C 50 -S 4096|riostream -s %S -C 50 -S 4096")
CM_PERFTEST=("ib_write_bw -R -F -s 65536 -n 50|ib_write_bw -R -F -s 65536 -n 50 %S"
    "ib_send_lat -R -F -s 64 -n 100|ib_send_lat -R -F -s 64 -n 100 %S"
    "ib_send_bw -R -F -c UD -s 1024 -n 200|ib_send_bw -R -F -c UD -s 1024 -n 200 %S")
CM_LOSS="ucmatose -b %S -c 20 -C 1 -S 64|ucmatose -s %S -c 20 -C 1 -S 64"

connections() {
    local ip=$1 begins row
    for begins in roce rxe; do
        check "$ip" "rping, $begins begins: 10 pings of 1000 bytes" cm_pairs $begins "$ip" "$CM_RPING"
        check "$ip" "ucmatose, $begins begins: 10 connections, 20 messages of 9000 bytes each" \
            cm_pairs $begins "$ip" "$CM_UCMATOSE"
        check "$ip" "ucmatose, $begins begins, no server: rejected, reason 8" cm_rejected $begins "$ip"
        check "$ip" "udaddy, $begins begins: 4 services, 10 datagrams of 1000 bytes each" \
            tried ud cm_pairs $begins "$ip" "$CM_UDADDY"
        check "$ip" "rstream and riostream (rsockets), $begins begins" cm_pairs $begins "$ip" "${CM_RSOCKETS[@]}"
        row="mckey, $begins sends: 4 datagrams of 200 bytes to a group"
        case $ip in
        ipv6) result "$ip" "$row" "not tried: rdma_cm of Linux joins IPv4 groups only" ;;
        *) check "$ip" "$row" tried ud cm_pairs $begins "$ip" "$CM_MCKEY" ;;
        esac
        row="perftest -R, $begins begins: ib_write_bw, ib_send_lat over RC, ib_send_bw over UD"
        # perftest connects twice. Its client does not wait until the server listens again, and the guest is slow.
        case $ip/$begins in
        ipv4/rxe) check "$ip" "$row" tried ud cm_pairs $begins "$ip" "${CM_PERFTEST[@]}" ;;
        ipv4/roce) result "$ip" "$row" "not tried: the second request arrives before the server listens" ;;
        *) result "$ip" "$row" "not tried: perftest resolves IPv4 addresses only" ;;
        esac
        "$vm" loss -m 0.05
        check "$ip" "ucmatose, $begins begins, 5 % of the MADs lost: 20 connections" \
            tried ud cm_pairs $begins "$ip" "$CM_LOSS"
        "$vm" loss 0
    done
}
