//! Receivers that this port sends to through rings.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use socket2::Socket;

use super::ring::{Broken, PutOutcome, Writer};
use super::{handshake, incoming};
use crate::net::Burst;
use crate::time::Instant;

/// Interval between attempts to find a receiver at an address.
pub(super) const FIND_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between checks that a receiver still exists.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Longest time that a receiver may take nothing out of a full ring: it may be waiting for a CPU. Later bursts are
/// lost, as with a socket, and do not delay those to other receivers.
pub(super) const MAX_STALL: Duration = Duration::from_millis(10);

/// Maximum number of cached addresses without a receiver.
const MAX_ABSENT_ADDRESSES: usize = 1024;

/// Receivers of bursts from one address through rings.
#[derive(Debug)]
pub(super) struct Outgoing {
    ip: IpAddr,
    receivers: Vec<(IpAddr, Receiver)>,
    /// Index of the last receiver.
    last: usize,
    /// Addresses without a receiver, and the time of the next attempt.
    absent: HashMap<IpAddr, Instant>,
    /// Time of the last removal of receivers that have ended.
    swept: Instant,
}

/// A receiver with a ring.
#[derive(Debug)]
pub(super) struct Receiver {
    connection: Socket,
    writer: Writer,
    /// Time of the last check that it exists.
    checked: Instant,
    /// Time at which the ring was found full, and the number of bytes taken out by then.
    full_since: Option<(Instant, u64)>,
}

/// The receiver has ended, or violates the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReceiverGone;

impl From<Broken> for ReceiverGone {
    fn from(_: Broken) -> Self {
        Self
    }
}

/// Numbers of bursts put into a ring, and of those lost because it is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SendResult {
    pub(super) put: usize,
    pub(super) lost: usize,
}

impl Outgoing {
    /// Returns the receivers of bursts from `ip`.
    pub(super) fn new(ip: IpAddr) -> Self {
        Self { ip, receivers: Vec::new(), last: 0, absent: HashMap::new(), swept: Instant::ZERO }
    }

    /// Returns the receiver at an address, if it has a port of this kind.
    #[inline]
    pub(super) fn to(&mut self, now: Instant, to: IpAddr) -> Option<&mut Receiver> {
        let is_last = self.receivers.get(self.last).is_some_and(|(ip, _)| *ip == to);
        if !is_last {
            self.last = self.index_of(to).or_else(|| self.find(now, to))?;
        }
        self.receivers.get_mut(self.last).map(|(_, receiver)| receiver)
    }

    fn index_of(&self, to: IpAddr) -> Option<usize> {
        self.receivers.iter().position(|(ip, _)| *ip == to)
    }

    /// Returns the number of bytes in the ring to an address, if there is one.
    pub(super) fn backlog(&mut self, to: IpAddr) -> Option<u64> {
        let index = self.index_of(to)?;
        self.receivers.get_mut(index)?.1.writer.waiting().ok()
    }

    /// Returns the number of receivers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Removes the receiver at an address, which has ended or has no room for a sender.
    pub(super) fn forget(&mut self, now: Instant, to: IpAddr) {
        if let Some(index) = self.index_of(to) {
            let (_, receiver) = self.receivers.swap_remove(index);
            receiver.end();
        }
        self.absent.insert(to, now + FIND_INTERVAL);
    }

    /// Removes receivers that have ended: nothing may ever be sent to them again, and their rings take memory and count
    /// towards the maximum.
    fn sweep(&mut self, now: Instant) {
        if now - self.swept < FIND_INTERVAL {
            return;
        }
        self.swept = now;
        self.receivers.retain(|(_, receiver)| {
            let is_there = receiver.check().is_ok();
            if !is_there {
                receiver.end();
            }
            is_there
        });
    }

    /// Connects to a receiver, and returns its index.
    fn find(&mut self, now: Instant, to: IpAddr) -> Option<usize> {
        if self.absent.get(&to).is_some_and(|until| now < *until) {
            return None;
        }
        self.sweep(now);
        let may_be = !to.is_multicast() && self.receivers.len() < incoming::MAX_SENDERS;
        let Some((connection, segment)) =
            may_be.then(|| handshake::connect_with_ring(self.ip, to).ok()).flatten()
        else {
            if self.absent.len() >= MAX_ABSENT_ADDRESSES {
                self.absent.clear();
            }
            self.absent.insert(to, now + FIND_INTERVAL);
            return None;
        };
        self.absent.remove(&to);
        let writer = Writer::new(segment);
        self.receivers.push((to, Receiver { connection, writer, checked: now, full_since: None }));
        Some(self.receivers.len() - 1)
    }
}

impl Receiver {
    /// Sends bursts in order.
    ///
    /// # Errors
    ///
    /// [`ReceiverGone`]: bursts in the ring are lost, and the others must be sent by UDP.
    #[inline]
    pub(super) fn send(
        &mut self,
        now: Instant,
        bursts: &[Burst],
    ) -> Result<SendResult, ReceiverGone> {
        if now - self.checked >= CHECK_INTERVAL {
            self.checked = now;
            self.check()?;
        }
        let mut sent = SendResult::default();
        for burst in bursts {
            match self.writer.put(burst)? {
                PutOutcome::In => sent.put += 1,
                PutOutcome::Full => {
                    if self.is_stuck(now)? {
                        sent.lost = bursts.len() - sent.put;
                    }
                    break;
                }
            }
        }
        if self.writer.wakes()? {
            self.wake()?;
        }
        Ok(sent)
    }

    /// Returns whether the ring has been full for long, and nothing was taken out.
    fn is_stuck(&mut self, now: Instant) -> Result<bool, ReceiverGone> {
        let taken = self.writer.taken()?;
        match self.full_since {
            Some((since, before)) if before == taken => Ok(now - since >= MAX_STALL),
            _ => {
                self.full_since = Some((now, taken));
                Ok(false)
            }
        }
    }

    fn wake(&self) -> Result<(), ReceiverGone> {
        match self.connection.send_with_flags(&[1], libc::MSG_NOSIGNAL) {
            Ok(_) => Ok(()),
            // Earlier wake-ups are still unread.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(ReceiverGone),
        }
    }

    /// Ends the connection for all processes. The peer may have ended it already.
    fn end(&self) {
        let _ = self.connection.shutdown(Shutdown::Both);
    }

    /// Checks that the receiver exists. It never sends data.
    fn check(&self) -> Result<(), ReceiverGone> {
        match self.connection.peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(_) | Err(_) => Err(ReceiverGone),
        }
    }
}
