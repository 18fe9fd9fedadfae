//! Handmade packets that no verb of this library sends, and the peer's responses as lines.

use std::net::SocketAddr;
use std::time::Duration;

use softroce::net::{Burst, BurstToken, Path, ROCE_PORT};
use softroce::port::udp::UdpPort;
use softroce::port::{Control, Datapath, PortConfig, SOURCE_PORTS, wait_readable};
use softroce::time::Instant;
use softroce::verbs::*;
use softroce::wire::Datagram;
use softroce::wire::icrc::Flow;
use softroce::wire::text::PacketLine;

use super::pair::{MEMORY_BYTES, Setup, WAIT_LIMIT, all, not_tried};
use super::peer::{Peer, PeerDevice};

#[path = "../support/line.rs"]
#[allow(unreachable_pub, reason = "other tests have it in a public module")]
mod line;

/// Returns the payload of packets with this PSN, as `line` generates it.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    vec![seed.to_le_bytes()[0]; len]
}

/// Number of this side's queue pair, which exists only in these packets.
const QPN: Qpn = Qpn::new(0x1234);
/// Time after which a missing packet counts as not sent.
const QUIET: Duration = Duration::from_millis(200);

/// Queue pair of the peer, connected to a socket.
struct Raw {
    port: UdpPort,
    path: Path,
    peer: Peer,
}

impl Raw {
    /// The peer expects PSN 5 and starts with PSN 5, with an MTU of 256.
    fn new() -> Self {
        let mut peer = Peer::open(QpType::Rc, MEMORY_BYTES, all(), 5);
        let ip = peer.our_ip();
        let ours = Endpoint { gid: ip.into(), qpn: QPN, psn: Psn::new(5) };
        let options = ConnectOptions {
            path_mtu: Some(Mtu::Mtu256),
            access: all() - Access::LOCAL_WRITE,
            ..Setup::default().options
        };
        peer.connect(&ours, &options);
        let mut port = UdpPort::open(&PortConfig::new(ip)).unwrap();
        let path = Path {
            source: ip,
            destination: peer.endpoint.gid.ip(),
            source_port: port.source_port(ip, *SOURCE_PORTS.start()),
            traffic_class: 0,
            hop_limit: 64,
        };
        Self { port, path, peer }
    }

    /// Returns the datagram of a line, in which `rkey=mem` stands for the peer's memory, and `va=mem` for its start.
    fn packet(&self, line: &str) -> Vec<u8> {
        let mem = self.peer.mr.remote(0);
        let line = line
            .replace("rkey=mem", &format!("rkey={}", mem.rkey))
            .replace("va=mem", &format!("va={:#x}", mem.addr));
        let mut bytes = line::datagram(&line, self.peer.endpoint.qpn);
        let source = SocketAddr::new(self.path.source, self.path.source_port);
        Flow::new(source, SocketAddr::new(self.path.destination, ROCE_PORT)).seal(0, &mut bytes);
        bytes
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut burst = Burst::new();
        burst.reset(self.path, BurstToken::default());
        burst.push(bytes.len()).copy_from_slice(bytes);
        assert_eq!(self.port.transmit(Instant::ZERO, std::slice::from_ref(&burst)), Ok(1));
    }

    fn tx(&mut self, line: &str) {
        let bytes = self.packet(line);
        self.send(&bytes);
    }

    /// Returns received packets until there are `count`, or until no packet arrives for this time.
    fn receive(&mut self, count: usize, wait: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < count && wait_readable(&self.port.descriptors(), Some(wait)).unwrap() {
            let mut take = |bytes: &[u8]| {
                lines.push(PacketLine(&Datagram::parse(bytes).unwrap()).to_string());
            };
            let port = &mut self.port;
            port.receive(Instant::ZERO, &mut |rx| rx.segments().for_each(&mut take)).unwrap();
        }
        lines
    }

    /// Checks the next packets of the peer.
    #[track_caller]
    fn rx(&mut self, lines: &[&str]) {
        assert_eq!(self.receive(lines.len(), WAIT_LIMIT), lines);
    }

    /// Checks that the peer sends nothing.
    #[track_caller]
    fn quiet(&mut self) {
        assert_eq!(self.receive(1, QUIET), Vec::<String>::new());
    }
}

const WRITE: &str = "WRITE_ONLY psn=5 ackreq va=mem rkey=mem dmalen=8 len=8";

#[test]
#[ignore = "needs a peer"]
fn corrupt_packet_is_dropped() {
    let mut raw = Raw::new();
    let mut bytes = raw.packet(WRITE);
    *bytes.last_mut().unwrap() ^= 1;
    raw.send(&bytes);
    raw.quiet();
    raw.tx(WRITE);
    raw.rx(&["ACK psn=5 msn=1"]);
}

/// A gap causes one NAK, and a duplicate is acknowledged again.
#[test]
#[ignore = "needs a peer"]
fn gaps_are_told_and_repetitions_acknowledged() {
    let mut raw = Raw::new();
    raw.tx(&WRITE.replace("psn=5", "psn=7"));
    raw.rx(&["NAK_PSN psn=5 msn=0"]);
    raw.tx(&WRITE.replace("psn=5", "psn=8"));
    raw.quiet();
    for _ in 0..2 {
        raw.tx(WRITE);
        raw.rx(&["ACK psn=5 msn=1"]);
    }
}

#[test]
#[ignore = "needs a peer"]
fn repeated_atomic_gets_the_first_answer() {
    let mut raw = Raw::new();
    raw.peer.store(0, 40);
    for _ in 0..2 {
        raw.tx("FETCH_ADD psn=5 ackreq va=mem rkey=mem add=0x2");
        raw.rx(&["ATOMIC_ACK psn=5 msn=1 value=0x28"]);
    }
    assert_eq!(raw.peer.load(0), 42);
}

/// An atomic completes with its response. rxe also accepts an acknowledgement, and leaves the result memory
/// unchanged; so this library never acknowledges an atomic.
#[test]
#[ignore = "needs a peer"]
fn acknowledgement_is_no_answer_to_an_atomic_but_for_rxe() {
    let mut raw = Raw::new();
    raw.peer.store(0, 7);
    let ours = RemoteAddr { addr: 0x1000, rkey: Rkey(0x1234) };
    let add = SendOp::FetchAdd { at: ours, add: 1 };
    let lkey = raw.peer.mr.lkey;
    raw.peer.post_send(1, &add, SendFlags::SIGNALED.bits(), &[(0, 8, lkey)]);
    let asked = raw.receive(1, WAIT_LIMIT);
    assert!(asked[0].starts_with("FETCH_ADD psn=5 "), "{asked:?}");
    raw.tx("ACK psn=5 msn=1");
    if !raw.peer.device.deviates(true, false) {
        assert_eq!(raw.receive(1, WAIT_LIMIT), asked);
        raw.tx("ATOMIC_ACK psn=5 msn=1 value=0x28");
    }
    let done = raw.peer.poll(WAIT_LIMIT).unwrap();
    assert_eq!((done.id, done.status), (1, WcStatus::Success as u8));
    assert_eq!(raw.peer.load(0), raw.peer.device.deviates(7, 0x28));
}

/// The rest of a READ is a READ of its own; rxe continues with MIDDLE packets.
#[test]
#[ignore = "needs a peer"]
fn read_that_is_asked_for_again_goes_on_from_there() {
    let mut raw = Raw::new();
    raw.tx("READ_REQUEST psn=5 ackreq va=mem rkey=mem dmalen=768");
    raw.rx(&[
        "READ_RESPONSE_FIRST psn=5 msn=1 len=256",
        "READ_RESPONSE_MIDDLE psn=6 len=256",
        "READ_RESPONSE_LAST psn=7 msn=1 len=256",
    ]);
    let rest = format!("{:#x}", raw.peer.mr.remote(256).addr);
    raw.tx(&format!("READ_REQUEST psn=6 ackreq va={rest} rkey=mem dmalen=512"));
    let first = raw
        .peer
        .device
        .deviates("READ_RESPONSE_MIDDLE psn=6 len=256", "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    raw.rx(&[first, "READ_RESPONSE_LAST psn=7 msn=1 len=256"]);
}

#[test]
#[ignore = "needs a peer"]
fn misaligned_atomic_is_answered_with_nak_invalid_request() {
    let mut raw = Raw::new();
    let at = format!("{:#x}", raw.peer.mr.remote(4).addr);
    raw.tx(&format!("FETCH_ADD psn=5 ackreq va={at} rkey=mem add=0x2"));
    raw.rx(&["NAK_INV psn=5 msn=0"]);
}

/// FLUSH and ATOMIC WRITE to a peer without them. rxe drops unknown requests.
#[test]
#[ignore = "needs a peer"]
fn operation_that_the_peer_does_not_have_is_refused() {
    let device = Peer::device_there();
    if device.has(PeerDevice::FLUSH) || device.has(PeerDevice::ATOMIC_WRITE) {
        return not_tried("the peer has FLUSH and ATOMIC WRITE");
    }
    for request in [
        "FLUSH psn=5 ackreq placement=0x1 selectivity=0 va=mem rkey=mem dmalen=8",
        "ATOMIC_WRITE psn=5 ackreq va=mem rkey=mem dmalen=8 len=8",
    ] {
        let mut raw = Raw::new();
        raw.tx(request);
        match device.deviates(None, Some("NAK_INV psn=5 msn=0")) {
            Some(nak) => raw.rx(&[nak]),
            None => {
                raw.quiet();
                raw.tx(WRITE);
                raw.rx(&["ACK psn=5 msn=1"]);
            }
        }
    }
}
