//! Memory windows.

use softroce::engine::PostError;
use softroce::verbs::*;

use crate::node::{Node, open};

const ALL: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Length of the region under the windows, in bytes.
const LEN: usize = 1 << 16;

/// Returns memory that peers can access through windows only.
fn closed(node: &Node) -> MemoryRegion {
    node.pd.alloc_mr(LEN, Access::LOCAL_WRITE | Access::MW_BIND).unwrap()
}

/// Binds a window of either type, and returns the address of its first byte for peers.
fn bind(node: &Node, mw: &MemoryWindow, info: BindInfo) -> RemoteAddr {
    let rkey = match mw.mw_type() {
        MwType::Type1 => node.qp.bind_mw(77, SendFlags::SIGNALED, mw, info).unwrap(),
        MwType::Type2 => {
            let rkey = mw.rkey().inc();
            node.send(SendRequest::bind_mw(77, mw.id(), rkey, info));
            rkey
        }
    };
    let end = node.next();
    assert_eq!((end.wr_id, end.status, end.opcode), (77, WcStatus::Success, WcOpcode::BindMw));
    assert_eq!(mw.rkey(), rkey);
    RemoteAddr { addr: info.addr, rkey }
}

fn beyond(window: RemoteAddr, offset: u64) -> RemoteAddr {
    RemoteAddr { addr: window.addr + offset, ..window }
}

#[test]
fn window_grants_access_to_a_part_of_a_region() {
    for mw_type in MwType::ALL {
        let (a, b) = Node::pair();
        let mr = closed(&b);
        let mw = b.pd.alloc_mw(mw_type).unwrap();
        let window = bind(&b, &mw, mr.bind_info(1000..31_000, ALL));
        let sent = a.fill(0, 30_000, 1);
        a.run(SendRequest::write(1, a.mr.sge(..30_000), window));
        a.run(SendRequest::read(2, a.mr.sge(40_000..70_000), window));
        assert_eq!(a.bytes(40_000, 30_000), sent);
        let mut whole = vec![0; LEN];
        mr.read_at(0, &mut whole).unwrap();
        let rest = vec![0; LEN - 31_000];
        assert!(whole == [vec![0; 1000], sent, rest].concat(), "and nowhere else");
        // One byte beyond the window.
        a.send(SendRequest::write(3, a.mr.sge(..8), beyond(window, 29_993)));
        assert_eq!(a.end(), (3, WcStatus::RemAccessErr));
        assert_eq!(b.event(), AsyncEvent::QpAccessErr(b.qp.qpn()));
    }
}

#[test]
fn peer_executes_atomics_through_a_window() {
    for mw_type in MwType::ALL {
        let (a, b) = Node::pair();
        let mr = closed(&b);
        let mw = b.pd.alloc_mw(mw_type).unwrap();
        let window = bind(&b, &mw, mr.bind_info(64..72, Access::REMOTE_ATOMIC));
        a.run(SendRequest::fetch_add(1, a.mr.sge(..8), window, 5));
        a.run(SendRequest::compare_swap(2, a.mr.sge(..8), window, 5, 6));
        assert_eq!((mr.load_u64(64), a.mr.load_u64(0)), (Ok(6), Ok(5)));
    }
}

#[test]
fn key_sent_after_the_bind_is_valid_on_arrival() {
    let (a, b) = Node::pair();
    let mr = closed(&b);
    let mw = b.pd.alloc_mw(MwType::Type1).unwrap();
    for round in 0..20 {
        a.recv(round, 0..4);
        let info = mr.bind_info(..8, Access::REMOTE_WRITE);
        let rkey = b.qp.bind_mw(0, SendFlags::empty(), &mw, info).unwrap();
        b.qp.post_send(SendRequest::send(1, SendData::inline(&rkey.0.to_le_bytes()))).unwrap();
        assert_eq!(a.next().byte_len, 4);
        let told = u32::from_le_bytes(*a.bytes(0, 4).first_chunk().unwrap());
        let window = RemoteAddr { addr: info.addr, rkey: Rkey(told) };
        a.run(SendRequest::write(2, SendData::inline(&round.to_ne_bytes()), window));
        assert_eq!(mr.load_u64(0), Ok(round));
    }
}

#[test]
fn type_1_is_unbound_and_type_2_is_invalidated() {
    let (a, b) = Node::pair();
    let mr = closed(&b);
    let one = b.pd.alloc_mw(MwType::Type1).unwrap();
    let info = mr.bind_info(..64, ALL);
    let before = bind(&b, &one, info);
    let unbound = bind(&b, &one, BindInfo::NOTHING);
    assert_ne!(before.rkey, unbound.rkey);
    a.send(SendRequest::write(1, a.mr.sge(..8), before));
    assert_eq!(a.end(), (1, WcStatus::RemAccessErr));

    let (a, b) = Node::pair();
    let mr = closed(&b);
    let two = b.pd.alloc_mw(MwType::Type2).unwrap();
    let window = bind(&b, &two, mr.bind_info(..64, ALL));
    b.send(SendRequest::local_inv(1, window.rkey));
    let end = b.next();
    assert_eq!((end.status, end.opcode), (WcStatus::Success, WcOpcode::LocalInv));
    bind(&b, &two, mr.bind_info(..64, ALL));
    a.send(SendRequest::write(1, a.mr.sge(..8), window));
    assert_eq!(a.end(), (1, WcStatus::RemAccessErr));
}

#[test]
fn send_with_invalidate_unbinds_the_window() {
    let (a, b) = Node::pair();
    let mr = closed(&b);
    let mw = b.pd.alloc_mw(MwType::Type2).unwrap();
    let info = mr.bind_info(100..5100, Access::REMOTE_WRITE | Access::ZERO_BASED);
    let window = RemoteAddr { addr: 0, ..bind(&b, &mw, info) };
    b.recv(7, 0..9000);
    let sent = a.fill(0, 9000, 2);
    a.send(SendRequest::write(1, a.mr.sge(..5000), window));
    a.send(SendRequest::send_inv(2, a.mr.sge(..9000), window.rkey));
    assert_eq!((a.end(), a.end()), ((1, WcStatus::Success), (2, WcStatus::Success)));
    let got = b.next();
    assert_eq!((got.wr_id, got.byte_len, got.imm), (7, 9000, None));
    assert_eq!(got.invalidated, Some(window.rkey));
    assert_eq!(b.bytes(0, 9000), sent);
    // No window is bound any more, so the region can be deregistered.
    mr.deregister().unwrap();
    a.send(SendRequest::write(3, a.mr.sge(..8), window));
    assert_eq!(a.end(), (3, WcStatus::RemAccessErr));
}

#[test]
fn send_with_an_invalid_key_to_invalidate_fails_both_sides() {
    let (a, b) = Node::pair();
    b.recv(7, 0..64);
    a.send(SendRequest::send_inv(1, a.mr.sge(..8), b.mr.rkey()));
    assert_eq!(a.end(), (1, WcStatus::RemAccessErr));
    assert_eq!(b.end(), (7, WcStatus::RemInvReqErr));
    assert_eq!(b.qp.state().unwrap(), QpState::Err);
    // The region is not a window, so it is not invalidated.
    assert!(b.mr.is_live());
}

#[test]
fn type_2_window_belongs_to_one_queue_pair() {
    let (a, b) = Node::pair();
    let other = b.pd.create_qp(&QpConfig::rc(&b.cq)).unwrap();
    let peer = a.pd.create_qp(&QpConfig::rc(&a.cq)).unwrap();
    other.connect(&peer.endpoint(), &ConnectOptions::default()).unwrap();
    peer.connect(&other.endpoint(), &ConnectOptions::default()).unwrap();
    let mr = closed(&b);
    let mw = b.pd.alloc_mw(MwType::Type2).unwrap();
    let window = bind(&b, &mw, mr.bind_info(..64, ALL));
    a.run(SendRequest::write(1, a.mr.sge(..8), window));
    peer.post_send(SendRequest::write(2, a.mr.sge(..8), window)).unwrap();
    assert_eq!(a.end(), (2, WcStatus::RemAccessErr));
    a.run(SendRequest::write(3, a.mr.sge(..8), window));
    // The destruction of its queue pair frees the window, so another queue pair can bind it.
    let old = b.qp.qpn();
    let Node { qp, cq, pd, .. } = b;
    drop(qp);
    let new = pd.create_qp(&QpConfig::rc(&cq)).unwrap();
    new.connect(&new.endpoint(), &ConnectOptions::default()).unwrap();
    assert_ne!(new.qpn(), old);
    let info = mr.bind_info(..64, ALL);
    new.post_send(SendRequest::bind_mw(4, mw.id(), mw.rkey().inc(), info).signaled()).unwrap();
    let ends = std::iter::from_fn(|| cq.poll_one()).last();
    let end = ends.unwrap_or_else(|| cq.wait_one(crate::node::WAIT_LIMIT).unwrap());
    assert_eq!((end.wr_id, end.status), (4, WcStatus::Success));
}

#[test]
fn bind_that_the_region_forbids_fails_the_queue_pair() {
    for mw_type in MwType::ALL {
        let (_a, b) = Node::pair();
        let mw = b.pd.alloc_mw(mw_type).unwrap();
        let before = mw.rkey();
        let info = b.mr.bind_info(..64, Access::REMOTE_READ);
        match mw_type {
            MwType::Type1 => {
                b.qp.bind_mw(1, SendFlags::empty(), &mw, info).unwrap();
            }
            MwType::Type2 => {
                let bind = SendRequest::bind_mw(1, mw.id(), before.inc(), info);
                b.qp.post_send(bind).unwrap();
            }
        }
        assert_eq!(b.end(), (1, WcStatus::MwBindErr));
        assert_eq!((b.qp.state().unwrap(), mw.rkey()), (QpState::Err, before));
    }
}

#[test]
fn bind_mw_refuses_invalid_arguments_immediately() {
    let (a, b) = Node::pair();
    let mr = closed(&a);
    let flags = SendFlags::SIGNALED;
    let info = mr.bind_info(..8, Access::REMOTE_READ);
    let two = a.pd.alloc_mw(MwType::Type2).unwrap();
    let error = a.qp.bind_mw(1, flags, &two, info).unwrap_err();
    assert_eq!(error.to_string(), "bind_mw takes memory windows of type 1, not of type 2B");
    let theirs = b.pd.alloc_mw(MwType::Type1).unwrap();
    let error = a.qp.bind_mw(1, flags, &theirs, info).unwrap_err();
    assert_eq!(error.to_string(), "the memory window belongs to another device");
    let one = a.pd.alloc_mw(MwType::Type1).unwrap();
    let access = Access::REMOTE_READ | Access::ZERO_BASED;
    let error = a.qp.bind_mw(1, flags, &one, BindInfo { access, ..info }).unwrap_err();
    let access = Access::ZERO_BASED;
    assert!(
        matches!(error, Error::Post { source: PostError::WindowAccess { access: a }, .. } if a == access)
    );
    let access = Access::MW_BIND;
    let error = a.qp.bind_mw(1, flags, &one, BindInfo { access, ..info }).unwrap_err();
    assert!(error.to_string().ends_with("this memory window cannot have MW_BIND"), "{error}");
    // None of these requests was posted, and none used a key.
    let key = one.rkey().inc();
    assert_eq!(a.qp.bind_mw(2, flags, &one, info).unwrap(), key);
    assert_eq!(a.end(), (2, WcStatus::Success));
}

/// MR-10
#[test]
fn region_with_bound_windows_is_not_deregistered() {
    let (a, b) = Node::pair();
    let mr = closed(&b);
    let [one, two] = MwType::ALL.map(|mw_type| b.pd.alloc_mw(mw_type).unwrap());
    let first = bind(&b, &one, mr.bind_info(..64, ALL));
    bind(&b, &two, mr.bind_info(..64, ALL));
    let error = mr.deregister().unwrap_err();
    assert_eq!(error.to_string(), "the memory region is in use by memory windows: 2");
    a.run(SendRequest::write(1, a.mr.sge(..8), first));
    drop(two);
    bind(&b, &one, BindInfo::NOTHING);
    mr.deregister().unwrap();
    assert!(!mr.is_live());
}

#[test]
fn domain_with_windows_is_not_deallocated() {
    let pd = open().alloc_pd();
    let mw = pd.alloc_mw(MwType::Type2).unwrap();
    let (pd, error) = pd.dealloc().unwrap_err();
    let said = "the protection domain is in use by objects made from it: 1";
    assert_eq!(error.to_string(), said);
    drop(mw);
    assert!(pd.dealloc().is_ok());
}

#[test]
fn dropped_window_invalidates_its_key() {
    let window_first = |mr: MemoryRegion, mw: MemoryWindow| {
        drop(mw);
        drop(mr);
        None
    };
    let region_first = |mr: MemoryRegion, mw: MemoryWindow| {
        drop(mr);
        Some(mw)
    };
    for end in [window_first as fn(_, _) -> Option<MemoryWindow>, region_first] {
        let (a, b) = Node::pair();
        let mr = closed(&b);
        let mw = b.pd.alloc_mw(MwType::Type1).unwrap();
        let window = bind(&b, &mw, mr.bind_info(..64, ALL));
        a.run(SendRequest::write(1, a.mr.sge(..8), window));
        let _kept = end(mr, mw);
        a.send(SendRequest::write(2, a.mr.sge(..8), window));
        assert_eq!(a.end(), (2, WcStatus::RemAccessErr));
    }
}

#[test]
fn device_reports_limit_and_types_of_windows() {
    let info = open().device_info().unwrap();
    assert_eq!(info.limits.max_mw, 1 << 20);
    assert_eq!(info.mw_types, [MwType::Type1, MwType::Type2]);
}
