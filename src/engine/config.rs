//! Configuration of an engine.

use std::net::IpAddr;

use crate::ids::{Gid, Mtu, PKey};
use crate::transport::window::DEFAULT_RECEIVE_BUFFER;

/// Configuration of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The GID table, which `sgid_index` counts: the device's addresses, each in a slot of its own.
    pub gids: Vec<Gid>,
    /// The P_Key table, which `pkey_index` counts: the partitions that the port belongs to, as a full
    /// member or a limited one. There is one at least.
    pub pkeys: Vec<PKey>,
    /// The largest path MTU that the port's interface carries.
    pub active_mtu: Mtu,
    /// The receive buffer of the device's own socket, in bytes as the kernel counts. READs ask for
    /// no more at once than it holds.
    pub receive_buffer: u64,
    /// The receive buffer that a peer is assumed to have, until
    /// [`Engine::set_peer_receive_buffer`](super::Engine::set_peer_receive_buffer) tells better. The default is that of a socket that asked
    /// for nothing, because what does not fit is lost.
    pub peer_receive_buffer: u64,
    /// Bytes of requests, and of answers, that are kept while one before them is missing, of all RC and XRC
    /// connections together, and four fifths of them of one connection's requests or answers at most. What does not
    /// fit is dropped, and with 0 everything is, as an adapter does: then whatever was in flight behind a lost packet
    /// has to be sent again. The default is what a socket's receive buffer holds.
    pub reorder_buffer: u64,
    /// Queue pairs at most.
    pub max_qp: usize,
    /// READs and atomics that one queue pair may have outstanding, in either direction.
    pub max_rd_atomic: u8,
    /// Multicast groups that the device may belong to at once. Each takes a socket.
    pub max_mcast_grp: usize,
    /// Queue pairs that may be attached to one multicast group.
    pub max_mcast_qp_attach: usize,
    /// The low 6 bits of every queue pair number: the shard's.
    pub shard: u8,
    /// How many shards the device has. With the same remainder by it, numbers of shared receive queues are
    /// of the same shard.
    pub shards: u8,
    /// The driver of the engine reads the receive queues of hosts of this machine
    /// ([`Engine::poll_backlog`](super::Engine::poll_backlog)). UC and UD packets to them are then limited by the bytes received,
    /// and not by time.
    pub watches_backlogs: bool,
    /// Of so many queue pairs that were destroyed the counters are kept, the last ones.
    pub remembers_ended: usize,
}

impl Config {
    /// A device with one address, defaults for the rest.
    pub fn new(address: IpAddr) -> Self {
        Self {
            gids: vec![address.into()],
            pkeys: vec![PKey::DEFAULT],
            active_mtu: Mtu::Mtu4096,
            receive_buffer: DEFAULT_RECEIVE_BUFFER,
            peer_receive_buffer: DEFAULT_RECEIVE_BUFFER,
            reorder_buffer: DEFAULT_RECEIVE_BUFFER,
            max_qp: 1 << 17,
            // What kernel rxe allows; an adapter has 16.
            max_rd_atomic: 128,
            // Half of the descriptors that a process usually may have.
            max_mcast_grp: 512,
            max_mcast_qp_attach: 256,
            shard: 0,
            shards: 1,
            watches_backlogs: false,
            remembers_ended: 0,
        }
    }
}
