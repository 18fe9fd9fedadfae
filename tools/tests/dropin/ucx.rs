//! UCX, which looks the device up under `/sys` and `/dev` before it uses it, and Open MPI, which uses UCX.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Server, free_port, output};
use crate::roce::{alone, scratch};

/// Runs a test of `ucx_perftest` as server and as client over some transports; both must succeed.
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

/// `io_demo` checks every byte. Its sides connect by TCP, which may carry data too, so the counters must show that
/// data has gone over the device.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn data_is_what_was_sent() {
    let _alone = alone();
    let port = free_port();
    let counted = empty("ucx-counters");
    let (at, counters) = (port.to_string(), format!("SOFTROCE_COUNTERS={}", counted.display()));
    let program = ["env", "UCX_TLS=rc_verbs,ud_verbs,tcp", &counters, "io_demo", "-p", &at];
    let program = [&program[..], &["-q", "-d", "1:300000"]].concat();
    let serving = Server::start(&program, port);
    let said = output(&[&program[..], &["-i", "100", "-o", "read,write", "127.0.0.1"]].concat());
    assert!(said.contains("Client exit with status 'OK'"), "{said}");
    // The server runs until it is interrupted.
    let server = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &server]).status().unwrap().success());
    serving.finish();

    both_have_sent(&counted);
}

/// Returns an empty directory.
fn empty(name: &str) -> PathBuf {
    let directory = scratch(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Asserts that each of two devices has sent more than a megabyte, by their counter files.
fn both_have_sent(counted: &Path) {
    let files = fs::read_dir(counted).unwrap().map(|file| file.unwrap().path());
    let lines: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let sent = lines.lines().filter(|line| line.starts_with("softroce_tx_bytes_total{"));
    let sent: Vec<u64> =
        sent.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    assert!(sent.len() == 2 && sent.iter().all(|bytes| *bytes > 1_000_000), "{sent:?}");
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn open_mpi_sends_over_the_device() {
    let _alone = alone();
    let counted = empty("mpi-counters");
    let counters = format!("SOFTROCE_COUNTERS={}", counted.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dropin/mpi.py");
    let program = ["env", "UCX_TLS=rc_verbs,ud_verbs:aux,self", &counters, "mpirun"];
    let options = ["--allow-run-as-root", "--oversubscribe", "-n", "2", "--mca", "pml", "ucx"];
    let said =
        output(&[&program[..], &options, &["/usr/bin/python3", script.to_str().unwrap()]].concat());
    let ranks: Vec<_> = said.lines().collect();
    assert_eq!(ranks, ["rank 0 has what was sent", "rank 1 has what was sent"]);
    both_have_sent(&counted);
}
