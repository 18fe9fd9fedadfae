//! `roce dump` from the outside, on golden captures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::path::Path;
use std::process::Output;

use roce::{golden, roce, scratch, stderr};
use serde_json::Value;

fn dump(args: &[&str], file: &Path) -> Output {
    roce(&[&["dump"], args, &[file.to_str().unwrap()]].concat())
}

fn lines(args: &[&str], name: &str) -> Vec<String> {
    let output = dump(args, &golden(name));
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_line_a_packet() {
    let expected = [
        "     1   0.000000000  10.77.0.2 > 10.77.0.3  RC COMPARE_SWAP qp=0x00001e psn=1118481 ackreq \
         va=0x7ff26cc06000 rkey=0x00001c90 expect=0x1122334455667788 swap=0xa1a2a3a4a5a6a7a8  icrc good",
        "     2   0.000710000  10.77.0.3 > 10.77.0.2  RC ATOMIC_ACK qp=0x00001e psn=1118481 msn=1 \
         value=0x1122334455667788  icrc good",
    ];
    assert_eq!(lines(&[], "rxe/rc_atomic.pcap")[..2], expected);
}

#[test]
fn a_corrupt_packet_shows_both_icrcs() {
    let lines = lines(&["--opcode", "SEND_ONLY"], "rxe/host_handmade_rc.pcap");
    let bad: Vec<_> = lines.iter().filter(|line| !line.ends_with("icrc good")).collect();
    let [line] = bad.as_slice() else { panic!("one expected: {bad:#?}") };
    assert!(line.starts_with("    17 "), "{line}");
    assert!(line.ends_with("  icrc BAD 0x00000000, expected 0xb1cb4fb2"), "{line}");
}

#[test]
fn filters_are_by_queue_pair_operation_and_address() {
    let file = "rxe/loss_atomic_ack.pcap";
    let count = |args: &[&str]| lines(args, file).len();
    assert_eq!(count(&[]), 14);
    assert_eq!(count(&["--opcode", "comp"]), 3);
    assert_eq!(count(&["--opcode", "COMPARE", "--opcode", "FETCH_ADD"]), 7);
    assert_eq!(count(&["--addr", "10.77.0.2"]), 14);
    assert_eq!(count(&["--addr", "10.77.0.9"]), 0);
    assert_eq!(count(&["--qp", "0x7"]), 0);
    // A UD packet says from which queue pair it comes.
    assert_eq!(lines(&["--qp", "37"], "rxe/ud_send.pcap").len(), 6);
}

#[test]
fn json_is_an_object_a_packet() {
    let lines = lines(&["--json"], "rxe/k612_flush_persist.pcap");
    let packets: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let operations: Vec<_> = packets.iter().map(|p| p["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["FLUSH", "NAK_INV"]);
    assert_eq!(packets[0]["reth"]["dma_len"], 100);
    assert_eq!(packets[0]["flush"]["placement"], 2);
    assert_eq!(packets[0]["icrc"], "bad", "rxe covers the headers of a FLUSH twice");
    assert_eq!(packets[1]["aeth"]["syndrome"], 0x61);
    assert_eq!(packets[1].get("reth"), None);
}

#[test]
fn what_a_cut_file_has_is_shown_before_the_error() {
    let whole = std::fs::read(golden("rxe/rc_atomic.pcap")).unwrap();
    let path = scratch("cut.pcap");
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let output = dump(&[], &path);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 7);
    let expected = format!("roce: {}: cut short in the record after packet 7\n", path.display());
    assert_eq!(stderr(&output), expected);
}

#[test]
fn what_is_no_capture_says_so() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = dump(&[], &path);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("roce: {}: not a capture file (magic 0x5b7061", path.display());
    assert!(stderr(&output).starts_with(&expected));
}
