//! Every kind of message of every transport in all sizes around the MTU, in both directions. The received bytes are
//! compared.

use std::time::Duration;

use softroce::verbs::*;

use super::pair::{Pair, Setup, TARGET, WAIT_LIMIT, not_tried, pieces};
use super::peer::{Peer, PeerCompletion, Piece};

/// Offset of a message in its half of the memory: unaligned, and after the space for the header of a datagram.
const SOURCE: usize = 5;
const SINK: usize = TARGET + 64 + 3;
/// Bytes after a message that must not change.
const GUARD: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

impl Kind {
    /// Returns the kinds of messages of a transport.
    pub(crate) fn of(service: QpType) -> &'static [Self] {
        use Kind::{Read, Send, SendImm, Write, WriteImm};
        match service {
            QpType::Uc => &[Send, SendImm, Write, WriteImm],
            QpType::Ud => &[Send, SendImm],
            _ => &[Send, SendImm, Write, WriteImm, Read],
        }
    }

    pub(crate) fn op(self, there: RemoteAddr, imm: u32) -> SendOp {
        match self {
            Self::Send => SendOp::Send,
            Self::SendImm => SendOp::SendImm { imm },
            Self::Write => SendOp::Write { to: there },
            Self::WriteImm => SendOp::WriteImm { to: there, imm },
            Self::Read => SendOp::Read { from: there },
        }
    }

    fn imm(self, imm: u32) -> Option<u32> {
        matches!(self, Self::SendImm | Self::WriteImm).then_some(imm)
    }

    /// Returns the opcode of the receiver's completion, if there is one.
    pub(crate) fn receipt(self) -> Option<WcOpcode> {
        match self {
            Self::Send | Self::SendImm => Some(WcOpcode::Recv),
            Self::WriteImm => Some(WcOpcode::RecvRdmaWithImm),
            Self::Write | Self::Read => None,
        }
    }
}

/// One message of `size` bytes in `sges` elements.
#[derive(Clone, Copy, Debug)]
struct Message {
    service: QpType,
    kind: Kind,
    size: usize,
    sges: usize,
    seed: u32,
}

impl Message {
    /// Returns the bytes of a receive request before the message.
    fn header(self) -> usize {
        if self.service == QpType::Ud { GRH_LEN } else { 0 }
    }

    /// Returns the length in the receive completion.
    fn received(self) -> u32 {
        u32::try_from(self.header() + self.size).unwrap()
    }

    /// Returns the elements of a receive request for it.
    fn receive(self, lkey: u32) -> Vec<Piece> {
        pieces(SINK - self.header(), self.header() + self.size, self.sges, lkey)
    }

    /// Returns the maximum number of attempts, and the time limit of each: unreliable messages may be lost at a full
    /// socket.
    fn tries(self) -> (u32, Duration) {
        match self.service {
            QpType::Uc | QpType::Ud => (4, WAIT_LIMIT / 12),
            _ => (1, WAIT_LIMIT),
        }
    }

    /// A WRITE over UC has no completion at the receiver; a message behind it has.
    fn needs_messenger(self) -> bool {
        self.service == QpType::Uc && self.kind == Kind::Write
    }

    /// This side sends, and the peer receives. Returns the number of failed attempts.
    fn ours(self, pair: &mut Pair) -> u32 {
        let Self { kind, size, sges, seed, .. } = self;
        let (op, at) = if kind == Kind::Read {
            pair.peer.fill(SOURCE, size, seed);
            (kind.op(pair.peer.mr.remote(SOURCE), seed), SINK)
        } else {
            pair.fill(SOURCE, size, seed);
            pair.peer.fill(SINK + size, GUARD, !seed);
            (kind.op(pair.peer.mr.remote(SINK), seed), SOURCE)
        };
        if kind.receipt().is_some() || self.needs_messenger() {
            let list = self.receive(pair.peer.mr.lkey);
            pair.peer.post_recv(2, &list);
        }
        let list = here(pair, &pieces(at, size, sges, 0));
        for lost in 0..self.tries().0 {
            pair.qp.post_send(pair.request(1, op, list.clone()).signaled()).unwrap();
            let done = pair.ours();
            assert_eq!((done.wr_id, done.status), (1, WcStatus::Success), "{self:?}");
            assert_eq!(done.opcode, op.wc_opcode(), "{self:?}");
            if self.needs_messenger() {
                let last = pair.request(1, SendOp::Send, SgeList::new()).signaled();
                pair.qp.post_send(last).unwrap();
                assert_eq!(pair.ours().status, WcStatus::Success, "{self:?}");
            }
            if self.is_there(pair) {
                if kind != Kind::Read {
                    pair.peer.check(SINK + size, GUARD, !seed);
                }
                return lost;
            }
        }
        panic!("{self:?} does not arrive");
    }

    /// Returns whether the message has arrived at the peer.
    fn is_there(self, pair: &mut Pair) -> bool {
        let Self { kind, size, seed, .. } = self;
        if self.needs_messenger() {
            let told = pair.peer.poll(self.tries().1).is_some();
            let whole = told && pair.peer.holds(SINK, size, seed);
            if told && !whole {
                pair.peer.post_recv(2, &[]);
            }
            return whole;
        }
        if let Some(opcode) = kind.receipt() {
            let Some(found) = pair.peer.poll(self.tries().1) else { return false };
            let is_ud = self.service == QpType::Ud;
            let expected = PeerCompletion {
                id: 2,
                status: 0,
                opcode: opcode as u8,
                len: self.received(),
                imm: kind.imm(seed),
                invalidated: None,
                source_qp: if is_ud { Some(pair.qp.qpn()) } else { found.source_qp },
                qpn: pair.peer.endpoint.qpn,
            };
            assert_eq!(found, expected, "{self:?}");
        }
        if kind == Kind::Read {
            pair.check(SINK, size, seed);
        } else {
            pair.peer.check(SINK, size, seed);
        }
        true
    }

    /// The peer sends, and this side receives. Returns the number of failed attempts.
    fn theirs(self, pair: &mut Pair) -> u32 {
        let Self { kind, size, sges, seed, .. } = self;
        let lkey = pair.peer.mr.lkey;
        let (op, at) = if kind == Kind::Read {
            pair.fill(SOURCE, size, seed);
            (kind.op(pair.mr.remote(SOURCE), seed), SINK)
        } else {
            pair.peer.fill(SOURCE, size, seed);
            pair.fill(SINK + size, GUARD, !seed);
            (kind.op(pair.mr.remote(SINK), seed), SOURCE)
        };
        if kind.receipt().is_some() || self.needs_messenger() {
            let list = here(pair, &self.receive(0));
            pair.qp.post_recv(RecvRequest::scattered(2, &list)).unwrap();
        }
        let flags = SendFlags::SIGNALED.bits();
        for lost in 0..self.tries().0 {
            pair.peer.post_send(1, &op, flags, &pieces(at, size, sges, lkey));
            let done = self.sent_by(pair);
            assert_eq!((done.id, done.status), (1, 0), "{self:?}");
            if self.needs_messenger() {
                pair.peer.post_send(1, &SendOp::Send, flags, &[]);
                assert_eq!(self.sent_by(pair).status, 0, "{self:?}");
            }
            if self.is_here(pair) {
                if kind != Kind::Read {
                    pair.check(SINK + size, GUARD, !seed);
                }
                return lost;
            }
        }
        panic!("{self:?} does not arrive");
    }

    /// Returns the peer's send completion.
    fn sent_by(self, pair: &mut Pair) -> PeerCompletion {
        match self.service {
            QpType::Uc => pair.theirs_over_uc().expect("a completion of the peer"),
            _ => pair.theirs(),
        }
    }

    /// Returns whether the message has arrived here.
    fn is_here(self, pair: &mut Pair) -> bool {
        let Self { kind, size, seed, .. } = self;
        if self.needs_messenger() {
            let told = pair.cq.wait_one(self.tries().1).is_ok();
            let whole = told && pair.holds(SINK, size, seed);
            if told && !whole {
                pair.qp.post_recv(RecvRequest::scattered(2, &[])).unwrap();
            }
            return whole;
        }
        if let Some(opcode) = kind.receipt() {
            let Ok(got) = pair.cq.wait_one(self.tries().1) else { return false };
            let sender = (self.service == QpType::Ud).then_some(pair.peer.endpoint.qpn);
            assert_eq!((got.wr_id, got.status, got.opcode), (2, WcStatus::Success, opcode));
            assert_eq!((got.byte_len, got.imm), (self.received(), kind.imm(seed)), "{self:?}");
            assert_eq!(got.source_qp, sender, "{self:?}");
        }
        if kind == Kind::Read {
            pair.peer.check(SINK, size, seed);
        } else {
            pair.check(SINK, size, seed);
        }
        true
    }
}

/// Returns a list of elements of local memory.
fn here(pair: &Pair, pieces: &[Piece]) -> SgeList {
    pieces.iter().map(|(at, bytes, _)| pair.mr.sge(*at..at + bytes)).collect()
}

/// All kinds of messages in all sizes around the MTU, in both directions.
fn all_messages(service: QpType, mtu: Mtu) {
    let active = Peer::device_there().active_mtu;
    if mtu.bytes() > active.bytes() {
        return not_tried(format_args!("the MTU of the peer's link is {}", active.bytes()));
    }
    let pair = &mut Pair::new(Setup { service, mtu, ..Setup::default() });
    let m = mtu.bytes();
    let (mut seed, mut lost) = (0, 0);
    for size in [0, 1, 3, m - 1, m, m + 1, 10 * m + 5, 1 << 20] {
        if service == QpType::Ud && size > m {
            break;
        }
        for kind in Kind::of(service).iter().copied() {
            for sges in [1, 4] {
                seed += 1;
                let message = Message { service, kind, size, sges, seed };
                lost += message.ours(pair) + message.theirs(pair);
            }
        }
    }
    assert!(lost * 10 <= 2 * seed, "of {} messages {lost} were lost", 2 * seed);
}

macro_rules! messages {
    ($($name:ident: $service:ident $mtu:ident)*) => {$(
        #[test]
        #[ignore = "needs a peer"]
        fn $name() {
            all_messages(QpType::$service, Mtu::$mtu);
        }
    )*};
}

messages! {
    rc_with_mtu_256: Rc Mtu256
    rc_with_mtu_512: Rc Mtu512
    rc_with_mtu_1024: Rc Mtu1024
    rc_with_mtu_2048: Rc Mtu2048
    rc_with_mtu_4096: Rc Mtu4096
    uc_with_mtu_256: Uc Mtu256
    uc_with_mtu_512: Uc Mtu512
    uc_with_mtu_1024: Uc Mtu1024
    uc_with_mtu_2048: Uc Mtu2048
    uc_with_mtu_4096: Uc Mtu4096
    ud_with_mtu_4096: Ud Mtu4096
}
