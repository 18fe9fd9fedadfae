//! Counters of other programs' devices, as a user reads them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::fs;
use std::path::{Path, PathBuf};

use roce::{alone, command, error, json, lines, scratch};
use serde_json::Value;

/// Returns an empty directory of this test.
fn directory(name: &str) -> PathBuf {
    let path = scratch(name);
    // An earlier run may have left it.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    path
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<_> =
        entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect();
    files.sort();
    files
}

const LOSSY: [&str; 7] =
    ["perf", "write-bw", "--no-ceiling", "-n", "200", "--impair", "loss=0.02,seed=3"];

/// Both sides of a test report the same losses, and write their counters to files.
#[test]
fn both_sides_print_their_counters() {
    let _alone = alone();
    let left = directory("left");
    let mut test = command(&[&LOSSY[..], &["--counters", "--json"]].concat());
    let output = test.env("SOFTROCE_COUNTERS", &left).output().unwrap();
    assert!(output.status.success(), "{}", roce::stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let counters: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let [here, there] = ["here", "there"].map(|side| &counters["counters"][side]);
    assert_eq!(
        (&here["writes_completed"], &there["rx_write_requests"]),
        (&200.into(), &200.into())
    );
    assert!(here["retransmitted"].as_u64() > Some(0), "{here}");
    assert!(there["out_of_sequence"].as_u64() >= here["sequence_naks"].as_u64(), "{there}");
    let of_files: Vec<_> = files(&left)
        .iter()
        .flat_map(|file| json(&["devinfo", "--json", "--counters", file]))
        .map(|file| file["counters"].as_object().unwrap().clone())
        .collect();
    // Each file has its device and one queue pair.
    assert_eq!(of_files.iter().map(serde_json::Map::len).collect::<Vec<_>>(), [2, 2]);
    for side in [here, there] {
        // The device may have sent a disconnect since.
        let sent = |values: &Value| {
            (
                values["tx_bytes"].clone(),
                values["rx_write_requests"].clone(),
                values["timeouts"].clone(),
            )
        };
        let left = of_files.iter().flat_map(|file| file.values());
        assert!(left.map(sent).any(|left| left == sent(side)), "{side} {of_files:?}");
    }
}

#[test]
fn text_has_counters_above_zero_with_their_meaning() {
    let _alone = alone();
    let text = lines(&[&LOSSY[..], &["--counters"]].concat());
    let at = text.iter().position(|line| line.starts_with("counter ")).unwrap();
    let headings: Vec<_> = text[at].split_whitespace().collect();
    assert_eq!(headings, ["counter", "here", "there"]);
    let row = |name: &str| text[at..].iter().find(|line| line.split(' ').next() == Some(name));
    assert!(row("retransmitted").unwrap().ends_with("  Request packets retransmitted."));
    assert_eq!(row("remote_access_errors"), None);
    let refused = error(&["perf", "ceiling", "--counters"]);
    assert_eq!(refused, "roce: --counters: raw UDP has no device\n");
}

#[test]
fn every_counter_is_explained_without_a_file() {
    let text = lines(&["devinfo", "--counters"]);
    let at = text.iter().position(|line| line == "timeouts").unwrap();
    assert_eq!(
        text[at..at + 3],
        [
            "timeouts",
            "\tExpirations of the ACK timer: no packet was acknowledged within the ACK timeout.",
            "\tmlx5: local_ack_timeout_err"
        ]
    );
    let all = &json(&["devinfo", "--counters", "--json"])[0]["counters"];
    let named: Vec<_> =
        all.as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    let unindented = text.iter().filter(|line| !line.starts_with('\t'));
    assert_eq!(named, unindented.map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn other_files_are_refused_with_the_line() {
    let path = directory("odd").join("odd.prom");
    fs::write(&path, "node_load1 0.5\n").unwrap();
    let odd = path.to_str().unwrap();
    let expected = format!(
        "roce: {odd}: line 1: expected softroce_NAME_total{{LABELS}} COUNT, found `node_load1 0.5`\n"
    );
    assert_eq!(error(&["devinfo", "--counters", odd]), expected);
    let missing = error(&["devinfo", "--counters", "/nowhere.prom"]);
    assert_eq!(missing, "roce: /nowhere.prom: No such file or directory (os error 2)\n");
}
