//! A port on packet sockets (CAP_NET_RAW), which sees complete frames.
//!
//! It sees the IPv4 identification that UDP sockets hide, so all 32 bits of every ICRC are checked, and the traffic
//! class and hop limit of each packet. It builds Ethernet, IP and UDP headers itself.
//!
//! ```text
//!              ┌ the kernel knows the neighbour ──▶ frames, to the interface
//!   transmit ──┤
//!              └ this host, groups, unresolved ───▶ a UdpPort: the kernel routes
//!
//!              ┌ frames of the interface, and of `lo`: from this host to itself
//!   receive ◀──┤
//!              └ a UdpPort: groups only
//! ```
//!
//! Bursts to a neighbour without a known link address go to the kernel, which resolves it, as far as the kernel has
//! room for them (`unresolved`). The rest is lost, and does not delay bursts to other neighbours.
//!
//! The port below, on UDP sockets, binds the address, so that no port of another kind takes it and the kernel rejects
//! no arriving packet. The filter of its socket drops all unicast datagrams. Packet ports of other processes of the
//! same user may share the address (`SO_REUSEPORT`). Each has a [`AddressSlot`] there and UDP sockets of its own, so that
//! they do not depend on each other.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;

use super::config::PortConfig;
use super::counters::PortCounters;
use super::opener::{Kind, OpenPortError, PortOpener};
use super::shared::backoff::SendBackoff;
use super::shared::frame::{self, Datagrams, Framer};
use super::shared::send_failure::SendFailure;
use super::traits::{Control, Datapath, JoinError, LinkState, Port, PortInfo, TransmitError};
use crate::net::{Burst, MAX_BURST_SEGMENTS, RxBuffer, TransmitErrorKind};
use crate::time::Instant;
use neighbour::{Neighbours, Route};
use sockets::Sockets;

mod address_slot;
mod filter;
mod neighbour;
mod open_error;
mod sockets;
mod unresolved;

pub use address_slot::AddressSlot;
pub use open_error::OpenError;

/// Maximum number of frames that one call receives.
const MAX_FRAMES_PER_RECV: usize = 16;

/// A port on packet sockets, above a port that receives [groups only](PortConfig::groups_only) and sends bursts to
/// unresolved neighbours.
#[derive(Debug)]
pub struct PacketPort<P> {
    _slot: Arc<AddressSlot>,
    sockets: Sockets,
    /// The interface of the sockets has the address. Otherwise received packets are dropped.
    has_address: bool,
    neighbours: Neighbours,
    below: P,
    framer: Framer,
    backoff: SendBackoff,
    counters: PortCounters,
}

impl<P: Port> PacketPort<P> {
    /// Opens the port, for packets to queue pairs of its slot. `gro` of the configuration applies to multicast groups.
    /// `open_below` opens the port below.
    ///
    /// # Errors
    ///
    /// [`OpenError`], [`OpenError::NotPermitted`] without the capability; or the error of the port below.
    pub fn open(
        config: &PortConfig,
        slot: &Arc<AddressSlot>,
        open_below: impl FnOnce(&PortConfig) -> Result<P, OpenPortError>,
    ) -> Result<Self, OpenPortError> {
        let ip = config.ip;
        let os = |what| move |source| OpenError::Os { ip, what, source };
        // First, so that a missing capability is reported before other errors.
        let mut sockets =
            Sockets::new(ip, slot.shard()).map_err(|source| match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted { ip },
                _ => os("socket")(source),
            })?;
        let below = open_below(&PortConfig { groups_only: true, ..config.clone() })?;
        let interface = below.info().interface;
        if interface == 0 {
            return Err(OpenError::NoInterface { ip }.into());
        }
        let neighbours = Neighbours::new(ip, interface).map_err(os("rtnetlink"))?;
        let neighbours = neighbours.ok_or(OpenError::NotEthernet { ip, interface })?;
        sockets.open(config, interface).map_err(|(what, source)| os(what)(source))?;
        Ok(Self {
            _slot: Arc::clone(slot),
            sockets,
            has_address: true,
            neighbours,
            below,
            framer: Framer::new(config.gso),
            backoff: SendBackoff::default(),
            counters: PortCounters::default(),
        })
    }

    /// Sends a burst by a route.
    fn send_by(&mut self, route: Route, now: Instant, burst: &Burst) -> Result<(), SendFailure> {
        let (link, mtu) = match route {
            Route::Frames { link, mtu } => (link, mtu),
            Route::ByKernel => return self.send_below(now, burst),
            Route::Unresolved => {
                self.counters.unresolved += 1;
                let nowhere = SendFailure::Refused(TransmitErrorKind::Unreachable);
                if !self.neighbours.may_queue(now, burst) {
                    return Err(nowhere);
                }
                // A burst without room there is lost too: it must not delay bursts to other neighbours.
                return match self.send_below(now, burst) {
                    Err(SendFailure::Busy) => Err(nowhere),
                    sent => sent,
                };
            }
        };
        let datagrams = Datagrams::from(burst);
        // The kernel does not check the size of GSO frames.
        if datagrams.packet_len() > mtu.min(self.below.info().link_mtu) {
            return Err(SendFailure::Refused(TransmitErrorKind::TooLong));
        }
        let Self { framer, sockets, counters, .. } = self;
        let is_split = framer.send(link, datagrams, |head, payload| sockets.send(head, payload))?;
        counters.gso_refused += u64::from(is_split);
        self.counters.sent(burst);
        Ok(())
    }

    /// Sends a burst by the port below.
    fn send_below(&mut self, now: Instant, burst: &Burst) -> Result<(), SendFailure> {
        match self.below.transmit(now, slice::from_ref(burst)) {
            Ok(0) => Err(SendFailure::Busy),
            Ok(_) => Ok(()),
            Err(error) => Err(SendFailure::Refused(error.kind)),
        }
    }

    /// Moves the port to an interface. Returns `false` if it has no Ethernet frames.
    fn follow(&mut self, interface: u32) -> bool {
        self.neighbours.follow(interface) && self.sockets.follow(interface).is_ok()
    }
}

impl<P: Port> Datapath for PacketPort<P> {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        if !self.backoff.may_send(now) {
            return Ok(0);
        }
        if bursts.is_empty() {
            return self.below.transmit(now, bursts);
        }
        for (taken, burst) in bursts.iter().enumerate() {
            let route = self.neighbours.route_to(now, burst.path.destination);
            match self.send_by(route, now, burst) {
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
        let Self { sockets, counters, has_address, .. } = self;
        let count = sockets.receive(MAX_FRAMES_PER_RECV, &mut |bytes| {
            if let Some(read) = frame::parse(bytes).filter(|_| *has_address) {
                let buffer = read.buffer();
                counters.received(&buffer);
                sink(buffer);
            }
        })?;
        Ok(count + self.below.receive(now, sink)?)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let both = [self.backoff.retry_at(), self.below.poll_timeout()];
        both.into_iter().flatten().min()
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        // Bursts that the port below refused are counted here already. Its socket drops all unicast datagrams, which do
        // not count.
        counters += &PortCounters { busy: 0, refused: 0, ..self.below.counters() };
        counters.kernel_drops = self.sockets.drops();
        counters
    }

    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        let mut descriptors: SmallVec<_> = self.sockets.descriptors().collect();
        descriptors.extend(self.below.descriptors());
        descriptors
    }

    fn send_last(&mut self, burst: &Burst) {
        self.below.send_last(burst);
    }
}

impl<P: Port> Control for PacketPort<P> {
    fn poll_link(&mut self) -> Option<LinkState> {
        self.sockets.check();
        let state = self.below.poll_link()?;
        self.has_address = self.follow(state.interface) && state.has_address;
        Some(LinkState { running: state.running && self.has_address, ..state })
    }

    fn info(&self) -> PortInfo {
        PortInfo {
            gso: self.framer.gso,
            max_burst_segments: MAX_BURST_SEGMENTS,
            max_batch_bytes: usize::MAX,
            gro: true,
            receive_buffer: self.sockets.receive_buffer(),
            sees_ip_header: true,
            omits_icrcs: false,
            ..self.below.info()
        }
    }

    fn source_port(&mut self, source: IpAddr, wanted: u16) -> u16 {
        self.below.source_port(source, wanted)
    }

    fn keep_identifications(&mut self) {
        self.below.keep_identifications();
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        self.below.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.below.leave(group);
    }
}

/// The kind of [`PacketPort`]s above ports of another kind.
#[derive(Debug)]
pub(super) struct PacketKind<K>(pub(super) K);

impl<K: Kind> Kind for PacketKind<K> {
    fn name(&self) -> &'static str {
        "packet"
    }

    fn opener(&self, ips: &[IpAddr]) -> Result<Box<dyn PortOpener>, OpenPortError> {
        let slot = Arc::new(AddressSlot::take(ips)?);
        Ok(Box::new(PacketOpener { slot, below: self.0.opener(ips)? }))
    }
}

struct PacketOpener {
    slot: Arc<AddressSlot>,
    below: Box<dyn PortOpener>,
}

impl PortOpener for PacketOpener {
    fn open(
        &self,
        config: &PortConfig,
        shards: u8,
        warn: &mut dyn FnMut(&dyn Display),
    ) -> Result<Vec<Box<dyn Port>>, OpenPortError> {
        let port = PacketPort::open(config, &self.slot, |config| {
            let mut ports = self.below.open(config, shards, warn)?;
            ports.pop().ok_or_else(|| "no port below".into())
        })?;
        Ok(vec![Box::new(port)])
    }

    fn first_shard(&self) -> u8 {
        self.slot.shard()
    }
}
