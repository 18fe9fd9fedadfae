//! Admission of packets to the window of a path: the remaining budget of one burst of requests.
//!
//! RC, XRC, UC and UD check each packet with a [`SendBudget`], record its cost, and charge the
//! window once with the [total](SendBudget::spent).

use crate::net::Burst;
use crate::transport::build::Progress;
use crate::transport::context::Context;
use crate::transport::window::{UsableWindow, WindowId};

/// Window space that one burst of requests of a queue pair may use and has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBudget {
    window: WindowId,
    /// Usable window of the path.
    path: UsableWindow,
    /// Usable window of the path, limited by the congestion window.
    allowance: UsableWindow,
    /// Other queue pairs wait for the window.
    is_behind_others: bool,
    spent: u64,
}

/// A packet to be admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Length of its datagram in bytes.
    pub(crate) len: usize,
    /// Number of packets of the message left to send, this one included. The window must have room
    /// for a burst of them.
    pub(crate) packets: u32,
    /// It is a retransmission, and does not wait behind other queue pairs again.
    pub(crate) is_retransmitted: bool,
}

impl SendBudget {
    /// Returns the budget of a burst that begins now.
    pub(crate) fn new(cx: &Context<'_>, window: WindowId) -> Self {
        Self::within(cx, window, None, 0)
    }

    /// Returns the budget of a sender with a congestion window of `cwnd`, of which `in_flight` is
    /// used.
    #[inline]
    pub(crate) fn within(
        cx: &Context<'_>,
        window: WindowId,
        cwnd: Option<u64>,
        in_flight: u64,
    ) -> Self {
        let path = cx.shared.windows.allowance(window, cx.now);
        let allowance = path.within(cwnd, in_flight);
        Self { window, path, allowance, is_behind_others: cx.is_behind_others(window), spent: 0 }
    }

    /// Returns the window cost of a packet, if it may be appended to `out`.
    ///
    /// # Errors
    ///
    /// The reason for which the burst ends: the window of the path has no room, or only
    /// acknowledgements to this queue pair free its congestion window.
    #[inline]
    pub(crate) fn admit(&self, out: &Burst, packet: Candidate) -> Result<u64, Progress> {
        let takes = self.takes(out, packet.len);
        let burst = || self.allowance.burst(packet.len, packet.packets);
        let want = if self.spent == 0 { burst() } else { self.spent + takes };
        let waits = self.is_behind_others && self.spent == 0 && !packet.is_retransmitted;
        let in_turn = |allowance: UsableWindow| if waits { allowance.closed() } else { allowance };
        if in_turn(self.allowance).admits(want) {
            return Ok(takes);
        }
        let is_congested = in_turn(self.path).admits(want);
        Err(if is_congested { Progress::Idle } else { Progress::Blocked(self.window, burst()) })
    }

    /// Returns the cost of a packet of `len` bytes after those of `out`.
    #[inline]
    pub(crate) fn takes(&self, out: &Burst, len: usize) -> u64 {
        self.allowance.takes(len, !out.is_empty())
    }

    /// Records the cost of appended packets.
    #[inline]
    pub(crate) fn spend(&mut self, cost: u64) {
        self.spent += cost;
    }

    /// Refunds the cost of a packet that could not be built.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.spent -= cost;
    }

    /// Returns the cost of all packets so far.
    #[inline]
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Returns the usable window after the packets so far.
    #[inline]
    pub(crate) fn left(&self) -> UsableWindow {
        self.allowance.less(self.spent)
    }

    /// Returns the number of packets like those of `out` that may follow, and the cost of each.
    pub(crate) fn packets_behind(&self, out: &Burst) -> (u32, u64) {
        let takes = self.allowance.takes(out.segment_len(), true);
        let fit = self.left().packets(takes).min(out.room() as u64);
        (u32::try_from(fit).unwrap_or(u32::MAX), takes)
    }

    /// Returns the bytes that may be sent without an acknowledgement request.
    #[inline]
    pub(crate) fn quarter(&self) -> u64 {
        self.allowance.quarter()
    }

    /// Returns the maximum length in bytes of a burst of packets of `len` bytes.
    pub(crate) fn longest_burst(&self, len: usize) -> usize {
        self.allowance.longest_burst(len)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::time::Instant;
    use crate::transport::window::{Windows, truesize};

    const LEN: usize = 1040;

    /// Returns a budget with room for `room` packets of [`LEN`] bytes, on a path that segments
    /// bursts.
    fn budget(room: u64, is_behind_others: bool) -> SendBudget {
        let mut windows = Windows::new(room * truesize(LEN), vec![], false);
        let window = windows.join(IpAddr::from([10, 0, 0, 1]), Instant::ZERO);
        let path = windows.allowance(window, Instant::ZERO);
        SendBudget { window, path, allowance: path, is_behind_others, spent: 0 }
    }

    fn packet(packets: u32, is_retransmitted: bool) -> Candidate {
        Candidate { len: LEN, packets, is_retransmitted }
    }

    #[test]
    fn a_burst_begins_with_room_for_a_quarter_and_goes_on_while_there_is_room() {
        let out = Burst::new();
        let mut budget = budget(8, false);
        budget.path = budget.path.less(7 * truesize(LEN));
        budget.allowance = budget.path;
        let blocked = Err(Progress::Blocked(budget.window, 2 * truesize(LEN)));
        assert_eq!(budget.admit(&out, packet(8, false)), blocked);
        assert_eq!(budget.admit(&out, packet(1, false)), Ok(truesize(LEN)));
        budget.spend(truesize(LEN));
        assert!(budget.admit(&out, packet(1, false)).is_err());
        budget.refund(truesize(LEN));
        assert_eq!((budget.spent(), budget.left()), (0, budget.allowance));
    }

    #[test]
    fn congestion_window_of_zero_admits_one_burst_at_a_time() {
        let window = budget(8, false).path;
        let admits = |in_flight| window.within(Some(0), in_flight).admits(truesize(LEN));
        assert_eq!([0, 1, truesize(LEN)].map(admits), [true, false, false]);
    }

    #[test]
    fn only_new_packets_wait_behind_others() {
        let out = Burst::new();
        let mut budget = budget(8, true);
        let blocked = Err(Progress::Blocked(budget.window, truesize(LEN)));
        assert_eq!(budget.admit(&out, packet(1, false)), blocked);
        assert_eq!(budget.admit(&out, packet(1, true)), Ok(truesize(LEN)));
        budget.spend(truesize(LEN));
        assert_eq!(budget.admit(&out, packet(1, false)), Ok(truesize(LEN)), "its turn has come");
    }

    #[test]
    fn a_full_congestion_window_waits_for_its_own_acknowledgements() {
        let out = Burst::new();
        let mut budget = budget(8, false);
        budget.allowance = budget.path.within(Some(3 * truesize(LEN)), 3 * truesize(LEN));
        assert_eq!(budget.admit(&out, packet(1, false)), Err(Progress::Idle));
        budget.path = budget.path.closed();
        let blocked = Err(Progress::Blocked(budget.window, truesize(LEN)));
        assert_eq!(budget.admit(&out, packet(1, false)), blocked, "others make room, too");
    }
}
