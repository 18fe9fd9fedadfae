//! A port that is a host of its own on a TAP interface, with a MAC address and IP addresses that the kernel does not
//! have.
//!
//! An administrator connects the TAP to others by a bridge: to a real interface, to those of virtual machines, to a
//! veth of another namespace. For all of them the port is another host on the link.
//!
//! ```text
//!   bursts ──▶ TapPort ─┬─ to one of its own addresses, or a group it is in ──▶ Loopback ──▶ received
//!                       └─ Neighbours: link address ──▶ Framer ──▶ ┐
//!                              ▲ ARP, neighbour discovery          ├ /dev/net/tun ── TAP ── bridge ── …
//!   buffers ◀─ RoCEv2 packets ─┴─ frames ◀─────────────────────────┤
//!                              └─ all else ──▶ Host (smoltcp) ──▶  ┘ answers to ARP, echo requests, …
//! ```
//!
//! RoCEv2 packets do not pass smoltcp. Frames have a `virtio_net_hdr` as those of packet sockets have (`frame`), so
//! bursts travel in one frame if the kernel supports it, Linux 6.2 and later.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use smallvec::{SmallVec, smallvec};
use smoltcp::iface::MulticastError;

use super::config::PortConfig;
use super::counters::PortCounters;
use super::opener::{Kind, OpenPortError, PortOpener};
use super::shared::backoff::SendBackoff;
use super::shared::frame::{self, Datagrams, Framer, Link, VNET_HDR_LEN};
use super::shared::send_failure::SendFailure;
use super::traits::{
    Control, Datapath, JoinError, LinkState, Port, PortInfo, SOURCE_PORTS, TransmitError,
};
use crate::net::{Burst, MAX_BURST_SEGMENTS, ROCE_PORT, RxBuffer, TransmitErrorKind};
use crate::sys;
use crate::time::Instant;
use crate::wire::encap::ETHERNET_LEN;
use host::Host;
use interface::Interface;
use loopback::Loopback;
use neighbours::{Neighbours, Route, group_mac};

mod config;
mod host;
mod interface;
mod loopback;
mod neighbours;
mod open_error;

pub use config::{Mac, MacError, Network, TapConfig, TapConfigError};
pub use open_error::OpenError;

/// Maximum number of frames that one call receives.
const MAX_FRAMES_PER_RECV: usize = 16;

/// A port on a TAP.
#[derive(Debug)]
pub struct TapPort {
    interface: Interface,
    identity: LocalIdentity,
    source_port: Option<u16>,
    neighbours: Neighbours,
    host: Host,
    loopback: Loopback,
    framer: Framer,
    /// Buffer for a received frame.
    frame: Box<[u8]>,
    /// Link states to report, one for each address.
    states: VecDeque<LinkState>,
    /// The device watches the link state.
    is_watched: bool,
    /// Frames dropped before the port was opened.
    drops_before: u64,
    receive_buffer: usize,
    backoff: SendBackoff,
    counters: PortCounters,
}

/// Addresses of the port on the link.
#[derive(Debug)]
struct LocalIdentity {
    mac: Mac,
    ips: Vec<IpAddr>,
    groups: Vec<IpAddr>,
}

impl LocalIdentity {
    /// Returns the RoCEv2 packets in a frame to this port, and the MAC address of the sender.
    fn packets<'a>(&self, bytes: &'a [u8]) -> Option<(RxBuffer<'a>, Mac)> {
        let (header, _) = bytes.get(VNET_HDR_LEN..)?.split_first_chunk::<ETHERNET_LEN>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, kind0, kind1] = *header;
        let read = frame::parse(bytes)?;
        let to = read.datagram.destination;
        let own = if self.ips.contains(&to.ip()) {
            self.mac
        } else if self.groups.contains(&to.ip()) {
            group_mac(to.ip())
        } else {
            return None;
        };
        let is_untagged = u16::from_be_bytes([kind0, kind1]) == frame::ethertype(to.is_ipv4());
        let is_ours = is_untagged && own == Mac([d0, d1, d2, d3, d4, d5]) && to.port() == ROCE_PORT;
        is_ours.then(|| (read.buffer(), Mac([s0, s1, s2, s3, s4, s5])))
    }
}

impl TapPort {
    /// Opens the port at these addresses. `udp` provides the source port, and whether GSO is allowed.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the process lacks the permission, or another program has the interface.
    pub fn open(config: &TapConfig, ips: &[IpAddr], udp: &PortConfig) -> Result<Self, OpenError> {
        let addresses = addresses(config, ips)?;
        let mac = config.mac.unwrap_or_else(|| Mac::of(udp.ip));
        let wanted = udp.receive_buffer.unwrap_or(PortConfig::RECEIVE_BUFFER);
        let interface = Interface::open(config, wanted)?;
        let now = Instant::ZERO;
        let host = Host::new(now, mac, &addresses, &config.gateways);
        let mut neighbours =
            Neighbours::new(mac, ips, config.networks.clone(), config.gateways.clone());
        neighbours.announce();
        let receive_buffer = interface.receive_buffer().min(wanted);
        Ok(Self {
            drops_before: interface.drops(),
            receive_buffer,
            interface,
            identity: LocalIdentity { mac, ips: ips.to_vec(), groups: Vec::new() },
            source_port: udp.source_port,
            neighbours,
            host,
            loopback: Loopback::new(receive_buffer),
            framer: Framer::new(udp.gso),
            frame: vec![0; frame::MAX_FRAME_LEN].into_boxed_slice(),
            states: VecDeque::new(),
            is_watched: false,
            backoff: SendBackoff::default(),
            counters: PortCounters::default(),
        })
    }

    /// Sends a burst by its route.
    fn send_by(&mut self, now: Instant, burst: &Burst) -> Result<(), SendFailure> {
        let to = burst.path.destination;
        if self.identity.ips.contains(&to) {
            self.loopback.take(burst);
            self.counters.sent(burst);
            return Ok(());
        }
        let datagrams = Datagrams::from(burst);
        // The kernel does not check the size of GSO frames.
        if datagrams.packet_len() > self.interface.state.mtu {
            return Err(SendFailure::Refused(TransmitErrorKind::TooLong));
        }
        let unreachable = SendFailure::Refused(TransmitErrorKind::Unreachable);
        if to.is_multicast() {
            self.send(group_mac(to), datagrams)?;
            if self.identity.groups.contains(&to) {
                self.loopback.take(burst);
            }
        } else {
            let route = self.neighbours.route_to(now, burst.path.source, to);
            self.send_solicitations();
            match route {
                Route::To(mac) => self.send(mac, datagrams)?,
                Route::Unresolved(hop) => {
                    self.counters.unresolved += 1;
                    if !self.interface.state.running || !self.neighbours.enqueue(hop, burst) {
                        return Err(unreachable);
                    }
                }
                Route::Unreachable => return Err(unreachable),
            }
        }
        self.counters.sent(burst);
        Ok(())
    }

    fn send(&mut self, to: Mac, datagrams: Datagrams<'_>) -> Result<(), SendFailure> {
        let link = Link { source: self.identity.mac.0, destination: to.0 };
        let Self { framer, interface, counters, .. } = self;
        let put = |head: &[u8], payload: &[u8]| interface.send(head, payload);
        counters.gso_refused += u64::from(framer.send(link, datagrams, put)?);
        Ok(())
    }

    /// Sends frames of the host. A lost one is sent again later.
    fn send_frames(&self, frames: Vec<Vec<u8>>) {
        for frame in frames {
            let _ = self.interface.send(&[0; VNET_HDR_LEN], &frame);
        }
    }

    fn send_solicitations(&mut self) {
        let solicitations = self.neighbours.solicitations();
        if !solicitations.is_empty() {
            self.send_frames(solicitations);
        }
    }

    /// Does the work that is due.
    fn attend(&mut self, now: Instant) {
        self.neighbours.attend(now);
        self.send_solicitations();
        if self.host.due().is_some_and(|due| due <= now) {
            let frames = self.host.attend(now);
            self.send_frames(frames);
        }
    }

    /// Processes a frame that holds no RoCEv2 packet to this port.
    fn process_frame(&mut self, now: Instant, len: usize) {
        let Some(frame) = self.frame.get(VNET_HDR_LEN..len) else { return };
        for queued in self.neighbours.learn(now, frame) {
            // A burst without room is lost, as anywhere on the path.
            let _ = self.send_queued(&queued, now);
        }
        let Some(frame) = self.frame.get(VNET_HDR_LEN..len) else { return };
        let answers = self.host.take(now, frame);
        self.send_frames(answers);
    }

    fn send_queued(
        &mut self,
        queued: &frame::QueuedBurst,
        now: Instant,
    ) -> Result<(), SendFailure> {
        match self.neighbours.route_to(now, queued.path.source, queued.path.destination) {
            Route::To(mac) => self.send(mac, queued.datagrams()),
            Route::Unresolved(_) | Route::Unreachable => Ok(()),
        }
    }

    /// Updates the state of the interface, and queues a report for each address.
    fn update_state(&mut self) {
        let was_running = self.interface.state.running;
        let has_address = self.interface.update_state();
        let sys::Interface { index, mtu, running } = self.interface.state;
        if running && !was_running {
            // It may be another link, where our addresses are unknown.
            self.neighbours.forget();
            self.neighbours.announce();
            self.send_solicitations();
        }
        let state =
            |ip: &IpAddr| LinkState { ip: *ip, interface: index, has_address, running, mtu };
        self.states = self.identity.ips.iter().map(state).collect();
    }
}

/// Returns the addresses of a port, each with its network.
fn addresses(config: &TapConfig, ips: &[IpAddr]) -> Result<Vec<Network>, OpenError> {
    let name = || config.name.clone();
    if config.networks.is_empty() {
        return Err(OpenError::NoAddress { name: name() });
    }
    if ips.len() > host::MAX_ADDRESSES {
        return Err(OpenError::TooManyAddresses { found: ips.len() });
    }
    let within = |ip: IpAddr| config.networks.iter().find(|network| network.contains(ip));
    if let Some(gateway) = config.gateways.iter().copied().find(|ip| within(*ip).is_none()) {
        return Err(OpenError::FarGateway { name: name(), gateway });
    }
    let os = |source| OpenError::Os { name: name(), what: "getifaddrs", source };
    let address = |ip: &IpAddr| {
        let ip = *ip;
        let network = within(ip).ok_or_else(|| OpenError::NoNetwork { name: name(), ip })?;
        if !network.has_host(ip) {
            return Err(OpenError::NotOneHost { ip });
        }
        if sys::is_of_host(ip).map_err(os)? {
            return Err(OpenError::OfThisHost { ip });
        }
        Ok(Network { ip, ..*network })
    };
    ips.iter().map(address).collect()
}

impl Datapath for TapPort {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        self.attend(now);
        if !self.backoff.may_send(now) {
            return Ok(0);
        }
        for (taken, burst) in bursts.iter().enumerate() {
            match self.send_by(now, burst) {
                Ok(()) => self.backoff.sent(),
                Err(SendFailure::Busy | SendFailure::GsoUnsupported)
                    if self.backoff.had_no_room(now) =>
                {
                    self.counters.busy += 1;
                    return Ok(taken);
                }
                Err(failure) => {
                    self.counters.refused += 1;
                    return Err(TransmitError { taken, kind: failure.into() });
                }
            }
        }
        Ok(bursts.len())
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        self.attend(now);
        let counters = &mut self.counters;
        let mut count = self.loopback.deliver(MAX_FRAMES_PER_RECV, &mut |buffer| {
            counters.received(&buffer);
            sink(buffer);
        });
        for _ in 0..MAX_FRAMES_PER_RECV {
            let Some(len) = self.interface.receive(&mut self.frame)? else { break };
            count += 1;
            let bytes = self.frame.get(..len).unwrap_or_default();
            match self.identity.packets(bytes) {
                Some((buffer, from)) => {
                    self.counters.received(&buffer);
                    self.neighbours.confirm(now, buffer.meta.source.ip(), from);
                    sink(buffer);
                }
                None => self.process_frame(now, len),
            }
        }
        Ok(count)
    }

    fn receive_queue_bytes(&mut self, _now: Instant, to: IpAddr) -> Option<u64> {
        self.identity.ips.contains(&to).then(|| self.loopback.queued_bytes_to(to))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let loopback = (!self.loopback.is_empty()).then_some(Instant::ZERO);
        let due = [self.backoff.retry_at(), self.neighbours.due(), self.host.due(), loopback];
        due.into_iter().flatten().min()
    }

    fn counters(&self) -> PortCounters {
        // A TAP that was created again counts from 0.
        let drops = self.interface.drops();
        let drops = drops.checked_sub(self.drops_before).unwrap_or(drops);
        PortCounters { kernel_drops: drops + self.loopback.drops(), ..self.counters }
    }

    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        smallvec![self.interface.descriptor()]
    }
}

impl Control for TapPort {
    fn source_port(&mut self, _: IpAddr, wanted: u16) -> u16 {
        self.source_port.unwrap_or(wanted | *SOURCE_PORTS.start())
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        let same = |ip: &&IpAddr| ip.is_ipv4() == group.is_ipv4();
        if !group.is_multicast() || !self.identity.ips.iter().any(|ip| same(&ip)) {
            let ip = self.info().ip;
            return Err(JoinError::NotAGroup { group, ip });
        }
        if self.identity.groups.contains(&group) {
            return Ok(());
        }
        self.host.join(group).map_err(|error| {
            let source = io::Error::other(match error {
                MulticastError::GroupTableFull => "there is no room for more groups",
                MulticastError::Unaddressable => "it is no group",
            });
            JoinError::Os { group, what: "telling routers", source }
        })?;
        self.identity.groups.push(group);
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        if self.identity.groups.contains(&group) {
            self.identity.groups.retain(|other| *other != group);
            self.host.leave(group);
        }
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        self.interface.check();
        if !self.is_watched || self.interface.has_changed() {
            self.is_watched = true;
            self.update_state();
        }
        self.states.pop_front()
    }

    fn info(&self) -> PortInfo {
        let sys::Interface { index, mtu, .. } = self.interface.state;
        PortInfo {
            ip: self.identity.ips.first().copied().unwrap_or(IpAddr::from([0; 4])),
            interface: index,
            link_mtu: mtu,
            gso: self.framer.gso,
            max_burst_segments: MAX_BURST_SEGMENTS,
            max_batch_bytes: usize::MAX,
            gro: true,
            receive_buffer: self.receive_buffer,
            sees_ip_header: true,
            omits_icrcs: false,
        }
    }
}

/// The kind of [`TapPort`]s with a configuration.
impl Kind for TapConfig {
    fn name(&self) -> &'static str {
        "tap"
    }

    fn is_of_host(&self) -> bool {
        false
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.networks.iter().map(|network| network.ip).collect()
    }

    fn opener(&self, ips: &[IpAddr]) -> Result<Box<dyn PortOpener>, OpenPortError> {
        Ok(Box::new(TapOpener { config: self.clone(), ips: ips.to_vec() }))
    }
}

struct TapOpener {
    config: TapConfig,
    ips: Vec<IpAddr>,
}

impl PortOpener for TapOpener {
    fn open(
        &self,
        config: &PortConfig,
        _shards: u8,
        _warn: &mut dyn FnMut(&dyn Display),
    ) -> Result<Vec<Box<dyn Port>>, OpenPortError> {
        Ok(vec![Box::new(TapPort::open(&self.config, &self.ips, config)?)])
    }

    fn has_all_addresses(&self) -> bool {
        true
    }
}
