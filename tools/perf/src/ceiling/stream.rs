//! One direction: a sender with a window in flight, and a receiver that acknowledges each quarter of it.
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
use crate::clock::{self, CpuTimer};

/// Time without an acknowledgement after which the sender gives up the datagrams in flight.
const STALL_TIMEOUT: Duration = Duration::from_millis(250);
/// Number of consecutive stalls after which the measurement fails.
const MAX_CONSECUTIVE_STALLS: u64 = 12;
/// Time without a datagram after which the receiver fails.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
const STOP_DATAGRAM: [u8; 1] = [0xff];
const STOP_REPEATS: usize = 10;

/// Statistics of one side of a stream.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct StreamStats {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    /// Seconds from the first datagram to the last.
    pub(super) seconds: f64,
    /// Datagrams with a wrong CRC.
    pub(super) damaged: u64,
    /// Number of times the sender gave up waiting for an acknowledgement.
    pub(super) stalls: u64,
    /// Fraction of the time in which this side had a CPU.
    pub(super) cpu_share: f64,
}

/// Limits that a receive queue sets its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ReceiveWindow {
    /// Maximum number of datagrams in flight.
    pub(super) window: usize,
    /// Maximum number of datagrams in one send.
    pub(super) segments: usize,
}

impl ReceiveWindow {
    /// Returns the limits for a queue of `queue` bytes: a window that fills at most three quarters of it, and sends
    /// of at most half the window, so that sending and receiving overlap.
    pub(super) fn of(shape: Shape, max_segments: usize, queue: usize) -> Self {
        // Enough to keep a receiver busy: 4 MiB or 2048 datagrams.
        let wanted = ((4 << 20) / shape.size.min(shape.mtu).max(1)).min(2048);
        let mut segments = max_segments;
        loop {
            let (datagrams, charge) = Self::sample(shape, segments);
            let window = wanted.min(queue / 4 * 3 * datagrams / charge);
            if window >= 2 * segments || segments == 1 {
                return Self { window: window.max(2), segments };
            }
            segments /= 2;
        }
    }

    /// Returns the datagrams of a part of the stream, and the bytes that the kernel charges for them.
    fn sample(shape: Shape, segments: usize) -> (usize, usize) {
        let mut bursts = Bursts::stream(shape, segments);
        let bursts = (0..64).map(|_| bursts.next());
        bursts.fold((0, 0), |(n, charge), burst| (n + burst.count, charge + queue_charge(burst)))
    }
}

/// Returns the bytes that the kernel charges to a receive queue for a burst, measured on Linux 6.18: a single
/// datagram occupies a buffer of a power of two, a burst whole pages.
fn queue_charge(burst: Burst) -> usize {
    match burst.count {
        1 => (burst.bytes + 400).next_power_of_two() + 512,
        _ => burst.bytes + 1024,
    }
}

/// The sending side.
pub(super) struct StreamSender<'e> {
    end: &'e mut Endpoint,
    bursts: Bursts,
    /// Burst that had no room yet.
    waiting: Option<Burst>,
    region: Region,
    buffer: Vec<u8>,
    flight: FlightWindow,
    stats: StreamStats,
    timer: CpuTimer,
    duration: Duration,
    stops: usize,
    last_stop: Option<Instant>,
}

impl<'e> StreamSender<'e> {
    /// Creates a sender that runs for `duration`.
    pub(super) fn new(
        end: &'e mut Endpoint,
        shape: Shape,
        receive_window: ReceiveWindow,
        duration: Duration,
    ) -> Self {
        Self {
            end,
            bursts: Bursts::stream(shape, receive_window.segments),
            waiting: None,
            region: Region::new(),
            buffer: vec![0; 1 << 16],
            flight: FlightWindow {
                window: receive_window.window as u64,
                ..FlightWindow::default()
            },
            stats: StreamStats::default(),
            duration,
            stops: 0,
            last_stop: None,
            timer: CpuTimer::begin(),
        }
    }

    /// Sends a burst if there is room for it; returns whether to go on.
    pub(super) fn step(&mut self) -> anyhow::Result<bool> {
        if self.stops > 0 || self.timer.elapsed() >= self.duration {
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
        self.stats.bytes += burst.bytes as u64;
        Ok(true)
    }

    /// Sends the stop datagram several times, a millisecond apart; returns whether to send another.
    fn stop(&mut self) -> anyhow::Result<bool> {
        if self.stops == 0 {
            self.stats.seconds = self.timer.elapsed().as_secs_f64();
            self.stats.cpu_share = self.timer.cpu_share();
        }
        // Acknowledgements no longer matter.
        self.end.receive(&mut [0; 8])?;
        let now = clock::now();
        if self.last_stop.is_none_or(|last| now - last >= Duration::from_millis(1)) {
            self.last_stop = Some(now);
            self.stops += 1;
            self.end.send_single(&STOP_DATAGRAM)?;
        }
        Ok(self.stops < STOP_REPEATS)
    }

    /// Returns the statistics.
    pub(super) fn stats(&self) -> StreamStats {
        StreamStats { datagrams: self.flight.sent, stalls: self.flight.stalls, ..self.stats }
    }
}

/// Datagrams in flight.
#[derive(Default)]
struct FlightWindow {
    window: u64,
    sent: u64,
    /// Datagrams acknowledged or given up.
    done: u64,
    given_up: u64,
    stalls: u64,
    stalls_in_a_row: u64,
    /// Time since which there has been no room.
    full_since: Option<Instant>,
}

impl FlightWindow {
    /// Returns whether `count` more datagrams fit the window.
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
        if now - *self.full_since.get_or_insert(now) > STALL_TIMEOUT {
            self.given_up += self.sent - self.done;
            self.done = self.sent;
            self.stalls += 1;
            self.stalls_in_a_row += 1;
            ensure!(
                self.stalls_in_a_row < MAX_CONSECUTIVE_STALLS,
                "the receiver does not acknowledge: {} stalls in a row",
                self.stalls_in_a_row
            );
        }
        Ok(false)
    }
}

/// The receiving side.
pub(super) struct StreamReceiver<'e> {
    end: &'e mut Endpoint,
    receive_window: ReceiveWindow,
    region: Region,
    buffer: Vec<u8>,
    stats: StreamStats,
    /// Number of acknowledged datagrams.
    acknowledged: u64,
    last_received: Instant,
    /// Runs from the first datagram.
    timer: CpuTimer,
}

impl<'e> StreamReceiver<'e> {
    pub(super) fn new(end: &'e mut Endpoint, receive_window: ReceiveWindow) -> Self {
        Self {
            end,
            receive_window,
            region: Region::new(),
            buffer: vec![0; 1 << 16],
            stats: StreamStats::default(),
            acknowledged: 0,
            last_received: clock::now(),
            timer: CpuTimer::begin(),
        }
    }

    /// Receives a buffer if there is one; returns whether to go on, which is so until a stop arrives.
    pub(super) fn step(&mut self) -> anyhow::Result<bool> {
        let Some((data, segment)) = self.end.receive(&mut self.buffer)? else {
            let silence = clock::now() - self.last_received;
            ensure!(silence < IDLE_TIMEOUT, "no datagram from the sender for {silence:.1?}");
            return Ok(true);
        };
        let stats = &mut self.stats;
        if data == STOP_DATAGRAM || segment == STOP_DATAGRAM.len() {
            stats.seconds = self.timer.elapsed().as_secs_f64();
            stats.cpu_share = self.timer.cpu_share();
            return Ok(false);
        }
        if stats.datagrams == 0 {
            self.timer = CpuTimer::begin();
        }
        for datagram in data.chunks(segment) {
            stats.datagrams += 1;
            stats.damaged += u64::from(!self.region.take(datagram));
        }
        stats.bytes += data.len() as u64;
        self.last_received = clock::now();
        if (stats.datagrams - self.acknowledged) * 4 >= self.receive_window.window as u64 {
            self.acknowledged = stats.datagrams;
            self.end.send_single(&self.acknowledged.to_le_bytes()).context("acknowledgement")?;
        }
        Ok(true)
    }

    /// Returns the statistics.
    pub(super) fn stats(&self) -> StreamStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceiling::shape::Operation;

    const WRITES: Shape = Shape { operation: Operation::Write, size: 65536, mtu: 4096 };

    #[test]
    fn large_queue_keeps_a_receiver_busy() {
        let of = |shape| ReceiveWindow::of(shape, 128, 32 << 20);
        assert_eq!(of(WRITES), ReceiveWindow { window: 1024, segments: 128 });
        assert_eq!(
            of(Shape { mtu: 1024, ..WRITES }),
            ReceiveWindow { window: 2048, segments: 128 }
        );
        assert_eq!(of(Shape { size: 64, ..WRITES }), ReceiveWindow { window: 2048, segments: 128 });
    }

    #[test]
    fn small_queue_is_never_overrun() {
        for size in [2, 64, 1024, 4096, 5000, 65536] {
            for queue in [425_984, 131_072, 32_768] {
                let shape = Shape { size, ..WRITES };
                let ReceiveWindow { window, segments } = ReceiveWindow::of(shape, 128, queue);
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
