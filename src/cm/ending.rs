//! Ends of connections: REJ, DREQ, DREP, TIMEWAIT, and timeouts.

use crate::engine::{MadPath, OutgoingMad};
use crate::time::Instant;
use crate::wire::cm::{Body, Dreq, Guid, Ids, Info, Message, Rej};

use super::active::{OF_OTHER, OF_REP, OF_REQ};
use super::agent::{Agent, check_private};
use super::conn::{Conn, Role, timeout};
use super::error::Error;
use super::outputs::{datagram, message};
use super::reason::RejectReason;
use super::state::State;
use super::types::{ConnId, Event, Reject};

impl Agent {
    // ---- calls ----

    /// Sends a REJ, in answer to a request or a reply, or to give up a connection that is not established.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`], [`Error::State`], [`Error::PrivateData`].
    pub fn reject(&mut self, now: Instant, id: ConnId, reject: Reject) -> Result<(), Error> {
        check_private(reject.private_data.len(), Rej::PRIVATE_DATA)?;
        check_private(reject.info.len(), Info::LEN)?;
        let conn = self.conns.get(id).filter(|conn| conn.is_observed());
        let conn = conn.ok_or(Error::UnknownId(id))?;
        if !conn.is_connecting() {
            let needed = "a state before ESTABLISHED";
            return Err(Error::State { found: conn.state, needed });
        }
        self.send_rej(now, id, &reject);
        Ok(())
    }

    /// Disconnects: sends a DREQ, or a DREP if a DREQ arrived. In other states of a connection it does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`] if there is no such connection.
    pub fn disconnect(&mut self, now: Instant, id: ConnId) -> Result<(), Error> {
        let conn = self.conns.get(id).filter(|conn| conn.is_observed());
        match conn.ok_or(Error::UnknownId(id))?.state {
            State::Established => self.send_dreq(now, id),
            State::DreqRcvd => self.send_drep(now, id),
            _ => {}
        }
        Ok(())
    }

    /// Destroys an id: it has no further events. A connection or a request ends with the message that its state
    /// demands, so that the peer learns of it. A destroyed listener's requests that no event has reported are
    /// rejected.
    pub fn destroy(&mut self, now: Instant, id: ConnId) {
        if let Some(listener) = self.listeners.remove(id) {
            for request in listener.pending {
                if self.is_unreported(request) {
                    self.destroy(now, request);
                }
            }
            return;
        }
        if self.destroy_service(id) {
            return;
        }
        let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.is_observed()) else { return };
        conn.is_destroyed = true;
        match conn.state {
            State::ReqSent | State::MraReqRcvd => {
                let guid = self.config.guid.0.to_be_bytes().to_vec();
                let reason = RejectReason::TIMEOUT;
                self.send_rej(now, id, &Reject { reason, info: guid, private_data: Vec::new() });
            }
            State::ReqRcvd | State::RepRcvd | State::RepSent | State::MraRepRcvd => {
                self.send_rej(now, id, &Reject::consumer(&[]));
            }
            State::Established => {
                self.send_dreq(now, id);
                self.end_soon(id);
            }
            State::DreqSent => self.end_soon(id),
            State::DreqRcvd => self.send_drep(now, id),
            _ => self.drop_idle(id),
        }
    }

    /// Destroys every id, at the end of the process or of the device: each peer gets the message that its state
    /// demands.
    pub fn destroy_all(&mut self, now: Instant) {
        let ids = [self.listeners.ids(), self.services.ids(), self.conns.ids()];
        for id in ids.concat() {
            self.destroy(now, id);
        }
    }

    /// Sends what is queued twice, and the DREPs of the last seconds twice more, before the process ends. After that no
    /// thread repeats a message or answers a DREQ, which a peer repeats for a minute.
    pub fn repeat_last_messages(&mut self, now: Instant) {
        self.outputs.mads.extend(self.confirmations.take(now));
        self.outputs.repeat();
    }

    /// Returns whether [`repeat_last_messages`](Self::repeat_last_messages) may have DREPs to send.
    pub fn has_confirmations(&self) -> bool {
        !self.confirmations.is_empty()
    }

    /// Returns whether the consumer has not got the event of a request.
    fn is_unreported(&self, id: ConnId) -> bool {
        let role = self.conns.get(id).map(|conn| conn.role);
        matches!(role, Some(Role::Passive { is_reported: false, .. }))
            || self.services.is_unreported(id)
    }

    /// Lets a DREQ be repeated only until its present interval ends, because no consumer waits for the answer.
    fn end_soon(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && let Some(retransmission) = &mut conn.retransmission
        {
            retransmission.end_soon();
        }
    }

    // ---- messages ----

    pub(super) fn handle_rej(
        &mut self,
        now: Instant,
        from: &MadPath,
        message: &Message<'_>,
        rej: &Rej,
    ) {
        let Some(id) = self.rejected(from, rej) else {
            self.outputs.counters.unknown_ids += 1;
            return;
        };
        let Some(conn) = self.conns.get_mut(id) else { return };
        let reason = RejectReason(rej.reason);
        let next = match conn.state {
            State::ReqSent
            | State::MraReqRcvd
            | State::ReqRcvd
            | State::RepSent
            | State::MraRepRcvd => match reason {
                RejectReason::STALE_CONNECTION => State::Timewait,
                _ => State::Idle,
            },
            State::RepRcvd | State::DreqSent | State::Established => State::Timewait,
            _ => {
                self.outputs.counters.duplicates += 1;
                return;
            }
        };
        self.outputs.counters.rejects_received += 1;
        let is_ended = std::mem::replace(&mut conn.is_ended, true);
        if !is_ended {
            let info = rej.info.used(rej.info_len).to_vec();
            let private_data = message.private_data.to_vec();
            self.tell(id, Event::Rejected { reason, info, private_data });
        }
        match next {
            State::Timewait => self.enter_timewait(now, id),
            _ => self.enter_idle(id),
        }
    }

    /// Returns the connection that a REJ is for. A peer that gives up a REQ names itself by its GUID and its own ID,
    /// because it has not learned ours.
    fn rejected(&self, from: &MadPath, rej: &Rej) -> Option<ConnId> {
        let id = match (RejectReason(rej.reason), rej.info.used(rej.info_len)) {
            (RejectReason::TIMEOUT, &[a, b, c, d, e, f, g, h, ..]) => {
                let guid = Guid(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
                self.conns.with_remote_id(guid, rej.local_id)?
            }
            _ => ConnId(rej.remote_id),
        };
        let conn = self.conns.get(id)?;
        let is_answer_to_req =
            rej.message == OF_REQ && matches!(conn.state, State::ReqSent | State::MraReqRcvd);
        let is_peers = conn.is_from_peer(rej.local_id, from.destination);
        (is_peers || is_answer_to_req && conn.knows_address(from.destination)).then_some(id)
    }

    pub(super) fn handle_dreq(
        &mut self,
        now: Instant,
        from: &MadPath,
        original: &Message<'_>,
        dreq: &Dreq,
    ) {
        let id = ConnId(dreq.remote_id);
        let conn = self.conns.get_mut(id);
        let Some(conn) = conn.filter(|conn| conn.is_from_peer(dreq.local_id, from.destination))
        else {
            // The connection is over, and the peer has not learned of it.
            self.outputs.counters.unknown_ids += 1;
            let ids = Ids { local_id: dreq.remote_id, remote_id: dreq.local_id };
            let drep = message(original.transaction_id, Body::Drep(ids), &[]);
            return self.outputs.answer(*from, &drep);
        };
        if dreq.remote_qpn != conn.local.qpn {
            self.outputs.counters.invalid += 1;
            return;
        }
        match conn.state {
            State::RepSent | State::MraRepRcvd | State::Established | State::DreqSent => {
                conn.state = State::DreqRcvd;
                conn.transaction_id = original.transaction_id;
                let (qpn, is_destroyed) = (conn.local.qpn, conn.is_destroyed);
                self.conns.forget_first_packet(id, qpn);
                self.stop_repeating(id);
                self.tell_disconnected(id, true);
                if is_destroyed {
                    self.send_drep(now, id);
                }
            }
            State::Timewait => {
                self.outputs.counters.duplicates += 1;
                let drep = message(original.transaction_id, Body::Drep(conn.ids()), &[]);
                let path = conn.mad_path();
                self.confirmations.push(now, OutgoingMad { path, bytes: datagram(&drep) });
                self.outputs.answer(path, &drep);
            }
            _ => self.outputs.counters.duplicates += 1,
        }
    }

    pub(super) fn handle_drep(&mut self, now: Instant, from: &MadPath, ids: &Ids) {
        let id = ConnId(ids.remote_id);
        let conn = self.conns.get(id);
        let Some(conn) = conn.filter(|conn| conn.is_from_peer(ids.local_id, from.destination))
        else {
            self.outputs.counters.unknown_ids += 1;
            return;
        };
        if !matches!(conn.state, State::DreqSent | State::DreqRcvd) {
            self.outputs.counters.duplicates += 1;
            return;
        }
        self.tell_disconnected(id, true);
        self.enter_timewait(now, id);
    }

    /// Handles expired timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        // A thousand messages may be due at once; the rest waits until these are taken.
        while self.outputs.has_room()
            && let Some(id) = self.timers.expired(now)
        {
            if self.services.has(id) {
                self.handle_service_timeout(id);
                continue;
            }
            let Some(conn) = self.conns.get_mut(id) else { return };
            let path = conn.mad_path();
            match &mut conn.retransmission {
                Some(retransmission) => {
                    if retransmission.expire() {
                        let bytes = Box::new(*retransmission.bytes());
                        let deadline = Some(retransmission.deadline());
                        self.timers.set(id, &mut conn.deadline, deadline);
                        self.outputs.counters.retransmitted += 1;
                        self.outputs.send(path, bytes);
                    } else {
                        let sent = retransmission.sent();
                        self.give_up(now, id, sent);
                    }
                }
                None => {
                    self.tell(id, Event::TimewaitExit);
                    self.enter_idle(id);
                }
            }
        }
    }

    /// Ends a connection that the peer has not answered.
    fn give_up(&mut self, now: Instant, id: ConnId, sent: u32) {
        self.outputs.counters.unreachable += 1;
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.state {
            State::DreqSent => {
                self.tell_disconnected(id, false);
                self.enter_timewait(now, id);
            }
            _ => {
                conn.is_ended = true;
                self.tell(id, Event::Unreachable { sent });
                self.enter_idle(id);
            }
        }
    }

    /// Ends a connection that the peer has forgotten: another connection has its queue pair there.
    pub(super) fn end_stale(&mut self, now: Instant, id: ConnId, from: &MadPath) {
        let Some(conn) = self.conns.get(id) else { return };
        // Another address with the same GUID is another device.
        if conn.state == State::Established && conn.knows_address(from.destination) {
            self.send_dreq(now, id);
        }
    }

    // ---- transitions ----

    fn send_rej(&mut self, now: Instant, id: ConnId, reject: &Reject) {
        let Some(conn) = self.conns.get(id) else { return };
        let (of, next) = match conn.state {
            State::ReqRcvd => (OF_REQ, State::Idle),
            State::RepRcvd => (OF_REP, State::Idle),
            State::RepSent | State::MraRepRcvd => (OF_OTHER, State::Timewait),
            _ => (OF_OTHER, State::Idle),
        };
        let Ids { local_id, remote_id } = conn.ids();
        let rej = Rej {
            local_id,
            remote_id,
            message: of,
            reason: reject.reason.0,
            ..Rej::parse(&[]).with_info(&reject.info)
        };
        let rej = message(conn.transaction_id, Body::Rej(rej), &reject.private_data);
        self.outputs.counters.rejects_sent += 1;
        self.outputs.send(conn.mad_path(), datagram(&rej));
        match next {
            State::Timewait => self.enter_timewait(now, id),
            _ => self.enter_idle(id),
        }
    }

    fn send_dreq(&mut self, now: Instant, id: ConnId) {
        let own = self.transaction_id(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(peer) = conn.peer else { return };
        conn.state = State::DreqSent;
        let Ids { local_id, remote_id } = conn.ids();
        let dreq = Dreq { local_id, remote_id, remote_qpn: peer.qpn };
        let bytes = datagram(&message(own, Body::Dreq(dreq), &[]));
        self.send_repeatedly(now, id, bytes);
    }

    fn send_drep(&mut self, now: Instant, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let drep = message(conn.transaction_id, Body::Drep(conn.ids()), &[]);
        let (path, bytes) = (conn.mad_path(), datagram(&drep));
        self.confirmations.push(now, OutgoingMad { path, bytes: bytes.clone() });
        self.outputs.send(path, bytes);
        self.enter_timewait(now, id);
    }

    /// Reports the end of an established connection, once.
    fn tell_disconnected(&mut self, id: ConnId, answered: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !std::mem::replace(&mut conn.is_ended, true) {
            self.outputs.counters.disconnected += 1;
            self.tell(id, Event::Disconnected { answered });
        }
    }

    /// Enters TIMEWAIT. Another connection may use the peer's queue pair from now on.
    fn enter_timewait(&mut self, now: Instant, id: ConnId) {
        self.stop_repeating(id);
        self.leave_backlog(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.state = State::Timewait;
        let (peer, qpn) = (conn.peer, conn.local.qpn);
        let end = now + timeout(conn.local.ack_timeout.exponent());
        self.timers.set(id, &mut conn.deadline, Some(end));
        self.conns.forget_first_packet(id, qpn);
        if let Some(peer) = peer {
            self.conns.forget_remote_qpn(id, &peer);
        }
    }

    /// Enters IDLE. Nothing of the connection is left but its id, and not even that if the consumer has destroyed it.
    fn enter_idle(&mut self, id: ConnId) {
        self.stop_repeating(id);
        self.leave_backlog(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.state = State::Idle;
        let (peer, qpn) = (conn.peer.take(), conn.local.qpn);
        self.conns.forget_first_packet(id, qpn);
        if let Some(peer) = peer {
            self.conns.forget_remote_qpn(id, &peer);
            self.conns.forget_remote_id(id, &peer);
        }
        self.drop_idle(id);
    }

    fn leave_backlog(&mut self, id: ConnId) {
        let role = self.conns.get(id).map(|conn| conn.role);
        if let Some(Role::Passive { listener, .. }) = role {
            self.answered(id, listener);
        }
    }

    /// Removes a destroyed connection that has ended.
    fn drop_idle(&mut self, id: ConnId) {
        let is_over = |conn: &Conn| conn.state == State::Idle && conn.is_destroyed;
        if self.conns.get(id).is_some_and(is_over) {
            self.conns.remove(id);
        }
    }
}
