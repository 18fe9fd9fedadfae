//! The active side: REQ, and the REP, MRA or REJ that answers it.

use crate::engine::{MadPath, QpType};
use crate::ids::Qpn;
use crate::time::Instant;
use crate::wire::Mad;
use crate::wire::cm::{Body, IpHeader, Message, Mra, Path, Rep, Req};

use super::agent::{Agent, check_private, check_range};
use super::conn::{Conn, Local, Peer, Role, ack_timeout, timeout};
use super::error::Error;
use super::outputs::{datagram, message};
use super::reason::RejectReason;
use super::state::State;
use super::types::{CmPath, ConnId, Connect, Ece, Event, Offer, Reply};

/// CM timeout of both sides in a REQ, as an exponent: 4.096 s, as in Linux.
const CM_TIMEOUT: u8 = 20;

/// Retransmissions of a message, as in Linux.
const MAX_CM_RETRIES: u8 = 15;

/// LID of a routed path.
const PERMISSIVE_LID: u16 = 0xffff;

/// Service timeout in an MRA, as an exponent, as in Linux.
const MRA_TIMEOUT: u8 = 24;

/// What an MRA or REJ answers.
pub(super) const OF_REQ: u8 = 0;
pub(super) const OF_REP: u8 = 1;
pub(super) const OF_OTHER: u8 = 2;

impl Agent {
    /// Sends a REQ.
    ///
    /// # Errors
    ///
    /// [`Error::PrivateData`], [`Error::TooMany`], [`Error::Source`], [`Error::Family`], [`Error::PKey`],
    /// [`Error::QpType`], [`Error::Range`].
    pub fn connect(&mut self, now: Instant, connect: Connect) -> Result<ConnId, Error> {
        let Connect { path, qp_type, ip, .. } = connect;
        if !matches!(qp_type, QpType::Rc | QpType::Uc | QpType::XrcIni) {
            return Err(Error::QpType { found: qp_type, call: "connect" });
        }
        self.check_path(&path)?;
        let room = Req::PRIVATE_DATA - if ip.is_some() { IpHeader::LEN } else { 0 };
        check_private(connect.private_data.len(), room)?;
        check_range("retry_count", connect.retry_count, 7)?;
        check_range("rnr_retry_count", connect.rnr_retry_count, 7)?;
        let id = self.new_id()?;
        let local = Local {
            qpn: connect.qpn,
            psn: self.new_psn(),
            responder_resources: connect.responder_resources,
            initiator_depth: connect.initiator_depth,
            retry_count: connect.retry_count,
            rnr_retry_count: connect.rnr_retry_count,
            ack_timeout: connect.ack_timeout.unwrap_or(ack_timeout(0, path.life_time)),
            is_timeout_set: connect.ack_timeout.is_some(),
        };
        let conn = Conn {
            id,
            state: State::ReqSent,
            role: Role::Active,
            qp_type,
            path,
            local,
            peer: None,
            transaction_id: self.transaction_id(id),
            interval: timeout(path.life_time) * 2 + timeout(CM_TIMEOUT),
            retries: MAX_CM_RETRIES,
            retransmission: None,
            deadline: None,
            is_destroyed: false,
            is_ended: false,
        };
        let req = self.req(&conn, &connect);
        let bytes = datagram(&Message {
            transaction_id: conn.transaction_id,
            modifier: connect.ece.options,
            body: Body::Req(req),
            ip,
            private_data: &connect.private_data,
        });
        self.conns.insert(conn);
        self.outputs.counters.connects += 1;
        self.send_repeatedly(now, id, bytes);
        Ok(id)
    }

    /// Returns the fields of a REQ.
    fn req(&self, conn: &Conn, connect: &Connect) -> Req {
        let CmPath { hop_limit, .. } = conn.path;
        let is_routed = hop_limit > 1;
        let lid = if is_routed { PERMISSIVE_LID } else { 0 };
        let (transport, extended_transport) = match conn.qp_type {
            QpType::Uc => (1, 0),
            QpType::XrcIni => (3, 1),
            _ => (0, 0),
        };
        Req {
            local_id: conn.id.0,
            ece_vendor: connect.ece.vendor,
            service_id: connect.service,
            ca_guid: self.config.guid,
            qpn: conn.local.qpn,
            responder_resources: conn.local.responder_resources,
            initiator_depth: conn.local.initiator_depth,
            remote_cm_timeout: CM_TIMEOUT,
            transport,
            flow_control: connect.flow_control,
            starting_psn: conn.local.psn,
            local_cm_timeout: CM_TIMEOUT,
            retry_count: conn.local.retry_count,
            pkey: conn.path.pkey,
            path_mtu: Some(conn.path.mtu),
            rnr_retry_count: conn.local.rnr_retry_count,
            max_cm_retries: MAX_CM_RETRIES,
            srq: connect.srq,
            extended_transport,
            primary: Path {
                local_lid: lid,
                remote_lid: lid,
                local_gid: conn.path.source,
                remote_gid: conn.path.destination,
                flow_label: conn.path.flow_label,
                traffic_class: conn.path.traffic_class,
                hop_limit,
                service_level: conn.path.service_level,
                subnet_local: !is_routed,
                ack_timeout: conn.local.ack_timeout.exponent(),
                ..Path::parse(&[])
            },
            ..Req::parse(&[])
        }
    }

    /// Sends an RTU, in answer to a [reply](Event::Reply). The queue pair must be in RTS before. The connection is
    /// established.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`], [`Error::State`].
    pub fn establish(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        let _ = now;
        let conn = self.conns.get_mut(id).filter(|conn| conn.is_observed());
        let conn = conn.ok_or(Error::UnknownId(id))?;
        if conn.state != State::RepRcvd {
            return Err(Error::State { found: conn.state, needed: "REP_RCVD" });
        }
        conn.state = State::Established;
        self.outputs.counters.established += 1;
        let rtu = message(conn.transaction_id, Body::Rtu(conn.ids()), &[]);
        self.outputs.send(conn.mad_path(), datagram(&rtu));
        Ok(())
    }

    /// Sends the message that a connection repeats until the peer answers.
    pub(super) fn send_repeatedly(
        &mut self,
        now: Instant,
        id: ConnId,
        bytes: Box<[u8; Mad::DATAGRAM_LEN]>,
    ) {
        let with_early = self.config.early_retransmissions;
        let Some(conn) = self.conns.get_mut(id) else { return };
        self.outputs.send(conn.mad_path(), bytes.clone());
        let deadline = conn.repeat(now, bytes, with_early);
        self.timers.set(id, &mut conn.deadline, Some(deadline));
    }

    /// Ends the repetition of a connection's message.
    pub(super) fn stop_repeating(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.retransmission = None;
            self.timers.set(id, &mut conn.deadline, None);
        }
    }

    pub(super) fn handle_rep(
        &mut self,
        now: Instant,
        from: &MadPath,
        message: &Message<'_>,
        rep: &Rep,
    ) {
        let id = ConnId(rep.remote_id);
        let conn = self.conns.get(id).filter(|conn| conn.role == Role::Active);
        let Some(conn) = conn.filter(|conn| conn.knows_address(from.destination)) else {
            self.outputs.counters.unknown_ids += 1;
            return;
        };
        match conn.state {
            State::ReqSent | State::MraReqRcvd => {}
            _ => return self.handle_copy_of_rep(id, rep),
        }
        let qpn = match conn.qp_type {
            QpType::XrcIni => Qpn::new(rep.eecn),
            _ => rep.qpn,
        };
        let peer = Peer { guid: rep.ca_guid, comm_id: rep.local_id, qpn, psn: rep.starting_psn };
        if rep.local_id.0 == 0 || self.conns.with_remote_id(peer.guid, peer.comm_id).is_some() {
            self.outputs.counters.invalid += 1;
            return;
        }
        if let Some(old) = self.conns.with_remote_qpn(peer.guid, peer.qpn) {
            let ids = (ConnId(rep.remote_id).0, rep.local_id);
            self.reject_message(
                from,
                message.transaction_id,
                ids,
                (OF_REP, RejectReason::STALE_CONNECTION, &[]),
            );
            return self.end_stale(now, old, from);
        }
        self.conns.enter_peer(id, &peer);
        self.stop_repeating(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.state = State::RepRcvd;
        conn.peer = Some(peer);
        conn.local.responder_resources = rep.initiator_depth;
        conn.local.initiator_depth = rep.responder_resources;
        conn.local.rnr_retry_count = rep.rnr_retry_count;
        if !conn.local.is_timeout_set {
            conn.local.ack_timeout = ack_timeout(rep.target_ack_delay, conn.path.life_time);
        }
        let offer = Offer {
            remote_qpn: qpn,
            starting_psn: rep.starting_psn,
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            rnr_retry_count: rep.rnr_retry_count,
            flow_control: rep.flow_control,
            srq: rep.srq,
            ece: Ece { vendor: rep.ece_vendor(), options: message.modifier },
        };
        let reply = Reply { offer, private_data: message.private_data.to_vec() };
        self.tell(id, Event::Reply(Box::new(reply)));
    }

    /// Handles a REP that arrived before: the RTU may be lost, or the consumer has not decided.
    fn handle_copy_of_rep(&mut self, id: ConnId, rep: &Rep) {
        let Some(conn) = self.conns.get(id) else { return };
        if conn.peer.is_none_or(|peer| peer.comm_id != rep.local_id) {
            self.outputs.counters.unknown_ids += 1;
            return;
        }
        self.outputs.counters.duplicates += 1;
        let body = match conn.state {
            State::Established => Body::Rtu(conn.ids()),
            State::RepRcvd => Body::Mra(conn.mra(OF_REP)),
            _ => return,
        };
        self.outputs.answer(conn.mad_path(), &message(conn.transaction_id, body, &[]));
    }

    pub(super) fn handle_mra(&mut self, now: Instant, from: &MadPath, mra: &Mra) {
        let id = ConnId(mra.remote_id);
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.knows_address(from.destination))
        else {
            self.outputs.counters.unknown_ids += 1;
            return;
        };
        let is_peers = conn.is_from_peer(mra.local_id, from.destination);
        conn.state = match (conn.state, mra.message) {
            (State::ReqSent, OF_REQ) => State::MraReqRcvd,
            (State::RepSent, OF_REP) if is_peers => State::MraRepRcvd,
            _ => {
                self.outputs.counters.duplicates += 1;
                return;
            }
        };
        let ack_timeout = timeout(conn.local.ack_timeout.exponent());
        let Some(retransmission) = &mut conn.retransmission else { return };
        retransmission.extend(now, timeout(mra.service_timeout) + ack_timeout);
        let deadline = Some(retransmission.deadline());
        self.timers.set(id, &mut conn.deadline, deadline);
    }
}

impl Conn {
    /// Returns an MRA, for a message that the consumer has not answered.
    pub(super) fn mra(&self, of: u8) -> Mra {
        let ids = self.ids();
        Mra {
            local_id: ids.local_id,
            remote_id: ids.remote_id,
            message: of,
            service_timeout: MRA_TIMEOUT,
        }
    }
}
