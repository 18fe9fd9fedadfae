//! Middleware that captures while clients are attached: a port without one pays a branch in each call.

use std::io;

use super::capture::{Direction, Recorder, Sink};
use super::layer::{Layer, Middleware};
use crate::net::{Burst, RxBuffer};
use crate::port::traits::{Datapath, Port, TransmitError};
use crate::time::Instant;

/// A port that shows its packets to the attached sinks.
pub(crate) type LivePort<P> = Layer<P, LiveCapture>;

/// The [`Middleware`] of a [`LivePort`].
#[derive(Default)]
pub(crate) struct LiveCapture(Option<Box<Recorder<AttachedSinks>>>);

/// The sinks that are attached, each with its key.
type AttachedSinks = Vec<(u64, Box<dyn Sink>)>;

impl Sink for AttachedSinks {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        for (_, sink) in self {
            sink.packet(at, direction, ip_packet);
        }
    }

    fn is_full(&self) -> bool {
        self.iter().all(|(_, sink)| sink.is_full())
    }

    fn skipped(&mut self, packets: usize) {
        self.iter_mut().for_each(|(_, sink)| sink.skipped(packets));
    }
}

impl<P: Port> LivePort<P> {
    /// Shows each packet from now on to `sink` too. `key` is that of no other sink.
    pub(crate) fn attach(&mut self, key: u64, sink: Box<dyn Sink>) {
        let (LiveCapture(recorder), port) = self.parts();
        let recorder = recorder.get_or_insert_with(|| Box::new(Recorder::new(port, Vec::new())));
        recorder.sink_mut().push((key, sink));
    }

    /// Drops the sink with this key.
    pub(crate) fn detach(&mut self, key: u64) {
        let LiveCapture(recorder) = self.parts().0;
        if let Some(attached) = recorder {
            attached.sink_mut().retain(|(other, _)| *other != key);
            if attached.sink_mut().is_empty() {
                *recorder = None;
            }
        }
    }

    /// Returns the number of attached sinks.
    pub(crate) fn attached(&mut self) -> usize {
        self.parts().0.0.as_mut().map_or(0, |recorder| recorder.sink_mut().len())
    }
}

impl Middleware for LiveCapture {
    fn transmit(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        bursts: &[Burst],
    ) -> Result<usize, TransmitError> {
        match &mut self.0 {
            None => below.transmit(now, bursts),
            Some(recorder) => recorder.transmit(below, now, bursts),
        }
    }

    fn receive(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        match &mut self.0 {
            None => below.receive(now, sink),
            Some(recorder) => recorder.receive(below, now, sink),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::net::{BurstToken, Path};
    use crate::port::sim::Network;

    /// Counts packets.
    #[derive(Clone, Default)]
    struct Count(Arc<Mutex<usize>>);

    impl Sink for Count {
        fn packet(&mut self, _: Instant, _: Direction, _: &[u8]) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[test]
    fn sink_gets_the_packets_between_attach_and_detach() {
        let network = Network::new(0);
        let [a, b] = [1, 2].map(|host| [10, 0, 0, host].into());
        let mut near = LivePort::over(network.host(a), LiveCapture::default());
        let _far = network.host(b);
        let mut burst = Burst::new();
        let path = Path {
            source: a,
            destination: b,
            source_port: 0xc123,
            traffic_class: 0,
            hop_limit: 64,
        };
        burst.reset(path, BurstToken(0));
        burst.push(64).fill(1);
        let bursts = [burst];
        let send = |near: &mut LivePort<_>| near.transmit(Instant::ZERO, &bursts).unwrap();
        let (first, second) = (Count::default(), Count::default());
        send(&mut near);
        near.attach(1, Box::new(first.clone()));
        send(&mut near);
        near.attach(2, Box::new(second.clone()));
        assert_eq!(near.attached(), 2);
        send(&mut near);
        near.detach(1);
        near.detach(1);
        send(&mut near);
        near.detach(2);
        send(&mut near);
        assert_eq!(near.attached(), 0);
        assert_eq!([first, second].map(|count| *count.0.lock().unwrap()), [2, 2]);
    }
}
