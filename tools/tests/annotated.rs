//! `roce check -w` and `roce analyze -w`: captures with comments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use roce::{command, error, golden, roce, scratch, stderr};
use softroce_pcap::Reader;

/// Returns the number of packets of a capture that can be read to its end.
fn packets(file: &Path) -> u64 {
    let bytes = fs::read(file).unwrap();
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut packets = 0;
    while let Some(packet) = reader.next_packet().unwrap() {
        packets = packet.number;
    }
    packets
}

/// Returns whether a file contains a text.
fn has(file: &Path, text: &str) -> bool {
    fs::read(file).unwrap().windows(text.len()).any(|bytes| bytes == text.as_bytes())
}

#[test]
fn findings_are_comments_with_the_identifier_of_their_rule_first() {
    let file = scratch("annotated-check.pcapng");
    let whole = golden("rxe/loss_send_middle.pcap");
    let plain = roce(&["check", whole.to_str().unwrap()]);
    let output = roce(&["check", "-w", file.to_str().unwrap(), whole.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    assert_eq!(output.stdout, plain.stdout);
    assert_eq!(packets(&file), 81);
    for text in [
        "roce check: 81 packets, 81 of RoCEv2; ICRC: 81 good",
        "RSP-02 rc.nak.sequence note: network: NAK_PSN psn=1118487",
        "; lost: SEND_MIDDLE psn=",
        ", behind the point of capture after packet ",
        "; noticed by 10.77.0.3 with the NAK in packet ",
    ] {
        assert!(has(&file, text), "{text}");
    }
    // Comments are findings of the copy too.
    let again = roce(&["check", file.to_str().unwrap()]);
    let findings = |output: &[u8]| {
        String::from_utf8_lossy(output).lines().filter(|line| line.contains("note")).count()
    };
    assert_eq!(findings(&again.stdout), findings(&plain.stdout));
}

#[test]
fn causes_of_a_flow_are_comments_of_its_first_packet() {
    let file = scratch("annotated-analyze.pcapng");
    let whole = golden("rxe/loss_send_middle.pcap");
    let output = roce(&["analyze", "-w", file.to_str().unwrap(), whole.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    assert_eq!(packets(&file), 81);
    for text in ["FLOW-1 10.77.0.2 qp ", "FLOW-1 losses: ", "roce analyze: 81 packets in "] {
        assert!(has(&file, text), "{text}");
    }
}

#[test]
fn copy_goes_to_standard_output_in_place_of_the_findings() {
    let file = scratch("annotated-stdout.pcapng");
    for command in ["check", "analyze"] {
        let output = roce(&[command, "-w", "-", golden("rxe/rc_rnr.pcap").to_str().unwrap()]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        fs::write(&file, output.stdout).unwrap();
        assert_eq!(packets(&file), 42);
        assert!(has(&file, &format!("roce {command}: 42 packets")));
    }
}

#[test]
fn copy_of_a_capture_that_is_cut_short_ends_before_the_cut() {
    let (cut, file) = (scratch("annotated-cut.pcap"), scratch("annotated-cut.pcapng"));
    let whole = fs::read(golden("rxe/rc_rnr.pcap")).unwrap();
    fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    for command in ["check", "analyze"] {
        let output = roce(&[command, "-w", file.to_str().unwrap(), cut.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("cut short in the record after packet 41"));
        assert_eq!(packets(&file), 41);
    }
}

#[test]
fn full_disk_leaves_a_file_that_can_be_read() {
    // Larger than a buffer of the command.
    let (large, file) = (scratch("annotated-large.pcap"), scratch("annotated-full.pcapng"));
    let one = fs::read(golden("rxe/loss_netem5_pipe.pcap")).unwrap();
    fs::write(&large, [&one[..], &one[24..].repeat(9)].concat()).unwrap();
    // A limit of the file size stands for a full disk.
    let script = "trap '' XFSZ; ulimit -f 600; exec \"$@\"";
    let mut limited = Command::new("bash");
    limited.args(["-c", script, "bash", env!("CARGO_BIN_EXE_roce"), "check", "--summary", "-w"]);
    let output = limited.args([&file, &large]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("it ends after at most") && text.contains("can be read"), "{text}");
    let kept = packets(&file);
    assert!((100..3450).contains(&kept), "{kept}");
    assert!(has(&file, "roce check: 3450 packets"));
}

#[test]
fn pipe_that_closes_is_an_error_that_names_it() {
    let fifo = scratch("annotated.fifo");
    // A test before may have left it.
    let _ = fs::remove_file(&fifo);
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let capture = scratch("annotated-fifo.pcap");
    let one = fs::read(golden("rxe/loss_netem5_pipe.pcap")).unwrap();
    fs::write(&capture, [&one[..], &one[24..].repeat(9)].concat()).unwrap();
    let words = ["check", "--summary", "-w"];
    let check = command(&words)
        .args([&fifo, &capture])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let check = check.unwrap();
    let head = Command::new("head").args(["-c", "100"]).arg(&fifo).output().unwrap();
    assert_eq!(head.stdout.len(), 100);
    let output = check.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("annotated.fifo: Broken pipe"), "{}", stderr(&output));
}

#[test]
fn destination_must_be_another_file_and_one_capture_is_copied() {
    let one = golden("rxe/rc_rnr.pcap");
    let one = one.to_str().unwrap();
    for command in ["check", "analyze"] {
        let same = error(&[command, "-w", one, one]);
        assert!(same.contains("expected another file than the one that is read"), "{same}");
        let two = error(&[command, "-w", "-", one, one]);
        assert!(two.contains("--write: 2 captures are given, expected one"), "{two}");
        let missing = error(&[command, "-w", "/nowhere/x.pcapng", one]);
        assert!(missing.contains("/nowhere/x.pcapng: No such file or directory"), "{missing}");
    }
    let pipe = error(&["analyze", "-w", "-", "-"]);
    assert!(pipe.contains("expected a file, because the capture is read twice"), "{pipe}");
}
