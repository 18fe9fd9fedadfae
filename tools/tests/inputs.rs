//! Captures as other programs leave them: compressed, cut off, with several interfaces and clocks, with comments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use roce::{golden, other_end, roce, scratch, stderr};
use serde_json::Value;
use softroce_pcap::Reader;

/// The commands that read captures.
const COMMANDS: [&str; 4] = ["dump", "check", "analyze", "stats"];

/// A capture with 81 packets, of which one was lost.
const LOSS: &str = "rxe/loss_send_middle.pcap";

/// Time and IP packet of each frame of a golden capture.
fn packets(name: &str) -> Vec<(Duration, Vec<u8>)> {
    let bytes = fs::read(golden(name)).unwrap();
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push((packet.time.unwrap(), packet.ip.unwrap().to_vec()));
    }
    packets
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap();
    let mut option = [&code.to_le_bytes()[..], &len.to_le_bytes(), value].concat();
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &len, &body, &len].concat()
}

/// Returns a pcapng file with packets that alternate between interfaces: Ethernet with microseconds, raw IP with nanoseconds,
/// and raw IP with 1/2^20 s. Each third packet has a comment.
fn several_interfaces(name: &str) -> Vec<u8> {
    let magic = [0x1a2b_3c4d_u32.to_le_bytes(), [1, 0, 0, 0]].concat();
    let mut file = block(0x0a0d_0d0a, &[&magic[..], &[0xff; 8]].concat());
    let resolutions = [(1_u16, 6_u8), (101, 9), (101, 0x80 | 20)];
    for (link, resolution) in resolutions {
        let head = [&link.to_le_bytes()[..], &[0; 6]].concat();
        file.extend(block(1, &[head, option(9, &[resolution])].concat()));
    }
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    for (number, (time, ip)) in packets(name).into_iter().enumerate() {
        let interface = number % resolutions.len();
        let frame = if interface == 0 { [&ethernet[..], &ip].concat() } else { ip };
        let units = [1_000_000, 1_000_000_000, 1 << 20][interface];
        let ticks = u64::try_from(time.as_nanos() * units / 1_000_000_000).unwrap();
        let [high, low] =
            [ticks >> 32, ticks & 0xffff_ffff].map(|half| u32::try_from(half).unwrap());
        let len = u32::try_from(frame.len()).unwrap();
        let interface = u32::try_from(interface).unwrap();
        let mut body: Vec<u8> = [interface, high, low, len, len].map(u32::to_le_bytes).concat();
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        if number % 3 == 2 {
            body.extend(option(1, b"a comment of before"));
        }
        file.extend(block(6, &body));
    }
    file
}

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Returns the output of a command, which must succeed, with the name of the file left out.
fn output(command: &str, path: &Path) -> String {
    let path = path.to_str().unwrap();
    let output = roce(&[command, path]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{command}");
    String::from_utf8(output.stdout).unwrap().replace(path, "FILE")
}

/// Compresses a file with a program of the system.
fn compressed(program: &str, path: &Path) -> Vec<u8> {
    let output = Command::new(program).arg("-c").arg(path).output().unwrap();
    assert!(output.status.success(), "{program}: {}", stderr(&output));
    output.stdout
}

#[test]
fn capture_of_several_interfaces_and_clocks_reads_like_one_of_a_single_clock() {
    let several = write("inputs-several.pcapng", &several_interfaces(LOSS));
    // Times differ by what the coarsest clock rounds off, and with them the texts of findings.
    let [one, other] = [&golden(LOSS), &several].map(|path| {
        let object = roce::json(&["check", "--json", path.to_str().unwrap()]).remove(0);
        let findings = object["findings"].as_array().unwrap().iter();
        let findings = findings.map(|of| (of["packet"].clone(), of["rule"].clone()));
        (object["icrc"].clone(), findings.collect::<Vec<_>>())
    });
    assert_eq!(one, other);
    assert!(one.1.len() > 40, "{}", one.1.len());
    for command in COMMANDS {
        assert!(output(command, &several).lines().count() > 5, "{command}");
    }
    // Retransmissions keep their causes and their times to a microsecond.
    let [a, b] = [golden(LOSS), several].map(|path| {
        let object = roce::json(&["analyze", "--json", path.to_str().unwrap()]).remove(0);
        let flow = object["flows"][0].clone();
        (flow["retransmitted"].clone(), flow["timeouts"]["total_s"].as_f64().unwrap())
    });
    assert_eq!(a.0, b.0);
    assert!((a.1 - b.1).abs() < 1e-4, "{} and {}", a.1, b.1);
}

#[test]
fn comments_of_a_capture_stay_and_findings_come_after_them() {
    let (file, copy) =
        (write("inputs-comments.pcapng", &several_interfaces(LOSS)), scratch("inputs-copy.pcapng"));
    for command in ["check", "analyze"] {
        let output = roce(&[command, "-w", copy.to_str().unwrap(), file.to_str().unwrap()]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        let bytes = fs::read(&copy).unwrap();
        let count =
            |text: &str| bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count();
        assert_eq!(count("a comment of before"), 27);
        assert!(count(if command == "check" { "RSP-02" } else { "FLOW-1 " }) > 0, "{command}");
        // Link types and clocks of the interfaces stay.
        assert_eq!(packets_of(&copy), packets_of(&file));
    }
}

fn packets_of(path: &Path) -> Vec<(Duration, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push((packet.time.unwrap(), packet.frame.to_vec()));
    }
    packets
}

#[test]
fn capture_that_is_cut_off_in_a_block_is_read_up_to_the_cut() {
    let whole = several_interfaces(LOSS);
    // In the last packet, in the head of its block, and in the first bytes of it.
    for (cut, packets) in [(1, 80), (100, 80), (whole.len() / 2, 40)] {
        let path = write("inputs-cut.pcapng", &whole[..whole.len() - cut]);
        for command in COMMANDS {
            let output = roce(&[command, path.to_str().unwrap()]);
            assert_eq!(output.status.code(), Some(2), "{command}");
            let text = stderr(&output);
            assert!(text.lines().count() == 1 && text.contains("cut short"), "{command}: {text}");
            assert!(!output.stdout.is_empty(), "{command}");
        }
        let lines = roce(&["dump", path.to_str().unwrap()]).stdout;
        let lines = String::from_utf8(lines).unwrap().lines().count();
        assert!((packets - 2..=packets + 2).contains(&lines), "{lines} of {packets}");
    }
}

#[test]
fn compressed_capture_reads_like_the_plain_one() {
    let plain = golden(LOSS);
    let path = write("inputs-loss.pcap.gz", &compressed("gzip", &plain));
    for command in COMMANDS {
        assert_eq!(output(command, &path), output(command, &plain), "{command}");
    }
    // A compressed stream that is cut off is read up to there.
    let bytes = fs::read(&path).unwrap();
    let path = write("inputs-cut.pcap.gz", &bytes[..bytes.len() / 2]);
    for command in COMMANDS {
        let output = roce(&[command, path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert_eq!(stderr(&output).lines().count(), 1, "{command}: {}", stderr(&output));
        assert!(!output.stdout.is_empty(), "{command}");
    }
}

#[test]
fn other_compression_is_one_line_that_names_it() {
    for (name, magic) in [
        ("lz4", &[0x04, 0x22, 0x4d, 0x18, 0x64, 0x40][..]),
        ("xz", &[0xfd, b'7', b'z', b'X', b'Z', 0]),
        ("bzip2", b"BZh91AY"),
    ] {
        let path = write(&format!("inputs.pcap.{name}"), magic);
        for command in COMMANDS {
            let text = roce::error(&[command, path.to_str().unwrap()]);
            let expected = format!(
                "roce: {}: compressed with {name}, expected gzip, zstd or no compression\n",
                path.display()
            );
            assert_eq!(text, expected, "{command}");
        }
    }
}

#[test]
fn capture_from_a_fifo_whose_writer_ends_is_read_up_to_there() {
    for command in COMMANDS {
        let mut child = roce::command(&[command, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let bytes = fs::read(golden(LOSS)).unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes[..bytes.len() / 2]).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(stderr(&output).contains("cut short"), "{command}: {}", stderr(&output));
        assert!(!output.stdout.is_empty(), "{command}");
    }
}

#[test]
fn captures_of_both_ends_are_analyzed_as_one() {
    let (client, server) = (golden(LOSS), other_end("inputs", LOSS, 8));
    let ends = ["-r", client.to_str().unwrap(), "-r", &server];
    let text = roce::lines(&[&["analyze"], &ends[..]].concat()).join("\n");
    for part in [
        "loss_send_middle.pcap: at 10.77.0.2",
        "inputs-other-end.pcapng: at 10.77.0.3",
        "clocks: the second is +5.000000 s from the first",
        "10.77.0.2 to 10.77.0.3: 64 arrived, 1 lost on the way",
        "inputs-other-end.pcapng: 81 packets in ",
        "flow 1: 10.77.0.2 qp 0x000058",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let object = |command: &str| roce::json(&[&[command, "--json"], &ends[..]].concat()).remove(0);
    for command in ["analyze", "stats"] {
        let object = object(command);
        assert_eq!(object["merged"]["paths"][0]["lost"], 1, "{command}");
        assert_eq!((&object["packets"], &object["roce_packets"]), (&81.into(), &81.into()));
    }
    // The client's capture has the lost packet too, so the figures are those of that capture.
    let alone = roce::json(&["analyze", "--json", client.to_str().unwrap()]).remove(0);
    let figures = |object: &Value| object["flows"][0]["retransmitted"].clone();
    assert_eq!(figures(&object("analyze")), figures(&alone));
    let text = roce::lines(&[&["stats"], &ends[..]].concat()).join("\n");
    assert!(text.contains("1 lost on the way") && text.contains("conversations"), "{text}");
}

#[test]
fn captures_that_are_no_two_ends_are_errors_of_each_command() {
    let file = golden("rxe/rc_send.pcap");
    let file = file.to_str().unwrap();
    for command in ["check", "analyze", "stats"] {
        for (args, message) in [
            (&["-r", file, "-r", file][..], "the captures are of the same end"),
            (&["-r", file], "1 captures are given, expected two"),
            (&["-r", file, "-r", "-"], "standard input is given, expected a file"),
        ] {
            let text = roce::error(&[&[command], args].concat());
            assert!(text.contains(message), "{command}: {text}");
        }
        assert!(!roce(&[command, "-r", file, file]).status.success(), "{command}");
    }
}
