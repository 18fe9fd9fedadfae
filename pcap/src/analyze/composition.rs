//! Composition of a capture: opcodes, messages of the connection managers, and traffic over time.

use std::collections::BTreeMap;
use std::time::Duration;

use softroce::wire::cm::Message;
use softroce::wire::{Datagram, Opcode};

/// Packets of a capture by their kinds and times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Composition {
    /// Packets by the byte of their opcode, without those with a bad ICRC.
    pub opcodes: BTreeMap<u8, OpcodeCount>,
    /// Messages of the connection managers by name.
    pub cm_messages: BTreeMap<&'static str, u64>,
    /// Frames over time.
    pub intervals: Intervals,
}

/// Packets with one opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpcodeCount {
    /// The opcode.
    pub opcode: Opcode,
    /// Number of packets.
    pub packets: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

impl Composition {
    pub(super) fn packet(&mut self, datagram: &Datagram<'_>) {
        let opcode = datagram.bth.opcode;
        let none = OpcodeCount { opcode, packets: 0, bytes: 0 };
        let count = self.opcodes.entry(opcode.byte()).or_insert(none);
        count.packets += 1;
        count.bytes = count.bytes.saturating_add(datagram.payload_len as u64);
    }

    pub(super) fn message(&mut self, message: &Message<'_>) {
        let name = message.body.name();
        *self.cm_messages.entry(name).or_default() += 1;
    }
}

/// Frames in equal intervals of time. There are at most [`MAX`](Self::MAX); then each becomes twice as long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Intervals {
    width: Duration,
    counts: Vec<Interval>,
}

/// Frames of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// Number of frames.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Number of frames of RoCEv2.
    pub roce_packets: u64,
    /// Their bytes on the wire.
    pub roce_bytes: u64,
}

impl Intervals {
    /// Maximum number of intervals.
    pub const MAX: usize = 600;

    /// Length of an interval as long as there are few.
    pub const WIDTH: Duration = Duration::from_secs(1);

    /// Returns the length of each interval.
    pub const fn width(&self) -> Duration {
        self.width
    }

    /// Returns the intervals since the first frame. All after the last are empty.
    pub fn counts(&self) -> &[Interval] {
        &self.counts
    }

    /// Adds a frame.
    pub(super) fn add(&mut self, since_start: Duration, bytes: u64, is_roce: bool) {
        let width = |width: Duration| width.as_nanos().max(1);
        while since_start.as_nanos() / width(self.width) >= Self::MAX as u128 {
            self.width = self.width.saturating_mul(2);
            self.counts = self.counts.chunks(2).map(Interval::sum).collect();
        }
        let at = usize::try_from(since_start.as_nanos() / width(self.width));
        let at = at.unwrap_or(Self::MAX - 1);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, Interval::default());
        }
        let roce = u64::from(is_roce);
        let frame = Interval { packets: 1, bytes, roce_packets: roce, roce_bytes: roce * bytes };
        self.counts[at] = Interval::sum(&[self.counts[at], frame]);
    }
}

impl Default for Intervals {
    fn default() -> Self {
        Self { width: Self::WIDTH, counts: Vec::new() }
    }
}

impl Interval {
    fn sum(intervals: &[Self]) -> Self {
        intervals.iter().fold(Self::default(), |sum, one| Self {
            packets: sum.packets + one.packets,
            bytes: sum.bytes.saturating_add(one.bytes),
            roce_packets: sum.roce_packets + one.roce_packets,
            roce_bytes: sum.roce_bytes.saturating_add(one.roce_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_and_keep_sums() {
        let mut intervals = Intervals::default();
        for second in 0..1500 {
            intervals.add(Duration::from_secs(second), 100, second % 2 == 0);
        }
        assert_eq!((intervals.width(), intervals.counts().len()), (Duration::from_secs(4), 375));
        let expected = Interval { packets: 4, bytes: 400, roce_packets: 2, roce_bytes: 200 };
        assert!(intervals.counts().iter().all(|interval| *interval == expected));
        intervals.add(Duration::MAX, 1, false);
        assert!(intervals.counts().len() <= Intervals::MAX);
        assert_eq!(intervals.counts().iter().map(|interval| interval.packets).sum::<u64>(), 1501);
    }
}
