//! What a TAP port sends to itself: to its own addresses, and to groups that it is in. The link carries
//! nothing back to where it came from.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::net::{Burst, Ipv4Fields, RxBuffer, RxMeta};
use crate::port::shared::frame::QueuedBurst;

/// Bursts on their way from the port to itself.
#[derive(Debug)]
pub(super) struct Inside {
    queue: VecDeque<QueuedBurst>,
    bytes: usize,
    /// Bytes that may be on their way.
    limit: usize,
    /// Bursts that found no room.
    drops: u64,
}

impl Inside {
    pub(super) fn new(limit: usize) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, limit, drops: 0 }
    }

    /// Takes a burst; without room it is lost.
    pub(super) fn take(&mut self, burst: &Burst) {
        let kept = QueuedBurst::from(burst);
        if self.bytes + kept.memory() > self.limit {
            self.drops += 1;
            return;
        }
        self.bytes += kept.memory();
        self.queue.push_back(kept);
    }

    /// Delivers up to `most`, and returns how many there were.
    pub(super) fn deliver(&mut self, most: usize, sink: &mut dyn FnMut(RxBuffer<'_>)) -> usize {
        let count = self.queue.len().min(most);
        for kept in self.queue.drain(..count) {
            self.bytes -= kept.memory();
            let QueuedBurst { path, segment_len, data } = kept;
            let ipv4 = Ipv4Fields { id: 0, dont_fragment: true };
            let meta = RxMeta {
                source: (path.source, path.source_port).into(),
                destination: path.destination,
                traffic_class: path.traffic_class,
                hop_limit: path.hop_limit,
                ipv4: path.destination.is_ipv4().then_some(ipv4),
            };
            sink(RxBuffer { data: &data, segment_len, meta });
        }
        count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes on their way to one of our addresses.
    pub(super) fn waiting_for(&self, ip: IpAddr) -> u64 {
        let bound = self.queue.iter().filter(|kept| kept.path.destination == ip);
        bound.map(|kept| kept.memory() as u64).sum()
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops
    }
}
