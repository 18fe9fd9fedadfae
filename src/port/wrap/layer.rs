//! Steps in the datapath between the engine and a port.

use std::io;
use std::net::IpAddr;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use smallvec::SmallVec;

use crate::net::{Burst, RxBuffer};
use crate::port::counters::PortCounters;
use crate::port::traits::{Control, Datapath, JoinError, LinkState, PortInfo, TransmitError};
use crate::time::Instant;

/// A step in the datapath between the engine and a port, such as a capture or a link emulator.
///
/// Each method gets the part of the datapath below. By default it forwards the call, so a middleware implements only
/// the methods it changes. The [`Control`] side of the port bypasses it, but for the [properties](Self::info).
pub trait Middleware: Send {
    /// Sends bursts, as [`Datapath::transmit`] does.
    ///
    /// # Errors
    ///
    /// See there.
    fn transmit(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        bursts: &[Burst],
    ) -> Result<usize, TransmitError> {
        below.transmit(now, bursts)
    }

    /// Receives buffers, as [`Datapath::receive`] does.
    ///
    /// # Errors
    ///
    /// See there.
    fn receive(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        below.receive(now, sink)
    }

    /// Prepares to sleep: see [`Datapath::arm`].
    fn arm(&mut self, below: &mut impl Datapath) -> bool {
        below.arm()
    }

    /// Returns the time of the next call: see [`Datapath::poll_timeout`].
    fn poll_timeout(&self, below: &impl Datapath) -> Option<Instant> {
        below.poll_timeout()
    }

    /// Returns the descriptors to sleep on: see [`Datapath::descriptors`].
    #[cfg(unix)]
    fn descriptors<'a>(&'a self, below: &'a impl Datapath) -> SmallVec<[BorrowedFd<'a>; 4]> {
        below.descriptors()
    }

    /// Returns the fill of a receive queue: see [`Datapath::receive_queue_bytes`].
    fn receive_queue_bytes(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        to: IpAddr,
    ) -> Option<u64> {
        below.receive_queue_bytes(now, to)
    }

    /// Sends a last burst while the process ends: see [`Datapath::send_last`].
    fn send_last(&mut self, below: &mut impl Datapath, burst: &Burst) {
        below.send_last(burst);
    }

    /// Returns the properties of the port, given those of the port below.
    fn info(&self, below: PortInfo) -> PortInfo {
        below
    }

    /// Returns the counters of the port below, together with those of the middleware.
    fn counters(&self, below: PortCounters) -> PortCounters {
        below
    }
}

/// A port with a [`Middleware`] in its datapath.
#[derive(Debug)]
pub struct Layer<P, M> {
    pub(in crate::port) middleware: M,
    /// Dropped last.
    port: P,
}

impl<P, M> Layer<P, M> {
    /// Puts `middleware` above `port`.
    pub fn over(port: P, middleware: M) -> Self {
        Self { middleware, port }
    }

    /// Returns the port below.
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns the middleware and the port.
    #[cfg(feature = "runtime")]
    pub(super) fn parts(&mut self) -> (&mut M, &mut P) {
        (&mut self.middleware, &mut self.port)
    }

    /// Closes the port and returns the middleware.
    pub(in crate::port) fn into_middleware(self) -> M {
        self.middleware
    }
}

impl<P: Datapath, M: Middleware> Datapath for Layer<P, M> {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        self.middleware.transmit(&mut self.port, now, bursts)
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        self.middleware.receive(&mut self.port, now, sink)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.middleware.poll_timeout(&self.port)
    }

    fn arm(&mut self) -> bool {
        self.middleware.arm(&mut self.port)
    }

    #[cfg(unix)]
    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        self.middleware.descriptors(&self.port)
    }

    fn receive_queue_bytes(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        self.middleware.receive_queue_bytes(&mut self.port, now, to)
    }

    fn send_last(&mut self, burst: &Burst) {
        self.middleware.send_last(&mut self.port, burst);
    }

    fn counters(&self) -> PortCounters {
        self.middleware.counters(self.port.counters())
    }
}

impl<P: Control, M: Middleware> Control for Layer<P, M> {
    fn info(&self) -> PortInfo {
        self.middleware.info(self.port.info())
    }

    fn source_port(&mut self, source: IpAddr, wanted: u16) -> u16 {
        self.port.source_port(source, wanted)
    }

    fn report_ip_fields(&mut self) {
        self.port.report_ip_fields();
    }

    fn keep_identifications(&mut self) {
        self.port.keep_identifications();
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        self.port.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.port.leave(group);
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        self.port.poll_link()
    }
}
