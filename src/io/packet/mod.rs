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
//! The [`UdpPort`] below has the address, so that nobody else takes it and the kernel refuses nothing that
//! arrives, but is deaf to what is sent to it: the filter of its socket drops all of that.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use super::sys;
use super::udp::send::Stop;
use super::udp::{self, UdpConfig, UdpPort};
use super::{Port, PortCounters, PortInfo, TransmitError, left_to};
use crate::net::{Burst, RxBuffer};
use crate::time::Instant;
use neighbour::Neighbours;

mod filter;
mod frame;
mod neighbour;

/// Frames that one call receives at most.
const BATCH: usize = 16;

/// The interface by which this host sends to itself: the first of every namespace.
const LOOPBACK: u32 = 1;

/// Why a [`PacketPort`] cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its UDP port cannot.
    #[error(transparent)]
    Udp(#[from] udp::OpenError),
    /// The process may not open packet sockets.
    #[error(
        "a packet socket on the interface of {ip} needs CAP_NET_RAW: run it as root, or give the program \
         the capability (setcap cap_net_raw+ep)"
    )]
    NotPermitted {
        /// The address.
        ip: IpAddr,
    },
    /// No interface has the address.
    #[error("no interface has the address {ip}, and a packet socket needs one")]
    NoInterface {
        /// The address.
        ip: IpAddr,
    },
    /// The interface has frames of another kind.
    #[error("interface {interface}, which has the address {ip}, is not of Ethernet")]
    NotEthernet {
        /// The address.
        ip: IpAddr,
        /// The number of the interface.
        interface: u32,
    },
    /// The system refuses something that the port cannot do without.
    #[error("{what} on a packet socket of {ip}: {source}")]
    Os {
        /// The address.
        ip: IpAddr,
        /// The call or socket option.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// A port on packet sockets.
#[derive(Debug)]
pub struct PacketPort {
    /// The frames of the interface, and of `lo` if that is another.
    taps: SmallVec<[Socket; 2]>,
    /// The tap that the next call receives from first.
    first: usize,
    neighbours: Neighbours,
    udp: UdpPort,
    /// Whether frames may hold several datagrams.
    gso: bool,
    /// The headers of the frame to be sent.
    head: Vec<u8>,
    /// A frame that was received.
    frame: Box<[u8]>,
    retry_at: Option<Instant>,
    counters: PortCounters,
}

impl PacketPort {
    /// Opens the port. `gro` of the configuration says whether groups may be received merged.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: above all when the process may not.
    pub fn open(config: &UdpConfig) -> Result<Self, OpenError> {
        let ip = config.ip;
        let os = |what| move |source| OpenError::Os { ip, what, source };
        // First, so that this is said before anything else.
        let first = raw().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted { ip },
            _ => os("socket")(source),
        })?;
        let udp = UdpPort::open(config)?;
        udp.deafen().map_err(os("SO_ATTACH_FILTER"))?;
        let interface = udp.info().interface;
        if interface == 0 {
            return Err(OpenError::NoInterface { ip });
        }
        let neighbours = Neighbours::new(ip, interface).map_err(os("rtnetlink"))?;
        let neighbours = neighbours.ok_or(OpenError::NotEthernet { ip, interface })?;
        let mut taps = SmallVec::new();
        taps.push(tap(first, config, interface).map_err(|(what, source)| os(what)(source))?);
        if interface != LOOPBACK {
            let second = raw().map_err(os("socket"))?;
            let second = tap(second, config, LOOPBACK);
            taps.push(second.map_err(|(what, source)| os(what)(source))?);
        }
        Ok(Self {
            taps,
            first: 0,
            neighbours,
            udp,
            gso: config.gso,
            head: Vec::new(),
            frame: vec![0; frame::MAX_LEN].into_boxed_slice(),
            retry_at: None,
            counters: PortCounters::default(),
        })
    }

    /// Sends a burst in frames to a neighbour.
    fn send(&mut self, link: frame::Link, burst: &Burst) -> Result<(), Stop> {
        if burst.len() > 1 && self.gso {
            match self.send_frame(link, burst, 0, burst.data()) {
                // The kernel is older than such frames, or the interface does not take them.
                Err(Stop::NotCut) => self.gso = false,
                sent => return sent,
            }
        }
        let is_cut_here = burst.len() > 1;
        for (id, datagram) in (0..).zip(burst.segments()) {
            match self.send_frame(link, burst, id, datagram) {
                Ok(()) => {}
                Err(stop) if id == 0 => return Err(stop),
                // The first are gone and cannot be taken back: the rest is lost, as in a full queue.
                Err(_) => break,
            }
        }
        self.counters.gso_refused += u64::from(is_cut_here);
        Ok(())
    }

    fn send_frame(
        &mut self,
        link: frame::Link,
        burst: &Burst,
        id: u16,
        payload: &[u8],
    ) -> Result<(), Stop> {
        frame::write(link, burst, id, payload, &mut self.head);
        let parts = [io::IoSlice::new(&self.head), io::IoSlice::new(payload)];
        let Some(tap) = self.taps.first() else { return Err(Stop::Busy) };
        let sent = tap.send_vectored(&parts);
        sent.map(drop)
            .map_err(|error| Stop::from_os(&error, payload.len() / burst.segment_len().max(1)))
    }
}

impl Port for PacketPort {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        self.retry_at = None;
        for (taken, burst) in bursts.iter().enumerate() {
            let Some(link) = self.neighbours.to(now, burst.path.destination) else {
                let sent = self.udp.transmit(now, std::slice::from_ref(burst));
                match sent.map_err(|error| TransmitError { taken, ..error })? {
                    0 => return Ok(taken),
                    _ => continue,
                }
            };
            match self.send(link, burst) {
                Ok(()) => self.counters.sent(burst),
                Err(Stop::Refused(kind)) => {
                    self.counters.refused += 1;
                    return Err(TransmitError { taken, kind });
                }
                Err(Stop::Busy | Stop::NotCut) => {
                    self.counters.busy += 1;
                    self.retry_at = Some(now + udp::RETRY);
                    return Ok(taken);
                }
            }
        }
        Ok(bursts.len())
    }

    fn receive(&mut self, _now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        let mut count = 0;
        // Each in turn is the first, so that a flood of one does not silence the other.
        self.first = (self.first + 1) % self.taps.len().max(1);
        for turn in 0..self.taps.len() {
            let index = (self.first + turn) % self.taps.len();
            while count < BATCH {
                let tap = &self.taps[index];
                let len = match read(tap, &mut self.frame) {
                    Ok(Some(len)) => len,
                    Ok(None) => break,
                    Err(error) => {
                        if sys::is_closed(&error) {
                            // By now its number may be that of somebody else's file.
                            mem::forget(self.taps.swap_remove(index));
                        }
                        return Err(error);
                    }
                };
                count += 1;
                if let Some(buffer) = self.frame.get(..len).and_then(frame::read) {
                    self.counters.received(&buffer);
                    sink(buffer);
                }
            }
        }
        Ok(count + self.udp.receive_of_groups(sink)?)
    }

    // Of what waits at others it tells nothing: that is not known of packet sockets.
    left_to!(udp: source_port groups poll_link);

    // Every frame has them.
    fn tell_ip_fields(&mut self) {}

    fn poll_timeout(&self) -> Option<Instant> {
        let both = [self.retry_at, self.udp.poll_timeout()];
        both.into_iter().flatten().min()
    }

    fn info(&self) -> PortInfo {
        let receive_buffer =
            self.taps.first().and_then(|tap| tap.recv_buffer_size().ok()).unwrap_or_default();
        PortInfo {
            gso: self.gso,
            gro: true,
            receive_buffer,
            sees_ip_header: true,
            ..self.udp.info()
        }
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        counters += &self.udp.counters();
        // What the socket below has thrown away is here.
        counters.kernel_drops = self.taps.iter().map(drops).sum();
        counters
    }

    fn descriptors(&self) -> SmallVec<[RawFd; 4]> {
        let mut descriptors: SmallVec<_> = self.taps.iter().map(Socket::as_raw_fd).collect();
        descriptors.extend(self.udp.descriptors());
        descriptors
    }
}

/// A packet socket, which receives nothing yet.
fn raw() -> io::Result<Socket> {
    Socket::new(Domain::from(libc::AF_PACKET), Type::RAW, Some(Protocol::from(0)))
}

/// Has a socket receive the frames of an interface that are for the port, and send such of its own.
fn tap(
    socket: Socket,
    config: &UdpConfig,
    interface: u32,
) -> Result<Socket, (&'static str, io::Error)> {
    let at = |what| move |error| (what, error);
    socket.set_nonblocking(true).map_err(at("O_NONBLOCK"))?;
    sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
        .map_err(at("PACKET_VNET_HDR"))?;
    let program = filter::to_address(config.ip)
        .ok_or_else(|| ("SO_ATTACH_FILTER", io::ErrorKind::InvalidInput.into()))?;
    socket.attach_filter(&program).map_err(at("SO_ATTACH_FILTER"))?;
    udp::socket::size_receive_buffer(&socket, config.receive_buffer).map_err(at("SO_RCVBUF"))?;
    let ethertype = frame::ethertype(config.ip.is_ipv4());
    sys::bind_to_link(socket.as_fd(), interface, ethertype).map_err(at("bind"))?;
    Ok(socket)
}

/// The length of the next frame; `None` when there is none.
fn read(mut tap: &Socket, frame: &mut [u8]) -> io::Result<Option<usize>> {
    match io::Read::read(&mut tap, frame) {
        Ok(len) => Ok(Some(len)),
        Err(error) => match error.raw_os_error() {
            // The interface is down, and its state is told elsewhere.
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
            // A frame that the note cannot describe is gone: not one of UDP.
            Some(libc::EINVAL) => Ok(Some(0)),
            _ => Err(error),
        },
    }
}

/// Frames that found no room.
fn drops(tap: &Socket) -> u64 {
    sys::drops(tap.as_fd()).map_or(0, u64::from)
}
