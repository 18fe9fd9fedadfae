//! The agent of a device: dispatch of messages, and what its parts share.

use chacha20::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::engine::{OutgoingMad, ReceivedMad};
use crate::ids::{Gid, Mtu, PKey};
use crate::psn::Psn;
use crate::time::Instant;
use crate::wire::cm::{Body, CommId, Message, ServiceId};

use super::confirmations::Confirmations;
use super::conn::Role;
use super::counters::Counters;
use super::error::Error;
use super::listeners::Listeners;
use super::outputs::Outputs;
use super::services::Services;
use super::state::State;
use super::table::Table;
use super::timers::Timers;
use super::types::{AgentConfig, CmPath, ConnId, Event};

/// Connection manager of a device, one for all its queue pairs.
///
/// An id exists until the consumer [destroys](Self::destroy) it; the agent itself keeps it for the rest of TIMEWAIT.
/// Ids of peers' service requests end with the [reply](Self::reply_service).
#[derive(Debug)]
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) conns: Table,
    pub(super) services: Services,
    pub(super) listeners: Listeners,
    pub(super) timers: Timers,
    pub(super) outputs: Outputs,
    random: ChaCha12Rng,
    /// Upper half of transaction IDs.
    number: u32,
    pub(super) confirmations: Confirmations,
}

impl Agent {
    /// Returns an agent that derives its communication IDs and starting PSNs from `seed`.
    pub fn new(config: AgentConfig, seed: [u8; 32]) -> Self {
        let mut random = ChaCha12Rng::from_seed(seed);
        Self {
            config,
            conns: Table::default(),
            services: Services::default(),
            listeners: Listeners::default(),
            timers: Timers::default(),
            outputs: Outputs::default(),
            number: random.next_u32(),
            random,
            confirmations: Confirmations::default(),
        }
    }

    // ---- inputs ----

    /// Handles a received management datagram. No datagram can make it fail: unacceptable ones are ignored and
    /// counted.
    pub fn handle_mad(&mut self, now: Instant, mad: &ReceivedMad) {
        let Ok(message) = Message::parse(mad.bytes.as_slice()) else { return };
        let path = &mad.path;
        match &message.body {
            Body::Req(req) => self.handle_req(now, path, &message, req),
            Body::Mra(mra) => self.handle_mra(now, path, mra),
            Body::Rej(rej) => self.handle_rej(now, path, &message, rej),
            Body::Rep(rep) => self.handle_rep(now, path, &message, rep),
            Body::Rtu(ids) => self.handle_rtu(path, ids),
            Body::Dreq(dreq) => self.handle_dreq(now, path, &message, dreq),
            Body::Drep(ids) => self.handle_drep(now, path, ids),
            Body::SidrReq(req) => self.handle_sidr_req(path, &message, req),
            Body::SidrRep(rep) => self.handle_sidr_rep(path, &message, rep),
            // RoCE has no alternate paths, which LAP and APR manage.
            Body::Other(_) => self.outputs.counters.invalid += 1,
        }
    }

    /// Sets the GID table and the active MTU of the device, after a change of its interface.
    pub fn set_addresses(&mut self, gids: &[Gid], active_mtu: Mtu) {
        self.config.gids = gids.to_vec();
        self.config.active_mtu = active_mtu;
    }

    // ---- outputs ----

    /// Returns the next management datagram to send.
    pub fn poll_mad(&mut self, now: Instant) -> Option<OutgoingMad> {
        let _ = now;
        self.outputs.mads.pop_front()
    }

    /// Returns the next event of an id that the consumer has not destroyed.
    pub fn poll_event(&mut self) -> Option<(ConnId, Event)> {
        loop {
            let (id, event) = self.outputs.events.pop_front()?;
            if let Some(conn) = self.conns.get_mut(id) {
                if let (Role::Passive { is_reported, .. }, Event::Request(_)) =
                    (&mut conn.role, &event)
                {
                    *is_reported = true;
                }
                if !conn.is_destroyed {
                    return Some((id, event));
                }
            } else if self.services.report(id) {
                return Some((id, event));
            }
        }
    }

    // ---- queries ----

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout), which may have passed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns the state of an id; `None` if it does not exist.
    pub fn state(&self, id: ConnId) -> Option<State> {
        let of_conn = || self.conns.get(id).filter(|conn| !conn.is_destroyed);
        let of_listener = || self.listeners.get(id).map(|_| State::Listen);
        of_conn().map(|conn| conn.state).or_else(of_listener).or_else(|| self.services.state(id))
    }

    /// Returns whether a datagram is a request for a service without a listener.
    pub fn lacks_listener(&self, mad: &ReceivedMad) -> bool {
        let Ok(message) = Message::parse(mad.bytes.as_slice()) else { return false };
        match &message.body {
            Body::Req(req) => !self.listeners.has_service(req.service_id, false),
            Body::SidrReq(req) => !self.listeners.has_service(req.service_id, true),
            _ => false,
        }
    }

    /// Returns the services with a listener, sorted.
    pub fn listening(&self) -> Vec<ServiceId> {
        self.listeners.services()
    }

    /// Returns the number of ids, those that only the agent keeps included.
    pub fn ids(&self) -> usize {
        self.conns.len() + self.services.len() + self.listeners.len()
    }

    /// Returns whether nothing is left: no id, timer, datagram or event, and no entry of an index.
    pub fn is_empty(&self) -> bool {
        let outputs = self.outputs.mads.len() + self.outputs.events.len();
        self.ids() + self.conns.indexed() + self.services.indexed() + self.timers.len() + outputs
            == 0
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.outputs.counters
    }

    /// Returns the configuration.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    // ---- for the parts ----

    /// Returns a number for a new id, which is random so that an attacker must guess it.
    pub(super) fn new_id(&mut self) -> Result<ConnId, Error> {
        let max = self.config.max_ids;
        if self.ids() >= max {
            return Err(Error::TooMany { max });
        }
        loop {
            let id = ConnId(CommId(self.random.next_u32()));
            let is_used = self.conns.get(id).is_some()
                || self.listeners.get(id).is_some()
                || self.services.has(id);
            if id.0.0 != 0 && !is_used {
                return Ok(id);
            }
        }
    }

    /// Queues an event of an id that the consumer has not destroyed.
    pub(super) fn tell(&mut self, id: ConnId, event: Event) {
        if self.conns.get(id).is_none_or(|conn| !conn.is_destroyed) {
            self.outputs.events.push_back((id, event));
        }
    }

    /// Returns a random PSN.
    pub(super) fn new_psn(&mut self) -> Psn {
        Psn::new(self.random.next_u32())
    }

    /// Returns the transaction ID of messages that begin here, in the form of Linux.
    pub(super) fn transaction_id(&self, id: ConnId) -> u64 {
        u64::from(self.number) << 32 | u64::from(id.0.0.swap_bytes())
    }

    /// Checks that a path begins at the device, keeps to one IP version, and is in a partition of the device.
    pub(super) fn check_path(&self, path: &CmPath) -> Result<(), Error> {
        if !self.config.gids.contains(&path.source) {
            return Err(Error::Source(path.source));
        }
        if path.source.ip().is_ipv4() != path.destination.ip().is_ipv4() {
            let (source_gid, destination) = (path.source, path.destination);
            return Err(Error::Family { source_gid, destination });
        }
        self.pkey_index(path.pkey).map(|_| ()).ok_or(Error::PKey(path.pkey))
    }

    /// Returns the index of the device's P_Key for a partition; `None` if the device is no member.
    pub(super) fn pkey_index(&self, pkey: PKey) -> Option<u16> {
        let index = self.config.pkeys.iter().position(|own| own.matches(pkey))?;
        u16::try_from(index).ok()
    }
}

/// Checks that a value does not exceed its maximum.
pub(super) fn check_range(name: &'static str, found: u8, max: u8) -> Result<(), Error> {
    if found > max {
        return Err(Error::Range { name, found: found.into(), max: max.into() });
    }
    Ok(())
}

/// Checks that private data fits.
pub(super) fn check_private(found: usize, max: usize) -> Result<(), Error> {
    if found > max { Err(Error::PrivateData { found, max }) } else { Ok(()) }
}
