//! The connection manager of a device: between its agent and queue pair 1, on shard 0.

use std::io;
use std::sync::Arc;

use crate::cm::{Agent, AgentConfig, Counters, Guid, ServiceId};
use crate::ids::Qpn;
use crate::port::Control;
use crate::runtime::cm::CmEvents;
use crate::runtime::core::Core;
use crate::runtime::core::cm_slot::{Cm, CmSlot};
use crate::runtime::core::early_requests::EarlyRequests;
use crate::runtime::random::random;
use crate::time::Instant;

impl Core {
    /// Calls `act` with the connection manager, creates it at the first call, and sends the messages that `act`
    /// generates.
    ///
    /// # Errors
    ///
    /// The system returns no random numbers.
    pub(crate) fn with_cm<R>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Cm) -> R,
    ) -> io::Result<R> {
        let cm = match &mut self.cm.cm {
            Some(cm) => cm,
            None => {
                let cm = self.new_cm()?;
                self.cm.cm.insert(Box::new(cm))
            }
        };
        let result = act(cm);
        self.run_agent(now);
        Ok(result)
    }

    fn new_cm(&self) -> io::Result<Cm> {
        let engine = self.engine.config();
        let ip = self.port.info().ip;
        let config = AgentConfig {
            gids: engine.gids.clone(),
            pkeys: engine.pkeys.clone(),
            active_mtu: engine.active_mtu,
            ..AgentConfig::new(Guid::of(ip), ip)
        };
        let agent = Agent::new(config, random()?);
        let events = Arc::clone(&self.cm.events);
        Ok(Cm { agent, events, early: EarlyRequests::default() })
    }

    /// Moves datagrams, first packets and events between engine and agent. The first datagram creates the agent, which
    /// answers requests also if the program never listens.
    pub(super) fn poll_cm(&mut self, now: Instant) {
        while let Some(qpn) = self.engine.poll_first_packet() {
            if self.engine.config().shard == 0 {
                self.handle_first_packet(now, qpn);
            } else {
                self.cm.first_packets.push(qpn);
            }
        }
        while let Some(mad) = self.engine.poll_mad_response() {
            let Self { engine, port, .. } = self;
            engine.send_mad(mad, |from, wanted| port.source_port(from, wanted));
        }
        while let Some(mad) = self.engine.poll_mad() {
            // Without random numbers there is no agent, and the sender repeats its message.
            let _ = self.with_cm(now, |cm| cm.handle_mad(now, &mad));
        }
        if self.cm.is_due(now) {
            if let Some(cm) = &mut self.cm.cm {
                cm.agent.handle_timeout(now);
            }
            self.run_agent(now);
        } else if self.cm.has_unsent {
            self.run_agent(now);
        }
    }

    /// Ends every connection with the message that its state requires, at the end of the process. These messages, and the
    /// last ones of connections that have ended, are repeated now, since they may be lost.
    pub(crate) fn end_connections(&mut self, now: Instant) {
        let Some(cm) = &mut self.cm.cm else { return };
        while let Some(request) = cm.early.take_any() {
            cm.agent.handle_mad(now, &request);
        }
        for conn in cm.events.connections() {
            cm.events.remove(conn);
            cm.agent.destroy(now, conn);
        }
        cm.agent.repeat_last_messages(now);
        self.run_agent(now);
    }

    /// Returns whether the end of the process has to end connections, or to send their last message again.
    pub(crate) fn has_connections(&self) -> bool {
        let has = |cm: &Cm| {
            cm.events.has_connections()
                || cm.agent.has_confirmations()
                || cm.early.deadline().is_some()
        };
        self.cm.cm.as_deref().is_some_and(has)
    }

    /// Returns the counters of the connection manager: zeros before its first use.
    pub(crate) fn cm_counters(&self) -> Counters {
        self.cm.cm.as_ref().map(|cm| *cm.agent.counters()).unwrap_or_default()
    }

    /// Returns the services with a listener, sorted.
    pub(crate) fn listening(&self) -> Vec<ServiceId> {
        self.cm.cm.as_ref().map(|cm| cm.agent.listening()).unwrap_or_default()
    }

    /// Returns the events of the connection manager.
    pub(crate) fn cm_events(&self) -> &Arc<CmEvents> {
        &self.cm.events
    }

    /// Handles the first packet of a queue pair of the device, of any shard.
    pub(crate) fn handle_first_packet(&mut self, now: Instant, qpn: Qpn) {
        if let Some(cm) = &mut self.cm.cm {
            cm.agent.handle_first_packet(now, qpn);
            self.run_agent(now);
        }
    }

    /// Sends the messages of the agent and collects its events.
    fn run_agent(&mut self, now: Instant) {
        if let Some(cm) = &mut self.cm.cm {
            cm.handle_early_requests(now);
        }
        loop {
            let Self { cm: CmSlot { cm: Some(cm), .. }, engine, port, .. } = self else { return };
            let mut has_sent = false;
            let mut is_empty = false;
            while engine.has_room_for_mad() && !is_empty {
                match cm.agent.poll_mad(now) {
                    Some(mad) => {
                        engine.send_mad(mad, |from, wanted| port.source_port(from, wanted));
                        has_sent = true;
                    }
                    None => is_empty = true,
                }
            }
            self.cm.has_unsent = !is_empty;
            if has_sent {
                self.transmit(now);
            }
            // Without progress, the port is busy.
            if is_empty || !has_sent {
                break;
            }
        }
        let Some(cm) = &mut self.cm.cm else { return };
        while let Some((conn, event)) = cm.agent.poll_event() {
            cm.events.push(conn, event);
            self.cm.has_events = true;
        }
    }
}
