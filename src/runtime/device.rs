//! Devices: each with addresses that no other of the process has.

use std::fmt;
use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use thiserror::Error;

use crate::engine::{Config, Engine};
use crate::ids::{Gid, Mtu, PKey, PdId, Qpn};
use crate::io::capture::{Capture, Shared};
use crate::io::impair::{Impair, Impairments};
#[cfg(feature = "packet")]
use crate::io::packet;
use crate::io::sorted::Sorted;
#[cfg(feature = "tap")]
use crate::io::tap;
use crate::io::udp;
use crate::io::{Opener, Port, PortConfig, PortInfo, PortKind, Sink};
use crate::mem::Memory;
use crate::net::ROCE_PORT;
use crate::runtime::core::Core;
use crate::runtime::counters::{DeviceCounters, Report};
use crate::runtime::env::EnvError;
use crate::runtime::opener;
use crate::runtime::peers::Peers;
use crate::runtime::registry::{Claim, Claimed};
use crate::runtime::shard::Shard;
use crate::runtime::{AckPolicy, CqNumbers, Down, Shards, XrcdTable, fork};
use crate::sync::Mutex;
use crate::transport::window::DEFAULT_RECEIVE_BUFFER;

/// How a device is opened.
pub(crate) struct DeviceConfig {
    pub(crate) address: Address,
    /// Its other addresses.
    pub(crate) also: Vec<IpAddr>,
    pub(crate) name: String,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) reorder_buffer: Option<u64>,
    pub(crate) source_port: Option<u16>,
    pub(crate) via: PortKind,
    /// How many shards it has.
    pub(crate) shards: u8,
    pub(crate) ack_policy: AckPolicy,
    pub(crate) impairments: Option<Impairments>,
    pub(crate) capture: Option<Box<dyn Sink>>,
    /// The P_Key table.
    pub(crate) pkeys: Vec<PKey>,
    /// The directory that the counters are written to.
    pub(crate) counters: Option<PathBuf>,
    /// Whether it is to be different from what an address opens by itself. A device that is open
    /// already cannot follow such wishes.
    pub(crate) special: bool,
}

impl DeviceConfig {
    /// The addresses of a device with `ip` for its first.
    fn ips(&self, ip: IpAddr) -> Result<Vec<IpAddr>, OpenError> {
        let ips: Vec<_> = iter::once(ip).chain(self.also.iter().copied()).collect();
        if ips.len() > MAX_ADDRESSES {
            return Err(OpenError::TooManyAddresses { found: ips.len(), max: MAX_ADDRESSES });
        }
        let twice = ips.iter().enumerate().find(|(at, ip)| ips[..*at].contains(ip));
        twice.map_or(Ok(()), |(_, ip)| Err(OpenError::SameAddress { ip: *ip }))?;
        Ok(ips)
    }

    /// Opens the ports of a device with these addresses, one a shard, and says what packets they carry.
    fn open_ports(
        &self,
        ips: &[IpAddr],
        opener: &dyn Opener,
    ) -> Result<(Vec<Box<dyn Port>>, Mtu), OpenError> {
        let mut active_mtu = Mtu::Mtu4096;
        let configured = |ip| PortConfig {
            receive_buffer: self.receive_buffer,
            source_port: self.source_port,
            ..PortConfig::new(ip)
        };
        let ports = opener::open(opener, ips, self.shards, &configured, &mut |port| {
            let PortInfo { ip, link_mtu: mtu, .. } = port.info();
            active_mtu = active_mtu.min(Mtu::for_link(mtu).ok_or(OpenError::LinkMtu { ip, mtu })?);
            Ok(())
        })?;
        Ok((ports, active_mtu))
    }

    /// Makes a shard around each port, with an engine that finds memory in `memory`.
    fn start_shards(
        &mut self,
        ports: Vec<Box<dyn Port>>,
        engines: &Config,
        memory: &Arc<Memory>,
        claim: Arc<Claim>,
    ) -> Result<Arc<Shards>, OpenError> {
        let os = |what| move |source| OpenError::Os { what, source };
        let mut shards = Vec::new();
        for (index, port) in (0..).zip(self.wrap(ports).map_err(os("eventfd"))?) {
            let config = Config { shard: engines.shard + index, ..engines.clone() };
            let seed = random().map_err(os("random numbers"))?;
            let engine = Engine::new(config, Arc::clone(memory), seed);
            let core = Core::new(engine, port, self.ack_policy);
            shards.push(Shard::new(core, index, &claim).map_err(os("eventfd"))?);
        }
        Ok(Shards::new(shards))
    }

    /// Puts around the ports of all shards what the options ask for. The capture shows what is on the wire,
    /// so it is inside.
    fn wrap(&mut self, ports: Vec<Box<dyn Port>>) -> io::Result<Vec<Box<dyn Port>>> {
        let several = ports.len() > 1;
        // What one port shows needs no lock.
        let mut sinks: Vec<Box<dyn Sink>> = match self.capture.take() {
            Some(sink) if several => {
                let shared = Shared::new(sink);
                ports.iter().map(|_| Box::new(shared.clone()) as Box<dyn Sink>).collect()
            }
            sink => sink.into_iter().collect(),
        };
        let wrap = |(index, mut port): (u64, Box<dyn Port>)| {
            if let Some(sink) = sinks.pop() {
                port = Box::new(Capture::new(port, sink));
            }
            if let Some(impairments) = self.impairments {
                // They are not to lose in step.
                let seed = impairments.seed.wrapping_add(index);
                port = Box::new(Impair::new(port, &Impairments { seed, ..impairments }));
            }
            port
        };
        let ports = (0..).zip(ports).map(wrap).collect();
        if !several {
            return Ok(ports);
        }
        Ok(Sorted::all(ports)?.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect())
    }
}

/// Addresses that a device may have: as many as the index of a source GID names.
const MAX_ADDRESSES: usize = 256;

/// Which address a device is to have for its first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// This one.
    Ip(IpAddr),
    /// That of the device which this process has taken without being told one; else the first free.
    Own,
    /// The first free of 127.0.0.1, 127.0.0.2, …
    Free,
}

/// Why a device cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The port cannot be opened.
    #[error(transparent)]
    Port(#[from] udp::OpenError),
    /// The packet port cannot be opened.
    #[cfg(feature = "packet")]
    #[error(transparent)]
    PacketPort(packet::OpenError),
    /// The TAP port cannot be opened.
    #[cfg(feature = "tap")]
    #[error(transparent)]
    TapPort(tap::OpenError),
    /// A port of another kind cannot be opened, such as a [`CustomPort`](crate::io::CustomPort).
    #[error(transparent)]
    OtherPort(Box<dyn std::error::Error + Send + Sync>),
    /// The environment says something that makes no sense.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// Every loopback address is taken.
    #[error("no address of 127.0.0.1 to 127.0.0.254 is free{}", Because(last.as_ref()))]
    NoneFree {
        /// Why the last one could not be had, unless it is a device of this process.
        last: Option<udp::OpenError>,
    },
    /// The device is open already, and cannot take options that the first to open it has not given.
    #[error("the device at {ip} is open already; options must be given when it is opened first")]
    AlreadyOpen {
        /// Its address.
        ip: IpAddr,
    },
    /// Another device of this process has the address.
    #[error("{ip} belongs to the device at {device}, which is open already")]
    Belongs {
        /// The address.
        ip: IpAddr,
        /// The first address of that device.
        device: IpAddr,
    },
    /// An address is given twice.
    #[error("{ip} is given twice: each address of a device has one place in its GID table")]
    SameAddress {
        /// The address.
        ip: IpAddr,
    },
    /// There are more addresses than a GID table holds.
    #[error("{found} addresses are given: a device takes {max} at most")]
    TooManyAddresses {
        /// How many.
        found: usize,
        /// How many there can be, by the index of a source GID.
        max: usize,
    },
    /// The interface carries no packet.
    #[error("the interface of {ip} has an MTU of {mtu}, which carries no packet of 256 bytes")]
    LinkMtu {
        /// The address.
        ip: IpAddr,
        /// Bytes of an IP packet.
        mtu: usize,
    },
    /// The low bits of queue pair numbers do not name so many shards.
    #[error("a device has 1, 2, 4, 8, 16, 32 or 64 shards, not {found}")]
    Shards {
        /// What was asked for.
        found: u8,
    },
    /// Ports of this kind have one shard.
    #[error(
        "{shards} shards are asked for by {via}, and only a device by udp has more than one; \
         several processes share an address by packet"
    )]
    ShardsVia {
        /// How many.
        shards: u8,
        /// What the port is called.
        via: &'static str,
    },
    /// The P_Key table has no entry.
    #[error("the P_Key table is empty: a port belongs to one partition at least")]
    NoPKey,
    /// No partition has this key.
    #[error("P_Key {0} names no partition: its lower 15 bits are 0")]
    InvalidPKey(PKey),
    /// A partition is in the P_Key table twice, which would leave open what its member may do.
    #[error("P_Keys {first} and {second} name the same partition")]
    SamePartition {
        /// One entry.
        first: PKey,
        /// The other.
        second: PKey,
    },
    /// Counters cannot be written where they are wanted.
    #[error("counters cannot be written to directory {}: {source}", directory.display())]
    Counters {
        /// Where.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses something else.
    #[error("{what}: {source}")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

struct Because<'a>(Option<&'a udp::OpenError>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// One address or several, and all that is behind them. Dropping the last handle sends what is owed,
/// ends the threads and closes the sockets.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) shards: Arc<Shards>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) name: String,
    /// The first of its addresses.
    pub(crate) ip: IpAddr,
    /// Its addresses, each in its slot, whether an interface has it now or not.
    pub(crate) gids: Vec<Gid>,
    pub(crate) pkeys: Vec<PKey>,
    /// Bytes of its socket's receive buffer.
    pub(crate) receive_buffer: u64,
    next_pd: AtomicU32,
    pub(crate) xrcds: XrcdTable,
    pub(crate) cqs: CqNumbers,
    pub(crate) peers: Peers,
    threads: Vec<JoinHandle<()>>,
    report: Option<Report>,
    generation: u32,
}

/// The device that this process has taken without being told an address.
static OWN: Mutex<Weak<Device>> = Mutex::new(Weak::new());

/// Keeps others from taking one.
pub(super) type Held = MutexGuard<'static, Weak<Device>>;

pub(super) fn hold() -> Held {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// The device at some addresses: the one that is open, or a new one.
    pub(crate) fn open(mut config: DeviceConfig) -> Result<Arc<Self>, OpenError> {
        check_pkeys(&config.pkeys)?;
        if !may_be_shards(config.shards) {
            return Err(OpenError::Shards { found: config.shards });
        }
        fork::watch();
        match config.address {
            Address::Ip(ip) => {
                let ips = config.ips(ip)?;
                match Claim::find_or_make(&ips) {
                    Claimed::Device(taken, device) => device.suits(&config, &ips, taken),
                    Claimed::Caller(claim) => Self::start(ip, claim, &mut config),
                }
            }
            Address::Own => {
                let mut own = hold();
                if let Some(device) = own.upgrade().filter(|device| device.is_ours()) {
                    drop(own);
                    let ip = device.ip;
                    return device.suits(&config, &config.ips(ip)?, ip);
                }
                let device = Self::at_first_free(&mut config)?;
                *own = Arc::downgrade(&device);
                Ok(device)
            }
            Address::Free => Self::at_first_free(&mut config),
        }
    }

    /// Whether it is the device that is wanted at these addresses, of which it has the one that is taken.
    fn suits(
        self: Arc<Self>,
        config: &DeviceConfig,
        ips: &[IpAddr],
        taken: IpAddr,
    ) -> Result<Arc<Self>, OpenError> {
        if ips.first() != Some(&self.ip) {
            return Err(OpenError::Belongs { ip: taken, device: self.ip });
        }
        let others = !config.also.is_empty() && self.shards.first().claim().ips() != ips;
        if config.special || others {
            return Err(OpenError::AlreadyOpen { ip: self.ip });
        }
        Ok(self)
    }

    fn at_first_free(config: &mut DeviceConfig) -> Result<Arc<Self>, OpenError> {
        if !config.also.is_empty()
            && let Claimed::Device(ip, device) = Claim::find_or_make(&config.also)
        {
            return Err(OpenError::Belongs { ip, device: device.ip });
        }
        let mut error = OpenError::NoneFree { last: None };
        let also = config.also.clone();
        let mut addresses = loopback_addresses().filter(|ip| !also.contains(ip)).peekable();
        while let Some(ip) = addresses.next() {
            let Some(claim) = Claim::make_free(&config.ips(ip)?) else { continue };
            // To find out who holds an address takes long; the last will do.
            let is_last = addresses.peek().is_none() || !config.via.is_of_host();
            if !is_last && UdpSocket::bind((ip, ROCE_PORT)).is_err() {
                continue;
            }
            match Self::start(ip, claim, config) {
                Err(OpenError::Port(last @ udp::OpenError::InUse { ip: taken, .. }))
                    if taken == ip =>
                {
                    error = OpenError::NoneFree { last: Some(last) };
                }
                result => return result,
            }
        }
        Err(error)
    }

    fn start(ip: IpAddr, claim: Claim, config: &mut DeviceConfig) -> Result<Arc<Self>, OpenError> {
        let opener = opener::opener(&config.via, claim.ips(), config.shards)?;
        let (ports, active_mtu) = config.open_ports(claim.ips(), &*opener)?;
        let os = |what| move |source| OpenError::Os { what, source };
        let memory = Arc::new(Memory::new(random().map_err(os("random numbers"))?));
        let gids: Vec<_> = claim.ips().iter().copied().map(Gid::from).collect();
        let buffers = ports.iter().map(|port| port.info().receive_buffer as u64);
        let receive_buffer = buffers.min().unwrap_or_default();
        let engines = Config {
            active_mtu,
            receive_buffer,
            reorder_buffer: config.reorder_buffer.unwrap_or(receive_buffer),
            gids: gids.clone(),
            pkeys: config.pkeys.clone(),
            shard: opener.first_shard(),
            shards: config.shards,
            // What a peer bears is for all of them.
            peer_receive_buffer: DEFAULT_RECEIVE_BUFFER / u64::from(config.shards),
            watches_backlogs: true,
            remembers_ended: if config.counters.is_some() { Report::ENDED } else { 0 },
            ..Config::new(ip)
        };
        let shards = config.start_shards(ports, &engines, &memory, Arc::new(claim))?;
        let report = config.counters.take().map(|directory| {
            Report::start(&directory, &config.name, ip, &shards)
                .map_err(|source| OpenError::Counters { directory, source })
        });
        let report = report.transpose()?;
        let mut device = Self {
            shards,
            memory,
            name: config.name.clone(),
            ip,
            gids,
            pkeys: config.pkeys.clone(),
            receive_buffer: engines.receive_buffer,
            next_pd: AtomicU32::new(1),
            xrcds: XrcdTable::default(),
            cqs: CqNumbers::default(),
            peers: Peers::default(),
            threads: Vec::new(),
            report,
            generation: fork::generation(),
        };
        for shard in device.shards.iter() {
            // Those that have started end with the device.
            let thread = spawn(&config.name, shard).map_err(os("starting a thread"))?;
            device.threads.push(thread);
        }
        let device = Arc::new(device);
        Claim::enter(&device);
        Ok(device)
    }

    /// What the device has counted.
    pub(crate) fn counters(&self) -> Result<DeviceCounters, Down> {
        DeviceCounters::of(&self.shards, &self.name, self.ip)
    }

    /// The number of a new protection domain.
    pub(crate) fn next_pd(&self) -> PdId {
        PdId(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether it is of this process and not of the one this was forked from.
    fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let (threads, report) = (std::mem::take(&mut self.threads), self.report.take());
        if !self.is_ours() {
            // The threads are the parent's, and so is what is owed.
            std::mem::forget((threads, report));
            return;
        }
        self.shards.flush();
        self.shards.iter().for_each(|shard| shard.stop());
        for thread in threads {
            // A panic has been told to those who wait already.
            let _ = thread.join();
        }
        if let Some(report) = report {
            report.finish(&self.shards);
        }
    }
}

/// Whether a port may have this P_Key table (IBTA vol 1, §10.9.1).
fn check_pkeys(pkeys: &[PKey]) -> Result<(), OpenError> {
    if pkeys.is_empty() {
        return Err(OpenError::NoPKey);
    }
    for (at, second) in pkeys.iter().copied().enumerate() {
        if second.partition() == 0 {
            return Err(OpenError::InvalidPKey(second));
        }
        let same = |first: &&PKey| first.partition() == second.partition();
        if let Some(first) = pkeys[..at].iter().find(same).copied() {
            return Err(OpenError::SamePartition { first, second });
        }
    }
    Ok(())
}

/// Whether a device may have so many shards.
pub(crate) fn may_be_shards(count: u8) -> bool {
    count.is_power_of_two() && count <= Qpn::SHARDS
}

/// The addresses that devices take which are told none: the first that is free.
pub fn loopback_addresses() -> impl Iterator<Item = IpAddr> {
    (1..=254).map(|host| Ipv4Addr::new(127, 0, 0, host).into())
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(error),
    })?;
    Ok(bytes)
}

fn spawn(name: &str, shard: &Arc<Shard>) -> io::Result<JoinHandle<()>> {
    let shard = Arc::clone(shard);
    thread::Builder::new().name(name.to_owned()).spawn(move || shard.run())
}
