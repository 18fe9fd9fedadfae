//! Remote control of the program `peer.c` on the other host, which documents the commands.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use softroce::verbs::*;

use super::pair::WAIT_LIMIT;

/// A control connection, with a queue pair of the peer and its memory, until it is dropped.
pub(crate) struct Peer {
    lines: BufReader<TcpStream>,
    pub(crate) endpoint: Endpoint,
    /// Its memory with its keys.
    pub(crate) mr: PeerRegion,
    pub(crate) device: PeerDevice,
}

/// Attributes of the peer's device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerDevice {
    vendor: u32,
    /// `ibv_device_attr_ex.device_cap_flags_ex`.
    capabilities: u64,
    pub(crate) active_mtu: Mtu,
}

impl PeerDevice {
    /// `IB_UVERBS_DEVICE_FLUSH_GLOBAL` and `IB_UVERBS_DEVICE_ATOMIC_WRITE`: rxe since Linux 6.2.
    pub(crate) const FLUSH: u64 = 1 << 38;
    pub(crate) const ATOMIC_WRITE: u64 = 1 << 40;

    pub(crate) fn has(&self, capability: u64) -> bool {
        self.capabilities & capability != 0
    }

    /// Returns whether the peer is kernel rxe before Linux 6.2, which introduced FLUSH.
    pub(crate) fn is_old_rxe(&self) -> bool {
        !self.has(Self::FLUSH) && self.deviates(true, false)
    }

    /// Returns the expected result: that of rxe where it deviates from the specification.
    pub(crate) fn deviates<T>(&self, rxe: T, specified: T) -> T {
        if self.vendor == 0xff_ffff { rxe } else { specified }
    }
}

/// Registered memory of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRegion {
    addr: u64,
    pub(crate) lkey: u32,
    rkey: u32,
}

impl PeerRegion {
    /// Returns the remote address of the byte at `offset`.
    pub(crate) fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.addr + offset as u64, rkey: Rkey(self.rkey) }
    }
}

/// A completion of the peer, with the numbers of `verbs.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerCompletion {
    pub(crate) id: u64,
    pub(crate) status: u8,
    pub(crate) opcode: u8,
    pub(crate) len: u32,
    pub(crate) imm: Option<u32>,
    /// Key that a SEND of this side has invalidated.
    pub(crate) invalidated: Option<Rkey>,
    /// Source queue pair, for UD.
    pub(crate) source_qp: Option<Qpn>,
    /// Queue pair of the completion.
    pub(crate) qpn: Qpn,
}

/// An element of its buffer: offset, bytes, lkey.
pub(crate) type Piece = (usize, usize, u32);

impl Peer {
    /// Returns its address, from the environment.
    fn address() -> String {
        std::env::var("ROCE_PEER").expect("ROCE_PEER names the peer, as HOST:PORT")
    }

    /// Opens a control connection without a queue pair.
    fn dial() -> Self {
        let address = Self::address();
        let stream = TcpStream::connect(&address)
            .unwrap_or_else(|error| panic!("no peer listens at ROCE_PEER={address}: {error}"));
        stream.set_nodelay(true).unwrap();
        // The response to "poll" arrives with a completion.
        stream.set_read_timeout(Some(WAIT_LIMIT * 2)).unwrap();
        let endpoint = Endpoint { gid: Gid([0; 16]), qpn: Qpn::new(0), psn: Psn::new(0) };
        let mr = PeerRegion { addr: 0, lkey: 0, rkey: 0 };
        let device = PeerDevice { vendor: 0, capabilities: 0, active_mtu: Mtu::Mtu256 };
        let mut peer = Self { lines: BufReader::new(stream), endpoint, mr, device };
        let words = peer.say("device");
        peer.device = PeerDevice {
            vendor: number(&words[0]),
            capabilities: number(&words[1]),
            active_mtu: mtu(number(&words[2])),
        };
        peer
    }

    /// Returns the attributes of the peer's device.
    pub(crate) fn device_there() -> PeerDevice {
        Self::dial().device
    }

    /// Creates a queue pair there, at the address of the control connection.
    pub(crate) fn open(qp_type: QpType, bytes: usize, access: Access, psn: u32) -> Self {
        Self::open_sharing(qp_type, bytes, access, psn, 0)
    }

    /// Creates a queue pair there, with a shared receive queue of `max_wr` requests if not 0.
    pub(crate) fn open_sharing(
        qp_type: QpType,
        bytes: usize,
        access: Access,
        psn: u32,
        max_wr: u32,
    ) -> Self {
        let mut peer = Self::dial();
        let (code, access) = (qp_type as u8, access.bits());
        let words = peer.say(format_args!("open {code} {bytes} {access} {max_wr}"));
        peer.endpoint = Endpoint {
            gid: words[1].parse::<Ipv6Addr>().unwrap().into(),
            qpn: Qpn::new(number(&words[0])),
            psn: Psn::new(psn),
        };
        peer.mr = region(&words[2..]);
        peer
    }

    /// Creates another queue pair with the shared receive queue, and selects it.
    pub(crate) fn another(&mut self, qp_type: QpType) -> Endpoint {
        let words = self.say(format_args!("another {}", qp_type as u8));
        Endpoint { qpn: Qpn::new(number(&words[0])), ..self.endpoint }
    }

    /// Selects the queue pair with this index, in order of creation.
    pub(crate) fn choose(&mut self, which: usize) {
        self.say(format_args!("choose {which}"));
    }

    /// Sets the limit of its shared receive queue.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.say(format_args!("limit {limit}"));
    }

    /// Returns the limit of its shared receive queue.
    pub(crate) fn limit(&mut self) -> u32 {
        number(&self.say("srq")[1])
    }

    /// Returns the next asynchronous event, as a number of `verbs.h`, if one arrives within this time.
    pub(crate) fn async_event(&mut self, wait: Duration) -> Option<u32> {
        let words = self.say(format_args!("async {}", wait.as_millis()));
        words[0].parse().ok()
    }

    /// Returns the local address that reaches it.
    pub(crate) fn our_ip(&self) -> IpAddr {
        self.lines.get_ref().local_addr().unwrap().ip().to_canonical()
    }

    /// Registers another region in the same buffer, optionally in another protection domain.
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

    /// Takes a UD queue pair to RTS.
    pub(crate) fn datagrams(&mut self, qkey: QKey) {
        let psn = self.endpoint.psn.value();
        self.say(format_args!("datagrams {} {psn}", qkey.0));
    }

    /// Sets the target of its messages.
    pub(crate) fn aim(&mut self, ours: &Endpoint, qkey: QKey) {
        let gid = Ipv6Addr::from(ours.gid.0);
        self.say(format_args!("aim {gid} {} {}", ours.qpn.value(), qkey.0));
    }

    /// Sets the target to the sender of the last message, which has its header at `at`.
    pub(crate) fn reply(&mut self, at: usize) {
        self.say(format_args!("reply {at}"));
    }

    /// Attaches it to a multicast group.
    pub(crate) fn attach(&mut self, group: Gid) {
        self.say(format_args!("attach {}", Ipv6Addr::from(group.0)));
    }

    /// Detaches it from a multicast group.
    pub(crate) fn detach(&mut self, group: Gid) {
        self.say(format_args!("detach {}", Ipv6Addr::from(group.0)));
    }

    /// Creates a memory window of `bytes` at `at`, in a region of its whole buffer.
    pub(crate) fn window(
        &mut self,
        mw_type: MwType,
        at: usize,
        bytes: usize,
        access: Access,
    ) -> RemoteAddr {
        let (mw_type, access) = (mw_type as u8, access.bits());
        let words = self.say(format_args!("window {mw_type} {at} {bytes} {access}"));
        RemoteAddr { addr: number(&words[0]), rkey: Rkey(number(&words[1])) }
    }

    pub(crate) fn fill(&mut self, at: usize, bytes: usize, seed: u32) {
        self.say(format_args!("fill {at} {bytes} {seed}"));
    }

    pub(crate) fn check(&mut self, at: usize, bytes: usize, seed: u32) {
        self.say(format_args!("check {at} {bytes} {seed}"));
    }

    /// Returns whether the memory contains the bytes that [`check`](Self::check) expects.
    pub(crate) fn holds(&mut self, at: usize, bytes: usize, seed: u32) -> bool {
        self.ask(format_args!("check {at} {bytes} {seed}")).1.starts_with("ok")
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

    /// Posts a send request there; its flags may include [`INLINE`]. A FLUSH or ATOMIC WRITE is always signaled, and
    /// without elements.
    #[track_caller]
    pub(crate) fn post_send(&mut self, id: u64, op: &SendOp, flags: u8, pieces: &[Piece]) {
        assert_eq!(self.try_post_send(id, op, flags, pieces), Ok(()));
    }

    /// Posts a send request there, which its verbs may refuse.
    pub(crate) fn try_post_send(
        &mut self,
        id: u64,
        op: &SendOp,
        flags: u8,
        pieces: &[Piece],
    ) -> Result<(), String> {
        if let Some(line) = extended(id, op) {
            let (_, answer) = self.ask(line);
            return if answer == "ok\n" { Ok(()) } else { Err(answer.trim_end().to_owned()) };
        }
        let (code, imm, to, compare_add, swap) = match *op {
            SendOp::Write { to } => (0, 0, to, 0, 0),
            SendOp::WriteImm { to, imm } => (1, imm, to, 0, 0),
            SendOp::Send => (2, 0, RemoteAddr::default(), 0, 0),
            SendOp::SendImm { imm } => (3, imm, RemoteAddr::default(), 0, 0),
            SendOp::Read { from } => (4, 0, from, 0, 0),
            SendOp::CompareSwap { at, expect, swap } => (5, 0, at, expect, swap),
            SendOp::FetchAdd { at, add } => (6, 0, at, add, 0),
            SendOp::LocalInv { rkey } => (7, 0, RemoteAddr { addr: 0, rkey }, 0, 0),
            SendOp::SendInv { rkey } => (9, 0, RemoteAddr { addr: 0, rkey }, 0, 0),
            _ => panic!("{op:?} is not known to the peer"),
        };
        let (addr, rkey) = (to.addr, to.rkey.0);
        let (_, answer) = self.ask(format_args!(
            "send {id} {code} {flags} {imm} {addr} {rkey} {compare_add} {swap} {}",
            list(pieces)
        ));
        if answer == "ok\n" { Ok(()) } else { Err(answer.trim_end().to_owned()) }
    }

    /// Returns the next completion, if one arrives within this time.
    pub(crate) fn poll(&mut self, wait: Duration) -> Option<PeerCompletion> {
        let words = self.say(format_args!("poll {}", wait.as_millis()));
        let [id, status, opcode, len, flags, imm, source_qp, qpn] = &words[..] else {
            return None;
        };
        let source_qp = (number::<u32>(source_qp) != 0).then(|| Qpn::new(number(source_qp)));
        let flags: u32 = number(flags);
        let has_imm = flags & WITH_IMM != 0;
        let with_inv = self.device.deviates(RXE_WITH_INV, WITH_INV);
        let has_key = flags & with_inv != 0;
        Some(PeerCompletion {
            id: number(id),
            status: number(status),
            opcode: number(opcode),
            len: number(len),
            imm: has_imm.then(|| number(imm)),
            invalidated: has_key.then(|| Rkey(number(imm))),
            source_qp,
            qpn: Qpn::new(number(qpn)),
        })
    }

    /// Requests an event for the next completion, or the next solicited one.
    pub(crate) fn arm(&mut self, solicited_only: bool) {
        self.say(format_args!("arm {}", u8::from(solicited_only)));
    }

    /// Returns whether an event arrives within this time.
    pub(crate) fn event(&mut self, wait: Duration) -> bool {
        self.say(format_args!("event {}", wait.as_millis())) == ["1"]
    }

    pub(crate) fn destroy_qp(&mut self) {
        self.say("destroy");
    }

    /// Sends a command, and returns the words of the response after "ok".
    #[track_caller]
    fn say(&mut self, line: impl Display) -> Vec<String> {
        let (line, answer) = self.ask(line);
        let mut words = answer.split_whitespace().map(String::from);
        assert_eq!(words.next().as_deref(), Some("ok"), "{line}{answer}");
        words.collect()
    }

    /// Sends a command, and returns it with the response.
    fn ask(&mut self, line: impl Display) -> (String, String) {
        let line = format!("{line}\n");
        self.lines.get_mut().write_all(line.as_bytes()).expect("the peer is there");
        let mut answer = String::new();
        self.lines.read_line(&mut answer).expect("the peer answers");
        (line, answer)
    }
}

/// `IBV_WC_WITH_IMM` and `IBV_WC_WITH_INV`, and the kernel's value of the latter, which rxe reports.
const WITH_IMM: u32 = 2;
const WITH_INV: u32 = 8;
const RXE_WITH_INV: u32 = 4;

/// `IBV_SEND_INLINE`.
pub(crate) const INLINE: u8 = 8;

/// Returns the command for a signaled request through the extended interface of the peer's verbs. The number of an
/// ATOMIC WRITE determines its value.
fn extended(id: u64, op: &SendOp) -> Option<String> {
    match *op {
        SendOp::Flush { target, placement } => {
            let (at, length, level) = match target {
                FlushTarget::Range { at, length } => (at, length, 0),
                FlushTarget::Region { rkey } => (RemoteAddr { addr: 0, rkey }, 0, 1),
            };
            let (addr, rkey, placement) = (at.addr, at.rkey.0, placement.bits());
            Some(format!("flush {id} {addr} {rkey} {length} {placement} {level}"))
        }
        SendOp::AtomicWrite { to } => {
            Some(format!("atomic_write {id} {} {} {id}", to.addr, to.rkey.0))
        }
        _ => None,
    }
}

/// Returns the byte at `at` of the pattern of a seed, as the peer generates it.
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

/// Returns the MTU with this number of `verbs.h`.
fn mtu(number: u8) -> Mtu {
    let all = [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096];
    all.into_iter().find(|mtu| *mtu as u8 == number).expect("the number of an MTU")
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("'{word}' is a number"))
}
