//! One end of a connection in one lifetime: posted requests and their results.

use std::collections::VecDeque;
use std::sync::Arc;

use softroce::engine::QpType;
use softroce::ids::{CqId, Qpn};
use softroce::mem::Region;
use softroce::transport::outputs::AsyncEvent;
use softroce::transport::work::{Completion, WcOpcode};

use crate::support::{World, full_access};

/// Length of the memory for the peer's WRITEs, in bytes, followed by its counters.
pub(crate) const TARGET_BYTES: usize = 4096;
pub(crate) const COUNTERS: usize = 4;
/// Length of the memory for responses, and of that for receives, in bytes.
pub(crate) const RECEIVE_BYTES: usize = 24 << 10;

/// Effect of a request on the other end.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// The next receive gets its bytes.
    Send { bytes: Vec<u8>, imm: Option<u32> },
    /// The bytes go to an offset of the target, and with immediate data the next receive completes.
    Write { at: usize, bytes: Vec<u8>, imm: Option<u32> },
    /// The bytes go to an offset of the response memory.
    Read { into: usize, bytes: Vec<u8> },
    /// Adds to a counter; the original value goes to an offset of the response memory.
    Add { counter: usize, add: u64, into: usize },
    /// Exchanges a counter if it has this value.
    Swap { counter: usize, expect: u64, swap: u64, into: usize },
}

impl Effect {
    /// Returns whether it takes a receive.
    pub(crate) fn takes_receive(&self) -> bool {
        match self {
            Self::Send { .. } => true,
            Self::Write { imm, .. } => imm.is_some(),
            _ => false,
        }
    }
}

/// A posted send request.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) signaled: bool,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) effect: Effect,
}

/// A receive request, and the place of its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) at: usize,
    pub(crate) room: usize,
}

/// Disturbances of an end that may make its requests fail.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Disturbances {
    /// Moved to ERR.
    pub(crate) error: bool,
    /// Reset or destroyed, without further completions.
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
    /// Number of the lifetime.
    pub(crate) life: u64,
    pub(crate) psn: u32,
    pub(crate) exists: bool,
    pub(crate) target: Arc<Region>,
    pub(crate) answers: Arc<Region>,
    pub(crate) inbox: Arc<Region>,
    /// Contents of the target at the start of the lifetime; with [`Disturbances::target`], the last contents.
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
    pub(crate) disturbances: Disturbances,
    /// Packets may have been lost for longer than all timeouts.
    pub(crate) may_time_out: bool,
}

impl End {
    pub(crate) fn region(world: &World, host: usize, number: u64, len: usize) -> Arc<Region> {
        world.nodes[host].region(len, number << 32, full_access())
    }

    /// Returns the contents of the target, or its last contents before its deregistration.
    pub(crate) fn target_now(&self) -> Vec<u8> {
        self.last.clone().unwrap_or_else(|| contents(&self.target))
    }

    /// Starts a new lifetime: without posted requests, and with all memory registered.
    pub(crate) fn begin(&mut self, world: &World, number: u64) {
        if self.disturbances.target {
            self.target = Self::region(world, self.host, number, TARGET_BYTES + 8 * COUNTERS);
        }
        if self.disturbances.answers {
            self.answers = Self::region(world, self.host, number + 1, RECEIVE_BYTES);
        }
        if self.disturbances.inbox {
            self.inbox = Self::region(world, self.host, number + 2, RECEIVE_BYTES);
        }
        self.life += 1;
        // Distant from the PSNs of recent lifetimes.
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
        self.disturbances = Disturbances::default();
        self.may_time_out = false;
    }
}

pub(crate) fn contents(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Returns bytes of a region.
pub(crate) fn piece(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read_at(at, &mut bytes).unwrap();
    bytes
}
