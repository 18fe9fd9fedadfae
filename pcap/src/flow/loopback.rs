//! Packets that a device sends to itself, which a capture of that device has twice.

use std::collections::HashMap;

use softroce::port::Direction;

use crate::dissect::RocePacket;

/// Number of sent packets of which a copy may still be received. A socket queues fewer.
const MAX_IN_FLIGHT_PACKETS: usize = 1 << 16;
/// The part of the BTH with AckReq and PSN.
const PSN_WORD: std::ops::Range<usize> = 8..12;

/// Tells the received copy of a packet that the same capture has as sent.
#[derive(Debug, Default)]
pub(crate) struct LoopbackFilter {
    /// Sent packets by AckReq, PSN and ICRC.
    sent: HashMap<u64, Sent>,
    /// Number of packets sent so far.
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Copies that have not been received.
    copies: u32,
    /// Number of the newest.
    newest: u64,
}

impl LoopbackFilter {
    /// Returns whether the packet was recorded before, as it was sent.
    pub(crate) fn is_copy(&mut self, direction: Option<Direction>, roce: &RocePacket<'_>) -> bool {
        let Some(direction) = direction else { return false };
        let payload = roce.ip.payload;
        let (Some(psn), Some(icrc)) = (payload.get(PSN_WORD), payload.last_chunk::<4>()) else {
            return false;
        };
        let psn = psn.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let key = psn << 32 | u64::from(u32::from_be_bytes(*icrc));
        match direction {
            Direction::Sent => {
                self.insert(key);
                false
            }
            Direction::Received => self.remove(key),
        }
    }

    fn insert(&mut self, key: u64) {
        self.count += 1;
        if self.sent.len() == MAX_IN_FLIGHT_PACKETS {
            let half = u64::try_from(MAX_IN_FLIGHT_PACKETS / 2).unwrap_or(u64::MAX);
            let oldest = self.count.saturating_sub(half);
            self.sent.retain(|_, sent| sent.newest > oldest);
        }
        let sent = self.sent.entry(key).or_default();
        sent.copies = sent.copies.saturating_add(1);
        sent.newest = self.count;
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(sent) = self.sent.get_mut(&key) else { return false };
        sent.copies -= 1;
        if sent.copies == 0 {
            self.sent.remove(&key);
        }
        true
    }
}
