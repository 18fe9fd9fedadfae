//! Receive buffers of the peers of a device with several shards.
//!
//! The receive buffer of a peer's socket limits the sum of all shards, and each shard limits its packets by itself
//! (`transport::window`). So the shards with connections to a peer get equal parts of it, and the others none.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use crate::runtime::device_error::DeviceError;
use crate::runtime::shard::Shard;
use crate::runtime::shard_set::ShardSet;
use crate::runtime::shards::Shards;
use crate::sync::Mutex;
use crate::transport::window::DEFAULT_RECEIVE_BUFFER;

/// Number of peers from which on unused ones are removed.
const MIN_PRUNED: usize = 2048;

/// PeerReceiveBuffers with connections to shards.
#[derive(Debug, Default)]
pub(crate) struct PeerReceiveBuffers(Mutex<PeersByAddress>);

/// PeerReceiveBuffers by address.
#[derive(Debug)]
struct PeersByAddress {
    peers: HashMap<IpAddr, Peer>,
    /// Number of peers at which [`prune`](Self::prune) runs again.
    prune_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Bytes of its socket's receive buffer.
    receive_buffer: u64,
    /// Shards that share it.
    shards: ShardSet,
}

impl PeerReceiveBuffers {
    /// Registers that a shard connects to `peer`, and updates the size of its receive buffer if it is given.
    pub(crate) fn add_connection(
        &self,
        shards: &Shards,
        shard: &Shard,
        peer: IpAddr,
        receive_buffer: Option<u64>,
    ) -> Result<(), DeviceError> {
        if shards.is_one() {
            let tell = |bytes| {
                shard.with(|core, now| core.engine.set_peer_receive_buffer(now, peer, bytes))
            };
            return receive_buffer.map_or(Ok(()), tell);
        }
        // Locked until all shards have the new size.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.prune(|peer| {
            let knows = |shard: &Arc<Shard>| shard.with(|core, _| core.engine.knows_peer(peer));
            shards.iter().map(knows).any(|knows| knows.unwrap_or(true))
        });
        let stranger = Peer { receive_buffer: DEFAULT_RECEIVE_BUFFER, shards: ShardSet::EMPTY };
        let known = all.peers.entry(peer).or_insert(stranger);
        known.receive_buffer = receive_buffer.unwrap_or(known.receive_buffer);
        known.shards |= shard.set();
        let part = known.part();
        shards.among(known.shards).try_for_each(|sharing| {
            sharing.with(|core, now| core.engine.set_peer_receive_buffer(now, peer, part))
        })
    }
}

impl Default for PeersByAddress {
    fn default() -> Self {
        Self { peers: HashMap::new(), prune_at: MIN_PRUNED }
    }
}

impl PeersByAddress {
    /// Removes peers that no shard uses, when there are twice as many as after the last time.
    fn prune(&mut self, is_known: impl Fn(IpAddr) -> bool) {
        if self.peers.len() >= self.prune_at {
            self.peers.retain(|peer, _| is_known(*peer));
            self.prune_at = MIN_PRUNED.max(2 * self.peers.len());
        }
    }
}

impl Peer {
    /// Returns the part of each shard.
    fn part(self) -> u64 {
        self.receive_buffer / u64::from(self.shards.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_no_shard_knows_are_removed() {
        let mut known = PeersByAddress::default();
        let ip = |number: u32| IpAddr::from(number.to_be_bytes());
        let peer = Peer { receive_buffer: 1, shards: ShardSet::of(0) };
        let mut most = 0;
        for number in 0..20_000 {
            // One in a hundred stays connected.
            known.prune(|of| (0..number).step_by(100).any(|connected| of == ip(connected)));
            known.peers.insert(ip(number), peer);
            most = most.max(known.peers.len());
        }
        assert!(most <= MIN_PRUNED, "{most} peers");
        assert!((0..20_000).step_by(100).all(|connected| known.peers.contains_key(&ip(connected))));
    }

    #[test]
    fn each_that_shares_it_has_its_part() {
        let shards = (0..3).map(ShardSet::of);
        let mut peer = Peer { receive_buffer: 1200, shards: ShardSet::EMPTY };
        let parts: Vec<_> = shards
            .map(|shard| {
                peer.shards |= shard;
                peer.part()
            })
            .collect();
        assert_eq!(parts, [1200, 600, 400]);
    }
}
