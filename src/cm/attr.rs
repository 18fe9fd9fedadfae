//! Attributes of queue pairs for their transitions.

use crate::engine::{QpAttr, QpState, QpType};
use crate::ids::QKey;
use crate::mem::Access;
use crate::net::AddressVector;
use crate::time::{AckTimeout, RnrTimer};

use super::agent::Agent;
use super::conn::Conn;
use super::error::Error;
use super::state::State;
use super::types::ConnId;

/// Queue key of UD queue pairs of rdma_cm (`RDMA_UDP_QKEY`).
pub const RDMA_UDP_QKEY: QKey = QKey(0x0123_4567);

/// Returns the attributes for INIT of a queue pair that has no connection yet. RC, UC and XRC have no access rights
/// of the peer; UD has the [queue key](RDMA_UDP_QKEY) of rdma_cm.
pub fn initial_attr(qp_type: QpType) -> QpAttr {
    let to_init = QpAttr { pkey_index: Some(0), port_num: Some(1), ..QpAttr::to(QpState::Init) };
    match qp_type {
        QpType::Ud => QpAttr { qkey: Some(RDMA_UDP_QKEY), ..to_init },
        _ => QpAttr { access: Some(Access::empty()), ..to_init },
    }
}

impl Agent {
    /// Returns the attributes that a connection's queue pair needs for the transition to INIT, RTR or RTS.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`]; [`Error::State`] for RTR and RTS before the peer's REQ or REP, and after the connection;
    /// [`Error::NoAttributes`] for other states.
    pub fn qp_attr(&self, id: ConnId, to: QpState) -> Result<QpAttr, Error> {
        let Some(conn) = self.conns.get(id).filter(|conn| conn.is_observed()) else {
            let has_service = to == QpState::Init && self.services.has(id);
            return has_service.then(|| initial_attr(QpType::Ud)).ok_or(Error::UnknownId(id));
        };
        match to {
            QpState::Init => {
                let pkey_index = self.pkey_index(conn.path.pkey);
                return Ok(QpAttr { pkey_index, ..init(conn) });
            }
            QpState::Rtr | QpState::Rts => {}
            other => return Err(Error::NoAttributes(other)),
        }
        match conn.state {
            State::ReqRcvd
            | State::RepRcvd
            | State::RepSent
            | State::MraRepRcvd
            | State::Established => {}
            found => {
                let needed = "a state from the peer's REQ or REP to ESTABLISHED";
                return Err(Error::State { found, needed });
            }
        }
        let attr = if to == QpState::Rtr { self.rtr(conn) } else { rts(conn) };
        let needed = "a peer";
        attr.ok_or(Error::State { found: conn.state, needed })
    }

    /// Sets the ACK timeout of a connection's own queue pair, instead of the one that the messages name
    /// (`RDMA_OPTION_ID_ACK_TIMEOUT`).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownId`].
    pub fn set_ack_timeout(&mut self, id: ConnId, timeout: AckTimeout) -> Result<(), Error> {
        let conn = self.conns.get_mut(id).filter(|conn| conn.is_observed());
        let conn = conn.ok_or(Error::UnknownId(id))?;
        conn.local.ack_timeout = timeout;
        conn.local.is_timeout_set = true;
        Ok(())
    }

    fn rtr(&self, conn: &Conn) -> Option<QpAttr> {
        let peer = conn.peer?;
        let index = self.config.gids.iter().position(|gid| *gid == conn.path.source)?;
        let av = AddressVector {
            gid: conn.path.destination,
            sgid_index: u8::try_from(index).ok()?,
            traffic_class: conn.path.traffic_class,
            hop_limit: conn.path.hop_limit,
            flow_label: conn.path.flow_label,
        };
        let attr = QpAttr {
            av: Some(av),
            path_mtu: Some(conn.path.mtu),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(conn.local.psn),
            ..QpAttr::to(QpState::Rtr)
        };
        Some(match conn.qp_type {
            QpType::Rc | QpType::XrcTgt => QpAttr {
                max_dest_rd_atomic: Some(conn.local.responder_resources),
                min_rnr_timer: Some(RnrTimer::default()),
                ..attr
            },
            _ => attr,
        })
    }
}

fn init(conn: &Conn) -> QpAttr {
    let mut access = Access::REMOTE_WRITE;
    if conn.local.responder_resources > 0 {
        access |= Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        access |= Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    }
    QpAttr { access: Some(access), ..initial_attr(conn.qp_type) }
}

fn rts(conn: &Conn) -> Option<QpAttr> {
    let attr = QpAttr { sq_psn: Some(conn.peer?.psn), ..QpAttr::to(QpState::Rts) };
    let local = &conn.local;
    let is_initiator = matches!(conn.qp_type, QpType::Rc | QpType::XrcIni);
    Some(QpAttr {
        timeout: conn.qp_type.is_reliable().then_some(local.ack_timeout),
        retry_cnt: is_initiator.then_some(local.retry_count),
        rnr_retry: is_initiator.then_some(local.rnr_retry_count),
        max_rd_atomic: is_initiator.then_some(local.initiator_depth),
        ..attr
    })
}
