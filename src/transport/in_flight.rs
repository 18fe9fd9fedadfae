//! Bursts in flight: the cost and the send time of each.

use std::collections::VecDeque;

use crate::psn::Psn;
use crate::time::Instant;

/// The unacknowledged bursts of one queue pair, with the cost of each.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    bursts: VecDeque<SentBurst>,
    /// Total cost in bytes.
    total: u64,
}

#[derive(Debug)]
struct SentBurst {
    /// The PSN after its last packet.
    end: Psn,
    cost: u64,
    sent_at: Instant,
}

/// Result of an acknowledgement: the bytes that it covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Acked {
    pub(crate) cost: u64,
    /// Send time of the acknowledged burst, if its last packet was acknowledged.
    pub(crate) sent_at: Option<Instant>,
}

impl InFlight {
    /// Adds a burst that was sent.
    pub(crate) fn push(&mut self, end: Psn, cost: u64, sent_at: Instant) {
        self.total += cost;
        self.bursts.push_back(SentBurst { end, cost, sent_at });
    }

    /// Returns the total cost of the bursts in flight.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the send time of the oldest burst.
    pub(crate) fn oldest_sent_at(&self) -> Option<Instant> {
        self.bursts.front().map(|burst| burst.sent_at)
    }

    /// Removes the bursts that end at or before `una`, and returns their cost.
    pub(crate) fn on_ack(&mut self, una: Psn) -> Acked {
        let mut acked = Acked::default();
        while let Some(burst) = self.bursts.front()
            && !una.is_before(burst.end)
        {
            acked.cost += burst.cost;
            acked.sent_at = (burst.end == una).then_some(burst.sent_at);
            self.bursts.pop_front();
        }
        self.total -= acked.cost;
        acked
    }

    /// Removes all bursts, because they are lost or will not be acknowledged. Returns their cost.
    pub(crate) fn abandon(&mut self) -> u64 {
        self.bursts.clear();
        std::mem::take(&mut self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_acknowledged_with_their_last_packet() {
        let mut in_flight = InFlight::default();
        let at = Instant::from_micros;
        in_flight.push(Psn::new(2), 10, at(1));
        in_flight.push(Psn::new(5), 20, at(2));
        let mut acked = |una| {
            let Acked { cost, sent_at } = in_flight.on_ack(Psn::new(una));
            (cost, sent_at, in_flight.total(), in_flight.oldest_sent_at())
        };
        assert_eq!(acked(1), (0, None, 30, Some(at(1))));
        assert_eq!(acked(4), (10, None, 20, Some(at(2))));
        assert_eq!(acked(5), (20, Some(at(2)), 0, None));
    }
}
