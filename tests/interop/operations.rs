//! Every operation of RC, in both directions, with the bytes compared where they arrive.

use softroce::verbs::*;

use super::pair::{Family, PATIENCE, Pair, Setup, TARGET, pieces};
use super::peer::{INLINE, PeerCompletion};

/// Where a message starts in its half of the memory: aligned to nothing.
const SOURCE: usize = 5;
const SINK: usize = TARGET + 3;
/// Bytes after a message that nobody may touch.
const GUARD: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

const KINDS: [Kind; 5] = [Kind::Send, Kind::SendImm, Kind::Write, Kind::WriteImm, Kind::Read];

impl Kind {
    fn op(self, there: RemoteAddr, imm: u32) -> SendOp {
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

    /// The opcode of the completion at the other end, if there is one.
    fn receipt(self) -> Option<WcOpcode> {
        match self {
            Self::Send | Self::SendImm => Some(WcOpcode::Recv),
            Self::WriteImm => Some(WcOpcode::RecvRdmaWithImm),
            Self::Write | Self::Read => None,
        }
    }
}

/// One message of `size` bytes in `sges` pieces.
#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    size: usize,
    sges: usize,
    seed: u32,
}

impl Message {
    /// We ask, rxe answers.
    fn ours(self, pair: &mut Pair) {
        let Self { kind, size, sges, seed } = self;
        let (length, lkey) = (u32::try_from(size).unwrap(), pair.peer.mr.lkey);
        let here = |at| -> SgeList {
            let of = |(at, bytes, _)| pair.mr.sge(at..at + bytes);
            pieces(at, size, sges, 0).into_iter().map(of).collect()
        };
        let (op, list) = if kind == Kind::Read {
            pair.peer.fill(SOURCE, size, seed);
            (kind.op(pair.peer.mr.remote(SOURCE), seed), here(SINK))
        } else {
            pair.fill(SOURCE, size, seed);
            pair.peer.fill(SINK + size, GUARD, !seed);
            (kind.op(pair.peer.mr.remote(SINK), seed), here(SOURCE))
        };
        if kind.receipt().is_some() {
            pair.peer.post_recv(2, &pieces(SINK, size, sges, lkey));
        }
        pair.qp.post_send(SendRequest::new(1, op, list).signaled()).unwrap();
        let done = pair.ours();
        assert_eq!((done.wr_id, done.status), (1, WcStatus::Success), "{self:?}");
        assert_eq!(done.opcode, op.wc_opcode(), "{self:?}");
        if let Some(opcode) = kind.receipt() {
            let imm = kind.imm(seed);
            let expected =
                PeerCompletion { id: 2, status: 0, opcode: opcode as u8, len: length, imm };
            assert_eq!(pair.theirs(), expected, "{self:?}");
        }
        if kind == Kind::Read {
            pair.check(SINK, size, seed);
        } else {
            pair.peer.check(SINK, size, seed);
            pair.peer.check(SINK + size, GUARD, !seed);
        }
    }

    /// rxe asks, we answer.
    fn theirs(self, pair: &mut Pair) {
        let Self { kind, size, sges, seed } = self;
        let (length, lkey) = (u32::try_from(size).unwrap(), pair.peer.mr.lkey);
        let (op, at) = if kind == Kind::Read {
            pair.fill(SOURCE, size, seed);
            (kind.op(pair.mr.remote(SOURCE), seed), SINK)
        } else {
            pair.peer.fill(SOURCE, size, seed);
            pair.fill(SINK + size, GUARD, !seed);
            (kind.op(pair.mr.remote(SINK), seed), SOURCE)
        };
        if kind.receipt().is_some() {
            let list: Vec<Sge> = pieces(SINK, size, sges, 0)
                .into_iter()
                .map(|(at, bytes, _)| pair.mr.sge(at..at + bytes))
                .collect();
            pair.qp.post_recv(RecvRequest::scattered(2, &list)).unwrap();
        }
        let flags = SendFlags::SIGNALED.bits();
        pair.peer.post_send(1, &op, flags, &pieces(at, size, sges, lkey));
        let done = pair.theirs();
        assert_eq!((done.id, done.status), (1, 0), "{self:?}");
        if let Some(opcode) = kind.receipt() {
            let got = pair.ours();
            assert_eq!((got.wr_id, got.status, got.opcode), (2, WcStatus::Success, opcode));
            assert_eq!((got.byte_len, got.imm), (length, kind.imm(seed)), "{self:?}");
        }
        if kind == Kind::Read {
            pair.peer.check(SINK, size, seed);
        } else {
            pair.check(SINK, size, seed);
            pair.check(SINK + size, GUARD, !seed);
        }
    }
}

/// All kinds of messages in all sizes around the MTU, both ways over one connection.
fn all_messages(family: Family, mtu: Mtu) {
    let pair = &mut Pair::new(Setup { family, mtu, ..Setup::default() });
    let m = mtu.bytes();
    let mut seed = 0;
    for size in [0, 1, 3, m - 1, m, m + 1, 10 * m + 5, 1 << 20] {
        for kind in KINDS {
            for sges in [1, 4] {
                seed += 1;
                let message = Message { kind, size, sges, seed };
                message.ours(pair);
                message.theirs(pair);
            }
        }
    }
}

#[test]
#[ignore = "needs a guest"]
fn every_message_arrives_over_ipv4() {
    for mtu in [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096] {
        all_messages(Family::Ipv4, mtu);
    }
}

#[test]
#[ignore = "needs a guest"]
fn every_message_arrives_over_ipv6() {
    for mtu in [Mtu::Mtu512, Mtu::Mtu2048, Mtu::Mtu4096] {
        all_messages(Family::Ipv6, mtu);
    }
}

#[test]
#[ignore = "needs a guest"]
fn atomics_are_done_once_and_return_what_was_there() {
    let mut pair = Pair::new(Setup::default());
    let (at, result) = (TARGET, pair.mr.sge(..8));
    let there = pair.peer.mr.remote(at);
    let here = pair.mr.remote(at);
    let lkey = pair.peer.mr.lkey;
    let cases = [
        (SendOp::FetchAdd { at: there, add: 5 }, 105),
        (SendOp::FetchAdd { at: there, add: u64::MAX }, 99),
        (SendOp::CompareSwap { at: there, expect: 100, swap: 7 }, 7),
        (SendOp::CompareSwap { at: there, expect: 101, swap: 7 }, 100),
    ];
    for (op, left) in cases {
        pair.peer.store(at, 100);
        pair.qp.post_send(SendRequest::new(1, op, result).signaled()).unwrap();
        assert_eq!(pair.ours().status, WcStatus::Success, "{op:?}");
        assert_eq!((pair.mr.load_u64(0), pair.peer.load(at)), (Ok(100), left), "{op:?}");

        let op = match op {
            SendOp::FetchAdd { add, .. } => SendOp::FetchAdd { at: here, add },
            SendOp::CompareSwap { expect, swap, .. } => {
                SendOp::CompareSwap { at: here, expect, swap }
            }
            other => other,
        };
        pair.mr.store_u64(at, 100).unwrap();
        pair.peer.post_send(1, &op, SendFlags::SIGNALED.bits(), &[(0, 8, lkey)]);
        assert_eq!(pair.theirs().status, 0, "{op:?}");
        assert_eq!((pair.peer.load(0), pair.mr.load_u64(at)), (100, Ok(left)), "{op:?}");
    }
}

#[test]
#[ignore = "needs a guest"]
fn several_reads_and_atomics_are_outstanding() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    let (size, n) = (5_000, 12);
    for i in 0..n {
        pair.peer.fill(i * size, size, i as u32);
        pair.fill(i * size, size, 100 + i as u32);
    }
    pair.peer.store(TARGET - 8, 0);
    pair.mr.store_u64(TARGET - 8, 0).unwrap();
    let counter = (pair.peer.mr.remote(TARGET - 8), pair.mr.remote(TARGET - 8));
    for i in 0..n {
        let at = TARGET + i * size;
        let (theirs, ours) = (pair.peer.mr.remote(i * size), pair.mr.remote(i * size));
        let id = i as u64;
        pair.qp.post_send(SendRequest::read(id, pair.mr.sge(at..at + size), theirs)).unwrap();
        let result = pair.mr.sge(TARGET - 16..TARGET - 8);
        pair.qp.post_send(SendRequest::fetch_add(id, result, counter.0, 1).signaled()).unwrap();
        pair.peer.post_send(id, &SendOp::Read { from: ours }, 0, &[(at, size, lkey)]);
        let add = SendOp::FetchAdd { at: counter.1, add: 1 };
        pair.peer.post_send(id, &add, 2, &[(TARGET - 16, 8, lkey)]);
    }
    for i in 0..n {
        let (ours, theirs) = (pair.ours(), pair.theirs());
        assert_eq!((ours.wr_id, ours.status), (i as u64, WcStatus::Success));
        assert_eq!((theirs.id, theirs.status), (i as u64, 0));
    }
    for i in 0..n {
        pair.check(TARGET + i * size, size, i as u32);
        pair.peer.check(TARGET + i * size, size, 100 + i as u32);
    }
    assert_eq!((pair.peer.load(TARGET - 8), pair.mr.load_u64(TARGET - 8)), (12, Ok(12)));
}

#[test]
#[ignore = "needs a guest"]
fn inline_fenced_and_solicited_messages_arrive() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    pair.fill(0, 32, 1);
    pair.peer.fill(0, 32, 2);
    let mut bytes = [0; 32];
    pair.mr.read_at(0, &mut bytes).unwrap();
    pair.peer.post_recv(3, &[(TARGET, 64, lkey)]);
    pair.qp.post_recv(RecvRequest::new(4, pair.mr.sge(TARGET..TARGET + 64))).unwrap();

    let read = SendRequest::read(1, pair.mr.sge(TARGET + 64..TARGET + 96), pair.peer.mr.remote(0));
    pair.qp.post_send(read).unwrap();
    let send = SendRequest::send(2, SendData::inline(&bytes)).fenced().solicited().signaled();
    pair.qp.post_send(send).unwrap();
    assert_eq!((pair.ours().status, pair.theirs().len), (WcStatus::Success, 32));
    pair.check(TARGET + 64, 32, 2);
    pair.peer.check(TARGET, 32, 1);

    let flags = (SendFlags::FENCE | SendFlags::SIGNALED | SendFlags::SOLICITED).bits() | INLINE;
    pair.peer.post_send(5, &SendOp::Send, flags, &[(0, 32, lkey)]);
    assert_eq!(pair.theirs().status, 0);
    let got = pair.ours();
    assert_eq!((got.wr_id, got.byte_len, got.solicited), (4, 32, true));
    pair.check(TARGET, 32, 2);
}

#[test]
#[ignore = "needs a guest"]
fn both_directions_carry_at_once() {
    let mut pair = Pair::new(Setup { mtu: Mtu::Mtu4096, ..Setup::default() });
    let (n, size, lkey) = (32, 30_000, pair.peer.mr.lkey);
    for i in 0..n {
        pair.fill(i * size, size, i as u32);
        pair.peer.fill(i * size, size, 100 + i as u32);
    }
    for i in 0..n {
        let (source, sink, id) = (i * size, TARGET + i * size, i as u64);
        let (theirs, ours) = (pair.peer.mr.remote(sink), pair.mr.remote(sink));
        let write = SendRequest::write(id, pair.mr.sge(source..source + size), theirs);
        pair.qp.post_send(write.signaled()).unwrap();
        pair.peer.post_send(id, &SendOp::Write { to: ours }, 2, &[(source, size, lkey)]);
    }
    for _ in 0..n {
        assert_eq!((pair.ours().status, pair.theirs().status), (WcStatus::Success, 0));
    }
    for i in 0..n {
        pair.peer.check(TARGET + i * size, size, i as u32);
        pair.check(TARGET + i * size, size, 100 + i as u32);
    }
    assert_eq!((pair.cq.poll_one(), pair.peer.poll(PATIENCE / 100)), (None, None));
}
