//! Packets of several devices in the order of their times.
//!
//! A device sends its packets every few milliseconds, so those of two devices alternate. They are held until the
//! others must have arrived.

use std::collections::BTreeMap;
use std::time::Duration;

use softroce::runtime::control::RecordHeader;

/// Time that a packet is held, several times the interval at which devices send.
const HOLD: Duration = Duration::from_millis(50);

/// Bytes of packets that are held at most.
const MAX_HELD_BYTES: usize = 64 << 20;

/// A packet with its interface.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) interface: usize,
    pub(super) header: RecordHeader,
    pub(super) packet: Box<[u8]>,
}

/// Packets that are held.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    held: BTreeMap<(Duration, u64), Held>,
    bytes: usize,
    count: u64,
}

impl Reorder {
    /// Holds a packet. Packets with the same time stay in order.
    pub(super) fn put(&mut self, held: Held) {
        self.bytes += held.packet.len();
        self.held.insert((held.header.time, self.count), held);
        self.count += 1;
    }

    /// Returns whether a packet is held.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the next packet if it has been held long enough at `now`, the time since the Unix epoch. `None` returns
    /// every packet.
    pub(super) fn take(&mut self, now: Option<Duration>) -> Option<Held> {
        let first = self.held.first_entry()?;
        let is_due = now.is_none_or(|now| first.key().0 + HOLD <= now);
        if !is_due && self.bytes <= MAX_HELD_BYTES {
            return None;
        }
        let held = first.remove();
        self.bytes -= held.packet.len();
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_in_order_of_time_once_they_are_due() {
        let at = Duration::from_millis;
        let mut reorder = Reorder::default();
        for (interface, ms) in [(0, 100), (0, 120), (1, 110), (1, 100)] {
            let header =
                RecordHeader { time: at(ms), len: 0, original_len: 0, dropped: 0, direction: None };
            reorder.put(Held { interface, header, packet: Box::default() });
        }
        let mut take = |now| reorder.take(now).map(|held| (held.interface, held.header.time));
        assert_eq!(take(Some(at(149))), None);
        assert_eq!(take(Some(at(150))), Some((0, at(100))));
        assert_eq!(take(Some(at(160))), Some((1, at(100))));
        assert_eq!(take(Some(at(160))), Some((1, at(110))));
        assert_eq!(take(Some(at(160))), None);
        assert_eq!(take(None), Some((0, at(120))));
        assert!(reorder.is_empty());
    }
}
