//! Bursts in flight: the cost and the send time of each.

use std::collections::VecDeque;
use std::time::Duration;

use crate::psn::Psn;
use crate::time::Instant;

/// The unacknowledged bursts of one queue pair, with the cost of each.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    bursts: VecDeque<SentBurst>,
    /// Total cost in bytes.
    total: u64,
    /// PSN after the last packet that was abandoned and is not yet acknowledged. Bursts that end
    /// there or before are retransmissions.
    resent_end: Option<Psn>,
}

#[derive(Debug)]
struct SentBurst {
    /// The PSN after its last packet.
    end: Psn,
    cost: u64,
    sent_at: Instant,
    /// Its last packet was sent before.
    is_retransmitted: bool,
}

/// Time between the transmission of a packet and the acknowledgement or NAK of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RoundTrip {
    /// Time since the last transmission of the packet.
    pub(crate) time: Duration,
    /// The packet was sent more than once. A response to the first copy makes `time` too short.
    pub(crate) is_retransmitted: bool,
}

/// Result of an acknowledgement: the bytes that it covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Acked {
    pub(crate) cost: u64,
    /// Round trip of the last packet of a burst, if the acknowledgement ends with it.
    pub(crate) round_trip: Option<RoundTrip>,
}

impl InFlight {
    /// Adds a burst that was sent.
    pub(crate) fn push(&mut self, end: Psn, cost: u64, sent_at: Instant) {
        self.total += cost;
        let is_retransmitted = self.resent_end.is_some_and(|resent| !resent.is_before(end));
        self.bursts.push_back(SentBurst { end, cost, sent_at, is_retransmitted });
    }

    /// Returns the total cost of the bursts in flight.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the time since the oldest burst was sent, which its loss took to be reported.
    pub(crate) fn oldest_round_trip(&self, now: Instant) -> Option<RoundTrip> {
        self.bursts.front().map(|burst| burst.round_trip(now))
    }

    /// Removes the bursts that end at or before `una`, which was acknowledged at `now`.
    pub(crate) fn on_ack(&mut self, una: Psn, now: Instant) -> Acked {
        if self.resent_end.is_some_and(|resent| !una.is_before(resent)) {
            self.resent_end = None;
        }
        let mut acked = Acked::default();
        while let Some(burst) = self.bursts.front()
            && !una.is_before(burst.end)
        {
            acked.cost += burst.cost;
            acked.round_trip = (burst.end == una).then(|| burst.round_trip(now));
            self.bursts.pop_front();
        }
        self.total -= acked.cost;
        acked
    }

    /// Removes all bursts, because they are lost or will not be acknowledged. Returns their cost.
    pub(crate) fn abandon(&mut self) -> u64 {
        if let Some(last) = self.bursts.back()
            && self.resent_end.is_none_or(|resent| resent.is_before(last.end))
        {
            self.resent_end = Some(last.end);
        }
        self.bursts.clear();
        std::mem::take(&mut self.total)
    }
}

impl SentBurst {
    fn round_trip(&self, now: Instant) -> RoundTrip {
        RoundTrip { time: now - self.sent_at, is_retransmitted: self.is_retransmitted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Instant = Instant::from_micros;

    fn round_trip(us: u64, is_retransmitted: bool) -> Option<RoundTrip> {
        Some(RoundTrip { time: Duration::from_micros(us), is_retransmitted })
    }

    #[test]
    fn bursts_are_acknowledged_with_their_last_packet() {
        let mut in_flight = InFlight::default();
        in_flight.push(Psn::new(2), 10, AT(1));
        in_flight.push(Psn::new(5), 20, AT(2));
        let mut acked = |una| {
            let Acked { cost, round_trip } = in_flight.on_ack(Psn::new(una), AT(9));
            (cost, round_trip, in_flight.total(), in_flight.oldest_round_trip(AT(9)))
        };
        assert_eq!(acked(1), (0, None, 30, round_trip(8, false)));
        assert_eq!(acked(4), (10, None, 20, round_trip(7, false)));
        assert_eq!(acked(5), (20, round_trip(7, false), 0, None));
    }

    #[test]
    fn packets_up_to_the_last_abandoned_one_are_retransmissions() {
        let mut in_flight = InFlight::default();
        in_flight.push(Psn::new(2), 10, AT(0));
        in_flight.push(Psn::new(6), 10, AT(0));
        assert_eq!(in_flight.abandon(), 20);
        in_flight.push(Psn::new(2), 10, AT(1));
        // The second loss leaves fewer packets in flight than the first.
        in_flight.abandon();
        let last = |in_flight: &mut InFlight, psn| {
            in_flight.push(Psn::new(psn), 10, AT(2));
            in_flight.on_ack(Psn::new(psn), AT(9)).round_trip
        };
        assert_eq!(last(&mut in_flight, 2), round_trip(7, true));
        assert_eq!(last(&mut in_flight, 6), round_trip(7, true));
        assert_eq!(last(&mut in_flight, 8), round_trip(7, false));
        // Half of the PSN space later, the old packets must not count as later ones.
        assert_eq!(last(&mut in_flight, 0x80_0004), round_trip(7, false));
    }

    #[test]
    fn burst_with_a_new_last_packet_is_no_retransmission() {
        let mut in_flight = InFlight::default();
        in_flight.push(Psn::new(2), 10, AT(0));
        in_flight.abandon();
        in_flight.push(Psn::new(3), 20, AT(1));
        assert_eq!(in_flight.on_ack(Psn::new(3), AT(9)).round_trip, round_trip(8, false));
    }
}
