//! Inputs and outputs of the connection manager: management datagrams of queue pair 1, and first
//! packets of queue pairs.

use std::net::IpAddr;

use crate::engine::Engine;
use crate::engine::gsi::{OutgoingMad, ReceivedMad};
use crate::ids::Qpn;

impl Engine {
    /// Queues a management datagram of queue pair 1. A full queue drops it, as the network may:
    /// senders of management datagrams repeat them. `agree` determines the UDP source port of a
    /// source address at its first use, as for [`modify_qp`](Self::modify_qp).
    pub fn send_mad(&mut self, mad: OutgoingMad, agree: impl FnOnce(IpAddr, u16) -> u16) {
        self.gsi.source_port(mad.path.source, agree);
        self.gsi.enqueue(mad, self.shared.tally.row(None));
    }

    /// Returns whether [`send_mad`](Self::send_mad) has room for another datagram.
    pub fn has_room_for_mad(&self) -> bool {
        self.gsi.has_room()
    }

    /// Returns the next datagram of the connection manager that arrived at queue pair 1.
    pub fn poll_mad(&mut self) -> Option<ReceivedMad> {
        self.gsi.poll()
    }

    /// Returns the next response of queue pair 1 to a request of another class, for
    /// [`send_mad`](Self::send_mad): its UDP source port may not be agreed yet.
    pub fn poll_mad_response(&mut self) -> Option<OutgoingMad> {
        self.gsi.poll_response()
    }

    /// Returns the next queue pair that has received its first packet since RTR, in any state that receives.
    /// For a connection manager this is as good as an RTU. UD queue pairs are not reported.
    pub fn poll_first_packet(&mut self) -> Option<Qpn> {
        self.shared.outputs.first_packets.pop_front()
    }
}
