//! FLUSH and ATOMIC WRITE, in both directions, if the peer supports them.

use std::fs;

use softroce::verbs::*;
use tempfile::NamedTempFile;

use super::pair::{Pair, Setup, TARGET, all, not_tried};
use super::peer::{Peer, PeerDevice, PeerRegion, pattern};

const GLOBAL: FlushPlacement = FlushPlacement::GLOBAL_VISIBILITY;

/// Reason when [`pair`] returns `None`.
const NEITHER: &str = "the peer has neither FLUSH nor ATOMIC WRITE";

/// Creates two connected sides that permit FLUSH, this side also with persistence, and memory of each that permits
/// global visibility. `None` if the peer supports neither FLUSH nor ATOMIC WRITE.
fn pair() -> Option<(Pair, MemoryRegion, PeerRegion)> {
    let device = Peer::device_there();
    if !device.has(PeerDevice::FLUSH) || !device.has(PeerDevice::ATOMIC_WRITE) {
        return None;
    }
    let access = all() | Access::FLUSH_GLOBAL;
    let theirs = access - Access::LOCAL_WRITE;
    let ours = theirs | Access::FLUSH_PERSISTENT;
    let mut pair = Pair::new(Setup { access: [ours, theirs], ..Setup::default() });
    let ours = pair.pd.alloc_mr(1 << 20, access).unwrap();
    let theirs = pair.peer.reg_mr(0, 1 << 20, access, false);
    Some((pair, ours, theirs))
}

/// No earlier packet reveals the peer's implementation, so the first FLUSH to rxe has the wrong ICRC.
#[test]
#[ignore = "needs a peer"]
fn flush_is_answered_whichever_icrc_the_peer_wants() {
    let Some((mut pair, ours, theirs)) = pair() else { return not_tried(NEITHER) };
    for id in 0..3 {
        pair.qp
            .post_send(SendRequest::flush(id, theirs.remote(64), 100, GLOBAL).signaled())
            .unwrap();
        let end = pair.ours();
        let found = (end.wr_id, end.status, end.opcode);
        assert_eq!(found, (id, WcStatus::Success, WcOpcode::Flush));
    }
    let rkey = theirs.remote(0).rkey;
    pair.qp.post_send(SendRequest::flush_region(4, rkey, GLOBAL).signaled()).unwrap();
    assert_eq!(pair.ours().status, WcStatus::Success);

    let targets = [
        FlushTarget::Range { at: ours.remote(64), length: 100 },
        FlushTarget::Region { rkey: ours.rkey() },
    ];
    for (id, target) in (10..).zip(targets) {
        pair.peer.post_send(id, &SendOp::Flush { target, placement: GLOBAL }, 2, &[]);
        let end = pair.theirs();
        let found = (end.id, end.status, end.opcode);
        assert_eq!(found, (id, 0, WcOpcode::Flush as u8));
    }
}

#[test]
#[ignore = "needs a peer"]
fn atomic_write_puts_eight_bytes() {
    let Some((mut pair, ours, theirs)) = pair() else { return not_tried(NEITHER) };
    for (id, word) in [(1, 0x0102_0304_0506_0708_u64), (2, u64::MAX)] {
        pair.peer.store(0, 0);
        let data = SendData::inline(&word.to_ne_bytes());
        pair.qp
            .post_send(SendRequest::atomic_write(id, data, theirs.remote(0)).signaled())
            .unwrap();
        let end = pair.ours();
        let found = (end.wr_id, end.status, end.opcode);
        assert_eq!(found, (id, WcStatus::Success, WcOpcode::AtomicWrite));
        assert_eq!((pair.peer.load(0), pair.peer.load(8)), (word, 0));

        pair.peer.post_send(id, &SendOp::AtomicWrite { to: ours.remote(8 * id as usize) }, 2, &[]);
        let end = pair.theirs();
        let found = (end.id, end.status, end.opcode);
        assert_eq!(found, (id, 0, WcOpcode::AtomicWrite as u8));
        assert_eq!(ours.load_u64(8 * id as usize), Ok(id));
    }
}

/// WRITE, FLUSH, ATOMIC WRITE, READ: a log entry, its visibility, and the word that announces it.
#[test]
#[ignore = "needs a peer"]
fn they_are_done_in_order_with_everything_else() {
    let Some((mut pair, ours, theirs)) = pair() else { return not_tried(NEITHER) };
    let lkey = pair.peer.mr.lkey;
    for round in 0..20_u64 {
        let seed = round as u32;
        pair.fill(0, 5000, seed);
        let (entry, word) = (theirs.remote(4096), theirs.remote(0));
        pair.qp.post_send(SendRequest::write(1, pair.mr.sge(..5000), entry)).unwrap();
        pair.qp.post_send(SendRequest::flush(2, entry, 5000, GLOBAL)).unwrap();
        let count = SendData::inline(&round.to_ne_bytes());
        pair.qp.post_send(SendRequest::atomic_write(3, count, word)).unwrap();
        let back = pair.mr.sge(TARGET..TARGET + 9096);
        pair.qp.post_send(SendRequest::read(4, back, word).signaled()).unwrap();
        assert_eq!((pair.ours().wr_id, pair.mr.load_u64(TARGET)), (4, Ok(round)));
        pair.check(TARGET + 4096, 5000, seed);

        pair.peer.fill(TARGET, 5000, !seed);
        let target = FlushTarget::Range { at: ours.remote(4096), length: 5000 };
        let write = SendOp::Write { to: ours.remote(4096) };
        pair.peer.post_send(5, &write, 0, &[(TARGET, 5000, lkey)]);
        pair.peer.post_send(6, &SendOp::Flush { target, placement: GLOBAL }, 2, &[]);
        pair.peer.post_send(round, &SendOp::AtomicWrite { to: ours.remote(0) }, 2, &[]);
        assert_eq!(
            [pair.theirs(), pair.theirs()].map(|end| (end.id, end.status)),
            [(6, 0), (round, 0)]
        );
        assert_eq!(ours.load_u64(0), Ok(round));
    }
}

/// The peer's WRITE and its FLUSH with persistence, which kernel rxe itself lacks without persistent memory.
#[test]
#[ignore = "needs a peer"]
fn peer_flushes_a_file_of_ours() {
    let Some((mut pair, ..)) = pair() else { return not_tried(NEITHER) };
    let lkey = pair.peer.mr.lkey;
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(64 << 10).unwrap();
    let access = all() | Access::FLUSH_PERSISTENT;
    let log =
        pair.pd.reg_mr(HostMemory::map_file(file.as_file(), 0, 64 << 10).unwrap(), access).unwrap();
    pair.peer.fill(0, 9000, 1);
    pair.peer.post_send(1, &SendOp::Write { to: log.remote(4096) }, 0, &[(0, 9000, lkey)]);
    let target = FlushTarget::Range { at: log.remote(4096), length: 9000 };
    let placement = FlushPlacement::PERSISTENCE;
    pair.peer.post_send(2, &SendOp::Flush { target, placement }, 2, &[]);
    pair.peer.post_send(3, &SendOp::AtomicWrite { to: log.remote(8) }, 2, &[]);
    let ends = [pair.theirs(), pair.theirs()].map(|end| (end.id, end.status));
    let found = fs::read(file.path()).unwrap();
    assert_eq!((ends, &found[8..16]), ([(2, 0), (3, 0)], &3_u64.to_ne_bytes()[..]));
    assert_eq!(found[4096..13_096], (0..9000).map(|at| pattern(1, at)).collect::<Vec<_>>());
}

/// Checks that a local request and one of the peer are refused.
fn refused(ours: impl Fn(&PeerRegion) -> SendRequest, status: WcStatus) {
    let Some((pair, _, theirs)) = pair() else { return not_tried(NEITHER) };
    pair.qp.post_send(ours(&theirs)).unwrap();
    assert_eq!(pair.ours().status, status);
}

#[test]
#[ignore = "needs a peer"]
fn what_is_out_of_range_or_not_aligned_is_refused() {
    let beyond = |theirs: &PeerRegion| theirs.remote(1 << 20);
    refused(|at| SendRequest::flush(1, beyond(at), 8, GLOBAL), WcStatus::RemAccessErr);
    let word = || SendData::inline(&[1; 8]);
    refused(|at| SendRequest::atomic_write(1, word(), beyond(at)), WcStatus::RemAccessErr);
    refused(|at| SendRequest::atomic_write(1, word(), at.remote(4)), WcStatus::RemInvReqErr);

    let Some((mut pair, ours, _)) = pair() else { return not_tried(NEITHER) };
    pair.peer.post_send(1, &SendOp::AtomicWrite { to: ours.remote(1 << 20) }, 2, &[]);
    assert_eq!(pair.theirs().status, WcStatus::RemAccessErr as u8);
}

#[test]
#[ignore = "needs a peer"]
fn flush_to_persistence_needs_the_right() {
    let persist = FlushPlacement::PERSISTENCE;
    let Some((pair, _, theirs)) = pair() else { return not_tried(NEITHER) };
    pair.qp.post_send(SendRequest::flush(1, theirs.remote(0), 8, persist).signaled()).unwrap();
    let expected = pair.peer.device.deviates(WcStatus::RemInvReqErr, WcStatus::RemAccessErr);
    assert_eq!(pair.ours().status, expected);

    let Some((mut pair, ours, _)) = self::pair() else { return not_tried(NEITHER) };
    let target = FlushTarget::Range { at: ours.remote(0), length: 8 };
    pair.peer.post_send(1, &SendOp::Flush { target, placement: persist }, 2, &[]);
    assert_eq!(pair.theirs().status, WcStatus::RemAccessErr as u8);
}
