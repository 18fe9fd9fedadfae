//! Those to whom we send through rings.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use socket2::Socket;

use super::ring::{Broken, Put, Writer};
use super::{incoming, meeting};
use crate::net::Burst;
use crate::time::Instant;

/// How long nobody is looked for where there was none.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// How often it is looked whether who receives is still there.
const LOOK: Duration = Duration::from_millis(10);

/// How long who receives may take nothing out of a full ring: he may have lost the CPU. What comes then is
/// lost, as it would be with a socket, and holds up nothing that goes to others.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);

/// Addresses of which it is remembered that nobody was there.
const REMEMBERED: usize = 1024;

/// Those to whom one address sends through rings.
#[derive(Debug)]
pub(super) struct Outgoing {
    ip: IpAddr,
    receivers: Vec<(IpAddr, Receiver)>,
    /// The place of the one who was sent to last.
    last: usize,
    /// Until when nobody is looked for at other addresses.
    absent: HashMap<IpAddr, Instant>,
    /// When receivers that have gone were last removed.
    swept: Instant,
}

/// Somebody to whom we send.
#[derive(Debug)]
pub(super) struct Receiver {
    connection: Socket,
    writer: Writer,
    /// When it was looked whether he is there.
    looked: Instant,
    /// When the ring was found full, and how many bytes had been taken out of it by then.
    full: Option<(Instant, u64)>,
}

/// He is not there any more, or does not do what he should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gone;

impl From<Broken> for Gone {
    fn from(_: Broken) -> Self {
        Self
    }
}

/// How many bursts were put into a ring, and how many of the next were thrown away because it is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sent {
    pub(super) put: usize,
    pub(super) lost: usize,
}

impl Outgoing {
    /// Of what is sent from `ip`.
    pub(super) fn new(ip: IpAddr) -> Self {
        Self { ip, receivers: Vec::new(), last: 0, absent: HashMap::new(), swept: Instant::ZERO }
    }

    /// Who receives at an address, if that is somebody to send to through a ring.
    #[inline]
    pub(super) fn to(&mut self, now: Instant, to: IpAddr) -> Option<&mut Receiver> {
        let is_last = self.receivers.get(self.last).is_some_and(|(ip, _)| *ip == to);
        if !is_last {
            self.last = self.place_of(to).or_else(|| self.find(now, to))?;
        }
        self.receivers.get_mut(self.last).map(|(_, receiver)| receiver)
    }

    fn place_of(&self, to: IpAddr) -> Option<usize> {
        self.receivers.iter().position(|(ip, _)| *ip == to)
    }

    /// Bytes that wait in the ring to an address, if there is one.
    pub(super) fn backlog(&mut self, to: IpAddr) -> Option<u64> {
        let place = self.place_of(to)?;
        self.receivers.get_mut(place)?.1.writer.waiting().ok()
    }

    /// Receivers with a ring.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Whoever was there has gone, or was one too many there.
    pub(super) fn forget(&mut self, now: Instant, to: IpAddr) {
        if let Some(place) = self.place_of(to) {
            let (_, receiver) = self.receivers.swap_remove(place);
            receiver.end();
        }
        self.absent.insert(to, now + AGAIN);
    }

    /// Removes receivers that have gone: nothing may ever be sent to them again, and their rings take memory and the
    /// places of others.
    fn sweep(&mut self, now: Instant) {
        if now - self.swept < AGAIN {
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

    /// Looks for somebody, and returns his place.
    fn find(&mut self, now: Instant, to: IpAddr) -> Option<usize> {
        if self.absent.get(&to).is_some_and(|until| now < *until) {
            return None;
        }
        self.sweep(now);
        let may_be = !to.is_multicast() && self.receivers.len() < incoming::MOST;
        let Some((connection, segment)) = may_be.then(|| meeting::call(self.ip, to).ok()).flatten()
        else {
            if self.absent.len() >= REMEMBERED {
                self.absent.clear();
            }
            self.absent.insert(to, now + AGAIN);
            return None;
        };
        self.absent.remove(&to);
        let writer = Writer::new(segment);
        self.receivers.push((to, Receiver { connection, writer, looked: now, full: None }));
        Some(self.receivers.len() - 1)
    }
}

impl Receiver {
    /// Sends bursts in order.
    ///
    /// # Errors
    ///
    /// [`Gone`]: those that were sent are lost, and the others are to be sent another way.
    #[inline]
    pub(super) fn send(&mut self, now: Instant, bursts: &[Burst]) -> Result<Sent, Gone> {
        if now - self.looked >= LOOK {
            self.looked = now;
            self.check()?;
        }
        let mut sent = Sent::default();
        for burst in bursts {
            match self.writer.put(burst)? {
                Put::In => sent.put += 1,
                Put::Full => {
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

    /// The ring is full: whether that is so for long, and nothing was taken out.
    fn is_stuck(&mut self, now: Instant) -> Result<bool, Gone> {
        let taken = self.writer.taken()?;
        match self.full {
            Some((since, before)) if before == taken => Ok(now - since >= PATIENCE),
            _ => {
                self.full = Some((now, taken));
                Ok(false)
            }
        }
    }

    fn wake(&self) -> Result<(), Gone> {
        match self.connection.send_with_flags(&[1], libc::MSG_NOSIGNAL) {
            Ok(_) => Ok(()),
            // He has not read what would wake him.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(Gone),
        }
    }

    /// Ends the connection, also where a forked process has it too. The peer may have ended it already.
    fn end(&self) {
        let _ = self.connection.shutdown(Shutdown::Both);
    }

    /// Whether he is still there. He never says anything.
    fn check(&self) -> Result<(), Gone> {
        match self.connection.peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(_) | Err(_) => Err(Gone),
        }
    }
}
