//! Congestion window derived from the loss rate.
//!
//! Go-back-N loses all packets in flight after a lost one, so a loss costs as much as is in flight.
//! The window of a path reflects the peer's receive buffer, which may be many times the
//! bandwidth-delay product (BDP). The excess then waits in a queue of the path, where it is lost
//! too. A NAK allows an estimate of the BDP:
//!
//! ```text
//!   bytes in flight when the NAK arrives
//!   ──────────────────────────────────── × minimum RTT = BDP
//!      time since the packet was sent
//! ```
//!
//! With `cwnd` in flight, a path is busy for about `cwnd / (cwnd + 2 BDP)` of the time, because the
//! ends have other work too. The useful part of the sent data is `1 / (1 + cwnd / loss interval)`,
//! where the loss interval is the number of bytes acknowledged between two losses. The product of
//! both is maximal with
//!
//! ```text
//!   cwnd = √(2 BDP × loss interval)
//! ```
//!
//! so the window grows as losses become rarer. Without a loss there is no window.
//!
//! With a peer that keeps packets after a lost one, a loss costs one round trip, whatever is in
//! flight. The window then allows two expected losses in flight: more losses mean that a queue of
//! the path overflows.

use std::time::Duration;

use crate::time::Instant;
use crate::transport::in_flight::RoundTrip;
use crate::transport::rc::congestion::{Ack, CongestionControl, Loss};

/// Period of the minimum RTT filter, because paths change. The filter covers the last one or two
/// periods.
const MIN_RTT_PERIOD: Duration = Duration::from_secs(10);

/// Congestion window of a path, derived from losses.
#[derive(Debug, Default)]
pub(super) struct LossWindow {
    /// The congestion window; `None` before the first loss with a queue on the path.
    cwnd: Option<u64>,
    /// Bytes of a full burst. The BDP is at least this, because the ends limit the rate of a
    /// shorter path.
    max_burst: u64,
    /// Twice the bandwidth-delay product.
    double_bdp: u64,
    /// Bytes acknowledged between two losses.
    loss_interval: u64,
    /// The peer keeps packets after a lost one.
    peer_keeps_data: bool,
    /// Bytes acknowledged since the last loss.
    acked_bytes: u64,
    /// Minimum RTT of this period and of the previous one.
    min_rtt: [Option<Duration>; 2],
    /// End of this period.
    period_ends: Instant,
}

impl CongestionControl for LossWindow {
    fn new(max_burst: u64) -> Self {
        Self { max_burst, ..Self::default() }
    }

    #[inline]
    fn window(&self) -> Option<u64> {
        self.cwnd
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, ack: Ack) {
        if let Some(round_trip) = ack.round_trip {
            self.measure(now, round_trip);
        }
        self.acked_bytes = self.acked_bytes.saturating_add(ack.bytes);
        if self.cwnd.is_some() && self.acked_bytes / 2 >= self.loss_interval {
            self.loss_interval = self.acked_bytes;
            self.adjust();
        }
    }

    fn on_loss(&mut self, now: Instant, loss: Loss) {
        self.peer_keeps_data = loss.peer_keeps_data;
        let acked = std::mem::take(&mut self.acked_bytes).max(1);
        // Each loss weighs as much as all earlier ones, because losses occur in series.
        self.loss_interval = match self.loss_interval {
            0 => acked,
            before => geometric_mean(before, acked),
        };
        self.measure(now, loss.round_trip);
        let Some(min_rtt) = self.min_rtt() else { return };
        let sent_ago = loss.round_trip.time;
        if sent_ago > min_rtt * 2 {
            let bdp = u128::from(loss.in_flight) * min_rtt.as_nanos() / sent_ago.as_nanos();
            let bdp = u64::try_from(bdp).unwrap_or(u64::MAX);
            self.double_bdp = bdp.max(self.max_burst).saturating_mul(2);
            self.adjust();
        }
        // Otherwise the path has no queue.
    }
}

impl LossWindow {
    /// Adds a round trip to the filter.
    ///
    /// The acknowledgement of a retransmitted packet may be that of its first copy, which was late
    /// and not lost (RFC 6298, section 3). With frequent losses, few packets are sent once. As in RACK
    /// (RFC 8985, section 6.2), the round trip of a retransmitted packet therefore counts unless it
    /// is below the minimum.
    fn measure(&mut self, now: Instant, round_trip: RoundTrip) {
        let RoundTrip { time, is_retransmitted } = round_trip;
        if is_retransmitted && self.min_rtt().is_none_or(|min| time < min) {
            return;
        }
        if now >= self.period_ends {
            self.min_rtt = [None, self.min_rtt[0]];
            self.period_ends = now + MIN_RTT_PERIOD;
        }
        self.min_rtt[0] = Some(self.min_rtt[0].map_or(time, |min| min.min(time)));
    }

    /// Returns the minimum RTT of both periods.
    fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.into_iter().flatten().min()
    }

    fn adjust(&mut self) {
        let two_losses = match self.peer_keeps_data {
            true => self.loss_interval.saturating_mul(2),
            false => 0,
        };
        let best = geometric_mean(self.double_bdp, self.loss_interval);
        self.cwnd = Some(best.max(two_losses).max(self.double_bdp / 2));
    }
}

fn geometric_mean(a: u64, b: u64) -> u64 {
    // The root of a product of two values fits the width of one.
    u64::try_from((u128::from(a) * u128::from(b)).isqrt()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::window::per_burst;

    const MB: u64 = 1_000_000;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn ack(bytes: u64, round_trip: Option<Duration>) -> Ack {
        let round_trip = round_trip.map(|time| RoundTrip { time, is_retransmitted: false });
        Ack { bytes, round_trip }
    }

    fn loss(in_flight: u64, time: Duration) -> Loss {
        let round_trip = RoundTrip { time, is_retransmitted: false };
        Loss { in_flight, round_trip, peer_keeps_data: false }
    }

    /// Returns a controller with an RTT of 10 µs and one loss after 1 MB. A burst takes 1500 bytes.
    fn after_a_loss(in_flight: u64, ago: u64) -> LossWindow {
        let mut control = LossWindow::new(1500);
        control.on_ack(Instant::ZERO, ack(MB / 2, Some(us(90))));
        control.on_ack(Instant::ZERO, ack(MB / 2, Some(us(10))));
        control.on_loss(Instant::ZERO, loss(in_flight, us(ago)));
        control
    }

    #[test]
    fn what_waits_in_queues_is_not_in_flight_after_a_loss() {
        let mut control = LossWindow::default();
        control.on_loss(Instant::ZERO, loss(MB, us(100)));
        assert_eq!(control.window(), None, "no round trip is known");
        assert_eq!(after_a_loss(MB, 20).window(), None, "the path holds half of that");
        // The BDP is 20 kB: double_bdp = 40 kB, loss interval = 1 MB.
        assert_eq!(after_a_loss(MB, 500).window(), Some(200_000));
        assert_eq!(after_a_loss(100 * MB, 250).window(), Some(4 * MB), "what the path holds");
        // The BDP is one burst.
        assert_eq!(after_a_loss(10_000, 1000).window(), Some(54_772));
    }

    #[test]
    fn a_burst_is_always_in_flight() {
        let mut control = after_a_loss(10_000, 1000);
        for _ in 0..10 {
            control.on_loss(Instant::ZERO, loss(10_000, us(1000)));
        }
        assert_eq!(control.window(), Some(1500));
        assert_eq!(u64::from(per_burst(1040, false)) * 100, 6200);
    }

    #[test]
    fn the_rarer_losses_are_the_larger_is_the_window() {
        let mut control = after_a_loss(MB, 500);
        let mut windows = Vec::new();
        for landed in [1_000_000, 999_999, 1, 2_000_000] {
            control.on_ack(Instant::ZERO, ack(landed, None));
            windows.extend(control.window());
        }
        assert_eq!(windows, [200_000, 200_000, 282_842, 400_000], "2 MB, and 4 MB, without a loss");
        // The next loss comes after 10 kB, and the geometric mean of that and 4 MB is 200 kB.
        control.on_loss(Instant::ZERO, loss(MB, us(500)));
        control.on_ack(Instant::ZERO, ack(10_000, None));
        control.on_loss(Instant::ZERO, loss(MB, us(500)));
        assert_eq!(control.window(), Some(89_442));
    }

    #[test]
    fn with_a_peer_that_keeps_the_rest_two_losses_may_be_in_flight() {
        let mut control = after_a_loss(MB, 500);
        control.on_ack(Instant::ZERO, ack(MB, None));
        control.on_loss(Instant::ZERO, Loss { peer_keeps_data: true, ..loss(MB, us(500)) });
        assert_eq!(control.window(), Some(2 * MB));
        // The window holds at least one burst, or the requester would stall.
        for _ in 0..100 {
            control
                .on_loss(Instant::ZERO, Loss { peer_keeps_data: true, ..loss(10_000, us(1000)) });
        }
        assert_eq!(control.window(), Some(1500));
    }

    #[test]
    fn a_path_that_has_become_longer_is_known_after_two_periods() {
        let mut control = LossWindow::default();
        let mut after = |seconds, round_trip| {
            let now = Instant::ZERO + Duration::from_secs(seconds);
            control.on_ack(now, ack(1, Some(us(round_trip))));
            control.on_loss(now, loss(MB, us(1000)));
            control.window().unwrap()
        };
        assert_eq!(
            [(1, 100), (9, 400), (11, 400), (22, 400)].map(|(s, us)| after(s, us)),
            [100_000, 100_000, 100_000, 400_000]
        );
    }

    #[test]
    fn retransmitted_packet_lengthens_the_minimum_rtt_and_does_not_shorten_it() {
        let mut control = LossWindow::default();
        let mut after = |seconds, us, is_retransmitted| {
            let time = Duration::from_micros(us);
            let round_trip = Some(RoundTrip { time, is_retransmitted });
            let now = Instant::ZERO + Duration::from_secs(seconds);
            control.on_ack(now, Ack { bytes: 1, round_trip });
            control.min_rtt().map_or(0, |min| min.as_micros())
        };
        let minima = [
            after(0, 50, true),
            after(0, 100, false),
            after(1, 50, true),
            after(11, 400, true),
            after(22, 400, true),
            after(22, 100, true),
            after(23, 200, false),
        ];
        assert_eq!(minima, [0, 100, 100, 100, 400, 400, 200]);
    }

    #[test]
    fn nak_of_a_new_packet_is_a_round_trip() {
        let mut control = LossWindow::default();
        control.on_loss(Instant::ZERO, loss(MB, us(100)));
        assert_eq!(control.window(), None);
        control.on_loss(Instant::ZERO, loss(MB, us(1000)));
        assert_eq!(control.double_bdp, MB / 5);
    }
}
