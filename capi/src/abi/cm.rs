//! The structures of `rdma/rdma_user_cm.h`, version 4, which `librdmacm` writes to `/dev/infiniband/rdma_cm`.
//!
//! A field `response` is the address of memory for the answer. Integers have the byte order of the machine, unless their
//! documentation says otherwise. All padding has a name, so that every byte of an answer is defined.

use super::{QpCap, layout};

/// `rdma_ucm_cmd_hdr`, before each command.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmHeader {
    /// Number of the command.
    pub(crate) cmd: u32,
    /// Length of the structure behind it, in bytes.
    pub(crate) len: u16,
    /// Room for the answer, in bytes.
    pub(crate) room: u16,
}
layout!(CmHeader, 8, len: 4, room: 6);

/// `sockaddr_in6`, which has room for `sockaddr_in` too.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
pub(crate) struct ShortAddress(pub(crate) [u8; 28]);

/// `__kernel_sockaddr_storage`.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
pub(crate) struct LongAddress(pub(crate) [u8; 128]);

/// `rdma_ucm_create_id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CreateId {
    pub(crate) uid: u64,
    pub(crate) response: u64,
    /// `rdma_ucm_port_space`.
    pub(crate) port_space: u16,
    pub(crate) qp_type: u8,
    pub(crate) reserved: [u8; 5],
}
layout!(CreateId, 24, response: 8, port_space: 16, qp_type: 18);

/// `rdma_ucm_destroy_id`, and `rdma_ucm_leave_mcast` with the number of a group.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DestroyId {
    pub(crate) response: u64,
    pub(crate) id: u32,
    pub(crate) reserved: u32,
}
layout!(DestroyId, 16, id: 8);

/// `rdma_ucm_bind_ip`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindIp {
    pub(crate) response: u64,
    pub(crate) address: ShortAddress,
    pub(crate) id: u32,
}
layout!(BindIp, 40, address: 8, id: 36);

/// `rdma_ucm_bind`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BindAny {
    pub(crate) id: u32,
    pub(crate) address_size: u16,
    pub(crate) reserved: u16,
    pub(crate) address: LongAddress,
}
layout!(BindAny, 136, address_size: 4, reserved: 6, address: 8);

/// `rdma_ucm_resolve_ip`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ResolveIp {
    pub(crate) source: ShortAddress,
    pub(crate) destination: ShortAddress,
    pub(crate) id: u32,
    pub(crate) timeout_ms: u32,
}
layout!(ResolveIp, 64, destination: 28, id: 56, timeout_ms: 60);

/// `rdma_ucm_resolve_addr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ResolveAddr {
    pub(crate) id: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) source_size: u16,
    pub(crate) destination_size: u16,
    pub(crate) reserved: u32,
    pub(crate) source: LongAddress,
    pub(crate) destination: LongAddress,
}
layout!(ResolveAddr, 272, timeout_ms: 4, source_size: 8, destination_size: 10, source: 16,
    destination: 144);

/// `rdma_ucm_resolve_route`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ResolveRoute {
    pub(crate) id: u32,
    pub(crate) timeout_ms: u32,
}
layout!(ResolveRoute, 8, timeout_ms: 4);

/// `rdma_ucm_query`, and `rdma_ucm_init_qp_attr` with a state as option.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmQuery {
    pub(crate) response: u64,
    pub(crate) id: u32,
    pub(crate) option: u32,
}
layout!(CmQuery, 16, id: 8, option: 12);

/// `ib_user_path_rec`. The fields of `be16` and `be32` are big-endian.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UserPathRec {
    pub(crate) dgid: [u8; 16],
    pub(crate) sgid: [u8; 16],
    pub(crate) dlid_be: u16,
    pub(crate) slid_be: u16,
    pub(crate) raw_traffic: u32,
    pub(crate) flow_label_be: u32,
    pub(crate) reversible: u32,
    pub(crate) mtu: u32,
    pub(crate) pkey_be: u16,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) numb_path: u8,
    pub(crate) sl: u8,
    pub(crate) limits: UserPathLimits,
}
layout!(UserPathRec, 64, sgid: 16, dlid_be: 32, raw_traffic: 36, flow_label_be: 40, mtu: 48,
    pkey_be: 52, hop_limit: 54, sl: 57, limits: 58);

/// The end of [`UserPathRec`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UserPathLimits {
    pub(crate) mtu_selector: u8,
    pub(crate) rate_selector: u8,
    pub(crate) rate: u8,
    pub(crate) packet_life_time_selector: u8,
    pub(crate) packet_life_time: u8,
    pub(crate) preference: u8,
}
layout!(UserPathLimits, 6, packet_life_time: 4);

/// `ibv_sa_path_rec`. The fields of `be16` and `be32` are big-endian.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SaPathRec {
    pub(crate) dgid: [u8; 16],
    pub(crate) sgid: [u8; 16],
    pub(crate) dlid_be: u16,
    pub(crate) slid_be: u16,
    pub(crate) raw_traffic: u32,
    pub(crate) flow_label_be: u32,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) reserved: u16,
    pub(crate) reversible: u32,
    pub(crate) numb_path: u8,
    pub(crate) padding: u8,
    pub(crate) pkey_be: u16,
    pub(crate) limits: SaPathLimits,
}
layout!(SaPathRec, 64, sgid: 16, dlid_be: 32, raw_traffic: 36, flow_label_be: 40, hop_limit: 44,
    reversible: 48, numb_path: 52, pkey_be: 54, limits: 56);

/// The end of [`SaPathRec`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SaPathLimits {
    pub(crate) sl: u8,
    pub(crate) mtu_selector: u8,
    pub(crate) mtu: u8,
    pub(crate) rate_selector: u8,
    pub(crate) rate: u8,
    pub(crate) packet_life_time_selector: u8,
    pub(crate) packet_life_time: u8,
    pub(crate) preference: u8,
}
layout!(SaPathLimits, 8, mtu: 2, packet_life_time: 6);

/// `ibv_path_record`, a path record of the subnet administrator: all integers are big-endian.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct PathRecord {
    pub(crate) service_id: [u8; 8],
    pub(crate) dgid: [u8; 16],
    pub(crate) sgid: [u8; 16],
    pub(crate) dlid: [u8; 2],
    pub(crate) slid: [u8; 2],
    /// Flow label in bits 8 to 27, hop limit in bits 0 to 7.
    pub(crate) flow_label_hop_limit: [u8; 4],
    pub(crate) traffic_class: u8,
    /// Whether the path is reversible, in bit 7; number of paths.
    pub(crate) reversible_numb_path: u8,
    pub(crate) pkey: [u8; 2],
    /// QoS class, and service level in bits 0 to 3.
    pub(crate) class_sl: [u8; 2],
    /// Selector in bits 6 and 7.
    pub(crate) mtu: u8,
    /// Selector in bits 6 and 7.
    pub(crate) rate: u8,
    /// Selector in bits 6 and 7.
    pub(crate) packet_life_time: u8,
    pub(crate) preference: u8,
    pub(crate) reserved: [u8; 6],
}
layout!(PathRecord, 64, dgid: 8, sgid: 24, dlid: 40, flow_label_hop_limit: 44, traffic_class: 48,
    pkey: 50, class_sl: 52, mtu: 54, packet_life_time: 56, reserved: 58);

/// `ibv_path_data`, `ib_path_rec_data`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PathData {
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
    pub(crate) path: PathRecord,
}
layout!(PathData, 72, path: 8);

/// `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`, the flags of a path that connections use.
pub(crate) const PATH_FLAGS: u32 = 0x2b;

/// `rdma_ucm_query_route_resp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RouteAnswer {
    /// Big-endian.
    pub(crate) node_guid: [u8; 8],
    pub(crate) paths: [UserPathRec; 2],
    pub(crate) source: ShortAddress,
    pub(crate) destination: ShortAddress,
    pub(crate) path_count: u32,
    pub(crate) port: u8,
    pub(crate) reserved: [u8; 3],
    pub(crate) device_index: u32,
    pub(crate) padding: u32,
}
layout!(RouteAnswer, 208, paths: 8, source: 136, destination: 164, path_count: 192, port: 196,
    device_index: 200);

/// `rdma_ucm_query_addr_resp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AddressAnswer {
    /// Big-endian; 0 for an id without a device.
    pub(crate) node_guid: [u8; 8],
    pub(crate) port: u8,
    pub(crate) reserved: u8,
    /// Big-endian.
    pub(crate) pkey_be: u16,
    pub(crate) source_size: u16,
    pub(crate) destination_size: u16,
    pub(crate) source: LongAddress,
    pub(crate) destination: LongAddress,
    pub(crate) device_index: u32,
    pub(crate) padding: u32,
}
layout!(AddressAnswer, 280, port: 8, pkey_be: 10, source_size: 12, source: 16, destination: 144,
    device_index: 272);

/// `rdma_ucm_query_path_resp` with one path.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PathAnswer {
    pub(crate) path_count: u32,
    pub(crate) reserved: u32,
    pub(crate) path: PathData,
}
layout!(PathAnswer, 80, path: 8);

/// Room for private data (`RDMA_MAX_PRIVATE_DATA`). The messages have less.
pub(crate) const PRIVATE_DATA_ROOM: usize = 256;

/// `rdma_ucm_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConnParam {
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
    pub(crate) private_data: [u8; PRIVATE_DATA_ROOM],
    pub(crate) private_data_len: u8,
    pub(crate) srq: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) valid: u8,
}
layout!(ConnParam, 272, private_data: 8, private_data_len: 264, srq: 265, flow_control: 268,
    valid: 271);

/// `ib_uverbs_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelAhAttr {
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) reserved: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
    pub(crate) padding: u8,
}
layout!(KernelAhAttr, 32, flow_label: 16, sgid_index: 20, traffic_class: 22, dlid: 24, sl: 26,
    is_global: 29, port_num: 30);

/// `rdma_ucm_ud_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UdParam {
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
    pub(crate) ah_attr: KernelAhAttr,
    pub(crate) private_data: [u8; PRIVATE_DATA_ROOM],
    pub(crate) private_data_len: u8,
    pub(crate) reserved: [u8; 7],
}
layout!(UdParam, 304, ah_attr: 8, private_data: 40, private_data_len: 296);

/// `rdma_ucm_ece`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmEce {
    pub(crate) vendor_id: u32,
    pub(crate) attr_mod: u32,
}
layout!(CmEce, 8, attr_mod: 4);

/// `rdma_ucm_connect`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmConnect {
    pub(crate) param: ConnParam,
    pub(crate) id: u32,
    pub(crate) reserved: u32,
    pub(crate) ece: CmEce,
}
layout!(CmConnect, 288, id: 272, ece: 280);

/// `rdma_ucm_listen`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmListen {
    pub(crate) id: u32,
    pub(crate) backlog: u32,
}
layout!(CmListen, 8, backlog: 4);

/// `rdma_ucm_accept`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmAccept {
    pub(crate) uid: u64,
    pub(crate) param: ConnParam,
    pub(crate) id: u32,
    pub(crate) reserved: u32,
    pub(crate) ece: CmEce,
}
layout!(CmAccept, 296, param: 8, id: 280, ece: 288);

/// `rdma_ucm_reject`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmReject {
    pub(crate) id: u32,
    pub(crate) private_data_len: u8,
    pub(crate) reason: u8,
    pub(crate) reserved: [u8; 2],
    pub(crate) private_data: [u8; PRIVATE_DATA_ROOM],
}
layout!(CmReject, 264, private_data_len: 4, reason: 5, private_data: 8);

/// `rdma_ucm_notify`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CmNotify {
    pub(crate) id: u32,
    pub(crate) event: u32,
}
layout!(CmNotify, 8, event: 4);

/// `rdma_ucm_join_ip_mcast`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct JoinIpMcast {
    pub(crate) response: u64,
    pub(crate) uid: u64,
    pub(crate) address: ShortAddress,
    pub(crate) id: u32,
}
layout!(JoinIpMcast, 48, uid: 8, address: 16, id: 44);

/// `rdma_ucm_join_mcast`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct JoinMcast {
    pub(crate) response: u64,
    pub(crate) uid: u64,
    pub(crate) id: u32,
    pub(crate) address_size: u16,
    pub(crate) flags: u16,
    pub(crate) address: LongAddress,
}
layout!(JoinMcast, 152, uid: 8, id: 16, address_size: 20, flags: 22, address: 24);

/// `rdma_ucm_set_option`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SetOption {
    pub(crate) value: u64,
    pub(crate) id: u32,
    pub(crate) level: u32,
    pub(crate) name: u32,
    pub(crate) len: u32,
}
layout!(SetOption, 24, id: 8, level: 12, name: 16, len: 20);

/// `rdma_ucm_migrate_id`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MigrateId {
    pub(crate) response: u64,
    pub(crate) id: u32,
    /// Descriptor of the channel that has the id.
    pub(crate) fd: i32,
}
layout!(MigrateId, 16, id: 8, fd: 12);

/// `rdma_ucm_event_resp` with one of its parameters.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventAnswer<P> {
    pub(crate) uid: u64,
    pub(crate) id: u32,
    /// `rdma_cm_event_type`.
    pub(crate) event: u32,
    pub(crate) status: i32,
    pub(crate) param: P,
    pub(crate) reserved: u32,
    pub(crate) ece: CmEce,
}
layout!(EventAnswer<UdParam>, 336, id: 8, event: 12, status: 16, param: 20, ece: 328);
layout!(EventAnswer<ConnEvent>, 336, param: 20, ece: 328);
layout!(EventAnswer<ArgumentEvent>, 336, param: 20, ece: 328);

/// Parameters of connections in an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConnEvent {
    pub(crate) param: ConnParam,
    pub(crate) reserved: [u32; 8],
}
layout!(ConnEvent, 304);

/// Argument of an event that the program has written.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ArgumentEvent {
    /// The lower and the upper half of 64 bits, on machines with the lower half first.
    pub(crate) argument: [u32; 2],
    pub(crate) reserved: [u32; 74],
}
layout!(ArgumentEvent, 304);

/// `rdma_ucm_write_cm_event`, with the argument as its parameter.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WriteEvent {
    pub(crate) id: u32,
    pub(crate) reserved: u32,
    pub(crate) event: u32,
    pub(crate) status: i32,
    pub(crate) argument: u64,
    pub(crate) rest: [u32; 74],
}
layout!(WriteEvent, 320, event: 8, status: 12, argument: 16);

/// `ib_uverbs_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelQpAttr {
    pub(crate) mask: u32,
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: u32,
    pub(crate) ah_attr: KernelAhAttr,
    pub(crate) alt_ah_attr: KernelAhAttr,
    pub(crate) cap: QpCap,
    pub(crate) end: KernelQpAttrEnd,
}
layout!(KernelQpAttr, 144, qp_state: 4, path_mtu: 12, qkey: 20, rq_psn: 24, sq_psn: 28,
    dest_qp_num: 32, qp_access_flags: 36, ah_attr: 40, alt_ah_attr: 72, cap: 104, end: 124);

/// The end of [`KernelQpAttr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelQpAttrEnd {
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
    pub(crate) reserved: [u8; 5],
}
layout!(KernelQpAttrEnd, 20, en_sqd_async_notify: 4, max_rd_atomic: 6, min_rnr_timer: 8,
    port_num: 9, timeout: 10, alt_timeout: 14);
