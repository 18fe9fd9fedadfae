//! What a check finds.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::Qpn;

use super::Rule;

/// Something about a packet that a rule speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// The packet's number in the capture.
    pub packet: u64,
    /// When it was captured, since the Unix epoch.
    pub time: Option<Duration>,
    /// The party at fault.
    pub who: Who,
    /// What was seen.
    pub seen: String,
    /// What was expected; in a note, what it comes from.
    pub expected: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Nothing is wrong, or the capture cannot tell: a retransmission and its cause, a NAK, packets
    /// that were not captured.
    Note,
    /// Not as the specification has it, but as a widespread stack is known to do it. What is a
    /// habit in every packet is told once for each direction of a connection.
    Quirk,
    /// Against the rules.
    Violation,
}

impl Severity {
    /// Every severity, the mildest first.
    pub const ALL: [Self; 3] = [Self::Note, Self::Quirk, Self::Violation];

    /// In lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Quirk => "quirk",
            Self::Violation => "violation",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A party at fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Who {
    /// A host, and its queue pair if the capture tells.
    Host(IpAddr, Option<Qpn>),
    /// That host, or what changes packets on the way from it.
    HostOrWay(IpAddr),
    /// The network: it lost or reordered packets.
    Network,
    /// The capture cannot tell: it began late, or packets are missing from it.
    Unknown,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(ip, Some(qp)) => write!(f, "{ip} qp {qp}"),
            Self::Host(ip, None) => write!(f, "{ip}"),
            Self::HostOrWay(ip) => write!(f, "{ip} or the way from it"),
            Self::Network => f.write_str("network"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}
