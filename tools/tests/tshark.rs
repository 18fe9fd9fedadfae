//! Our captures as other programs read them: tshark, and an ICRC checker that shares no code with us.
//!
//! `tools/ci.sh capture` runs these.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use roce::{Listener, alone, golden, json, lines, scratch};
use serde_json::Value;
use softroce_pcap::display_filter::Field;

/// Runs another program, which must succeed; returns its lines.
fn run(program: &str, args: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Asserts that three readers see the same in every packet of a capture; returns the number of packets.
fn assert_all_agree(file: &Path) -> usize {
    let file = file.to_str().unwrap();
    let fields = ["bth.opcode", "bth.destqp", "bth.psn", "bth.a", "deth.q_key", "deth.srcqp"];
    let fields = fields.map(|field| format!("infiniband.{field}"));
    let options: Vec<_> = fields.iter().flat_map(|field| ["-e", field]).collect();
    // tshark takes some payloads for RPC.
    let args = ["--disable-protocol", "rpcordma", "-r", file, "-T", "fields"];
    let theirs = run("tshark", &[&args[..], &options].concat());
    let theirs: Vec<_> = theirs.iter().map(|line| numbers(line)).collect();

    let ours = lines(&["dump", "--json", file]);
    let ours: Vec<_> = ours
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
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

/// Parses a line of six fields, decimal or hexadecimal; `None` for a missing one.
fn numbers(line: &str) -> [Option<u64>; 6] {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let mut fields = line.split('\t').map(number);
    std::array::from_fn(|_| fields.next().flatten())
}

/// A field of tshark's, and its place in our object.
struct Agreed {
    theirs: &'static str,
    ours: &'static str,
    /// Minimum number of packets of the golden captures in which both have the field.
    seen: usize,
}

const fn agreed(theirs: &'static str, ours: &'static str, seen: usize) -> Agreed {
    Agreed { theirs, ours, seen }
}

/// The RoCE fields that tshark decodes. It shows address and key of an atomic as those of a RETH.
const AGREED: [Agreed; 36] = [
    agreed("bth.opcode", "/opcode", 2300),
    agreed("bth.se", "/solicited", 2300),
    agreed("bth.m", "/mig_req", 2300),
    agreed("bth.padcnt", "/pad", 2300),
    agreed("bth.p_key", "/pkey", 2300),
    agreed("bth.destqp", "/qp", 2300),
    agreed("bth.a", "/ack_req", 2300),
    agreed("bth.psn", "/psn", 2300),
    agreed("aeth.syndrome", "/aeth/syndrome", 770),
    agreed("aeth.msn", "/aeth/msn", 770),
    agreed("reth.va", "/reth/va", 290),
    agreed("reth.r_key", "/reth/rkey", 290),
    agreed("reth.dmalen", "/reth/dma_len", 290),
    agreed("reth.va", "/atomic/va", 60),
    agreed("reth.r_key", "/atomic/rkey", 60),
    agreed("atomiceth.swapdt", "/atomic/swap", 60),
    agreed("atomiceth.cmpdt", "/atomic/compare", 60),
    agreed("atomicacketh.origremdt", "/atomic_ack", 50),
    agreed("deth.q_key", "/deth/qkey", 100),
    agreed("deth.srcqp", "/deth/source_qp", 100),
    agreed("immdt", "/imm", 30),
    agreed("ieth", "/invalidate", 2),
    agreed("invariant.crc", "/icrc_value", 2200),
    agreed("mad.transactionid", "/cm/transaction_id", 40),
    agreed("cm.req", "/cm/local_id", 10),
    agreed("cm.req.serviceid", "/cm/service_id", 10),
    agreed("cm.req.localcaguid", "/cm/ca_guid", 10),
    agreed("cm.req.localqpn", "/cm/qpn", 10),
    agreed("cm.req.startpsn", "/cm/starting_psn", 10),
    agreed("cm.req.ip_cm.sport", "/cm/source_port", 10),
    agreed("cm.rep", "/cm/local_id", 5),
    agreed("cm.rep.localqpn", "/cm/qpn", 5),
    agreed("cm.rep.startpsn", "/cm/starting_psn", 5),
    agreed("cm.rtu.remotecommid", "/cm/remote_id", 5),
    agreed("cm.rej.reason", "/cm/reason", 1),
    agreed("cm.dreq.localcommid", "/cm/local_id", 5),
];

/// Operations of which tshark 4.0 knows only the base header.
const UNKNOWN_TO_TSHARK: [u64; 3] = [0x1c, 0x1d, 0x81];

/// Parses a number: decimal, with 0x, or bytes.
fn value(text: &str, is_bytes: bool) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if is_bytes => u64::from_str_radix(text, 16).ok(),
        None => text.parse().ok(),
    }
}

fn ours(packet: &Value, field: &str) -> Option<u64> {
    let value = packet.pointer(field)?;
    value.as_u64().or(value.as_bool().map(u64::from))
}

/// The golden captures in one file, which the tests share.
static GOLDEN_CAPTURES: LazyLock<String> = LazyLock::new(join_golden_captures);

/// Joins the golden captures in one file, except bursts, which tshark takes for single packets.
fn join_golden_captures() -> String {
    let dirs = ["rxe", "hardware"].map(|dir| std::fs::read_dir(golden(dir)).unwrap());
    let mut files: Vec<_> = dirs
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let all = scratch("tshark-all.pcapng").to_str().unwrap().to_owned();
    let options = ["-a", "-F", "pcapng", "-w", &all];
    run(
        "mergecap",
        &options.into_iter().chain(files.iter().map(String::as_str)).collect::<Vec<_>>(),
    );
    all
}

#[test]
#[ignore = "needs tshark and mergecap: tools/ci.sh capture"]
fn fields_of_golden_packets_equal_those_of_tshark() {
    let file = GOLDEN_CAPTURES.as_str();
    // A field has one column, however often it is requested.
    let columns: Vec<_> = BTreeSet::from(AGREED.map(|field| field.theirs)).into_iter().collect();
    let names: Vec<_> = columns.iter().map(|field| format!("infiniband.{field}")).collect();
    let options: Vec<_> = names.iter().flat_map(|name| ["-e", name]).collect();
    let args = ["--disable-protocol", "rpcordma", "-r", file, "-T", "fields"];
    // A field of a message may occur in several messages of a packet.
    let args = [&args[..], &["-E", "occurrence=f", "-e", "frame.number"], &options].concat();
    let theirs = run("tshark", &args);
    let opcode = 1 + columns.iter().position(|name| *name == "bth.opcode").unwrap();
    let theirs = theirs.iter().map(|line| line.split('\t').collect::<Vec<_>>());
    let mut theirs = theirs.filter(|row| !row[opcode].is_empty());
    let mut seen = [0; AGREED.len()];
    let mut beyond = Vec::new();
    for packet in json(&["dump", "--json", file]) {
        let number = packet["number"].to_string();
        let row = theirs.next().unwrap();
        assert_eq!(row[0], number, "tshark sees a packet of RoCE more or less than we do");
        let opcode = packet["opcode"].as_u64().unwrap();
        let is_known = !UNKNOWN_TO_TSHARK.contains(&opcode);
        if !is_known {
            beyond.push(packet["operation"].as_str().unwrap().to_owned());
        }
        for (i, field) in AGREED.iter().enumerate() {
            let is_bytes = matches!(field.theirs, "immdt" | "ieth");
            let column = 1 + columns.iter().position(|name| *name == field.theirs).unwrap();
            let (theirs, ours) = (value(row[column], is_bytes), ours(&packet, field.ours));
            // A field that a message does not have belongs to another one. After a payload of another protocol,
            // tshark shows no further fields.
            let forgets = is_bytes || field.ours == "/icrc_value" || field.ours.starts_with("/cm");
            let of_atomic = field.theirs.starts_with("reth") && ours.is_none();
            match (theirs, ours) {
                (Some(_), None) if of_atomic => {}
                (None, Some(_)) if forgets || !is_known => {}
                _ => assert_eq!(theirs, ours, "{} of {packet}", field.theirs),
            }
            seen[i] += usize::from(theirs.is_some() && ours.is_some());
        }
    }
    assert_eq!(theirs.next(), None);
    let fields = AGREED.iter().zip(seen);
    let rare: Vec<_> = fields
        .filter(|(field, seen)| *seen < field.seen)
        .map(|(field, seen)| (field.theirs, field.ours, seen))
        .collect();
    assert!(rare.is_empty(), "seen less often than expected: {rare:?}");
    beyond.sort();
    let expected = [("ATOMIC_WRITE", 4), ("CNP", 1), ("FLUSH", 3)];
    assert_eq!(beyond, expected.map(|(name, n)| [name].repeat(n)).concat());
}

#[test]
#[ignore = "needs tshark: tools/ci.sh capture"]
fn tshark_shows_comments_of_dump() {
    let file = scratch("tshark-comments.pcapng");
    let file = file.to_str().unwrap();
    let cnp = golden("hardware/cx4lx_scapy_cnp.pcap");
    assert!(lines(&["dump", "--write", file, cnp.to_str().unwrap()]).is_empty());
    let comments = run("tshark", &["-r", file, "-T", "fields", "-e", "frame.comment"]);
    let [comment] = &comments[..] else { panic!("{comments:?}") };
    assert!(comment.starts_with("CNP ") && comment.ends_with("becn  icrc good"), "{comment}");
}

/// Runs a pingpong between two processes; returns how many packets each has captured.
fn play(transport: &str, there: &[&str]) -> [usize; 2] {
    let name = format!("tshark-{transport}-{}", there.len());
    let files = ["listening", "begins"].map(|side| scratch(&format!("{name}-{side}.pcapng")));
    let [theirs, ours] = files.each_ref().map(|file| ["--pcap", file.to_str().unwrap()]);
    let game = ["pingpong", "--transport", transport, "-n", "100", "--chk"];
    let listener = Listener::start(&[&game[..], there, &theirs].concat());
    let to = ["127.0.0.1", "-p", &listener.port];
    lines(&[&game[..], &to, &ours].concat());
    let (status, _, stderr) = listener.finish();
    assert_eq!(status, Some(0), "{stderr}");
    files.map(|file| assert_all_agree(&file))
}

/// Minimum number of packets of a pingpong on each side. A message has four packets, over UD one; RC adds an
/// acknowledgement in each direction.
const PINGPONGS: [(&str, usize); 3] = [("rc", 802), ("uc", 800), ("ud", 200)];

/// Returns whether a side has captured all packets; UC and UD have no others.
fn is_whole(transport: &str, least: usize, packets: usize) -> bool {
    packets == least || transport == "rc" && packets > least
}

#[test]
#[ignore = "needs tshark and python3: tools/ci.sh capture"]
fn other_programs_decode_every_packet_of_a_pingpong() {
    let _alone = alone();
    for (transport, least) in PINGPONGS {
        let packets = play(transport, &[]);
        assert!(packets.iter().all(|n| is_whole(transport, least, *n)), "{transport}: {packets:?}");
    }
}

#[test]
#[ignore = "needs tshark and python3: tools/ci.sh capture"]
fn other_programs_decode_retransmissions() {
    let _alone = alone();
    let (transport, least) = PINGPONGS[0];
    let packets = play(transport, &["--impair", "loss=0.02,seed=1"]);
    assert!(packets.iter().all(|packets| *packets > least), "{packets:?}");
}

#[test]
#[ignore = "needs tshark and python3: tools/ci.sh capture"]
fn other_programs_decode_every_test_of_perf() {
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

/// Runs a pingpong over IPv6. There is one ::1, and two processes need two addresses.
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
        game="pingpong --transport $5 -n 100 --chk"
        "$1" $game --ip fd00::2 --pcap "$3" -p 0 --announce >"$4" &
        until [ -s "$4" ]; do kill -0 $!; sleep 0.01; done
        "$1" $game --ip fd00::1 --pcap "$2" -p "$(head -n 1 "$4")" ::1
        wait $!
    "#;
    let roce = env!("CARGO_BIN_EXE_roce");
    let shell = ["sh", "-c", script, "sh", roce, &files[0], &files[1], &port, transport];
    // An ordinary user needs a user namespace around it.
    let is_root = run("id", &["-u"]) == ["0"];
    let namespace: &[_] =
        if is_root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    run("unshare", &[namespace, &shell[..]].concat());
    files.map(|file| assert_all_agree(Path::new(&file)))
}

#[test]
#[ignore = "needs tshark: tools/ci.sh capture"]
fn tshark_filters_findings_by_the_identifiers_of_rules() {
    let file = scratch("tshark-findings.pcapng");
    let file = file.to_str().unwrap();
    let capture = golden("rxe/loss_send_middle.pcap");
    for command in ["check", "analyze"] {
        lines(&[command, "-w", file, capture.to_str().unwrap()]);
        let (filter, expected) = match command {
            "check" => ("frame.comment contains \"RSP-02\"", "12 17 27 32 42 47 57 62 72 77"),
            _ => ("frame.comment contains \"FLOW-1\"", "1"),
        };
        let found =
            run("tshark", &["-r", file, "-Y", filter, "-T", "fields", "-e", "frame.number"]);
        assert_eq!(found.join(" "), expected);
        assert_eq!(run("tshark", &["-r", file]).len(), 81);
    }
}

#[test]
#[ignore = "needs tshark: tools/ci.sh capture"]
fn comment_of_a_retransmission_says_what_was_lost_and_how_long_that_took() {
    let file = scratch("tshark-loss.pcapng");
    let file = file.to_str().unwrap();
    lines(&["check", "-w", file, golden("rxe/loss_send_middle.pcap").to_str().unwrap()]);
    let args = ["-r", file, "-Y", "frame.number == 13", "-T", "fields", "-e", "frame.comment"];
    let comments = run("tshark", &args);
    let expected = "lost: SEND_MIDDLE psn=1118487 len=1024, behind the point of capture after packet 8; noticed by \
                    10.77.0.3 with the NAK in packet 12 after 343µs; retransmitted here 636µs after the loss";
    assert!(comments[0].starts_with("REQ-18 ") && comments[0].ends_with(expected), "{comments:?}");
}

/// Filters that our display filters and tshark's must agree about.
const FILTERS: [&str; 30] = [
    "infiniband.bth.destqp == 0x11 && infiniband.aeth.syndrome.opcode == 3",
    "infiniband.bth.destqp == 17 || infiniband.bth.destqp == 0x000058",
    "infiniband.aeth.syndrome.opcode == 3",
    "infiniband.aeth.syndrome.error_code == 0",
    "infiniband.aeth.syndrome.timer > 0",
    "infiniband.aeth.msn >= 3 && infiniband.aeth.msn < 10",
    "infiniband.bth.opcode in {0..2, 0x11}",
    "infiniband.bth.opcode & 4",
    "infiniband.bth.psn & 0x1 == 1",
    "infiniband.bth.a == 1",
    "infiniband.bth.se == True",
    "infiniband.bth.m",
    "infiniband.bth.padcnt != 0",
    "infiniband.reth.dmalen > 4096",
    "infiniband.reth && !(infiniband.reth.dmalen > 4096)",
    "infiniband.deth.srcqp == 1",
    "infiniband.atomicacketh",
    "ip.src == 10.77.0.2 and not infiniband.aeth",
    "ip.addr == 10.77.0.0/31",
    "ip.addr != 10.77.0.2",
    "ipv6.dst == fd77::3",
    "udp.srcport >= 60000",
    "frame.len > 1000 && frame.number in {1..500}",
    "frame.number == 1 || frame.number == 2 && infiniband.aeth || ip.ttl < 64",
    "infiniband.mad",
    "infiniband.mad.attributeid in {0x10, 0x13} && infiniband.mad.transactionid",
    "infiniband.cm.req.serviceid.dport == 7174 || infiniband.cm.rej.reason == 8",
    "infiniband.cm.req.prim_localgid_ipv4 == 10.77.0.2",
    "infiniband.cm.req.localqpn == infiniband.cm.req.localqpn && infiniband.cm.req.rnrretrcount > 6",
    "infiniband.cm.dreq.localcommid || infiniband.cm.rep.startpsn & 1",
];

#[test]
#[ignore = "needs tshark and mergecap: tools/ci.sh capture"]
fn display_filters_select_the_packets_that_tshark_selects() {
    let file = GOLDEN_CAPTURES.as_str();
    let mut selected = 0;
    for filter in FILTERS {
        // FLUSH, ATOMIC WRITE and CNP, of which tshark 4.0 knows only the base header.
        let filter = format!("({filter}) && !(infiniband.bth.opcode in {{0x1c, 0x1d, 0x81}})");
        let theirs = format!("{filter} && infiniband.bth");
        let common = ["-r", file, "-T", "fields", "-e", "frame.number"];
        let theirs = run(
            "tshark",
            &[&["--disable-protocol", "rpcordma", "-Y", &theirs], &common[..]].concat(),
        );
        let ours = lines(&["dump", "-Y", &filter, "-T", "fields", "-e", "frame.number", file]);
        assert_eq!(ours, theirs, "{filter}");
        selected += ours.len();
    }
    assert!(selected > 3000, "{selected}");
}

/// Every field of the connection manager in every message of the golden captures.
#[test]
#[ignore = "needs tshark and mergecap: tools/ci.sh capture"]
fn fields_of_the_connection_manager_equal_those_of_tshark() {
    let file = GOLDEN_CAPTURES.as_str();
    let names: Vec<_> = Field::ALL.iter().map(Field::name).collect();
    let is_cm =
        |name: &&&str| name.starts_with("infiniband.cm") || name.starts_with("infiniband.mad.");
    let names: Vec<_> = names.iter().filter(is_cm).copied().collect();
    assert!(names.len() > 80, "{}", names.len());
    let options: Vec<_> = names.iter().flat_map(|name| ["-e", name]).collect();
    let common = ["-Y", "infiniband.mad", "-T", "fields"];
    let theirs =
        run("tshark", &[&["-r", file, "-E", "occurrence=f"], &common[..], &options].concat());
    let ours = lines(&[&["dump"], &common[..], &options, &[file]].concat());
    assert!(ours.len() >= 30, "{}", ours.len());
    assert_eq!(ours.len(), theirs.len());
    let mut seen = BTreeSet::new();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        for (name, (ours, theirs)) in names.iter().zip(ours.split('\t').zip(theirs.split('\t'))) {
            assert_eq!(ours, theirs, "{name}");
            if !ours.is_empty() {
                seen.insert(*name);
            }
        }
    }
    // The golden captures have no connection over IPv6.
    let unseen: Vec<_> = names.iter().filter(|name| !seen.contains(*name)).collect();
    let of_ipv6 = ["prim_localgid", "prim_remotegid", "ip_cm.sip6", "ip_cm.dip6"];
    assert_eq!(
        unseen,
        of_ipv6.map(|name| format!("infiniband.cm.req.{name}")).iter().collect::<Vec<_>>()
    );
}

/// Runs tshark with the post-dissector; returns the values of fields, a line for each packet.
fn with_lua(file: &Path, fields: &[&str]) -> Vec<String> {
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/wireshark/roce.lua");
    let options: Vec<_> = fields.iter().flat_map(|field| ["-e", field]).collect();
    let args =
        ["-X", script, "--disable-protocol", "rpcordma", "-2", "-o", "roce.check_icrc:true", "-r"];
    run("tshark", &[&args[..], &[file.to_str().unwrap(), "-T", "fields"], &options].concat())
}

#[test]
#[ignore = "needs tshark with Lua: tools/ci.sh capture"]
fn post_dissector_joins_requests_responses_and_retransmissions() {
    let fields = [
        "frame.number",
        "roce.conversation",
        "roce.response_in",
        "roce.response_to",
        "roce.latency",
        "roce.retransmission_of",
        "roce.message",
        "roce.message.length",
        "roce.outstanding",
        "roce.nak",
        "roce.icrc.status",
    ];
    let rows = with_lua(&golden("rxe/loss_send_middle.pcap"), &fields);
    let ends = "10.77.0.2 qp 0x000058 <> 10.77.0.3 qp 0x000058";
    let expected = [
        (1, "6||||1||1024||good"),
        (5, "6||||1|5000|5000||good"),
        (6, "|5|0.000593||||0||good"),
        (8, "17||||2||2048||good"),
        (12, "|8|0.000343||||3976|PSN sequence error|good"),
        (13, "|||8|2||3976||good"),
        (17, "|14|0.000208||||2952|PSN sequence error|good"),
    ];
    for (frame, row) in expected {
        let expected = format!("{frame}|{ends}|{row}").replace('|', "\t");
        assert_eq!(rows[frame - 1], expected);
    }
}

#[test]
#[ignore = "needs tshark with Lua: tools/ci.sh capture"]
fn post_dissector_and_checker_have_the_same_verdicts_on_icrcs() {
    let file = GOLDEN_CAPTURES.as_str();
    let theirs = with_lua(Path::new(&file), &["frame.number", "roce.icrc.status"]);
    let ours = json(&["dump", "--json", file]);
    assert!(ours.len() > 2300);
    for packet in ours {
        let number = usize::try_from(packet["number"].as_u64().unwrap()).unwrap();
        let verdict = match packet["icrc"].as_str().unwrap() {
            // The ICRC of a FLUSH, as kernel rxe computes it.
            "rxe" => "bad",
            verdict => verdict,
        };
        assert_eq!(theirs[number - 1], format!("{number}\t{verdict}"));
    }
}

#[test]
#[ignore = "needs tshark with Lua: tools/ci.sh capture"]
fn post_dissector_joins_messages_of_connection_managers() {
    let names = [
        "message",
        "transaction",
        "conversation",
        "response_to",
        "latency",
        "retransmission_of",
        "reason",
    ];
    let names = names.map(|name| format!("roce.cm.{name}"));
    let fields: Vec<_> =
        ["frame.number"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let expect = |name, expected: &[(usize, &str)]| {
        let rows = with_lua(&golden(name), &fields);
        for (frame, row) in expected {
            assert_eq!(rows[frame - 1], format!("{frame}|{row}").replace('|', "\t"), "{name}");
        }
    };
    expect(
        "rxe/cm_xserver.pcap",
        &[
            (1, "REQ|0x0000000297bab12b|1||||"),
            (2, "REP|0x0000000297bab12b|1|1|0.011283||"),
            (3, "RTU|0x0000000297bab12b|1|2|0.001988||"),
            (4, "||||||"),
            // Both sides disconnect.
            (6, "DREQ|0x00000002bfe9788b|1||||"),
            (7, "DREQ|0x0000000297bab12b|1||||"),
            (8, "DREP|0x0000000297bab12b|1|7|0.002706||"),
        ],
    );
    expect(
        "rxe/cm_rej_nolistener.pcap",
        &[(2, "REJ|0x0000000297bab129|1|1|0.003505||invalid service ID")],
    );
    expect("rxe/cm_udaddy.pcap", &[(2, "SIDR_REP|0x0000000297bab128|1|1|0.007946||")]);
}

#[test]
#[ignore = "needs tshark with Lua: tools/ci.sh capture"]
fn post_dissector_shows_credits_of_acks_that_count_them() {
    let hardware = golden("hardware/cx_liteeth_vlan_cm_send_ack.pcap");
    assert_eq!(with_lua(&hardware, &["roce.credits"]), ["", "", "", "0", "0"]);
    // Kernel rxe counts none.
    let rxe = with_lua(&golden("rxe/rc_send.pcap"), &["roce.credits"]);
    assert!(rxe.iter().all(String::is_empty), "{rxe:?}");
}

/// Runs tshark with the profile and the post-dissector; returns its lines.
fn with_profile(name: &str, args: &[&str]) -> Vec<String> {
    let folder = scratch(&format!("wireshark-{name}"));
    let profile = Path::new(&folder).join("profiles/roce");
    std::fs::create_dir_all(&profile).unwrap();
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("wireshark/profile");
    for file in std::fs::read_dir(files).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), profile.join(file.file_name())).unwrap();
    }
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/wireshark/roce.lua");
    let output = Command::new("tshark")
        .env("WIRESHARK_CONFIG_DIR", &folder)
        .args(["-C", "roce", "-X", script, "-2"])
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    assert!(!stderr.contains("olor filter") && !stderr.contains("reference"), "{stderr}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs tshark with Lua: tools/ci.sh capture"]
fn profile_colours_packets_and_has_columns() {
    let file = golden("rxe/loss_send_middle.pcap");
    let file = file.to_str().unwrap();
    let fields = ["-T", "fields", "-e", "frame.coloring_rule.name"];
    let rules = with_profile("colours", &[&["--color", "-r", file][..], &fields].concat());
    let names = ["RoCE", "RoCE response", "RoCE NAK", "RoCE retransmission"];
    for (frame, name) in [1, 6, 12, 13].into_iter().zip(names) {
        assert_eq!(rules[frame - 1], name, "frame {frame}");
    }
    let lines = with_profile("columns", &["-r", file]);
    let words: Vec<_> = lines[4].split_whitespace().collect();
    // Stream, PSN, message, length and outstanding bytes stand before the text.
    let columns = ["0", "1118485", "1", "5000", "5000"];
    assert!(words.windows(5).any(|words| words == columns), "{words:?}");
}

#[test]
#[ignore = "needs tshark with Lua: tools/ci.sh capture"]
fn filter_buttons_and_graphs_of_the_profile_are_valid() {
    let file = golden("rxe/loss_send_middle.pcap");
    let file = file.to_str().unwrap();
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("wireshark/profile").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let mut selected = Vec::new();
    for (at, button) in
        read("dfilter_buttons").lines().filter(|of| !of.starts_with('#')).enumerate()
    {
        let cells: Vec<_> = button.split("\",\"").collect();
        let lines = with_profile(&format!("button-{at}"), &["-r", file, "-Y", cells[2]]);
        selected.push((cells[1].to_owned(), lines.len()));
    }
    let of = |name: &str| selected.iter().find(|(of, _)| of == name).unwrap().1;
    assert_eq!((selected.len(), of("CM"), of("CNP")), (8, 0, 0));
    assert!(of("NAK") > 5 && of("Retransmitted") > 5, "{selected:?}");
    for (at, graph) in read("io_graphs").lines().filter(|of| !of.starts_with('#')).enumerate() {
        let cells: Vec<_> = graph.trim_matches('"').split("\",\"").collect();
        assert_eq!(cells.len(), 9, "{graph}");
        let filter = format!("io,stat,0,{}", cells[2]);
        with_profile(&format!("graph-{at}"), &["-q", "-r", file, "-z", &filter]);
    }
}

#[test]
#[ignore = "needs tshark: tools/ci.sh capture"]
fn mistakes_of_tshark_and_their_remedies_are_those_of_the_guide() {
    const ERRORS: &str = "_ws.expert.severity == 8388608 || _ws.malformed";
    let selected = |name: &str, options: &[&str], filter: &str| {
        let file = golden(name);
        let args = [&["-r", file.to_str().unwrap(), "-Y", filter], options].concat();
        run("tshark", &args).len()
    };
    let no_rpc = ["--disable-protocol", "rpcordma"];
    let no_checksum = ["-o", "udp.ignore_ipv6_zero_checksum:TRUE"];
    let rpc = "rxe/rc_send_ipv6.pcap";
    assert!(
        selected(rpc, &no_checksum, ERRORS)
            > selected(rpc, &[no_rpc, no_checksum].concat(), ERRORS)
    );
    assert_eq!(selected("rxe/rc_send.pcap", &no_rpc, ERRORS), 1);
    let ipv6 = "rxe/uc_send_ipv6.pcap";
    assert_eq!(selected(ipv6, &no_rpc, ERRORS), 13);
    assert_eq!(selected(ipv6, &[no_rpc, no_checksum].concat(), ERRORS), 1);
    for (name, opcode, count) in [
        ("softroce/xrc_pingpong.pcap", "infiniband.bth.opcode >= 0xa0", 13),
        ("rxe/k612_flush_global.pcap", "infiniband.bth.opcode == 0x1c", 2),
        ("rxe/k612_awrite.pcap", "infiniband.bth.opcode == 0x1d", 3),
        ("hardware/cx4lx_scapy_cnp.pcap", "infiniband.bth.opcode == 0x81", 1),
    ] {
        let file = golden(name);
        let lines = run("tshark", &["-r", file.to_str().unwrap(), "-Y", opcode]);
        let unknown = lines.iter().filter(|line| line.contains("Unknown OpCode")).count();
        assert_eq!((lines.len(), unknown), (count, count), "{name}");
        let with_reth = format!("{opcode} && infiniband.reth");
        assert_eq!(selected(name, &no_rpc, &with_reth), 0, "{name}");
    }
    assert_eq!(selected("rxe/rc_atomic.pcap", &[], "infiniband.reth.va"), 4);
    // One packet of each datagram.
    assert_eq!(selected("softroce/lo_bursts.pcap", &no_rpc, "infiniband.bth.psn"), 9);
}

/// Returns a program with a home of its own.
fn at_home(home: &Path, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env("HOME", home).env_remove("XDG_CONFIG_HOME");
    command
}

#[test]
#[ignore = "needs tshark: tools/ci.sh capture"]
fn tshark_lists_and_captures_devices_of_running_programs() {
    let _alone = alone();
    let home = scratch("tshark-home");
    let roce = env!("CARGO_BIN_EXE_roce");
    assert!(at_home(&home, roce, &["extcap", "--install"]).status().unwrap().success());
    let ip = roce::fresh_ip(12);
    let options = ["--via", "shm", "-n", "100", "-s", "64"];
    let context = softroce::verbs::OpenOptions::default().ip(ip.parse().unwrap());
    let context = softroce::verbs::Context::open(context).unwrap();
    let devices = json(&["capture", "-D", "--json"]);
    let device = devices.iter().find(|device| device["ip"] == ip.as_str()).unwrap();
    let name = device["name"].as_str().unwrap();
    let listed = at_home(&home, "tshark", &["-D"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let is_ours = |line: &&str| line.contains(&format!(" {name} (PID ")) && line.contains(&ip);
    assert_eq!(listed.lines().filter(is_ours).count(), 1, "{listed}");
    assert!(listed.contains("softroce (all softroce devices of this user)"), "{listed}");

    drop(context);
    let args = ["-i", "softroce", "-c", "200", "-T", "fields", "-e", "infiniband.bth.opcode"];
    let args = [&args[..], &["--disable-protocol", "rpcordma"]].concat();
    let tshark = at_home(&home, "tshark", &args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Its devices are captured from their first packet on, once tshark listens.
    let sockets = || std::fs::read_to_string("/proc/net/unix").unwrap();
    let listens = (0..1_000_000).any(|_| sockets().contains("@softroce/capture/"));
    assert!(listens, "tshark does not begin to capture");
    let listener = Listener::start(&[&["pingpong", "--ip", &ip], &options[..]].concat());
    lines(&[&["pingpong", "127.0.0.1", "-p", &listener.port], &options[..]].concat());
    listener.finish();
    let output = tshark.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let opcodes = String::from_utf8(output.stdout).unwrap();
    // RC SEND Only, and RC Acknowledge.
    for opcode in ["4", "17"] {
        assert!(opcodes.lines().any(|line| line == opcode), "no opcode {opcode}: {opcodes} {text}");
    }
}
