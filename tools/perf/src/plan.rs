//! The test that the options ask for, and the checks that it exists.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use softroce::ids::Mtu;
use softroce_cli::{AtomicType, LoadArgs, Measure, PerfArgs, QueueArgs, Test, Transport, Verb};

use crate::ceiling::{Measurement, Operation, Pattern, Shape};
use crate::measure::Amount;

/// Bytes of an atomic operation.
const ATOMIC_BYTES: usize = 8;

/// A kind of test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kind {
    pub verb: Verb,
    pub measure: Measure,
    pub transport: Transport,
    pub atomic: AtomicType,
    /// Both sides send.
    pub bidirectional: bool,
    /// Queue pairs share a receive queue.
    pub shared: bool,
}

impl Kind {
    /// Returns the test that the options ask for.
    ///
    /// # Errors
    ///
    /// There is no such test, or it does not have an option.
    pub fn of(args: &PerfArgs) -> anyhow::Result<Self> {
        let is_ceiling = args.test == Test::Ceiling;
        if is_ceiling && (args.device.pcap.is_some() || args.device.impair.is_some()) {
            bail!(
                "--pcap and --impair are for a device; the ceiling is of UDP sockets without one"
            );
        }
        ensure!(
            !is_ceiling || args.device.via.is_none(),
            "--via is for a device; the ceiling is what UDP sockets carry without one, and stands beside each \
             result of the other tests"
        );
        ensure!(is_ceiling || args.of.is_none(), "--of: only ceiling imitates another test");
        let test = if is_ceiling { args.of.unwrap_or(Test::WriteBw) } else { args.test };
        let (verb, measure) =
            test.measures().context("--of ceiling: expected one of the other tests")?;
        let transport = args.load.connection.unwrap_or(Transport::Rc);
        let kind = Self {
            verb,
            measure,
            transport,
            shared: args.load.queues.use_srq || transport == Transport::Xrc,
            atomic: args.load.atomic_type.unwrap_or_default(),
            bidirectional: args.load.bidirectional,
        };
        kind.check(test.name(), &args.load)?;
        let is_curve = args.load.all && verb != Verb::Atomic;
        if args.plot.is_some() && !is_curve && measure == Measure::Bandwidth {
            bail!(match verb {
                Verb::Atomic =>
                    "--plot: bandwidth is drawn against size, and atomics have only one",
                _ =>
                    "--plot: bandwidth is drawn against size, and one size is one point: add --all",
            });
        }
        Ok(kind)
    }

    fn check(self, test: &str, load: &LoadArgs) -> anyhow::Result<()> {
        let Self { verb, transport, .. } = self;
        if !verb.exists_over(transport) {
            let service = transport.name();
            bail!("no {test} over {service}: {service} carries {}", carried_by(transport));
        }
        if self.measure == Measure::Latency {
            ensure!(load.qp.unwrap_or(1) == 1, "--qp: a latency test has one queue pair");
            ensure!(
                !self.bidirectional,
                "--bidirectional: a latency test has one message at a time"
            );
            ensure!(
                load.queues.post_list == 1,
                "--post_list {}: a latency test posts one message at a time",
                load.queues.post_list
            );
            let polls_memory = verb == Verb::Write;
            ensure!(
                !(load.events && polls_memory),
                "--events: in {test} there is no completion to sleep for"
            );
        }
        let QueueArgs { post_list, tx_depth, cq_mod, .. } = load.queues;
        ensure!(
            post_list <= tx_depth,
            "--post_list {post_list}: expected at most --tx-depth, which is {tx_depth}"
        );
        let divides =
            cq_mod.is_none_or(|cq_mod| post_list == 1 || post_list.is_multiple_of(cq_mod));
        ensure!(
            divides,
            "--cq-mod {}: expected a divisor of --post_list, which is {post_list}",
            cq_mod.unwrap_or_default()
        );
        if verb == Verb::Atomic {
            let size = load.size.unwrap_or(ATOMIC_BYTES);
            ensure!(size == ATOMIC_BYTES, "--size {size}: an atomic has {ATOMIC_BYTES} bytes");
        } else {
            ensure!(load.atomic_type.is_none(), "--atomic-type: {test} has no atomics");
        }
        ensure!(
            !load.queues.use_srq || self.takes_receives() || transport == Transport::Xrc,
            "--use-srq: {test} takes no receive requests"
        );
        let inline = load.queues.inline_size.unwrap_or_default();
        ensure!(
            inline == 0 || !verb.is_answered(),
            "--inline-size: {test} sends no data that could be inline"
        );
        Ok(())
    }

    /// Returns whether a message consumes a receive request of the other side.
    pub fn takes_receives(self) -> bool {
        self.verb == Verb::Send || self.writes_are_announced()
    }

    /// Returns whether WRITEs carry immediate data: UC has no acknowledgements, so the receiver counts the messages.
    #[inline]
    pub fn writes_are_announced(self) -> bool {
        let is_uc_bandwidth = self.transport == Transport::Uc && self.measure == Measure::Bandwidth;
        self.verb == Verb::Write && is_uc_bandwidth
    }

    /// Returns whether lost messages are not retransmitted.
    pub fn is_unreliable(self) -> bool {
        matches!(self.transport, Transport::Uc | Transport::Ud)
    }

    /// Returns the message sizes of the rows.
    ///
    /// # Errors
    ///
    /// A UD message would be longer than the MTU.
    pub fn sizes(self, args: &LoadArgs, mtu: Mtu) -> anyhow::Result<Vec<usize>> {
        let most = match self.transport {
            Transport::Ud => mtu.bytes(),
            Transport::Rc | Transport::Uc | Transport::Xrc => usize::MAX,
        };
        let of_their_own = match (self.verb, self.measure) {
            (Verb::Atomic, _) => ATOMIC_BYTES,
            (_, Measure::Latency) => 2,
            (_, Measure::Bandwidth) => most.min(65536),
        };
        if args.all && self.verb != Verb::Atomic {
            let sizes = (1..=23).map(|exponent| 1 << exponent);
            return Ok(sizes.take_while(|size| *size <= most).collect());
        }
        let size = args.size.unwrap_or(of_their_own);
        ensure!(
            size <= most,
            "--size {size}: over ud a message has the MTU at most, and that is {most} here"
        );
        Ok(vec![size])
    }

    /// Returns the raw UDP measurement to compare with. A side that `sleeps` waits in the kernel for each message.
    pub fn measurement(
        self,
        size: usize,
        mtu: Mtu,
        duration: Duration,
        sleeps: bool,
    ) -> Measurement {
        let operation = match (self.verb, self.transport) {
            (Verb::Write, _) if self.writes_are_announced() => Operation::WriteImm,
            (Verb::Write, _) => Operation::Write,
            (Verb::Read, _) => Operation::Read,
            (Verb::Send, Transport::Ud) => Operation::Datagram,
            (Verb::Send, _) => Operation::Send,
            (Verb::Atomic, _) => Operation::Atomic,
        };
        let pattern = match (self.measure, self.bidirectional) {
            (Measure::Latency, _) => Pattern::PingPong { sleeps },
            (Measure::Bandwidth, false) => Pattern::OneWay,
            (Measure::Bandwidth, true) => Pattern::BothWays,
        };
        Measurement { shape: Shape { operation, size, mtu: mtu.bytes() }, pattern, duration }
    }
}

/// Returns the names of the tests that a transport service has.
fn carried_by(transport: Transport) -> String {
    let exists =
        |test: &&Test| test.measures().is_some_and(|(verb, _)| verb.exists_over(transport));
    let names: Vec<_> =
        Test::value_variants().iter().filter(exists).map(|test| test.name()).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Returns the duration of a row that does not count messages.
pub fn duration(args: &LoadArgs) -> Duration {
    let default = if args.all { Duration::from_millis(250) } else { Duration::from_secs(1) };
    args.duration.unwrap_or(default)
}

/// Returns the length of a row.
pub fn amount(args: &LoadArgs) -> Amount {
    args.iters.map_or_else(|| Amount::Time(duration(args)), Amount::Messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_transport_carries_is_listed() {
        assert_eq!(carried_by(Transport::Uc), "write-bw, send-bw, write-lat and send-lat");
        assert_eq!(carried_by(Transport::Ud), "send-bw and send-lat");
    }
}
