//! UCX, which looks the device up under `/sys` and `/dev` before it takes it.

use super::{Server, free_port, output};
use crate::roce::alone;

/// Runs a test of `ucx_perftest` as server and as client over some transports. Both must succeed.
fn perftest(transports: &str, test: &str) {
    let _alone = alone();
    let port = free_port();
    let (tls, at) = (format!("UCX_TLS={transports}"), port.to_string());
    let program = ["env", &tls, "ucx_perftest", "-p", &at];
    let listening = Server::start(&program, port);
    let client = [&program[..], &["127.0.0.1", "-t", test, "-n", "300", "-w", "10"]].concat();
    let said = output(&client);
    listening.finish();
    assert!(said.contains("Final:"), "{transports} {test}: {said}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn the_device_has_transports_of_ucx() {
    let told = output(&["ucx_info", "-d"]);
    for transport in ["rc_verbs", "ud_verbs"] {
        let there = format!("#      Transport: {transport}\n#         Device: softroce0:1\n");
        assert!(told.contains(&there), "{transport}: {told}");
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn every_kind_of_operation_over_rc() {
    for test in [
        "tag_lat",
        "tag_bw",
        "ucp_put_bw",
        "ucp_get",
        "ucp_fadd",
        "ucp_cswap",
        "stream_bw",
        "ucp_am_lat",
    ] {
        perftest("rc_verbs,ud_verbs:aux", test);
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn every_kind_of_operation_over_ud() {
    for test in ["tag_lat", "tag_bw", "ucp_put_bw", "ucp_get", "stream_bw"] {
        perftest("ud_verbs", test);
    }
}
