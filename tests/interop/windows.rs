//! Memory windows of either side, and SENDs that invalidate them.

use softroce::verbs::*;

use super::pair::{Pair, Setup, TARGET};

/// Access rights of the windows.
const ALL: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Offset and length of the windows in their region.
const AT: usize = 4096;
const LEN: usize = 6000;

const SIGNALED: u8 = SendFlags::SIGNALED.bits();
const SUCCESS: u8 = WcStatus::Success as u8;
const REFUSED: u8 = WcStatus::RemAccessErr as u8;

/// Registers a region that the peer can access through windows only.
fn closed(pair: &Pair) -> MemoryRegion {
    pair.pd.alloc_mr(16 << 10, Access::LOCAL_WRITE | Access::MW_BIND).unwrap()
}

/// Binds a local window with a local queue pair.
fn bind(pair: &Pair, qp: &QueuePair, mw: &MemoryWindow, info: BindInfo) -> RemoteAddr {
    let rkey = match mw.mw_type() {
        MwType::Type1 => qp.bind_mw(77, SendFlags::SIGNALED, mw, info).unwrap(),
        MwType::Type2 => {
            let rkey = mw.rkey().inc();
            let request = SendRequest::bind_mw(77, mw.id(), rkey, info);
            qp.post_send(request.signaled()).unwrap();
            rkey
        }
    };
    let end = pair.ours();
    assert_eq!((end.wr_id, end.status, end.opcode), (77, WcStatus::Success, WcOpcode::BindMw));
    RemoteAddr { addr: info.addr, rkey }
}

fn beyond(window: RemoteAddr, bytes: usize) -> RemoteAddr {
    RemoteAddr { addr: window.addr + bytes as u64, ..window }
}

/// Posts a request of the peer, with the first bytes of its buffer.
#[track_caller]
fn theirs(pair: &mut Pair, op: SendOp, len: usize, expected: u8) {
    let lkey = pair.peer.mr.lkey;
    pair.peer.post_send(1, &op, SIGNALED, &[(0, len, lkey)]);
    assert_eq!(pair.theirs().status, expected, "{op:?}");
}

/// Posts a local request.
#[track_caller]
fn ours(pair: &Pair, request: SendRequest, expected: WcStatus) {
    pair.qp.post_send(request.signaled()).unwrap();
    assert_eq!(pair.ours().status, expected);
}

#[test]
#[ignore = "needs a peer"]
fn windows_of_the_peer_open_their_memory_to_us() {
    for mw_type in MwType::ALL {
        let mut pair = Pair::new(Setup::default());
        let window = pair.peer.window(mw_type, AT, LEN, ALL);
        pair.fill(0, LEN, 1);
        ours(&pair, SendRequest::write(1, pair.mr.sge(..LEN), window), WcStatus::Success);
        pair.peer.check(AT, LEN, 1);
        let read = SendRequest::read(2, pair.mr.sge(TARGET..TARGET + LEN), window);
        ours(&pair, read, WcStatus::Success);
        pair.check(TARGET, LEN, 1);
        pair.peer.store(AT, 7);
        ours(&pair, SendRequest::fetch_add(3, pair.mr.sge(..8), window, 5), WcStatus::Success);
        assert_eq!((pair.mr.load_u64(0), pair.peer.load(AT)), (Ok(7), 12));
    }
}

#[test]
#[ignore = "needs a peer"]
fn windows_of_ours_open_their_range_to_the_peer() {
    for mw_type in MwType::ALL {
        let mut pair = Pair::new(Setup::default());
        let mr = closed(&pair);
        let mw = pair.pd.alloc_mw(mw_type).unwrap();
        let window = bind(&pair, &pair.qp, &mw, mr.bind_info(AT..AT + LEN, ALL));
        pair.peer.fill(0, LEN, 1);
        theirs(&mut pair, SendOp::Write { to: window }, LEN, SUCCESS);
        pair.peer.fill(0, LEN, 2);
        theirs(&mut pair, SendOp::Read { from: window }, LEN, SUCCESS);
        pair.peer.check(0, LEN, 1);
        mr.store_u64(AT, 7).unwrap();
        theirs(&mut pair, SendOp::FetchAdd { at: window, add: 5 }, 8, SUCCESS);
        assert_eq!((mr.load_u64(AT), pair.peer.load(0)), (Ok(12), 7));
        // One byte beyond the window.
        theirs(&mut pair, SendOp::Write { to: beyond(window, LEN - 7) }, 8, REFUSED);
        assert_eq!(pair.qp.state().unwrap(), QpState::Err);
    }
}

#[test]
#[ignore = "needs a peer"]
fn windows_of_ours_have_their_own_rights() {
    for mw_type in MwType::ALL {
        for (access, refused) in [(Access::REMOTE_WRITE, true), (Access::REMOTE_READ, false)] {
            let mut pair = Pair::new(Setup::default());
            let mr = pair.pd.alloc_mr(AT, ALL | Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
            let mw = pair.pd.alloc_mw(mw_type).unwrap();
            let window = bind(&pair, &pair.qp, &mw, mr.bind_info(..64, access));
            let (read, write) = (SendOp::Read { from: window }, SendOp::Write { to: window });
            let (good, bad) = if refused { (write, read) } else { (read, write) };
            theirs(&mut pair, good, 8, SUCCESS);
            theirs(&mut pair, bad, 8, REFUSED);
        }
    }
}

#[test]
#[ignore = "needs a peer"]
fn send_of_ours_ends_a_window_of_the_peer() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    let window = pair.peer.window(MwType::Type2, AT, LEN, ALL);
    pair.fill(0, LEN, 1);
    pair.fill(LEN, 3000, 2);
    pair.peer.post_recv(7, &[(TARGET, 4000, lkey)]);
    let write = SendRequest::write(1, pair.mr.sge(..LEN), window);
    pair.qp.post_send(write).unwrap();
    let send = SendRequest::send_inv(2, pair.mr.sge(LEN..LEN + 3000), window.rkey);
    ours(&pair, send, WcStatus::Success);
    let got = pair.theirs();
    assert_eq!((got.id, got.status, got.len), (7, SUCCESS, 3000));
    assert_eq!(got.invalidated, Some(window.rkey));
    pair.peer.check(AT, LEN, 1);
    pair.peer.check(TARGET, 3000, 2);
    let late = SendRequest::write(3, pair.mr.sge(..8), window);
    ours(&pair, late, WcStatus::RemAccessErr);
}

#[test]
#[ignore = "needs a peer"]
fn send_of_the_peer_ends_a_window_of_ours() {
    let mut pair = Pair::new(Setup::default());
    let (mr, lkey) = (closed(&pair), pair.peer.mr.lkey);
    let mw = pair.pd.alloc_mw(MwType::Type2).unwrap();
    let window = bind(&pair, &pair.qp, &mw, mr.bind_info(AT..AT + LEN, ALL));
    for id in [7, 8] {
        pair.qp.post_recv(RecvRequest::new(id, pair.mr.sge(TARGET..TARGET + 4000))).unwrap();
    }
    pair.peer.fill(0, 3000, 1);
    theirs(&mut pair, SendOp::SendInv { rkey: window.rkey }, 3000, SUCCESS);
    let got = pair.ours();
    assert_eq!((got.wr_id, got.byte_len, got.invalidated), (7, 3000, Some(window.rkey)));
    pair.check(TARGET, 3000, 1);
    assert!(mr.deregister().is_ok(), "nothing is bound any more");
    pair.peer.post_send(2, &SendOp::Send, SIGNALED, &[(0, 8, lkey)]);
    assert_eq!((pair.theirs().status, pair.ours().invalidated), (SUCCESS, None));
    theirs(&mut pair, SendOp::Write { to: window }, 8, REFUSED);
}

#[test]
#[ignore = "needs a peer"]
fn either_side_takes_its_own_window_back() {
    let mut pair = Pair::new(Setup::default());
    let window = pair.peer.window(MwType::Type2, AT, LEN, ALL);
    ours(&pair, SendRequest::write(1, pair.mr.sge(..8), window), WcStatus::Success);
    pair.peer.post_send(2, &SendOp::LocalInv { rkey: window.rkey }, SIGNALED, &[]);
    assert_eq!(pair.theirs().status, SUCCESS);
    ours(&pair, SendRequest::write(3, pair.mr.sge(..8), window), WcStatus::RemAccessErr);

    let mut pair = Pair::new(Setup::default());
    let mr = closed(&pair);
    let mw = pair.pd.alloc_mw(MwType::Type2).unwrap();
    let window = bind(&pair, &pair.qp, &mw, mr.bind_info(AT..AT + LEN, ALL));
    theirs(&mut pair, SendOp::Write { to: window }, 8, SUCCESS);
    ours(&pair, SendRequest::local_inv(4, window.rkey), WcStatus::Success);
    theirs(&mut pair, SendOp::Write { to: window }, 8, REFUSED);
}

/// UC supports windows too. Forbidden accesses are dropped silently.
#[test]
#[ignore = "needs a peer"]
fn windows_are_bound_over_uc() {
    for mw_type in MwType::ALL {
        let mut pair = Pair::new(Setup { service: QpType::Uc, ..Setup::default() });
        let window = pair.peer.window(mw_type, AT, LEN, ALL);
        let there = pair.peer.mr.remote(TARGET);
        pair.fill(0, LEN, 1);
        ours(&pair, SendRequest::write(1, pair.mr.sge(..LEN), window), WcStatus::Success);
        // A later message shows that the WRITE was executed.
        pair.peer.post_recv(7, &[]);
        let notice = SendRequest::write_imm(2, pair.mr.sge(..8), there, 0);
        ours(&pair, notice, WcStatus::Success);
        assert_eq!((pair.theirs().id, pair.peer.holds(AT, LEN, 1)), (7, true));

        let mr = closed(&pair);
        let mw = pair.pd.alloc_mw(mw_type).unwrap();
        let window = bind(&pair, &pair.qp, &mw, mr.bind_info(AT..AT + 64, ALL));
        pair.qp.post_recv(RecvRequest::scattered(8, &[])).unwrap();
        pair.peer.store(0, 0x0102_0304_0506_0708);
        theirs(&mut pair, SendOp::Write { to: window }, 8, SUCCESS);
        theirs(&mut pair, SendOp::Write { to: beyond(window, 64) }, 8, SUCCESS);
        let to = pair.mr.remote(TARGET);
        theirs(&mut pair, SendOp::WriteImm { to, imm: 0 }, 8, SUCCESS);
        assert_eq!((pair.ours().wr_id, pair.qp.state().unwrap()), (8, QpState::Rts));
        let found = [AT, AT + 64].map(|at| mr.load_u64(at));
        assert_eq!(found, [Ok(0x0102_0304_0506_0708), Ok(0)]);
    }
}

#[test]
#[ignore = "needs a peer"]
fn window_of_another_queue_pair_of_ours_is_closed() {
    let mut pair = Pair::new(Setup::default());
    let other = pair.pd.create_qp(&QpConfig::rc(&pair.cq)).unwrap();
    other.connect(&other.endpoint(), &ConnectOptions::default()).unwrap();
    let mr = closed(&pair);
    for (mw_type, expected) in [(MwType::Type1, SUCCESS), (MwType::Type2, REFUSED)] {
        let mw = pair.pd.alloc_mw(mw_type).unwrap();
        let window = bind(&pair, &other, &mw, mr.bind_info(..64, ALL));
        theirs(&mut pair, SendOp::Write { to: window }, 8, expected);
    }
}

/// rxe acknowledges such a SEND, and then fails its queue pair; this library sends a NAK.
#[test]
#[ignore = "needs a peer"]
fn send_whose_key_cannot_be_invalidated_fails_the_receiver() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    pair.peer.post_recv(7, &[(TARGET, 64, lkey)]);
    let rkey = Rkey(pair.peer.mr.remote(0).rkey.0 ^ 0x5555_0000);
    let expected = pair.peer.device.deviates(WcStatus::Success, WcStatus::RemAccessErr);
    ours(&pair, SendRequest::send_inv(1, pair.mr.sge(..8), rkey), expected);
    let got = pair.theirs();
    assert_eq!((got.id, got.status), (7, WcStatus::RemInvReqErr as u8));

    let mut pair = Pair::new(Setup::default());
    pair.qp.post_recv(RecvRequest::new(7, pair.mr.sge(TARGET..TARGET + 64))).unwrap();
    let rkey = pair.mr.rkey();
    theirs(&mut pair, SendOp::SendInv { rkey }, 8, REFUSED);
    let got = pair.ours();
    assert_eq!((got.wr_id, got.status), (7, WcStatus::RemInvReqErr));
    assert_eq!(pair.qp.state().unwrap(), QpState::Err);
}
