//! What may be on its way to the peers of a device with several shards.
//!
//! What a peer's socket bears is for all that we send there, and each shard limits what it sends by itself
//! (`transport::window`). So each of those that have connections to a peer has its part, and the others have
//! none.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::PoisonError;

use crate::runtime::down::Down;
use crate::runtime::shard::Shard;
use crate::runtime::shard_set::ShardSet;
use crate::runtime::shards::Shards;
use crate::sync::Mutex;
use crate::transport::window::DEFAULT_RECEIVE_BUFFER;

/// The peers that shards have connections to.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<HashMap<IpAddr, Peer>>);

#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Bytes of its socket's receive buffer.
    receive_buffer: u64,
    /// Those of ours that share it.
    shards: ShardSet,
}

impl Peers {
    /// A shard is about to send to `peer`, and more is known of its receive buffer, or not.
    pub(crate) fn meet(
        &self,
        shards: &Shards,
        shard: &Shard,
        peer: IpAddr,
        receive_buffer: Option<u64>,
    ) -> Result<(), Down> {
        if shards.is_one() {
            let tell = |bytes| {
                shard.with(|core, now| core.engine.set_peer_receive_buffer(now, peer, bytes))
            };
            return receive_buffer.map_or(Ok(()), tell);
        }
        // Held until all know of it, so that they know the same.
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stranger = Peer { receive_buffer: DEFAULT_RECEIVE_BUFFER, shards: ShardSet::EMPTY };
        let known = peers.entry(peer).or_insert(stranger);
        known.receive_buffer = receive_buffer.unwrap_or(known.receive_buffer);
        known.shards |= shard.set();
        let part = known.part();
        shards.among(known.shards).try_for_each(|sharing| {
            sharing.with(|core, now| core.engine.set_peer_receive_buffer(now, peer, part))
        })
    }
}

impl Peer {
    /// What each of those that share it may believe that it is.
    fn part(self) -> u64 {
        self.receive_buffer / u64::from(self.shards.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
