//! Attributes of the device, its port and its GIDs.

use std::ffi::{c_int, c_uint};

use softroce::verbs::{
    DeviceCaps, DeviceInfo, DropReason, GidEntry, LINK_SPEED, Mtu, PortState, QpType,
};

use crate::abi::{self, DeviceAttr, DeviceAttrEx, OdpCaps, PacingCaps, PortAttr};
use crate::objects::device::Device;

/// The number of no vendor, as of rxe. perftest has workarounds for known vendors.
const VENDOR_ID: u32 = 0xff_ffff;

/// Returns a count as a C integer, at most its maximum.
fn count(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

/// Returns the attributes that both structures of C have.
pub(crate) fn device_attr(info: &DeviceInfo) -> DeviceAttr {
    let limits = &info.limits;
    let mut fw_ver = [0; 64];
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    fw_ver[..version.len()].copy_from_slice(version);
    let guid = Device::guid();
    DeviceAttr {
        fw_ver,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits.max_mr_size as u64,
        page_size_cap: !0xfff,
        vendor_id: VENDOR_ID,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: count(limits.max_qp),
        max_qp_wr: count(limits.max_qp_wr),
        // The extended structure has the other bits.
        device_cap_flags: low(capabilities(info)),
        max_sge: count(limits.max_sge),
        max_sge_rd: count(limits.max_sge),
        max_cq: count(limits.max_cq),
        max_cqe: count(limits.max_cqe),
        max_mr: count(limits.max_mr),
        max_pd: count(limits.max_pd),
        max_qp_rd_atom: limits.max_rd_atomic.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: count(limits.max_qp.saturating_mul(limits.max_rd_atomic.into())),
        max_qp_init_rd_atom: limits.max_rd_atomic.into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: info.atomic_cap as c_uint,
        max_ee: 0,
        max_rdd: 0,
        max_mw: count(limits.max_mw),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: count(limits.max_mcast_grp),
        max_mcast_qp_attach: count(limits.max_mcast_qp_attach),
        max_total_mcast_qp_attach: count(limits.max_total_mcast_qp_attach),
        max_ah: count(limits.max_ah),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: count(limits.max_srq),
        max_srq_wr: count(limits.max_srq_wr),
        max_srq_sge: count(limits.max_srq_sge),
        max_pkeys: limits.max_pkeys,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    }
}

/// Returns `device_cap_flags_ex`: with XRC (bit 20), and without ATOMIC WRITE, which memory of a C program
/// does not support.
fn capabilities(info: &DeviceInfo) -> u64 {
    info.caps.difference(DeviceCaps::ATOMIC_WRITE).bits() | 1 << 20
}

/// Returns the low 32 bits.
fn low(bits: u64) -> u32 {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Returns the extended attributes.
pub(crate) fn device_attr_ex(info: &DeviceInfo) -> DeviceAttrEx {
    let (limits, odp) = (&info.limits, &info.odp);
    let paced = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcIni];
    DeviceAttrEx {
        orig: device_attr(info),
        comp_mask: 0,
        odp: OdpCaps {
            general: u64::from(odp.supported) | u64::from(odp.implicit) << 1,
            rc: odp.rc.bits(),
            uc: odp.uc.bits(),
            ud: odp.ud.bits(),
        },
        completion_timestamp_mask: limits.completion_timestamp_mask,
        hca_core_clock: limits.hca_core_clock,
        device_cap_flags_ex: capabilities(info),
        tso: [0; 2],
        rss: [0; 4],
        max_wq_type_rq: 0,
        pacing: PacingCaps {
            rate_limit_min: limits.qp_rate_limit_min,
            rate_limit_max: limits.qp_rate_limit_max,
            supported_qpts: paced.iter().map(|paced| 1 << *paced as u32).sum(),
        },
        raw_packet_caps: 0,
        tm: [0; 5],
        max_cq_count: limits.max_cq_count,
        max_cq_period: limits.max_cq_period,
        max_dm_size: limits.max_dm_size as u64,
        pci_atomic: [0; 3],
        xrc_odp_caps: odp.rc.bits(),
        phys_port_cnt_ex: 1,
    }
}

/// Returns the attributes of the port.
pub(crate) fn port_attr(info: &DeviceInfo) -> PortAttr {
    PortAttr {
        state: info.port_state as c_uint,
        max_mtu: Mtu::Mtu4096 as c_uint,
        active_mtu: info.active_mtu as c_uint,
        gid_tbl_len: count(info.gids.len()),
        // Connection management; IP addresses for GIDs (bits 16 and 26).
        port_cap_flags: 1 << 16 | 1 << 26,
        max_msg_sz: info.limits.max_msg_sz,
        bad_pkey_cntr: low(info.counters.dropped(DropReason::PKeyMismatch)),
        qkey_viol_cntr: low(info.counters.dropped(DropReason::QKeyMismatch)),
        pkey_tbl_len: info.limits.max_pkeys,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: LINK_SPEED.width,
        active_speed: LINK_SPEED.speed,
        // LINK_UP and DISABLED.
        phys_state: if info.port_state == PortState::Active { 5 } else { 3 },
        // Ethernet, where every address needs a GID (flag 1).
        link_layer: 2,
        flags: 1,
        port_cap_flags2: 0,
        active_speed_ex: LINK_SPEED.speed.into(),
    }
}

/// Returns an entry of the GID table.
pub(crate) fn gid_entry(entry: &GidEntry) -> abi::GidEntry {
    abi::GidEntry {
        gid: entry.gid.0,
        gid_index: u32::try_from(entry.gid_index).unwrap_or(u32::MAX),
        port_num: entry.port_num.into(),
        gid_type: abi::GID_TYPE_ROCE_V2,
        ndev_ifindex: entry.ndev_ifindex,
    }
}
