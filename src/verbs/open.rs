//! Options for opening a device.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::ids::PKey;
use crate::port::impair::Impairments;
use crate::port::{PortKind, Sink};
use crate::runtime::{
    AckPolicy, Address, DeviceConfig, EnvError, Environment, Observers, OwnAddress, PostPolicy,
};

/// Options for opening a device. [The environment](Environment) may set those that the program leaves unset.
///
/// The first context of an address configures the device; later contexts share it as it is.
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
    /// The address of a device without one in its options.
    unnamed: Address,
    name: Option<String>,
    receive_buffer: Option<usize>,
    reorder_buffer: Option<u64>,
    source_port: Option<u16>,
    via: Option<PortKind>,
    shards: Option<u8>,
    ack_policy: AckPolicy,
    post_policy: Option<PostPolicy>,
    impairments: Option<Impairments>,
    observers: Observers,
    pkeys: Option<Vec<PKey>>,
}

impl OpenOptions {
    /// Opens a separate device at the first free address of 127.0.0.1, 127.0.0.2, …: for two devices in
    /// one process, and for tests.
    pub fn loopback() -> Self {
        Self { unnamed: Address::Free, ..Self::default() }
    }

    /// Sets the address of the device that the process opens without one.
    pub(super) fn own(self, own: OwnAddress) -> Self {
        Self { unnamed: Address::Own(own), ..self }
    }

    /// Sets the device's address, an IPv4 or IPv6 address of the machine. The default is the addresses in
    /// `SOFTROCE_IP`; without them the address that this process opened before, or else the first free
    /// address of 127.0.0.1, 127.0.0.2, …
    pub fn ip(self, ip: IpAddr) -> Self {
        Self { ip: Some(ip), ..self }
    }

    /// Adds an address of the same or another interface, IPv4 or IPv6. It becomes the next entry of the GID
    /// table, where the device's first address has index 0; `sgid_index` selects the source address of a
    /// connection or a datagram. The device receives packets at all its addresses. A table of fewer than four
    /// addresses repeats them, up to index 3.
    ///
    /// An address belongs to one device. The device is opened with all of them or not at all.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let spare = std::net::Ipv4Addr::from(0x7f4d_0000 | std::process::id() & 0xffff).into();
    /// let ctx = Context::open(OpenOptions::loopback().also_ip(spare))?;
    /// assert_eq!(ctx.query_gid(1)?.ip(), spare);
    ///
    /// // The endpoint for the peer names that address, and the queue pair connects from there.
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

    /// Sets the device's name, instead of `softroce0`.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the size of the socket's receive buffer in bytes, as the kernel counts them. The system may
    /// allow less: [`DeviceInfo::port`](super::DeviceInfo::port) contains the size in use. The default is
    /// the maximum that the system allows, up to 8 MiB.
    pub fn receive_buffer(self, bytes: usize) -> Self {
        Self { receive_buffer: Some(bytes), ..self }
    }

    /// Sets the size of the out-of-order buffer in bytes. It keeps SENDs and WRITEs, and responses to READs and
    /// atomics, while an earlier packet is missing, so that an RC or XRC peer retransmits only that packet. With 0
    /// the device drops them, as most adapters and kernel rxe do, and the peer retransmits all packets after the
    /// lost one too. The default is the size of the receive buffer. The requests of one connection occupy four
    /// fifths at most, and so do its responses.
    pub fn reorder_buffer(self, bytes: u64) -> Self {
        Self { reorder_buffer: Some(bytes), ..self }
    }

    /// Sets one UDP source port, for firewalls that must know it; 4791 is allowed. The default is ports
    /// from 49152 to 65535, by which switches distinguish connections.
    pub fn source_port(self, port: u16) -> Self {
        Self { source_port: Some(port), ..self }
    }

    /// Sets the port that sends and receives packets, instead of UDP sockets. A TAP port provides the device's
    /// addresses if the options contain none.
    pub fn via(self, kind: PortKind) -> Self {
        Self { via: Some(kind), ..self }
    }

    /// Sets the number of shards, a power of two up to 64, instead of one. Each shard is an engine with its own
    /// lock, thread and socket, so the traffic of several threads, or of several peers, uses several CPUs. A
    /// UDP port supports several shards, a packet port one.
    ///
    /// The device assigns queue pairs and shared receive queues to the shards round-robin. The queue pairs of a
    /// [thread domain](super::ThreadDomain) are on one shard, and so are those that share a receive queue, and
    /// those of an XRC domain. A completion queue serves all shards: a poll visits each shard with queue
    /// pairs that complete there, so a thread is fastest with queue pairs of one shard.
    ///
    /// Options of a socket, as [`receive_buffer`](Self::receive_buffer), apply to each shard, and so do
    /// [`reorder_buffer`](Self::reorder_buffer) and the [rate](Self::impair) of impairments. All shards have
    /// the same address.
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

    /// Sets when the device acknowledges requests.
    pub fn ack_policy(self, policy: AckPolicy) -> Self {
        Self { ack_policy: policy, ..self }
    }

    /// Sets when posted send requests leave. By default a request that is posted right after another one may wait
    /// for the next poll of a completion queue, and leave together with others ([`PostPolicy::Coalesce`]).
    pub fn post_policy(self, policy: PostPolicy) -> Self {
        Self { post_policy: Some(policy), ..self }
    }

    /// Impairs the network: datagrams are lost, duplicated and delayed, by random numbers from a seed.
    pub fn impair(self, impairments: Impairments) -> Self {
        Self { impairments: Some(impairments), ..self }
    }

    /// Passes every packet to `sink` as it is on the wire. The device calls the sink under its lock, so the
    /// sink must not use the device.
    pub fn capture(self, sink: Box<dyn Sink>) -> Self {
        let observers = Observers { capture: Some(sink), ..self.observers };
        Self { observers, ..self }
    }

    /// Writes the counters of the device and its queue pairs to a file in this directory, every second and when
    /// the device closes. The name consists of the device's name and address, as
    /// `softroce0-127.0.0.1.prom`, and the format is that of Prometheus
    /// ([`prometheus`](super::DeviceCounters::prometheus)). Each write replaces the whole file. The file
    /// includes the last 1024 destroyed queue pairs.
    pub fn counters(self, directory: impl Into<PathBuf>) -> Self {
        let observers = Observers { counters: Some(directory.into()), ..self.observers };
        Self { observers, ..self }
    }

    /// Sets whether the device has a [control socket](crate::runtime::control), at which other programs of the user
    /// read its counters and capture its packets. The default is that it has.
    pub fn control(self, control: bool) -> Self {
        let observers = Observers { control: Some(control), ..self.observers };
        Self { observers, ..self }
    }

    /// Sets the P_Key table of the device's port, in the order of `pkey_index`, instead of the default
    /// partition alone. Bit 15 of a key marks a full member, which communicates with all members of the
    /// partition; limited members communicate with full members only. A queue pair belongs to the first
    /// partition unless [`ConnectOptions`](super::ConnectOptions::pkey_index) select another. The device drops
    /// packets of other partitions.
    ///
    /// RoCE has no subnet manager that assigns keys: the peers need the same keys. Kernel rxe has the default
    /// partition only.
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
            || self.observers.are_given()
            || self.pkeys.is_some()
            || self.post_policy.is_some()
            || self.ack_policy != AckPolicy::default();
        let mut also = self.also;
        let via = self.via.or(env.via).unwrap_or_default();
        let named = if env.ips.is_empty() { via.addresses() } else { env.ips };
        let address = match (self.ip, named.split_first()) {
            _ if self.unnamed == Address::Free => Address::Free,
            (Some(ip), _) => Address::Ip(ip),
            (None, Some((ip, others))) => {
                also.splice(..0, others.iter().copied());
                Address::Ip(*ip)
            }
            (None, None) => self.unnamed,
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
            post_policy: self.post_policy.or(env.post_policy).unwrap_or_default(),
            impairments: self.impairments.or(env.impair),
            observers: Observers {
                capture: self.observers.capture,
                counters: self.observers.counters.or(env.counters),
                control: self.observers.control.or(env.control),
            },
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
