//! Tests of particular ports, and all other tests with other ports.

use std::thread;

use softroce::port::impair::Impairments;
use softroce::port::{Conditions, PortKind};
use softroce::transport::outputs::DropReason;
use softroce::verbs::*;

use crate::node::{Node, open, open_with};
use crate::process::{self, SUCCESS_LINE, in_namespaces};

#[test]
fn shared_memory_port_carries_packets_to_peers_with_shared_memory() {
    let [a, b, c] = [PortKind::Shm, PortKind::Shm, PortKind::Udp]
        .map(|kind| Node::on(open_with(OpenOptions::default().via(kind))));
    let to_c = a.pd.create_qp(&QpConfig::rc(&a.cq)).unwrap();
    a.connect(&b, &ConnectOptions::default());
    to_c.connect(&c.qp.endpoint(), &ConnectOptions::default()).unwrap();
    c.qp.connect(&to_c.endpoint(), &ConnectOptions::default()).unwrap();
    let sent = a.fill(0, 100_000, 1);
    a.run(SendRequest::write(1, a.mr.sge(..100_000), b.mr.remote(0)));
    b.run(SendRequest::read(2, b.mr.sge(200_000..300_000), a.mr.remote(0)));
    c.run(SendRequest::read(3, c.mr.sge(..100_000), a.mr.remote(0)));
    assert!([b.bytes(0, 100_000), b.bytes(200_000, 100_000), c.bytes(0, 100_000)] == [&*sent; 3]);
    let [a, b, c] = [a, b, c].map(|node| node.ctx.counters().unwrap().port);
    assert!(a.shm_tx_bursts < a.tx_bursts && a.shm_rx_buffers < a.rx_buffers, "c has answers too");
    assert_eq!((b.tx_bursts, b.rx_buffers), (b.shm_tx_bursts, b.shm_rx_buffers));
    assert_eq!((a.shm_tx_bursts, a.shm_lost), (b.shm_rx_buffers, 0));
    assert_eq!((c.shm_tx_bursts, c.shm_rx_buffers), (0, 0));
}

/// Waits for a received message, and returns its length. Earlier sends have succeeded.
fn received(node: &Node) -> u32 {
    loop {
        let completion = node.next();
        assert_eq!(completion.status, WcStatus::Success);
        if completion.wr_id == RECEIVED {
            return completion.byte_len;
        }
    }
}

const RECEIVED: u64 = 1;
const SENT: u64 = 2;

/// Exchanges messages of 64 bytes in alternating directions while `goes_on` returns true for their number, and checks
/// their contents.
fn ping_pong(a: &Node, b: &Node, mut goes_on: impl FnMut(u32) -> bool) {
    b.recv(RECEIVED, 0..64);
    let echo = || {
        for turn in (0..2).cycle() {
            if received(b) == 0 {
                break;
            }
            let places = [0..64, 64..128];
            b.recv(RECEIVED, places[1 - turn].clone());
            b.send(SendRequest::send(SENT, b.mr.sge(places[turn].clone())));
        }
    };
    thread::scope(|scope| {
        scope.spawn(echo);
        for number in (0..).take_while(|number| goes_on(*number)) {
            let sent = a.fill(0, 64, number);
            a.recv(RECEIVED, 100..164);
            a.send(SendRequest::send(SENT, a.mr.sge(..64)));
            assert_eq!(received(a), 64);
            assert_eq!(a.bytes(100, 64), sent, "message {number}");
        }
        a.send(SendRequest::send(SENT, a.mr.sge(..0)));
    });
}

/// Maximum number of messages until both sides use connected sockets. On a busy machine, pauses in the flow may delay
/// this.
const MAX_MESSAGES: u32 = 10_000;

/// Maximum number of pairs to try.
const MAX_PAIRS: u32 = 20;

/// Exchanges messages until both sides have sent many from connected sockets, at most [`MAX_MESSAGES`], and returns
/// the counters of both sides.
fn exchange_messages(a: &Node, b: &Node) -> [DeviceCounters; 2] {
    let counters = || [a, b].map(|node| node.ctx.counters().unwrap());
    ping_pong(a, b, |number| {
        number < MAX_MESSAGES && (number % 100 > 0 || !counters().iter().all(has_connected))
    });
    counters()
}

/// Returns whether many packets have left from connected sockets.
fn has_connected(side: &DeviceCounters) -> bool {
    side.port.tx_connected >= 1000
}

#[test]
fn ping_pong_uses_connected_sockets_without_loss() {
    // 17 s: a lost packet is retransmitted after this time, and a thread that waits for a CPU runs earlier.
    let timeout = AckTimeout::new(22).unwrap();
    let mut exchanges = (0..MAX_PAIRS).map(|_| {
        let (a, b) = (Node::on(open()), Node::on(open()));
        a.connect(&b, &ConnectOptions { timeout, ..ConnectOptions::default() });
        exchange_messages(&a, &b)
    });
    let has_connected = |sides: &[DeviceCounters; 2]| sides.iter().all(has_connected);
    for side in exchanges.find(has_connected).expect("a pair on connected sockets") {
        let DeviceCounters { protocol, port, .. } = &side;
        assert_eq!(port.tx_copies, 3, "{side:?}");
        // The peer has sent as many packets, of which the last ones may be in flight.
        assert!(protocol.recovered_ids >= 900 && protocol.duplicate_requests <= 3, "{side:?}");
        let lost = (protocol.dropped(DropReason::BadIcrc), protocol.retransmitted);
        assert_eq!(lost, (0, 0), "{side:?}");
    }
}

#[test]
fn ping_pong_survives_loss_and_corruption() {
    let impaired = |seed| {
        let conditions = Conditions { loss: 0.001, corrupt: 0.003, ..Conditions::default() };
        let impairments = Impairments { conditions, seed, ..Impairments::default() };
        OpenOptions::default().impair(impairments)
    };
    let (a, b) = (Node::on(open_with(impaired(1))), Node::on(open_with(impaired(2))));
    let timeout = AckTimeout::new(11).unwrap();
    a.connect(&b, &ConnectOptions { timeout, ..ConnectOptions::default() });
    let [a, b] = exchange_messages(&a, &b).map(|side| side.protocol.retransmitted);
    assert!(a > 0 && b > 0);
}

/// Excluded are tests with several shards, the test that closes the sending socket of a device, and this file.
#[test]
fn all_tests_pass_with_shared_memory() {
    let left_out = ["shards::", "closed_socket_fails_the_device", "ports::"];
    process::run_all(("SOFTROCE_VIA", "shm"), &left_out);
}

/// A network namespace provides CAP_NET_RAW. Excluded are tests that close UDP sockets, the test of exclusive
/// addresses, because packet ports share an address, and tests with several shards.
#[test]
#[ignore = "makes network namespaces"]
fn all_tests_pass_with_packet_sockets() {
    let script = format!(
        r#"ip link set lo up
        unset SOFTROCE_TEST_ROLE
        SOFTROCE_VIA=packet "$1" --skip ports:: --skip faults:: --skip shards:: --skip open_error_names_the_process
        echo {SUCCESS_LINE}"#
    );
    in_namespaces(&script, "", "");
}

/// Each device is a host on a bridge. Also excluded are tests that bind an address with a socket of this machine, or
/// use other addresses of the machine, or IPv6, and the test of an idle device, because broadcasts on the link wake
/// it.
#[cfg(feature = "tap")]
#[test]
#[ignore = "makes network namespaces"]
fn all_tests_pass_with_taps_on_a_bridge() {
    let script = format!(
        r#"ip link add br0 type bridge
        ip link set br0 up mtu 9000
        unset SOFTROCE_TEST_ROLE
        export SOFTROCE_VIA=tap:roce%d,ip=127.0.0.1/8,bridge=br0
        "$1" --skip ports:: --skip faults:: --skip shards:: --skip open_error_names_the_process --skip idle_device_does_not_wake \
            --skip bound_roce_port_prevents --skip address_of_another \
            --skip open_error_names_the_bound_address --skip ipv6_carries_every_operation --skip ipv4_and_ipv6_work_on_one_device \
            --skip name_conflict::
        echo {SUCCESS_LINE}"#
    );
    in_namespaces(&script, "", "");
}
