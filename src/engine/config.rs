//! Configuration of an engine.

use std::net::IpAddr;

use crate::ids::{Gid, Mtu, PKey};
use crate::transport::window::DEFAULT_RECEIVE_BUFFER;

/// Configuration of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The GID table, indexed by `sgid_index`: each address of the device has one slot or several.
    pub gids: Vec<Gid>,
    /// The P_Key table, indexed by `pkey_index`: the partitions of the port, with full or limited
    /// membership. It has at least one entry.
    pub pkeys: Vec<PKey>,
    /// The largest path MTU that the port's interface supports.
    pub active_mtu: Mtu,
    /// Receive buffer of the device's own socket, in bytes as the kernel counts. Outstanding READs
    /// request at most as much as it holds.
    pub receive_buffer: u64,
    /// Assumed receive buffer of a peer, until
    /// [`Engine::set_peer_receive_buffer`](super::Engine::set_peer_receive_buffer) sets it. The
    /// default is the kernel's default for sockets, because packets beyond the buffer are lost.
    pub peer_receive_buffer: u64,
    /// Bytes of out-of-order requests and responses that all RC and XRC connections together keep.
    /// The requests or responses of one connection may use at most four fifths of them. Packets
    /// beyond the limit are dropped. With 0 all of them are dropped, as by a hardware adapter, and
    /// a loss requires the retransmission of all packets in flight after it. The default is the
    /// default receive buffer of a socket.
    pub reorder_buffer: u64,
    /// Maximum number of queue pairs.
    pub max_qp: usize,
    /// Maximum number of READs and atomics that one queue pair may have outstanding, in each
    /// direction.
    pub max_rd_atomic: u8,
    /// Maximum number of multicast groups that the device is a member of. Each takes a socket.
    pub max_mcast_grp: usize,
    /// Maximum number of queue pairs attached to one multicast group.
    pub max_mcast_qp_attach: usize,
    /// The low 6 bits of every queue pair number: the shard number.
    pub shard: u8,
    /// Number of shards of the device. Shared receive queue numbers with the same remainder modulo
    /// this belong to the same shard.
    pub shards: u8,
    /// The driver of the engine can query the receive queues of this host's addresses
    /// ([`Engine::poll_backlog`](super::Engine::poll_backlog)). UC and UD packets to them are then
    /// limited by the bytes received instead of an assumed drain rate.
    pub watches_backlogs: bool,
    /// Number of destroyed queue pairs to keep counters of, the most recent ones.
    pub remembers_ended: usize,
}

impl Config {
    /// Returns the configuration of a device with one address and defaults otherwise.
    pub fn new(address: IpAddr) -> Self {
        Self {
            gids: vec![address.into()],
            pkeys: vec![PKey::DEFAULT],
            active_mtu: Mtu::Mtu4096,
            receive_buffer: DEFAULT_RECEIVE_BUFFER,
            peer_receive_buffer: DEFAULT_RECEIVE_BUFFER,
            reorder_buffer: DEFAULT_RECEIVE_BUFFER,
            max_qp: 1 << 17,
            // The limit of kernel rxe; a hardware adapter has 16.
            max_rd_atomic: 128,
            // Half of the usual limit on open files of a process.
            max_mcast_grp: 512,
            max_mcast_qp_attach: 256,
            shard: 0,
            shards: 1,
            watches_backlogs: false,
            remembers_ended: 0,
        }
    }
}
