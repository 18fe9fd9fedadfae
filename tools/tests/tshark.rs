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
    let fields = ["bth.opcode", "bth.destqp", "bth.psn", "bth.a", "deth.q_key", "deth.srcqp"];
    let fields = fields.map(|field| format!("infiniband.{field}"));
    let options: Vec<_> = fields.iter().flat_map(|field| ["-e", field]).collect();
    // It takes some payloads for RPC.
    let args = ["--disable-protocol", "rpcordma", "-r", file, "-T", "fields"];
    let theirs = run("tshark", &[&args[..], &options].concat());
    let theirs: Vec<_> = theirs.iter().map(|line| numbers(line)).collect();

    let ours = lines(&["dump", "--json", file]);
    let ours: Vec<_> = ours
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|packet| {
            assert_eq!(packet["icrc"], "good", "{packet}");
            let [opcode, qp, psn] = ["opcode", "qp", "psn"].map(|name| packet[name].as_u64());
            let [qkey, source] = ["qkey", "source_qp"].map(|name| packet["deth"][name].as_u64());
            [opcode, qp, psn, packet["ack_req"].as_bool().map(u64::from), qkey, source]
        })
        .collect();
    assert_eq!(theirs, ours);

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/icrc.py");
    assert_eq!(run("python3", &[script, file]), [ours.len().to_string()]);
    ours.len()
}

/// A line of six fields, decimal or hexadecimal; `None` where one is missing.
fn numbers(line: &str) -> [Option<u64>; 6] {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let mut fields = line.split('\t').map(number);
    std::array::from_fn(|_| fields.next().flatten())
}

/// Plays between two processes, and returns how many packets each has captured.
fn play(transport: &str, there: &[&str]) -> [usize; 2] {
    let name = format!("tshark-{transport}-{}", there.len());
    let files = ["listening", "begins"].map(|side| scratch(&format!("{name}-{side}.pcapng")));
    let [theirs, ours] = files.each_ref().map(|file| ["--pcap", file.to_str().unwrap()]);
    let game = ["pingpong", "--transport", transport, "-n", "100", "-c"];
    let listener = Listener::start(&[&game[..], there, &theirs].concat());
    let to = ["127.0.0.1", "-p", &listener.port];
    lines(&[&game[..], &to, &ours].concat());
    let (status, _, stderr) = listener.finish();
    assert_eq!(status, Some(0), "{stderr}");
    files.map(|file| assert_all_agree(&file))
}

/// Packets of a pingpong that each side sees, at least. A message is four, over UD one; RC adds an
/// acknowledgement each way.
const PINGPONGS: [(&str, usize); 3] = [("rc", 802), ("uc", 800), ("ud", 200)];

/// Whether a side has seen what it should: of UC and UD nothing else.
fn is_whole(transport: &str, least: usize, packets: usize) -> bool {
    packets == least || transport == "rc" && packets > least
}

#[test]
#[ignore = "needs tshark and python3: tools/ci.sh capture"]
fn a_pingpong_is_roce_in_every_packet_on_both_sides() {
    let _alone = alone();
    for (transport, least) in PINGPONGS {
        let packets = play(transport, &[]);
        assert!(packets.iter().all(|n| is_whole(transport, least, *n)), "{transport}: {packets:?}");
    }
}

#[test]
#[ignore = "needs tshark and python3: tools/ci.sh capture"]
fn so_is_what_is_sent_again_over_a_bad_path() {
    let _alone = alone();
    let (transport, least) = PINGPONGS[0];
    let packets = play(transport, &["--impair", "loss=0.02,seed=1"]);
    assert!(packets.iter().all(|packets| *packets > least), "{packets:?}");
}

#[test]
#[ignore = "needs tshark and python3: tools/ci.sh capture"]
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
#[ignore = "needs tshark, python3 and a network namespace: tools/ci.sh capture"]
fn a_pingpong_over_ipv6_is_roce_in_every_packet() {
    let _alone = alone();
    for (transport, least) in PINGPONGS {
        let packets = play_over_ipv6(transport);
        assert!(packets.iter().all(|n| is_whole(transport, least, *n)), "{transport}: {packets:?}");
    }
}

/// The same over IPv6. There is one ::1, and two processes need two addresses.
fn play_over_ipv6(transport: &str) -> [usize; 2] {
    let name = |name| scratch(&format!("{transport}-{name}")).to_str().unwrap().to_owned();
    let files = ["tshark-ipv6-begins.pcapng", "tshark-ipv6-listening.pcapng"].map(name);
    let port = name("tshark-ipv6.port");
    std::fs::write(&port, "").unwrap();
    let script = r#"
        set -e
        ip link set lo up
        ip address add fd00::1/128 dev lo nodad
        ip address add fd00::2/128 dev lo nodad
        game="pingpong --transport $5 -n 100 -c"
        "$1" $game --ip fd00::2 --pcap "$3" -p 0 --announce >"$4" &
        until [ -s "$4" ]; do kill -0 $!; sleep 0.01; done
        "$1" $game --ip fd00::1 --pcap "$2" -p "$(head -n 1 "$4")" ::1
        wait $!
    "#;
    let roce = env!("CARGO_BIN_EXE_roce");
    let shell = ["sh", "-c", script, "sh", roce, &files[0], &files[1], &port, transport];
    // Who is not root needs a user namespace around it.
    let is_root = run("id", &["-u"]) == ["0"];
    let namespace: &[_] =
        if is_root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    run("unshare", &[namespace, &shell[..]].concat());
    files.map(|file| assert_all_agree(Path::new(&file)))
}
