//! An analysis as one object of JSON.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use softroce::wire::cm;
use softroce_pcap::analyze::{
    self as pcap, Analysis, Bins, CmExchange, CmMessage, Distribution, Flow, Messages, Phase,
    QUANTILES, Rate, Stream,
};
use softroce_pcap::flow::{CmConversation, Outcome, Subject};
use softroce_pcap::hex;

use crate::check::Icrc;

/// Returns the object. The series of each stream are lists of numbers, or what `packed` returns in their place.
pub(super) fn whole<'a>(name: &'a str, analysis: &'a Analysis, packed: Packed) -> impl Serialize {
    let counts = &analysis.counts;
    Whole {
        file: name,
        packets: counts.packets,
        roce_packets: counts.roce_packets,
        icrc: counts.icrc.into(),
        unsplit_bursts: counts.unsplit,
        management: counts.management,
        rejected: counts.rejected,
        stray_cnps: counts.stray_cnps,
        not_followed: counts.not_followed,
        start: analysis.start.as_ref().map(Duration::as_secs_f64),
        duration_s: seconds(analysis.duration),
        flows: analysis.flows.iter().map(|flow| ShownFlow::of(flow, packed)).collect(),
        conversations: analysis.conversations.iter().map(conversation).collect(),
        unlisted_conversations: analysis.unlisted_conversations,
    }
}

/// Returns the series of a stream in another form than lists of numbers.
pub(super) type Packed = fn(&Stream) -> Option<Value>;

#[derive(Serialize)]
struct Whole<'a> {
    file: &'a str,
    packets: u64,
    roce_packets: u64,
    icrc: Icrc,
    unsplit_bursts: u64,
    management: u64,
    rejected: u64,
    stray_cnps: u64,
    not_followed: u64,
    /// Time of the first packet, in seconds since the Unix epoch.
    start: Option<f64>,
    duration_s: f64,
    flows: Vec<ShownFlow>,
    /// Conversations of connection managers.
    conversations: Vec<Value>,
    unlisted_conversations: u64,
}

/// Queue pair at one end of a flow.
#[derive(Serialize)]
struct End {
    ip: IpAddr,
    qp: Option<u32>,
}

/// Figures of a flow or a stream.
#[derive(Serialize)]
struct Figures {
    operations: BTreeMap<&'static str, Operations>,
    #[serde(flatten)]
    traffic: Traffic,
    /// Latency of all messages.
    latency_us: Percentiles,
    ack_rtt_us: Percentiles,
    retransmitted: Retransmitted,
    naks: BTreeMap<String, u64>,
    /// Number of RNR NAKs.
    rnr: u64,
    rnr_waits: Waits,
    timeouts: Waits,
    #[serde(flatten)]
    network: Network,
}

#[derive(Serialize)]
struct Traffic {
    requests: u64,
    answers: u64,
    bytes: u64,
    delivered_bytes: u64,
    goodput_gbit_per_s: Option<f64>,
}

/// Effects of the network on the packets.
#[derive(Serialize)]
struct Network {
    out_of_order: u64,
    duplicates: u64,
    missing: Missing,
    unacknowledged: u64,
    cnps: u64,
    ecn_marked: u64,
}

#[derive(Serialize)]
struct Operations {
    messages: u64,
    bytes: u64,
    with_immediate: u64,
    sizes: BTreeMap<u64, u64>,
    other_sizes: u64,
    latency_us: Percentiles,
}

#[derive(Serialize)]
struct Retransmitted {
    total: u64,
    by_nak: u64,
    by_timeout: u64,
    by_rnr: u64,
    /// Retransmissions implied by an acknowledgement of a later request.
    implied: u64,
    unexplained: u64,
    /// Retransmissions of packets that were acknowledged before, as the capture shows.
    spurious: u64,
    bytes: u64,
    read_answers: u64,
}

#[derive(Serialize)]
struct Waits {
    count: u64,
    total_s: f64,
    longest_s: f64,
}

#[derive(Serialize)]
struct Missing {
    lost_before_capture: u64,
    lost_behind_capture: u64,
    never_captured: u64,
    read_answers: u64,
}

impl Figures {
    /// Returns the sums over several streams, and the merged distributions.
    fn of(streams: &[&Stream], nanoseconds: u64) -> Self {
        let (mut latency, mut ack_rtt) = (Distribution::default(), Distribution::default());
        let mut by_kind: BTreeMap<&str, Messages> = BTreeMap::new();
        let mut naks = BTreeMap::new();
        for stream in streams {
            ack_rtt.merge(&stream.in_flight.ack_rtt);
            for (kind, messages) in &stream.operations {
                latency.merge(&messages.latency);
                by_kind.entry(kind.name()).or_default().merge(messages);
            }
            for (nak, count) in &stream.recovery.naks {
                *naks.entry(key(nak.name())).or_default() += count;
            }
        }
        Self {
            operations: by_kind.iter().map(|(name, of)| (*name, Operations::of(of))).collect(),
            traffic: Traffic::of(streams, nanoseconds),
            latency_us: Percentiles::of(&latency),
            ack_rtt_us: Percentiles::of(&ack_rtt),
            retransmitted: Retransmitted::of(streams),
            naks,
            rnr: sum(streams, |s| s.recovery.rnr.count),
            rnr_waits: Waits::of(streams.iter().map(|s| &s.recovery.rnr)),
            timeouts: Waits::of(streams.iter().map(|s| &s.recovery.timeouts)),
            network: Network::of(streams),
        }
    }
}

/// Returns the sum of a figure over streams.
fn sum(streams: &[&Stream], figure: impl Fn(&Stream) -> u64) -> u64 {
    streams.iter().map(|stream| figure(stream)).sum()
}

impl Traffic {
    fn of(streams: &[&Stream], nanoseconds: u64) -> Self {
        let delivered_bytes = sum(streams, |s| s.traffic.delivered);
        Self {
            requests: sum(streams, |s| s.traffic.requests),
            answers: sum(streams, |s| s.traffic.answers),
            bytes: sum(streams, |s| s.traffic.bytes),
            delivered_bytes,
            goodput_gbit_per_s: Rate::of(delivered_bytes, nanoseconds).map(|rate| rate.0),
        }
    }
}

impl Retransmitted {
    fn of(streams: &[&Stream]) -> Self {
        Self {
            total: sum(streams, |s| s.recovery.again.total()),
            by_nak: sum(streams, |s| s.recovery.again.by_nak),
            by_timeout: sum(streams, |s| s.recovery.again.by_timeout),
            by_rnr: sum(streams, |s| s.recovery.again.by_rnr),
            implied: sum(streams, |s| s.recovery.again.implied),
            unexplained: sum(streams, |s| s.recovery.again.unexplained),
            spurious: sum(streams, |s| s.recovery.again.spurious),
            bytes: sum(streams, |s| s.recovery.again.bytes),
            read_answers: sum(streams, |s| s.recovery.again.responses),
        }
    }
}

impl Network {
    fn of(streams: &[&Stream]) -> Self {
        Self {
            out_of_order: sum(streams, |s| s.traffic.out_of_order),
            duplicates: sum(streams, |s| s.traffic.duplicates),
            missing: Missing {
                lost_before_capture: sum(streams, |s| s.recovery.missing.lost_before),
                lost_behind_capture: sum(streams, |s| s.recovery.missing.lost_behind),
                never_captured: sum(streams, |s| s.recovery.missing.never()),
                read_answers: sum(streams, |s| s.recovery.missing.responses),
            },
            unacknowledged: sum(streams, |s| s.recovery.unacknowledged),
            cnps: sum(streams, |s| s.traffic.cnps),
            ecn_marked: sum(streams, |s| s.traffic.ecn_marked),
        }
    }
}

impl Operations {
    fn of(messages: &Messages) -> Self {
        Self {
            messages: messages.messages,
            bytes: messages.bytes,
            with_immediate: messages.with_immediate,
            sizes: messages.sizes.clone(),
            other_sizes: messages.other_sizes,
            latency_us: Percentiles::of(&messages.latency),
        }
    }
}

impl Waits {
    fn of<'a>(all: impl Iterator<Item = &'a pcap::Waits>) -> Self {
        all.fold(Self { count: 0, total_s: 0.0, longest_s: 0.0 }, |sum, waits| Self {
            count: sum.count + waits.count,
            total_s: sum.total_s + seconds(waits.total),
            longest_s: sum.longest_s.max(seconds(waits.longest)),
        })
    }
}

#[derive(Serialize)]
struct ShownFlow {
    a: End,
    b: End,
    transport: &'static str,
    mtu: Option<usize>,
    /// How the two directions were joined.
    joined: &'static str,
    /// The same as text.
    joined_how: &'static str,
    first_s: f64,
    duration_s: f64,
    #[serde(flatten)]
    figures: Figures,
    diagnosis: Vec<Diagnosis>,
    cm: Option<Value>,
    streams: Vec<ShownStream>,
}

#[derive(Serialize)]
struct ShownStream {
    asker: End,
    asked: End,
    first_s: f64,
    last_s: f64,
    #[serde(flatten)]
    figures: Figures,
    in_flight: Value,
    /// Time in each phase.
    time_s: Map<String, Value>,
    #[serde(flatten)]
    series: Series,
}

/// Series of a stream over time.
#[derive(Serialize)]
#[serde(untagged)]
enum Series {
    Packed { series: Value },
    Numbers { goodput_over_time: Value, carried_over_time: Value, in_flight_over_time: Value },
}

impl Series {
    fn numbers(stream: &Stream) -> Self {
        let in_flight = &stream.over_time.in_flight;
        Self::Numbers {
            goodput_over_time: rates(stream.arrived_over_time()),
            carried_over_time: rates(&stream.over_time.carried),
            in_flight_over_time: json!({
                "start_s": seconds(in_flight.start()),
                "bin_s": seconds(in_flight.width()),
                "max_bytes": in_flight.values(),
            }),
        }
    }
}

impl ShownFlow {
    fn of(flow: &Flow, packed: Packed) -> Self {
        let streams: Vec<_> = flow.streams.iter().collect();
        let end = |end: &pcap::End| End { ip: end.ip, qp: end.qp.map(|qp| qp.value()) };
        Self {
            a: end(&flow.a),
            b: end(&flow.b),
            transport: flow.transport.name(),
            mtu: flow.mtu(),
            joined: flow.certainty.key(),
            joined_how: flow.certainty.name(),
            first_s: seconds(flow.first()),
            duration_s: seconds(flow.duration()),
            figures: Figures::of(&streams, flow.duration()),
            diagnosis: flow.reasons().iter().map(Diagnosis::of).collect(),
            cm: flow.cm_exchange.as_deref().map(cm_exchange),
            streams: streams.iter().map(|stream| ShownStream::of(stream, packed)).collect(),
        }
    }
}

/// A cause of the duration of a stream, or a remarkable fact.
#[derive(Serialize)]
struct Diagnosis {
    what: &'static str,
    stream: usize,
    time_s: f64,
    share: f64,
    brief: String,
    text: String,
}

impl Diagnosis {
    fn of(reason: &pcap::Reason) -> Self {
        Self {
            what: reason.what.name(),
            stream: reason.stream,
            time_s: seconds(reason.time),
            share: reason.share,
            brief: reason.brief(),
            text: reason.to_string(),
        }
    }
}

impl ShownStream {
    fn of(stream: &Stream, packed: Packed) -> Self {
        let direction = &stream.direction;
        let spent = Phase::ALL.map(|phase| (phase.name(), stream.spent(phase)));
        let (bytes, packets) = (&stream.in_flight.bytes, &stream.in_flight.packets);
        Self {
            asker: End { ip: direction.source, qp: stream.from.map(|qp| qp.value()) },
            asked: End { ip: direction.destination, qp: Some(direction.qp.value()) },
            first_s: seconds(stream.first),
            last_s: seconds(stream.last),
            figures: Figures::of(&[stream], stream.duration()),
            in_flight: json!({
                "median_bytes": bytes.median(),
                "max_bytes": bytes.max(),
                "median_packets": packets.median(),
                "max_packets": packets.max(),
            }),
            time_s: spent
                .map(|(name, time)| (key(name), seconds(time).into()))
                .into_iter()
                .collect(),
            series: packed(stream)
                .map_or_else(|| Series::numbers(stream), |series| Series::Packed { series }),
        }
    }
}

fn rates(bins: &Bins) -> Value {
    let rate = |bytes: &u64| Rate::of(*bytes, bins.width()).map(|rate| rate.0);
    json!({
        "start_s": seconds(bins.start()),
        "bin_s": seconds(bins.width()),
        "gbit_per_s": bins.values().iter().map(rate).collect::<Vec<_>>(),
    })
}

fn conversation(of: &CmConversation) -> Value {
    let steps = &of.steps;
    let time = |at: Option<u64>| at.map(seconds);
    let (by, reason) = match of.outcome {
        Outcome::Rejected(by, reason) => (Some(by), Some(reason.to_string())),
        Outcome::Disconnected(by, _) => (Some(by), None),
        Outcome::Resolved(status) => (Some(of.passive), Some(status.to_string())),
        _ => (None, None),
    };
    json!({
        "active": of.active,
        "passive": of.passive,
        "service": format!("0x{:016x}", of.service.0),
        "transport": match of.subject {
            Subject::Connection(transport) => transport.name(),
            Subject::Service => "UD",
        },
        "outcome": of.outcome.name(),
        "by": by,
        "reason": reason,
        "asked_s": seconds(steps.asked),
        "answered_s": time(steps.answered),
        "ready_s": time(steps.ready),
        "ending_s": time(steps.ending),
        "ended_s": time(steps.ended),
        "repeated": {
            "requests": of.repeated.requests,
            "replies": of.repeated.replies,
            "disconnects": of.repeated.disconnects,
            "mras": of.repeated.delays,
        },
    })
}

fn cm_exchange(cm_exchange: &CmExchange) -> Value {
    json!({
        "asker": cm_exchange.there.source,
        "asked_s": seconds(cm_exchange.asked),
        "answered_s": seconds(cm_exchange.answered),
        "request": cm_message(&cm_exchange.request),
        "reply": cm_message(&cm_exchange.reply),
    })
}

fn cm_message(cm_message: &CmMessage) -> Value {
    let fields = cm_message.fields.iter().map(|(name, value)| {
        let value = match value {
            cm::Value::Flag(flag) => (*flag).into(),
            cm::Value::Number(number) => (*number).into(),
            name_or_address => name_or_address.to_string().into(),
        };
        ((*name).to_owned(), value)
    });
    let fields: Map<_, _> = fields.collect();
    json!({ "fields": fields, "private_data": hex(&cm_message.private_data) })
}

/// Distribution in nanoseconds, printed in microseconds.
struct Percentiles(Distribution);

impl Percentiles {
    fn of(distribution: &Distribution) -> Self {
        Self(distribution.clone())
    }
}

impl Serialize for Percentiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(of) = self;
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &of.count())?;
        map.serialize_entry("min", &us(of.min()))?;
        map.serialize_entry("mean", &us(of.mean()))?;
        for (name, share) in QUANTILES {
            map.serialize_entry(name, &us(of.quantile(share)))?;
        }
        map.serialize_entry("max", &us(of.max()))?;
        map.end()
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Returns a name as a JSON key.
fn key(name: &str) -> String {
    name.replace(' ', "_")
}
