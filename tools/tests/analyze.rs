//! `roce analyze` as a user runs it, on golden captures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use roce::{command, golden, roce, scratch, stderr};
use serde_json::Value;

/// Runs the command in the folder of the captures, so that it prints the same names everywhere.
fn analyze(args: &[&str], name: &str) -> Output {
    let mut command = command(&[&["analyze"], args, &[name]].concat());
    let output = command.current_dir(golden("")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
    output
}

fn text(args: &[&str], name: &str) -> String {
    String::from_utf8(analyze(args, name).stdout).unwrap()
}

fn json(name: &str) -> Value {
    serde_json::from_str(&text(&["--json"], name)).unwrap()
}

/// Captures of every kind, each with its text, and some with their JSON.
#[test]
fn golden_captures_have_their_golden_analyses() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/analyze");
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 14, "{files:?}");
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().replace('.', "/") + ".pcap";
        let found = match file.extension().unwrap().to_str().unwrap() {
            "json" => {
                let mut whole = json(&name);
                shorten(&mut whole);
                serde_json::to_string_pretty(&whole).unwrap() + "\n"
            }
            _ => text(&[], &name),
        };
        if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
            fs::write(&file, found).unwrap();
        } else {
            assert_eq!(found, fs::read_to_string(&file).unwrap(), "{name}");
        }
    }
}

/// Replaces a list of numbers by their count and sum.
fn shorten(value: &mut Value) {
    let numbers = value.as_array().and_then(|list| {
        let numbers: Option<Vec<_>> = list.iter().map(Value::as_f64).collect();
        numbers.filter(|numbers| !numbers.is_empty())
    });
    if let Some(numbers) = numbers {
        *value = format!("{} of {:.6}", numbers.len(), numbers.iter().sum::<f64>()).into();
    }
    match value {
        Value::Array(list) => list.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

#[test]
fn json_has_what_scripts_look_for() {
    let whole = json("rxe/rc_rnr.pcap");
    let flow = &whole["flows"][0];
    for name in [
        "a",
        "b",
        "transport",
        "mtu",
        "operations",
        "bytes",
        "goodput_gbit_per_s",
        "latency_us",
        "ack_rtt_us",
        "retransmitted",
        "naks",
        "rnr",
        "out_of_order",
        "duplicates",
        "cnps",
        "ecn_marked",
    ] {
        assert!(flow.get(name).is_some(), "{name}");
    }
    for name in ["total", "by_nak", "by_timeout", "by_rnr", "spurious"] {
        assert!(flow["retransmitted"][name].is_u64(), "{name}");
    }
    assert_eq!((&flow["rnr"], &flow["retransmitted"]["by_rnr"]), (&6.into(), &24.into()));
    assert_eq!(flow["diagnosis"][0]["what"], "receiver not ready");
    assert!(flow["latency_us"]["p99_9"].as_f64().unwrap() > 100_000.0);
}

#[test]
fn filters_choose_flows_and_time() {
    let two = text(&[], "rxe/rc_srq.pcap");
    assert!(two.contains("\nflow 1: ") && two.contains("\nflow 2: "), "{two}");
    let brief = text(&["--flows", "0"], "rxe/rc_srq.pcap");
    assert!(!brief.contains("\nflow 1: ") && brief.contains("2 more flows"), "{brief}");
    let none = text(&["--addr", "10.77.0.9"], "rxe/rc_srq.pcap");
    assert!(none.contains(", 0 flows"), "{none}");
    let late = text(&["--from", "0.1", "--to", "0.7"], "rxe/rc_retry_exceeded.pcap");
    assert!(late.contains("2 requests, 0 answers"), "{late}");
}

#[test]
fn standard_input_is_read() {
    let mut child = command(&["analyze", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = fs::read(golden("rxe/rc_read.pcap")).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["file"], &found["roce_packets"]), (&"-".into(), &21.into()));
}

#[test]
fn unreadable_end_is_an_error_after_the_analysis() {
    let path = scratch("analyze_cut.pcap");
    let bytes = fs::read(golden("rxe/rc_read.pcap")).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let output = roce(&["analyze", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cut short in the record after packet 20"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("20 of RoCEv2, 1 flow"));

    fs::write(&path, "hello").unwrap();
    let output = roce(&["analyze", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let expected =
        format!("roce: {}: not a capture file (magic 0x68656c6c): expected ", path.display());
    assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
}

#[test]
fn capture_without_roce_is_reported() {
    // One ARP frame: pcap header, record header, Ethernet.
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    bytes.extend([0; 8]);
    bytes.extend(65_535_u32.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend([14, 0, 0, 0, 14, 0, 0, 0]);
    bytes.extend([0; 12]);
    bytes.extend([0x08, 0x06]);
    let path = scratch("analyze_arp.pcap");
    fs::write(&path, bytes).unwrap();
    let output = roce(&["analyze", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let expected = format!("roce: {}: no RoCEv2 packet among 1 frames\n", path.display());
    assert_eq!(stderr(&output), expected);
}

/// Returns the page of a capture, and its data.
fn page(name: &str) -> (String, Value) {
    let path = scratch(&name.replace('/', "_")).with_extension("html");
    analyze(&["--html", path.to_str().unwrap()], name);
    let page = fs::read_to_string(path).unwrap();
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let data = serde_json::from_str(data).unwrap();
    (page, data)
}

#[test]
fn page_needs_no_other_file_and_no_network() {
    let (page, _) = page("rxe/cm_rping.pcap");
    assert!(page.contains("default-src 'none'"));
    for part in
        ["http:", "https:", "//cdn", " src=", "<link", "@import", "url(", "fetch(", "import "]
    {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn page_has_every_point_of_a_short_capture() {
    let (_, data) = page("rxe/loss_send_middle.pcap");
    let traces = &data["flows"][0]["streams"][0]["series"]["traces"];
    let count = |name: &str| traces[name]["count"].as_u64().unwrap();
    assert_eq!((count("sent"), count("again_nak"), count("again_timeout")), (30, 20, 15));
    assert_eq!((count("nak"), count("wait_timeout"), count("latency")), (10, 5, 6));
    assert_eq!(traces["sent"]["bin_ns"], Value::Null);
    // Four integers each, of which most take a byte.
    let bytes = traces["sent"]["points"].as_str().unwrap().len() * 3 / 4;
    assert!((4 * 30..8 * 30).contains(&bytes), "{bytes}");
    // Without the page, points are left out.
    assert_eq!(json("rxe/loss_send_middle.pcap")["flows"][0]["streams"][0].get("series"), None);
}

/// node, if it is installed, parses the scripts.
#[test]
fn scripts_of_the_page_parse() {
    let (page, _) = page("rxe/rc_rnr.pcap");
    let (_, rest) = page.split_once("\n<script>\n").unwrap();
    let (script, _) = rest.split_once("</script>").unwrap();
    let mut depth = 0_i32;
    for c in script.chars() {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        assert!(depth >= 0, "a bracket is closed that was not opened");
    }
    assert_eq!(depth, 0, "brackets are left open");
    let path = scratch("page.js");
    fs::write(&path, script).unwrap();
    match std::process::Command::new("node").arg("--check").arg(&path).output() {
        Ok(checked) => assert!(checked.status.success(), "{}", stderr(&checked)),
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::NotFound),
    }
}

#[test]
fn page_does_not_overwrite_the_capture() {
    let path = scratch("analyze_itself.pcap");
    let bytes = fs::read(golden("rxe/rc_read.pcap")).unwrap();
    fs::write(&path, &bytes).unwrap();
    let output = roce(&["analyze", path.to_str().unwrap(), "--html", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected another file than the one that is read"));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
