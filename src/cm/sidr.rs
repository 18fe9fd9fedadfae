//! Service ID resolution (SIDR): the queue pair of a UD service.

use crate::engine::MadPath;
use crate::ids::QKey;
use crate::time::Instant;
use crate::wire::cm::{Body, IpHeader, Message, SidrRep, SidrReq};

use super::agent::{Agent, check_private};
use super::conn::mad_path;
use super::error::Error;
use super::outputs::{datagram, message};
use super::passive::is_valid;
use super::retransmit::Retransmission;
use super::services::{Service, Side};
use super::state::State;
use super::types::{
    CmPath, ConnId, Ece, Event, ServiceReply, ServiceRequest, SidrReply, SidrRequest, SidrStatus,
};

impl Agent {
    /// Sends a SIDR_REQ, which asks for the queue pair of a UD service.
    ///
    /// # Errors
    ///
    /// [`Error::PrivateData`], [`Error::TooMany`], [`Error::Source`], [`Error::Family`], [`Error::PKey`].
    pub fn resolve_service(&mut self, now: Instant, request: SidrRequest) -> Result<ConnId, Error> {
        let SidrRequest { path, service, ip, private_data, retries, timeout } = request;
        self.check_path(&path)?;
        let header = if ip.is_some() { IpHeader::LEN } else { 0 };
        check_private(private_data.len(), SidrReq::PRIVATE_DATA - header)?;
        let id = self.new_id()?;
        let transaction_id = self.transaction_id(id);
        let req = SidrReq { request_id: id.0, pkey: path.pkey, service_id: service };
        let body = Body::SidrReq(req);
        let bytes = datagram(&Message { ip, ..message(transaction_id, body, &private_data) });
        self.outputs.send(mad_path(&path), bytes.clone());
        self.outputs.counters.connects += 1;
        let with_early = self.config.early_retransmissions;
        let repeated = Retransmission::new(now, bytes, (timeout, retries), with_early);
        let mut deadline = None;
        self.timers.set(id, &mut deadline, Some(repeated.deadline()));
        let side = Side::Own(Some(repeated));
        self.services.insert(id, Service { side, service, path, transaction_id, deadline });
        Ok(id)
    }

    /// Sends a SIDR_REP, in answer to a [service request](Event::ServiceRequest), and removes the id.
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
        let _ = now;
        check_private(reply.private_data.len(), SidrRep::PRIVATE_DATA)?;
        match self.services.state(id).ok_or(Error::UnknownId(id))? {
            State::SidrReqRcvd => {}
            found => return Err(Error::State { found, needed: "SIDR_REQ_RCVD" }),
        }
        self.answer_service(id, &reply);
        Ok(())
    }

    fn answer_service(&mut self, id: ConnId, reply: &SidrReply) {
        let Some(service) = self.services.remove(id) else { return };
        let Side::Peers { listener, request_id, .. } = service.side else { return };
        self.answered(id, listener);
        self.outputs.counters.rejects_sent += u64::from(reply.status != SidrStatus::SUCCESS);
        let rep = SidrRep {
            request_id,
            status: reply.status.0,
            qpn: reply.qpn,
            service_id: service.service,
            qkey: reply.qkey,
            ..SidrRep::parse(&[])
        };
        let body = Body::SidrRep(rep.with_ece_vendor(reply.ece.vendor));
        let bytes = datagram(&Message {
            modifier: reply.ece.options,
            ..message(service.transaction_id, body, &reply.private_data)
        });
        self.outputs.send(mad_path(&service.path), bytes);
    }

    /// Destroys the id of a service request: a peer's is rejected. Returns false if there is none.
    pub(super) fn destroy_service(&mut self, id: ConnId) -> bool {
        let Some(service) = self.services.get_mut(id) else { return false };
        match &mut service.side {
            Side::Own(_) => {
                self.timers.set(id, &mut service.deadline, None);
                self.services.remove(id);
            }
            Side::Peers { .. } => self.answer_service(id, &refusal(SidrStatus::REJECTED)),
        }
        true
    }

    /// Sends an own request again, or gives it up.
    pub(super) fn handle_service_timeout(&mut self, id: ConnId) {
        let Some(service) = self.services.get_mut(id) else { return };
        let path = mad_path(&service.path);
        let Side::Own(side) = &mut service.side else { return };
        let Some(repeated) = side else { return };
        if repeated.expire() {
            let bytes = Box::new(*repeated.bytes());
            let deadline = Some(repeated.deadline());
            self.timers.set(id, &mut service.deadline, deadline);
            self.outputs.counters.retransmitted += 1;
            self.outputs.send(path, bytes);
        } else {
            let sent = repeated.sent();
            *side = None;
            self.timers.set(id, &mut service.deadline, None);
            self.outputs.counters.unreachable += 1;
            self.tell(id, Event::Unreachable { sent });
        }
    }

    pub(super) fn handle_sidr_req(
        &mut self,
        from: &MadPath,
        original: &Message<'_>,
        req: &SidrReq,
    ) {
        if self.services.waits(from.destination, req.request_id) {
            self.outputs.counters.duplicates += 1;
            return;
        }
        let path = CmPath {
            traffic_class: from.traffic_class,
            pkey: req.pkey,
            ..CmPath::between(from.source, from.destination, self.config.active_mtu)
        };
        let is_known = self.listeners.has_service(req.service_id, true);
        let destination = match &original.ip {
            Some(ip) => is_valid(ip, from.source).then_some(ip.destination_ip),
            None => Some(from.source),
        };
        let find = |ip: std::net::IpAddr| self.listeners.find(req.service_id, ip.into(), true);
        let Some(listener) = destination.and_then(find) else {
            let status = if is_known { SidrStatus::REJECTED } else { SidrStatus::NO_SERVICE };
            return self.refuse_service(from, original, req, status);
        };
        if !listener.has_room() {
            self.outputs.counters.backlog_full += 1;
            return;
        }
        let (listener, token) = (listener.id, listener.listen.token);
        let Ok(id) = self.new_id() else {
            return self.refuse_service(from, original, req, SidrStatus::NO_QP);
        };
        let side = Side::Peers {
            listener,
            request_id: req.request_id,
            from: from.destination,
            is_reported: false,
        };
        let (service, transaction_id) = (req.service_id, original.transaction_id);
        self.services.insert(id, Service { side, service, path, transaction_id, deadline: None });
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.pending.insert(id);
        }
        self.outputs.counters.requests += 1;
        let request = ServiceRequest {
            listener,
            token,
            service,
            ip: original.ip,
            path,
            private_data: original.private_data.to_vec(),
        };
        self.tell(id, Event::ServiceRequest(Box::new(request)));
    }

    /// Refuses a service request that has no id here.
    fn refuse_service(
        &mut self,
        to: &MadPath,
        original: &Message<'_>,
        req: &SidrReq,
        status: SidrStatus,
    ) {
        self.outputs.counters.rejects_sent += 1;
        let SidrReq { request_id, service_id, .. } = *req;
        let rep = SidrRep { request_id, status: status.0, service_id, ..SidrRep::parse(&[]) };
        self.outputs.answer(*to, &message(original.transaction_id, Body::SidrRep(rep), &[]));
    }

    pub(super) fn handle_sidr_rep(&mut self, from: &MadPath, message: &Message<'_>, rep: &SidrRep) {
        let id = ConnId(rep.request_id);
        let service = self.services.get_mut(id);
        let Some(service) =
            service.filter(|service| service.path.destination.ip() == from.destination)
        else {
            self.outputs.counters.unknown_ids += 1;
            return;
        };
        let Side::Own(repeated @ Some(_)) = &mut service.side else {
            self.outputs.counters.duplicates += 1;
            return;
        };
        *repeated = None;
        self.timers.set(id, &mut service.deadline, None);
        let status = SidrStatus(rep.status);
        self.outputs.counters.rejects_received += u64::from(status != SidrStatus::SUCCESS);
        let reply = ServiceReply {
            status,
            path: service.path,
            qpn: rep.qpn,
            qkey: rep.qkey,
            ece: Ece { vendor: rep.ece_vendor(), options: message.modifier },
            info: rep.info.used(rep.info_len).to_vec(),
            private_data: message.private_data.to_vec(),
        };
        self.tell(id, Event::ServiceReply(Box::new(reply)));
    }
}

/// Returns the reply that refuses a request.
fn refusal(status: SidrStatus) -> SidrReply {
    SidrReply {
        status,
        qpn: Default::default(),
        qkey: QKey::default(),
        ece: Ece::default(),
        private_data: Vec::new(),
    }
}
