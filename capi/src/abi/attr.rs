//! Attributes for the creation and change of objects.

use std::ffi::{c_int, c_uint};

use super::{Handle, IbvCompChannel, IbvCq, IbvPd, IbvSrq, IbvTd, IbvXrcd, UserData, layout};

/// `ibv_ah_attr` with its `ibv_global_route`. In C a GID has two integers of 64 bits.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct AhAttr {
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}
layout!(AhAttr, 32, flow_label: 16, sgid_index: 20, hop_limit: 21, traffic_class: 22, dlid: 24,
    sl: 26, is_global: 29, port_num: 30);

/// `ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}
layout!(QpCap, 20, max_inline_data: 16);

/// `ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpAttr {
    pub(crate) qp_state: c_uint,
    pub(crate) cur_qp_state: c_uint,
    pub(crate) path_mtu: c_uint,
    pub(crate) path_mig_state: c_uint,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: QpCap,
    pub(crate) ah_attr: AhAttr,
    pub(crate) alt_ah_attr: AhAttr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}
layout!(QpAttr, 144, qkey: 16, qp_access_flags: 32, cap: 36, ah_attr: 56, alt_ah_attr: 88,
    pkey_index: 120, en_sqd_async_notify: 124, timeout: 130, alt_timeout: 134, rate_limit: 136);

/// `ibv_qp_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: UserData,
    pub(crate) send_cq: Handle<IbvCq>,
    pub(crate) recv_cq: Handle<IbvCq>,
    pub(crate) srq: Handle<IbvSrq>,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_uint,
    pub(crate) sq_sig_all: c_int,
}
layout!(QpInitAttr, 64, send_cq: 8, recv_cq: 16, srq: 24, cap: 32, qp_type: 52, sq_sig_all: 56);

/// `ibv_qp_init_attr_ex`. Attributes of queue pairs for Ethernet frames are ignored.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpInitAttrEx {
    pub(crate) qp_context: UserData,
    pub(crate) send_cq: Handle<IbvCq>,
    pub(crate) recv_cq: Handle<IbvCq>,
    pub(crate) srq: Handle<IbvSrq>,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_uint,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: Handle<IbvPd>,
    pub(crate) xrcd: Handle<IbvXrcd>,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) of_frames: [u64; 5],
    pub(crate) send_ops_flags: u64,
}
layout!(QpInitAttrEx, 136, cap: 32, qp_type: 52, sq_sig_all: 56, comp_mask: 60, pd: 64, xrcd: 72,
    create_flags: 80, of_frames: 88, send_ops_flags: 128);

/// Number of bytes that `ibv_qp_init_attr_ex` and `ibv_qp_init_attr` have in common. The former has its mask
/// in the padding of the latter.
pub(crate) const QP_INIT_ATTR_SHARED: usize = 60;

/// `ibv_qp_open_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QpOpenAttr {
    pub(crate) comp_mask: u32,
    pub(crate) qp_num: u32,
    pub(crate) xrcd: Handle<IbvXrcd>,
    pub(crate) qp_context: UserData,
    pub(crate) qp_type: c_uint,
}
layout!(QpOpenAttr, 32, qp_num: 4, xrcd: 8, qp_context: 16, qp_type: 24);

/// `ibv_srq_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SrqAttr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}
layout!(SrqAttr, 12, max_sge: 4, srq_limit: 8);

/// `ibv_srq_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SrqInitAttr {
    pub(crate) srq_context: UserData,
    pub(crate) attr: SrqAttr,
}
layout!(SrqInitAttr, 24, attr: 8);

/// `ibv_srq_init_attr_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SrqInitAttrEx {
    pub(crate) srq_context: UserData,
    pub(crate) attr: SrqAttr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: c_uint,
    pub(crate) pd: Handle<IbvPd>,
    pub(crate) xrcd: Handle<IbvXrcd>,
    pub(crate) cq: Handle<IbvCq>,
    pub(crate) tm_cap: [u32; 2],
}
layout!(SrqInitAttrEx, 64, attr: 8, comp_mask: 20, srq_type: 24, pd: 32, xrcd: 40, cq: 48);

/// `ibv_cq_init_attr_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CqInitAttrEx {
    pub(crate) cqe: u32,
    pub(crate) cq_context: UserData,
    pub(crate) channel: Handle<IbvCompChannel>,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: Handle<IbvPd>,
}
layout!(CqInitAttrEx, 56, cq_context: 8, channel: 16, comp_vector: 24, wc_flags: 32, comp_mask: 40,
    flags: 44, parent_domain: 48);

/// `ibv_poll_cq_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PollCqAttr {
    pub(crate) comp_mask: u32,
}
layout!(PollCqAttr, 4);

/// `ibv_modify_cq_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ModifyCqAttr {
    pub(crate) attr_mask: u32,
    pub(crate) cq_count: u16,
    pub(crate) cq_period: u16,
}
layout!(ModifyCqAttr, 8, cq_count: 4, cq_period: 6);

/// `ibv_xrcd_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct XrcdInitAttr {
    pub(crate) comp_mask: u32,
    pub(crate) fd: c_int,
    pub(crate) oflags: c_int,
}
layout!(XrcdInitAttr, 12, fd: 4, oflags: 8);

/// `ibv_td_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TdInitAttr {
    pub(crate) comp_mask: u32,
}
layout!(TdInitAttr, 4);

/// `ibv_parent_domain_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ParentDomainInitAttr {
    pub(crate) pd: Handle<IbvPd>,
    pub(crate) td: Handle<IbvTd>,
    pub(crate) comp_mask: u32,
    /// Allocators for memory of queues, which are ignored.
    pub(crate) allocators: [usize; 2],
    pub(crate) pd_context: UserData,
}
layout!(ParentDomainInitAttr, 48, td: 8, comp_mask: 16, allocators: 24, pd_context: 40);

/// `ibv_alloc_dm_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocDmAttr {
    pub(crate) length: usize,
    pub(crate) log_align_req: u32,
    pub(crate) comp_mask: u32,
}
layout!(AllocDmAttr, 16, log_align_req: 8, comp_mask: 12);

/// `ibv_qp_rate_limit_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RateLimitAttr {
    pub(crate) rate_limit: u32,
    pub(crate) max_burst_sz: u32,
    pub(crate) typical_pkt_sz: u16,
    pub(crate) comp_mask: u32,
}
layout!(RateLimitAttr, 16, max_burst_sz: 4, typical_pkt_sz: 8, comp_mask: 12);
