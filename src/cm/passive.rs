//! The passive side: listeners, REQs, and the REP that answers one.

use std::net::IpAddr;

use crate::engine::{MadPath, QpType};
use crate::ids::Qpn;
use crate::time::{AckTimeout, Instant};
use crate::wire::cm::{Body, CommId, Ids, IpHeader, Message, Rej, Rep, Req, ServiceId};

use super::active::OF_REQ;
use super::agent::{Agent, check_private, check_range};
use super::conn::{Conn, Local, MAX_CM_TIMEOUT, Peer, Role, timeout};
use super::error::Error;
use super::outputs::{datagram, message};
use super::reason::RejectReason;
use super::state::State;
use super::types::{Accept, CmPath, ConnId, Ece, Event, Listen, Offer, Request};

/// Refusal of a REQ: the reason, and the additional information.
type Refusal = (RejectReason, Vec<u8>);

impl Agent {
    /// Listens for requests.
    ///
    /// # Errors
    ///
    /// [`Error::ServiceInUse`], [`Error::TooMany`], [`Error::Source`] if the destination is no address of the device.
    pub fn listen(&mut self, service: ServiceId, listen: Listen) -> Result<ConnId, Error> {
        if let Some(gid) = listen.destination.filter(|gid| !self.config.gids.contains(gid)) {
            return Err(Error::Source(gid));
        }
        let id = self.new_id()?;
        self.listeners.insert(id, service, listen)?;
        Ok(id)
    }

    /// Handles a REQ. The checks are those of Linux, in its order.
    pub(super) fn handle_req(
        &mut self,
        now: Instant,
        from: &MadPath,
        message: &Message<'_>,
        req: &Req,
    ) {
        if req.local_id.0 == 0 {
            self.outputs.counters.invalid += 1;
            return;
        }
        if let Some(id) = self.conns.with_remote_id(req.ca_guid, req.local_id) {
            return self.handle_copy_of_req(id, message);
        }
        let ids = (CommId(0), req.local_id);
        if let Some(old) = self.conns.with_remote_qpn(req.ca_guid, req.qpn) {
            let why = (OF_REQ, RejectReason::STALE_CONNECTION, &[][..]);
            self.reject_message(from, message.transaction_id, ids, why);
            return self.end_stale(now, old, from);
        }
        let (listener, qp_type) = match self.admit_req(from, message, req) {
            Ok(admitted) => admitted,
            Err((reason, info)) => {
                let why = (OF_REQ, reason, info.as_slice());
                return self.reject_message(from, message.transaction_id, ids, why);
            }
        };
        if !self.listeners.get(listener).is_some_and(|listener| listener.has_room()) {
            self.outputs.counters.backlog_full += 1;
            return;
        }
        let Ok(id) = self.new_id() else {
            let why = (OF_REQ, RejectReason::NO_RESOURCES, &[][..]);
            return self.reject_message(from, message.transaction_id, ids, why);
        };
        let psn = self.new_psn();
        let conn = passive(id, listener, (qp_type, psn), (message, req));
        let peer =
            Peer { guid: req.ca_guid, comm_id: req.local_id, qpn: req.qpn, psn: req.starting_psn };
        let path = conn.path;
        self.conns.insert(Conn { peer: Some(peer), ..conn });
        self.conns.enter_peer(id, &peer);
        self.outputs.counters.requests += 1;
        let Some(listener) = self.listeners.get_mut(listener) else { return };
        listener.pending.insert(id);
        let offer = Offer {
            remote_qpn: req.qpn,
            starting_psn: req.starting_psn,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            rnr_retry_count: req.rnr_retry_count,
            flow_control: req.flow_control,
            srq: req.srq,
            ece: Ece { vendor: req.ece_vendor, options: message.modifier },
        };
        let request = Request {
            listener: listener.id,
            token: listener.listen.token,
            service: req.service_id,
            ip: message.ip,
            path,
            qp_type,
            retry_count: req.retry_count,
            offer,
            private_data: message.private_data.to_vec(),
        };
        self.tell(id, Event::Request(Box::new(request)));
    }

    /// Returns the listener for a REQ and the type of its queue pair, or the reason to reject it.
    fn admit_req(
        &self,
        from: &MadPath,
        message: &Message<'_>,
        req: &Req,
    ) -> Result<(ConnId, QpType), Refusal> {
        let refuse = |reason| Err((reason, Vec::new()));
        if !self.listeners.has_service(req.service_id, false) {
            return refuse(RejectReason::INVALID_SERVICE_ID);
        }
        let Some(qp_type) = qp_type(req) else {
            return refuse(RejectReason::INVALID_TRANSPORT);
        };
        let (local, remote) = (req.primary.remote_gid, req.primary.local_gid);
        // Replies and data go to the addresses in the REQ, so a translation of addresses on the way breaks the
        // connection. Linux does not check the peer's, and the connection does not come about.
        let is_as_sent = local.ip() == from.source && remote.ip() == from.destination;
        let is_member = self.pkey_index(req.pkey).is_some();
        if !is_as_sent || !is_member || !self.config.gids.contains(&local) {
            let gid = self.config.gids.first().copied().unwrap_or_default();
            return Err((RejectReason::INVALID_GID, gid.0.to_vec()));
        }
        let max = self.config.active_mtu;
        let Some(_) = req.path_mtu.filter(|mtu| *mtu <= max) else {
            return Err((RejectReason::INVALID_MTU, vec![max as u8]));
        };
        let destination = match &message.ip {
            Some(ip) if !is_valid(ip, from.source) => return refuse(RejectReason::CONSUMER),
            Some(ip) => ip.destination_ip.into(),
            None => local,
        };
        match self.listeners.find(req.service_id, destination, false) {
            Some(listener) if listener.listen.qp_type == qp_type => Ok((listener.id, qp_type)),
            _ => refuse(RejectReason::CONSUMER),
        }
    }

    /// Handles a REQ that arrived before.
    fn handle_copy_of_req(&mut self, id: ConnId, original: &Message<'_>) {
        self.outputs.counters.duplicates += 1;
        let Some(conn) = self.conns.get(id) else { return };
        let ids = conn.ids();
        let body = match conn.state {
            // The consumer has not answered: the peer must wait.
            State::ReqRcvd => Body::Mra(conn.mra(OF_REQ)),
            State::Timewait => {
                self.outputs.counters.rejects_sent += 1;
                let Ids { local_id, remote_id } = ids;
                let reason = RejectReason::STALE_CONNECTION.0;
                Body::Rej(Rej { local_id, remote_id, reason, ..Rej::parse(&[]) })
            }
            // REP, RTU and DREQ have timers of their own.
            _ => return,
        };
        let path = conn.mad_path();
        self.outputs.answer(path, &message(original.transaction_id, body, &[]));
    }

    /// Sends a REP, in answer to a [request](Event::Request). The queue pair must be in RTS before.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`], [`Error::State`], [`Error::PrivateData`], [`Error::Range`].
    pub fn accept(&mut self, now: Instant, id: ConnId, accept: Accept) -> Result<(), Error> {
        check_private(accept.private_data.len(), Rep::PRIVATE_DATA)?;
        check_range("rnr_retry_count", accept.rnr_retry_count, 7)?;
        let guid = self.config.guid;
        let conn = self.conns.get_mut(id).filter(|conn| conn.is_observed());
        let conn = conn.ok_or(Error::UnknownId(id))?;
        let Role::Passive { listener, .. } = conn.role else {
            return Err(Error::State { found: conn.state, needed: "REQ_RCVD" });
        };
        if conn.state != State::ReqRcvd {
            return Err(Error::State { found: conn.state, needed: "REQ_RCVD" });
        }
        conn.state = State::RepSent;
        conn.local.qpn = accept.qpn;
        conn.local.responder_resources = accept.responder_resources;
        conn.local.initiator_depth = accept.initiator_depth;
        let is_xrc = conn.qp_type == QpType::XrcTgt;
        let ids = conn.ids();
        let rep = Rep {
            local_id: ids.local_id,
            remote_id: ids.remote_id,
            qpn: if is_xrc { Qpn::default() } else { accept.qpn },
            eecn: if is_xrc { accept.qpn.value() } else { 0 },
            starting_psn: conn.local.psn,
            responder_resources: accept.responder_resources,
            initiator_depth: accept.initiator_depth,
            flow_control: accept.flow_control,
            rnr_retry_count: accept.rnr_retry_count,
            srq: accept.srq || is_xrc,
            ca_guid: guid,
            ..Rep::parse(&[])
        };
        let bytes = datagram(&Message {
            modifier: accept.ece.options,
            ..message(
                conn.transaction_id,
                Body::Rep(rep.with_ece_vendor(accept.ece.vendor)),
                &accept.private_data,
            )
        });
        self.conns.await_first_packet(id, accept.qpn);
        self.answered(id, listener);
        self.send_repeatedly(now, id, bytes);
        Ok(())
    }

    /// Removes a request from the backlog of its listener.
    pub(super) fn answered(&mut self, id: ConnId, listener: ConnId) {
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.pending.remove(&id);
        }
    }

    pub(super) fn handle_rtu(&mut self, from: &MadPath, ids: &Ids) {
        let id = ConnId(ids.remote_id);
        let conn = self.conns.get(id);
        if !conn.is_some_and(|conn| conn.is_from_peer(ids.local_id, from.destination)) {
            self.outputs.counters.unknown_ids += 1;
            return;
        }
        if !self.establish_passive(id) {
            self.outputs.counters.duplicates += 1;
        }
    }

    /// Handles the first packet of a connection's peer, which confirms the connection as an RTU does. Ignores queue
    /// pairs without a connection in REP_SENT or MRA_REP_RCVD.
    pub fn handle_first_packet(&mut self, now: Instant, qpn: Qpn) {
        let _ = now;
        if let Some(id) = self.conns.with_local_qpn(qpn) {
            self.establish_passive(id);
        }
    }

    /// Establishes a connection that waits for an RTU. Returns false if it does not.
    fn establish_passive(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(id) else { return false };
        if !matches!(conn.state, State::RepSent | State::MraRepRcvd) {
            return false;
        }
        conn.state = State::Established;
        let qpn = conn.local.qpn;
        self.conns.forget_first_packet(id, qpn);
        self.stop_repeating(id);
        self.outputs.counters.established += 1;
        self.tell(id, Event::Established);
        true
    }

    /// Rejects a message that has no id here.
    pub(super) fn reject_message(
        &mut self,
        to: &MadPath,
        transaction_id: u64,
        (local_id, remote_id): (CommId, CommId),
        (of, reason, info): (u8, RejectReason, &[u8]),
    ) {
        let counters = &mut self.outputs.counters;
        counters.rejects_sent += 1;
        counters.stale += u64::from(reason == RejectReason::STALE_CONNECTION);
        let rej = Rej {
            local_id,
            remote_id,
            message: of,
            reason: reason.0,
            ..Rej::parse(&[]).with_info(info)
        };
        self.outputs.answer(*to, &message(transaction_id, Body::Rej(rej), &[]));
    }
}

/// Returns the connection of a REQ, without its peer.
fn passive(
    id: ConnId,
    listener: ConnId,
    (qp_type, psn): (QpType, crate::psn::Psn),
    (message, req): (&Message<'_>, &Req),
) -> Conn {
    let primary = &req.primary;
    let hop_limit = if primary.hop_limit > 1 { primary.hop_limit } else { CmPath::HOP_LIMIT };
    let path = CmPath {
        source: primary.remote_gid,
        destination: primary.local_gid,
        flow_label: primary.flow_label,
        traffic_class: primary.traffic_class,
        hop_limit,
        service_level: primary.service_level,
        mtu: req.path_mtu.unwrap_or(crate::ids::Mtu::Mtu256),
        pkey: req.pkey,
        life_time: primary.ack_timeout.saturating_sub(1),
    };
    let local = Local {
        qpn: Qpn::default(),
        psn,
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        ack_timeout: AckTimeout::new(primary.ack_timeout).unwrap_or_default(),
        is_timeout_set: false,
    };
    Conn {
        id,
        state: State::ReqRcvd,
        role: Role::Passive { listener, is_reported: false },
        qp_type,
        path,
        local,
        peer: None,
        transaction_id: message.transaction_id,
        interval: timeout(req.local_cm_timeout.min(MAX_CM_TIMEOUT)),
        retries: req.max_cm_retries,
        retransmission: None,
        deadline: None,
        is_destroyed: false,
        is_ended: false,
    }
}

/// Returns the type of the queue pair that a REQ asks for; `None` for reliable datagrams and unassigned transports.
fn qp_type(req: &Req) -> Option<QpType> {
    match (req.transport, req.extended_transport) {
        (0, _) => Some(QpType::Rc),
        (1, _) => Some(QpType::Uc),
        (3, 1) => Some(QpType::XrcTgt),
        _ => None,
    }
}

/// Returns whether the addresses of a request to `own` can belong to a connection.
pub(super) fn is_valid(ip: &IpHeader, own: IpAddr) -> bool {
    let is_version = |address: IpAddr| address.is_ipv4() == (ip.ip_version == 4);
    let source = ip.source_ip;
    let is_broadcast = matches!(source, IpAddr::V4(v4) if v4.is_broadcast());
    ip.version == 0
        && matches!(ip.ip_version, 4 | 6)
        && is_version(source)
        && is_version(ip.destination_ip)
        && is_version(own)
        && !source.is_multicast()
        && !source.is_unspecified()
        && !is_broadcast
        // A loopback address is one of this host.
        && (!source.is_loopback() || own.is_loopback())
}
