//! Random state transitions of a sending queue pair amid messages, timeouts and acknowledgements.
//!
//! Each message has a number. In a lifetime of the queue pair, from RESET to RESET, a number belongs to one PSN. No
//! message starts in SQD except a UC message that waits for room, no request leaves a drained queue pair or one in
//! SQE, ERR or RESET, and each request completes once and in order, unless a reset discards it.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::collections::BTreeMap;

use crate::support::choice::Choice;
use crate::support::script::{PEER_QPN, PEER_SRQN, Script, rts_qp_of, target};
use crate::support::{request, sge};
use softroce::engine::{ModifyError, QpAttr, QpState, QpType};
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{SendOp, SendRequest, WcStatus};
use softroce::wire::{Datagram, Position};

const STEPS: usize = 60;

#[derive(Default)]
struct Lifetime {
    /// PSN of the last packet of each message.
    ends: BTreeMap<u32, u32>,
    /// Number of posted and of completed requests.
    posted: Vec<u64>,
    completed: usize,
    succeeded: Vec<u32>,
    /// Next PSN to be acknowledged, and newest sent PSN.
    una: u32,
    newest: u32,
}

impl Lifetime {
    fn new() -> Self {
        Self { una: 5, newest: 4, ..Self::default() }
    }
}

struct Model {
    t: Script,
    choice: Choice,
    qp_type: QpType,
    us: u64,
    lifetime: Lifetime,
    next: u64,
    /// The queue pair has reported that it is drained.
    drained: bool,
    /// A message has started since the last transition to SQD.
    begun: bool,
    /// Number of checks in each state.
    seen: [usize; 7],
}

impl Model {
    fn new(seed: u64, qp_type: QpType) -> Self {
        let lifetime = Lifetime::new();
        let (t, choice) = (Script::requester(rts_qp_of(qp_type)), Choice::new(seed));
        Self {
            t,
            choice,
            qp_type,
            us: 0,
            lifetime,
            next: 0,
            drained: false,
            begun: false,
            seen: [0; 7],
        }
    }

    fn is_acknowledged(&self) -> bool {
        matches!(self.qp_type, QpType::Rc | QpType::XrcIni)
    }

    fn post(&mut self) {
        if self.t.state() == QpState::Reset
            || self.lifetime.posted.len() - self.lifetime.completed > 60
        {
            return;
        }
        // Long messages are partly sent when the window is full.
        let most = match self.qp_type {
            QpType::Ud => 257,
            _ if self.choice.one_in(6) => 40_000,
            _ => 900,
        };
        let mut piece = sge(&self.t.data, 0, self.choice.below(most) as usize);
        if self.choice.one_in(40) && piece.length > 0 {
            piece.lkey = softroce::ids::Lkey(piece.lkey.0 ^ 0xff);
        }
        let to = match self.qp_type {
            QpType::Ud => Some(target(PEER_QPN).into()),
            QpType::XrcIni => Some(PEER_SRQN.into()),
            _ => None,
        };
        let op = SendOp::SendImm { imm: self.next as u32 };
        self.t.post(SendRequest { to, ..request(self.next, op, &[piece]) }).unwrap();
        self.lifetime.posted.push(self.next);
        self.next += 1;
    }

    fn transit(&mut self) {
        let state = self.t.state();
        match (state, self.choice.below(16)) {
            (QpState::Rts, 0..3) => {
                self.t.modify(QpAttr::to(QpState::Sqd)).unwrap();
                (self.drained, self.begun) = (false, false);
            }
            (QpState::Sqd, 0..8) => match self.t.modify(QpAttr::to(QpState::Rts)) {
                Ok(()) | Err(ModifyError::Draining) => {}
                Err(error) => panic!("{error}"),
            },
            (QpState::Sqe, 0..8) => self.t.modify(QpAttr::to(QpState::Rts)).unwrap(),
            (_, 15) => self.t.modify(QpAttr::to(QpState::Err)).unwrap(),
            (QpState::Err, 0..8) | (_, 14) => {
                self.complete();
                self.t.modify(QpAttr::to(QpState::Reset)).unwrap();
                self.check_sent();
                self.lifetime = Lifetime::new();
                self.t.bring_to(QpState::Rts);
            }
            _ => {}
        }
    }

    /// Checks the packets that leave in this state.
    fn check_sent(&mut self) {
        self.complete();
        let was_drained = self.drained;
        let state = self.t.state();
        for sent in self.t.all(self.us) {
            let packet = Datagram::parse(&sent.bytes).unwrap();
            let (psn, position) = (packet.bth.psn.value(), packet.bth.opcode.position());
            let line = sent.line();
            let may_send = matches!(state, QpState::Rts) || state == QpState::Sqd && !was_drained;
            assert!(may_send, "{state:?}: {line}");
            let is_new = psn > self.lifetime.newest;
            if matches!(position, Position::First | Position::Only) && is_new {
                // UC finishes the next message if it waits for room.
                let waited =
                    self.qp_type == QpType::Uc && !std::mem::replace(&mut self.begun, true);
                assert!(state == QpState::Rts || waited, "{state:?}: begins {line}");
            }
            assert!(is_new || self.is_acknowledged(), "leaves again: {line}");
            self.lifetime.newest = self.lifetime.newest.max(psn);
            if let Some(imm) = packet.imm() {
                let end = *self.lifetime.ends.entry(imm.0).or_insert(psn);
                assert_eq!(end, psn, "another PSN: {line}");
            }
        }
        self.seen[state as usize] += 1;
        self.complete();
        let Lifetime { succeeded, ends, .. } = &self.lifetime;
        let unsent = succeeded.iter().find(|number| !ends.contains_key(number));
        assert_eq!(unsent, None, "succeeds without being sent");
    }

    /// Takes completions and events.
    fn complete(&mut self) {
        for end in self.t.sends() {
            let expected = self.lifetime.posted.get(self.lifetime.completed).copied();
            assert_eq!(Some(end.wr_id), expected, "{:?}", end.status);
            self.lifetime.completed += 1;
            if end.status == WcStatus::Success {
                self.lifetime.succeeded.push(end.wr_id as u32);
            }
        }
        let drained = AsyncEvent::SqDrained(self.t.qpn);
        for event in self.t.events() {
            assert_eq!(event, drained);
            self.drained = true;
        }
    }

    /// The peer acknowledges some packets, or misses them.
    fn answer(&mut self) {
        let Lifetime { una, newest, .. } = self.lifetime;
        if !self.is_acknowledged() || newest < una || self.choice.one_in(3) {
            return;
        }
        let psn = una + self.choice.below(u64::from(newest - una) + 1) as u32;
        if self.choice.one_in(5) {
            self.t.rx(self.us, &format!("NAK_PSN psn={psn} msn=0"));
            self.lifetime.una = psn;
        } else {
            self.t.rx(self.us, &format!("ACK psn={psn} msn=0"));
            self.lifetime.una = psn + 1;
        }
    }

    fn step(&mut self) {
        for _ in 0..self.choice.below(4) {
            self.post();
        }
        self.transit();
        self.check_sent();
        self.answer();
        self.check_sent();
        self.us += self.choice.below(400);
        self.check_sent();
    }

    /// Flushes the remaining requests: then every request of this lifetime has completed.
    fn finish(mut self) -> [usize; 7] {
        self.t.modify(QpAttr::to(QpState::Err)).unwrap();
        self.check_sent();
        assert_eq!(self.lifetime.completed, self.lifetime.posted.len(), "completions");
        assert_eq!(self.t.all(self.us + 1_000_000), []);
        assert_eq!(self.t.sends(), []);
        self.seen
    }
}

fn run(qp_type: QpType) {
    let mut total = [0; 7];
    for seed in 0..150 {
        let seen = std::panic::catch_unwind(|| {
            let mut model = Model::new(seed, qp_type);
            for _ in 0..STEPS {
                model.step();
            }
            model.finish()
        });
        let Ok(seen) = seen else { panic!("{qp_type}, seed {seed:#x}") };
        total.iter_mut().zip(seen).for_each(|(total, seen)| *total += seen);
    }
    // RC queue pairs have no SQE.
    let states = [QpState::Rts, QpState::Sqd, QpState::Err];
    assert!(states.iter().all(|state| total[*state as usize] > 500), "{total:?}");
    let has_sqe = matches!(qp_type, QpType::Uc | QpType::Ud);
    assert_eq!(total[QpState::Sqe as usize] > 500, has_sqe, "{total:?}");
}

/// QPS-09, QPS-16
#[test]
fn rc_sends_nothing_new_outside_rts() {
    run(QpType::Rc);
}

/// QPS-09, QPS-16
#[test]
fn uc_sends_nothing_new_outside_rts() {
    run(QpType::Uc);
}

/// QPS-09, QPS-16
#[test]
fn ud_sends_nothing_new_outside_rts() {
    run(QpType::Ud);
}

/// QPS-09, QPS-16
#[test]
fn xrc_initiator_sends_nothing_new_outside_rts() {
    run(QpType::XrcIni);
}
