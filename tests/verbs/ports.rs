//! All of these tests once more, on devices with another port.

use crate::process::{SEEN_EVERYTHING, in_namespaces};

/// In a namespace of its own whoever may make one has CAP_NET_RAW. Left out is what closes sockets of
/// UDP, and that an address is one process's: packet ports share it.
#[test]
#[ignore = "makes network namespaces"]
fn everything_is_the_same_with_packet_sockets() {
    let script = format!(
        r#"ip link set lo up
        unset SOFTROCE_TEST_ROLE
        SOFTROCE_VIA=packet "$1" --skip faults:: --skip a_device_of_another_process
        echo {SEEN_EVERYTHING}"#
    );
    in_namespaces(&script, "", "");
}
