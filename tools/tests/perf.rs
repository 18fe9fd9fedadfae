//! `roce perf` from the outside: two processes on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

fn roce(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roce")).args(args).output().unwrap()
}

/// The rows of a run that must succeed.
fn rows(args: &[&str]) -> Vec<Value> {
    let output = roce(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_ceiling_of_a_bandwidth_test_is_a_row_with_every_field() {
    let rows = rows(&["perf", "ceiling", "-D", "0.05", "-s", "4K", "-m", "1024", "--json"]);
    let [row] = rows.as_slice() else { panic!("one row expected: {rows:?}") };
    let fields: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
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
    assert_eq!(fields, expected);
    assert_eq!(
        (&row["test"], &row["size"], &row["mtu"]),
        (&"ceiling".into(), &4096.into(), &1024.into())
    );
    assert!(row["gbit_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(row["latency_us"], Value::Null);
}

#[test]
fn the_ceiling_of_a_latency_test_has_percentiles_in_order() {
    let rows = rows(&["perf", "ceiling", "--of", "send-lat", "-s", "64", "-D", "0.05", "--json"]);
    let latency = &rows[0]["latency_us"];
    let at = |name: &str| latency[name].as_f64().unwrap();
    let ascending = [at("min"), at("p50"), at("p99"), at("p999"), at("max")];
    assert!(ascending.is_sorted() && ascending[0] > 0.0, "{latency}");
    assert_eq!(rows[0]["gbit_per_s"], Value::Null);
}

#[test]
fn every_operation_has_a_ceiling_also_with_a_small_receive_buffer() {
    for of in ["write-bw", "send-bw", "read-bw", "write-lat"] {
        let common = ["perf", "ceiling", "--of", of, "-D", "0.02", "-s", "10000", "--json"];
        let rows = rows(&[&common[..], &["--rcvbuf", "64K"]].concat());
        assert!(rows[0]["iterations"].as_u64().unwrap() > 0, "{of}: {rows:?}");
    }
}

#[test]
fn nobody_listening_is_an_error_that_says_where() {
    let output = roce(&["perf", "ceiling", "127.0.0.1", "-p", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "roce: no roce perf listens at 127.0.0.1, TCP port 1: Connection refused";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
}

#[test]
fn a_wrong_option_is_an_error_that_says_what_was_expected() {
    let output = roce(&["perf", "ceiling", "-m", "1500"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.starts_with("roce: invalid value '1500' for '--mtu"), "{text}");
    assert!(text.contains("expected 256, 512, 1024, 2048 or 4096"), "{text}");
}
