//! Selects the connections and packets to analyze.

use std::net::IpAddr;
use std::time::Duration;

use softroce::ids::Qpn;

use super::flow::Flow;

/// What is to be analyzed.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Flows in which one of these queue pairs takes part; all when there is none.
    pub qps: Vec<Qpn>,
    /// Packets from or to one of these addresses; all when there is none.
    pub addresses: Vec<IpAddr>,
    /// Packets that long after the first of the capture, or later.
    pub from: Option<Duration>,
    /// Packets that long after it, or earlier.
    pub to: Option<Duration>,
}

impl Filter {
    /// Whether it lies between `from` and `to`.
    pub fn has_time(&self, since_start: Duration) -> bool {
        self.from.is_none_or(|from| from <= since_start)
            && self.to.is_none_or(|to| since_start <= to)
    }

    /// Whether one of the two is wanted.
    pub fn has_address(&self, ends: [IpAddr; 2]) -> bool {
        self.addresses.is_empty() || self.addresses.iter().any(|address| ends.contains(address))
    }

    pub(super) fn has_flow(&self, flow: &Flow) -> bool {
        let ends = [flow.a.qp, flow.b.qp];
        self.qps.is_empty() || self.qps.iter().any(|qp| ends.contains(&Some(*qp)))
    }
}
