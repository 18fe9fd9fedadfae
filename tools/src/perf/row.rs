//! Results: a row a size, for people as perftest prints it, for programs as JSON.

use std::io::{self, Write};

use hdrhistogram::Histogram;
use serde::Serialize;
use softroce::ids::Mtu;

use super::latency::Times;
use super::stream::Rate;
use crate::ceiling::{Ceiling, Order};
use crate::cli::Test;

/// One result. In JSON `null` stands where a field does not apply.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) test: &'static str,
    pub(super) transport: &'static str,
    pub(super) size: usize,
    pub(super) mtu: usize,
    pub(super) qps: Option<u32>,
    pub(super) iterations: u64,
    pub(super) seconds: f64,
    pub(super) gbit_per_s: Option<f64>,
    pub(super) msg_per_s: Option<f64>,
    pub(super) fraction_of_ceiling: Option<f64>,
    pub(super) retransmits: Option<u64>,
    pub(super) latency_us: Option<Latency>,
    /// Gbit/s in the best stretch of the run.
    #[serde(skip)]
    pub(super) peak: Option<f64>,
}

/// A distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
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
}

impl Latency {
    /// Of times in nanoseconds.
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
        }
    }
}

impl Row {
    /// Of a test that has not been run.
    pub(super) fn of_test(test: Test, size: usize, mtu: Mtu, qps: u32) -> Self {
        Self {
            test: test.name(),
            transport: "rc",
            size,
            mtu: mtu.bytes(),
            qps: Some(qps),
            iterations: 0,
            seconds: 0.0,
            gbit_per_s: None,
            msg_per_s: None,
            fraction_of_ceiling: None,
            retransmits: None,
            latency_us: None,
            peak: None,
        }
    }

    pub(super) fn set_rate(&mut self, rate: &Rate, ceiling: Option<&Ceiling>) {
        let gbit = |per_s: f64| per_s * self.size as f64 * 8e-9;
        let per_s = rate.messages as f64 / rate.seconds.max(f64::EPSILON);
        self.gbit_per_s = Some(gbit(per_s));
        self.peak = Some(gbit(rate.peak));
        self.msg_per_s = Some(per_s);
        self.iterations = rate.messages;
        self.seconds = rate.seconds;
        self.fraction_of_ceiling = ceiling.map(|ceiling| per_s / ceiling.msg_per_s);
    }

    /// The median is what is compared: it bears a few that were held up.
    pub(super) fn set_times(&mut self, times: &Times, ceiling: Option<&Ceiling>) {
        let latency = Latency::of(&times.half_round_trips);
        let raw = ceiling.and_then(|ceiling| ceiling.half_round_trips.as_ref()).map(Latency::of);
        self.iterations = times.half_round_trips.len();
        self.seconds = times.seconds;
        self.fraction_of_ceiling = raw.map(|raw| latency.p50 / raw.p50);
        self.latency_us = Some(latency);
    }

    pub(super) fn of_ceiling(order: &Order, ceiling: &Ceiling) -> Self {
        let latency_us = ceiling.half_round_trips.as_ref().map(Latency::of);
        let rate = |per_s| latency_us.is_none().then_some(per_s);
        Self {
            test: Test::Ceiling.name(),
            transport: "udp",
            size: order.shape.size,
            mtu: order.shape.mtu,
            qps: None,
            iterations: ceiling.messages,
            seconds: ceiling.seconds,
            gbit_per_s: rate(ceiling.gbit_per_s),
            msg_per_s: rate(ceiling.msg_per_s),
            fraction_of_ceiling: None,
            retransmits: None,
            latency_us,
            peak: None,
        }
    }
}

/// Prints rows as they come.
pub(super) struct Table {
    json: bool,
    begun: bool,
}

impl Table {
    pub(super) fn new(json: bool) -> Self {
        Self { json, begun: false }
    }

    pub(super) fn print(&mut self, row: &Row) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, row)?;
            writeln!(out)?;
            return Ok(());
        }
        if !self.begun {
            self.begun = true;
            let heading = if row.latency_us.is_some() { LATENCY_HEADING } else { RATE_HEADING };
            writeln!(out, "{heading}")?;
        }
        let fraction = match row.fraction_of_ceiling {
            Some(fraction) => format!("{:.0}%", fraction * 100.0),
            None => "-".into(),
        };
        let (size, n) = (row.size, row.iterations);
        match &row.latency_us {
            Some(Latency { min, p50, p99, p999, max, mean, stdev }) => writeln!(
                out,
                " {size:<7} {n:<10} {min:<14.2} {max:<14.2} {p50:<16.2} {mean:<14.2} {stdev:<14.2} \
                 {p99:<14.2} {p999:<16.2} {fraction}"
            )?,
            None => {
                let number = |n: Option<f64>| n.map_or("-".into(), |n| format!("{n:.2}"));
                let (peak, average) = (number(row.peak), number(row.gbit_per_s));
                let rate = row.msg_per_s.unwrap_or_default() / 1e6;
                writeln!(
                    out,
                    " {size:<10} {n:<14} {peak:<18} {average:<20} {rate:<15.6} {fraction}"
                )?;
            }
        }
        Ok(())
    }
}

// The columns and their names are perftest's with --report_gbits; the last one is ours.
const RATE_HEADING: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   \
                            MsgRate[Mpps]   of ceiling";
const LATENCY_HEADING: &str = " #bytes  #iterations t_min[usec]    t_max[usec]    t_typical[usec]  \
                               t_avg[usec]    t_stdev[usec]  99%[usec]      99.9%[usec]      \
                               of ceiling";
