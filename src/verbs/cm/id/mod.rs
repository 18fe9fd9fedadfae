//! Identifiers: the calls of rdma_cm with their states (Linux' `cma.c`).
//!
//! ```text
//! IDLE ─ bind ─▶ BOUND ─ listen ─▶ LISTEN ── request ──▶ a new id, in CONNECT
//!   └──────────────┴─ resolve_addr ─▶ ADDR_RESOLVED ─ resolve_route ─▶ ROUTE_RESOLVED ─ connect ─▶ CONNECT
//! ```
//!
//! The state of an id is locked while a call changes it, the shard's lock within included. Events are delivered without
//! either lock, possibly by the same thread: their handler never locks the state of an id.

mod bind;
mod connect;
mod end;
mod group;
mod handle;
mod resolve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cm::{CmPath, PortSpace};
use crate::engine::{InitAttr, QpAttr, QpState, QpType};
use crate::mem::Access;
use crate::runtime::Cm;
use crate::time::{AckTimeout, Instant};
use crate::verbs::Context;
use crate::verbs::cm::channel::Events;
use crate::verbs::cm::inner::{Id, IdInner, IdState, Phase, lock};
use crate::verbs::cm::{Error, EventChannel};

impl Id {
    /// Creates an id. Its device depends on its addresses.
    ///
    /// # Errors
    ///
    /// [`Error::QpType`] for a queue pair type that the port space does not have.
    #[doc(alias = "rdma_create_id")]
    pub fn create(
        channel: &EventChannel,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Result<Self, Error> {
        Self::new(&channel.events, port_space, qp_type, None)
    }

    /// Creates an id of a device.
    ///
    /// # Errors
    ///
    /// [`Error::QpType`] for a queue pair type that the port space does not have.
    pub fn create_on(
        context: &Context,
        channel: &EventChannel,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Result<Self, Error> {
        Self::on(context, &channel.events, port_space, qp_type)
    }

    /// Creates an id of a device.
    pub(in crate::verbs::cm) fn on(
        context: &Context,
        channel: &Events,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Result<Self, Error> {
        Self::new(channel, port_space, qp_type, Some(context.clone()))
    }

    fn new(
        channel: &Events,
        port_space: PortSpace,
        qp_type: QpType,
        chosen: Option<Context>,
    ) -> Result<Self, Error> {
        let is_possible = match port_space {
            PortSpace::Tcp => qp_type != QpType::Ud,
            PortSpace::Udp => qp_type == QpType::Ud,
            PortSpace::Ib => true,
        };
        if !is_possible {
            return Err(Error::QpType { call: "this port space", found: qp_type });
        }
        let channel = Arc::clone(&channel.inner);
        if let Some(context) = &chosen {
            channel.add_device(&context.inner.device);
        }
        Ok(Self::of_new(IdInner::new(channel, port_space, qp_type, chosen)))
    }

    /// Returns the number of the id in this process, which no other id gets.
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Returns the value that the program has set, 0 at first.
    pub fn tag(&self) -> u64 {
        self.inner.tag.load(Ordering::Relaxed)
    }

    /// Sets a value for the program's use.
    pub fn set_tag(&self, tag: u64) {
        self.inner.tag.store(tag, Ordering::Relaxed);
    }

    /// Returns the port space.
    pub fn port_space(&self) -> PortSpace {
        self.inner.port_space
    }

    /// Returns the type of its queue pair.
    pub fn qp_type(&self) -> QpType {
        self.inner.qp_type
    }

    /// Returns the device, once the id has one.
    pub fn context(&self) -> Option<Context> {
        self.inner.state().context.clone()
    }

    /// Returns the own address, once the id is bound.
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.state().local
    }

    /// Returns the address of the peer, once it is known.
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.state().peer
    }

    /// Returns the path to the peer, once it is known.
    pub fn path(&self) -> Option<CmPath> {
        self.inner.state().path
    }

    /// Returns the number of events of this id that the program has taken from a channel. A request counts for its
    /// listener.
    pub fn events_reported(&self) -> u32 {
        self.inner.reported.load(Ordering::Relaxed)
    }

    /// Moves the id and its waiting events to another channel. Returns the number of events that the program has taken.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> u32 {
        self.move_to(&channel.events)
    }

    pub(in crate::verbs::cm) fn move_to(&self, channel: &Events) -> u32 {
        if let Some(context) = self.context() {
            channel.inner.add_device(&context.inner.device);
        }
        let mut current = lock(&self.inner.channel);
        if !Arc::ptr_eq(&current, &channel.inner) {
            for event in current.withdraw(self.inner.number) {
                channel.inner.push(event);
            }
            *current = Arc::clone(&channel.inner);
        }
        self.events_reported()
    }

    /// Writes an event into the channel of the id (`rdma_write_cm_event`).
    pub fn write_event(&self, event: u32, status: i32, argument: u64) {
        self.inner.report(super::EventKind::User { event, status, argument });
    }

    /// Returns the attributes that the queue pair of the id needs for the transition to INIT, RTR or RTS.
    ///
    /// # Errors
    ///
    /// [`Error::State`]; [`Error::Agent`] before the peer's parameters are known.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn qp_attr(&self, to: QpState) -> Result<QpAttr, Error> {
        let state = self.inner.state();
        if state.context.is_none() {
            return Err(state.refuse("qp_attr", "bound to a device"));
        }
        if self.inner.qp_type == QpType::Ud {
            return match to {
                QpState::Init => Ok(InitAttr::Datagram { qkey: state.qkey }.into()),
                QpState::Rtr => Ok(QpAttr::to(to)),
                QpState::Rts => Ok(QpAttr { sq_psn: Some(Default::default()), ..QpAttr::to(to) }),
                _ => Err(state.refuse("qp_attr", "asked for INIT, RTR or RTS")),
            };
        }
        let Some(conn) = self.inner.conn() else {
            return match to {
                QpState::Init => Ok(InitAttr::Connected { access: Access::empty() }.into()),
                _ => Err(state.refuse("qp_attr", "connected or connecting")),
            };
        };
        let attr = with_cm(&conn.context, |cm, _| cm.agent.qp_attr(conn.id, to))??;
        match attr.timeout.and(state.options.ack_timeout) {
            Some(timeout) => Ok(QpAttr { timeout: Some(timeout), ..attr }),
            None => Ok(attr),
        }
    }

    /// Sets the IPv4 TOS or IPv6 traffic class of the path, before the route is resolved.
    pub fn set_traffic_class(&self, traffic_class: u8) {
        self.inner.state().options.traffic_class = traffic_class;
    }

    /// Sets the ACK timeout of the own queue pair, and before [`connect`](Self::connect) the one that the peer gets.
    ///
    /// # Errors
    ///
    /// [`Error::QpType`] for services without acknowledgements.
    pub fn set_ack_timeout(&self, timeout: AckTimeout) -> Result<(), Error> {
        if !matches!(self.inner.qp_type, QpType::Rc | QpType::XrcIni) {
            return Err(Error::QpType { call: "an ACK timeout", found: self.inner.qp_type });
        }
        self.inner.state().options.ack_timeout = Some(timeout);
        Ok(())
    }
}

impl PartialEq for Id {
    /// Compares identity: two handles are equal when they belong to the same id.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Id {}

impl IdState {
    /// Returns the error of a call that this state does not allow.
    fn refuse(&self, call: &'static str, needed: &'static str) -> Error {
        Error::State { call, found: self.phase.text(), needed }
    }

    /// Checks that the id is in this state.
    fn require(&self, call: &'static str, phase: Phase) -> Result<(), Error> {
        if self.phase == phase { Ok(()) } else { Err(self.refuse(call, phase.text())) }
    }
}

/// Calls `act` with the connection manager of a device.
fn with_cm<R>(context: &Context, act: impl FnOnce(&mut Cm, Instant) -> R) -> Result<R, Error> {
    let first = context.inner.device.shards.first();
    let result = first.with(|core, now| core.with_cm(now, |cm| act(cm, now)))?;
    result.map_err(|source| Error::Os { what: "random numbers", source })
}
