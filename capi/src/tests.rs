//! Functions as C calls them: results, error numbers, and the order of destruction.

use std::ffi::c_int;
use std::ptr::null_mut;

use nix::errno::Errno as System;
use nix::libc::{EAGAIN, EBUSY, EFAULT, EINVAL, ENOMEM, EOPNOTSUPP};
use softroce::verbs::{QpState, QpType};

use crate::abi::{
    self, AhAttr, Handle, IbvCompChannel, IbvContext, IbvCq, IbvMr, IbvPd, IbvQp, IbvSrq, In, Out,
    QpAttr, QpCap, QpInitAttr, RecvWr, SendWr, Sge, Wc,
};
use crate::border::call;
use crate::entry::{ah, channel, cq, device, events, mr, pd, post, qp, query, srq};
use crate::objects::device::Device;
use crate::open;

/// Returns `errno` after a call.
fn errno() -> c_int {
    System::last_raw()
}

/// Returns the next completion. The test fails after a minute without one.
#[track_caller]
fn next_completion(cq: Handle<IbvCq>) -> Wc {
    let (start, limit) = (softroce::runtime::now(), std::time::Duration::from_secs(60));
    let mut next: Wc = zeroed();
    while cq::poll_cq(cq, 1, Out::to(&mut next)) == 0 {
        assert!(softroce::runtime::now() - start < limit, "no completion within {limit:?}");
    }
    next
}

/// Returns a structure of zero bytes, as `memset` fills it.
fn zeroed<T: crate::border::Plain>() -> T {
    let zeros = [0_u64; 64];
    assert!(size_of::<T>() <= size_of_val(&zeros));
    In::<T>::first_of(&zeros).read().unwrap()
}

fn open() -> Handle<IbvContext> {
    let context = open::open_device(Device::only());
    assert!(!context.is_null());
    context
}

fn make_cq(context: Handle<IbvContext>, channel: Handle<IbvCompChannel>) -> Handle<IbvCq> {
    let cq = cq::create_cq(context, 16, null_mut(), channel, 0);
    assert!(!cq.is_null());
    cq
}

fn init_attr(cq: Handle<IbvCq>, srq: Handle<IbvSrq>) -> QpInitAttr {
    let cap = QpCap {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 1,
    };
    QpInitAttr { send_cq: cq, recv_cq: cq, srq, cap, qp_type: QpType::Rc as u32, ..zeroed() }
}

fn make_qp(pd: Handle<IbvPd>, cq: Handle<IbvCq>, srq: Handle<IbvSrq>) -> Handle<IbvQp> {
    let mut attr = init_attr(cq, srq);
    let qp = qp::create_qp(pd, Out::to(&mut attr));
    assert!(!qp.is_null());
    // The granted capacities are written back.
    assert_eq!(attr.cap.max_inline_data, 64);
    qp
}

/// Returns the address of the device itself.
fn own_address(context: Handle<IbvContext>) -> AhAttr {
    let mut gid = [0; 16];
    assert_eq!(query::query_gid(context, 1, 0, Out::to(&mut gid)), 0);
    AhAttr { dgid: gid, hop_limit: 64, is_global: 1, port_num: 1, ..zeroed() }
}

/// Moves a queue pair to RTS, connected to itself.
fn connect(context: Handle<IbvContext>, qp: Handle<IbvQp>) {
    let to = own_address(context);
    let qpn = qp.get().unwrap().c.base.qp_num;
    let step = |state: QpState, mask: c_int| {
        let attr = QpAttr {
            qp_state: state as u32,
            path_mtu: 3,
            dest_qp_num: qpn,
            qp_access_flags: 2,
            ah_attr: to,
            port_num: 1,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..zeroed()
        };
        qp::modify_qp(qp, In::to(&attr), mask)
    };
    assert_eq!(step(QpState::Rts, 1), EINVAL);
    assert_eq!(step(QpState::Init, 0x39), 0);
    assert_eq!(step(QpState::Rtr, 0x12_9181), 0);
    assert_eq!(step(QpState::Rts, 0x1_2e01), 0);
    assert_eq!(qp.get().unwrap().c.base.state.load(std::sync::atomic::Ordering::Relaxed), 3);
}

fn register(pd: Handle<IbvPd>, memory: &mut [u8], flags: u32) -> Handle<IbvMr> {
    let mr = mr::reg_mr(pd, Out::to(&mut memory[0]), memory.len(), flags);
    assert!(!mr.is_null());
    mr
}

#[test]
fn domain_with_address_handles_is_not_deallocated() {
    let context = open();
    let pd = pd::alloc_pd(context);
    let ah = ah::create_ah(pd, In::to(&own_address(context)));
    assert_eq!((pd::dealloc_pd(pd), errno()), (EBUSY, EBUSY));
    let ends = (ah::destroy_ah(ah), pd::dealloc_pd(pd), open::close_device(context));
    assert_eq!(ends, (0, 0, 0));
}

#[test]
fn message_passes_through_structures_of_c() {
    let context = open();
    let (pd, cq) = (pd::alloc_pd(context), make_cq(context, Handle::NULL));
    let qp = make_qp(pd, cq, Handle::NULL);
    connect(context, qp);
    let mut memory = *b"hello.....";
    let mr = register(pd, &mut memory, 1);
    let lkey = mr.get().unwrap().lkey().0;
    let addr = Out::to(&mut memory[0]).as_ptr().expose_provenance() as u64;

    let place = Sge { addr: addr + 5, length: 5, lkey };
    let receive = RecvWr { wr_id: 1, sg_list: In::to(&place), num_sge: 1, ..zeroed() };
    assert_eq!(post::post_recv(qp, In::to(&receive), Out::NULL), 0);
    let source = Sge { addr, length: 5, lkey };
    let imm = 0x1234_5678_u32.to_be();
    let send = SendWr {
        wr_id: 2,
        sg_list: In::to(&source),
        num_sge: 1,
        opcode: 3,
        send_flags: 2,
        imm_or_key: imm,
        ..zeroed()
    };
    assert_eq!(post::post_send(qp, In::to(&send), Out::NULL), 0);

    let mut seen = [(); 2].map(|()| next_completion(cq));
    seen.sort_by_key(|wc| wc.wr_id);
    let [received, sent] = seen;
    assert_eq!((received.status, received.opcode, received.byte_len), (0, 128, 5));
    assert_eq!((received.wc_flags, received.imm_or_key), (abi::WC_GRH | abi::WC_WITH_IMM, imm));
    assert_eq!((sent.status, sent.opcode), (0, 0));
    assert_eq!(&memory, b"hellohello");

    assert_eq!(qp::destroy_qp(qp), 0);
    assert_eq!((mr::dereg_mr(mr), cq::destroy_cq(cq), pd::dealloc_pd(pd)), (0, 0, 0));
    assert_eq!(open::close_device(context), 0);
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let context = open();
    let channel = channel::create_comp_channel(context);
    let (pd, cq) = (pd::alloc_pd(context), make_cq(context, channel));
    let mut attr =
        abi::SrqInitAttr { attr: abi::SrqAttr { max_wr: 4, max_sge: 1, srq_limit: 0 }, ..zeroed() };
    let srq = srq::create_srq(pd, Out::to(&mut attr));
    let qp = make_qp(pd, cq, srq);
    for refused in [
        channel::destroy_comp_channel(channel),
        pd::dealloc_pd(pd),
        cq::destroy_cq(cq),
        srq::destroy_srq(srq),
    ] {
        assert_eq!((refused, errno()), (EBUSY, EBUSY));
    }
    assert_eq!((qp::destroy_qp(qp), srq::destroy_srq(srq), cq::destroy_cq(cq)), (0, 0, 0));
    assert_eq!((channel::destroy_comp_channel(channel), pd::dealloc_pd(pd)), (0, 0));
    assert_eq!(open::close_device(context), 0);
}

#[test]
fn first_bad_request_of_a_list_is_reported() {
    let context = open();
    let (pd, cq) = (pd::alloc_pd(context), make_cq(context, Handle::NULL));
    let qp = make_qp(pd, cq, Handle::NULL);
    connect(context, qp);
    let receive = |wr_id, next| RecvWr { wr_id, next, ..zeroed() };
    // The queue holds four.
    let sixth = receive(6, In::NULL);
    let fifth = receive(5, In::to(&sixth));
    let fourth = receive(4, In::to(&fifth));
    let third = receive(3, In::to(&fourth));
    let second = receive(2, In::to(&third));
    let first = receive(1, In::to(&second));
    let mut bad = In::NULL;
    assert_eq!(post::post_recv(qp, In::to(&first), Out::to(&mut bad)), ENOMEM);
    assert_eq!(bad.read().unwrap().wr_id, 5);

    // An unknown opcode after a known one.
    let odd = SendWr { wr_id: 2, opcode: 99, ..zeroed() };
    let even = SendWr { wr_id: 1, opcode: 2, send_flags: 2, next: In::to(&odd), ..zeroed() };
    let mut bad = In::NULL;
    assert_eq!(post::post_send(qp, In::to(&even), Out::to(&mut bad)), EINVAL);
    assert_eq!(bad.read().unwrap().wr_id, 2);
    assert_eq!((qp::destroy_qp(qp), cq::destroy_cq(cq), pd::dealloc_pd(pd)), (0, 0, 0));
    assert_eq!(open::close_device(context), 0);
}

#[test]
fn null_handles_return_errors() {
    let null = Handle::<IbvContext>::NULL;
    assert!(pd::alloc_pd(null).is_null() && errno() == EINVAL);
    assert!(open::open_device(Handle::NULL).is_null() && errno() == EINVAL);
    assert!(cq::create_cq(null, 1, null_mut(), Handle::NULL, 0).is_null());
    assert!(qp::create_qp(Handle::NULL, Out::NULL).is_null() && errno() == EINVAL);
    assert_eq!(cq::poll_cq(Handle::NULL, 1, Out::NULL), -1);
    assert_eq!(post::post_send(Handle::NULL, In::NULL, Out::NULL), EINVAL);
    assert_eq!(qp::destroy_qp(Handle::NULL), EINVAL);
    assert_eq!(events::get_async_event(null, Out::NULL), -1);
    device::free_device_list(Handle::NULL);
    events::ack_async_event(In::NULL);
}

#[test]
fn missing_memory_is_not_registered() {
    let context = open();
    let pd = pd::alloc_pd(context);
    // The first page is not mapped.
    assert!(mr::reg_mr(pd, Out::anywhere(64), 64, 1).is_null());
    assert_eq!(errno(), EFAULT);
    // Unknown optional flags are ignored; other unknown flags are errors.
    let mut memory = [0; 64];
    assert_eq!(mr::dereg_mr(register(pd, &mut memory, 1 | 1 << 29)), 0);
    assert!(mr::reg_mr(pd, Out::to(&mut memory[0]), 64, 1 | 1 << 18).is_null());
    assert_eq!(errno(), EINVAL);
    assert_eq!((pd::dealloc_pd(pd), open::close_device(context)), (0, 0));
}

/// Programs unmap memory that is still registered. The allocator unmaps a freed block of this size; new mappings
/// are then placed at the end of the gap, not in its middle.
#[test]
fn memory_that_has_gone_is_an_error_of_the_request() {
    let context = open();
    let (pd, cq) = (pd::alloc_pd(context), make_cq(context, Handle::NULL));
    let qp = make_qp(pd, cq, Handle::NULL);
    connect(context, qp);
    let mut memory = vec![0; 64 << 20];
    let mr = register(pd, &mut memory, 1);
    let addr = Out::to(&mut memory[32 << 20]).as_ptr().expose_provenance() as u64;
    drop(memory);
    let gone = Sge { addr, length: 8, lkey: mr.get().unwrap().lkey().0 };
    let send = SendWr { sg_list: In::to(&gone), num_sge: 1, opcode: 2, ..zeroed() };
    assert_eq!(post::post_send(qp, In::to(&send), Out::NULL), 0);
    let wc = next_completion(cq);
    // IBV_WC_LOC_PROT_ERR.
    assert_eq!(wc.status, 4);
    assert_eq!((qp::destroy_qp(qp), mr::dereg_mr(mr)), (0, 0));
    assert_eq!((cq::destroy_cq(cq), pd::dealloc_pd(pd), open::close_device(context)), (0, 0, 0));
}

#[test]
fn non_blocking_descriptor_returns_at_once() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::os::fd::AsFd;
    let context = open();
    let channel = channel::create_comp_channel(context);
    let known = channel.get().unwrap();
    let flags = || fcntl(known.verbs.as_fd(), FcntlArg::F_GETFL).unwrap();
    assert_eq!(flags() & OFlag::O_NONBLOCK.bits(), 0);
    fcntl(known.verbs.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let (mut cq, mut word) = (Handle::NULL, null_mut());
    let answer = channel::get_cq_event(channel, Out::to(&mut cq), Out::to(&mut word));
    assert_eq!((answer, errno()), (-1, EAGAIN));
    assert_eq!((channel::destroy_comp_channel(channel), open::close_device(context)), (0, 0));
}

#[test]
fn queries_write_no_more_than_the_caller_has_room_for() {
    let context = open();
    let mut attr: abi::PortAttr = zeroed();
    attr.active_speed_ex = 77;
    attr.port_cap_flags2 = 78;
    assert_eq!(query::query_port(context, 1, Out::to(&mut attr)), 0);
    assert_eq!((attr.state, attr.link_layer, attr.port_cap_flags2), (4, 2, 78));
    assert_eq!(attr.active_speed_ex, 77);
    assert_eq!(query::query_port(context, 2, Out::to(&mut attr)), EINVAL);
    let mut attr: abi::DeviceAttrEx = zeroed();
    attr.phys_port_cnt_ex = 79;
    let size = size_of::<abi::DeviceAttrEx>() - 8;
    assert_eq!(query::query_device_ex(context, In::NULL, Out::to(&mut attr), size), 0);
    assert_eq!((attr.hca_core_clock, attr.phys_port_cnt_ex), (1_000_000, 79));
    assert_eq!(open::close_device(context), 0);
}

#[test]
fn unsupported_features_return_eopnotsupp() {
    assert_eq!((crate::entry::unsupported::error(), errno()), (EOPNOTSUPP, EOPNOTSUPP));
    let context = open();
    let mut attr: abi::CqInitAttrEx = zeroed();
    // Flow tags.
    (attr.cqe, attr.wc_flags) = (1, 1 << 9);
    assert!(cq::create_cq_ex(context, In::to(&attr)).is_null());
    assert_eq!(errno(), EOPNOTSUPP);
    assert_eq!(open::close_device(context), 0);
}

#[test]
fn panic_does_not_unwind_past_the_border() {
    let answer = call::zero_or_errno(|| panic!("this one is meant"));
    assert_eq!((answer, errno()), (nix::libc::EIO, nix::libc::EIO));
}
