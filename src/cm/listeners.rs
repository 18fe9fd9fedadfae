//! Listeners, by service.

use std::collections::{BTreeSet, HashMap};

use crate::engine::QpType;
use crate::ids::Gid;
use crate::net::IpVersion;
use crate::wire::cm::ServiceId;

use super::error::Error;
use super::types::{ConnId, Listen};

/// A listener, and the requests that wait for its consumer.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) id: ConnId,
    pub(super) listen: Listen,
    pub(super) pending: BTreeSet<ConnId>,
}

impl Listener {
    /// Returns whether the backlog has room.
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < self.listen.backlog
    }

    /// Returns whether the listener accepts requests to this address.
    fn matches(&self, destination: Gid) -> bool {
        match (self.listen.destination, self.listen.af_only) {
            (Some(address), _) => address == destination,
            (None, Some(version)) => IpVersion::from(destination.ip()) == version,
            (None, None) => true,
        }
    }
}

/// The listeners of an agent.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    listeners: HashMap<ConnId, Listener>,
    by_service: HashMap<ServiceId, Vec<ConnId>>,
    services: HashMap<ConnId, ServiceId>,
}

impl Listeners {
    /// Returns all ids, sorted.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        let mut ids: Vec<_> = self.listeners.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn len(&self) -> usize {
        self.listeners.len()
    }

    /// Returns the services, sorted. One with several listeners is there once.
    pub(super) fn services(&self) -> Vec<ServiceId> {
        let mut services: Vec<_> = self.by_service.keys().copied().collect();
        services.sort_unstable_by_key(|service| service.0);
        services
    }

    /// Adds a listener.
    pub(super) fn insert(
        &mut self,
        id: ConnId,
        service: ServiceId,
        listen: Listen,
    ) -> Result<(), Error> {
        let ids = self.by_service.entry(service).or_default();
        let is_same = |other: &Listen| {
            let (is_datagram, other_is) =
                (listen.qp_type == QpType::Ud, other.qp_type == QpType::Ud);
            other.destination == listen.destination
                && other.af_only == listen.af_only
                && is_datagram == other_is
        };
        if ids.iter().filter_map(|id| self.listeners.get(id)).any(|other| is_same(&other.listen)) {
            return Err(Error::ServiceInUse(service));
        }
        ids.push(id);
        self.services.insert(id, service);
        self.listeners.insert(id, Listener { id, listen, pending: BTreeSet::new() });
        Ok(())
    }

    /// Removes a listener, and returns it.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Listener> {
        let listener = self.listeners.remove(&id)?;
        if let Some(service) = self.services.remove(&id)
            && let Some(ids) = self.by_service.get_mut(&service)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_service.remove(&service);
            }
        }
        Some(listener)
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Listener> {
        self.listeners.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Listener> {
        self.listeners.get_mut(&id)
    }

    /// Returns whether the service has a listener for connections or for datagrams.
    pub(super) fn has_service(&self, service: ServiceId, is_datagram: bool) -> bool {
        self.of(service, is_datagram).next().is_some()
    }

    /// Returns the listener for a request to an address: one with this address before one with any.
    pub(super) fn find(
        &self,
        service: ServiceId,
        destination: Gid,
        is_datagram: bool,
    ) -> Option<&Listener> {
        let matching = self.of(service, is_datagram).filter(|other| other.matches(destination));
        matching.min_by_key(|listener| {
            (listener.listen.destination.is_none(), listener.listen.af_only.is_none())
        })
    }

    fn of(&self, service: ServiceId, is_datagram: bool) -> impl Iterator<Item = &Listener> {
        let ids = self.by_service.get(&service).map(Vec::as_slice).unwrap_or_default();
        let listeners = ids.iter().filter_map(|id| self.listeners.get(id));
        listeners.filter(move |other| (other.listen.qp_type == QpType::Ud) == is_datagram)
    }
}
