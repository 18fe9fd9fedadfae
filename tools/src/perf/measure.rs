//! A row of the test: its extent, and the results of each side.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// Bytes of a message.
    pub(super) size: usize,
    pub(super) amount: Amount,
}

/// How much.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Amount {
    /// Messages.
    Messages(u64),
    Time(Duration),
}

/// Results of a row on one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// Messages sent, if it sent any.
    pub(super) rate: Option<Rate>,
    /// What has arrived at it, where it sees that.
    pub(super) arrivals: Arrivals,
    pub(super) counted: Counted,
}

/// Counters of a side's device, for a row.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) retransmits: u64,
    /// Datagrams that the kernel dropped for want of a receive buffer.
    pub(super) kernel_drops: u64,
    /// Packets that found no receive request.
    pub(super) without_receive: u64,
}

impl Counted {
    /// What both sides have counted.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            retransmits: self.retransmits + other.retransmits,
            kernel_drops: self.kernel_drops + other.kernel_drops,
            without_receive: self.without_receive + other.without_receive,
        }
    }

    /// What has been counted since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            retransmits: self.retransmits - before.retransmits,
            kernel_drops: self.kernel_drops - before.kernel_drops,
            without_receive: self.without_receive - before.without_receive,
        }
    }
}

/// Messages that a side has sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Rate {
    pub(super) messages: u64,
    pub(super) seconds: f64,
    /// Messages a second in the best slice.
    pub(super) peak: f64,
}

/// What has arrived at a side that sees it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arrivals {
    pub(super) messages: u64,
    /// From the first to the last.
    pub(super) seconds: f64,
}
