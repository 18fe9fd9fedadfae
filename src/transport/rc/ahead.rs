//! Reorder queue: packets that arrive ahead of a missing one are kept until it arrives.
//!
//! A requester uses it for [responses](super::gaps), and a responder for requests.
//!
//! A responder reports a missing packet once, and the requester then retransmits it with all later
//! packets (go-back-N, IBTA vol 1, §9.7.4.1.4). Packets kept here need no retransmission: when the
//! missing packet has arrived, the responder executes the kept ones in order and acknowledges the
//! last of them. A requester needs no extension for this. A responder that lost its
//! acknowledgements also answers a duplicate request with the newest PSN that it has executed
//! (C9-105).
//!
//! Only SENDs and WRITEs are kept. A kept READ or atomic would be answered twice: now and when the
//! requester retransmits it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::psn::Psn;

/// Maximum number of packets that a queue pair keeps, whatever their length.
const MOST: usize = 4096;

/// Bytes charged for a packet in addition to its length.
const OVERHEAD: u64 = 64;

/// A queue pair may hold at most `SHARE` times the free space. A single queue pair can thus use 4/5
/// of the buffer, which is more than its peer may have in flight, and one with a dead peer cannot
/// starve the others.
const SHARE: u64 = 4;

/// Reorder buffer space of all queue pairs of an engine.
#[derive(Clone, Debug)]
pub(crate) struct ReorderBuffer {
    limit: u64,
    used: Arc<AtomicU64>,
}

impl ReorderBuffer {
    /// Returns a buffer of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: Arc::default() }
    }

    /// Reserves `bytes` for a queue pair that already holds `held`.
    fn room(&self, held: u64, bytes: u64) -> Option<Room> {
        let used = self.used.load(Ordering::Relaxed).checked_add(bytes)?;
        let free = self.limit.checked_sub(used)?;
        if held + bytes > free.saturating_mul(SHARE) {
            return None;
        }
        self.used.store(used, Ordering::Relaxed);
        Some(Room { bytes, used: self.used.clone() })
    }
}

/// Reserved space of a packet, released on drop.
#[derive(Debug)]
struct Room {
    bytes: u64,
    used: Arc<AtomicU64>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Out-of-order packets of one responder or requester, sorted by PSN; all are ahead of the expected
/// PSN.
#[derive(Debug, Default)]
pub(super) struct ReorderQueue {
    /// `None` if there are none, as on most connections.
    kept: Option<Box<Kept>>,
    /// There was no room for the last packet. No other is tried until one is removed or another gap
    /// begins.
    full: bool,
}

#[derive(Debug, Default)]
struct Kept {
    packets: VecDeque<Packet>,
    /// Reserved space of all packets, in bytes.
    held: u64,
}

#[derive(Debug)]
struct Packet {
    psn: Psn,
    datagram: Bytes,
    room: Room,
}

impl ReorderQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_none()
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Keeps a datagram. Returns false if it is already kept or there is no room.
    pub(super) fn keep(
        &mut self,
        buffer: &ReorderBuffer,
        expected: Psn,
        psn: Psn,
        datagram: &[u8],
    ) -> bool {
        let distance = psn.since(expected);
        let (mut place, mut held) = (0, 0);
        if let Some(Kept { packets, held: bytes }) = self.kept.as_deref() {
            let found = match packets.back() {
                Some(last) if last.psn.since(expected) >= distance => {
                    packets.binary_search_by_key(&distance, |packet| packet.psn.since(expected))
                }
                _ => Err(packets.len()),
            };
            let Err(free) = found else { return false };
            (place, held) = (free, *bytes);
        }
        let bytes = datagram.len() as u64 + OVERHEAD;
        let room = (self.len() < MOST).then(|| buffer.room(held, bytes)).flatten();
        self.full = room.is_none();
        let Some(room) = room else { return false };
        let kept = self.kept.get_or_insert_default();
        kept.held += bytes;
        kept.packets
            .insert(place, Packet { psn, datagram: Bytes::copy_from_slice(datagram), room });
        true
    }

    fn len(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.packets.len())
    }

    /// Removes and returns the packet with the PSN `expected`. Packets before it arrived by
    /// retransmission and are dropped.
    pub(super) fn take(&mut self, expected: Psn) -> Option<Bytes> {
        self.take_until(expected, expected)
    }

    /// Removes and returns the oldest packet with a PSN up to `until`. Packets before `una` arrived
    /// by retransmission and are dropped.
    pub(super) fn take_until(&mut self, una: Psn, until: Psn) -> Option<Bytes> {
        while let Some(first) = self.kept.as_ref().and_then(|kept| kept.packets.front())
            && !until.is_before(first.psn)
        {
            let is_due = !first.psn.is_before(una);
            let datagram = self.pop();
            if is_due {
                return datagram;
            }
        }
        None
    }

    fn pop(&mut self) -> Option<Bytes> {
        self.full = false;
        let kept = self.kept.as_mut()?;
        let packet = kept.packets.pop_front()?;
        kept.held -= packet.room.bytes;
        if kept.packets.is_empty() {
            self.kept = None;
        }
        Some(packet.datagram)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(value: u32) -> Psn {
        Psn::new(value)
    }

    fn datagram(psn: u32) -> Vec<u8> {
        psn.to_le_bytes().repeat(9)
    }

    #[test]
    fn packets_are_taken_in_order_whatever_order_they_came_in_and_once() {
        let (buffer, mut ahead) = (ReorderBuffer::new(1000), ReorderQueue::default());
        let expected = psn(0xff_fffe);
        for (value, is_new) in [(3, true), (0xff_ffff, true), (1, true), (3, false), (0, true)] {
            let kept = ahead.keep(&buffer, expected, psn(value), &datagram(value));
            assert_eq!(kept, is_new, "{value:#x}");
        }
        assert_eq!(ahead.take(expected), None);
        let taken = |ahead: &mut ReorderQueue, value| ahead.take(psn(value)).map(|bytes| bytes[0]);
        assert_eq!(taken(&mut ahead, 0xff_ffff), Some(0xff));
        assert_eq!(taken(&mut ahead, 0), Some(0));
        // PSN 1 is before 2, so its copy is dropped.
        assert_eq!(taken(&mut ahead, 2), None);
        assert_eq!(taken(&mut ahead, 3), Some(3));
        assert!(ahead.is_empty());
    }

    #[test]
    fn what_waits_for_no_other_is_taken_and_what_is_old_is_left_out() {
        let (buffer, mut ahead) = (ReorderBuffer::new(1000), ReorderQueue::default());
        for value in [0, 2, 5, 6] {
            assert!(ahead.keep(&buffer, psn(0xff_fffe), psn(value), &datagram(value)));
        }
        let mut taken = |una, until| ahead.take_until(psn(una), psn(until)).map(|bytes| bytes[0]);
        assert_eq!(taken(0xff_fffe, 0xff_ffff), None);
        assert_eq!([taken(1, 4), taken(1, 4), taken(3, 5)], [Some(2), None, Some(5)]);
        assert!(!ahead.is_empty());
    }

    #[test]
    fn there_is_room_for_so_much_of_all_queue_pairs_together() {
        let buffer = ReorderBuffer::new(250);
        let (mut one, mut other) = (ReorderQueue::default(), ReorderQueue::default());
        let expected = psn(5);
        assert!(one.keep(&buffer, expected, psn(6), &datagram(6)));
        assert!(other.keep(&buffer, expected, psn(6), &datagram(6)));
        assert!(!one.keep(&buffer, expected, psn(7), &datagram(7)) && one.is_full());
        other.clear();
        assert!(one.keep(&buffer, expected, psn(7), &datagram(7)), "100 bytes each");
        assert!(one.take(psn(6)).is_some() && !one.is_full());
        // A queue pair without any room tries again at the next gap.
        assert!(other.keep(&buffer, expected, psn(6), &datagram(6)));
        let mut third = ReorderQueue::default();
        assert!(!third.keep(&buffer, expected, psn(6), &datagram(6)) && third.is_full());
        assert_eq!(third.take(expected), None);
        drop(one);
        assert!(third.keep(&buffer, expected, psn(6), &datagram(6)) && !third.is_full());
        drop((other, third));
        assert_eq!(buffer.used.load(Ordering::Relaxed), 0);
    }

    /// The limit is 1000 bytes, and a packet takes 100.
    #[test]
    fn who_takes_most_leaves_some_for_the_next() {
        let buffer = ReorderBuffer::new(1000);
        let mut dead = ReorderQueue::default();
        let kept = |ahead: &mut ReorderQueue| {
            (1..20)
                .take_while(|value| ahead.keep(&buffer, psn(0), psn(*value), &datagram(7)))
                .count()
        };
        assert_eq!(kept(&mut dead), 8);
        let mut next = ReorderQueue::default();
        assert_eq!(kept(&mut next), 1);
        assert!(next.take(psn(1)).is_some());
        dead.clear();
        assert_eq!([kept(&mut next), kept(&mut dead)], [8, 1], "nothing is left of what was taken");
    }

    #[test]
    fn a_queue_pair_keeps_so_many_packets() {
        let (buffer, mut ahead) = (ReorderBuffer::new(u64::MAX), ReorderQueue::default());
        for value in (1..).take(MOST) {
            assert!(ahead.keep(&buffer, psn(0), psn(value), &[]));
        }
        assert!(!ahead.keep(&buffer, psn(0), psn(10_000), &[]));
    }
}
