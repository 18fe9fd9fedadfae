//! `roce dump` as a user runs it, on golden captures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use roce::{command, golden, roce, scratch, stderr};
use serde_json::Value;
use softroce::net::Path as Route;
use softroce::psn::Psn;
use softroce::wire::encap::Headers;
use softroce::wire::icrc::Flow;
use softroce::wire::packet::datagram_len;
use softroce::wire::{Bth, Builder, Opcode, XrcEth};
use softroce_pcap::{LinkType, Reader, Writer, dissect};

fn dump(args: &[&str], file: &Path) -> Output {
    roce(&[&["dump"], args, &[file.to_str().unwrap()]].concat())
}

fn lines(args: &[&str], name: &str) -> Vec<String> {
    let output = dump(args, &golden(name));
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_packet_has_a_line() {
    let expected = [
        "     1   0.000000000  10.77.0.2 > 10.77.0.3  RC COMPARE_SWAP qp=0x00001e psn=1118481 ackreq \
         va=0x7ff26cc06000 rkey=0x00001c90 expect=0x1122334455667788 swap=0xa1a2a3a4a5a6a7a8  icrc good",
        "     2   0.000710000  10.77.0.3 > 10.77.0.2  RC ATOMIC_ACK qp=0x00001e psn=1118481 msn=1 \
         value=0x1122334455667788  icrc good",
    ];
    assert_eq!(lines(&[], "rxe/rc_atomic.pcap")[..2], expected);
}

#[test]
fn corrupt_packet_shows_both_icrcs() {
    let lines = lines(&["--opcode", "SEND_ONLY"], "rxe/host_handmade_rc.pcap");
    let bad: Vec<_> = lines.iter().filter(|line| !line.ends_with("icrc good")).collect();
    let [line] = bad.as_slice() else { panic!("one expected: {bad:#?}") };
    assert!(line.starts_with("    17 "), "{line}");
    assert!(line.ends_with("  icrc BAD 0x00000000, expected 0xb1cb4fb2"), "{line}");
}

#[test]
fn messages_of_connection_managers_name_their_conversation() {
    let place = |line: &String| {
        let (_, place) = line.split_once("  conversation ")?;
        Some(place.split("  ").next()?.to_owned())
    };
    let places: Vec<_> = lines(&[], "rxe/cm_ucmatose.pcap").iter().filter_map(place).collect();
    // Two connections, made and ended side by side.
    let expected = [
        "1",
        "2",
        "1, answers packet 1 after",
        "1, answers packet 3 after",
        "2, answers packet 2 after",
        "2, answers packet 5 after",
    ];
    assert_eq!(places.len(), 10, "{places:#?}");
    for (found, expected) in places.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}, expected {expected}");
    }
    // A filter changes no numbers.
    let reply = lines(&["-Y", "frame.number == 5"], "rxe/cm_ucmatose.pcap");
    assert!(reply[0].contains("  conversation 2, answers packet 2 after"), "{reply:#?}");
}

#[test]
fn conversations_are_fields_of_json() {
    let packets = lines(&["--json"], "rxe/cm_rej_nolistener.pcap");
    let [req, rej] = [0, 1].map(|at| serde_json::from_str::<Value>(&packets[at]).unwrap());
    assert_eq!((&req["cm"]["conversation"], &req["cm"]["response_to"]), (&1.into(), &Value::Null));
    assert_eq!((&rej["cm"]["conversation"], &rej["cm"]["response_to"]), (&1.into(), &1.into()));
    assert!(rej["cm"]["after_s"].as_f64().unwrap() > 0.0, "{rej}");
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
    assert_eq!(count(&["--qpn", "0x7"]), 0);
    // A UD packet names the queue pair of its sender.
    assert_eq!(lines(&["--qpn", "37"], "rxe/ud_send.pcap").len(), 6);
}

#[test]
fn json_has_an_object_for_each_packet() {
    let lines = lines(&["--json"], "rxe/k612_flush_persist.pcap");
    let packets: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let operations: Vec<_> = packets.iter().map(|p| p["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["FLUSH", "NAK_INV"]);
    assert_eq!(packets[0]["reth"]["dma_len"], 100);
    assert_eq!(packets[0]["flush"]["placement"], 2);
    assert_eq!(packets[0]["icrc"], "rxe", "it covers the headers of a FLUSH twice");
    assert_eq!(packets[1]["aeth"]["syndrome"], 0x61);
    assert_eq!(packets[1].get("reth"), None);
}

/// Captures with every transport, every message of the connection manager and operations that tshark does not know,
/// each with its lines.
#[test]
fn golden_captures_have_their_golden_lines() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dump");
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 14, "{files:?}");
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().replace('.', "/");
        let found = lines(&[], &format!("{name}.pcap")).join("\n") + "\n";
        if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
            std::fs::write(&file, found).unwrap();
        } else {
            assert_eq!(found, std::fs::read_to_string(&file).unwrap(), "{name}");
        }
    }
}

#[test]
fn time_filters_count_from_the_first_packet() {
    let file = "rxe/rc_retry_exceeded.pcap";
    let all = lines(&[], file);
    assert_eq!(all.len(), 4);
    assert_eq!(lines(&["--from", "0.1"], file), all[1..]);
    assert_eq!(lines(&["--to", "0.1"], file), all[..1]);
    assert_eq!(lines(&["--from", "0.1", "--to", "0.7"], file).len(), 2);
    let output = dump(&["--from", "soon"], &golden(file));
    assert!(stderr(&output).contains("expected seconds, such as 5 or 0.25"), "{}", stderr(&output));
}

#[test]
fn json_has_fields_of_connection_management() {
    let lines = lines(&["--json", "--qpn", "1"], "rxe/cm_rping.pcap");
    let packets: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<_> = packets.iter().map(|p| p["cm"]["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    let (req, rep) = (&packets[0]["cm"], &packets[1]["cm"]);
    assert_eq!(req["source_ip"], "10.77.0.2");
    assert_eq!(req["destination_ip"], "10.77.0.3");
    assert_eq!(req["service_id"], 0x0106_1c06);
    assert_eq!((&req["path_mtu"], &req["transport"]), (&4096.into(), &0.into()));
    assert_eq!(req["local_id"], rep["remote_id"]);
    assert_eq!(req["transaction_id"], rep["transaction_id"]);
    assert_eq!(req["private_data"].as_str().unwrap().len(), 2 * 56);
}

#[test]
fn written_file_has_the_filtered_packets_and_comments() {
    let file = "rxe/rc_atomic.pcap";
    let path = scratch("written.pcapng");
    let written = path.to_str().unwrap();
    assert!(lines(&["--opcode", "FETCH", "--write", written], file).is_empty());
    let again = dump(&[], &path);
    let text = |line: &str| line.split_once("  RC ").unwrap().1.to_owned();
    let found: Vec<_> = String::from_utf8_lossy(&again.stdout).lines().map(text).collect();
    let expected: Vec<_> =
        lines(&["--opcode", "FETCH"], file).iter().map(|line| text(line)).collect();
    assert_eq!((found.len(), found), (2, expected.clone()));
    let bytes = std::fs::read(&path).unwrap();
    let comment = format!("RC {}", expected[0]);
    assert!(bytes.windows(comment.len()).any(|window| window == comment.as_bytes()));
    let itself = dump(&["--write", written], &path);
    assert_eq!(itself.status.code(), Some(2));
    assert!(stderr(&itself).contains("another file than the one that is read"));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn standard_input_and_bursts() {
    // The unsegmented IP packet of a burst, as in a capture on lo. Over IPv6 the packets of a file can be joined
    // without changes.
    let whole = std::fs::read(golden("rxe/rc_send_ipv6.pcap")).unwrap();
    let mut reader = Reader::new(whole.as_slice()).unwrap();
    let mut burst = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let ip = packet.ip.unwrap().to_vec();
        let roce = dissect(&ip).unwrap().unwrap();
        let opcode = roce.datagram.unwrap().bth.opcode;
        if matches!(opcode, Opcode::RcSendFirst | Opcode::RcSendMiddle) && burst.len() < 4000 {
            if burst.is_empty() {
                burst.extend(&ip[..48]);
            }
            burst.extend(roce.ip.payload);
        }
    }
    let len = u16::try_from(burst.len() - 40).unwrap().to_be_bytes();
    burst[4..6].copy_from_slice(&len);
    burst[44..46].copy_from_slice(&len);
    let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
    writer.packet(Duration::ZERO, None, &burst).unwrap();
    let mut child =
        command(&["dump", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&writer.into_inner()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    for (line, place) in lines.iter().zip(1..) {
        assert!(line.starts_with("     1   0.000000000  fd77::2 > fd77::3  RC SEND_"), "{line}");
        assert!(line.ends_with(&format!("  segment {place} of 4  icrc good")), "{line}");
    }
}

#[test]
fn operations_without_a_golden_capture_are_decoded() {
    let opcode = Opcode::XrcSendOnly;
    let bth = Bth { opcode, fecn: true, becn: true, psn: Psn::new(5), ..Bth::default() };
    let mut datagram = vec![0; datagram_len(opcode, 8)];
    Builder::new(&bth, &mut datagram).unwrap().xrceth(&XrcEth { srqn: 0x456 });
    let [source, destination] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
    Flow::new((source, 0xc000).into(), (destination, 4791).into()).seal(0, &mut datagram);
    let path = Route { source, destination, source_port: 0xc000, traffic_class: 0, hop_limit: 64 };
    let mut ip = Vec::new();
    Headers::write(&path, 0, datagram.len(), &mut ip);
    ip.extend(datagram);
    let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
    writer.packet(Duration::ZERO, None, &ip).unwrap();
    let file = scratch("xrc.pcapng");
    std::fs::write(&file, writer.into_inner()).unwrap();
    let output = dump(&["--json"], &file);
    let packet: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seen = ["transport", "operation", "fecn", "becn", "srqn", "len", "icrc"]
        .map(|field| packet[field].clone());
    let expected = serde_json::json!(["XRC", "SEND_ONLY", true, true, 0x456, 8, "good"]);
    assert_eq!(Value::from(seen.to_vec()), expected, "{packet}");
}

#[test]
fn packets_of_a_truncated_file_precede_the_error() {
    let whole = std::fs::read(golden("rxe/rc_atomic.pcap")).unwrap();
    let path = scratch("cut.pcap");
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let output = dump(&[], &path);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 7);
    let expected = format!("roce: {}: cut short in the record after packet 7: ", path.display());
    assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
}

#[test]
fn other_files_are_errors() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = dump(&[], &path);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("roce: {}: not a capture file (magic 0x5b7061", path.display());
    assert!(stderr(&output).starts_with(&expected));
}
