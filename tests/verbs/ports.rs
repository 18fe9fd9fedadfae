//! All of these tests once more, on devices with another port.

use softroce::io::PortKind;
use softroce::verbs::*;

use crate::node::{Node, open_with};
use crate::process::{self, SEEN_EVERYTHING, in_namespaces};

#[test]
fn shared_memory_carries_what_goes_to_one_that_has_it_and_nothing_else() {
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

/// Left out is what has several shards, what fails a device by closing the socket that it would send by, and
/// the others here.
#[test]
fn everything_is_the_same_through_shared_memory() {
    let left_out = ["shards::", "a_socket_that_is_closed_under_a_device", "ports::"];
    process::run_all(("SOFTROCE_VIA", "shm"), &left_out);
}

/// In a namespace of its own whoever may make one has CAP_NET_RAW. Left out is what closes sockets of
/// UDP, that an address is one process's, for packet ports share it, and what has several shards.
#[test]
#[ignore = "makes network namespaces"]
fn everything_is_the_same_with_packet_sockets() {
    let script = format!(
        r#"ip link set lo up
        unset SOFTROCE_TEST_ROLE
        SOFTROCE_VIA=packet "$1" --skip ports:: --skip faults:: --skip shards:: --skip a_device_of_another_process
        echo {SEEN_EVERYTHING}"#
    );
    in_namespaces(&script, "", "");
}

/// The same where each device is a host of its own on a bridge. Left out is, besides, what takes an address
/// by a socket of this machine, or relies on the machine's addresses, and what sees to it that nothing wakes
/// a device: what hosts tell everybody on a link does.
#[cfg(feature = "tap")]
#[test]
#[ignore = "makes network namespaces"]
fn everything_is_the_same_on_a_link_of_taps() {
    let script = format!(
        r#"ip link add br0 type bridge
        ip link set br0 up mtu 9000
        unset SOFTROCE_TEST_ROLE
        export SOFTROCE_VIA=tap:roce%d,ip=127.0.0.1/8,bridge=br0
        "$1" --skip ports:: --skip faults:: --skip shards:: --skip a_device_of_another_process --skip an_idle_device \
            --skip a_socket_on_the_roce_port --skip an_address_that_is_not_ours \
            --skip an_address_that_is_taken
        echo {SEEN_EVERYTHING}"#
    );
    in_namespaces(&script, "", "");
}
