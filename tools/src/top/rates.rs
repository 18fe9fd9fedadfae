//! Samples of all devices, and rates from two of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use softroce::runtime::control::SocketName;

use crate::live::{ListenerStatus, QpStatus, Status, Statuses};

/// Counters, by name; those at 0 may be missing.
type Counters = BTreeMap<String, u64>;

/// Counters of messages: requests of this side, and of peers.
const MESSAGES: [&str; 9] = [
    "sends_completed",
    "writes_completed",
    "reads_completed",
    "atomics_completed",
    "flushes_completed",
    "receives_completed",
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
];

/// Rates of a device or queue pair, and numbers since its start.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Rates {
    /// Bits of UDP payload sent per second.
    pub(crate) tx_bits_per_second: f64,
    /// Bits of UDP payload received per second.
    pub(crate) rx_bits_per_second: f64,
    /// Messages per second.
    pub(crate) messages_per_second: f64,
    /// Mean bytes of UDP payload of a message.
    pub(crate) bytes_per_message: f64,
    /// Packets without acknowledgement.
    pub(crate) outstanding_packets: u64,
    /// Unfinished send requests.
    pub(crate) posted_sends: u64,
    /// Packets retransmitted.
    pub(crate) retransmitted: u64,
    /// RNR NAKs sent and received.
    pub(crate) rnr_naks: u64,
    /// Congestion notification packets received.
    pub(crate) cnps: u64,
    /// Whether these three have grown since the previous sample.
    #[serde(skip)]
    pub(crate) grown: [bool; 3],
}

/// A device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceRow {
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) device: String,
    pub(crate) ip: IpAddr,
    pub(crate) via: String,
    pub(crate) shards: u32,
    /// Number of captures of its packets.
    pub(crate) captures: u32,
    pub(crate) rates: Rates,
    pub(crate) counters: Counters,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) qps: Vec<QpRow>,
}

/// A queue pair.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QpRow {
    #[serde(flatten)]
    pub(crate) status: QpStatus,
    pub(crate) rates: Rates,
}

/// Takes samples.
#[derive(Default)]
pub(crate) struct Sampler {
    statuses: Statuses,
    previous: BTreeMap<SocketName, Status>,
}

impl Sampler {
    /// Takes a sample. Rates are those since the previous one, and 0 in the first.
    pub(crate) fn sample(&mut self) -> anyhow::Result<Vec<DeviceRow>> {
        let found = self.statuses.query()?;
        let rows =
            found.iter().map(|(name, status)| device(status, self.previous.get(name))).collect();
        self.previous = found;
        Ok(rows)
    }
}

fn device(status: &Status, before: Option<&Status>) -> DeviceRow {
    let elapsed_ns = before.map(|before| status.time_ns.saturating_sub(before.time_ns));
    let qp = |qp: &QpStatus| {
        let before = before.and_then(|before| before.qps.iter().find(|other| other.qp == qp.qp));
        let counters = (&qp.counters, before.map(|before| &before.counters));
        let load = (qp.outstanding_packets, qp.posted_sends);
        QpRow { status: qp.clone(), rates: rates(counters, load, elapsed_ns) }
    };
    let sum = |of: fn(&QpStatus) -> u64| status.qps.iter().map(of).sum();
    let load = (sum(|qp| qp.outstanding_packets), sum(|qp| qp.posted_sends));
    let counters = (&status.counters, before.map(|before| &before.counters));
    DeviceRow {
        pid: status.pid,
        program: status.program.clone(),
        device: status.device.clone(),
        ip: status.ip,
        via: status.via.clone(),
        shards: status.shards,
        captures: status.captures,
        rates: rates(counters, load, elapsed_ns),
        counters: status.counters.clone(),
        listeners: status.listeners.clone(),
        qps: status.qps.iter().map(qp).collect(),
    }
}

/// Returns the rates between two samples.
fn rates(
    (after, before): (&Counters, Option<&Counters>),
    (outstanding_packets, posted_sends): (u64, u64),
    elapsed_ns: Option<u64>,
) -> Rates {
    let value = |counters: &Counters, name: &str| counters.get(name).copied().unwrap_or_default();
    // A queue pair that did not exist has counted from 0 on.
    let delta = |name: &str| {
        let before = before.map_or(0, |before| value(before, name));
        value(after, name).saturating_sub(before)
    };
    let seconds = elapsed_ns.filter(|ns| *ns > 0).map(|ns| ns as f64 / 1e9);
    let rate = |count: u64| seconds.map_or(0.0, |seconds| count as f64 / seconds);
    let messages: u64 = MESSAGES.iter().map(|name| delta(name)).sum();
    let bytes = delta("tx_bytes") + delta("rx_bytes");
    let total = |names: &[&str]| names.iter().map(|name| value(after, name)).sum();
    let grown = |names: &[&str]| seconds.is_some() && names.iter().any(|name| delta(name) > 0);
    let totals: [&[&str]; 3] =
        [&["retransmitted"], &["rnr_naks_received", "rnr_naks_sent"], &["cnps_received"]];
    let [retransmitted, rnr_naks, cnps] = totals.map(total);
    Rates {
        tx_bits_per_second: rate(8 * delta("tx_bytes")),
        rx_bits_per_second: rate(8 * delta("rx_bytes")),
        messages_per_second: rate(messages),
        bytes_per_message: match messages {
            _ if seconds.is_none() => 0.0,
            0 => 0.0,
            _ => bytes as f64 / messages as f64,
        },
        outstanding_packets,
        posted_sends,
        retransmitted,
        rnr_naks,
        cnps,
        grown: totals.map(grown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(values: &[(&str, u64)]) -> Counters {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn rates_are_differences_by_time() {
        let before = counters(&[("tx_bytes", 1000), ("writes_completed", 1), ("retransmitted", 5)]);
        let after = counters(&[
            ("tx_bytes", 3000),
            ("rx_bytes", 400),
            ("writes_completed", 5),
            ("retransmitted", 5),
            ("rnr_naks_sent", 2),
        ]);
        let rates = rates((&after, Some(&before)), (3, 4), Some(500_000_000));
        let expected = Rates {
            tx_bits_per_second: 32_000.0,
            rx_bits_per_second: 6400.0,
            messages_per_second: 8.0,
            bytes_per_message: 600.0,
            outstanding_packets: 3,
            posted_sends: 4,
            retransmitted: 5,
            rnr_naks: 2,
            cnps: 0,
            grown: [false, true, false],
        };
        assert_eq!(rates, expected);
    }

    #[test]
    fn first_sample_has_no_rates() {
        let after = counters(&[("tx_bytes", 3000), ("writes_completed", 5), ("retransmitted", 1)]);
        let rates = rates((&after, None), (0, 0), None);
        assert_eq!(rates, Rates { retransmitted: 1, ..Rates::default() });
    }
}
