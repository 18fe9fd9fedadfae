//! Structures that the library allocates. The program and the inline functions of its headers read them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use super::layout;
use super::{
    AllocDmAttr, CqInitAttrEx, DataBuf, DeviceAttr, DeviceAttrEx, Handle, IbvAh, IbvCompChannel,
    IbvContext, IbvCq, IbvDevice, IbvDm, IbvMr, IbvMw, IbvPd, IbvQp, IbvSrq, IbvTd, IbvXrcd, In,
    ModifyCqAttr, MwBind, MwBindInfo, Out, ParentDomainInitAttr, PollCqAttr, PortAttr,
    QpInitAttrEx, QpOpenAttr, RateLimitAttr, RecvWr, SendWr, Sge, SrqInitAttrEx, TdInitAttr,
    ValuesEx, Wc, XrcdInitAttr,
};

/// A null pointer in place of a function that the library does not have.
pub(crate) type Missing = usize;

/// A `pthread_mutex_t`, which the library does not lock. Zeros are an unlocked one.
pub(crate) type Mutex = [AtomicU64; 5];

/// A `pthread_cond_t`, which the library does not use.
pub(crate) type Cond = [AtomicU64; 6];

/// `ibv_device`, with the fields that only the private headers of providers declare.
#[repr(C)]
pub(crate) struct DeviceHead {
    pub(crate) dummies: [Missing; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [AtomicU8; 64],
    pub(crate) dev_name: [AtomicU8; 64],
    pub(crate) dev_path: [AtomicU8; 256],
    pub(crate) ibdev_path: [AtomicU8; 256],
}
layout!(DeviceHead, 664, node_type: 16, transport_type: 20, name: 24, dev_name: 88, dev_path: 152,
    ibdev_path: 408);

/// The array that `ibv_get_device_list` returns: the device, and null.
#[repr(C)]
pub(crate) struct DeviceList(pub(crate) [Handle<IbvDevice>; 2]);
layout!(DeviceList, 16);

/// `ibv_context_ops`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ContextOps {
    pub(crate) query_device: extern "C" fn(Handle<IbvContext>, Out<DeviceAttr>) -> c_int,
    pub(crate) query_port: extern "C" fn(Handle<IbvContext>, u8, Out<PortAttr>) -> c_int,
    pub(crate) none_a: [Missing; 5],
    pub(crate) alloc_mw: extern "C" fn(Handle<IbvPd>, c_uint) -> Handle<IbvMw>,
    pub(crate) bind_mw: extern "C" fn(Handle<IbvQp>, Handle<IbvMw>, In<MwBind>) -> c_int,
    pub(crate) dealloc_mw: extern "C" fn(Handle<IbvMw>) -> c_int,
    pub(crate) none_b: [Missing; 1],
    pub(crate) poll_cq: extern "C" fn(Handle<IbvCq>, c_int, Out<Wc>) -> c_int,
    pub(crate) req_notify_cq: extern "C" fn(Handle<IbvCq>, c_int) -> c_int,
    pub(crate) none_c: [Missing; 7],
    pub(crate) post_srq_recv: extern "C" fn(Handle<IbvSrq>, In<RecvWr>, Out<In<RecvWr>>) -> c_int,
    pub(crate) none_d: [Missing; 4],
    pub(crate) post_send: extern "C" fn(Handle<IbvQp>, In<SendWr>, Out<In<SendWr>>) -> c_int,
    pub(crate) post_recv: extern "C" fn(Handle<IbvQp>, In<RecvWr>, Out<In<RecvWr>>) -> c_int,
    pub(crate) none_e: [Missing; 5],
}
layout!(ContextOps, 256, query_device: 0, query_port: 8, alloc_mw: 56, bind_mw: 64, dealloc_mw: 72,
    poll_cq: 88, req_notify_cq: 96, post_srq_recv: 160, post_send: 200, post_recv: 208);

/// `ibv_context`.
#[repr(C)]
pub(crate) struct ContextHead {
    pub(crate) device: Handle<IbvDevice>,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: Mutex,
    /// All ones: the context is part of a [`VerbsContext`].
    pub(crate) abi_compat: usize,
}
layout!(ContextHead, 328, ops: 8, cmd_fd: 264, async_fd: 268, num_comp_vectors: 272, mutex: 280,
    abi_compat: 320);

/// `verbs_context`. New releases add fields at its beginning, and programs know a part at its end.
#[repr(C)]
pub(crate) struct VerbsContext {
    pub(crate) none_a: [Missing; 6],
    pub(crate) query_port: extern "C" fn(Handle<IbvContext>, u8, Out<PortAttr>, usize) -> c_int,
    pub(crate) advise_mr: extern "C" fn(Handle<IbvPd>, c_uint, u32, In<Sge>, u32) -> c_int,
    pub(crate) alloc_null_mr: extern "C" fn(Handle<IbvPd>) -> Handle<IbvMr>,
    pub(crate) none_b: [Missing; 4],
    pub(crate) reg_dm_mr:
        extern "C" fn(Handle<IbvPd>, Handle<IbvDm>, u64, usize, c_uint) -> Handle<IbvMr>,
    pub(crate) alloc_dm: extern "C" fn(Handle<IbvContext>, In<AllocDmAttr>) -> Handle<IbvDm>,
    pub(crate) free_dm: extern "C" fn(Handle<IbvDm>) -> c_int,
    pub(crate) none_c: [Missing; 3],
    pub(crate) modify_qp_rate_limit: extern "C" fn(Handle<IbvQp>, In<RateLimitAttr>) -> c_int,
    pub(crate) alloc_parent_domain:
        extern "C" fn(Handle<IbvContext>, In<ParentDomainInitAttr>) -> Handle<IbvPd>,
    pub(crate) dealloc_td: extern "C" fn(Handle<IbvTd>) -> c_int,
    pub(crate) alloc_td: extern "C" fn(Handle<IbvContext>, In<TdInitAttr>) -> Handle<IbvTd>,
    pub(crate) modify_cq: extern "C" fn(Handle<IbvCq>, In<ModifyCqAttr>) -> c_int,
    pub(crate) none_d: [Missing; 6],
    pub(crate) query_rt_values: extern "C" fn(Handle<IbvContext>, Out<ValuesEx>) -> c_int,
    pub(crate) create_cq_ex: extern "C" fn(Handle<IbvContext>, In<CqInitAttrEx>) -> Handle<IbvCq>,
    pub(crate) private: Missing,
    pub(crate) query_device_ex:
        extern "C" fn(Handle<IbvContext>, In<u32>, Out<DeviceAttrEx>, usize) -> c_int,
    pub(crate) none_e: [Missing; 4],
    pub(crate) open_qp: extern "C" fn(Handle<IbvContext>, In<QpOpenAttr>) -> Handle<IbvQp>,
    pub(crate) create_qp_ex: extern "C" fn(Handle<IbvContext>, Out<QpInitAttrEx>) -> Handle<IbvQp>,
    pub(crate) get_srq_num: extern "C" fn(Handle<IbvSrq>, Out<u32>) -> c_int,
    pub(crate) create_srq_ex:
        extern "C" fn(Handle<IbvContext>, Out<SrqInitAttrEx>) -> Handle<IbvSrq>,
    pub(crate) open_xrcd: extern "C" fn(Handle<IbvContext>, In<XrcdInitAttr>) -> Handle<IbvXrcd>,
    pub(crate) close_xrcd: extern "C" fn(Handle<IbvXrcd>) -> c_int,
    pub(crate) placeholder: u64,
    pub(crate) size: usize,
    pub(crate) context: ContextHead,
}
layout!(VerbsContext, 696, query_port: 48, advise_mr: 56, alloc_null_mr: 64, reg_dm_mr: 104,
    alloc_dm: 112, free_dm: 120, modify_qp_rate_limit: 152, alloc_parent_domain: 160,
    dealloc_td: 168, alloc_td: 176, modify_cq: 184, query_rt_values: 240, create_cq_ex: 248,
    query_device_ex: 264, open_qp: 304, create_qp_ex: 312, get_srq_num: 320, create_srq_ex: 328,
    open_xrcd: 336, close_xrcd: 344, size: 360, context: 368);

/// `ibv_pd`.
#[repr(C)]
pub(crate) struct PdHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) handle: u32,
}
layout!(PdHead, 16, handle: 8);

/// `ibv_mr`.
#[repr(C)]
pub(crate) struct MrHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) pd: AtomicPtr<c_void>,
    pub(crate) addr: AtomicPtr<c_void>,
    pub(crate) length: AtomicUsize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}
layout!(MrHead, 48, pd: 8, addr: 16, length: 24, handle: 32, lkey: 36, rkey: 40);

/// `ibv_mw`.
#[repr(C)]
pub(crate) struct MwHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) pd: Handle<IbvPd>,
    /// The program writes the key of a new binding of a window of type 2.
    pub(crate) rkey: AtomicU32,
    pub(crate) handle: u32,
    pub(crate) mw_type: c_uint,
}
layout!(MwHead, 32, pd: 8, rkey: 16, handle: 20, mw_type: 24);

/// `ibv_cq_ex`, whose beginning is `ibv_cq`.
#[repr(C)]
pub(crate) struct CqHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) channel: Handle<IbvCompChannel>,
    pub(crate) cq_context: AtomicPtr<c_void>,
    pub(crate) handle: u32,
    pub(crate) cqe: AtomicI32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) comp_events_completed: AtomicU32,
    pub(crate) async_events_completed: AtomicU32,
    pub(crate) comp_mask: u32,
    pub(crate) status: AtomicU32,
    pub(crate) wr_id: AtomicU64,
    pub(crate) read: CqRead,
}
layout!(CqHead, 288, channel: 8, cq_context: 16, handle: 24, cqe: 28, mutex: 32, cond: 72,
    comp_events_completed: 120, comp_mask: 128, status: 132, wr_id: 136, read: 144);

/// The functions of `ibv_cq_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CqRead {
    pub(crate) start_poll: extern "C" fn(Handle<IbvCq>, In<PollCqAttr>) -> c_int,
    pub(crate) next_poll: extern "C" fn(Handle<IbvCq>) -> c_int,
    pub(crate) end_poll: extern "C" fn(Handle<IbvCq>),
    pub(crate) opcode: extern "C" fn(Handle<IbvCq>) -> c_uint,
    pub(crate) vendor_err: extern "C" fn(Handle<IbvCq>) -> u32,
    pub(crate) byte_len: extern "C" fn(Handle<IbvCq>) -> u32,
    pub(crate) imm_data: extern "C" fn(Handle<IbvCq>) -> u32,
    pub(crate) qp_num: extern "C" fn(Handle<IbvCq>) -> u32,
    pub(crate) src_qp: extern "C" fn(Handle<IbvCq>) -> u32,
    pub(crate) wc_flags: extern "C" fn(Handle<IbvCq>) -> c_uint,
    pub(crate) slid: extern "C" fn(Handle<IbvCq>) -> u32,
    pub(crate) sl: extern "C" fn(Handle<IbvCq>) -> u8,
    pub(crate) dlid_path_bits: extern "C" fn(Handle<IbvCq>) -> u8,
    pub(crate) completion_ts: extern "C" fn(Handle<IbvCq>) -> u64,
    /// VLAN, flow tag and tag matching, which no queue has.
    pub(crate) none: [Missing; 3],
    pub(crate) completion_wallclock_ns: extern "C" fn(Handle<IbvCq>) -> u64,
}
layout!(CqRead, 144, next_poll: 8, opcode: 24, byte_len: 40, wc_flags: 72, slid: 80,
    completion_ts: 104, completion_wallclock_ns: 136);

/// `ibv_comp_channel`.
#[repr(C)]
pub(crate) struct ChannelHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) fd: c_int,
    pub(crate) refcnt: AtomicI32,
}
layout!(ChannelHead, 16, fd: 8, refcnt: 12);

/// `ibv_srq`.
#[repr(C)]
pub(crate) struct SrqHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) srq_context: AtomicPtr<c_void>,
    pub(crate) pd: Handle<IbvPd>,
    pub(crate) handle: u32,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) events_completed: AtomicU32,
}
layout!(SrqHead, 128, srq_context: 8, pd: 16, handle: 24, mutex: 32, cond: 72, events_completed: 120);

/// `ibv_qp`.
#[repr(C)]
pub(crate) struct QpHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) qp_context: AtomicPtr<c_void>,
    pub(crate) pd: Handle<IbvPd>,
    pub(crate) send_cq: Handle<IbvCq>,
    pub(crate) recv_cq: Handle<IbvCq>,
    pub(crate) srq: Handle<IbvSrq>,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: AtomicU32,
    pub(crate) qp_type: c_uint,
    pub(crate) mutex: Mutex,
    pub(crate) cond: Cond,
    pub(crate) events_completed: AtomicU32,
}
layout!(QpHead, 160, qp_context: 8, pd: 16, send_cq: 24, recv_cq: 32, srq: 40, handle: 48,
    qp_num: 52, state: 56, qp_type: 60, mutex: 64, cond: 104, events_completed: 152);

/// `ibv_qp_ex`.
#[repr(C)]
pub(crate) struct QpExHead {
    pub(crate) base: QpHead,
    pub(crate) comp_mask: u64,
    /// The program writes the field before each request.
    pub(crate) wr_id: AtomicU64,
    /// The program writes the field before each request.
    pub(crate) wr_flags: AtomicU32,
    pub(crate) wr: QpWr,
}
layout!(QpExHead, 360, comp_mask: 160, wr_id: 168, wr_flags: 176, wr: 184);

/// The functions of `ibv_qp_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpWr {
    pub(crate) atomic_cmp_swp: extern "C" fn(Handle<IbvQp>, u32, u64, u64, u64),
    pub(crate) atomic_fetch_add: extern "C" fn(Handle<IbvQp>, u32, u64, u64),
    pub(crate) bind_mw: extern "C" fn(Handle<IbvQp>, Handle<IbvMw>, u32, In<MwBindInfo>),
    pub(crate) local_inv: extern "C" fn(Handle<IbvQp>, u32),
    pub(crate) rdma_read: extern "C" fn(Handle<IbvQp>, u32, u64),
    pub(crate) rdma_write: extern "C" fn(Handle<IbvQp>, u32, u64),
    pub(crate) rdma_write_imm: extern "C" fn(Handle<IbvQp>, u32, u64, u32),
    pub(crate) send: extern "C" fn(Handle<IbvQp>),
    pub(crate) send_imm: extern "C" fn(Handle<IbvQp>, u32),
    pub(crate) send_inv: extern "C" fn(Handle<IbvQp>, u32),
    /// TCP segmentation, which no queue pair has.
    pub(crate) send_tso: Missing,
    pub(crate) set_ud_addr: extern "C" fn(Handle<IbvQp>, Handle<IbvAh>, u32, u32),
    pub(crate) set_xrc_srqn: extern "C" fn(Handle<IbvQp>, u32),
    pub(crate) set_inline_data: extern "C" fn(Handle<IbvQp>, In<u8>, usize),
    pub(crate) set_inline_data_list: extern "C" fn(Handle<IbvQp>, usize, In<DataBuf>),
    pub(crate) set_sge: extern "C" fn(Handle<IbvQp>, u32, u64, u32),
    pub(crate) set_sge_list: extern "C" fn(Handle<IbvQp>, usize, In<Sge>),
    pub(crate) start: extern "C" fn(Handle<IbvQp>),
    pub(crate) complete: extern "C" fn(Handle<IbvQp>) -> c_int,
    pub(crate) abort: extern "C" fn(Handle<IbvQp>),
    pub(crate) atomic_write: extern "C" fn(Handle<IbvQp>, u32, u64, In<u8>),
    pub(crate) flush: extern "C" fn(Handle<IbvQp>, u32, u64, usize, u8, u8),
}
layout!(QpWr, 176, bind_mw: 16, rdma_read: 32, send: 56, set_ud_addr: 88, set_sge: 120,
    start: 136, complete: 144, abort: 152, atomic_write: 160, flush: 168);

/// `ibv_ah`.
#[repr(C)]
pub(crate) struct AhHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) pd: Handle<IbvPd>,
    pub(crate) handle: u32,
}
layout!(AhHead, 24, pd: 8, handle: 16);

/// `ibv_xrcd`.
#[repr(C)]
pub(crate) struct XrcdHead {
    pub(crate) context: Handle<IbvContext>,
}
layout!(XrcdHead, 8, context: 0);

/// `ibv_td`.
#[repr(C)]
pub(crate) struct TdHead {
    pub(crate) context: Handle<IbvContext>,
}
layout!(TdHead, 8, context: 0);

/// `ibv_dm`.
#[repr(C)]
pub(crate) struct DmHead {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) memcpy_to_dm: extern "C" fn(Handle<IbvDm>, u64, In<u8>, usize) -> c_int,
    pub(crate) memcpy_from_dm: extern "C" fn(Out<u8>, Handle<IbvDm>, u64, usize) -> c_int,
    pub(crate) comp_mask: u32,
    pub(crate) handle: u32,
}
layout!(DmHead, 32, memcpy_to_dm: 8, memcpy_from_dm: 16, comp_mask: 24, handle: 28);

/// A C string that is never freed.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(pub(crate) *const c_char);
