//! Packets that arrive ahead of a missing one, and are kept until it comes.
//!
//! A requester keeps [answers](super::gaps) so, and a responder requests.
//!
//! A responder says once that a packet is missing, and a requester then sends it again with everything behind it
//! (go-back-N, IBTA vol 1, §9.7.4.1.4). Nothing has to be sent again that is kept here: once the missing packet
//! has come, what was kept is carried out in order, and the acknowledgement names the last of it. To a
//! requester this is nothing new. A responder whose acknowledgements were lost answers a repeated request with
//! the newest that it has carried out, too (C9-105).
//!
//! Only SENDs and WRITEs are kept. A READ or an atomic would be answered twice, now and when the
//! requester repeats it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::psn::Psn;

/// Packets that a queue pair keeps at most, however short they are.
const MOST: usize = 4096;

/// What a packet takes besides its bytes.
const OVERHEAD: u64 = 64;

/// How many times as much as it leaves free a queue pair may keep. So one that waits for a peer that is gone does not
/// take the room of all others, and one alone still has four fifths: more than its peer may have in flight.
const SHARE: u64 = 4;

/// The room for packets of all queue pairs of an engine.
#[derive(Clone, Debug)]
pub(crate) struct ReorderBuffer {
    limit: u64,
    used: Arc<AtomicU64>,
}

impl ReorderBuffer {
    /// Room for so many bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: Arc::default() }
    }

    /// Room for so many bytes more, for who has `held` already.
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

/// Room that a packet takes, until it is dropped.
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

/// The packets that one responder or requester keeps, in the order of their PSNs, all of them ahead of the expected one.
#[derive(Debug, Default)]
pub(super) struct ReorderQueue {
    /// `None` if there are none: most connections never keep one.
    kept: Option<Box<Kept>>,
    /// There was no room for the last one. Others are not tried before some are taken, or another gap begins.
    full: bool,
}

#[derive(Debug, Default)]
struct Kept {
    packets: VecDeque<Packet>,
    /// The room that they take, in bytes.
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

    /// Keeps a datagram. False when it is kept already, or there is no room.
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

    /// Takes the packet with the PSN `expected`. Those before it came otherwise.
    pub(super) fn take(&mut self, expected: Psn) -> Option<Bytes> {
        self.take_until(expected, expected)
    }

    /// Takes the oldest packet that has the PSN `until` or one before. Those before `una` came otherwise.
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
        // That came otherwise.
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
        // Who has found no room at all finds some in the next gap.
        assert!(other.keep(&buffer, expected, psn(6), &datagram(6)));
        let mut third = ReorderQueue::default();
        assert!(!third.keep(&buffer, expected, psn(6), &datagram(6)) && third.is_full());
        assert_eq!(third.take(expected), None);
        drop(one);
        assert!(third.keep(&buffer, expected, psn(6), &datagram(6)) && !third.is_full());
        drop((other, third));
        assert_eq!(buffer.used.load(Ordering::Relaxed), 0);
    }

    /// Of 1000 bytes, 100 a packet.
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
