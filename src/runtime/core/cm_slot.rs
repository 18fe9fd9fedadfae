//! State of the connection manager in a shard.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cm::Agent;
use crate::ids::Qpn;
use crate::runtime::cm::CmEvents;
use crate::time::Instant;

/// The agent of a device, and the events that it has reported.
#[derive(Debug)]
pub(crate) struct Cm {
    pub(crate) agent: Agent,
    pub(crate) events: Arc<CmEvents>,
}

/// Queue pairs that have received their first packets.
pub(crate) type FirstPackets = SmallVec<[Qpn; 4]>;

/// State of the connection manager in a shard.
#[derive(Debug, Default)]
pub(super) struct CmSlot {
    /// Shard 0 has it, from its first use on.
    pub(super) cm: Option<Box<Cm>>,
    /// Events of the agent, and the ids of the device, which may come before it.
    pub(super) events: Arc<CmEvents>,
    /// Queue pairs for the agent of shard 0, if this is another shard.
    pub(super) first_packets: FirstPackets,
    /// The agent has events that are not delivered.
    pub(super) has_events: bool,
    /// The agent has datagrams for which queue pair 1 had no room.
    pub(super) has_unsent: bool,
}

impl CmSlot {
    /// Returns the time of the agent's next timer.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.cm.as_ref()?.agent.poll_timeout()
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// Returns whether [`take_events`](Self::take_events) or [`take_first_packets`](Self::take_first_packets) returns
    /// anything.
    pub(super) fn has_notices(&self) -> bool {
        self.has_events || !self.first_packets.is_empty()
    }

    /// Takes the undelivered events, if there are any.
    pub(super) fn take_events(&mut self) -> Option<Arc<CmEvents>> {
        let has_events = std::mem::take(&mut self.has_events);
        has_events.then(|| Arc::clone(&self.events))
    }

    /// Takes the queue pairs for the agent of shard 0.
    pub(super) fn take_first_packets(&mut self) -> FirstPackets {
        std::mem::take(&mut self.first_packets)
    }
}
