//! `roce perf` from the outside: two processes on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use roce::{Listener, alone, error, json};
use serde_json::Value;

const BANDWIDTH: [&str; 3] = ["write-bw", "send-bw", "read-bw"];
const LATENCY: [&str; 2] = ["send-lat", "write-lat"];

fn fields(row: &Value) -> Vec<&str> {
    row.as_object().unwrap().keys().map(String::as_str).collect()
}

/// By name, as the parser sorts them.
const FIELDS: [&str; 12] = [
    "fraction_of_ceiling",
    "gbit_per_s",
    "iterations",
    "latency_us",
    "msg_per_s",
    "mtu",
    "qps",
    "retransmits",
    "seconds",
    "size",
    "test",
    "transport",
];

fn assert_percentiles(latency: &Value) {
    assert_eq!(fields(latency), ["max", "min", "p50", "p99", "p999"]);
    let at = |name: &str| latency[name].as_f64().unwrap();
    let ascending = [at("min"), at("p50"), at("p99"), at("p999"), at("max")];
    assert!(ascending.is_sorted() && ascending[0] > 0.0, "{latency}");
}

#[test]
fn bandwidth_tests_give_a_row_with_every_field() {
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
fn latency_tests_give_percentiles_and_no_rate() {
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
fn all_sizes_are_a_row_each_on_the_same_connection() {
    let _alone = alone();
    for test in ["write-bw", "send-lat"] {
        let rows = json(&["perf", test, "-a", "-D", "0.002", "--no-ceiling", "--json"]);
        let sizes: Vec<_> = rows.iter().map(|row| row["size"].as_u64().unwrap()).collect();
        let expected: Vec<_> = (1..=23).map(|exponent| 1 << exponent).collect();
        assert_eq!(sizes, expected);
        assert_eq!(rows[0]["fraction_of_ceiling"], Value::Null);
    }
}

#[test]
fn depths_of_one_and_messages_of_nothing_work() {
    let _alone = alone();
    for test in BANDWIDTH.iter().chain(&LATENCY) {
        let common = ["perf", test, "-n", "50", "--no-ceiling", "--json", "-t", "1", "-r", "1"];
        for size in ["0", "1", "9000"] {
            let rows = json(&[&common[..], &["-s", size]].concat());
            assert_eq!(rows[0]["iterations"], 50, "{test} {size}");
        }
    }
}

#[test]
fn losses_are_made_good_and_counted() {
    let _alone = alone();
    let impair = "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.01,seed=1";
    let common = ["perf", "write-bw", "-n", "200", "--no-ceiling", "--json"];
    let rows = json(&[&common[..], &["--impair", impair]].concat());
    assert_eq!(rows[0]["iterations"], 200);
    assert!(rows[0]["retransmits"].as_u64().unwrap() > 0, "{rows:?}");
}

#[test]
fn a_small_receive_buffer_loses_nothing() {
    let _alone = alone();
    for test in BANDWIDTH {
        let common = ["perf", test, "-n", "500", "--no-ceiling", "--json"];
        let rows = json(&[&common[..], &["--rcvbuf", "212992"]].concat());
        assert_eq!(rows[0]["retransmits"], 0, "{test}");
    }
}

#[test]
fn sleeping_for_completions_works_where_there_are_any() {
    let _alone = alone();
    for test in ["write-bw", "send-bw", "read-bw", "send-lat"] {
        let rows = json(&["perf", test, "-e", "-n", "50", "-s", "1000", "--no-ceiling", "--json"]);
        assert_eq!(rows[0]["iterations"], 50, "{test}");
    }
}

#[test]
fn what_a_test_cannot_do_is_refused() {
    let cases: [(&[&str], &str); 4] = [
        (&["write-lat", "-e"], "--events: in write-lat there is no completion to sleep for"),
        (&["send-lat", "-q", "2"], "--qp: a latency test has one queue pair"),
        (&["send-bw", "--of", "send-lat"], "--of: only ceiling imitates another test"),
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
fn the_ceiling_is_a_row_too() {
    let _alone = alone();
    let rows = json(&["perf", "ceiling", "-D", "0.05", "-s", "4K", "-m", "1024", "--json"]);
    let [row] = rows.as_slice() else { panic!("one row expected: {rows:?}") };
    assert_eq!(fields(row), FIELDS);
    assert!(row["gbit_per_s"].as_f64().unwrap() > 0.0);
    let rows = json(&["perf", "ceiling", "--of", "send-lat", "-s", "64", "-D", "0.05", "--json"]);
    assert_percentiles(&rows[0]["latency_us"]);
}

#[test]
fn every_operation_has_a_ceiling_also_with_a_small_receive_buffer() {
    let _alone = alone();
    for of in BANDWIDTH.iter().chain(&LATENCY) {
        let common = ["perf", "ceiling", "--of", of, "-D", "0.02", "-s", "10000", "--json"];
        let rows = json(&[&common[..], &["--rcvbuf", "64K"]].concat());
        assert!(rows[0]["iterations"].as_u64().unwrap() > 0, "{of}: {rows:?}");
    }
}

#[test]
fn sides_that_differ_say_in_what() {
    let cases: [(&[&str], &[&str], &str); 4] = [
        (
            &["write-bw", "-m", "1024"],
            &["write-bw", "-m", "4096"],
            "the other side: MTU mismatch: this side was started with 1024, yours with 4096",
        ),
        (
            &["write-bw", "-s", "64"],
            &["write-bw", "-s", "65536"],
            "the other side: size mismatch: this side was started with 64, yours with 65536",
        ),
        (
            &["write-bw", "-q", "2"],
            &["write-bw", "-q", "3"],
            "the other side: queue pair mismatch: this side was started with 2, yours with 3",
        ),
        (
            &["send-bw"],
            &["read-bw"],
            "the other side was started for send-bw, this one for read-bw",
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
fn a_peer_that_never_answers_is_an_error_within_the_retry_budget() {
    let _alone = alone();
    // 8 attempts of 4 ms.
    let deaf = Listener::start(&["perf", "write-bw", "--listen", "--impair", "loss=1"]);
    let to = ["127.0.0.1", "-p", &deaf.port, "-u", "10", "--no-ceiling"];
    let text = error(&[&["perf", "write-bw"], &to[..]].concat());
    let expected = "RETRY_EXC_ERR: the other side does not acknowledge what is sent\n";
    assert!(text.starts_with("roce: queue pair 0x") && text.ends_with(expected), "{text}");
}

#[test]
fn an_active_side_that_leaves_ends_the_listening_one() {
    let listener = Listener::start(&["perf", "send-bw", "--listen"]);
    let stream = std::net::TcpStream::connect(format!("127.0.0.1:{}", listener.port)).unwrap();
    drop(stream);
    let (status, _, text) = listener.finish();
    assert_eq!(status, Some(2));
    assert!(text.starts_with("roce: "), "{text}");
}

#[test]
fn nobody_there_and_no_such_host_are_different_errors() {
    let text = error(&["perf", "ceiling", "127.0.0.1", "-p", "1"]);
    let expected = "roce: no roce perf listens at 127.0.0.1, TCP port 1: Connection refused";
    assert!(text.starts_with(expected), "{text}");
    let text = error(&["perf", "ceiling", "nobody.invalid"]);
    assert!(text.starts_with("roce: host nobody.invalid: "), "{text}");
}

#[test]
fn a_wrong_option_is_an_error_that_says_what_was_expected() {
    let text = error(&["perf", "ceiling", "-m", "1500"]);
    assert!(text.starts_with("roce: invalid value '1500' for '--mtu"), "{text}");
    assert!(text.contains("expected 256, 512, 1024, 2048 or 4096"), "{text}");
}
