//! `roce perf` as a user runs it: two processes on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;

use nix::poll::{PollFd, PollFlags, poll};
use roce::{Listener, alone, command, error, fresh_ip, json, lines, scratch};
use serde_json::Value;

const BANDWIDTH: [&str; 3] = ["write-bw", "send-bw", "read-bw"];
const LATENCY: [&str; 3] = ["send-lat", "write-lat", "read-lat"];

/// Every test over every transport service that has it.
const EXISTING: [(&str, &str); 22] = [
    ("write-bw", "rc"),
    ("read-bw", "rc"),
    ("send-bw", "rc"),
    ("atomic-bw", "rc"),
    ("write-lat", "rc"),
    ("read-lat", "rc"),
    ("send-lat", "rc"),
    ("atomic-lat", "rc"),
    ("write-bw", "uc"),
    ("send-bw", "uc"),
    ("write-lat", "uc"),
    ("send-lat", "uc"),
    ("send-bw", "ud"),
    ("send-lat", "ud"),
    ("write-bw", "xrc"),
    ("read-bw", "xrc"),
    ("send-bw", "xrc"),
    ("atomic-bw", "xrc"),
    ("write-lat", "xrc"),
    ("read-lat", "xrc"),
    ("send-lat", "xrc"),
    ("atomic-lat", "xrc"),
];

fn fields(row: &Value) -> Vec<&str> {
    row.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Sorted by name, as the parser sorts them.
const FIELDS: [&str; 16] = [
    "bidirectional",
    "fraction_of_ceiling",
    "gbit_per_s",
    "iterations",
    "latency_us",
    "msg_per_s",
    "mtu",
    "qps",
    "received",
    "retransmits",
    "seconds",
    "sent",
    "size",
    "test",
    "transport",
    "version",
];

fn assert_percentiles(latency: &Value) {
    assert_eq!(fields(latency), ["max", "min", "p50", "p99", "p999"]);
    let at = |name: &str| latency[name].as_f64().unwrap();
    let ascending = [at("min"), at("p50"), at("p99"), at("p999"), at("max")];
    assert!(ascending.is_sorted() && ascending[0] > 0.0, "{latency}");
}

/// Checks the address, and the partition, in which the other side is a full member.
#[test]
fn chosen_gid_is_measured() {
    let _alone = alone();
    let path = scratch("gid.pcapng");
    let file = path.to_str().unwrap();
    let [first, second] = [1, 2].map(fresh_ip);
    let ips = format!("--ip={first},{second}");
    let common = ["perf", "--json", "-n", "20", "-x", "1", &ips, "--pkey=0x0123", "--pcap", file];
    for test in [["write-bw", "-c", "rc"], ["send-lat", "-c", "ud"]] {
        let rows = json(&[&common[..], &test].concat());
        assert_eq!(rows.len(), 1);
        let packets = json(&["dump", "--json", file]);
        assert!(!packets.is_empty());
        for packet in packets {
            let (from, to) = (&packet["source"], &packet["destination"]);
            let ours = if from == &Value::from(&*second) { 0x0123 } else { 0x8123 };
            assert!([from, to].contains(&&Value::from(&*second)), "{from} to {to}");
            assert_eq!(packet["pkey"], ours);
        }
    }
    let text = error(&["perf", "ceiling", "-x", "4", &ips]);
    let table = format!("has 0 ({first}), 1 ({second}), 2 ({first}), 3 ({second})\n");
    assert!(
        text.starts_with("roce: GID index 4 is out of range: ") && text.contains(&table),
        "{text}"
    );
}

#[test]
fn second_side_ends_with_the_process_that_started_it() {
    let options = ["perf", "write-bw", "--listen", "--port=0", "--announce", "--second-core"];
    let mut side = command(&options);
    side.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut side = side.spawn().unwrap();
    let mut stdout = BufReader::new(side.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(side.stdin.take());
    let mut end = [PollFd::new(stdout.get_ref().as_fd(), PollFlags::POLLIN)];
    let has_ended = poll(&mut end, 20_000_u16).unwrap() > 0;
    side.kill().unwrap();
    assert!(has_ended, "it waits for a connection");
    assert_eq!(side.wait().unwrap().code(), Some(2));
}

#[test]
fn bandwidth_rows_have_every_field() {
    let _alone = alone();
    for test in BANDWIDTH {
        let rows =
            json(&["perf", test, "-n", "300", "-s", "10000", "-m", "1024", "-q", "2", "--json"]);
        let [row] = rows.as_slice() else { panic!("one row expected: {rows:?}") };
        assert_eq!(fields(row), FIELDS);
        let said = [&row["test"], &row["transport"], &row["size"], &row["mtu"], &row["qps"]];
        let expected: [Value; 5] = [test.into(), "rc".into(), 10000.into(), 1024.into(), 2.into()];
        assert_eq!(said, expected.each_ref());
        assert_eq!(row["iterations"], 300, "{test}");
        for rate in ["gbit_per_s", "msg_per_s", "fraction_of_ceiling", "seconds"] {
            assert!(row[rate].as_f64().unwrap() > 0.0, "{test}: {row}");
        }
        assert_eq!(row["latency_us"], Value::Null);
    }
}

#[test]
fn latency_rows_have_percentiles_and_no_rate() {
    let _alone = alone();
    for test in LATENCY {
        let rows = json(&["perf", test, "-n", "300", "-s", "64", "--json"]);
        let [row] = rows.as_slice() else { panic!("one row expected: {rows:?}") };
        assert_eq!(fields(row), FIELDS);
        assert_eq!((&row["iterations"], &row["gbit_per_s"]), (&300.into(), &Value::Null), "{row}");
        assert_percentiles(&row["latency_us"]);
        assert!(row["fraction_of_ceiling"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn all_sizes_have_a_row_each() {
    let _alone = alone();
    for test in ["write-bw", "send-lat", "read-lat"] {
        let rows = json(&["perf", test, "-a", "-D", "0.002", "--no-ceiling", "--json"]);
        let sizes: Vec<_> = rows.iter().map(|row| row["size"].as_u64().unwrap()).collect();
        let expected: Vec<_> = (1..=23).map(|exponent| 1 << exponent).collect();
        assert_eq!(sizes, expected);
        assert_eq!(rows[0]["fraction_of_ceiling"], Value::Null);
    }
}

#[test]
fn depth_of_one_works() {
    let _alone = alone();
    for test in BANDWIDTH.iter().chain(&LATENCY) {
        let common = ["perf", test, "-n", "50", "--no-ceiling", "--json", "-t", "1", "-r", "1"];
        for size in ["1", "9000"] {
            let rows = json(&[&common[..], &["-s", size]].concat());
            assert_eq!(rows[0]["iterations"], 50, "{test} {size}");
        }
    }
}

#[test]
fn losses_are_retransmitted_and_counted() {
    let _alone = alone();
    let impair = "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=1";
    let common = ["perf", "write-bw", "-n", "200", "--no-ceiling", "--json"];
    let rows = json(&[&common[..], &["--impair", impair]].concat());
    assert_eq!(rows[0]["iterations"], 200);
    assert!(rows[0]["retransmits"].as_u64().unwrap() > 0, "{rows:?}");
}

/// An ACK timeout of 4.3 s: longer than a busy machine keeps a side from running.
const LONG_ACK_TIMEOUT: [&str; 2] = ["--qp-timeout", "20"];

#[test]
fn small_receive_buffer_loses_nothing() {
    let _alone = alone();
    for test in BANDWIDTH {
        let common = ["perf", test, "-n", "500", "--no-ceiling", "--json"];
        let rows = json(&[&common[..], &["--rcvbuf", "212992"], &LONG_ACK_TIMEOUT].concat());
        assert_eq!(rows[0]["retransmits"], 0, "{test}");
    }
}

/// The number of messages fits any receive buffer and queue, so none is lost however the sides are scheduled.
#[test]
fn every_test_runs_over_every_transport_that_has_it() {
    let _alone = alone();
    for (test, transport) in EXISTING {
        let name = transport.to_uppercase();
        let common = ["perf", test, "-c", &name, "-n", "100", "--no-ceiling", "--json"];
        let size = if test.starts_with("atomic") { "8" } else { "200" };
        let rows = json(&[&common[..], &["-s", size], &LONG_ACK_TIMEOUT].concat());
        let [row] = rows.as_slice() else { panic!("one row expected: {rows:?}") };
        let said = [&row["test"], &row["transport"], &row["iterations"]];
        let expected: [Value; 3] = [test.into(), transport.into(), 100.into()];
        assert_eq!(said, expected.each_ref());
        let counts = (&row["sent"], &row["received"], &row["retransmits"]);
        match (transport, test.ends_with("bw")) {
            ("rc" | "xrc", _) => {
                assert_eq!(counts, (&Value::Null, &Value::Null, &0.into()), "{test}")
            }
            (_, true) => assert_eq!(counts, (&100.into(), &100.into(), &Value::Null), "{row}"),
            (_, false) => assert_eq!(counts, (&Value::Null, &Value::Null, &Value::Null), "{row}"),
        }
    }
}

#[test]
fn error_names_the_tests_of_a_transport() {
    for (test, transport, has) in [
        ("read-bw", "uc", "write-bw, send-bw, write-lat and send-lat"),
        ("atomic-lat", "UC", "write-bw, send-bw, write-lat and send-lat"),
        ("write-bw", "ud", "send-bw and send-lat"),
        ("write-lat", "UD", "send-bw and send-lat"),
        ("read-lat", "ud", "send-bw and send-lat"),
    ] {
        let name = transport.to_lowercase();
        let expected = format!("roce: no {test} over {name}: {name} carries {has}\n");
        assert_eq!(error(&["perf", test, "-c", transport]), expected);
        assert_eq!(error(&["perf", test, "-c", transport, "--listen"]), expected);
    }
}

#[test]
fn unreliable_transports_count_losses() {
    let _alone = alone();
    for (test, transport) in [("send-bw", "ud"), ("send-bw", "uc"), ("write-bw", "uc")] {
        let common = ["perf", test, "-c", transport, "-n", "400", "-s", "64", "--no-ceiling"];
        let args = [&common[..], &["--impair", "loss=0.2,seed=1"]].concat();
        let rows = json(&[&args[..], &["--json"]].concat());
        assert_eq!((&rows[0]["sent"], &rows[0]["iterations"]), (&400.into(), &400.into()));
        let received = rows[0]["received"].as_u64().unwrap();
        assert!((100..390).contains(&received), "{test} {transport}: {rows:?}");
        let lines = lines(&args);
        assert!(lines[0].ends_with("received       lost"), "{lines:?}");
        assert!(lines[1].ends_with("%)"), "{lines:?}");
    }
}

#[test]
fn lost_message_ends_an_unreliable_latency_test() {
    let impair = ["--impair", "loss=1", "-n", "10", "--no-ceiling"];
    let text = error(&[&["perf", "send-lat", "-c", "uc"], &impair[..]].concat());
    let (seconds, reason) = text
        .strip_prefix("roce: no message from the other side for ")
        .and_then(|rest| rest.split_once(" s: "))
        .unwrap_or_else(|| panic!("{text}"));
    // A busy machine notices it later.
    assert!(seconds.parse::<u64>().unwrap() >= 10, "{text}");
    assert_eq!(reason, "one was lost, and the service does not retransmit\n");
}

#[test]
fn datagram_is_not_longer_than_the_mtu() {
    let _alone = alone();
    let text = error(&["perf", "send-bw", "-c", "ud", "-s", "2K", "-m", "1024"]);
    let over = "over ud a message has the MTU at most, and that is 1024 here";
    assert_eq!(text, format!("roce: --size 2048: {over}\n"));
    // The other side may ask for a smaller one.
    let small = Listener::start(&["perf", "send-lat", "-m", "1024", "--listen"]);
    let to = ["127.0.0.1", "-p", &small.port];
    let text = error(&[&["perf", "send-lat", "-c", "ud", "-s", "2K"], &to[..]].concat());
    assert_eq!(text, format!("roce: --size 2048: {over}\n"));
    let common = ["perf", "send-bw", "-c", "ud", "-a", "-m", "1024", "-n", "50", "--no-ceiling"];
    let rows = json(&[&common[..], &["--json"]].concat());
    let sizes: Vec<_> = rows.iter().map(|row| row["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
}

#[test]
fn both_directions_are_summed() {
    let _alone = alone();
    for (test, transport) in EXISTING.iter().filter(|(test, _)| test.ends_with("bw")) {
        let common = ["perf", test, "-c", transport, "-b", "-n", "60", "-q", "3", "--json"];
        let size = if *test == "atomic-bw" { "8" } else { "100" };
        let rows = json(&[&common[..], &["-s", size, "--no-ceiling"]].concat());
        let said = [&rows[0]["bidirectional"], &rows[0]["iterations"], &rows[0]["qps"]];
        let expected: [Value; 3] = [true.into(), 120.into(), 3.into()];
        assert_eq!(said, expected.each_ref(), "{test} {transport}");
        if matches!(*transport, "uc" | "ud") {
            assert_eq!(rows[0]["received"], 120, "{test} {transport}");
        }
    }
    let common = ["perf", "send-bw", "-b", "-s", "4K", "--json"];
    let rows = json(&[&common[..], &["-D", "0.05"]].concat());
    assert!(rows[0]["fraction_of_ceiling"].as_f64().unwrap() > 0.0, "{rows:?}");
}

#[test]
fn queue_pairs_may_share_a_receive_queue() {
    let _alone = alone();
    for transport in ["rc", "uc", "ud", "xrc"] {
        for test in ["send-bw", "send-lat"] {
            let qps = if test == "send-bw" { "4" } else { "1" };
            let common = ["perf", test, "-c", transport, "--use-srq", "-q", qps, "-n", "200"];
            let rest = ["-s", "100", "-r", "64", "-t", "8", "--no-ceiling", "--json"];
            let rows = json(&[&common[..], &rest].concat());
            assert_eq!(rows[0]["iterations"], 200, "{test} {transport}");
        }
    }
    let error = error(&["perf", "write-bw", "--use-srq"]);
    assert_eq!(error, "roce: --use-srq: write-bw takes no receive requests\n");
}

#[test]
fn atomics_have_eight_bytes() {
    let _alone = alone();
    for kind in ["FETCH_AND_ADD", "cmp_and_swap"] {
        for test in ["atomic-bw", "atomic-lat"] {
            let common = ["perf", test, "-A", kind, "-n", "100", "-a", "--json"];
            let rows = json(&[&common[..], &["--no-ceiling"]].concat());
            assert_eq!(rows.len(), 1, "{test} {kind}");
            assert_eq!((&rows[0]["size"], &rows[0]["iterations"]), (&8.into(), &100.into()));
        }
    }
}

#[test]
fn events_work_in_tests_with_completions() {
    let _alone = alone();
    for (test, transport) in EXISTING.iter().filter(|(test, _)| *test != "write-lat") {
        let common = ["perf", test, "-c", transport, "-e", "-n", "50", "--no-ceiling", "--json"];
        let size = if test.starts_with("atomic") { "8" } else { "1000" };
        let rows = json(&[&common[..], &["-s", size]].concat());
        assert_eq!(rows[0]["iterations"], 50, "{test} {transport}");
    }
    let common = ["perf", "send-bw", "-b", "-e", "-n", "50", "--no-ceiling", "--json"];
    assert_eq!(json(&common)[0]["iterations"], 100);
}

#[test]
fn messages_may_be_inline() {
    let _alone = alone();
    for (test, transport) in [("write-bw", "rc"), ("send-bw", "ud"), ("write-lat", "uc")] {
        let common = ["perf", test, "-c", transport, "-I", "1024", "-s", "700", "-n", "50"];
        let rows = json(&[&common[..], &["--no-ceiling", "--json"]].concat());
        assert_eq!(rows[0]["iterations"], 50, "{test} {transport}");
    }
    let text = error(&["perf", "send-lat", "-I", "2000"]);
    assert_eq!(text, "roce: --inline-size 2000: the device takes 1024 bytes at most\n");
}

/// Returns the texts of a figure, and the number of its dots.
fn picture(path: &Path) -> (Vec<String>, usize) {
    let svg = std::fs::read_to_string(path).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let named = |name: &'static str| {
        document.descendants().filter(move |node| node.tag_name().name() == name)
    };
    let texts = named("text").filter_map(|node| Some(node.text()?.trim().to_owned()));
    (texts.collect(), named("circle").count())
}

#[test]
fn plots_show_the_rows() {
    let _alone = alone();
    let cases: [(&[&str], &[&str], usize); 4] = [
        // One dot for each row, and one in the legend.
        (
            &["send-bw", "-c", "ud", "-a", "-D", "0.002"],
            &["roce perf send-bw", "UD, MTU 4096, 1 queue pair, softroce 0.1.0", "raw UDP", "4K"],
            13,
        ),
        (
            &["write-lat", "-a", "-D", "0.002"],
            &["roce perf write-lat", "raw UDP, median", "median", "99 %", "half round trip", "8M"],
            2 * 24,
        ),
        (
            &["atomic-lat", "-n", "100"],
            &["roce perf atomic-lat of 8 bytes", "verbs", "raw UDP", "round trip", "99 %"],
            0,
        ),
        (&["ceiling", "-a", "-D", "0.002"], &["roce perf ceiling", "raw UDP", "UDP, MTU 4096"], 24),
    ];
    for (args, expected, dots) in cases {
        let path = scratch(&format!("{}.svg", args[0]));
        let name = path.to_str().unwrap();
        lines(&[&["perf"], args, &["--plot", name]].concat());
        let (texts, found) = picture(&path);
        for text in expected {
            assert!(texts.iter().any(|found| found.starts_with(text)), "{text}: {texts:?}");
        }
        if texts.iter().any(|text| text == "received") {
            // On a busy machine messages may be lost, and then there is a curve of the sent rate too.
            assert_eq!(found, 2 * dots, "{args:?}");
        } else {
            assert_eq!(found, dots, "{args:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn impossible_plot_is_refused_before_the_measurement() {
    let text = error(&["perf", "send-lat", "--plot", "/nonexistent/a.svg"]);
    let expected = "roce: --plot /nonexistent/a.svg: No such file or directory (os error 2)\n";
    assert_eq!(text, expected);
    let text = error(&["perf", "send-lat", "--plot", "a.png"]);
    assert!(text.contains("expected a name that ends in .svg: a plot is SVG"), "{text}");
    for (test, why) in
        [("send-bw", "one size is one point: add --all"), ("atomic-bw", "atomics have only one")]
    {
        let text = error(&["perf", test, "--plot", "a.svg"]);
        assert!(text.starts_with("roce: --plot: ") && text.trim_end().ends_with(why), "{text}");
    }
}

#[test]
fn failed_test_leaves_plots_unchanged() {
    let (new, old) = (scratch("new.svg"), scratch("old.svg"));
    std::fs::write(&old, "an older picture").unwrap();
    for path in [&new, &old] {
        let plot = path.to_str().unwrap();
        error(&["perf", "send-lat", "127.0.0.1", "-p", "1", "--plot", plot]);
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "an older picture");
    std::fs::remove_file(&old).unwrap();
}

#[test]
fn options_that_a_test_does_not_have_are_refused() {
    let cases: [(&[&str], &str); 12] = [
        (&["send-lat", "-l", "2"], "--post_list 2: a latency test posts one message at a time"),
        (
            &["send-bw", "-l", "64", "-t", "8"],
            "--post_list 64: expected at most --tx-depth, which is 8",
        ),
        (
            &["send-bw", "-l", "64", "-Q", "12"],
            "--cq-mod 12: expected a divisor of --post_list, which is 64",
        ),
        (&["write-lat", "-e"], "--events: in write-lat there is no completion to sleep for"),
        (&["send-lat", "-q", "2"], "--qp: a latency test has one queue pair"),
        (&["read-lat", "-b"], "--bidirectional: a latency test has one message at a time"),
        (&["atomic-bw", "-s", "64"], "--size 64: an atomic has 8 bytes"),
        (&["send-bw", "-A", "FETCH_AND_ADD"], "--atomic-type: send-bw has no atomics"),
        (&["read-bw", "-I", "64"], "--inline-size: read-bw sends no data that could be inline"),
        (&["send-bw", "--of", "send-lat"], "--of: only ceiling imitates another test"),
        (&["ceiling", "--of", "ceiling"], "--of ceiling: expected one of the other tests"),
        (
            &["ceiling", "--pcap", "x.pcapng"],
            "--pcap and --impair are for a device; the ceiling is of UDP sockets without one",
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(error(&[&["perf"], args].concat()), format!("roce: {expected}\n"));
    }
}

#[test]
fn ceiling_prints_a_row() {
    let _alone = alone();
    let rows = json(&["perf", "ceiling", "-D", "0.05", "-s", "4K", "-m", "1024", "--json"]);
    let [row] = rows.as_slice() else { panic!("one row expected: {rows:?}") };
    assert_eq!(fields(row), FIELDS);
    assert!(row["gbit_per_s"].as_f64().unwrap() > 0.0);
    let rows = json(&["perf", "ceiling", "--of", "send-lat", "-s", "64", "-D", "0.05", "--json"]);
    assert_percentiles(&rows[0]["latency_us"]);
}

#[test]
fn every_operation_has_a_ceiling_with_a_small_receive_buffer() {
    let _alone = alone();
    for (of, transport) in EXISTING {
        let size = if of.starts_with("atomic") { "8" } else { "3000" };
        let common = ["perf", "ceiling", "--of", of, "-c", transport, "-s", size, "-m", "4096"];
        let ways: &[&[&str]] = if of.ends_with("bw") { &[&[], &["-b"]] } else { &[&[]] };
        for way in ways {
            let rest = ["-D", "0.02", "--rcvbuf", "64K", "--json"];
            let rows = json(&[&common[..], way, &rest].concat());
            assert!(rows[0]["iterations"].as_u64().unwrap() > 0, "{of}: {rows:?}");
            assert_eq!(rows[0]["bidirectional"], way.len() == 1);
        }
    }
}

#[test]
fn different_options_of_the_sides_are_named() {
    let cases: [(&[&str], &[&str], &str); 6] = [
        (
            &["send-bw", "-c", "UC"],
            &["send-bw"],
            "the other side: connection mismatch: uc there, rc here; start both sides with the same value",
        ),
        (
            &["send-bw", "-q", "2"],
            &["send-bw"],
            "the other side: queue pair mismatch: 2 there, 1 here; start both sides with the same value",
        ),
        (
            &["write-bw", "-m", "1024"],
            &["write-bw", "-m", "4096"],
            "the other side: MTU mismatch: 1024 there, 4096 here; start both sides with the same value",
        ),
        (
            &["write-bw", "-s", "64"],
            &["write-bw", "-s", "65536"],
            "the other side: size mismatch: 64 there, 65536 here; start both sides with the same value",
        ),
        (
            &["write-bw", "-q", "2"],
            &["write-bw", "-q", "3"],
            "the other side: queue pair mismatch: 2 there, 3 here; start both sides with the same value",
        ),
        (
            &["send-bw"],
            &["read-bw"],
            "the other side runs send-bw, expected read-bw: start both sides with the same test",
        ),
    ];
    for (there, here, expected) in cases {
        let listener = Listener::start(&[&["perf"], there, &["--listen"]].concat());
        let to = ["127.0.0.1", "-p", &listener.port];
        let text = error(&[&["perf"], here, &to].concat());
        assert_eq!(text, format!("roce: {expected}\n"));
    }
}

#[test]
fn another_version_and_another_test_are_different_errors() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let other = std::thread::Builder::new().spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        stream.write_all(b"{\"roce\":\"9.9.9\",\"test\":\"send-bw\",\"agreement\":99}\n").unwrap();
    });
    let text = error(&["perf", "send-bw", "127.0.0.1", "-p", &port]);
    other.unwrap().join().unwrap();
    let expected = "roce: the other side is roce 9.9.9 with version 99 of the control protocol, expected 5: install";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn peer_without_acknowledgements_exceeds_the_retry_count() {
    let _alone = alone();
    // 8 attempts of 4 ms.
    let deaf = Listener::start(&["perf", "write-bw", "--listen", "--impair", "loss=1"]);
    let to = ["127.0.0.1", "-p", &deaf.port, "-u", "10", "--no-ceiling"];
    let text = error(&[&["perf", "write-bw"], &to[..]].concat());
    let expected = "RETRY_EXC_ERR: the other side does not acknowledge\n";
    assert!(text.starts_with("roce: queue pair 0x") && text.ends_with(expected), "{text}");
}

#[test]
fn one_device_serves_two_clients_at_once() {
    let _alone = alone();
    let ip = fresh_ip(61);
    let two = ["--clients", "2", "--shards", "2", "--ip", &ip];
    let listener = Listener::start(&[&["perf", "write-bw", "--listen"], &two[..]].concat());
    let to = ["127.0.0.1", "-p", &listener.port, "-n", "300", "--no-ceiling", "--counters"];
    std::thread::scope(|scope| {
        let clients = [(); 2]
            .map(|()| scope.spawn(|| json(&[&["perf", "write-bw", "--json"], &to[..]].concat())));
        for rows in clients.map(|client| client.join().unwrap()) {
            assert_eq!(rows[0]["iterations"], 300);
        }
    });
    assert_eq!(listener.finish().0, Some(0));
}

#[test]
fn closed_control_connection_ends_the_listening_side() {
    let listener = Listener::start(&["perf", "send-bw", "--listen"]);
    let stream = std::net::TcpStream::connect(format!("127.0.0.1:{}", listener.port)).unwrap();
    drop(stream);
    let (status, _, text) = listener.finish();
    assert_eq!(status, Some(2));
    assert!(text.starts_with("roce: "), "{text}");
}

#[test]
fn missing_listener_and_unknown_host_are_different_errors() {
    let text = error(&["perf", "ceiling", "127.0.0.1", "-p", "1"]);
    let expected = "roce: no roce perf listens at 127.0.0.1, TCP port 1: Connection refused";
    assert!(text.starts_with(expected), "{text}");
    let text = error(&["perf", "ceiling", "nobody.invalid"]);
    assert!(text.starts_with("roce: host nobody.invalid: "), "{text}");
}

#[test]
fn option_error_says_what_was_expected() {
    let text = error(&["perf", "ceiling", "-m", "1500"]);
    assert!(text.starts_with("roce: invalid value '1500' for '--mtu"), "{text}");
    assert!(text.contains("expected 256, 512, 1024, 2048 or 4096"), "{text}");
}

/// Single requests, and lists that divide neither the depth nor the number of messages.
#[test]
fn post_lists_of_any_length_complete() {
    let _alone = alone();
    for test in BANDWIDTH {
        for (list, depth) in [("1", "128"), ("7", "20"), ("32", "32")] {
            let common = ["perf", test, "-n", "100", "-s", "100", "--no-ceiling", "--json"];
            let rows = json(&[&common[..], &["-l", list, "-t", depth, "-q", "3"]].concat());
            assert_eq!(rows[0]["iterations"], 100, "{test} {list}");
        }
    }
    let text = error(&["perf", "send-bw", "-s", "0"]);
    assert!(text.contains("expected 1 to 2147483647 bytes"), "{text}");
}
