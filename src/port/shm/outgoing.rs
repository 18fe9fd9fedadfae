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
use crate::sys::OwnDescriptor;
use crate::time::Instant;

/// Interval between attempts to find a receiver at an address.
pub(super) const FIND_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum interval between attempts at an address, while its receiver reads nothing from its rings.
pub(super) const MAX_FIND_INTERVAL: Duration = Duration::from_millis(6400);

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
    /// Addresses without a receiver.
    absent: HashMap<IpAddr, Absent>,
    /// Time of the last removal of receivers that have ended.
    swept: Instant,
}

/// An address without a receiver.
#[derive(Clone, Copy, Debug)]
struct Absent {
    /// Time of the next attempt.
    until: Instant,
    /// Interval between attempts after the next ring that is refused.
    interval: Duration,
}

/// A receiver with a ring.
#[derive(Debug)]
pub(super) struct Receiver {
    connection: OwnDescriptor<Socket>,
    writer: Writer,
    /// It has taken a burst out of the ring.
    has_read: bool,
    /// Interval until the next attempt if it refuses the ring.
    interval: Duration,
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
        let receiver = self.index_of(to).map(|index| self.receivers.swap_remove(index).1);
        let refused = receiver.as_ref().filter(|receiver| !receiver.has_read);
        let interval = refused.map_or(FIND_INTERVAL, |receiver| receiver.interval);
        if let Some(receiver) = receiver {
            receiver.end();
        }
        let doubled = (interval * 2).min(MAX_FIND_INTERVAL);
        self.absent.insert(to, Absent { until: now + interval, interval: doubled });
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
        let before = self.absent.get(&to);
        if before.is_some_and(|absent| now < absent.until) {
            return None;
        }
        let interval = before.map_or(FIND_INTERVAL, |absent| absent.interval);
        self.sweep(now);
        let may_be = !to.is_multicast() && self.receivers.len() < incoming::MAX_SENDERS;
        let Some((connection, segment)) =
            may_be.then(|| handshake::connect_with_ring(self.ip, to).ok()).flatten()
        else {
            if self.absent.len() >= MAX_ABSENT_ADDRESSES {
                self.absent.clear();
            }
            self.absent.insert(to, Absent { until: now + FIND_INTERVAL, interval });
            return None;
        };
        self.absent.remove(&to);
        let receiver = Receiver {
            connection: OwnDescriptor::new(connection),
            writer: Writer::new(segment),
            has_read: false,
            interval,
            checked: now,
            full_since: None,
        };
        self.receivers.push((to, receiver));
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
        // A receiver that has read nothing may have refused the ring: the next burst must not be lost too.
        if !self.has_read()? || now - self.checked >= CHECK_INTERVAL {
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

    fn has_read(&mut self) -> Result<bool, ReceiverGone> {
        if !self.has_read {
            self.has_read = self.writer.taken()? > 0;
        }
        Ok(self.has_read)
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
        if self.connection.is_own() {
            let _ = self.connection.shutdown(Shutdown::Both);
        }
    }

    /// Checks that the receiver exists, and that no other code of this process has closed the connection. The receiver never
    /// sends data.
    fn check(&self) -> Result<(), ReceiverGone> {
        if !self.connection.is_own() {
            return Err(ReceiverGone);
        }
        match self.connection.peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(_) | Err(_) => Err(ReceiverGone),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::super::udp::tests::config;
    use super::*;

    /// A program that has closed the descriptors of the port opens its own, and one gets the number of a connection.
    #[test]
    fn file_with_the_number_of_a_connection_gets_no_wake_up_and_stays_open() {
        let (here, there) = (config().ip, config().ip);
        let _listener = handshake::listen(there).unwrap();
        let mut outgoing = Outgoing::new(here);
        let receiver = outgoing.to(Instant::ZERO, there).unwrap();
        let (mut file, mut program) = UnixStream::pair().unwrap();
        let foreign = Socket::from(file.try_clone().unwrap());
        receiver.connection = OwnDescriptor::replaced_by(foreign, receiver.connection.as_fd());
        assert_eq!(receiver.send(Instant::ZERO, &[]), Err(ReceiverGone));
        outgoing.forget(Instant::ZERO, there);
        program.write_all(b"data").unwrap();
        file.read_exact(&mut [0; 4]).unwrap();
        program.set_nonblocking(true).unwrap();
        let found = program.read(&mut [0; 1]).unwrap_err();
        assert_eq!(found.kind(), io::ErrorKind::WouldBlock);
    }
}
