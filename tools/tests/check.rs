//! `roce check` as a user runs it, on golden captures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use roce::{golden, other_end, roce, scratch, stderr};
use serde_json::Value;
use softroce_pcap::Reader;

fn check(args: &[&str], names: &[&str]) -> (Option<i32>, String) {
    let files: Vec<_> = names.iter().map(|name| golden(name)).collect();
    let files = files.iter().map(|path| path.to_str().unwrap());
    let output = roce(&[&["check"], args, &files.collect::<Vec<_>>()].concat());
    assert!(output.status.code() != Some(2), "{}", stderr(&output));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn quirks_and_notes_do_not_fail() {
    let (status, text) = check(&[], &["rxe/rc_rnr.pcap"]);
    assert_eq!(status, Some(0));
    let line = "     6   0.000748000  quirk      rc.nak_after_rnr            10.77.0.3 qp 0x000028: NAK_PSN psn=1118481 msn=0; \
                expected no NAK before the retransmission that the RNR NAK in packet 5 delays";
    assert_eq!(text.lines().nth(3), Some(line), "{text}");
    let last = "42 packets, 42 of RoCEv2; ICRC: 42 good, 0 bad, 0 unknown; 0 violations, 8 quirks, 30 notes";
    assert!(text.lines().last().unwrap().ends_with(last), "{text}");
}

#[test]
fn violation_in_any_file_fails() {
    let (status, text) = check(&[], &["rxe/host_handmade_rc.pcap", "rxe/rc_read.pcap"]);
    assert_eq!(status, Some(1));
    let line = "  violation  icrc.bad                    10.77.0.1 or the path from it: ICRC 0x00000000; \
                expected 0xb1cb4fb2";
    assert!(
        text.lines().any(|found| found.starts_with("    17 ") && found.ends_with(line)),
        "{text}"
    );
    assert!(text.contains("0 violations, 2 quirks, 0 notes"), "{text}");
}

#[test]
fn json_has_an_object_for_each_file() {
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
        "rule": "atomic_write.shape",
        "id": "RSP-32",
        "severity": "violation",
        "packet": 1,
        "time": null,
        "party": "10.77.0.2",
        "found": "8 bytes at 0x7fe859ec5004, DMA length 8",
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
    assert_eq!(lines[3], "35 more findings are counted but not printed (--max)");
}

#[test]
fn unreadable_file_is_an_error_and_the_rest_is_checked() {
    let path = scratch("check_no_capture");
    std::fs::write(&path, "hello").unwrap();
    let whole = golden("rxe/rc_read.pcap");
    let output = roce(&["check", path.to_str().unwrap(), whole.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("not a capture file (magic 0x68656c6c)"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("21 of RoCEv2"));

    // The packets before a record that is cut short are checked.
    let bytes = std::fs::read(whole).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let output = roce(&["check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cut short in the record after packet 20"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("20 of RoCEv2"));
}

#[test]
fn summary_counts_findings_by_rule() {
    let (status, text) = check(&["--summary"], &["rxe/host_handmade_rc.pcap"]);
    assert_eq!(status, Some(1));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 10, "{text}");
    let line = "       2  note       rc.retransmission.timeout   a request without a response within the ACK timeout \
                is retransmitted";
    assert!(lines.contains(&line), "{text}");
}

#[test]
fn annotations_are_a_line_for_each_finding() {
    let (status, text) = check(&["--format", "github", "--max", "1"], &["rxe/rc_read.pcap"]);
    assert_eq!(status, Some(0));
    let file = golden("rxe/rc_read.pcap");
    let expected = format!(
        "::warning file={},title=bth.reserved::packet 1: 10.77.0.2: MigReq 0; expected 1, as adapters send\n",
        file.display()
    );
    assert_eq!(text, expected);
}

#[test]
fn junit_has_a_suite_for_each_file_and_a_case_for_each_broken_rule() {
    let whole = golden("rxe/host_handmade_rc.pcap");
    let missing = scratch("check_missing.pcap");
    let [whole, missing] = [&whole, &missing].map(|path| path.to_str().unwrap());
    let output = roce(&["check", "--format=junit", whole, missing]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let suites: Vec<_> =
        document.descendants().filter(|node| node.has_tag_name("testsuite")).collect();
    let counts = |suite: &roxmltree::Node<'_, '_>| {
        ["tests", "failures", "errors"].map(|name| suite.attribute(name).unwrap().to_owned())
    };
    assert_eq!(suites.len(), 2);
    assert_eq!(counts(&suites[0]), ["3", "2", "0"]);
    assert_eq!(counts(&suites[1]), ["1", "0", "1"]);
    let failed: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("failure"))
        .filter_map(|node| node.parent()?.attribute("name"))
        .collect();
    assert_eq!(failed, ["icrc.bad", "atomic.alignment"]);
}

#[test]
fn rules_are_explained_by_name_and_identifier() {
    let [by_name, by_id] =
        ["rc.rnr_nak", "rsp-23"].map(|rule| roce::lines(&["check", "--explain", rule]));
    assert_eq!(by_name, by_id);
    assert_eq!(by_name.len(), 5);
    assert_eq!(by_name[0], "rc.rnr_nak (RSP-23)");
    let all = roce::json(&["check", "--explain", "all", "--json"]);
    assert_eq!(all.len(), softroce_pcap::check::Rule::ALL.len());
    let fields = ["rule", "id", "statement", "clause", "typical_cause", "action"];
    assert!(all.iter().all(|rule| fields.iter().all(|field| rule[field].is_string())));
    let text = roce::error(&["check", "--explain", "pkey", "--format", "junit"]);
    assert!(text.contains("those with this text are bth.pkey"), "{text}");
}

#[test]
fn captures_of_both_ends_tell_a_loss_on_the_way_from_a_drop_at_the_receiver() {
    let name = "rxe/loss_send_middle.pcap";
    let (client, server) = (golden(name), other_end("check", name, 8));
    let merged = scratch("check_merged.pcapng");
    let [client, merged] = [&client, &merged].map(|path| path.to_str().unwrap());
    let output = roce(&["check", "-r", client, "-r", &server, "-w", merged]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "network: NAK_PSN psn=1118487 msn=1; packet 8 was lost on the way",
        "packet 12 of the first capture, 11 of the second",
        "loss_send_middle.pcap: at 10.77.0.2",
        "check-other-end.pcapng: at 10.77.0.3",
        "clocks: the second is +5.000000 s from the first",
        "10.77.0.2 to 10.77.0.3: 64 arrived, 1 lost on the way",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let mut reader = Reader::new(std::fs::File::open(merged).unwrap()).unwrap();
    let mut count = 0;
    while reader.next_packet().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 81);

    let output = roce(&["check", "--json", "-r", client, "-r", &server]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["merged"]["paths"][0]["lost"], 1);
    let nak = object["findings"].as_array().unwrap().iter().find(|of| of["packet"] == 12).unwrap();
    assert_eq!(nak["numbers"], serde_json::json!([12, 11]));
}
