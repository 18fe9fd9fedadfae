//! Opening of devices.

use std::io;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::{self, JoinHandle};

use crate::engine::{Config, Engine, gid_table};
use crate::ids::{Mtu, PKey};
use crate::mem::Memory;
use crate::net::ROCE_PORT;
use crate::port::capture::{Capture, Shared};
use crate::port::impair::{Impair, Impairments};
use crate::port::udp;
use crate::port::wrap::shard_demux::DemuxPort;
use crate::port::{Port, PortConfig, PortInfo, PortKind, PortOpener, Sink};
use crate::runtime::control::{About, ControlServer};
use crate::runtime::core::Core;
use crate::runtime::counters::CountersFile;
use crate::runtime::device::Device;
use crate::runtime::lease::AddressLease;
use crate::runtime::open_error::OpenError;
use crate::runtime::opener;
use crate::runtime::peers::PeerReceiveBuffers;
use crate::runtime::random::random;
use crate::runtime::registry::{self, Claimed};
use crate::runtime::shard::Shard;
use crate::runtime::shard_set::may_be_shards;
use crate::runtime::{AckPolicy, CqNumbers, LogLevel, PostPolicy, Shards, XrcdTable, log};
use crate::transport::window::DEFAULT_RECEIVE_BUFFER;

/// Means by which a device is observed.
#[derive(Default)]
pub(crate) struct Observers {
    pub(crate) capture: Option<Box<dyn Sink>>,
    /// Directory for the counters file.
    pub(crate) counters: Option<PathBuf>,
    /// Whether the device has a control socket; by default it has.
    pub(crate) control: Option<bool>,
}

impl Observers {
    /// Returns whether the program has chosen any.
    pub(crate) fn are_given(&self) -> bool {
        self.capture.is_some() || self.counters.is_some() || self.control.is_some()
    }
}

/// Configuration of a device.
pub(crate) struct DeviceConfig {
    pub(crate) address: Address,
    /// Further addresses.
    pub(crate) also: Vec<IpAddr>,
    pub(crate) name: String,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) reorder_buffer: Option<u64>,
    pub(crate) source_port: Option<u16>,
    pub(crate) via: PortKind,
    /// Number of shards.
    pub(crate) shards: u8,
    pub(crate) ack_policy: AckPolicy,
    pub(crate) post_policy: PostPolicy,
    pub(crate) impairments: Option<Impairments>,
    pub(crate) observers: Observers,
    /// The P_Key table.
    pub(crate) pkeys: Vec<PKey>,
    /// The options differ from those of an unconfigured device. A device that is open already cannot apply them.
    pub(crate) special: bool,
}

impl DeviceConfig {
    /// Returns the addresses of the device with the first address `ip`.
    fn ips(&self, ip: IpAddr) -> Result<Vec<IpAddr>, OpenError> {
        let ips: Vec<_> = iter::once(ip).chain(self.also.iter().copied()).collect();
        if ips.len() > MAX_ADDRESSES {
            return Err(OpenError::TooManyAddresses { found: ips.len(), max: MAX_ADDRESSES });
        }
        let twice = ips.iter().enumerate().find(|(at, ip)| ips[..*at].contains(ip));
        twice.map_or(Ok(()), |(_, ip)| Err(OpenError::SameAddress { ip: *ip }))?;
        Ok(ips)
    }

    /// Opens the ports of a device, one for each shard, and returns the MTU of all.
    fn open_ports(
        &self,
        ips: &[IpAddr],
        opener: &dyn PortOpener,
    ) -> Result<(Vec<Box<dyn Port>>, Mtu), OpenError> {
        let mut active_mtu = Mtu::Mtu4096;
        let config_of = |ip| PortConfig {
            receive_buffer: self.receive_buffer,
            source_port: self.source_port,
            ..PortConfig::new(ip)
        };
        let ports = opener::open(opener, ips, self.shards, &config_of, &mut |port| {
            let PortInfo { ip, link_mtu: mtu, .. } = port.info();
            active_mtu = active_mtu.min(Mtu::for_link(mtu).ok_or(OpenError::LinkMtu { ip, mtu })?);
            Ok(())
        })?;
        Ok((ports, active_mtu))
    }

    /// Opens the control socket, if the device has one. Its absence does not keep the device from working.
    fn open_control(&self, shards: &Arc<Shards>, ip: IpAddr) -> Option<Arc<ControlServer>> {
        let about = About { name: self.name.clone(), ip, via: self.via.name() };
        let has_control = self.observers.control.unwrap_or(true);
        let opened = has_control.then(|| ControlServer::open(about, shards));
        let server = match opened.transpose() {
            Ok(opened) => opened.flatten()?,
            Err(error) => {
                log(LogLevel::Info, &format_args!("no control socket: {error}"));
                return None;
            }
        };
        shards.first().listen(Box::new(Arc::clone(&server)));
        Some(server)
    }

    /// Returns a shard for each port, with an engine that uses `memory`.
    fn start_shards(
        &mut self,
        ports: Vec<Box<dyn Port>>,
        engines: &Config,
        memory: &Arc<Memory>,
        lease: Arc<AddressLease>,
    ) -> Result<Arc<Shards>, OpenError> {
        let os = |what| move |source| OpenError::Os { what, source };
        let mut shards = Vec::new();
        for (index, port) in (0..).zip(self.wrap(ports).map_err(os("eventfd"))?) {
            let config = Config { shard: engines.shard + index, ..engines.clone() };
            let seed = random().map_err(os("random numbers"))?;
            let engine = Engine::new(config, Arc::clone(memory), seed);
            let core = Core::new(engine, port, self.ack_policy, self.post_policy);
            shards.push(Shard::new(core, index, &lease).map_err(os("eventfd"))?);
        }
        Ok(Shards::new(shards))
    }

    /// Wraps the ports of all shards as the options require. The capture shows the packets on the wire, so it is
    /// inside.
    fn wrap(&mut self, ports: Vec<Box<dyn Port>>) -> io::Result<Vec<Box<dyn Port>>> {
        let several = ports.len() > 1;
        // The capture of a single port needs no lock.
        let mut sinks: Vec<Box<dyn Sink>> = match self.observers.capture.take() {
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
                // The shards must not lose the same packets.
                let seed = impairments.seed.wrapping_add(index);
                port = Box::new(Impair::new(port, &Impairments { seed, ..impairments }));
            }
            port
        };
        let ports = (0..).zip(ports).map(wrap).collect();
        if !several {
            return Ok(ports);
        }
        Ok(DemuxPort::wrap_all(ports)?
            .into_iter()
            .map(|port| Box::new(port) as Box<dyn Port>)
            .collect())
    }
}

/// Maximum number of addresses of a device: the range of a source GID index.
const MAX_ADDRESSES: usize = 256;

/// First address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// This one.
    Ip(IpAddr),
    /// That of the device that this process has opened without an address; otherwise this one.
    Own(OwnAddress),
    /// The first free of 127.0.0.1, 127.0.0.2, …
    Free,
}

impl Default for Address {
    fn default() -> Self {
        Self::Own(OwnAddress::Any)
    }
}

/// Address of the device that a process opens without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OwnAddress {
    /// The first free of 127.0.0.1, 127.0.0.2, …
    Any,
    /// The first free of these but one, which a peer has or will have.
    Except(IpAddr),
    /// This one.
    At(IpAddr),
    /// None: only a device that is open.
    Open,
}

impl Device {
    /// Opens the device at some addresses, or returns the one that is open.
    pub(crate) fn open(mut config: DeviceConfig) -> Result<Arc<Self>, OpenError> {
        check_pkeys(&config.pkeys)?;
        if !may_be_shards(config.shards) {
            return Err(OpenError::Shards { found: config.shards });
        }
        match config.address {
            Address::Ip(ip) => Self::at(ip, &mut config),
            Address::Own(wanted) => {
                let mut own = registry::default_device();
                if let Some(device) = own.upgrade() {
                    drop(own);
                    let ip = device.ip;
                    return device.check_options(&config, &config.ips(ip)?, ip);
                }
                let device = Self::open_own(wanted, &mut config)?;
                *own = Arc::downgrade(&device);
                Ok(device)
            }
            Address::Free => Self::at_first_free(&mut config, None),
        }
    }

    /// Opens the device of a process that names no address.
    fn open_own(wanted: OwnAddress, config: &mut DeviceConfig) -> Result<Arc<Self>, OpenError> {
        match wanted {
            OwnAddress::Any => Self::at_first_free(config, None),
            OwnAddress::Except(ip) => Self::at_first_free(config, Some(ip)),
            OwnAddress::Open => Err(OpenError::NoneFree { last: None }),
            OwnAddress::At(ip) => Self::at(ip, config),
        }
    }

    /// Opens the device with the first address `ip`, or returns the open one.
    fn at(ip: IpAddr, config: &mut DeviceConfig) -> Result<Arc<Self>, OpenError> {
        let ips = config.ips(ip)?;
        match registry::find_or_claim(&ips) {
            Claimed::Device(taken, device) => device.check_options(config, &ips, taken),
            Claimed::Caller(lease) => Self::start(ip, lease, config),
        }
    }

    /// Returns the device if it has the requested addresses and options. `taken` is an address that it has.
    fn check_options(
        self: Arc<Self>,
        config: &DeviceConfig,
        ips: &[IpAddr],
        taken: IpAddr,
    ) -> Result<Arc<Self>, OpenError> {
        if ips.first() != Some(&self.ip) {
            return Err(OpenError::Belongs { ip: taken, device: self.ip });
        }
        let others = !config.also.is_empty() && self.shards.first().lease().ips() != ips;
        if config.special || others {
            return Err(OpenError::AlreadyOpen { ip: self.ip });
        }
        Ok(self)
    }

    /// Opens a device at the first free loopback address that is not `except`.
    fn at_first_free(
        config: &mut DeviceConfig,
        except: Option<IpAddr>,
    ) -> Result<Arc<Self>, OpenError> {
        if !config.also.is_empty()
            && let Claimed::Device(ip, device) = registry::find_or_claim(&config.also)
        {
            return Err(OpenError::Belongs { ip, device: device.ip });
        }
        let mut error = OpenError::NoneFree { last: None };
        let also = config.also.clone();
        let is_possible = |ip: &IpAddr| !also.contains(ip) && except != Some(*ip);
        let mut addresses = loopback_addresses().filter(is_possible).peekable();
        while let Some(ip) = addresses.next() {
            let Some(lease) = registry::claim_free(&config.ips(ip)?) else { continue };
            // Finding the owner of an address takes long; the error names that of the last one only.
            let is_last = addresses.peek().is_none() || !config.via.is_of_host();
            if !is_last && UdpSocket::bind((ip, ROCE_PORT)).is_err() {
                continue;
            }
            match Self::start(ip, lease, config) {
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

    fn start(
        ip: IpAddr,
        lease: AddressLease,
        config: &mut DeviceConfig,
    ) -> Result<Arc<Self>, OpenError> {
        let opener = opener::opener(&config.via, lease.ips(), config.shards)?;
        let (ports, active_mtu) = config.open_ports(lease.ips(), &*opener)?;
        let os = |what| move |source| OpenError::Os { what, source };
        let memory = Arc::new(Memory::new(random().map_err(os("random numbers"))?));
        let gids = gid_table(lease.ips());
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
            // All shards share the receive buffer of a peer.
            peer_receive_buffer: DEFAULT_RECEIVE_BUFFER / u64::from(config.shards),
            watches_backlogs: true,
            remembers_ended: if config.observers.counters.is_some() {
                CountersFile::MAX_DESTROYED_QPS
            } else {
                0
            },
            ..Config::new(ip)
        };
        let generation = lease.generation();
        let shards = config.start_shards(ports, &engines, &memory, Arc::new(lease))?;
        let report = config.observers.counters.take().map(|directory| {
            CountersFile::start(&directory, &config.name, ip, &shards)
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
            peers: PeerReceiveBuffers::default(),
            threads: Vec::new(),
            report,
            control: None,
            generation,
        };
        device.control = config.open_control(&device.shards, ip);
        for shard in device.shards.iter() {
            // Threads that have started end with the device.
            let thread = spawn(&config.name, shard).map_err(os("starting a thread"))?;
            device.threads.push(thread);
        }
        let device = Arc::new(device);
        registry::enter(&device);
        if let Some(control) = &device.control {
            control.announce();
        }
        Ok(device)
    }
}

/// Checks a P_Key table (IBTA vol 1, §10.9.1).
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

/// Returns the addresses that a device without a given address tries in order.
pub fn loopback_addresses() -> impl Iterator<Item = IpAddr> {
    (1..=254).map(|host| Ipv4Addr::new(127, 0, 0, host).into())
}

fn spawn(name: &str, shard: &Arc<Shard>) -> io::Result<JoinHandle<()>> {
    let shard = Arc::clone(shard);
    thread::Builder::new().name(name.to_owned()).spawn(move || shard.run())
}
