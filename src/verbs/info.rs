//! Attributes, limits and counters of a device.

use std::fmt;
use std::net::IpAddr;

use crate::engine::{Config, Engine};
use crate::ids::{Gid, Mtu, PKey};
use crate::mem::MwType;
use crate::port::{Control, PortCounters, PortInfo};
use crate::runtime::{Device, DeviceCounters};
use crate::transport::outputs::Counters;
use crate::transport::window;
use crate::verbs::limits::{MAX_INLINE, MAX_SGE, MAX_WR};
use crate::verbs::{AtomicCap, CompletionQueue, Context, DeviceCaps, Error, OdpCaps};

/// Attributes and counters of a device and its port.
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_query_device")]
#[doc(alias = "ibv_query_port")]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name of the device: `softroce0`, or the value of `SOFTROCE_NAME`.
    pub name: String,
    /// Address of the device, the first if it has several.
    pub ip: IpAddr,
    /// GID table, indexed by `sgid_index`. An entry is [empty](Gid::EMPTY) while no interface has its address.
    pub gids: Vec<Gid>,
    /// P_Key table, indexed by `pkey_index`.
    pub pkeys: Vec<PKey>,
    /// State of the port.
    pub port_state: PortState,
    /// Largest path MTU of the device's interface, the least if it has several.
    pub active_mtu: Mtu,
    /// Attributes of the port: interface MTU, receive buffer, offloads.
    pub port: PortInfo,
    /// Number of shards.
    pub shards: u8,
    /// Bytes that may be in flight to one peer, as the peer's kernel counts them, unless `peer_receive_buffer` is set
    /// for the connection.
    pub window: u64,
    /// Maximum numbers and sizes of objects.
    pub limits: Limits,
    /// Supported types of memory windows.
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW")]
    #[doc(alias = "IBV_DEVICE_MEM_WINDOW_TYPE_2B")]
    pub mw_types: &'static [MwType],
    /// Optional capabilities.
    pub caps: DeviceCaps,
    /// Scope in which atomic operations are atomic.
    pub atomic_cap: AtomicCap,
    /// Whether the device supports null memory regions.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub null_mr: bool,
    /// On-demand paging capabilities.
    pub odp: OdpCaps,
    /// Protocol counters.
    pub counters: Counters,
    /// Port counters.
    pub port_counters: PortCounters,
}

/// Speed of the port, as verbs and the files below `/sys/class/infiniband` state it.
///
/// A socket has no speed, so every device states the same: that of the adapters for which programs are tuned, and about the
/// rate of a core through shared memory. Programs choose protocols by it. UCX copies messages of 64 KiB in fragments of
/// 8 KiB over a link that is slower than a copy, and reads them from the memory of the peer over a faster one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LinkSpeed {
    /// Number of lanes, as `active_width` of `ibv_port_attr` encodes it.
    pub width: u8,
    /// Speed of a lane, as `active_speed` of `ibv_port_attr` encodes it.
    pub speed: u8,
    /// Content of the file `rate`.
    pub text: &'static str,
}

/// Speed of every port: four lanes of 25 Gb/s.
pub const LINK_SPEED: LinkSpeed = LinkSpeed { width: 2, speed: 32, text: "100 Gb/sec (4X EDR)" };

/// State of a device's port, with the names and values of verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[doc(alias = "ibv_port_state")]
#[repr(u8)]
pub enum PortState {
    /// No interface has an address of the device, or none of those that have one is up.
    #[doc(alias = "IBV_PORT_DOWN")]
    Down = 1,
    /// The port sends and receives packets.
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

/// Maximum numbers and sizes of the objects of a device, with the names of `ibv_device_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_device_attr")]
#[non_exhaustive]
pub struct Limits {
    /// Number of queue pairs.
    pub max_qp: usize,
    /// Number of unfinished requests of one queue.
    pub max_qp_wr: u32,
    /// Number of scatter/gather elements of one request.
    pub max_sge: u32,
    /// Bytes of an inline request.
    pub max_inline_data: u32,
    /// Number of completion queues.
    pub max_cq: usize,
    /// Number of completions in one completion queue.
    pub max_cqe: usize,
    /// Number of protection domains. The device has no limit of its own: this is the largest `int` of C.
    pub max_pd: usize,
    /// Number of address handles. The device has no limit of its own: this is the largest `int` of C.
    pub max_ah: usize,
    /// Number of completion vectors.
    pub num_comp_vectors: u32,
    /// Completions per announcement (moderation).
    pub max_cq_count: u16,
    /// Microseconds that moderation may delay an announcement.
    pub max_cq_period: u16,
    /// Lowest rate limit of a queue pair, in kilobits per second.
    pub qp_rate_limit_min: u32,
    /// Highest rate limit of a queue pair, in kilobits per second.
    pub qp_rate_limit_max: u32,
    /// Frequency in kHz of the clock that stamps completions. Its unit is the nanosecond.
    pub hca_core_clock: u64,
    /// Valid bits of a completion timestamp.
    pub completion_timestamp_mask: u64,
    /// Number of memory regions.
    pub max_mr: usize,
    /// Bytes of a memory region.
    pub max_mr_size: usize,
    /// Total bytes of device memory.
    pub max_dm_size: usize,
    /// Number of memory windows of both types.
    pub max_mw: usize,
    /// Number of shared receive queues.
    pub max_srq: usize,
    /// Number of unfinished requests of one shared receive queue.
    pub max_srq_wr: u32,
    /// Number of scatter/gather elements of one request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Number of outstanding READs and atomics of one queue pair, in either direction.
    pub max_rd_atomic: u8,
    /// Number of partition keys of the port.
    pub max_pkeys: u16,
    /// Number of multicast groups with attached queue pairs.
    pub max_mcast_grp: usize,
    /// Number of queue pairs attached to one multicast group.
    pub max_mcast_qp_attach: usize,
    /// Total number of attachments of queue pairs to multicast groups.
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
            // These attributes are of type `int` in C.
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

    /// Returns every limit with its name in `ibv_device_attr`.
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
    /// [`Error::Device`].
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
