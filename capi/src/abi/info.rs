//! Attributes of the device, its port and its GIDs.

use std::ffi::{c_int, c_uint};

use super::layout;

/// `ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [u8; 64],
    pub(crate) node_guid: [u8; 8],
    pub(crate) sys_image_guid: [u8; 8],
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_uint,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}
layout!(DeviceAttr, 232, node_guid: 64, max_mr_size: 80, vendor_id: 96, max_qp: 108,
    device_cap_flags: 116, max_cq: 128, max_pd: 140, atomic_cap: 164, max_mw: 176,
    max_mcast_grp: 188, max_ah: 200, max_srq: 212, max_pkeys: 224, phys_port_cnt: 227);

/// `ibv_device_attr_ex`. Capabilities of devices for Ethernet frames are zero.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttrEx {
    pub(crate) orig: DeviceAttr,
    pub(crate) comp_mask: u32,
    pub(crate) odp: OdpCaps,
    pub(crate) completion_timestamp_mask: u64,
    /// In kHz.
    pub(crate) hca_core_clock: u64,
    pub(crate) device_cap_flags_ex: u64,
    pub(crate) tso: [u32; 2],
    pub(crate) rss: [u64; 4],
    pub(crate) max_wq_type_rq: u32,
    pub(crate) pacing: PacingCaps,
    pub(crate) raw_packet_caps: u32,
    pub(crate) tm: [u32; 5],
    pub(crate) max_cq_count: u16,
    pub(crate) max_cq_period: u16,
    pub(crate) max_dm_size: u64,
    pub(crate) pci_atomic: [u16; 3],
    pub(crate) xrc_odp_caps: u32,
    pub(crate) phys_port_cnt_ex: u32,
}
layout!(DeviceAttrEx, 400, comp_mask: 232, odp: 240, completion_timestamp_mask: 264,
    hca_core_clock: 272, device_cap_flags_ex: 280, tso: 288, rss: 296, max_wq_type_rq: 328,
    pacing: 332, raw_packet_caps: 344, tm: 348, max_cq_count: 368, max_dm_size: 376,
    pci_atomic: 384, xrc_odp_caps: 392, phys_port_cnt_ex: 396);

/// `ibv_odp_caps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OdpCaps {
    pub(crate) general: u64,
    pub(crate) rc: u32,
    pub(crate) uc: u32,
    pub(crate) ud: u32,
}
layout!(OdpCaps, 24, rc: 8, uc: 12, ud: 16);

/// `ibv_packet_pacing_caps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PacingCaps {
    pub(crate) rate_limit_min: u32,
    pub(crate) rate_limit_max: u32,
    /// Bits by the numbers of the types.
    pub(crate) supported_qpts: u32,
}
layout!(PacingCaps, 12, rate_limit_max: 4, supported_qpts: 8);

/// `ibv_port_attr` of new programs. Old programs have a shorter one.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortAttr {
    pub(crate) state: c_uint,
    pub(crate) max_mtu: c_uint,
    pub(crate) active_mtu: c_uint,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
    pub(crate) active_speed_ex: u32,
}
layout!(PortAttr, 56, gid_tbl_len: 12, max_msg_sz: 20, pkey_tbl_len: 32, max_vl_num: 39,
    active_width: 43, phys_state: 45, link_layer: 46, flags: 47, active_speed_ex: 52);

/// Number of bytes of `ibv_port_attr` that the function `ibv_query_port` writes. Its callers have no room for
/// more.
pub(crate) const OLD_PORT_ATTR_BYTES: usize = 48;

/// `ibv_values_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ValuesEx {
    pub(crate) comp_mask: u32,
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}
layout!(ValuesEx, 24, seconds: 8, nanoseconds: 16);

/// `ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GidEntry {
    pub(crate) gid: [u8; 16],
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}
layout!(GidEntry, 32, gid_index: 16, port_num: 20, gid_type: 24, ndev_ifindex: 28);

/// `IBV_GID_TYPE_ROCE_V2`.
pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`.
pub(crate) const GID_TYPE_SYSFS_ROCE_V2: u32 = 1;
