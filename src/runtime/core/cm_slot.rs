//! State of the connection manager in a shard.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cm::Agent;
use crate::engine::ReceivedMad;
use crate::ids::Qpn;
use crate::runtime::cm::CmEvents;
use crate::runtime::core::early_requests::EarlyRequests;
use crate::time::Instant;

/// The agent of a device, and the events that it has reported.
#[derive(Debug)]
pub(crate) struct Cm {
    pub(crate) agent: Agent,
    pub(crate) events: Arc<CmEvents>,
    pub(super) early: EarlyRequests,
}

impl Cm {
    /// Handles a received datagram. A request without a listener waits for one.
    pub(super) fn handle_mad(&mut self, now: Instant, mad: &ReceivedMad) {
        if !self.agent.lacks_listener(mad) || !self.early.hold(now, mad) {
            self.agent.handle_mad(now, mad);
        }
    }

    /// Handles the requests that have waited long enough, or that have a listener now.
    pub(super) fn handle_early_requests(&mut self, now: Instant) {
        while let Some(mad) = self.early.take(now, |mad| !self.agent.lacks_listener(mad)) {
            self.agent.handle_mad(now, &mad);
        }
    }
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
    /// Returns the time of the agent's next timer, or when a request has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let cm = self.cm.as_ref()?;
        Instant::first(cm.agent.poll_timeout(), cm.early.deadline())
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
