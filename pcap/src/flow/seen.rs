//! A captured packet as connections take it, and the direction that it goes in.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::Qpn;
use softroce::wire::Datagram;

/// A packet without a bad ICRC.
#[derive(Clone, Copy, Debug)]
pub struct SeenPacket<'a> {
    /// Its number in the capture.
    pub number: u64,
    /// When it was captured.
    pub time: Option<Duration>,
    /// Its sender.
    pub source: IpAddr,
    /// The sender's UDP port.
    pub source_port: u16,
    /// Its receiver.
    pub destination: IpAddr,
    /// The IPv4 identification, which a copy that the network makes has in common with its original.
    pub id: Option<u16>,
    /// What it says.
    pub datagram: &'a Datagram<'a>,
    /// A checksum of extension headers but AETH, and payload; `None` when some of it was not captured.
    pub digest: Option<u32>,
}

/// One direction: all packets from one address to one queue pair of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Direction {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// The receiver's queue pair.
    pub qp: Qpn,
}

impl Hash for Direction {
    /// Of fewer bytes than a derived one, which is felt at a million packets a second.
    fn hash<H: Hasher>(&self, state: &mut H) {
        for ip in [self.source, self.destination] {
            match ip {
                IpAddr::V4(ip) => state.write_u32(ip.to_bits()),
                IpAddr::V6(ip) => state.write_u128(ip.to_bits()),
            }
        }
        state.write_u32(self.qp.value());
    }
}

/// How sure it is that two directions are one connection, the surest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Joined {
    /// The connection managers said so.
    ByManagers,
    /// PSNs fit, and the UDP source port is the one that follows from both queue pair numbers.
    ByPorts,
    /// PSNs fit, and those of no other connection between the two addresses do.
    ByPsn,
}

impl SeenPacket<'_> {
    /// The direction it goes in.
    pub fn direction(&self) -> Direction {
        let qp = self.datagram.bth.dest_qp;
        Direction { source: self.source, destination: self.destination, qp }
    }
}
