//! What others see in our captures: tshark, and an ICRC checker that shares no code with us.
//!
//! `tools/ci.sh capture` runs these.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::path::Path;
use std::process::Command;

use roce::{Listener, alone, lines, scratch};

/// Runs a program that is not ours; it must succeed. Returns its output by lines.
fn run(program: &str, args: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What three readers see in every packet of a capture must be the same. Returns how many packets
/// there are.
fn assert_all_agree(file: &Path) -> usize {
    let file = file.to_str().unwrap();
    let fields =
        ["infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "udp.dstport"];
    let options: Vec<_> = fields.iter().flat_map(|field| ["-e", field]).collect();
    let args = [&["-r", file, "-T", "fields", "-E", "occurrence=f"], options.as_slice()].concat();
    let theirs: Vec<_> = run("tshark", &args).iter().map(|line| numbers(line)).collect();

    let ours = lines(&["dump", "--json", file]);
    let ours: Vec<_> = ours
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|p| ["opcode", "qp", "psn"].map(|name| p[name].as_u64()).to_vec())
        .map(|packet| [packet, vec![Some(4791)]].concat())
        .collect();
    assert_eq!(theirs, ours);

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/icrc.py");
    assert_eq!(run("python3", &[script, file]), [ours.len().to_string()]);
    ours.len()
}

/// A line of fields, decimal or hexadecimal; `None` where one is missing.
fn numbers(line: &str) -> Vec<Option<u64>> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    line.split('\t').map(number).collect()
}

#[test]
#[ignore = "needs tshark and python3"]
fn a_pingpong_is_roce_in_every_packet() {
    let _alone = alone();
    let file = scratch("tshark-pingpong.pcapng");
    let listener = Listener::start(&["pingpong", "-n", "100"]);
    let to = ["127.0.0.1", "-p", &listener.port, "--pcap", file.to_str().unwrap()];
    lines(&[&["pingpong", "-n", "100"], &to[..]].concat());
    // Four packets a message, and at least one acknowledgement each way.
    assert!(assert_all_agree(&file) >= 802);
}

#[test]
#[ignore = "needs tshark and python3"]
fn so_is_every_test_of_perf() {
    let _alone = alone();
    for test in ["write-bw", "send-bw", "read-bw", "send-lat", "write-lat"] {
        let file = scratch(&format!("tshark-{test}.pcapng"));
        let common = ["perf", test, "-n", "100", "-s", "10001", "--no-ceiling", "--pcap"];
        lines(&[&common[..], &[file.to_str().unwrap()]].concat());
        assert!(assert_all_agree(&file) >= 300, "{test}");
    }
}

#[test]
#[ignore = "needs tshark, python3, and a network namespace"]
fn a_pingpong_over_ipv6_is_roce_in_every_packet() {
    let _alone = alone();
    let file = scratch("tshark-ipv6.pcapng");
    let port = scratch("tshark-ipv6.port");
    std::fs::write(&port, "").unwrap();
    // There is one ::1; two processes need two addresses.
    let script = r#"
        set -e
        ip link set lo up
        ip address add fd00::1/128 dev lo nodad
        ip address add fd00::2/128 dev lo nodad
        "$1" pingpong -n 100 -c --ip fd00::2 -p 0 --announce >"$3" &
        until [ -s "$3" ]; do sleep 0.01; done
        "$1" pingpong -n 100 -c --ip fd00::1 -p "$(head -n 1 "$3")" --pcap "$2" ::1
        wait $!
    "#;
    let roce = env!("CARGO_BIN_EXE_roce");
    let files = [file.to_str().unwrap(), port.to_str().unwrap()];
    let shell = ["sh", "-c", script, "sh", roce, files[0], files[1]];
    // Who is not root needs a user namespace around it.
    let is_root = run("id", &["-u"]) == ["0"];
    let namespace: &[_] =
        if is_root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    run("unshare", &[namespace, &shell[..]].concat());
    assert!(assert_all_agree(&file) >= 802);
}
