//! Admission of packets to the window of a path: how much more one burst of requests may carry.
//!
//! RC, XRC, UC and UD ask a [`SendBudget`] for each packet, add what they have sent, and charge the window once with all
//! that was [spent](SendBudget::spent).

use crate::net::Burst;
use crate::transport::build::Progress;
use crate::transport::connection::Context;
use crate::transport::window::{UsableWindow, WindowId};

/// Window space that one burst of requests of a queue pair may take, and has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBudget {
    window: WindowId,
    /// What the window of the path allows.
    path: UsableWindow,
    /// What it allows within the congestion window.
    allowance: UsableWindow,
    /// Other queue pairs wait for the window.
    is_behind_others: bool,
    spent: u64,
}

/// A packet that is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Bytes of its datagram.
    pub(crate) len: usize,
    /// How many packets of the message are to be sent, this one included: there must be room for a burst of them.
    pub(crate) packets: u32,
    /// It is sent again, and had its turn before.
    pub(crate) is_retransmitted: bool,
}

impl SendBudget {
    /// The budget of a burst that begins now.
    pub(crate) fn new(cx: &Context<'_>, window: WindowId) -> Self {
        Self::within(cx, window, None, 0)
    }

    /// The same of a sender with a congestion window of `cwnd`, of which `in_flight` is used.
    #[inline]
    pub(crate) fn within(
        cx: &Context<'_>,
        window: WindowId,
        cwnd: Option<u64>,
        in_flight: u64,
    ) -> Self {
        let path = cx.windows.allowance(window, cx.now);
        let allowance = path.within(cwnd, in_flight);
        Self { window, path, allowance, is_behind_others: cx.is_behind_others(window), spent: 0 }
    }

    /// Returns what a packet takes of the window, if it may be appended to `out`.
    ///
    /// # Errors
    ///
    /// Why the burst ends here: the window of the path has no room, or only acknowledgements to this queue pair make
    /// room in its congestion window.
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

    /// Returns the bytes charged for a packet of `len` bytes behind those of `out`.
    #[inline]
    pub(crate) fn takes(&self, out: &Burst, len: usize) -> u64 {
        self.allowance.takes(len, !out.is_empty())
    }

    /// Packets were appended that take so much.
    #[inline]
    pub(crate) fn spend(&mut self, cost: u64) {
        self.spent += cost;
    }

    /// A packet that was spent for could not be built.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.spent -= cost;
    }

    /// What the packets so far take of the window.
    #[inline]
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// What is allowed behind the packets so far.
    #[inline]
    pub(crate) fn left(&self) -> UsableWindow {
        self.allowance.less(self.spent)
    }

    /// How many packets like those of `out` may follow them, and what each takes.
    pub(crate) fn packets_behind(&self, out: &Burst) -> (u32, u64) {
        let takes = self.allowance.takes(out.segment_len(), true);
        let fit = self.left().packets(takes).min(out.room() as u64);
        (u32::try_from(fit).unwrap_or(u32::MAX), takes)
    }

    /// What may be sent without asking for an acknowledgement.
    #[inline]
    pub(crate) fn quarter(&self) -> u64 {
        self.allowance.quarter()
    }

    /// Bytes of the longest burst of packets of `len` bytes.
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

    /// A budget of a window with room for `room` packets of [`LEN`] bytes, on a path that cuts bursts.
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
