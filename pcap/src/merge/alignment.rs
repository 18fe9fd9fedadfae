//! The clocks of two captures, and the ends at which they were taken.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

use super::survey::Survey;

/// Number of time windows of which the medians show the drift.
const WINDOWS: usize = 32;
/// Shortest time over which a drift is estimated, in nanoseconds.
const MIN_DRIFT_SPAN: i64 = 1_000_000_000;
/// Share of the delays that is taken for errors, on each side.
const TRIMMED: usize = 100;
/// Longest time that a packet waits for its copy.
const MAX_WINDOW: i64 = 1_000_000_000;
/// Shortest time that a packet waits for its copy.
const MIN_WINDOW: i64 = 10_000_000;

/// How the clocks of two captures relate, and the ends at which they were taken.
#[derive(Clone, Debug)]
pub struct Alignment {
    /// Time of the second capture less that of the first at `origin`, in nanoseconds.
    offset: i64,
    /// Time by which the second clock gains, in nanoseconds a second.
    drift: f64,
    /// Time of the first capture's clock at which the offset holds.
    origin: i64,
    /// Shortest delay of a packet: half the shortest round trip on the path.
    delay: i64,
    /// Time that a packet waits for its copy.
    window: i64,
    /// Index of the capture at which each host is.
    ends: HashMap<IpAddr, usize>,
    /// Times that both captures cover, in the first capture's clock.
    covered: (i64, i64),
    /// Number of packets on which the estimate is based.
    matched: usize,
}

/// Reason why two captures cannot be merged.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A capture has no RoCEv2 packet with a time.
    #[error("no RoCEv2 packet in capture {capture} of 2: expected captures of both ends")]
    Empty {
        /// 1 or 2.
        capture: usize,
    },
    /// No packet is in both captures.
    #[error("no packet is in both captures: expected captures of the same traffic at both ends")]
    NothingInCommon,
    /// Packets are in both captures with other addresses.
    #[error(
        "packets of {0} to {1} are of {2} to {3} in the other capture: expected equal addresses, without address \
         translation on the way, which breaks the ICRC too"
    )]
    Translated(IpAddr, IpAddr, IpAddr, IpAddr),
    /// Packets in both captures go in one direction only.
    #[error(
        "{matched} packets are in both captures, all in one direction: expected packets in both directions, from which \
         the offset of the clocks follows"
    )]
    OneDirection {
        /// Number of packets in both captures.
        matched: usize,
    },
    /// The captures were taken at the same end.
    #[error(
        "the captures are of the same end: {matched} packets are in both without a delay between them, expected \
         captures of both ends"
    )]
    SameEnd {
        /// Number of packets in both captures.
        matched: usize,
    },
}

/// A packet in both captures.
#[derive(Clone, Copy)]
struct Matched {
    source: IpAddr,
    destination: IpAddr,
    /// Time in the first capture.
    first: i64,
    /// Time in the second capture less that in the first.
    difference: i64,
}

impl Alignment {
    /// Estimates clocks and ends from samples of both captures.
    ///
    /// # Errors
    ///
    /// Why the captures cannot be merged.
    pub fn of(first: &Survey, second: &Survey) -> Result<Self, MergeError> {
        let (Some(first_span), Some(second_span)) = (first.span, second.span) else {
            return Err(MergeError::Empty { capture: 1 + usize::from(first.span.is_some()) });
        };
        for (capture, survey) in [(1, first), (2, second)] {
            if survey.sample.is_empty() {
                return Err(MergeError::Empty { capture });
            }
        }
        let all = matched(first, second);
        if all.is_empty() {
            return Err(translation(first, second).unwrap_or(MergeError::NothingInCommon));
        }
        let path = busiest_path(&all).ok_or(MergeError::OneDirection { matched: all.len() })?;
        let on_path =
            |way: (IpAddr, IpAddr)| all.iter().filter(move |of| (of.source, of.destination) == way);
        let there: Vec<_> = on_path(path).copied().collect();
        let back: Vec<_> = on_path((path.1, path.0)).copied().collect();
        let origin = all.iter().map(|of| of.first).min().unwrap_or_default();
        let drift = drift(&[&there, &back]);
        let residuals = |of: &[Matched]| {
            let mut residuals: Vec<_> =
                of.iter().map(|of| of.difference - drifted(drift, of.first - origin)).collect();
            residuals.sort_unstable();
            residuals
        };
        let (there, back) = (residuals(&there), residuals(&back));
        // The hosts are at the captures in one of two ways; a delay is positive in one of them.
        let (gap, low, high) = [(&there, &back), (&back, &there)]
            .map(|(onward, returning)| {
                let (low, high) = (lowest(onward), highest(returning));
                (low - high, low, high)
            })
            .into_iter()
            .max()
            .unwrap_or_default();
        if gap <= 0 {
            return Err(MergeError::SameEnd { matched: all.len() });
        }
        let mut alignment = Self {
            offset: high + (low - high) / 2,
            drift,
            origin,
            delay: gap / 2,
            window: MIN_WINDOW,
            ends: HashMap::new(),
            covered: (0, 0),
            matched: all.len(),
        };
        alignment.ends = alignment.ends(&all);
        alignment.window = alignment.window(&all);
        let second_span = (alignment.time(1, second_span.0), alignment.time(1, second_span.1));
        alignment.covered = (first_span.0.max(second_span.0), first_span.1.min(second_span.1));
        Ok(alignment)
    }

    /// Returns the offset of the second capture's clock from the first's at the start, in nanoseconds.
    pub const fn offset(&self) -> i64 {
        self.offset
    }

    /// Returns the drift of the second capture's clock in parts per million.
    pub fn drift_ppm(&self) -> f64 {
        self.drift / 1e3
    }

    /// Returns the shortest delay from one end to the other, if it is equal in both directions. The error of the
    /// offset is not larger.
    pub fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.unsigned_abs())
    }

    /// Returns the number of packets on which the estimate is based.
    pub const fn matched(&self) -> usize {
        self.matched
    }

    /// Returns the hosts at an end, 0 or 1, in the order of their addresses.
    pub fn hosts(&self, end: usize) -> Vec<IpAddr> {
        let at_end = self.ends.iter().filter(|(_, of)| **of == end);
        let mut hosts: Vec<_> = at_end.map(|(host, _)| *host).collect();
        hosts.sort_unstable();
        hosts
    }

    /// Returns a time of a capture, 0 or 1, in the clock of the first.
    pub(super) fn time(&self, capture: usize, time: i64) -> i64 {
        if capture == 0 {
            return time;
        }
        let near = time.saturating_sub(self.offset);
        near.saturating_sub(drifted(self.drift, near.saturating_sub(self.origin)))
    }

    /// Returns the capture at the end of a host.
    pub(super) fn end_of(&self, host: IpAddr) -> Option<usize> {
        self.ends.get(&host).copied()
    }

    /// Returns the time that a packet waits for its copy.
    pub(super) const fn wait(&self) -> i64 {
        self.window
    }

    /// Returns the shortest delay in nanoseconds.
    pub(super) const fn shortest(&self) -> i64 {
        self.delay
    }

    /// Returns whether both captures cover a time, so that a missing packet was not captured there.
    pub(super) const fn covers(&self, time: i64) -> bool {
        self.covered.0 <= time && time <= self.covered.1
    }

    /// Returns the capture at which each host is: its packets come there earlier.
    fn ends(&self, all: &[Matched]) -> HashMap<IpAddr, usize> {
        let mut votes: HashMap<IpAddr, i64> = HashMap::new();
        for of in all {
            let vote = if self.delay_of(of) >= 0 { 1 } else { -1 };
            *votes.entry(of.source).or_default() += vote;
            *votes.entry(of.destination).or_default() -= vote;
        }
        votes.into_iter().map(|(host, votes)| (host, usize::from(votes < 0))).collect()
    }

    /// Returns the time from the first capture to the second.
    fn delay_of(&self, of: &Matched) -> i64 {
        of.difference - self.offset - drifted(self.drift, of.first - self.origin)
    }

    fn window(&self, all: &[Matched]) -> i64 {
        let mut delays: Vec<_> = all.iter().map(|of| self.delay_of(of).abs()).collect();
        delays.sort_unstable();
        (MIN_WINDOW + 4 * highest(&delays).min(MAX_WINDOW)).min(MAX_WINDOW)
    }
}

/// Returns the packets that both samples have once.
fn matched(first: &Survey, second: &Survey) -> Vec<Matched> {
    let both = first.sample.iter().filter_map(|(hash, a)| {
        let b = second.sample.get(hash)?;
        let difference = b.time.checked_sub(a.time)?;
        let (source, destination) = (a.source, a.destination);
        let is_certain = !a.is_ambiguous && !b.is_ambiguous;
        is_certain.then_some(Matched { source, destination, first: a.time, difference })
    });
    both.collect()
}

/// Returns the two hosts with the most packets in the rarer direction between them.
fn busiest_path(all: &[Matched]) -> Option<(IpAddr, IpAddr)> {
    let mut counts: BTreeMap<(IpAddr, IpAddr), usize> = BTreeMap::new();
    for of in all {
        *counts.entry((of.source, of.destination)).or_default() += 1;
    }
    let both = counts.iter().filter_map(|(way, count)| {
        let back = counts.get(&(way.1, way.0))?;
        Some((*count.min(back), *way))
    });
    both.max().map(|(_, way)| way)
}

/// Returns the hosts of a packet that only its addresses distinguish from one in the other capture.
fn translation(first: &Survey, second: &Survey) -> Option<MergeError> {
    first.contents.iter().find_map(|(content, addresses)| {
        let (a, b) = (*addresses)?;
        let (c, d) = second.contents.get(content).copied().flatten()?;
        ((a, b) != (c, d)).then_some(MergeError::Translated(a, b, c, d))
    })
}

/// Returns the drift in nanoseconds a second: the median slope between medians of time windows.
fn drift(directions: &[&[Matched]]) -> f64 {
    let times = || directions.iter().copied().flatten().map(|of| of.first);
    let (Some(start), Some(end)) = (times().min(), times().max()) else { return 0.0 };
    if end - start < MIN_DRIFT_SPAN {
        return 0.0;
    }
    let width = (end - start) / WINDOWS as i64 + 1;
    let mut slopes = Vec::new();
    for direction in directions {
        let mut windows: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for of in *direction {
            windows.entry((of.first - start) / width).or_default().push(of.difference);
        }
        let medians: Vec<_> = windows
            .into_iter()
            .filter_map(|(at, mut differences)| {
                differences.sort_unstable();
                Some((at, *differences.get(differences.len() / 2)?))
            })
            .collect();
        for (at, (window, median)) in medians.iter().enumerate() {
            for (later, later_median) in medians.iter().skip(at + 1) {
                let seconds = ((later - window) * width) as f64 / 1e9;
                slopes.push((later_median - median) as f64 / seconds);
            }
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    slopes.get(slopes.len() / 2).copied().unwrap_or_default()
}

/// Returns the time by which a clock with a drift gains in `nanoseconds`.
#[expect(clippy::cast_possible_truncation, reason = "a conversion to integers saturates")]
fn drifted(drift: f64, nanoseconds: i64) -> i64 {
    (drift * (nanoseconds as f64 / 1e9)) as i64
}

/// Returns the lowest of sorted values that is no outlier.
fn lowest(sorted: &[i64]) -> i64 {
    sorted.get(sorted.len() / TRIMMED).copied().unwrap_or_default()
}

/// Returns the highest of sorted values that is no outlier.
fn highest(sorted: &[i64]) -> i64 {
    let at = sorted.len().saturating_sub(1 + sorted.len() / TRIMMED);
    sorted.get(at).copied().unwrap_or_default()
}
