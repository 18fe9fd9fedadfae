//! What our packets look like to others: tshark finds every one of them, and an ICRC that is
//! computed a bit at a time, with nothing of ours, is right in every one.
//!
//! `tools/ci.sh capture` runs this; it needs tshark, and for IPv6 the right to make a network
//! namespace.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use softroce_pcap::Reader;

const ROCE: &str = env!("CARGO_BIN_EXE_roce");

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("roce-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A TCP port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs two processes, each with a capture, and returns the captures.
fn captures(scratch: &Scratch, script: &str) -> [PathBuf; 2] {
    let files = ["listening.pcapng", "active.pcapng"].map(|name| scratch.0.join(name));
    let status = Command::new("sh")
        .args(["-euc", script])
        .env("ROCE", ROCE)
        .env("PORT", free_port().to_string())
        .env("LISTENING", &files[0])
        .env("ACTIVE", &files[1])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{script}: {status}");
    files
}

/// Both sides. The active one starts when the kernel says that the other listens (state 0A).
const PINGPONG: &str = r#"
    "$ROCE" pingpong -p "$PORT" -n 30 -s 5000 -m 1024 -c $LISTEN_OPTIONS --pcap "$LISTENING" &
    listener=$!
    until grep -qi ":$(printf %04x "$PORT") 0*:0000 0A" /proc/net/tcp /proc/net/tcp6; do
        kill -0 $listener
        sleep 0.05
    done
    "$ROCE" pingpong -p "$PORT" -n 30 -s 5000 -m 1024 -c $ACTIVE_OPTIONS --pcap "$ACTIVE" $HOST
    wait $listener
"#;

fn tshark(file: &Path) -> Vec<Vec<String>> {
    let output = Command::new("tshark")
        .args(["--disable-protocol", "rpcordma", "-r"])
        .arg(file)
        .args(["-T", "fields"])
        .args(["-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn"])
        .args(["-e", "infiniband.bth.destqp", "-e", "infiniband.bth.a"])
        .output()
        .expect("tshark is needed: tools/ci.sh packages installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// What `roce dump` says of the same packets, in tshark's terms.
fn dump(file: &Path) -> Vec<Vec<String>> {
    let output = Command::new(ROCE).args(["dump", "--json"]).arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = |line: &str| {
        let packet: Value = serde_json::from_str(line).unwrap();
        assert_eq!(packet["icrc"], "good", "{packet}");
        vec![
            packet["opcode"].to_string(),
            packet["psn"].to_string(),
            format!("0x{:06x}", packet["qp"].as_u64().unwrap()),
            u8::from(packet["ack_req"].as_bool().unwrap()).to_string(),
        ]
    };
    text.lines().map(fields).collect()
}

/// The ICRC of an IP packet by the recipe: eight bytes of ones, the packet with what changes on the
/// way masked, a CRC-32 a bit at a time.
fn icrc(packet: &[u8]) -> u32 {
    let mut masked = [&[0xff; 8][..], packet].concat();
    let ip = &mut masked[8..];
    let udp = if ip[0] >> 4 == 4 {
        for byte in [1, 8, 10, 11] {
            ip[byte] = 0xff;
        }
        20
    } else {
        ip[0] |= 0x0f;
        for byte in [1, 2, 3, 7] {
            ip[byte] = 0xff;
        }
        40
    };
    for byte in [udp + 6, udp + 7, udp + 12] {
        ip[byte] = 0xff;
    }
    let mut register = u32::MAX;
    for byte in masked {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !register
}

fn check(file: &Path) {
    let theirs = tshark(file);
    assert!(theirs.len() > 200, "{} packets in {}", theirs.len(), file.display());
    assert_eq!(theirs, dump(file), "tshark, roce dump: {}", file.display());
    let mut reader = Reader::new(fs::File::open(file).unwrap()).unwrap();
    let mut packets = 0;
    while let Some(packet) = reader.next_packet().unwrap() {
        packets += 1;
        let ip = packet.ip.unwrap();
        let (covered, found) = ip.split_last_chunk::<4>().unwrap();
        assert_eq!(icrc(covered), u32::from_le_bytes(*found), "packet {packets} of {file:?}");
    }
    assert_eq!(packets, theirs.len());
}

#[test]
#[ignore = "needs tshark: tools/ci.sh capture"]
fn others_find_every_ipv4_packet_and_its_icrc_right() {
    let scratch = Scratch::new("ipv4");
    let script = format!("LISTEN_OPTIONS= ACTIVE_OPTIONS= HOST=127.0.0.1\n{PINGPONG}");
    captures(&scratch, &script).iter().for_each(|file| check(file));
}

#[test]
#[ignore = "needs tshark and a network namespace: tools/ci.sh capture"]
fn others_find_every_ipv6_packet_and_its_icrc_right() {
    let scratch = Scratch::new("ipv6");
    let script = format!(
        r#"exec unshare --map-root-user --net sh -euc '
        ip link set lo up
        ip addr add fd00::1/128 dev lo nodad
        ip addr add fd00::2/128 dev lo nodad
        LISTEN_OPTIONS="--ip fd00::1" ACTIVE_OPTIONS="--ip fd00::2" HOST=fd00::1
        {PINGPONG}'"#
    );
    captures(&scratch, &script).iter().for_each(|file| check(file));
}

#[test]
#[ignore = "needs tshark: tools/ci.sh capture"]
fn others_find_what_an_impaired_run_sent_again() {
    let scratch = Scratch::new("impaired");
    let script = format!(
        "LISTEN_OPTIONS='--impair loss=0.02,seed=1' ACTIVE_OPTIONS= HOST=127.0.0.1\n{PINGPONG}"
    );
    captures(&scratch, &script).iter().for_each(|file| check(file));
}
