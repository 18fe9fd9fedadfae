//! `roce check` from the outside, on golden captures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use roce::{golden, roce, scratch, stderr};
use serde_json::Value;

fn check(args: &[&str], names: &[&str]) -> (Option<i32>, String) {
    let files: Vec<_> = names.iter().map(|name| golden(name)).collect();
    let files = files.iter().map(|path| path.to_str().unwrap());
    let output = roce(&[&["check"], args, &files.collect::<Vec<_>>()].concat());
    assert!(output.status.code() != Some(2), "{}", stderr(&output));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn quirks_and_notes_are_no_reason_to_fail() {
    let (status, text) = check(&[], &["rxe/rc_rnr.pcap"]);
    assert_eq!(status, Some(0));
    let line = "     6   0.000748000  quirk      RSP-25  10.77.0.3 qp 0x000028: NAK_PSN psn=1118481 msn=0; \
                silence until what packet 5 put off comes again";
    assert_eq!(text.lines().nth(3), Some(line), "{text}");
    let last = "42 packets, 42 of RoCEv2; ICRC: 42 good, 0 bad, 0 unknown; 0 violations, 8 quirks, 30 notes";
    assert!(text.lines().last().unwrap().ends_with(last), "{text}");
}

#[test]
fn a_violation_in_any_file_is() {
    let (status, text) = check(&[], &["rxe/host_handmade_rc.pcap", "rxe/rc_read.pcap"]);
    assert_eq!(status, Some(1));
    let line = "  violation  CRC-08  10.77.0.1 or the way from it: ICRC 0x00000000; 0xb1cb4fb2";
    assert!(
        text.lines().any(|found| found.starts_with("    17 ") && found.ends_with(line)),
        "{text}"
    );
    assert!(text.contains("0 violations, 2 quirks, 0 notes"), "{text}");
}

#[test]
fn json_is_an_object_a_file() {
    let names = ["rxe/k612_awrite_misaligned.pcap", "rxe/rc_read.pcap"];
    let (status, text) = check(&["--json"], &names);
    assert_eq!(status, Some(1));
    let files: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(files.len(), 2);
    let file = &files[0];
    assert_eq!(file["file"], golden(names[0]).to_str().unwrap());
    assert_eq!((&file["packets"], &file["roce_packets"]), (&2.into(), &2.into()));
    assert_eq!(file["icrc"], serde_json::json!({"good": 2, "bad": 0, "unknown": 0}));
    let findings = file["findings"].as_array().unwrap();
    let mut violation = findings.iter().find(|f| f["severity"] == "violation").unwrap().clone();
    assert!(violation["time"].as_f64().unwrap() > 1.7e9);
    violation["time"] = Value::Null;
    let expected = serde_json::json!({
        "rule": "RSP-32",
        "severity": "violation",
        "packet": 1,
        "time": null,
        "who": "10.77.0.2",
        "seen": "8 bytes at 0x7fe859ec5004, DMA length 8",
        "expected": "8 bytes at a multiple of 8",
    });
    assert_eq!(violation, expected);
    assert_eq!(files[1]["violations"], 0);
}

#[test]
fn findings_beyond_the_limit_are_counted() {
    let (_, text) = check(&["--max", "3"], &["rxe/rc_rnr.pcap"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[3], "35 more findings are counted but not printed");
}

#[test]
fn what_cannot_be_read_is_an_error_and_the_rest_is_checked() {
    let path = scratch("check_no_capture");
    std::fs::write(&path, "hello").unwrap();
    let whole = golden("rxe/rc_read.pcap");
    let output = roce(&["check", path.to_str().unwrap(), whole.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("not a capture file (magic 0x68656c6c)"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("21 of RoCEv2"));

    // Cut in its last record: what is before that is checked.
    let bytes = std::fs::read(whole).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let output = roce(&["check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cut short in the record after packet 20"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("20 of RoCEv2"));
}
