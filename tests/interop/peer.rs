//! The program `peer.c` in the guest, by remote control: see there for what its words mean.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use softroce::verbs::*;

/// The control connection: a queue pair of rxe with its memory, until it is dropped.
pub(crate) struct Peer {
    lines: BufReader<TcpStream>,
    pub(crate) endpoint: Endpoint,
    /// Its memory, and what opens it.
    pub(crate) mr: PeerRegion,
}

/// Memory that rxe has registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRegion {
    addr: u64,
    pub(crate) lkey: u32,
    rkey: u32,
}

impl PeerRegion {
    /// The byte at `offset`, as we name it.
    pub(crate) fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.addr + offset as u64, rkey: Rkey(self.rkey) }
    }
}

/// A completion of rxe, in the numbers of `verbs.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerCompletion {
    pub(crate) id: u64,
    pub(crate) status: u8,
    pub(crate) opcode: u8,
    pub(crate) len: u32,
    pub(crate) imm: Option<u32>,
}

/// A piece of its buffer: offset, bytes, lkey.
pub(crate) type Piece = (usize, usize, u32);

impl Peer {
    /// Where it listens, from the environment.
    pub(crate) fn address() -> String {
        std::env::var("ROCE_PEER").expect("ROCE_PEER names the guest's peer, as HOST:PORT")
    }

    pub(crate) fn open(gid_index: u8, bytes: usize, access: Access, psn: u32) -> Self {
        let stream = TcpStream::connect(Self::address()).expect("the peer listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let endpoint = Endpoint { gid: Gid([0; 16]), qpn: Qpn::new(0), psn: Psn::new(psn) };
        let mr = PeerRegion { addr: 0, lkey: 0, rkey: 0 };
        let mut peer = Self { lines: BufReader::new(stream), endpoint, mr };
        let words = peer.say(format_args!("open 2 {gid_index} {bytes} {}", access.bits()));
        peer.endpoint.qpn = Qpn::new(number(&words[0]));
        peer.endpoint.gid = words[1].parse::<Ipv6Addr>().unwrap().into();
        peer.mr = region(&words[2..]);
        peer
    }

    /// Another region in the same buffer, perhaps in a domain that is not the queue pair's.
    pub(crate) fn reg_mr(
        &mut self,
        at: usize,
        bytes: usize,
        access: Access,
        other: bool,
    ) -> PeerRegion {
        let other = u8::from(other);
        region(&self.say(format_args!("mr {at} {bytes} {} {other}", access.bits())))
    }

    pub(crate) fn connect(&mut self, ours: &Endpoint, options: &ConnectOptions) {
        let gid = Ipv6Addr::from(ours.gid.0);
        let mtu = options.path_mtu.unwrap_or(Mtu::Mtu1024) as u8;
        let ConnectOptions { timeout, retry_cnt, rnr_retry, min_rnr_timer, .. } = options;
        self.say(format_args!(
            "connect {gid} {} {} {} {mtu} {} {} {} {retry_cnt} {rnr_retry} {}",
            ours.qpn.value(),
            ours.psn.value(),
            self.endpoint.psn.value(),
            options.access.bits(),
            options.max_rd_atomic,
            timeout.exponent(),
            min_rnr_timer.code(),
        ));
    }

    pub(crate) fn fill(&mut self, at: usize, bytes: usize, seed: u32) {
        self.say(format_args!("fill {at} {bytes} {seed}"));
    }

    pub(crate) fn check(&mut self, at: usize, bytes: usize, seed: u32) {
        self.say(format_args!("check {at} {bytes} {seed}"));
    }

    pub(crate) fn load(&mut self, at: usize) -> u64 {
        number(&self.say(format_args!("load {at}"))[0])
    }

    pub(crate) fn store(&mut self, at: usize, value: u64) {
        self.say(format_args!("store {at} {value}"));
    }

    pub(crate) fn post_recv(&mut self, id: u64, pieces: &[Piece]) {
        self.say(format_args!("recv {id} {}", list(pieces)));
    }

    /// Posts a send request of ours there; its flags may have [`INLINE`] too.
    pub(crate) fn post_send(&mut self, id: u64, op: &SendOp, flags: u8, pieces: &[Piece]) {
        let (code, imm, to, compare_add, swap) = match *op {
            SendOp::Write { to } => (0, 0, to, 0, 0),
            SendOp::WriteImm { to, imm } => (1, imm, to, 0, 0),
            SendOp::Send => (2, 0, RemoteAddr::default(), 0, 0),
            SendOp::SendImm { imm } => (3, imm, RemoteAddr::default(), 0, 0),
            SendOp::Read { from } => (4, 0, from, 0, 0),
            SendOp::CompareSwap { at, expect, swap } => (5, 0, at, expect, swap),
            SendOp::FetchAdd { at, add } => (6, 0, at, add, 0),
            _ => panic!("{op:?} is not known to the peer"),
        };
        let (addr, rkey) = (to.addr, to.rkey.0);
        self.say(format_args!(
            "send {id} {code} {flags} {imm} {addr} {rkey} {compare_add} {swap} {}",
            list(pieces)
        ));
    }

    /// The next completion, if one comes in this time.
    pub(crate) fn poll(&mut self, wait: Duration) -> Option<PeerCompletion> {
        let words = self.say(format_args!("poll {}", wait.as_millis()));
        let [id, status, opcode, len, flags, imm] = &words[..] else {
            return None;
        };
        let has_imm = number::<u32>(flags) & 2 != 0;
        Some(PeerCompletion {
            id: number(id),
            status: number(status),
            opcode: number(opcode),
            len: number(len),
            imm: has_imm.then(|| number(imm)),
        })
    }

    pub(crate) fn destroy_qp(&mut self) {
        self.say("destroy");
    }

    /// Says a line, and returns what the answer has after "ok".
    fn say(&mut self, line: impl Display) -> Vec<String> {
        let line = format!("{line}\n");
        self.lines.get_mut().write_all(line.as_bytes()).expect("the peer is there");
        let mut answer = String::new();
        self.lines.read_line(&mut answer).expect("the peer answers");
        let mut words = answer.split_whitespace().map(String::from);
        assert_eq!(words.next().as_deref(), Some("ok"), "{line}{answer}");
        words.collect()
    }
}

/// `IBV_SEND_INLINE`.
pub(crate) const INLINE: u8 = 8;

/// The byte at `at` of the pattern of a seed, as the peer makes it.
pub(crate) fn pattern(seed: u32, at: u32) -> u8 {
    let x = (at + 1).wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503);
    (x >> 24 ^ x >> 11).to_le_bytes()[0]
}

fn region(words: &[String]) -> PeerRegion {
    PeerRegion { addr: number(&words[0]), lkey: number(&words[1]), rkey: number(&words[2]) }
}

fn list(pieces: &[Piece]) -> String {
    pieces.iter().map(|(at, bytes, lkey)| format!("{at} {bytes} {lkey} ")).collect()
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("'{word}' is a number"))
}
