//! State and load of queue pairs, for programs that observe a device.

use std::net::IpAddr;

use crate::engine::Engine;
use crate::engine::attr::{QpState, QpType};
use crate::engine::qp::QueuePair;
use crate::ids::Qpn;
use crate::transport::outputs::Counters;

/// State and load of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QpActivity {
    /// Its number.
    pub qpn: Qpn,
    /// Its transport service.
    pub qp_type: QpType,
    /// Its state.
    pub state: QpState,
    /// Address and queue pair number of the peer, of a connection.
    pub peer: Option<(IpAddr, Qpn)>,
    /// Number of send requests that are posted and not complete.
    pub posted_sends: usize,
    /// Number of request packets without acknowledgement, of RC and XRC.
    pub outstanding_packets: u32,
    /// Its counters.
    pub counters: Counters,
}

impl Engine {
    /// Returns state and load of each queue pair.
    pub fn activity_by_qp(&self) -> impl Iterator<Item = QpActivity> {
        self.qps.iter().map(|(slot, qp)| activity(qp, self.shared.tally.of(slot)))
    }
}

fn activity(qp: &QueuePair, counters: Counters) -> QpActivity {
    let connection = qp.remote.as_ref().and_then(|remote| remote.connection());
    let (posted_sends, outstanding_packets) = qp.send_load();
    QpActivity {
        qpn: qp.id.qpn,
        qp_type: qp.qp_type,
        state: qp.state,
        peer: connection.map(|connection| (connection.path.destination, connection.dest_qpn)),
        posted_sends,
        outstanding_packets,
        counters,
    }
}
