//! One way: a sender that keeps a window in flight, a receiver that acknowledges each quarter of it.
//!
//! ```text
//!   sender                                   receiver
//!     │── bursts of datagrams, 16 B or more ───▶│
//!     │◀── count of datagrams so far, 8 B ──────│   every quarter of the window
//!     │── stop, 1 B, ten times ────────────────▶│
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::endpoint::{Endpoint, Region};
use super::shape::{Burst, Bursts, Shape};
use crate::clock::{self, Stretch};

/// Acknowledgements lost or a receiver starved: what is in flight is given up after this.
const STALL: Duration = Duration::from_millis(250);
/// And the other side, after so many.
const STALLS_AT_MOST: u64 = 12;
/// A receiver that hears nothing for so long ends.
const SILENCE: Duration = Duration::from_secs(5);
const STOP: [u8; 1] = [0xff];
const STOPS: usize = 10;

/// What one side of a stream saw.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    /// From the first datagram to the last.
    pub(super) seconds: f64,
    /// Datagrams whose CRC is wrong.
    pub(super) damaged: u64,
    /// Times when the sender gave up waiting for an acknowledgement.
    pub(super) stalls: u64,
    /// The fraction of the time in which this side had a CPU.
    pub(super) cpu_share: f64,
}

/// What a receive queue allows its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Allowance {
    /// Datagrams in flight.
    pub(super) window: usize,
    /// Datagrams in one send.
    pub(super) segments: usize,
}

impl Allowance {
    /// Of a queue of `queue` bytes: a window that fits three quarters of it, and sends short enough
    /// that two of them fit the window, for below that nothing overlaps.
    pub(super) fn of(shape: Shape, most_segments: usize, queue: usize) -> Self {
        // What keeps a receiver busy: 4 MiB or 2048 datagrams.
        let wanted = ((4 << 20) / shape.size.min(shape.mtu).max(1)).min(2048);
        let mut segments = most_segments;
        loop {
            let (datagrams, charge) = Self::sample(shape, segments);
            let window = wanted.min(queue / 4 * 3 * datagrams / charge);
            if window >= 2 * segments || segments == 1 {
                return Self { window: window.max(2), segments };
            }
            segments /= 2;
        }
    }

    /// Datagrams of a stretch of the stream, and the bytes that the kernel counts for them.
    fn sample(shape: Shape, segments: usize) -> (usize, usize) {
        let mut bursts = Bursts::stream(shape, segments);
        let bursts = (0..64).map(|_| bursts.next());
        bursts.fold((0, 0), |(n, charge), burst| (n + burst.count, charge + queue_charge(burst)))
    }
}

/// Bytes that the kernel counts for a burst in a receive queue, measured on Linux 6.18: a lone
/// datagram lies in a buffer of a power of two, a burst in pages that are full.
fn queue_charge(burst: Burst) -> usize {
    match burst.count {
        1 => (burst.bytes + 400).next_power_of_two() + 512,
        _ => burst.bytes + 1024,
    }
}

/// The sending side.
pub(super) struct Sending<'e> {
    end: &'e mut Endpoint,
    bursts: Bursts,
    /// What could not be sent yet.
    waiting: Option<Burst>,
    region: Region,
    buffer: Vec<u8>,
    flight: Flight,
    seen: Seen,
    stretch: Stretch,
    duration: Duration,
    stops: usize,
    last_stop: Option<Instant>,
}

impl<'e> Sending<'e> {
    /// Sends for as long as `duration` says.
    pub(super) fn new(
        end: &'e mut Endpoint,
        shape: Shape,
        allowance: Allowance,
        duration: Duration,
    ) -> Self {
        Self {
            end,
            bursts: Bursts::stream(shape, allowance.segments),
            waiting: None,
            region: Region::new(),
            buffer: vec![0; 1 << 16],
            flight: Flight { window: allowance.window as u64, ..Flight::default() },
            seen: Seen::default(),
            duration,
            stops: 0,
            last_stop: None,
            stretch: Stretch::begin(),
        }
    }

    /// Sends a burst if there is room for it; says whether it goes on.
    pub(super) fn step(&mut self) -> anyhow::Result<bool> {
        if self.stops > 0 || self.stretch.elapsed() >= self.duration {
            return self.stop();
        }
        let burst = self.waiting.take().unwrap_or_else(|| self.bursts.next());
        if !self.flight.has_room(self.end, burst.count as u64)? {
            self.waiting = Some(burst);
            return Ok(true);
        }
        let bytes = &mut self.buffer[..burst.bytes];
        bytes.chunks_mut(burst.segment).for_each(|datagram| self.region.fill(datagram));
        self.end.send(burst, bytes)?;
        self.flight.sent += burst.count as u64;
        self.seen.bytes += burst.bytes as u64;
        Ok(true)
    }

    /// Says that it is over, several times, a millisecond apart; says whether it must be said again.
    fn stop(&mut self) -> anyhow::Result<bool> {
        if self.stops == 0 {
            self.seen.seconds = self.stretch.elapsed().as_secs_f64();
            self.seen.cpu_share = self.stretch.cpu_share();
        }
        // Acknowledgements are not waited for any more.
        self.end.receive(&mut [0; 8])?;
        let now = clock::now();
        if self.last_stop.is_none_or(|last| now - last >= Duration::from_millis(1)) {
            self.last_stop = Some(now);
            self.stops += 1;
            self.end.tell(&STOP)?;
        }
        Ok(self.stops < STOPS)
    }

    /// What has been sent.
    pub(super) fn seen(&self) -> Seen {
        Seen { datagrams: self.flight.sent, stalls: self.flight.stalls, ..self.seen }
    }
}

/// What the sender has in flight.
#[derive(Default)]
struct Flight {
    window: u64,
    sent: u64,
    /// Acknowledged or given up.
    done: u64,
    given_up: u64,
    stalls: u64,
    stalls_in_a_row: u64,
    /// Since when there has been no room.
    full_since: Option<Instant>,
}

impl Flight {
    /// Whether `count` more datagrams fit the window.
    fn has_room(&mut self, end: &mut Endpoint, count: u64) -> anyhow::Result<bool> {
        let mut ack = [0; 8];
        while end.receive(&mut ack)?.is_some() {
            self.stalls_in_a_row = 0;
            self.done = self.done.max(u64::from_le_bytes(ack) + self.given_up);
        }
        if self.sent - self.done.min(self.sent) + count <= self.window {
            self.full_since = None;
            return Ok(true);
        }
        let now = clock::now();
        if now - *self.full_since.get_or_insert(now) > STALL {
            self.given_up += self.sent - self.done;
            self.done = self.sent;
            self.stalls += 1;
            self.stalls_in_a_row += 1;
            ensure!(self.stalls_in_a_row < STALLS_AT_MOST, "the receiver acknowledges nothing");
        }
        Ok(false)
    }
}

/// The receiving side.
pub(super) struct Taking<'e> {
    end: &'e mut Endpoint,
    allowance: Allowance,
    region: Region,
    buffer: Vec<u8>,
    seen: Seen,
    /// Datagrams that have been acknowledged.
    told: u64,
    heard: Instant,
    /// Begins with the first datagram.
    stretch: Stretch,
}

impl<'e> Taking<'e> {
    pub(super) fn new(end: &'e mut Endpoint, allowance: Allowance) -> Self {
        Self {
            end,
            allowance,
            region: Region::new(),
            buffer: vec![0; 1 << 16],
            seen: Seen::default(),
            told: 0,
            heard: clock::now(),
            stretch: Stretch::begin(),
        }
    }

    /// Receives a buffer if there is one; says whether it goes on, which it does until the sender
    /// says stop.
    pub(super) fn step(&mut self) -> anyhow::Result<bool> {
        let Some((data, segment)) = self.end.receive(&mut self.buffer)? else {
            let silence = clock::now() - self.heard;
            ensure!(silence < SILENCE, "the sender has been silent for {silence:.1?}");
            return Ok(true);
        };
        let seen = &mut self.seen;
        if data == STOP || segment == STOP.len() {
            seen.seconds = self.stretch.elapsed().as_secs_f64();
            seen.cpu_share = self.stretch.cpu_share();
            return Ok(false);
        }
        if seen.datagrams == 0 {
            self.stretch = Stretch::begin();
        }
        for datagram in data.chunks(segment) {
            seen.datagrams += 1;
            seen.damaged += u64::from(!self.region.take(datagram));
        }
        seen.bytes += data.len() as u64;
        self.heard = clock::now();
        if (seen.datagrams - self.told) * 4 >= self.allowance.window as u64 {
            self.told = seen.datagrams;
            self.end.tell(&self.told.to_le_bytes()).context("acknowledgement")?;
        }
        Ok(true)
    }

    /// What has been received.
    pub(super) fn seen(&self) -> Seen {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceiling::shape::Operation;

    const WRITES: Shape = Shape { operation: Operation::Write, size: 65536, mtu: 4096 };

    #[test]
    fn a_large_queue_allows_what_keeps_a_receiver_busy() {
        let of = |shape| Allowance::of(shape, 128, 32 << 20);
        assert_eq!(of(WRITES), Allowance { window: 1024, segments: 128 });
        assert_eq!(of(Shape { mtu: 1024, ..WRITES }), Allowance { window: 2048, segments: 128 });
        assert_eq!(of(Shape { size: 64, ..WRITES }), Allowance { window: 2048, segments: 128 });
    }

    #[test]
    fn a_small_queue_is_never_overrun() {
        for size in [2, 64, 1024, 4096, 5000, 65536] {
            for queue in [425_984, 131_072, 32_768] {
                let shape = Shape { size, ..WRITES };
                let Allowance { window, segments } = Allowance::of(shape, 128, queue);
                let mut bursts = Bursts::stream(shape, segments);
                let (mut datagrams, mut charge) = (0, 0);
                while datagrams < window {
                    let burst = bursts.next();
                    datagrams += burst.count;
                    charge += queue_charge(burst);
                }
                assert!(charge <= queue, "{size} B into {queue} B: {window} of {segments}");
                assert!(window >= 2 * segments);
            }
        }
    }
}
