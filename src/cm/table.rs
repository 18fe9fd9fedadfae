//! The connections of an agent, by own and by remote identifiers.

use std::collections::HashMap;

use crate::ids::Qpn;
use crate::wire::cm::{CommId, Guid};

use super::conn::{Conn, Peer};
use super::types::ConnId;

/// The connections of an agent.
#[derive(Debug, Default)]
pub(super) struct Table {
    conns: HashMap<ConnId, Box<Conn>>,
    by_remote_id: HashMap<(Guid, CommId), ConnId>,
    by_remote_qpn: HashMap<(Guid, Qpn), ConnId>,
    /// Connections that wait for an RTU, or for the first packet to their queue pair.
    by_local_qpn: HashMap<Qpn, ConnId>,
}

impl Table {
    /// Returns all ids, sorted.
    pub(super) fn ids(&self) -> Vec<ConnId> {
        let mut ids: Vec<_> = self.conns.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn len(&self) -> usize {
        self.conns.len()
    }

    /// Returns the number of entries of all indexes.
    pub(super) fn indexed(&self) -> usize {
        self.by_remote_id.len() + self.by_remote_qpn.len() + self.by_local_qpn.len()
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(&id).map(Box::as_mut)
    }

    pub(super) fn insert(&mut self, conn: Conn) {
        self.conns.insert(conn.id, Box::new(conn));
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<Box<Conn>> {
        self.conns.remove(&id)
    }

    /// Returns the connection with this identifier at a peer.
    pub(super) fn with_remote_id(&self, guid: Guid, remote: CommId) -> Option<ConnId> {
        self.by_remote_id.get(&(guid, remote)).copied()
    }

    /// Returns the connection with this queue pair of a peer.
    pub(super) fn with_remote_qpn(&self, guid: Guid, qpn: Qpn) -> Option<ConnId> {
        self.by_remote_qpn.get(&(guid, qpn)).copied()
    }

    /// Returns the connection that waits for the first packet to a queue pair.
    pub(super) fn with_local_qpn(&self, qpn: Qpn) -> Option<ConnId> {
        self.by_local_qpn.get(&qpn).copied()
    }

    /// Enters a connection under the identifiers of its peer.
    pub(super) fn enter_peer(&mut self, id: ConnId, peer: &Peer) {
        self.by_remote_id.insert((peer.guid, peer.comm_id), id);
        self.by_remote_qpn.insert((peer.guid, peer.qpn), id);
    }

    /// Removes the peer's queue pair, which another connection may use from now on.
    pub(super) fn forget_remote_qpn(&mut self, id: ConnId, peer: &Peer) {
        let key = (peer.guid, peer.qpn);
        if self.by_remote_qpn.get(&key) == Some(&id) {
            self.by_remote_qpn.remove(&key);
        }
    }

    /// Removes the peer's communication ID.
    pub(super) fn forget_remote_id(&mut self, id: ConnId, peer: &Peer) {
        let key = (peer.guid, peer.comm_id);
        if self.by_remote_id.get(&key) == Some(&id) {
            self.by_remote_id.remove(&key);
        }
    }

    /// Records that a connection waits for the first packet to its queue pair.
    pub(super) fn await_first_packet(&mut self, id: ConnId, qpn: Qpn) {
        self.by_local_qpn.insert(qpn, id);
    }

    /// Records that a connection no longer waits for a first packet.
    pub(super) fn forget_first_packet(&mut self, id: ConnId, qpn: Qpn) {
        if self.by_local_qpn.get(&qpn) == Some(&id) {
            self.by_local_qpn.remove(&qpn);
        }
    }
}
