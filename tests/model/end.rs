//! One end of a connection, for as long as it lives: what was posted, and what has come of it.

use std::collections::VecDeque;
use std::sync::Arc;

use softroce::engine::QpType;
use softroce::ids::{CqId, Qpn};
use softroce::mem::Region;
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{Completion, WcOpcode};

use super::support::{World, full_access};

/// Bytes that a peer writes, and behind them its counters.
pub(crate) const TARGET: usize = 4096;
pub(crate) const COUNTERS: usize = 4;
/// Bytes for answers, and for receives.
pub(crate) const ROOM: usize = 24 << 10;

/// What a request does to the other end.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Its bytes come to the next receive.
    Send { bytes: Vec<u8>, imm: Option<u32> },
    /// Its bytes come to an offset of the target, and with immediate data to the next receive's notice.
    Write { at: usize, bytes: Vec<u8>, imm: Option<u32> },
    /// These bytes come to an offset of the answers.
    Read { into: usize, bytes: Vec<u8> },
    /// A counter grows, and what it was comes to an offset of the answers.
    Add { counter: usize, add: u64, into: usize },
    /// A counter is exchanged if it holds this.
    Swap { counter: usize, expect: u64, swap: u64, into: usize },
}

impl Effect {
    /// Whether it takes a receive.
    pub(crate) fn is_told(&self) -> bool {
        match self {
            Self::Send { .. } => true,
            Self::Write { imm, .. } => imm.is_some(),
            _ => false,
        }
    }
}

/// A send request that was posted.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) signaled: bool,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) effect: Effect,
}

/// A receive that was asked for: where its bytes go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) at: usize,
    pub(crate) room: usize,
}

/// What has happened to an end that may make its requests fail.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Harmed {
    /// It was told to fail.
    pub(crate) error: bool,
    /// It was reset or destroyed: nothing more is heard of it.
    pub(crate) gone: bool,
    pub(crate) target: bool,
    pub(crate) answers: bool,
    pub(crate) inbox: bool,
}

pub(crate) struct End {
    pub(crate) qp_type: QpType,
    pub(crate) host: usize,
    pub(crate) qpn: Qpn,
    pub(crate) cqs: [CqId; 2],
    /// Counts the lives of this end.
    pub(crate) life: u64,
    pub(crate) psn: u32,
    pub(crate) exists: bool,
    pub(crate) target: Arc<Region>,
    pub(crate) answers: Arc<Region>,
    pub(crate) inbox: Arc<Region>,
    /// What the target held when this life began; with [`Harmed::target`], what it held last.
    pub(crate) before: Vec<u8>,
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) answers_used: usize,
    pub(crate) inbox_used: usize,
    pub(crate) sent: Vec<Sent>,
    pub(crate) receives: Vec<Receive>,
    /// Receives that are not posted yet.
    pub(crate) owed: VecDeque<usize>,
    pub(crate) send_ends: Vec<Completion>,
    pub(crate) recv_ends: Vec<Completion>,
    pub(crate) events: Vec<AsyncEvent>,
    pub(crate) harmed: Harmed,
    /// Packets may have been lost for longer than the timeouts last.
    pub(crate) may_time_out: bool,
}

impl End {
    pub(crate) fn region(world: &World, host: usize, number: u64, len: usize) -> Arc<Region> {
        world.nodes[host].region(len, number << 32, full_access())
    }

    /// The target as it is, or was when it was deregistered.
    pub(crate) fn target_now(&self) -> Vec<u8> {
        self.last.clone().unwrap_or_else(|| contents(&self.target))
    }

    /// A new life: nothing is posted, and memory that is gone is there again.
    pub(crate) fn begin(&mut self, world: &World, number: u64) {
        if self.harmed.target {
            self.target = Self::region(world, self.host, number, TARGET + 8 * COUNTERS);
        }
        if self.harmed.answers {
            self.answers = Self::region(world, self.host, number + 1, ROOM);
        }
        if self.harmed.inbox {
            self.inbox = Self::region(world, self.host, number + 2, ROOM);
        }
        self.life += 1;
        // Far from where any life of late was.
        self.psn = (self.psn + 0x31_4159) & 0xff_ffff;
        self.last = None;
        self.before = contents(&self.target);
        (self.answers_used, self.inbox_used) = (0, 0);
        self.sent.clear();
        self.receives.clear();
        self.owed.clear();
        self.send_ends.clear();
        self.recv_ends.clear();
        self.events.clear();
        self.harmed = Harmed::default();
        self.may_time_out = false;
    }
}

pub(crate) fn contents(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Bytes of a region.
pub(crate) fn piece(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read_at(at, &mut bytes).unwrap();
    bytes
}
