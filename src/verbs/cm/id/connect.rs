//! Connections: requests, replies, and their end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::cm::{
    self, Accept, ConnId, Connect, IpHeader, Reject, RejectReason, SidrReply, SidrRequest,
    SidrStatus,
};
use crate::engine::QpType;
use crate::runtime::Cm;
use crate::time::Instant;
use crate::verbs::Context;
use crate::verbs::cm::inner::{Conn, DEFAULT_QKEY, Id, IdInner, IdState, Phase};
use crate::verbs::cm::{ConnectParam, Error};

use super::with_cm;

/// Retransmissions of a service request, as in Linux.
const SIDR_RETRIES: u8 = 15;

/// Time until a service request is sent again, as in Linux.
const SIDR_TIMEOUT: Duration = Duration::from_millis(4096);

impl Id {
    /// Requests a connection, or with UD the queue pair of a service. The answer is an event.
    ///
    /// # Errors
    ///
    /// [`Error::State`] before the route is resolved, [`Error::Agent`], [`Error::Verbs`].
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Error> {
        let inner = &self.inner;
        let mut state = inner.state();
        state.require("connect", Phase::RouteResolved)?;
        let (Some(context), Some(path), Some(local), Some(peer)) =
            (state.context.clone(), state.path, state.local, state.peer)
        else {
            return Err(state.refuse("connect", Phase::RouteResolved.text()));
        };
        let service = inner.port_space.service_id(peer.port());
        let ip = Some(IpHeader {
            version: 0,
            ip_version: if local.is_ipv4() { 4 } else { 6 },
            source_port: local.port(),
            source_ip: local.ip(),
            destination_ip: peer.ip(),
        });
        let private_data = param.private_data.to_vec();
        if inner.qp_type == QpType::Ud {
            let (retries, timeout) = (SIDR_RETRIES, SIDR_TIMEOUT);
            state.qkey = param.qkey.unwrap_or(state.qkey);
            let request = SidrRequest { path, service, ip, private_data, retries, timeout };
            inner.start(&context, |cm, now| cm.agent.resolve_service(now, request))?;
        } else {
            let connect = Connect {
                path,
                service,
                ip,
                qpn: param.qpn,
                qp_type: inner.qp_type,
                srq: param.srq,
                private_data,
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                retry_count: param.retry_count,
                rnr_retry_count: param.rnr_retry_count,
                flow_control: param.flow_control,
                ece: param.ece,
                ack_timeout: state.options.ack_timeout,
            };
            inner.start(&context, |cm, now| cm.agent.connect(now, connect))?;
        }
        state.phase = Phase::Connect;
        Ok(())
    }

    /// Accepts a request; the queue pair must be in RTS. With UD it answers the service request.
    ///
    /// If this fails, the request is rejected.
    ///
    /// # Errors
    ///
    /// [`Error::State`] for an id without a request, [`Error::Agent`] also if the peer has given up, [`Error::Verbs`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, param: &ConnectParam<'_>) -> Result<(), Error> {
        let mut state = self.inner.state();
        let accepted = self.inner.accept(&mut state, param);
        drop(state);
        if accepted.is_err() {
            // The first error is the one to report.
            let _ = self.reject(RejectReason::CONSUMER, &[]);
        }
        accepted
    }

    /// Establishes a connection that the peer has accepted; the queue pair must be in RTS.
    ///
    /// # Errors
    ///
    /// [`Error::State`], [`Error::Agent`], [`Error::Verbs`].
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        let conn = self.inner.connection("establish")?;
        Ok(with_cm(&conn.context, |cm, now| cm.agent.establish(now, conn.id))??)
    }

    /// Rejects a request, or a peer that has accepted.
    ///
    /// # Errors
    ///
    /// [`Error::State`], [`Error::Agent`], [`Error::Verbs`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, reason: RejectReason, private_data: &[u8]) -> Result<(), Error> {
        let conn = self.inner.connection("reject")?;
        let private_data = private_data.to_vec();
        let refused = with_cm(&conn.context, |cm, now| {
            if self.inner.qp_type == QpType::Ud {
                let status = SidrStatus::REJECTED;
                let (qpn, qkey) = (Default::default(), Default::default());
                let reply = SidrReply { status, qpn, qkey, ece: Default::default(), private_data };
                return cm.agent.reply_service(now, conn.id, reply);
            }
            let reject = Reject { reason, info: Vec::new(), private_data };
            cm.agent.reject(now, conn.id, reject)
        })?;
        Ok(refused?)
    }

    /// Disconnects, or confirms that the peer has disconnected. Does nothing if the connection has ended.
    ///
    /// # Errors
    ///
    /// [`Error::State`] and [`Error::Agent`] before there was a connection, [`Error::Verbs`].
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        let conn = self.inner.connection("disconnect")?;
        Ok(with_cm(&conn.context, |cm, now| cm.agent.disconnect(now, conn.id))??)
    }

    /// Reports that a packet of the peer has arrived (`rdma_notify` with `IBV_EVENT_COMM_EST`). The device does that by
    /// itself, so this checks the state only.
    ///
    /// # Errors
    ///
    /// [`Error::State`] before there was a connection.
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self) -> Result<(), Error> {
        self.inner.connection("notify").map(drop)
    }
}

impl IdInner {
    /// Starts a listener, a connection or a service request in the agent. This id gets its events.
    pub(super) fn start(
        self: &Arc<Self>,
        context: &Context,
        act: impl FnOnce(&mut Cm, Instant) -> Result<ConnId, cm::Error>,
    ) -> Result<(), Error> {
        let sink: Weak<Self> = Arc::downgrade(self);
        let started = with_cm(context, |cm, now| {
            let id = act(cm, now)?;
            cm.events.register(id, sink);
            let (context, events) = (context.clone(), Arc::clone(&cm.events));
            self.set_conn(Conn { context, events, id });
            Ok::<_, cm::Error>(())
        })?;
        Ok(started?)
    }

    /// Returns the connection of the id.
    fn connection(&self, call: &'static str) -> Result<Arc<Conn>, Error> {
        let state = self.state();
        match self.conn() {
            Some(conn) if state.phase == Phase::Connect => Ok(conn),
            _ => Err(state.refuse(call, Phase::Connect.text())),
        }
    }

    fn accept(&self, state: &mut IdState, param: &ConnectParam<'_>) -> Result<(), Error> {
        let needed = "a request";
        let conn = self.conn().ok_or_else(|| state.refuse("accept", needed))?;
        state.require("accept", Phase::Connect)?;
        self.is_silent.store(false, Ordering::Relaxed);
        let private_data = param.private_data.to_vec();
        let (qpn, ece) = (param.qpn, param.ece);
        let accepted = if self.qp_type == QpType::Ud {
            let qkey = param.qkey.unwrap_or(DEFAULT_QKEY);
            state.qkey = qkey;
            let status = SidrStatus::SUCCESS;
            let reply = SidrReply { status, qpn, qkey, ece, private_data };
            with_cm(&conn.context, |cm, now| cm.agent.reply_service(now, conn.id, reply))?
        } else {
            let accept = Accept {
                qpn,
                srq: param.srq,
                private_data,
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                rnr_retry_count: param.rnr_retry_count,
                flow_control: param.flow_control,
                ece,
            };
            with_cm(&conn.context, |cm, now| cm.agent.accept(now, conn.id, accept))?
        };
        Ok(accepted?)
    }
}
