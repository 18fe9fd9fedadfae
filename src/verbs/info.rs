//! What a device is and what it can do.

use std::fmt;
use std::net::IpAddr;

use crate::engine::{Config, Engine};
use crate::ids::{Gid, Mtu, PKey};
use crate::mem::MwType;
use crate::port::{PortCounters, PortInfo};
use crate::runtime::{Device, DeviceCounters};
use crate::transport::outputs::Counters;
use crate::transport::window;
use crate::verbs::limits::{MAX_INLINE, MAX_SGE, MAX_WR};
use crate::verbs::{AtomicCap, CompletionQueue, Context, DeviceCaps, Error, OdpCaps};

/// What a device is, can do and has done.
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_query_device")]
#[doc(alias = "ibv_query_port")]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name: `softroce0`, or what `SOFTROCE_NAME` says.
    pub name: String,
    /// The address it receives at; of several the first.
    pub ip: IpAddr,
    /// Its GID table, which `sgid_index` counts. A slot whose address no interface has is
    /// [empty](Gid::EMPTY).
    pub gids: Vec<Gid>,
    /// Its P_Key table, which `pkey_index` counts.
    pub pkeys: Vec<PKey>,
    /// Whether an interface has one of its addresses and carries packets.
    pub port_state: PortState,
    /// The largest path MTU that its interface carries; of several the least.
    pub active_mtu: Mtu,
    /// What its port is: interface MTU, receive buffer, offloads.
    pub port: PortInfo,
    /// How many shards it has.
    pub shards: u8,
    /// Bytes in flight to one peer, as its kernel counts them, unless `peer_receive_buffer` says
    /// how much more it bears.
    pub window: u64,
    /// How many there can be of what.
    pub limits: Limits,
    /// The types of memory windows that it has.
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW")]
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW_TYPE_2B")]
    pub mw_types: &'static [MwType],
    /// What it can do beyond what every device can.
    pub caps: DeviceCaps,
    /// Among whom atomics are atomic.
    pub atomic_cap: AtomicCap,
    /// Whether there are regions without memory.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub null_mr: bool,
    /// What may be done with memory that is registered on demand.
    pub odp: OdpCaps,
    /// What the protocol has counted.
    pub counters: Counters,
    /// What the port has counted.
    pub port_counters: PortCounters,
}

/// The state of a device's port, by the names and values in verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_port_state")]
#[repr(u8)]
pub enum PortState {
    /// No interface has any of the device's addresses, or none that has one carries packets.
    #[doc(alias = "IBV_PORT_DOWN")]
    Down = 1,
    /// Packets come and go.
    #[doc(alias = "IBV_PORT_ACTIVE")]
    Active = 4,
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "PORT_DOWN",
            Self::Active => "PORT_ACTIVE",
        })
    }
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
    /// Completion queues.
    pub max_cq: usize,
    /// Completions that one completion queue holds.
    pub max_cqe: usize,
    /// Protection domains, which are numbers: as many as memory holds, and as C can say.
    pub max_pd: usize,
    /// Address handles, which are values: likewise.
    pub max_ah: usize,
    /// Interrupts that can announce completions.
    pub num_comp_vectors: u32,
    /// Completions that are announced together, at most.
    pub max_cq_count: u16,
    /// Microseconds that a completion may wait for that, at most.
    pub max_cq_period: u16,
    /// The slowest that a queue pair can be told to send, in kilobits a second.
    pub qp_rate_limit_min: u32,
    /// The fastest, likewise.
    pub qp_rate_limit_max: u32,
    /// Ticks of the clock of completions in a millisecond: they are nanoseconds.
    pub hca_core_clock: u64,
    /// Which bits of that clock count.
    pub completion_timestamp_mask: u64,
    /// Memory regions.
    pub max_mr: usize,
    /// Bytes of a memory region.
    pub max_mr_size: usize,
    /// Bytes of device memory, in all of it.
    pub max_dm_size: usize,
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
    /// Partition keys of the port.
    pub max_pkeys: u16,
    /// Multicast groups that queue pairs are attached to.
    pub max_mcast_grp: usize,
    /// Queue pairs that are attached to one multicast group.
    pub max_mcast_qp_attach: usize,
    /// Attachments of queue pairs to multicast groups, in all.
    pub max_total_mcast_qp_attach: usize,
    /// Bytes of the longest message.
    pub max_msg_sz: u32,
}

impl Limits {
    fn of(device: &Device, config: &Config) -> Self {
        let memory = device.memory.limits();
        Self {
            max_qp: config.max_qp,
            max_qp_wr: MAX_WR,
            max_sge: MAX_SGE,
            max_inline_data: MAX_INLINE,
            max_cq: CompletionQueue::MAX_COUNT,
            max_cqe: CompletionQueue::MAX_DEPTH,
            // C has an `int` for each.
            max_pd: i32::MAX as usize,
            max_ah: i32::MAX as usize,
            num_comp_vectors: 1,
            max_cq_count: u16::MAX,
            max_cq_period: u16::MAX,
            qp_rate_limit_min: 1,
            qp_rate_limit_max: u32::MAX,
            hca_core_clock: 1_000_000,
            completion_timestamp_mask: u64::MAX,
            max_mr: memory.max_mr,
            max_mr_size: memory.max_mr_size,
            max_dm_size: memory.max_dm_size,
            max_mw: memory.max_mw,
            max_srq: Engine::MAX_SRQ,
            max_srq_wr: MAX_WR,
            max_srq_sge: MAX_SGE,
            max_rd_atomic: config.max_rd_atomic,
            max_pkeys: u16::try_from(device.pkeys.len()).unwrap_or(u16::MAX),
            max_mcast_grp: config.max_mcast_grp,
            max_mcast_qp_attach: config.max_mcast_qp_attach,
            max_total_mcast_qp_attach: config.max_mcast_grp * config.max_mcast_qp_attach,
            max_msg_sz: 1 << 31,
        }
    }

    /// Every limit by its name in verbs.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("max_msg_sz", self.max_msg_sz.into()),
            ("max_qp", self.max_qp as u64),
            ("max_qp_wr", self.max_qp_wr.into()),
            ("max_sge", self.max_sge.into()),
            ("max_inline_data", self.max_inline_data.into()),
            ("max_cq", self.max_cq as u64),
            ("max_cqe", self.max_cqe as u64),
            ("max_mr", self.max_mr as u64),
            ("max_mr_size", self.max_mr_size as u64),
            ("max_dm_size", self.max_dm_size as u64),
            ("max_mw", self.max_mw as u64),
            ("max_srq", self.max_srq as u64),
            ("max_srq_wr", self.max_srq_wr.into()),
            ("max_srq_sge", self.max_srq_sge.into()),
            ("max_pd", self.max_pd as u64),
            ("max_ah", self.max_ah as u64),
            ("max_qp_rd_atom", self.max_rd_atomic.into()),
            ("max_pkeys", self.max_pkeys.into()),
            ("max_mcast_grp", self.max_mcast_grp as u64),
            ("max_mcast_qp_attach", self.max_mcast_qp_attach as u64),
            ("max_total_mcast_qp_attach", self.max_total_mcast_qp_attach as u64),
            ("max_res_rd_atom", self.max_qp as u64 * u64::from(self.max_rd_atomic)),
            ("num_comp_vectors", self.num_comp_vectors.into()),
            ("max_cq_count", self.max_cq_count.into()),
            ("max_cq_period", self.max_cq_period.into()),
            ("qp_rate_limit_min", self.qp_rate_limit_min.into()),
            ("qp_rate_limit_max", self.qp_rate_limit_max.into()),
            ("hca_core_clock", self.hca_core_clock),
            ("completion_timestamp_mask", self.completion_timestamp_mask),
        ]
        .into_iter()
    }
}

impl Context {
    /// Queries the attributes of the device and its port, and their counters.
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    #[doc(alias = "ibv_query_device")]
    pub fn device_info(&self) -> Result<DeviceInfo, Error> {
        let device = &self.inner.device;
        let (counters, port_counters) = DeviceCounters::totals(&device.shards)?;
        Ok(device.shards.first().with(|core, _| {
            let config = core.engine.config();
            DeviceInfo {
                name: device.name.clone(),
                ip: device.ip,
                gids: (0..device.gids.len())
                    .map(|index| core.engine.gid(index).unwrap_or(Gid::EMPTY))
                    .collect(),
                pkeys: device.pkeys.clone(),
                port_state: match core.is_active() {
                    true => PortState::Active,
                    false => PortState::Down,
                },
                active_mtu: config.active_mtu,
                port: core.port.info(),
                window: window::usable(config.peer_receive_buffer) * u64::from(config.shards),
                shards: config.shards,
                limits: Limits::of(device, config),
                mw_types: &MwType::ALL,
                caps: DeviceCaps::all(),
                atomic_cap: AtomicCap::Hca,
                null_mr: true,
                odp: OdpCaps::of_this_system(),
                counters,
                port_counters,
            }
        })?)
    }
}
