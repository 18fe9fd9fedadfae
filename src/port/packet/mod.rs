//! A port that sees whole frames, for who may open packet sockets (CAP_NET_RAW).
//!
//! What a UDP socket hides is there: the IPv4 identification, so that all 32 bits of every ICRC are
//! checked, traffic class and hop limit of whatever arrives. What it writes is what leaves: Ethernet, IP
//! and UDP headers are its own.
//!
//! ```text
//!              ┌ the kernel knows the neighbour ──▶ frames, to the interface
//!   transmit ──┤
//!              └ this host, groups, not yet known ▶ a UdpPort: the kernel finds the way
//!
//!              ┌ frames of the interface, and of `lo`: what this host sends to itself
//!   receive ◀──┤
//!              └ a UdpPort: groups only
//! ```
//!
//! What goes to a neighbour that nobody has a link address of is left to the kernel, which asks for it, as
//! far as that has room for it (`unresolved`); the rest is lost, and nobody else waits for it.
//!
//! The port below, on UDP sockets, has the address, so that no port of another kind takes it and the kernel refuses
//! nothing that arrives, but is deaf to what is sent to it: the filter of its socket drops all of that.
//! Packet ports of other processes of the same user may have the address too (`SO_REUSEPORT`). Each has a
//! [`Place`] there, and a UDP socket of its own, so that none of them depends on another.

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
use crate::net::{Burst, RxBuffer, TransmitErrorKind};
use crate::time::Instant;
use neighbour::{Neighbours, Way};
use sockets::Sockets;

mod filter;
mod neighbour;
mod open_error;
mod place;
mod sockets;
mod unresolved;

pub use open_error::OpenError;
pub use place::Place;

/// Frames that one call receives at most.
const BATCH: usize = 16;

/// A port on packet sockets, above a port that receives [groups alone](PortConfig::groups_only) and sends what has no
/// link address yet.
#[derive(Debug)]
pub struct PacketPort<P> {
    _place: Arc<Place>,
    sockets: Sockets,
    /// The interface of the sockets has the address. What arrives for an address that is gone is for nobody.
    is_here: bool,
    neighbours: Neighbours,
    below: P,
    framer: Framer,
    backoff: SendBackoff,
    counters: PortCounters,
}

impl<P: Port> PacketPort<P> {
    /// Opens the port, for packets to queue pairs of its place. `gro` of the configuration says whether
    /// groups may be received merged. `open_below` opens the port below.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: above all when the process may not. Or that of the port below.
    pub fn open(
        config: &PortConfig,
        place: &Arc<Place>,
        open_below: impl FnOnce(&PortConfig) -> Result<P, OpenPortError>,
    ) -> Result<Self, OpenPortError> {
        let ip = config.ip;
        let os = |what| move |source| OpenError::Os { ip, what, source };
        // First, so that this is said before anything else.
        let mut sockets =
            Sockets::new(ip, place.shard()).map_err(|source| match source.raw_os_error() {
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
            _place: Arc::clone(place),
            sockets,
            is_here: true,
            neighbours,
            below,
            framer: Framer::new(config.gso),
            backoff: SendBackoff::default(),
            counters: PortCounters::default(),
        })
    }

    /// Sends a burst on its way.
    fn send_by(&mut self, way: Way, now: Instant, burst: &Burst) -> Result<(), SendFailure> {
        let (link, mtu) = match way {
            Way::Frames { link, mtu } => (link, mtu),
            Way::Kernel => return self.send_below(now, burst),
            Way::Unresolved => {
                self.counters.unresolved += 1;
                let nowhere = SendFailure::Refused(TransmitErrorKind::Unreachable);
                if !self.neighbours.may_wait(now, burst) {
                    return Err(nowhere);
                }
                // Without room there it is lost too: others are not to wait for a neighbour that is silent.
                return match self.send_below(now, burst) {
                    Err(SendFailure::Busy) => Err(nowhere),
                    sent => sent,
                };
            }
        };
        let datagrams = Datagrams::from(burst);
        // What it is to cut the kernel does not measure.
        if datagrams.packet_len() > mtu.min(self.below.info().link_mtu) {
            return Err(SendFailure::Refused(TransmitErrorKind::TooLong));
        }
        let Self { framer, sockets, counters, .. } = self;
        let is_cut_here =
            framer.send(link, datagrams, |head, payload| sockets.send(head, payload))?;
        counters.gso_refused += u64::from(is_cut_here);
        self.counters.sent(burst);
        Ok(())
    }

    /// Has the kernel find the way of a burst.
    fn send_below(&mut self, now: Instant, burst: &Burst) -> Result<(), SendFailure> {
        match self.below.transmit(now, slice::from_ref(burst)) {
            Ok(0) => Err(SendFailure::Busy),
            Ok(_) => Ok(()),
            Err(error) => Err(SendFailure::Refused(error.kind)),
        }
    }

    /// Follows the address to an interface. `false` if there are no frames there.
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
            let way = self.neighbours.way_to(now, burst.path.destination);
            match self.send_by(way, now, burst) {
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
        let Self { sockets, counters, is_here, .. } = self;
        let count = sockets.receive(BATCH, &mut |bytes| {
            if let Some(read) = frame::parse(bytes).filter(|_| *is_here) {
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
        // What was left to the port below and did not get through is counted already, and what its socket
        // has thrown away is here.
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
        let state = self.below.poll_link()?;
        self.is_here = self.follow(state.interface) && state.has_address;
        Some(LinkState { running: state.running && self.is_here, ..state })
    }

    fn info(&self) -> PortInfo {
        PortInfo {
            gso: self.framer.gso,
            gro: true,
            receive_buffer: self.sockets.receive_buffer(),
            sees_ip_header: true,
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
        let place = Arc::new(Place::take(ips)?);
        Ok(Box::new(PacketOpener { place, below: self.0.opener(ips)? }))
    }
}

struct PacketOpener {
    place: Arc<Place>,
    below: Box<dyn PortOpener>,
}

impl PortOpener for PacketOpener {
    fn open(
        &self,
        config: &PortConfig,
        shards: u8,
        warn: &mut dyn FnMut(&dyn Display),
    ) -> Result<Vec<Box<dyn Port>>, OpenPortError> {
        let port = PacketPort::open(config, &self.place, |config| {
            let mut ports = self.below.open(config, shards, warn)?;
            ports.pop().ok_or_else(|| "no port below".into())
        })?;
        Ok(vec![Box::new(port)])
    }

    fn first_shard(&self) -> u8 {
        self.place.shard()
    }
}
