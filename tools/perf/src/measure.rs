//! The size of a row, and the results of each side.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A row of a test.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Bytes of a message.
    pub size: usize,
    pub amount: Amount,
}

/// Length of a row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Amount {
    /// Number of messages.
    Messages(u64),
    Time(Duration),
}

/// Results of a row on one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Rate of sent messages, if the side sends any.
    pub rate: Option<Rate>,
    /// Messages that arrived, if the side sees them.
    pub arrivals: Arrivals,
    pub counted: Counted,
}

/// Counters of one side's device in a row.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    pub retransmits: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub kernel_drops: u64,
    /// Packets that found no receive request.
    pub without_receive: u64,
}

impl Counted {
    /// Returns the sums over both sides.
    pub fn with(self, other: Self) -> Self {
        Self {
            retransmits: self.retransmits + other.retransmits,
            kernel_drops: self.kernel_drops + other.kernel_drops,
            without_receive: self.without_receive + other.without_receive,
        }
    }

    /// Returns the difference to earlier counts.
    pub fn since(self, before: Self) -> Self {
        Self {
            retransmits: self.retransmits - before.retransmits,
            kernel_drops: self.kernel_drops - before.kernel_drops,
            without_receive: self.without_receive - before.without_receive,
        }
    }
}

/// Rate of messages that a side has sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rate {
    pub messages: u64,
    pub seconds: f64,
    /// Messages a second in the best interval.
    pub peak: f64,
}

/// Messages that arrived at a side that sees them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Arrivals {
    pub messages: u64,
    /// Seconds from the first message to the last.
    pub seconds: f64,
}
