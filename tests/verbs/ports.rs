//! All of these tests once more, on devices with another port.

use crate::process::{SEEN_EVERYTHING, in_namespaces};

/// In a namespace of its own whoever may make one has CAP_NET_RAW. Left out is what closes sockets of
/// UDP, that an address is one process's, for packet ports share it, and what has several shards.
#[test]
#[ignore = "makes network namespaces"]
fn everything_is_the_same_with_packet_sockets() {
    let script = format!(
        r#"ip link set lo up
        unset SOFTROCE_TEST_ROLE
        SOFTROCE_VIA=packet "$1" --skip faults:: --skip shards:: --skip a_device_of_another_process
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
        "$1" --skip faults:: --skip shards:: --skip a_device_of_another_process --skip an_idle_device \
            --skip a_socket_on_the_roce_port --skip an_address_that_is_not_ours \
            --skip an_address_that_is_taken
        echo {SEEN_EVERYTHING}"#
    );
    in_namespaces(&script, "", "");
}
