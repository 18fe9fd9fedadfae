//! The flow of received datagrams that do not belong to a connection.

use std::net::{IpAddr, SocketAddr};

use crate::net::{ROCE_PORT, RxMeta};
use crate::wire::icrc::Flow;

/// Flow of the last buffer of UD, management or multicast datagrams, which often equals that of the next one.
#[derive(Debug, Default)]
pub(crate) struct FlowCache(Option<(SocketAddr, IpAddr, Flow)>);

impl FlowCache {
    /// Returns the flow of a buffer's datagrams.
    pub(crate) fn of(&mut self, meta: &RxMeta) -> Flow {
        let (source, destination) = (meta.source, meta.destination);
        match self.0 {
            Some((from, to, flow)) if from == source && to == destination => flow,
            _ => {
                let flow = Flow::new(source, SocketAddr::new(destination, ROCE_PORT));
                self.0 = Some((source, destination, flow));
                flow
            }
        }
    }
}
