//! What a program asks of a device and its port.

use std::ffi::{c_int, c_uint};

use softroce::verbs::{DeviceCaps, DeviceInfo, DropReason, Gid, GidEntry, PKey, QpType};

use crate::abi::{
    self, DeviceAttr, DeviceAttrEx, Handle, IbvContext, IbvQpEx, In, OdpCaps, Out, PacingCaps,
    PortAttr, ValuesEx,
};
use crate::border::{Errno, minus_one, number, or};
use crate::objects::device::Device;

/// The only port there is.
const PORT: u32 = 1;

/// As rxe has it: no vendor. perftest knows quirks of others.
const VENDOR_ID: u32 = 0xff_ffff;

/// A count, as C has it.
fn count(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

/// What is the same in both of the forms that C has.
fn device_attr(info: &DeviceInfo) -> DeviceAttr {
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
        // What has no place in 32 bits is in the extended form.
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

/// `device_cap_flags_ex`: with XRC (bit 20), and without ATOMIC WRITE, which no memory of C takes.
fn capabilities(info: &DeviceInfo) -> u64 {
    info.caps.difference(DeviceCaps::ATOMIC_WRITE).bits() | 1 << 20
}

/// The low 32 bits.
fn low(bits: u64) -> u32 {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

pub(crate) extern "C" fn query_device(context: Handle<IbvContext>, to: Out<DeviceAttr>) -> c_int {
    number(|| {
        to.write(device_attr(&context.get()?.verbs.device_info()?));
        Ok(())
    })
}

pub(crate) extern "C" fn query_device_ex(
    context: Handle<IbvContext>,
    input: In<u32>,
    to: Out<DeviceAttrEx>,
    size: usize,
) -> c_int {
    number(|| {
        // It asks for nothing yet, and must say so. A program that knows less than the beginning
        // knows another structure.
        if input.optional().unwrap_or(0) != 0 || size < size_of::<DeviceAttr>() + 8 {
            return Err(Errno::INVALID);
        }
        let info = context.get()?.verbs.device_info()?;
        let (limits, odp) = (&info.limits, &info.odp);
        let paced = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcIni];
        let attr = DeviceAttrEx {
            orig: device_attr(&info),
            comp_mask: 0,
            odp: OdpCaps {
                general: u64::from(odp.supported) | u64::from(odp.implicit) << 1,
                rc: odp.rc.bits(),
                uc: odp.uc.bits(),
                ud: odp.ud.bits(),
            },
            completion_timestamp_mask: limits.completion_timestamp_mask,
            hca_core_clock: limits.hca_core_clock,
            device_cap_flags_ex: capabilities(&info),
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
        };
        to.write_prefix(&attr, size);
        Ok(())
    })
}

fn check_port(port: impl Into<u32>) -> Result<(), Errno> {
    if port.into() == PORT { Ok(()) } else { Err(Errno::INVALID) }
}

fn port_attr(info: &DeviceInfo) -> PortAttr {
    PortAttr {
        state: info.port_state as c_uint,
        max_mtu: softroce::verbs::Mtu::Mtu4096 as c_uint,
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
        // 1X of 2.5 Gb/s: a socket has no speed, and nothing slower can be said.
        active_width: 1,
        active_speed: 1,
        // LINK_UP and DISABLED.
        phys_state: if info.port_state == softroce::verbs::PortState::Active { 5 } else { 3 },
        // Ethernet, where every way needs a GID (flag 1).
        link_layer: 2,
        flags: 1,
        port_cap_flags2: 0,
        active_speed_ex: 1,
    }
}

pub(crate) extern "C" fn query_port_sized(
    context: Handle<IbvContext>,
    port: u8,
    to: Out<PortAttr>,
    size: usize,
) -> c_int {
    number(|| {
        check_port(port)?;
        to.write_prefix(&port_attr(&context.get()?.verbs.device_info()?), size);
        Ok(())
    })
}

/// As it was before the structure has grown.
pub(crate) extern "C" fn query_port(
    context: Handle<IbvContext>,
    port: u8,
    to: Out<PortAttr>,
) -> c_int {
    query_port_sized(context, port, to, abi::PORT_ATTR_OF_OLD)
}

/// An index that is not in the table is -1 to the program, whatever else.
fn index(index: c_int) -> Result<usize, Errno> {
    usize::try_from(index).map_err(|_| Errno::INVALID)
}

pub(crate) extern "C" fn query_gid(
    context: Handle<IbvContext>,
    port: u8,
    at: c_int,
    to: Out<[u8; 16]>,
) -> c_int {
    minus_one(|| {
        check_port(port)?;
        to.write(context.get()?.verbs.query_gid(index(at)?)?.0);
        Ok(0)
    })
}

/// A private function of libibverbs that `ibv_devinfo` uses nevertheless.
pub(crate) extern "C" fn query_gid_type(
    context: Handle<IbvContext>,
    port: u8,
    at: c_uint,
    to: Out<u32>,
) -> c_int {
    minus_one(|| {
        check_port(port)?;
        let at = usize::try_from(at).map_err(|_| Errno::INVALID)?;
        let _: Gid = context.get()?.verbs.query_gid(at)?;
        to.write(abi::GID_TYPE_SYSFS_ROCE_V2);
        Ok(0)
    })
}

fn entry(entry: &GidEntry) -> abi::GidEntry {
    abi::GidEntry {
        gid: entry.gid.0,
        gid_index: u32::try_from(entry.gid_index).unwrap_or(u32::MAX),
        port_num: entry.port_num.into(),
        gid_type: abi::GID_TYPE_ROCE_V2,
        ndev_ifindex: entry.ndev_ifindex,
    }
}

/// Whether the program knows entries as they are.
fn check_entry(flags: u32, size: usize) -> Result<(), Errno> {
    if flags != 0 || size != size_of::<abi::GidEntry>() { Err(Errno::INVALID) } else { Ok(()) }
}

pub(crate) extern "C" fn query_gid_ex(
    context: Handle<IbvContext>,
    port: u32,
    at: u32,
    to: Out<abi::GidEntry>,
    flags: u32,
    size: usize,
) -> c_int {
    number(|| {
        check_port(port)?;
        check_entry(flags, size)?;
        let at = usize::try_from(at).map_err(|_| Errno::INVALID)?;
        let found = context.get()?.verbs.query_gid_ex(at)?;
        to.write(entry(&found));
        Ok(())
    })
}

/// Answers how many there are, or the number of the error below zero.
pub(crate) extern "C" fn query_gid_table(
    context: Handle<IbvContext>,
    to: Out<abi::GidEntry>,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    let mut found = 0;
    let answer = number(|| {
        check_entry(flags, size)?;
        let table = context.get()?.verbs.query_gid_table()?;
        if table.len() > max {
            return Err(Errno::INVALID);
        }
        for (n, gid) in table.iter().enumerate() {
            to.write_at(n, entry(gid));
        }
        found = isize::try_from(table.len()).unwrap_or(isize::MAX);
        Ok(())
    });
    if answer == 0 { found } else { isize::try_from(-answer).unwrap_or(-1) }
}

/// The key is in the order of the network.
pub(crate) extern "C" fn query_pkey(
    context: Handle<IbvContext>,
    port: u8,
    at: c_int,
    to: Out<u16>,
) -> c_int {
    minus_one(|| {
        check_port(port)?;
        to.write(context.get()?.verbs.query_pkey(index(at)?)?.0.to_be());
        Ok(0)
    })
}

pub(crate) extern "C" fn get_pkey_index(context: Handle<IbvContext>, port: u8, pkey: u16) -> c_int {
    minus_one(|| {
        check_port(port)?;
        let found = context.get()?.verbs.pkey_index(PKey(u16::from_be(pkey)));
        found.map(c_int::from).ok_or(Errno::NO_ENTRY)
    })
}

/// `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

pub(crate) extern "C" fn query_rt_values(context: Handle<IbvContext>, to: Out<ValuesEx>) -> c_int {
    number(|| {
        let asked = to.read()?;
        if asked.comp_mask & !RAW_CLOCK != 0 {
            return Err(Errno::INVALID);
        }
        let now = context.get()?.verbs.query_rt_values().raw_clock.as_nanos();
        let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        to.write(ValuesEx {
            comp_mask: asked.comp_mask,
            seconds: part(now / 1_000_000_000),
            nanoseconds: part(now % 1_000_000_000),
        });
        Ok(())
    })
}

/// Forks need no preparation: no page is pinned.
pub(crate) extern "C" fn fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
pub(crate) extern "C" fn is_fork_initialized() -> c_int {
    2
}

/// Nor does memory of which a child is to have no copy.
pub(crate) extern "C" fn fork_range(_start: Out<u8>, _size: usize) -> c_int {
    0
}

/// Nothing is promised of the order in which bytes of a message appear, but that its last 8 do so after
/// all others.
pub(crate) extern "C" fn query_qp_data_in_order(
    qp: Handle<IbvQpEx>,
    _opcode: c_uint,
    _flags: u32,
) -> c_int {
    or(0, || qp.get().map(|_| 0))
}
