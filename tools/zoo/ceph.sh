#!/usr/bin/env bash
# A Ceph cluster whose messages go over RDMA: one monitor and three OSDs with their data in memory. Objects are written and
# read back, which `rados bench` compares; then one OSD is killed, and everything is read again without it and after its
# return.
#
#   ceph.sh DIRECTORY [SECONDS]
set -euo pipefail
rm -rf "$1/ceph"
mkdir "$1/ceph"
cd "$1/ceph"
seconds=${2:-4}
export CEPH_CONF=$PWD/ceph.conf
mkdir -p mon log
# Protocol 2 of Ceph's messages: with protocol 1, a client of Ceph 16 may send a command before it has the map of the monitors,
# with a file system ID of zeros, which the monitor refuses.
readonly MONITOR=v2:127.0.0.1:3300
readonly FSID=1f3b7a52-5f0e-4c0e-9d3e-2a6b8c4d5e6f
# Limit for each step of the cluster.
readonly LIMIT_S=60

cat >ceph.conf <<END
[global]
fsid = $FSID
mon host = $MONITOR
auth cluster required = none
auth service required = none
auth client required = none
ms type = async+rdma
ms async rdma device name = softroce0
# Buffers of each process: hundreds of 128 KiB instead of thousands.
ms async rdma send buffers = 256
ms async rdma receive buffers = 1024
ms async rdma receive queue len = 256
log to stderr = false
osd pool default size = 2
osd pool default min size = 1
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 536870912
mon osd down out interval = 5
osd heartbeat grace = 6
mon osd min down reporters = 1
mon allow pool size one = true
run dir = $PWD
admin socket = $PWD/\$cluster-\$name.asok
log file = $PWD/log/\$name.log
END

processes=() uuids=()
ended() { kill -KILL "${processes[@]}" 2>/dev/null || true; }
trap ended EXIT

# Repeats a command until it succeeds.
until_it() {
    local limit=$((SECONDS + LIMIT_S))
    until "$@"; do
        if [ $SECONDS -gt $limit ]; then
            echo "$*: not within $LIMIT_S s" >&2
            timeout 20 ceph -s >&2 || true
            tail -n 20 log/*.log >&2
            return 1
        fi
        sleep 0.2
    done
}
count_is() { [ "$(timeout 20 ceph osd stat -f json | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])")" = "$2" ]; }

# Starts an OSD without data.
start_osd() {
    rm -rf "osd$1"
    mkdir "osd$1"
    ceph-osd --mkfs -i "$1" --osd-uuid "${uuids[$1]}" --osd-data "$PWD/osd$1" --no-mon-config
    ceph-osd -f -i "$1" --osd-data "$PWD/osd$1" &
    processes[$1]=$!
}

monmaptool --create --addv a "[$MONITOR]" --fsid "$FSID" monmap >/dev/null
ceph-mon --mkfs -i a --monmap monmap --mon-data "$PWD/mon"
ceph-mon -f -i a --mon-data "$PWD/mon" --public-addrv "[$MONITOR]" &
processes[9]=$!
until_it timeout 20 ceph -s
for number in 0 1 2; do
    uuids[number]=$(python3 -c 'import uuid; print(uuid.uuid4())')
    ceph osd new "${uuids[number]}" >/dev/null
    start_osd "$number"
done
until_it count_is num_up_osds 3
ceph osd pool create bench 8 8 >/dev/null
echo "== written"
rados -p bench bench "$seconds" write -b 65536 -t 8 --no-cleanup
echo "== read"
rados -p bench bench "$seconds" seq -t 8
echo "== an OSD is killed"
kill -KILL "${processes[2]}"
wait "${processes[2]}" || true
until_it count_is num_up_osds 2
rados -p bench bench "$seconds" seq -t 8
echo "== it comes back"
start_osd 2
until_it count_is num_up_osds 3
rados -p bench bench "$seconds" seq -t 8
echo "all objects are read after the loss of an OSD"
