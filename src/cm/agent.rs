//! The agent of a device.

use crate::engine::{OutgoingMad, QpAttr, QpState, ReceivedMad};
use crate::ids::Qpn;
use crate::time::{AckTimeout, Instant};
use crate::wire::cm::ServiceId;

use super::error::Error;
use super::state::State;
use super::types::{
    Accept, AgentConfig, ConnId, Connect, Event, Listen, Reject, SidrReply, SidrRequest,
};

/// Connection manager of a device, one for all its queue pairs.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
}

impl Agent {
    /// Returns an agent that derives its communication IDs and starting PSNs from `seed`.
    pub fn new(config: AgentConfig, seed: [u8; 32]) -> Self {
        let _ = seed;
        Self { config }
    }

    // ---- inputs ----

    /// Handles a received management datagram. No datagram can make it fail: unacceptable ones are dropped and
    /// counted.
    pub fn handle_mad(&mut self, now: Instant, mad: &ReceivedMad) {
        let _ = (now, mad);
    }

    /// Handles expired timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// Handles the first packet of a connection's peer, which confirms the connection as an RTU does. Ignores queue
    /// pairs without a connection in REP_SENT or MRA_REP_RCVD.
    pub fn handle_first_packet(&mut self, now: Instant, qpn: Qpn) {
        let _ = (now, qpn);
    }

    /// Listens for requests.
    ///
    /// # Errors
    ///
    /// [`Error::ServiceInUse`], [`Error::TooMany`], [`Error::Source`].
    pub fn listen(&mut self, service: ServiceId, listen: Listen) -> Result<ConnId, Error> {
        let _ = listen;
        Err(Error::ServiceInUse(service))
    }

    /// Sends a REQ.
    ///
    /// # Errors
    ///
    /// [`Error::PrivateData`], [`Error::TooMany`], [`Error::Source`], [`Error::Family`], [`Error::QpType`],
    /// [`Error::Range`].
    pub fn connect(&mut self, now: Instant, connect: Connect) -> Result<ConnId, Error> {
        let _ = (now, connect);
        Err(Error::TooMany { max: 0 })
    }

    /// Sends a REP, in answer to a [request](Event::Request). The queue pair must be in RTS before.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`], [`Error::State`], [`Error::PrivateData`], [`Error::Range`].
    pub fn accept(&mut self, now: Instant, id: ConnId, accept: Accept) -> Result<(), Error> {
        let _ = (now, accept);
        Err(Error::UnknownId(id))
    }

    /// Sends an RTU, in answer to a [reply](Event::Reply). The queue pair must be in RTS before. The connection is
    /// established.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`], [`Error::State`].
    pub fn establish(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        let _ = now;
        Err(Error::UnknownId(id))
    }

    /// Sends a REJ, in answer to a request or a reply.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`], [`Error::State`], [`Error::PrivateData`].
    pub fn reject(&mut self, now: Instant, id: ConnId, reject: Reject) -> Result<(), Error> {
        let _ = (now, reject);
        Err(Error::UnknownId(id))
    }

    /// Disconnects: sends a DREQ, or a DREP if a DREQ arrived. Does nothing if the connection has ended.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`]; [`Error::State`] before there was a connection.
    pub fn disconnect(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        let _ = now;
        Err(Error::UnknownId(id))
    }

    /// Destroys an id: it has no further events. A connection or a request ends with the message that its state
    /// demands, so the peer learns of it. A destroyed listener's requests that no event has reported are rejected.
    pub fn destroy(&mut self, now: Instant, id: ConnId) {
        let _ = (now, id);
    }

    /// Sends a SIDR_REQ, which asks for the queue pair of a UD service.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub fn resolve_service(&mut self, now: Instant, request: SidrRequest) -> Result<ConnId, Error> {
        let _ = (now, request);
        Err(Error::TooMany { max: 0 })
    }

    /// Sends a SIDR_REP, in answer to a [service request](Event::ServiceRequest). The id has no further events.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`], [`Error::State`], [`Error::PrivateData`].
    pub fn reply_service(
        &mut self,
        now: Instant,
        id: ConnId,
        reply: SidrReply,
    ) -> Result<(), Error> {
        let _ = (now, reply);
        Err(Error::UnknownId(id))
    }

    /// Sets the ACK timeout of a connection's own queue pair, instead of the one that the messages name
    /// (`RDMA_OPTION_ID_ACK_TIMEOUT`).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`].
    pub fn set_ack_timeout(&mut self, id: ConnId, timeout: AckTimeout) -> Result<(), Error> {
        let _ = timeout;
        Err(Error::UnknownId(id))
    }

    /// Sets the GID table and the active MTU of the device, after a change of its interface.
    pub fn set_addresses(&mut self, gids: &[crate::ids::Gid], active_mtu: crate::ids::Mtu) {
        self.config.gids = gids.to_vec();
        self.config.active_mtu = active_mtu;
    }

    // ---- outputs ----

    /// Returns the next management datagram to send.
    pub fn poll_mad(&mut self, now: Instant) -> Option<OutgoingMad> {
        let _ = now;
        None
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<(ConnId, Event)> {
        None
    }

    // ---- queries ----

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Returns the state of an id.
    pub fn state(&self, id: ConnId) -> Option<State> {
        let _ = id;
        None
    }

    /// Returns the configuration.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Returns the attributes that a connection's queue pair needs for the transition to INIT, RTR or RTS.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`]; [`Error::State`] for RTR and RTS before the peer's REQ or REP;
    /// [`Error::NoAttributes`] for other states.
    pub fn qp_attr(&self, id: ConnId, to: QpState) -> Result<QpAttr, Error> {
        let _ = to;
        Err(Error::UnknownId(id))
    }
}
