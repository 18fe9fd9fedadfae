//! Datagrams and events that the driver of an agent has not taken yet.

use std::collections::VecDeque;

use crate::engine::{MadPath, OutgoingMad};
use crate::wire::Mad;
use crate::wire::cm::{Body, IpHeader, Message};

use super::counters::Counters;
use super::types::{ConnId, Event};

/// Maximum number of queued datagrams that answer received ones. More are dropped: peers repeat their messages.
const MAX_ANSWERS: usize = 1024;

/// Queued datagrams and events, and counters.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) mads: VecDeque<OutgoingMad>,
    pub(super) events: VecDeque<(ConnId, Event)>,
    pub(super) counters: Counters,
}

impl Outputs {
    /// Queues a datagram of an id. Calls and ids limit their number.
    pub(super) fn send(&mut self, path: MadPath, bytes: Box<[u8; Mad::DATAGRAM_LEN]>) {
        self.mads.push_back(OutgoingMad { path, bytes });
    }

    /// Queues an answer to a received datagram.
    pub(super) fn answer(&mut self, path: MadPath, message: &Message<'_>) {
        if self.has_room() {
            self.send(path, datagram(message));
        } else {
            self.counters.answers_dropped += 1;
        }
    }

    /// Queues everything that is queued a second time.
    pub(super) fn repeat(&mut self) {
        let copies = self.mads.clone();
        self.mads.extend(copies);
    }

    /// Whether another answer fits.
    pub(super) fn has_room(&self) -> bool {
        self.mads.len() < MAX_ANSWERS
    }
}

/// Returns a message without ECE options and addresses.
pub(super) fn message(transaction_id: u64, body: Body, private_data: &[u8]) -> Message<'_> {
    Message { transaction_id, modifier: 0, body, ip: None::<IpHeader>, private_data }
}

/// Returns the datagram of a message.
pub(super) fn datagram(message: &Message<'_>) -> Box<[u8; Mad::DATAGRAM_LEN]> {
    let mut bytes = Box::new([0; Mad::DATAGRAM_LEN]);
    message.write(&mut bytes);
    bytes
}
