//! Findings of the checker.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::Qpn;

use super::{Loss, Rule};

/// A packet that breaks a rule, or an event that explains packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Rule that the finding concerns.
    pub rule: Rule,
    /// Severity.
    pub severity: Severity,
    /// Number of the packet in the capture.
    pub packet: u64,
    /// Time of capture, since the Unix epoch.
    pub time: Option<Duration>,
    /// Party at fault.
    pub party: Party,
    /// What was found.
    pub found: String,
    /// What was expected; in a note, the cause.
    pub expected: String,
    /// In a retransmission, the loss that it repairs.
    pub loss: Option<Box<Loss>>,
}

impl Finding {
    /// Returns the finding in one line, its rule's identifier first, as a comment for a packet of a capture file.
    pub fn comment(&self) -> String {
        let Self { rule, severity, party, found, expected, loss, .. } = self;
        let wanted = if *severity == Severity::Note { "" } else { "expected " };
        let loss = loss.as_ref().map_or(String::new(), |loss| format!("; {loss}"));
        format!("{} {rule} {severity}: {party}: {found}; {wanted}{expected}{loss}", rule.id())
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// An event and its cause (a retransmission, a NAK), or packets missing from the capture, which prevent a verdict.
    Note,
    /// A known deviation of a widespread stack. One that every packet repeats is reported once for each direction of
    /// a connection.
    Quirk,
    /// A contradiction of the protocol.
    Violation,
}

impl Severity {
    /// Every severity, the mildest first.
    pub const ALL: [Self; 3] = [Self::Note, Self::Quirk, Self::Violation];

    /// Returns the name in lower case.
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

/// Party at fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Party {
    /// A host, and its queue pair if the capture shows it.
    Host(IpAddr, Option<Qpn>),
    /// A host, or a device on the path from it that changes packets.
    HostOrPath(IpAddr),
    /// The network: it lost or reordered packets.
    Network,
    /// Not known: the capture began late, or packets are missing from it.
    Unknown,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(ip, Some(qp)) => write!(f, "{ip} qp {qp}"),
            Self::Host(ip, None) => write!(f, "{ip}"),
            Self::HostOrPath(ip) => write!(f, "{ip} or the path from it"),
            Self::Network => f.write_str("network"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}
