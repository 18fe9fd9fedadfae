//! Events of the agent.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::cm::{CmPath, ConnId, Event, IpHeader, ServiceId};
use crate::engine::QpType;
use crate::net::AddressVector;
use crate::runtime::cm::CmSink;
use crate::verbs::Context;
use crate::verbs::cm::EventKind;
use crate::verbs::cm::inner::{Conn, Id, IdInner, Owner, Phase, Queued, lock};

impl CmSink for IdInner {
    fn handle(self: Arc<Self>, conn: ConnId, event: Event) {
        let kind = match event {
            Event::Request(request) => {
                let addresses = addresses(request.service, request.ip.as_ref(), &request.path);
                let (path, qp_type) = (request.path, request.qp_type);
                let new = self.new_request(conn, addresses, path, qp_type);
                return self.report_request(new, EventKind::ConnectRequest(request));
            }
            Event::ServiceRequest(request) => {
                let addresses = addresses(request.service, request.ip.as_ref(), &request.path);
                let new = self.new_request(conn, addresses, request.path, QpType::Ud);
                return self.report_request(new, EventKind::ServiceRequest(request));
            }
            Event::Reply(reply) => EventKind::ConnectResponse(reply),
            Event::Established => EventKind::Established,
            Event::Rejected { reason, private_data, .. } => {
                EventKind::Rejected { reason, private_data }
            }
            Event::Unreachable { .. } => EventKind::Unreachable,
            Event::Disconnected { answered } => EventKind::Disconnected { answered },
            Event::TimewaitExit => EventKind::TimewaitExit,
            Event::ServiceReply(reply) => {
                let conn = self.conn();
                let address = conn.map(|conn| address_vector(&conn.context, &reply.path));
                let address = address.unwrap_or(AddressVector::to(reply.path.destination));
                EventKind::ServiceReply { reply, address }
            }
        };
        if !self.is_silent.load(Ordering::Relaxed) {
            self.report(kind);
        }
    }

    fn fail(self: Arc<Self>) {
        let is_silent = self.is_silent.load(Ordering::Relaxed);
        if !is_silent && !self.is_removed.swap(true, Ordering::Relaxed) {
            self.report(EventKind::DeviceRemoval);
        }
    }
}

/// Own address and that of the peer.
type Addresses = (SocketAddr, SocketAddr);

/// Returns the addresses of a request: those in its header, or those of its path.
fn addresses(service: ServiceId, header: Option<&IpHeader>, path: &CmPath) -> Addresses {
    let [.., high, low] = service.0.to_be_bytes();
    let port = u16::from_be_bytes([high, low]);
    match header {
        Some(ip) => {
            let peer = SocketAddr::new(ip.source_ip, ip.source_port);
            (SocketAddr::new(ip.destination_ip, port), peer)
        }
        None => {
            let peer = SocketAddr::new(path.destination.ip(), 0);
            (SocketAddr::new(path.source.ip(), port), peer)
        }
    }
}

/// Returns the address of the peer of a path.
pub(super) fn address_vector(context: &Context, path: &CmPath) -> AddressVector {
    let gids = &context.inner.device.gids;
    let index = gids.iter().position(|gid| *gid == path.source).unwrap_or_default();
    AddressVector {
        gid: path.destination,
        // A GID table has at most 256 entries.
        sgid_index: u8::try_from(index).unwrap_or_default(),
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
    }
}

impl IdInner {
    /// Returns the id of a request for this listener. The listener's state stays unlocked: the calling thread may hold
    /// it.
    fn new_request(
        &self,
        id: ConnId,
        (local, peer): Addresses,
        path: CmPath,
        qp_type: QpType,
    ) -> Option<Id> {
        let listener = self.conn()?;
        let channel = Arc::clone(&lock(&self.channel));
        let new = Self::new(channel, self.port_space, qp_type, None);
        new.is_silent.store(true, Ordering::Relaxed);
        let (context, events) = (listener.context.clone(), Arc::clone(&listener.events));
        let mut state = new.state();
        state.phase = Phase::Connect;
        (state.local, state.peer, state.path) = (Some(local), Some(peer), Some(path));
        state.context = Some(context.clone());
        drop(state);
        new.set_conn(Conn { context, events, id });
        let new = Id::of_new(new);
        let sink: Weak<Self> = Arc::downgrade(&new.inner);
        listener.events.register(id, sink);
        Some(new)
    }

    /// Reports a request to this listener.
    fn report_request(self: &Arc<Self>, new: Option<Id>, kind: EventKind) {
        let Some(new) = new else { return };
        let channel = lock(&self.channel);
        let of = Owner::Request(new, Arc::downgrade(self));
        channel.push(Queued { of, counted: self.number, kind });
    }
}
