//! One message at a time, back and forth; both sides poll, or both sleep.

use std::time::Duration;

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;

use super::endpoint::{Endpoint, Region};
use super::shape::{Burst, Bursts, Shape};
use crate::clock;

/// Time without a reply after which the measurement fails: latency cannot be measured with loss.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of exchanges before the measurement, which fill caches and take page faults; they take at most a
/// tenth of the time.
const WARM_UP_EXCHANGES: u64 = 200;
const STOP_DATAGRAM: [u8; 1] = [0xff];

/// Sends and receives whole messages.
pub(super) struct PingPong<'e> {
    end: &'e mut Endpoint,
    /// Bursts of the sent message.
    bursts: Vec<Burst>,
    /// Bytes of the received message.
    expected: usize,
    sent: Region,
    received: Region,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'e> PingPong<'e> {
    /// Creates a side that sends messages of one shape and receives those of another.
    pub(super) fn new(
        end: &'e mut Endpoint,
        sends: Shape,
        takes: Shape,
        max_segments: usize,
    ) -> Self {
        Self {
            end,
            bursts: Bursts::message(sends, max_segments),
            expected: takes.wire_bytes(),
            sent: Region::new(),
            received: Region::new(),
            out: vec![0; 1 << 16],
            buffer: vec![0; 1 << 16],
        }
    }

    /// Exchanges messages for `duration`; the histogram has round trips in nanoseconds, each divided by `ways`.
    pub(super) fn serve(
        &mut self,
        duration: Duration,
        ways: u32,
    ) -> anyhow::Result<Histogram<u64>> {
        let mut times = Histogram::new_with_bounds(1, 10_000_000_000, 3)?;
        let start = clock::now();
        let mut before = start;
        let mut exchanges = 0;
        while before - start < duration || times.is_empty() {
            self.send()?;
            ensure!(self.take(REPLY_TIMEOUT)?, "the other side answered with a stop");
            let after = clock::now();
            exchanges += 1;
            if exchanges > WARM_UP_EXCHANGES || after - start > duration / 10 {
                let time = (after - before) / ways;
                times.saturating_record(u64::try_from(time.as_nanos())?);
            }
            before = after;
        }
        self.end.send_single(&STOP_DATAGRAM)?;
        Ok(times)
    }

    /// Returns every message until a stop arrives.
    pub(super) fn echo(&mut self) -> anyhow::Result<()> {
        while self.take(IDLE_TIMEOUT)? {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> anyhow::Result<()> {
        for burst in &self.bursts {
            let bytes = &mut self.out[..burst.bytes];
            bytes.chunks_mut(burst.segment).for_each(|datagram| self.sent.fill(datagram));
            self.end.send(*burst, bytes)?;
        }
        Ok(())
    }

    /// Receives a whole message; returns `false` if a stop arrives instead.
    fn take(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        let mut missing = self.expected;
        let mut start = None;
        while missing > 0 {
            let Some((data, segment)) = self.end.receive(&mut self.buffer)? else {
                if self.end.should_check_clock() {
                    let now = clock::now();
                    let waited = now - *start.get_or_insert(now);
                    ensure!(waited < timeout, "no datagram from the other side for {waited:.1?}");
                }
                continue;
            };
            if data == STOP_DATAGRAM {
                return Ok(false);
            }
            for datagram in data.chunks(segment) {
                ensure!(self.received.take(datagram), "a damaged datagram was received");
            }
            let Some(rest) = missing.checked_sub(data.len()) else {
                bail!("received {} bytes where {missing} were missing", data.len());
            };
            missing = rest;
        }
        Ok(true)
    }
}
