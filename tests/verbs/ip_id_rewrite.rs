//! A path that changes the IPv4 identifications within GSO bursts, which invalidates the ICRC.

use std::process::Command;

use softroce::verbs::*;

use crate::node::Node;
use crate::peer_process::PeerProcess;
use crate::process::{SUCCESS_LINE, in_namespaces, role, started_by_another_test};

/// Test that runs in its own process.
const SUBPROCESS: &str = "ip_id_rewrite::subprocess";

/// Script with namespaces a and b, and between them r, where a program forwards frames. It adds a thousand to the
/// IPv4 identification of packets that have one, but not to those of single datagrams (with identification 0).
const BETWEEN: &str = r#"
    mount -t tmpfs tmpfs /run
    ip netns add b
    ip netns add r
    ip link set lo up
    ip link add a0 type veth peer name ra netns r
    ip -n b link add b0 type veth peer name rb netns r
    ip link set a0 up
    ip -n b link set b0 up
    ip -n r link set ra up
    ip -n r link set rb up
    ip addr add 10.8.0.1/24 dev a0
    ip -n b addr add 10.8.0.2/24 dev b0
    # So that every frame has all its checksums, and holds one datagram.
    ethtool -K a0 tx off >/dev/null
    ip netns exec b ethtool -K b0 tx off >/dev/null
    trap 'kill $!' EXIT
    ip netns exec r python3 >/dev/null -c '
import select, socket, struct
sides = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in "ab"]
for side, name in zip(sides, ["ra", "rb"]):
    side.bind((name, 3))
    # SO_RCVBUFFORCE, or SO_RCVBUF for who may not: it is slow.
    try:
        side.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)
    except PermissionError:
        side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
def carried(frame):
    if frame[12:14] != b"\x08\x00" or frame[18:20] == b"\0\0":
        return frame
    words = list(struct.unpack(">10H", frame[14:34]))
    words[2] = words[2] + 1000 & 0xffff
    words[5] = 0
    total = sum(words)
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    words[5] = ~total & 0xffff
    return frame[:14] + struct.pack(">10H", *words) + frame[34:]
while True:
    for side in select.select(sides, [], [])[0]:
        frame, address = side.recvfrom(65536)
        if address[2] != socket.PACKET_OUTGOING:
            sides[side is sides[0]].send(carried(frame))
' &
    "$@"
"#;

#[test]
fn subprocess() {
    if role().as_deref() != Some("renumbered") {
        return started_by_another_test();
    }
    for via in ["udp", "packet"] {
        let options = OpenOptions::default().ip("10.8.0.1".parse().unwrap());
        let ctx = Context::open(options.via(via.parse().unwrap())).unwrap();
        let mut there = Command::new("ip");
        let mut far = PeerProcess::start(there.args(["netns", "exec", "b"]), "10.8.0.2", "packet");
        let near = Node::on(ctx);
        far.connect(&near.qp);
        let written = near.fill(0, 300_000, 1);
        let write = || near.run(SendRequest::write(1, near.mr.sge(..300_000), far.at));
        let count = || near.qp.counters().unwrap();
        for _ in 0..50 {
            write();
            if count().bursts_given_up > 0 {
                break;
            }
        }
        assert!(count().bursts_given_up > 0, "{via}");
        // Every burst lost packets. The forwarding program may lose some single ones too.
        let whole = (0..50).any(|_| {
            let before = count().retries;
            write();
            count().retries == before
        });
        assert!(whole, "{via}: everything goes alone");
        near.run(SendRequest::read(2, near.mr.sge(400_000..700_000), far.at));
        assert_eq!(near.bytes(400_000, 300_000), written);
    }
    println!("\n{SUCCESS_LINE}");
}

#[test]
#[ignore = "makes network namespaces"]
fn path_that_renumbers_bursts_receives_single_packets() {
    in_namespaces(BETWEEN, SUBPROCESS, "renumbered");
}
