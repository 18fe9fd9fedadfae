//! Loopback of a TAP port: bursts to its own addresses and groups. The link does not return them to their sender.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::net::{Burst, Ipv4Fields, RxBuffer, RxMeta};
use crate::port::shared::frame::QueuedBurst;

/// Bursts from the port to itself.
#[derive(Debug)]
pub(super) struct Loopback {
    queue: VecDeque<QueuedBurst>,
    bytes: usize,
    /// Maximum bytes in the queue.
    limit: usize,
    /// Bursts lost to a full queue.
    drops: u64,
}

impl Loopback {
    pub(super) fn new(limit: usize) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, limit, drops: 0 }
    }

    /// Queues a burst; without room it is lost.
    pub(super) fn take(&mut self, burst: &Burst) {
        let queued = QueuedBurst::from(burst);
        if self.bytes + queued.memory() > self.limit {
            self.drops += 1;
            return;
        }
        self.bytes += queued.memory();
        self.queue.push_back(queued);
    }

    /// Delivers up to `most` bursts and returns their number.
    pub(super) fn deliver(&mut self, most: usize, sink: &mut dyn FnMut(RxBuffer<'_>)) -> usize {
        let count = self.queue.len().min(most);
        for queued in self.queue.drain(..count) {
            self.bytes -= queued.memory();
            let QueuedBurst { path, segment_len, data } = queued;
            let ipv4 = Ipv4Fields { id: 0, dont_fragment: true };
            let meta = RxMeta {
                source: (path.source, path.source_port).into(),
                destination: path.destination,
                traffic_class: path.traffic_class,
                hop_limit: path.hop_limit,
                ipv4: path.destination.is_ipv4().then_some(ipv4),
                may_omit_icrc: false,
            };
            sink(RxBuffer { data: &data, segment_len, meta });
        }
        count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the bytes queued for one of the addresses.
    pub(super) fn queued_bytes_to(&self, ip: IpAddr) -> u64 {
        let bound = self.queue.iter().filter(|queued| queued.path.destination == ip);
        bound.map(|queued| queued.memory() as u64).sum()
    }

    pub(super) fn drops(&self) -> u64 {
        self.drops
    }
}
