//! Contexts: handles on devices.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::ids::PKey;
use crate::io::impair::Impairments;
use crate::io::{PortKind, Sink};
use crate::runtime::{
    AckPolicy, Address, Bell, Device, DeviceConfig, EnvError, Environment, OnSignal, OpenError,
    Queue, ShardSet, Waited, now,
};
use crate::transport::outputs::AsyncEvent;
use crate::verbs::subject::{Subject, Subjects};
use crate::verbs::{DeviceCounters, Error};

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
    /// allow less: [`DeviceInfo::port`] tells. Without it: what the system allows, up to 8 MiB.
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
    /// as Prometheus reads it ([`DeviceCounters::prometheus`]). Each time the file is replaced as a whole.
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

    /// Fills in from the environment what is not said.
    fn config(self) -> Result<DeviceConfig, EnvError> {
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

/// A handle on a device, from which everything else is made.
///
/// The device is closed when the last of all handles that came from it is gone. What it owes its
/// peers by then is sent.
#[doc(alias = "ibv_context")]
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) inner: Arc<ContextInner>,
}

#[derive(Debug)]
pub(super) struct ContextInner {
    pub(super) device: Arc<Device>,
    pub(super) events: Arc<Queue<AsyncEvent>>,
    bell: OnceLock<Arc<Bell>>,
    /// Of what events can tell.
    pub(super) subjects: Subjects,
}

/// Events that wait for an application which does not ask for them; later ones are lost.
const MAX_EVENTS: usize = 4096;

impl Context {
    /// Opens a device, or gets another handle on one that this process has open.
    ///
    /// # Errors
    ///
    /// [`Error::Open`]: above all when another process, or the kernel's `rdma_rxe`, holds the
    /// RoCEv2 port of the address; the text says who.
    #[doc(alias = "ibv_open_device")]
    pub fn open(options: OpenOptions) -> Result<Self, Error> {
        let device = Device::open(options.config().map_err(OpenError::from)?)?;
        let events = Arc::new(Queue::new(MAX_EVENTS));
        device.shards.first().with(|core, _| core.add_context(&events))?;
        let (bell, subjects) = (OnceLock::new(), Subjects::default());
        Ok(Self { inner: Arc::new(ContextInner { device, events, bell, subjects }) })
    }

    /// The next asynchronous event of the objects that were made from this context, if there is
    /// one.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        let events = &self.inner.events;
        events.pop().or_else(|| {
            // A device that has failed has no more events.
            let _ = self.inner.device.shards.turn_for(ShardSet::ALL, events);
            events.pop()
        })
    }

    /// Waits for an asynchronous event.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Down`].
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait_event(&self, timeout: impl Into<Option<Duration>>) -> Result<AsyncEvent, Error> {
        self.wait_event_with(timeout.into(), OnSignal::Wait)
    }

    pub(super) fn wait_event_with(
        &self,
        timeout: Option<Duration>,
        on_signal: OnSignal,
    ) -> Result<AsyncEvent, Error> {
        let (events, what) = (&self.inner.events, "asynchronous event");
        self.inner.wait(ShardSet::ALL, events, timeout, on_signal, what)
    }

    /// A descriptor that is readable while there are asynchronous events.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] when there are no more descriptors.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        let bell = match self.inner.bell.get() {
            Some(bell) => bell,
            None => {
                let bell = Bell::new().map_err(|source| Error::Os { what: "eventfd", source })?;
                self.inner.bell.get_or_init(|| Arc::new(bell))
            }
        };
        self.inner.events.export(bell);
        Ok(bell.as_fd())
    }

    /// The device's address; of several the first.
    pub fn ip(&self) -> IpAddr {
        self.inner.device.ip
    }

    /// What the device has counted, and each of its queue pairs.
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let counters = ctx.counters()?;
    /// for counter in counters.iter().filter(|counter| counter.value > 0) {
    ///     println!("{}: {} ({})", counter.name, counter.value, counter.help);
    /// }
    /// assert_eq!((counters.protocol.retransmitted, counters.port.kernel_drops), (0, 0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    pub fn counters(&self) -> Result<DeviceCounters, Error> {
        Ok(self.inner.device.counters()?)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Whoever drops it may have nothing more to do with the network for long.
        self.inner.device.shards.flush();
    }
}

impl ContextInner {
    /// An object is gone: nobody is told of it any more.
    pub(super) fn forget(&self, subject: Subject) {
        self.subjects.remove(subject);
        self.events.retain(|event| Subject::of(*event) != Some(subject));
    }

    /// Whether this is its device.
    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// Waits for something in a queue that these shards of the device fill.
    pub(super) fn wait<T>(
        &self,
        feeders: ShardSet,
        queue: &Queue<T>,
        timeout: Option<Duration>,
        on_signal: OnSignal,
        what: &'static str,
    ) -> Result<T, Error> {
        let until = timeout.map(|timeout| now() + timeout);
        match self.device.shards.wait(feeders, queue, until, on_signal)? {
            Waited::Item(item) => Ok(item),
            Waited::Over => Err(Error::timeout(what, timeout)),
            Waited::Interrupted => Err(Error::Interrupted { what }),
        }
    }
}
