//! Options for opening a device.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::ids::PKey;
use crate::io::impair::Impairments;
use crate::io::{PortKind, Sink};
use crate::runtime::{AckPolicy, Address, DeviceConfig, EnvError, Environment};

/// How a device is opened. What is not said here, [the environment](Environment) may say.
///
/// Wishes are for whoever opens an address first; later contexts share the device as it is.
///
/// ```
/// use softroce::verbs::{Context, OpenOptions};
///
/// let first = Context::open(OpenOptions::loopback())?;
/// let same = Context::open(OpenOptions::default().ip(first.ip()))?;
/// assert_eq!(first.device_info()?.gids, same.device_info()?.gids);
/// # Ok::<(), softroce::verbs::Error>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct OpenOptions {
    ip: Option<IpAddr>,
    also: Vec<IpAddr>,
    free: bool,
    name: Option<String>,
    receive_buffer: Option<usize>,
    reorder_buffer: Option<u64>,
    source_port: Option<u16>,
    via: Option<PortKind>,
    shards: Option<u8>,
    ack_policy: AckPolicy,
    impairments: Option<Impairments>,
    capture: Option<Box<dyn Sink>>,
    counters: Option<PathBuf>,
    pkeys: Option<Vec<PKey>>,
}

impl OpenOptions {
    /// A device of its own at the first free of 127.0.0.1, 127.0.0.2, …: for two devices in one
    /// process, and for tests.
    pub fn loopback() -> Self {
        Self { free: true, ..Self::default() }
    }

    /// The device at this address of the machine, IPv4 or IPv6. Without it: at the addresses that
    /// `SOFTROCE_IP` names, or else that this process has taken before, or else takes now, the first
    /// free of 127.0.0.1, 127.0.0.2, …
    pub fn ip(self, ip: IpAddr) -> Self {
        Self { ip: Some(ip), ..self }
    }

    /// One more address of the device, of this or of another interface, IPv4 or IPv6. It is the next entry
    /// of the GID table, in which the device's first address is 0; `sgid_index` names the one that a
    /// connection or a datagram leaves from. What arrives at any of them is taken.
    ///
    /// An address belongs to one device. The device is opened with all of them or not at all.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let spare = std::net::Ipv4Addr::from(0x7f4d_0000 | std::process::id() & 0xffff).into();
    /// let ctx = Context::open(OpenOptions::loopback().also_ip(spare))?;
    /// assert_eq!(ctx.query_gid(1)?.ip(), spare);
    ///
    /// // The peer is told that address, and the queue pair connected from there.
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let qp = pd.create_qp(&QpConfig::rc(&cq))?;
    /// let endpoint = qp.endpoint_at(1)?;
    /// let from_there = ConnectOptions { sgid_index: 1, ..ConnectOptions::default() };
    /// # let peer = endpoint;
    /// qp.connect(&peer, &from_there)?;
    /// assert_eq!(qp.endpoint(), endpoint);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn also_ip(mut self, ip: IpAddr) -> Self {
        self.also.push(ip);
        self
    }

    /// The device's name, instead of `softroce0`.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Bytes of datagrams that may wait to be received, as the kernel counts them. The system may
    /// allow less: [`DeviceInfo::port`](super::DeviceInfo::port) tells. Without it: what the system allows, up to 8 MiB.
    pub fn receive_buffer(self, bytes: usize) -> Self {
        Self { receive_buffer: Some(bytes), ..self }
    }

    /// Bytes of SENDs and WRITEs, and of answers to READs and atomics, that are kept while a packet before them is
    /// missing, so that an RC or XRC peer has to send only that again. With 0 they are dropped, as most adapters and
    /// kernel rxe do, and what was in flight behind a lost packet is sent again with it. Without it: as much as the
    /// receive buffer takes. The requests of one connection take four fifths at most, and so do its answers.
    pub fn reorder_buffer(self, bytes: u64) -> Self {
        Self { reorder_buffer: Some(bytes), ..self }
    }

    /// One UDP port to send from, for firewalls that must know it; 4791 is allowed. Without it:
    /// ports of 49152 to 65535, by which switches tell connections apart.
    pub fn source_port(self, port: u16) -> Self {
        Self { source_port: Some(port), ..self }
    }

    /// By what packets are sent and received, instead of UDP sockets. A TAP brings addresses along, which the
    /// device has if it is told no others.
    pub fn via(self, kind: PortKind) -> Self {
        Self { via: Some(kind), ..self }
    }

    /// How many shards the device has, a power of two up to 64, instead of one. Each is an engine with a
    /// lock, a thread and a socket of its own, so the traffic of several threads, or of several peers, takes
    /// several CPUs. UDP ports have several, packet ports one.
    ///
    /// Queue pairs and shared receive queues are put on the shards in turns; those of a
    /// [thread domain](super::ThreadDomain) are on one, so are those that share a receive queue, and those
    /// of an XRC domain. A completion queue serves all: to look at it costs as many looks as queue pairs of
    /// different shards complete there, so a thread is best served by queue pairs of one shard.
    ///
    /// What is said of a socket, as [`receive_buffer`](Self::receive_buffer), is for each of them, and so are
    /// [`reorder_buffer`](Self::reorder_buffer) and a [rate](Self::impair) of impairments; to the sender all are one address.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback().shards(2))?;
    /// assert_eq!(ctx.device_info()?.shards, 2);
    /// let pd = ctx.alloc_pd();
    /// let [a, b] = [ctx.create_cq(16, None)?, ctx.create_cq(16, None)?];
    /// let [a, b] = [pd.create_qp(&QpConfig::rc(&a))?, pd.create_qp(&QpConfig::rc(&b))?];
    /// assert_ne!(a.qpn().shard(), b.qpn().shard());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn shards(self, count: u8) -> Self {
        Self { shards: Some(count), ..self }
    }

    /// When to acknowledge what has arrived.
    pub fn ack_policy(self, policy: AckPolicy) -> Self {
        Self { ack_policy: policy, ..self }
    }

    /// What happens to datagrams on their way: losses, duplicates, delays, from a seed.
    pub fn impair(self, impairments: Impairments) -> Self {
        Self { impairments: Some(impairments), ..self }
    }

    /// Shows every packet to `sink`, as it is on the wire. It is called under the device's lock:
    /// it must not use the device.
    pub fn capture(self, sink: Box<dyn Sink>) -> Self {
        Self { capture: Some(sink), ..self }
    }

    /// Writes the device's counters, and those of its queue pairs, to a file in this directory, every
    /// second and when the device is closed: `softroce0-127.0.0.1.prom`, by the device's name and address,
    /// as Prometheus reads it ([`prometheus`](super::DeviceCounters::prometheus)). Each time the file is replaced as a whole.
    /// Of queue pairs that are destroyed the last 1024 are still in it.
    pub fn counters(self, directory: impl Into<PathBuf>) -> Self {
        Self { counters: Some(directory.into()), ..self }
    }

    /// The partitions that the device's port belongs to, instead of the default one: its P_Key table, in
    /// the order that `pkey_index` counts. Bit 15 of a key marks a full member, who talks to all members of
    /// the partition; limited members talk to full ones alone. A queue pair belongs to the first unless it
    /// [says otherwise](super::ConnectOptions::pkey_index). Packets of other partitions are dropped.
    ///
    /// RoCE has no subnet manager that would hand out keys: those whom one talks to have to be given the
    /// same. Kernel rxe has the default partition only.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let storage = PKey(0x8001);
    /// let options = || OpenOptions::loopback().pkeys([PKey::DEFAULT, storage]);
    /// let (near, far) = (Context::open(options())?, Context::open(options())?);
    /// let index = near.pkey_index(storage).unwrap_or_default();
    /// # let (near_cq, far_cq) = (near.create_cq(16, None)?, far.create_cq(16, None)?);
    /// # let (near_pd, far_pd) = (near.alloc_pd(), far.alloc_pd());
    /// # let qp = near_pd.create_qp(&QpConfig::rc(&near_cq))?;
    /// # let far_qp = far_pd.create_qp(&QpConfig::rc(&far_cq))?;
    /// let connect = ConnectOptions { pkey_index: index, ..ConnectOptions::default() };
    /// qp.connect(&far_qp.endpoint(), &connect)?;
    /// far_qp.connect(&qp.endpoint(), &connect)?;
    /// # let target = far_pd.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// # let source = near_pd.alloc_mr(64, Access::empty())?;
    /// # qp.post_send(SendRequest::write(1, source.sge(..), target.remote(0)).signaled())?;
    /// # assert_eq!(near_cq.wait_one(None)?.status, WcStatus::Success);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn pkeys(self, pkeys: impl IntoIterator<Item = PKey>) -> Self {
        Self { pkeys: Some(pkeys.into_iter().collect()), ..self }
    }

    /// Completes the options from the environment.
    pub(super) fn config(self) -> Result<DeviceConfig, EnvError> {
        let env = Environment::read()?;
        let special = self.receive_buffer.is_some()
            || self.reorder_buffer.is_some()
            || self.source_port.is_some()
            || self.via.is_some()
            || self.shards.is_some()
            || self.impairments.is_some()
            || self.capture.is_some()
            || self.counters.is_some()
            || self.pkeys.is_some()
            || self.ack_policy != AckPolicy::default();
        let mut also = self.also;
        let via = self.via.or(env.via).unwrap_or_default();
        let named = if env.ips.is_empty() { via.addresses() } else { env.ips };
        let address = match (self.ip, named.split_first()) {
            _ if self.free => Address::Free,
            (Some(ip), _) => Address::Ip(ip),
            (None, Some((ip, others))) => {
                also.splice(..0, others.iter().copied());
                Address::Ip(*ip)
            }
            (None, None) => Address::Own,
        };
        Ok(DeviceConfig {
            address,
            also,
            name: self.name.or(env.name).unwrap_or_else(|| String::from("softroce0")),
            receive_buffer: self.receive_buffer.or(env.receive_buffer),
            reorder_buffer: self.reorder_buffer.or(env.reorder_buffer),
            source_port: self.source_port.or(env.source_port),
            via,
            shards: self.shards.or(env.shards).unwrap_or(1),
            ack_policy: self.ack_policy,
            impairments: self.impairments.or(env.impair),
            capture: self.capture,
            counters: self.counters.or(env.counters),
            pkeys: self.pkeys.unwrap_or_else(|| vec![PKey::DEFAULT]),
            special,
        })
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = f.debug_struct("OpenOptions");
        options.field("ip", &self.ip).field("also", &self.also).finish_non_exhaustive()
    }
}
