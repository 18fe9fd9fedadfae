//! Results: one row for each size, as text in the format of perftest, or as JSON.

use std::fmt;
use std::io::Write;

use hdrhistogram::Histogram;
use serde::Serialize;
use softroce::ids::Mtu;
use softroce_cli::{Test, Transport};
use softroce_perf::ceiling::{Ceiling, Measurement, Pattern};
use softroce_perf::latency::Times;
use softroce_perf::measure::{Rate, Report};
use softroce_perf::protocol::Load;

use crate::output::{self, json_line};

/// Result of a row. In JSON a field that does not apply is `null`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) subject: Subject,
    pub(super) iterations: u64,
    pub(super) seconds: f64,
    pub(super) gbit_per_s: Option<f64>,
    pub(super) msg_per_s: Option<f64>,
    pub(super) fraction_of_ceiling: Option<f64>,
    pub(super) retransmits: Option<u64>,
    /// Sent messages, on services that may lose some.
    pub(super) sent: Option<u64>,
    pub(super) received: Option<u64>,
    pub(super) latency_us: Option<Latency>,
    /// Gbit/s in the best interval.
    #[serde(skip)]
    pub(super) peak: Option<f64>,
    /// Whether latencies are whole round trips instead of halves.
    #[serde(skip)]
    pub(super) is_round_trip: bool,
    #[serde(skip)]
    pub(super) raw: Raw,
}

/// The test and its load.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Subject {
    pub(super) test: &'static str,
    pub(super) transport: &'static str,
    pub(super) size: usize,
    pub(super) mtu: usize,
    pub(super) qps: Option<u32>,
    pub(super) bidirectional: bool,
}

/// Results of raw UDP with the same datagrams.
#[derive(Clone, Debug, Default)]
pub(super) struct Raw {
    pub(super) gbit_per_s: Option<f64>,
    pub(super) latency: Option<Latency>,
}

/// Distribution of times, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Latency {
    pub(super) min: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
    #[serde(skip)]
    pub(super) mean: f64,
    #[serde(skip)]
    pub(super) stdev: f64,
    /// Points (x, time): all but a share of 10^-x of the messages took at most this time.
    #[serde(skip)]
    pub(super) tail: Vec<(f64, f64)>,
}

impl Latency {
    /// Returns the distribution of times in nanoseconds.
    pub(super) fn of(times: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            min: us(times.min()),
            p50: us(times.value_at_quantile(0.5)),
            p99: us(times.value_at_quantile(0.99)),
            p999: us(times.value_at_quantile(0.999)),
            max: us(times.max()),
            mean: times.mean() / 1e3,
            stdev: times.stdev() / 1e3,
            tail: tail(times),
        }
    }
}

/// Returns twenty points for each power of ten, up to the number of messages.
fn tail(times: &Histogram<u64>) -> Vec<(f64, f64)> {
    let end = (times.len().max(1) as f64).log10();
    let steps = (0..200u32).map(|step| f64::from(step) / 20.0).take_while(|x| *x < end);
    let at = |x: f64| times.value_at_quantile(1.0 - 10f64.powf(-x)) as f64 / 1e3;
    steps.map(|x| (x, at(x))).chain([(end, times.max() as f64 / 1e3)]).collect()
}

impl Row {
    /// Returns the row of a test that has not run yet.
    pub(super) fn of_test(test: &'static str, load: &Load, size: usize, mtu: Mtu) -> Self {
        let subject = Subject {
            test,
            transport: load.kind.transport.name(),
            size,
            mtu: mtu.bytes(),
            qps: Some(load.qps),
            bidirectional: load.kind.bidirectional,
        };
        Self {
            subject,
            iterations: 0,
            seconds: 0.0,
            gbit_per_s: None,
            msg_per_s: None,
            fraction_of_ceiling: None,
            retransmits: None,
            sent: None,
            received: None,
            latency_us: None,
            peak: None,
            is_round_trip: load.kind.verb.is_answered(),
            raw: Raw::default(),
        }
    }

    /// Sets the rates, summed over both directions; on unreliable services, of messages that arrived.
    pub(super) fn set_rate(&mut self, ours: &Report, theirs: &Report, ceiling: Option<&Ceiling>) {
        let ways = [(ours.rate, theirs.arrivals), (theirs.rate, ours.arrivals)];
        let ways = ways.into_iter().filter_map(|(rate, arrivals)| Some((rate?, arrivals)));
        let is_unreliable =
            [Transport::Uc, Transport::Ud].map(Transport::name).contains(&self.subject.transport);
        let (mut per_s, mut peak, mut received) = (0.0, 0.0, 0);
        for (Rate { messages, seconds, peak: best }, arrivals) in ways {
            let arrived = if is_unreliable { arrivals.messages } else { messages };
            // The last message may arrive long after it was sent.
            let seconds = if is_unreliable { seconds.max(arrivals.seconds) } else { seconds };
            per_s += arrived as f64 / seconds.max(f64::EPSILON);
            peak += best;
            received += arrived;
            self.iterations += messages;
            self.seconds = self.seconds.max(seconds);
        }
        let gbit = |per_s: f64| per_s * self.subject.size as f64 * 8e-9;
        self.gbit_per_s = Some(gbit(per_s));
        self.peak = Some(gbit(peak));
        self.msg_per_s = Some(per_s);
        self.fraction_of_ceiling = ceiling.map(|ceiling| per_s / ceiling.msg_per_s);
        self.raw.gbit_per_s = ceiling.map(|ceiling| ceiling.gbit_per_s);
        if is_unreliable {
            self.sent = Some(self.iterations);
            self.received = Some(received);
        }
    }

    /// Sets the latencies. The medians are compared, because single delays do not affect them.
    pub(super) fn set_times(&mut self, times: &Times, ceiling: Option<&Ceiling>) {
        let latency = Latency::of(&times.each);
        let raw = ceiling.and_then(|ceiling| ceiling.times.as_ref()).map(Latency::of);
        self.iterations = times.each.len();
        self.seconds = times.seconds;
        self.fraction_of_ceiling = raw.as_ref().map(|raw| latency.p50 / raw.p50);
        self.raw.latency = raw;
        self.latency_us = Some(latency);
    }

    fn heading(&self) -> String {
        match (&self.latency_us, self.sent) {
            (Some(_), _) => LATENCY_HEADING.to_owned(),
            (None, Some(_)) => format!("{RATE_HEADING}{LOSS_HEADING}"),
            (None, None) => RATE_HEADING.to_owned(),
        }
    }

    pub(super) fn of_ceiling(measurement: &Measurement, ceiling: &Ceiling) -> Self {
        let latency_us = ceiling.times.as_ref().map(Latency::of);
        let rate = |per_s| latency_us.is_none().then_some(per_s);
        let subject = Subject {
            test: Test::Ceiling.name(),
            transport: "udp",
            size: measurement.shape.size,
            mtu: measurement.shape.mtu,
            qps: None,
            bidirectional: measurement.pattern == Pattern::BothWays,
        };
        Self {
            subject,
            iterations: ceiling.messages,
            seconds: ceiling.seconds,
            gbit_per_s: rate(ceiling.gbit_per_s),
            msg_per_s: rate(ceiling.msg_per_s),
            fraction_of_ceiling: None,
            retransmits: None,
            sent: None,
            received: None,
            latency_us,
            peak: None,
            is_round_trip: measurement.shape.operation.is_answered(),
            raw: Raw::default(),
        }
    }
}

/// Prints rows as they arrive.
pub(super) struct Table {
    json: bool,
    rows: Vec<Row>,
}

impl Table {
    pub(super) fn new(json: bool) -> Self {
        Self { json, rows: Vec::new() }
    }

    /// Returns the printed rows.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn print(&mut self, row: Row) -> anyhow::Result<()> {
        let mut out = output::stdout();
        if self.json {
            json_line(&mut out, &row)?;
        } else {
            if self.rows.is_empty() {
                writeln!(out, "{}", row.heading())?;
            }
            writeln!(out, "{row}")?;
        }
        self.rows.push(row);
        Ok(())
    }
}

/// Formats the row as a line of the table.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = match self.fraction_of_ceiling {
            Some(fraction) => format!("{:.0}%", fraction * 100.0),
            None => "-".into(),
        };
        let (size, n) = (self.subject.size, self.iterations);
        if let Some(Latency { min, p50, p99, p999, max, mean, stdev, .. }) = &self.latency_us {
            return write!(
                f,
                " {size:<7} {n:<10} {min:<14.2} {max:<14.2} {p50:<16.2} {mean:<14.2} {stdev:<14.2} \
                 {p99:<14.2} {p999:<16.2} {fraction}"
            );
        }
        let number = |n: Option<f64>| n.map_or("-".into(), |n| format!("{n:.2}"));
        let (peak, average) = (number(self.peak), number(self.gbit_per_s));
        let rate = self.msg_per_s.unwrap_or_default() / 1e6;
        write!(f, " {size:<10} {n:<14} {peak:<18} {average:<20} {rate:<15.6} ")?;
        match (self.sent, self.received) {
            (Some(sent), Some(received)) => {
                // The network may also have duplicated messages.
                let lost = sent.saturating_sub(received);
                let share = lost as f64 / (sent as f64).max(1.0) * 100.0;
                write!(f, "{fraction:<12} {received:<14} {lost} ({share:.2}%)")
            }
            _ => write!(f, "{fraction}"),
        }
    }
}

// The first columns are those of perftest with --report_gbits.
const RATE_HEADING: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   \
                            MsgRate[Mpps]   of ceiling";
const LOSS_HEADING: &str = "   received       lost";
const LATENCY_HEADING: &str = " #bytes  #iterations t_min[usec]    t_max[usec]    t_typical[usec]  \
                               t_avg[usec]    t_stdev[usec]  99%[usec]      99.9%[usec]      \
                               of ceiling";
