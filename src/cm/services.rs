//! Table of service requests (SIDR), own and of peers.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::time::Instant;
use crate::wire::cm::{CommId, ServiceId};

use super::retransmit::Retransmission;
use super::state::State;
use super::types::{CmPath, ConnId};

/// Side of a service request.
#[derive(Debug)]
pub(super) enum Side {
    /// Own request, repeated until the peer answers; `None` once it has ended.
    Own(Option<Retransmission>),
    /// Request of a peer.
    Peers {
        listener: ConnId,
        request_id: CommId,
        from: IpAddr,
        /// Whether the consumer has the request event.
        is_reported: bool,
    },
}

/// A service request.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) side: Side,
    pub(super) service: ServiceId,
    pub(super) path: CmPath,
    pub(super) transaction_id: u64,
    pub(super) deadline: Option<Instant>,
}

/// The service requests of an agent.
#[derive(Debug, Default)]
pub(super) struct Services {
    services: HashMap<ConnId, Service>,
    /// Requests of peers, by address and request ID.
    by_request: HashMap<(IpAddr, CommId), ConnId>,
}

impl Services {
    /// Returns all ids, sorted.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        let mut ids: Vec<_> = self.services.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn len(&self) -> usize {
        self.services.len()
    }

    /// Returns the number of entries of the index.
    pub(super) fn indexed(&self) -> usize {
        self.by_request.len()
    }

    pub(super) fn has(&self, id: ConnId) -> bool {
        self.services.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Service> {
        self.services.get_mut(&id)
    }

    /// Returns whether a request of a peer waits for its answer.
    pub(super) fn waits(&self, from: IpAddr, request_id: CommId) -> bool {
        self.by_request.contains_key(&(from, request_id))
    }

    pub(super) fn insert(&mut self, id: ConnId, service: Service) {
        if let Side::Peers { request_id, from, .. } = service.side {
            self.by_request.insert((from, request_id), id);
        }
        self.services.insert(id, service);
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<Service> {
        let service = self.services.remove(&id)?;
        if let Side::Peers { request_id, from, .. } = service.side {
            self.by_request.remove(&(from, request_id));
        }
        Some(service)
    }

    /// Returns whether the id exists. The consumer gets an event of it.
    pub(super) fn report(&mut self, id: ConnId) -> bool {
        let Some(service) = self.services.get_mut(&id) else { return false };
        if let Side::Peers { is_reported, .. } = &mut service.side {
            *is_reported = true;
        }
        true
    }

    /// Returns whether the consumer has not got the event of a peer's request.
    pub(super) fn is_unreported(&self, id: ConnId) -> bool {
        let side = self.services.get(&id).map(|service| &service.side);
        matches!(side, Some(Side::Peers { is_reported: false, .. }))
    }

    /// Returns the state of an id.
    pub(super) fn state(&self, id: ConnId) -> Option<State> {
        Some(match self.services.get(&id)?.side {
            Side::Own(Some(_)) => State::SidrReqSent,
            Side::Own(None) => State::Idle,
            Side::Peers { .. } => State::SidrReqRcvd,
        })
    }
}
