//! Loss recovery of a requester: its states after a NAK or a timeout.
//!
//! ```text
//!                    NAK PSN, implied NAK
//!           ┌───────────────────────────────────► GoBackN ──┐
//!           │                                               │ una moves
//!           │        NAK PSN, peer may keep data            │
//!           ├───────────────────────────────► SelectiveRepeat ──┐
//!           │                                               │   │ una ≥ recovery PSN
//!   ┌──► Open       ACK timer expires                       │   │
//!   │       ├───────────────────────────────────► Probe ────│───┤
//!   │       │                                               │   │
//!   │       │        RNR NAK                                │   │
//!   │       └───────────────────────────────────► RnrWait ──┤   │
//!   │                        una moves, RNR timer expires   │   │
//!   └───────────────────────────────────────────────────────┴───┘
//! ```
//!
//! The arrows from `Open` leave every state but `RnrWait`, with two exceptions: `GoBackN` and
//! `SelectiveRepeat` ignore a NAK for the PSN that they recover, because a responder repeats it for
//! packets that were in flight behind the lost one. In `RnrWait` the requester sends nothing, the
//! ACK timer is stopped, and NAKs are ignored.
//!
//! | state | the requester sends |
//! |---|---|
//! | `Open` | as windows allow |
//! | `GoBackN` | everything from `una` on again, as windows allow (IBTA vol 1, §9.7.4.1.4) |
//! | `Probe`, `SelectiveRepeat` | one packet, and one more with each acknowledgement, up to the recovery PSN |
//! | `RnrWait` | nothing |
//!
//! Every transition but those to `Open` rewinds the requester to `una`. The caller does that.
//!
//! The [loss timer](LossTimer) runs while a NAK or a gap in the responses is known. If it expires, the
//! retransmission was lost too: the requester repeats the request for the missing response, or leaves
//! `GoBackN` and `SelectiveRepeat` for `Probe`, as after an ACK timeout. It takes no retry, and the
//! ACK timer runs on.
//!
//! Each NAK and timeout takes one retry from the [budget](RetryBudget), and each RNR NAK one RNR
//! retry. When `una` advances, both are refilled. An RNR NAK refills the retries too, because it is
//! a response.

use std::time::Duration;

use crate::psn::Psn;
use crate::time::{AckTimeout, Instant, RnrTimer};
use crate::transport::rc::retry::{AckTimer, LossTimer, RetryBudget};
use crate::transport::rc::selective::SelectiveSupport;

/// State of loss recovery: selects the next packet of a requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    /// No loss is known.
    #[default]
    Open,
    /// A NAK, explicit or implied, reported this PSN as missing. Everything from there on is
    /// retransmitted.
    GoBackN { missing: Psn },
    /// The ACK timer has expired.
    ///
    /// The peer may not have been scheduled, and all sent packets may still be in its receive
    /// buffer. An immediate retransmission of all of them would overrun that buffer.
    Probe(ProbeWindow),
    /// A NAK reported this PSN as missing, and the peer may keep the packets after it.
    SelectiveRepeat {
        missing: Psn,
        window: ProbeWindow,
        /// The peer has acknowledged packets that were not retransmitted.
        peer_kept_data: bool,
    },
    /// An RNR NAK arrived: the requester sends nothing until then.
    RnrWait { until: Instant },
}

/// Limit on the packets in flight while it is unknown which packets the peer has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProbeWindow {
    /// PSN after the last one sent when the window began. Its acknowledgement ends the window.
    recovery_psn: Psn,
    /// Number of PSNs that may be unacknowledged.
    psns: u32,
    /// The first packet is sent twice in a row, because only the ACK timer would detect its loss.
    repeats: bool,
}

impl ProbeWindow {
    fn new(recovery_psn: Psn, repeats: bool) -> Self {
        Self { recovery_psn, psns: 1, repeats }
    }

    /// Returns the window after an acknowledgement of everything before `una`; `None` if that ends
    /// it.
    fn on_ack(self, una: Psn) -> Option<Self> {
        let goes_on = una.is_before(self.recovery_psn);
        goes_on.then_some(Self { psns: self.psns + 1, repeats: false, ..self })
    }
}

/// An expired timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expired {
    /// The RNR timer: the peer has had time to post a receive request.
    Rnr,
    /// The ACK timer: the peer did not respond, and is probed.
    Ack,
    /// The ACK timer: the peer did not respond, and no retries are left.
    RetriesExhausted,
    /// The loss timer: the retransmission after a known loss was lost too.
    Loss,
}

/// Packets that a requester has outstanding at a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outstanding {
    /// PSN after the highest ever sent.
    pub(super) snd_max: Psn,
    /// The oldest request has a response, which reveals its loss without the ACK timer.
    pub(super) has_response: bool,
}

/// Loss recovery of one requester.
#[derive(Debug)]
pub(super) struct Recovery {
    state: State,
    budget: RetryBudget,
    ack_timer: AckTimer,
    loss_timer: LossTimer,
    support: SelectiveSupport,
}

impl Recovery {
    pub(super) fn new(timeout: AckTimeout, retry_cnt: u8, rnr_retry: u8) -> Self {
        Self {
            state: State::Open,
            budget: RetryBudget::new(retry_cnt, rnr_retry),
            ack_timer: AckTimer::new(timeout),
            loss_timer: LossTimer::default(),
            support: SelectiveSupport::default(),
        }
    }

    /// Applies changed attributes. Running timers continue.
    pub(super) fn configure(&mut self, timeout: AckTimeout, retry_cnt: u8, rnr_retry: u8) {
        self.budget.configure(retry_cnt, rnr_retry);
        self.ack_timer.configure(timeout);
    }

    // ---- events ----

    /// Records that packets with an acknowledgement request were sent.
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.ack_timer.start(now);
        self.loss_timer.on_sent(now);
    }

    /// Handles an advance of `una`; `is_outstanding`: some sent packets are still unacknowledged;
    /// `has_gap`: the response with the PSN `una` was lost.
    pub(super) fn on_ack(&mut self, now: Instant, una: Psn, is_outstanding: bool, has_gap: bool) {
        self.state = match self.state {
            State::Probe(window) => window.on_ack(una).map_or(State::Open, State::Probe),
            State::SelectiveRepeat { missing, window, peer_kept_data } => {
                match window.on_ack(una) {
                    Some(window) => State::SelectiveRepeat { missing, window, peer_kept_data },
                    None => {
                        self.support.conclude(peer_kept_data);
                        State::Open
                    }
                }
            }
            State::Open | State::GoBackN { .. } | State::RnrWait { .. } => State::Open,
        };
        self.budget.refill();
        self.ack_timer.on_ack(now, is_outstanding);
        match has_gap || self.state != State::Open {
            true => self.loss_timer.restart(now),
            false => self.loss_timer.stop(),
        }
    }

    /// Records that the peer has acknowledged packets that were not retransmitted.
    pub(super) fn on_kept_data(&mut self) {
        if let State::SelectiveRepeat { peer_kept_data, .. } = &mut self.state {
            *peer_kept_data = true;
        }
    }

    /// Restarts the timers after a response without progress. The budget is unchanged.
    ///
    /// A peer that is still sending an old response handles a retransmitted request after it.
    pub(super) fn restart_timers(&mut self, now: Instant) {
        self.ack_timer.restart(now);
        self.loss_timer.restart(now);
    }

    /// Records the loss of responses. Their requests are repeated in every state. `round_trip`: time
    /// since the oldest outstanding packet was sent.
    pub(super) fn on_gap(&mut self, round_trip: Duration) {
        self.loss_timer.on_loss(round_trip);
    }

    /// Whether a NAK for this PSN starts a new recovery. A repetition of the NAK in recovery does
    /// not.
    pub(super) fn starts_new_recovery(&self, nak: Psn) -> bool {
        match self.state {
            State::Open | State::Probe(_) => true,
            State::GoBackN { missing } | State::SelectiveRepeat { missing, .. } => missing != nak,
            State::RnrWait { .. } => false,
        }
    }

    /// Starts a recovery from a sequence NAK for `missing`. `round_trip`: time since the oldest
    /// outstanding packet was sent. Returns false if the budget is exhausted.
    pub(super) fn on_sequence_nak(
        &mut self,
        missing: Psn,
        sent: Outstanding,
        round_trip: Duration,
    ) -> bool {
        self.loss_timer.on_loss(round_trip);
        if let State::SelectiveRepeat { peer_kept_data, .. } = self.state {
            self.support.conclude(peer_kept_data);
        }
        self.state = match self.support.tries() {
            true => {
                let window = self.probe_window(sent);
                State::SelectiveRepeat { missing, window, peer_kept_data: false }
            }
            false => State::GoBackN { missing },
        };
        self.spend_retry()
    }

    /// Starts a recovery from the loss of the response with the PSN `missing`. `round_trip`: time
    /// since the oldest outstanding packet was sent. Returns false if the budget is exhausted.
    pub(super) fn on_implied_nak(&mut self, missing: Psn, round_trip: Duration) -> bool {
        self.loss_timer.on_loss(round_trip);
        self.state = State::GoBackN { missing };
        self.spend_retry()
    }

    /// Handles an RNR NAK: the peer has no receive request. Returns false if the budget is
    /// exhausted.
    pub(super) fn on_rnr_nak(&mut self, now: Instant, timer: RnrTimer) -> bool {
        if !self.budget.spend_rnr_retry() {
            return false;
        }
        self.loss_timer.stop();
        self.ack_timer.stop();
        self.state = State::RnrWait { until: now + timer.wait() };
        true
    }

    /// Checks the timers. Returns the one that has expired.
    pub(super) fn on_timeout(&mut self, now: Instant, sent: Outstanding) -> Option<Expired> {
        if let State::RnrWait { until } = self.state {
            if now < until {
                return None;
            }
            self.state = State::Open;
            return Some(Expired::Rnr);
        }
        if !self.ack_timer.has_expired(now) {
            return self.loss_timer.take_expired(now).then_some(Expired::Loss);
        }
        self.loss_timer.stop();
        self.probe(sent);
        Some(if self.spend_retry() { Expired::Ack } else { Expired::RetriesExhausted })
    }

    /// Begins to probe which packets the peer has received.
    pub(super) fn probe(&mut self, sent: Outstanding) {
        self.state = State::Probe(self.probe_window(sent));
    }

    /// Stops the timers, because no packets are outstanding.
    pub(super) fn stop(&mut self) {
        self.ack_timer.stop();
        self.loss_timer.stop();
        if self.is_waiting() {
            self.state = State::Open;
        }
    }

    fn spend_retry(&mut self) -> bool {
        self.ack_timer.stop();
        self.budget.spend_retry()
    }

    /// Returns the window after a loss. With a peer that keeps data, the whole recovery depends on
    /// the first packet.
    fn probe_window(&self, sent: Outstanding) -> ProbeWindow {
        ProbeWindow::new(sent.snd_max, self.support.is_known() && !sent.has_response)
    }

    // ---- queries ----

    /// Whether the RNR timer runs, and nothing may be sent.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::RnrWait { .. })
    }

    /// Whether it is unknown which packets the peer has received. Every packet then requests an
    /// acknowledgement.
    pub(super) fn is_probing(&self) -> bool {
        self.window().is_some()
    }

    /// Whether one more packet may be sent with this number of unacknowledged PSNs.
    #[inline]
    pub(super) fn admits(&self, unacknowledged: impl FnOnce() -> u32) -> bool {
        self.window().is_none_or(|window| unacknowledged() < window.psns)
    }

    /// Whether to send the last packets once more. Returns true once.
    pub(super) fn take_repeat(&mut self) -> bool {
        match &mut self.state {
            State::Probe(window) | State::SelectiveRepeat { window, .. } => {
                std::mem::take(&mut window.repeats)
            }
            State::Open | State::GoBackN { .. } | State::RnrWait { .. } => false,
        }
    }

    /// Whether the peer is known to keep packets after a lost one.
    pub(super) fn peer_keeps_data(&self) -> bool {
        self.support.is_known()
    }

    /// Returns the time at which [`on_timeout`](Self::on_timeout) must be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::RnrWait { until } => Some(until),
            _ => Instant::first(self.ack_timer.deadline(), self.loss_timer.deadline()),
        }
    }

    #[inline]
    fn window(&self) -> Option<&ProbeWindow> {
        match &self.state {
            State::Probe(window) | State::SelectiveRepeat { window, .. } => Some(window),
            State::Open | State::GoBackN { .. } | State::RnrWait { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Instant = Instant::from_micros;
    /// PSNs 5 to 19 are outstanding, and the first ones belong to SENDs.
    const SENT: Outstanding = Outstanding { snd_max: Psn::new(20), has_response: false };
    const ROUND_TRIP: Duration = Duration::from_micros(10);
    /// `timeout` 7 expires after this time.
    const TIMEOUT_US: u64 = 525;

    /// Input of a recovery.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// Everything before this PSN is acknowledged.
        Ack(u32),
        SequenceNak(u32),
        ImpliedNak(u32),
        RnrNak,
        /// Time advances to the next deadline.
        Deadline,
    }

    /// Handles an event as a requester does.
    fn apply(recovery: &mut Recovery, now: &mut Instant, event: Event) {
        match event {
            Event::Ack(una) => recovery.on_ack(*now, Psn::new(una), una < 20, false),
            Event::SequenceNak(psn) => {
                if recovery.starts_new_recovery(Psn::new(psn)) {
                    assert!(recovery.on_sequence_nak(Psn::new(psn), SENT, ROUND_TRIP));
                }
            }
            Event::ImpliedNak(psn) => {
                if recovery.starts_new_recovery(Psn::new(psn)) {
                    assert!(recovery.on_implied_nak(Psn::new(psn), ROUND_TRIP));
                }
            }
            Event::RnrNak if recovery.is_waiting() => {}
            Event::RnrNak => assert!(recovery.on_rnr_nak(*now, RnrTimer::new(12).unwrap())),
            Event::Deadline => {
                *now = recovery.deadline().unwrap();
                match recovery.on_timeout(*now, SENT) {
                    Some(Expired::Loss) => recovery.probe(SENT),
                    expired => assert!(expired.is_some()),
                }
            }
        }
        if !recovery.is_waiting() {
            recovery.on_sent(*now);
        }
    }

    /// Returns a recovery with packets outstanding since 0 µs; `peer_keeps_data`: the peer is known
    /// to keep data.
    fn recovery(peer_keeps_data: bool) -> Recovery {
        let mut recovery = Recovery::new(AckTimeout::new(7).unwrap(), 7, 7);
        if peer_keeps_data {
            recovery.support.conclude(true);
        }
        recovery.on_sent(AT(0));
        recovery
    }

    fn window(psns: u32, repeats: bool) -> ProbeWindow {
        ProbeWindow { recovery_psn: SENT.snd_max, psns, repeats }
    }

    fn go_back_n(missing: u32) -> State {
        State::GoBackN { missing: Psn::new(missing) }
    }

    fn selective(missing: u32, window: ProbeWindow) -> State {
        let missing = Psn::new(missing);
        State::SelectiveRepeat { missing, window, peer_kept_data: false }
    }

    fn after(recovery: &mut Recovery, events: &[Event]) -> State {
        let mut now = AT(0);
        for event in events {
            apply(recovery, &mut now, *event);
        }
        recovery.state
    }

    /// Tests every event in every state.
    #[test]
    fn events_lead_from_state_to_state() {
        use Event::{Ack, Deadline, ImpliedNak, RnrNak, SequenceNak};
        let rnr = |until| State::RnrWait { until: AT(until) };
        let probe = |psns, repeats| State::Probe(window(psns, repeats));
        let open = State::Open;
        // Each row: the events that lead to a state, then the state after one more of each: ACK of
        // 6, ACK of all, NAK for 5, NAK for 6, implied NAK for 5, RNR NAK, the next deadline.
        let last =
            [Ack(6), Ack(20), SequenceNak(5), SequenceNak(6), ImpliedNak(5), RnrNak, Deadline];
        let keeps_nothing: [(&[Event], [State; 7]); 4] = [
            (
                &[],
                [open, open, go_back_n(5), go_back_n(6), go_back_n(5), rnr(640), probe(1, false)],
            ),
            (
                &[SequenceNak(5)],
                [open, open, go_back_n(5), go_back_n(6), go_back_n(5), rnr(640), probe(1, false)],
            ),
            (
                &[Deadline],
                [
                    probe(2, false),
                    open,
                    go_back_n(5),
                    go_back_n(6),
                    go_back_n(5),
                    rnr(640 + TIMEOUT_US),
                    probe(1, false),
                ],
            ),
            (&[RnrNak], [open, open, rnr(640), rnr(640), rnr(640), rnr(640), open]),
        ];
        let twice = window(1, true);
        let keeps_data: [(&[Event], [State; 7]); 2] = [
            (
                &[],
                [
                    open,
                    open,
                    selective(5, twice),
                    selective(6, twice),
                    go_back_n(5),
                    rnr(640),
                    probe(1, true),
                ],
            ),
            (
                &[SequenceNak(5)],
                [
                    selective(5, window(2, false)),
                    open,
                    selective(5, twice),
                    // The peer kept nothing at the first probe, so the next losses use go-back-N.
                    go_back_n(6),
                    selective(5, twice),
                    rnr(640),
                    probe(1, true),
                ],
            ),
        ];
        for (keeps, table) in [(false, keeps_nothing.as_slice()), (true, &keeps_data)] {
            for (before, expected) in table {
                let found = last.map(|event| {
                    let mut recovery = recovery(keeps);
                    after(&mut recovery, before);
                    let mut now = AT(if matches!(before, [Deadline]) { TIMEOUT_US } else { 0 });
                    apply(&mut recovery, &mut now, event);
                    // Deadlines are exact; the table is in whole microseconds.
                    match recovery.state {
                        State::RnrWait { until } => rnr(until.as_nanos().div_ceil(1000)),
                        state => state,
                    }
                });
                assert_eq!(found, *expected, "after {before:?}, by {last:?}");
            }
        }
    }

    #[test]
    fn the_probe_window_grows_with_each_acknowledgement_up_to_the_recovery_psn() {
        let mut recovery = recovery(false);
        assert!(recovery.admits(|| 1000), "without a loss windows alone count");
        after(&mut recovery, &[Event::Deadline]);
        for (una, admitted) in [(5, 1), (6, 2), (9, 3), (19, 4)] {
            if una > 5 {
                recovery.on_ack(AT(1000), Psn::new(una), true, false);
            }
            assert!(recovery.is_probing());
            assert!(recovery.admits(|| admitted - 1) && !recovery.admits(|| admitted), "at {una}");
        }
        recovery.on_ack(AT(1000), Psn::new(20), false, false);
        assert!(!recovery.is_probing() && recovery.admits(|| 1000));
    }

    #[test]
    fn a_packet_is_repeated_once_and_only_where_nothing_else_would_tell_its_loss() {
        let repeats = |keeps, has_response| {
            let mut recovery = recovery(keeps);
            let sent = Outstanding { has_response, ..SENT };
            assert!(recovery.on_sequence_nak(Psn::new(5), sent, ROUND_TRIP));
            [recovery.take_repeat(), recovery.take_repeat()]
        };
        assert_eq!([repeats(true, false), repeats(true, true)], [[true, false], [false, false]]);
        assert_eq!(repeats(false, false), [false, false]);
    }

    #[test]
    fn a_peer_that_has_kept_data_stays_known_and_another_does_not() {
        for kept in [true, false] {
            let mut recovery = recovery(true);
            after(&mut recovery, &[Event::SequenceNak(5)]);
            if kept {
                recovery.on_kept_data();
            }
            recovery.on_ack(AT(1), Psn::new(20), false, false);
            assert_eq!(recovery.peer_keeps_data(), kept);
        }
        // An RNR NAK ends the probe without a result.
        let mut recovery = recovery(true);
        after(&mut recovery, &[Event::SequenceNak(5), Event::RnrNak, Event::Ack(20)]);
        assert!(recovery.peer_keeps_data());
    }

    #[test]
    fn ack_timer_stops_during_the_rnr_timer() {
        let mut recovery = Recovery::new(AckTimeout::new(1).unwrap(), 7, 7);
        recovery.on_sent(AT(0));
        assert!(recovery.on_rnr_nak(AT(0), RnrTimer::new(12).unwrap()));
        assert_eq!(recovery.deadline(), Some(AT(640)));
        assert_eq!(recovery.on_timeout(AT(639), SENT), None);
        assert_eq!(recovery.on_timeout(AT(640), SENT), Some(Expired::Rnr));
        assert_eq!(recovery.deadline(), None);
    }

    #[test]
    fn ack_timer_runs_from_the_oldest_packet() {
        let mut recovery = Recovery::new(AckTimeout::new(1).unwrap(), 7, 7);
        let interval = AckTimeout::new(1).unwrap().interval().unwrap();
        recovery.restart_timers(AT(0));
        assert_eq!(recovery.deadline(), None, "nothing is awaited");
        recovery.on_sent(AT(1));
        recovery.on_sent(AT(2));
        assert_eq!(recovery.deadline(), Some(AT(1) + interval));
        recovery.restart_timers(AT(3));
        assert_eq!(recovery.deadline(), Some(AT(3) + interval));
    }

    /// With an ACK timeout of 67 ms.
    #[test]
    fn a_second_loss_is_known_before_the_ack_timeout_and_takes_no_retry() {
        use Event::{Deadline, ImpliedNak, SequenceNak};
        for loss in [SequenceNak(5), ImpliedNak(5)] {
            let mut recovery = Recovery::new(AckTimeout::new(14).unwrap(), 1, 0);
            let mut now = AT(0);
            apply(&mut recovery, &mut now, loss);
            for us in [2000, 6000, 14_000] {
                apply(&mut recovery, &mut now, Deadline);
                assert_eq!((now, recovery.state), (AT(us), State::Probe(window(1, false))));
            }
            let interval = AckTimeout::new(14).unwrap().interval();
            assert_eq!(recovery.ack_timer.deadline(), interval.map(|interval| AT(0) + interval));
            // The rest arrives step by step, without further silence.
            recovery.on_ack(AT(15_000), Psn::new(7), true, false);
            assert_eq!(recovery.deadline(), Some(AT(17_000)));
            recovery.on_ack(AT(15_500), Psn::new(20), true, false);
            assert_eq!(recovery.state, State::Open);
            assert_eq!(recovery.deadline(), recovery.ack_timer.deadline(), "no loss is known");
        }
    }

    #[test]
    fn a_gap_in_the_responses_keeps_the_loss_timer_running() {
        let mut recovery = Recovery::new(AckTimeout::new(14).unwrap(), 7, 7);
        recovery.on_sent(AT(0));
        recovery.on_gap(Duration::from_millis(2));
        recovery.on_sent(AT(5));
        assert_eq!(recovery.deadline(), Some(AT(8005)));
        recovery.on_ack(AT(6000), Psn::new(6), true, true);
        assert_eq!(recovery.on_timeout(AT(13_999), SENT), None);
        assert_eq!(recovery.on_timeout(AT(14_000), SENT), Some(Expired::Loss));
        assert_eq!(recovery.state, State::Open, "only the request is repeated");
        recovery.on_sent(AT(14_000));
        assert_eq!(recovery.deadline(), Some(AT(30_000)));
        // An RNR NAK is a response: only its timer runs.
        assert!(recovery.on_rnr_nak(AT(14_001), RnrTimer::new(12).unwrap()));
        assert_eq!(recovery.deadline(), Some(AT(14_641)));
    }

    #[test]
    fn the_same_gap_is_news_once() {
        let mut recovery = recovery(false);
        assert!(recovery.starts_new_recovery(Psn::new(5)));
        assert!(recovery.on_implied_nak(Psn::new(5), ROUND_TRIP));
        assert!(!recovery.starts_new_recovery(Psn::new(5)));
        assert!(recovery.starts_new_recovery(Psn::new(6)));
        recovery.on_ack(AT(0), Psn::new(6), true, false);
        assert!(recovery.starts_new_recovery(Psn::new(5)));
    }

    #[test]
    fn retries_that_are_used_up_end_recovery_and_progress_fills_them_up() {
        let mut recovery = Recovery::new(AckTimeout::new(7).unwrap(), 1, 0);
        let expire = |recovery: &mut Recovery| {
            recovery.on_sent(AT(0));
            recovery.on_timeout(AT(TIMEOUT_US), SENT)
        };
        let both = [Some(Expired::Ack), Some(Expired::RetriesExhausted)];
        assert_eq!([expire(&mut recovery), expire(&mut recovery)], both);
        recovery.on_ack(AT(0), Psn::new(6), true, false);
        assert_eq!([expire(&mut recovery), expire(&mut recovery)], both);
        assert!(!recovery.on_rnr_nak(AT(0), RnrTimer::new(12).unwrap()), "none was allowed");
    }
}
