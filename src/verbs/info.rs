//! What a device is and what it can do.

use std::net::IpAddr;

use crate::ids::{Gid, Mtu};
use crate::io::{PortCounters, PortInfo};
use crate::mem::MwType;
use crate::transport::outputs::Counters;

/// What a device is, can do and has done.
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_query_device")]
#[doc(alias = "ibv_query_port")]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name: `softroce0`, or what `SOFTROCE_NAME` says.
    pub name: String,
    /// The address it receives at.
    pub ip: IpAddr,
    /// Its GID table, which `sgid_index` counts.
    pub gids: Vec<Gid>,
    /// The largest path MTU that its interface carries.
    pub active_mtu: Mtu,
    /// What its port is: interface MTU, receive buffer, offloads.
    pub port: PortInfo,
    /// Bytes in flight to one peer, as its kernel counts them, unless `peer_receive_buffer` says
    /// how much more it bears.
    pub window: u64,
    /// How many there can be of what.
    pub limits: Limits,
    /// The types of memory windows that it has.
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW")]
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW_TYPE_2B")]
    pub mw_types: &'static [MwType],
    /// What the protocol has counted.
    pub counters: Counters,
    /// What the port has counted.
    pub port_counters: PortCounters,
}

/// How many there can be of what, in one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_device_attr")]
#[non_exhaustive]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: usize,
    /// Unfinished requests of one queue.
    pub max_qp_wr: u32,
    /// Pieces of one request.
    pub max_sge: u32,
    /// Bytes of an inline request.
    pub max_inline_data: u32,
    /// Completions that one completion queue holds.
    pub max_cqe: usize,
    /// Memory regions.
    pub max_mr: usize,
    /// Memory windows, of either type.
    pub max_mw: usize,
    /// Shared receive queues.
    pub max_srq: usize,
    /// Unfinished requests of one of them.
    pub max_srq_wr: u32,
    /// Pieces of a request of one of them.
    pub max_srq_sge: u32,
    /// READs and atomics that one queue pair may have outstanding, in either direction.
    pub max_rd_atomic: u8,
    /// Bytes of the longest message.
    pub max_msg_sz: u32,
}
