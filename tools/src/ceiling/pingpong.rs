//! There and back: a message at a time, both sides polling, or both asleep until it comes.

use std::time::Duration;

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;

use super::endpoint::{Endpoint, Region};
use super::shape::{Burst, Bursts, Shape};
use crate::clock;

/// On a path that loses nothing every reply comes; a stream is what copes with loss.
const PATIENCE: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(5);
/// Exchanges, in a tenth of the time at most, before the measuring starts: caches, branch
/// predictors, page faults.
const WARM_UP: u64 = 200;
const STOP: [u8; 1] = [0xff];

/// Sends and takes whole messages.
pub(super) struct Player<'e> {
    end: &'e mut Endpoint,
    /// What it sends.
    bursts: Vec<Burst>,
    /// Bytes of what it is sent.
    expected: usize,
    sent: Region,
    received: Region,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'e> Player<'e> {
    /// A player who sends messages of one shape and is sent messages of another.
    pub(super) fn new(
        end: &'e mut Endpoint,
        sends: Shape,
        takes: Shape,
        most_segments: usize,
    ) -> Self {
        Self {
            end,
            bursts: Bursts::message(sends, most_segments),
            expected: takes.wire_bytes(),
            sent: Region::new(),
            received: Region::new(),
            out: vec![0; 1 << 16],
            buffer: vec![0; 1 << 16],
        }
    }

    /// Plays for as long as `duration` says; the histogram has round trips, each divided by `ways`,
    /// in nanoseconds.
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
            ensure!(self.take(PATIENCE)?, "the other side answered with a stop");
            let after = clock::now();
            exchanges += 1;
            if exchanges > WARM_UP || after - start > duration / 10 {
                let time = (after - before) / ways;
                times.saturating_record(u64::try_from(time.as_nanos())?);
            }
            before = after;
        }
        self.end.tell(&STOP)?;
        Ok(times)
    }

    /// Returns every message until a stop comes.
    pub(super) fn echo(&mut self) -> anyhow::Result<()> {
        while self.take(SILENCE)? {
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

    /// Takes a whole message; `false` when a stop came instead.
    fn take(&mut self, patience: Duration) -> anyhow::Result<bool> {
        let mut missing = self.expected;
        let mut start = None;
        while missing > 0 {
            let Some((data, segment)) = self.end.receive(&mut self.buffer)? else {
                if self.end.has_waited() {
                    let now = clock::now();
                    let waited = now - *start.get_or_insert(now);
                    ensure!(waited < patience, "no datagram from the other side for {waited:.1?}");
                }
                continue;
            };
            if data == STOP {
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
