//! Attributes of a connection.

use crate::ids::{CqId, PKey, PdId, Qpn, Rkey};
use crate::mem::{Access, KeyUser};
use crate::net::{IpVersion, Path};
use crate::time::{AckTimeout, RnrTimer};
use crate::transport::window::WindowId;
use crate::transport::work::{WcOpcode, WcStatus};
use crate::wire::icrc::Flow;
use crate::wire::{Opcode, Operation, Position, Suffix, Transport};

/// Number, protection domain and completion queues of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) qpn: Qpn,
    pub(crate) pd: PdId,
    /// The completion queue of send requests, if it has a send queue.
    pub(crate) send_cq: Option<CqId>,
    /// The completion queue of receive requests, if it has a receive queue.
    pub(crate) recv_cq: Option<CqId>,
}

impl From<&Identity> for KeyUser {
    fn from(id: &Identity) -> Self {
        Self { pd: id.pd, qpn: Some(id.qpn) }
    }
}

/// The attributes of a queue pair from RTR on.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) id: Identity,
    /// RC, UC or XRC.
    pub(crate) transport: Transport,
    pub(crate) dest_qpn: Qpn,
    pub(crate) path: Path,
    pub(crate) flows: Flows,
    pub(crate) window: WindowId,
    pub(crate) pkey: PKey,
    /// Payload bytes of a full packet.
    pub(crate) mtu: u32,
    /// Access rights of the peer to memory through this queue pair.
    pub(crate) access: Access,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// READs and atomics that this queue pair may have outstanding.
    pub(crate) max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding.
    pub(crate) max_dest_rd_atomic: u8,
}

/// ICRCs of the packets of a connection, in both directions.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    pub(crate) to_peer: Flow,
    /// From the peer, for `peer_port`.
    from_peer: Flow,
    /// UDP source port of the last packet from the peer, which may change it at any time.
    peer_port: u16,
}

impl Flows {
    /// Returns the flows on `path`. The source port of the peer is the same until its first packet arrives.
    pub(crate) fn new(path: &Path) -> Self {
        let peer_port = path.source_port;
        Self { to_peer: Flow::of_path(path), from_peer: from_peer(path, peer_port), peer_port }
    }

    /// Returns the flow from the peer on `path`, with this source port.
    #[inline]
    fn of_peer(&mut self, path: &Path, port: u16) -> &Flow {
        if self.peer_port != port {
            (self.from_peer, self.peer_port) = (from_peer(path, port), port);
        }
        &self.from_peer
    }
}

#[cold]
fn from_peer(path: &Path, source_port: u16) -> Flow {
    let (source, destination) = (path.destination, path.source);
    Flow::of_path(&Path { source, destination, source_port, ..*path })
}

impl Connection {
    /// Returns the flow from the peer with this source port.
    #[inline]
    pub(crate) fn peer_flow(&mut self, port: u16) -> &Flow {
        self.flows.of_peer(&self.path, port)
    }

    /// Returns the opcode of a single-packet operation.
    pub(crate) fn opcode(&self, operation: Operation) -> Opcode {
        opcode(self.transport, operation, Position::Only, Suffix::None)
    }
}

/// Returns the opcode of a packet to send. Posting rejects operations that the service does not
/// have, so the opcode exists.
#[inline]
pub(crate) fn opcode(
    transport: Transport,
    operation: Operation,
    position: Position,
    suffix: Suffix,
) -> Opcode {
    let found = Opcode::find(transport, operation, position, suffix);
    debug_assert!(found.is_some(), "{transport} has no {operation:?} {position:?} {suffix:?}");
    found.unwrap_or(Opcode::Cnp)
}

/// Fields of a send request that are copied to its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEnd {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
}

/// Fields of a message that are copied to the completion of its receive request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvEnd {
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<Rkey>,
    pub(crate) solicited: bool,
    /// UD: queue pair of the sender.
    pub(crate) source_qp: Option<Qpn>,
    /// UD: IP version of the packet.
    pub(crate) ip_version: Option<IpVersion>,
}

impl RecvEnd {
    /// Returns the result of a receive request without a message.
    pub(crate) const fn failed(status: WcStatus) -> Self {
        Self {
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            imm: None,
            invalidated: None,
            solicited: false,
            source_qp: None,
            ip_version: None,
        }
    }
}
