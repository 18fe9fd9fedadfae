//! Those to whom we send through rings.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
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
    ways: HashMap<IpAddr, Way>,
}

/// How an address is reached.
#[derive(Debug)]
enum Way {
    Ring(Box<Receiver>),
    /// By UDP, until then.
    Udp(Instant),
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
        Self { ip, ways: HashMap::new() }
    }

    /// Who receives at an address, if that is somebody to send to through a ring.
    #[inline]
    pub(super) fn to(&mut self, now: Instant, to: IpAddr) -> Option<&mut Receiver> {
        let is_known = match self.ways.get(&to) {
            Some(Way::Ring(_)) => true,
            Some(Way::Udp(until)) => now < *until,
            None => false,
        };
        if !is_known {
            self.find(now, to);
        }
        match self.ways.get_mut(&to) {
            Some(Way::Ring(receiver)) => Some(receiver),
            _ => None,
        }
    }

    /// Bytes that wait in the ring to an address, if there is one.
    pub(super) fn backlog(&mut self, to: IpAddr) -> Option<u64> {
        match self.ways.get_mut(&to) {
            Some(Way::Ring(receiver)) => receiver.writer.waiting().ok(),
            _ => None,
        }
    }

    /// Whoever was there has gone, or was one too many there.
    pub(super) fn forget(&mut self, now: Instant, to: IpAddr) {
        self.ways.insert(to, Way::Udp(now + AGAIN));
    }

    /// Looks for somebody.
    fn find(&mut self, now: Instant, to: IpAddr) {
        let rings = || self.ways.values().filter(|way| matches!(way, Way::Ring(_))).count();
        let found = match to.is_multicast() || rings() >= incoming::MOST {
            true => None,
            false => meeting::call(self.ip, to).ok(),
        };
        let way = match found {
            None => Way::Udp(now + AGAIN),
            Some((connection, segment)) => {
                let writer = Writer::new(segment);
                Way::Ring(Box::new(Receiver { connection, writer, looked: now, full: None }))
            }
        };
        if self.ways.len() >= REMEMBERED {
            self.ways.retain(|_, way| matches!(way, Way::Ring(_)));
        }
        self.ways.insert(to, way);
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

    /// Whether he is still there. He never says anything.
    fn check(&self) -> Result<(), Gone> {
        match self.connection.peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(_) | Err(_) => Err(Gone),
        }
    }
}
