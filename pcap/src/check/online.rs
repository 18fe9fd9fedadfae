//! A checker for the packets of a device in operation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use softroce::port::{Direction, Sink};
use softroce::time::Instant;

use super::{Checker, Counts, Finding};
use crate::flow::Limits;

/// Checks what a device sends and receives.
///
/// The device is given a [`sink`](Self::sink) when it is opened. Packets are numbered from 1, and
/// their times are the device's.
#[derive(Debug)]
pub struct OnlineCheck {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    checker: Checker,
    findings: Vec<Finding>,
    most: usize,
}

impl OnlineCheck {
    /// Creates a checker that keeps the first `most` findings and counts all.
    pub fn new(limits: Limits, most: usize) -> Self {
        let state = State { checker: Checker::new(limits), findings: Vec::new(), most };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns a sink for the packets of a port. The packets of several sinks are checked in the order in
    /// which they are shown.
    pub fn sink(&self) -> Box<dyn Sink> {
        Box::new(CheckSink { state: Arc::clone(&self.state) })
    }

    /// Returns the new findings, and all counts so far.
    pub fn finish(&self) -> (Vec<Finding>, Counts) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.findings), state.checker.counts().clone())
    }
}

#[derive(Debug)]
struct CheckSink {
    state: Arc<Mutex<State>>,
}

impl Sink for CheckSink {
    fn packet(&mut self, at: Instant, direction: Direction, ip_packet: &[u8]) {
        let State { checker, findings, most } = &mut *lock(&self.state);
        let number = checker.counts().packets + 1;
        let time = Duration::from_nanos(at.as_nanos());
        let found = checker.directed(number, Some(time), Some(direction), ip_packet);
        let room = *most - findings.len();
        findings.extend(found.iter().take(room).cloned());
    }
}

/// A panic elsewhere leaves whole findings.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Severity;

    #[test]
    fn findings_of_all_sinks_are_kept_up_to_a_number_and_counted_beyond() {
        let check = OnlineCheck::new(Limits::default(), 2);
        // A datagram to the RoCE port with nothing in it.
        let packet = [
            0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12,
            0xb7, 0, 8, 0, 0,
        ];
        for (n, direction) in
            [Direction::Sent, Direction::Received, Direction::Sent].iter().enumerate()
        {
            let at = Instant::from_micros(u64::try_from(n).unwrap());
            check.sink().packet(at, *direction, &packet);
        }
        let (findings, counts) = check.finish();
        assert_eq!((counts.roce_packets, counts.of(Severity::Violation)), (3, 3));
        let reported: Vec<_> =
            findings.iter().map(|f| (f.packet, f.time.unwrap().as_micros())).collect();
        assert_eq!(reported, [(1, 0), (2, 1)]);
    }
}
