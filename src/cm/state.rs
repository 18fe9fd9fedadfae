//! States of an id.

use std::fmt;

/// State of an id (IBTA vol 1, §12.9.7). `ReqRcvd` and `RepRcvd` include the time in which the consumer has not
/// answered yet; Linux calls that `MRA_REQ_SENT` and `MRA_REP_SENT`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum State {
    /// Not connected, or no longer.
    Idle,
    /// Listener.
    Listen,
    /// Active: a REQ was sent.
    ReqSent,
    /// Active: an MRA for the REQ arrived.
    MraReqRcvd,
    /// Passive: a REQ arrived.
    ReqRcvd,
    /// Passive: a REP was sent.
    RepSent,
    /// Passive: an MRA for the REP arrived.
    MraRepRcvd,
    /// Active: a REP arrived.
    RepRcvd,
    /// Connected.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// A DREQ arrived, and the consumer has not disconnected yet.
    DreqRcvd,
    /// Disconnected; packets of the connection may still arrive.
    Timewait,
    /// A SIDR_REQ was sent.
    SidrReqSent,
    /// A SIDR_REQ arrived.
    SidrReqRcvd,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "IDLE",
            Self::Listen => "LISTEN",
            Self::ReqSent => "REQ_SENT",
            Self::MraReqRcvd => "MRA_REQ_RCVD",
            Self::ReqRcvd => "REQ_RCVD",
            Self::RepSent => "REP_SENT",
            Self::MraRepRcvd => "MRA_REP_RCVD",
            Self::RepRcvd => "REP_RCVD",
            Self::Established => "ESTABLISHED",
            Self::DreqSent => "DREQ_SENT",
            Self::DreqRcvd => "DREQ_RCVD",
            Self::Timewait => "TIMEWAIT",
            Self::SidrReqSent => "SIDR_REQ_SENT",
            Self::SidrReqRcvd => "SIDR_REQ_RCVD",
        })
    }
}
