//! The parts of an engine that all of its queue pairs share.

use std::sync::Arc;

use crate::mem::{EpochGuard, Memory};
use crate::time::Instant;
use crate::transport::connection::Context;
use crate::transport::counters::Tally;
use crate::transport::outputs::Outputs;
use crate::transport::rc::ahead::ReorderBuffer;
use crate::transport::srq::SrqTable;
use crate::transport::window::{WindowId, Windows};

/// The parts that a queue pair borrows for one input.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: Arc<Memory>,
    pub(super) windows: Windows,
    /// Window for the receive buffer of this device, which READ responses fill.
    pub(super) read_window: WindowId,
    pub(super) srqs: SrqTable,
    pub(super) reorder: ReorderBuffer,
    pub(super) tally: Tally,
    pub(super) outputs: Outputs,
}

impl Shared {
    /// Lends the parts for one input, for the queue pair in `slot` if there is one.
    #[inline]
    pub(super) fn context<'a>(
        &'a mut self,
        now: Instant,
        turn: &'a EpochGuard<'a>,
        slot: Option<usize>,
    ) -> Context<'a> {
        Context {
            now,
            memory: &self.memory,
            turn,
            windows: &mut self.windows,
            read_window: self.read_window,
            in_turn: None,
            srqs: &mut self.srqs,
            reorder: &self.reorder,
            tally: &mut self.tally,
            slot,
            outputs: &mut self.outputs,
        }
    }
}
