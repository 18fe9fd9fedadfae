//! An analysis as text: the causes of the duration first, then the figures.

use std::fmt::{self, Display};
use std::io::{self, Write};

use softroce_pcap::analyze::{
    Analysis, Bins, CmExchange, CmMessage, Count, Digits, Distribution, End, Flow, Messages,
    QUANTILES, Rate, Share, Size, Span, Stream,
};
use softroce_pcap::flow::{CmConversation, Outcome, Subject};

use crate::output::{Paint, Palette};
use softroce_pcap::hex;

/// Writes the analysis: `detailed` flows in full, one line for each further flow.
pub(super) fn report(
    out: &mut impl Write,
    name: &str,
    analysis: &Analysis,
    detailed: usize,
    palette: Palette,
) -> io::Result<()> {
    head(out, name, analysis)?;
    if analysis.flows.len() > 1 {
        table(out, analysis)?;
    }
    conversations(out, analysis, detailed.max(1))?;
    for (number, flow) in (1..).zip(&analysis.flows).take(detailed) {
        writeln!(out)?;
        self::flow(out, number, flow, palette)?;
    }
    let more = analysis.flows.len().saturating_sub(detailed);
    if more > 0 {
        writeln!(out, "\n{more} more flows have only their line above (--flows, --qpn, --addr)")?;
    }
    Ok(())
}

fn head(out: &mut impl Write, name: &str, analysis: &Analysis) -> io::Result<()> {
    let counts = &analysis.counts;
    let flows = analysis.flows.len();
    writeln!(
        out,
        "{name}: {} in {}, {} of RoCEv2, {}",
        Count(counts.packets, "packet"),
        Span(analysis.duration),
        counts.roce_packets,
        Count(flows as u64, "flow")
    )?;
    for (count, what) in [
        (counts.icrc.bad, "with a bad ICRC, which count as lost"),
        (counts.unsplit, "bursts that no ICRC shows how to cut, which are left out"),
        (counts.management, "of connection management"),
        (counts.rejected, "connections refused"),
        (counts.stray_cnps, "congestion notifications for flows that were not captured"),
        (counts.not_followed, "of flows beyond the limit, or of requests that were not captured"),
    ] {
        if count > 0 {
            writeln!(out, "  {count} {what}")?;
        }
    }
    Ok(())
}

/// Writes a line for each flow.
fn table(out: &mut impl Write, analysis: &Analysis) -> io::Result<()> {
    let ends: Vec<_> = analysis.flows.iter().map(ends).collect();
    let width = ends.iter().map(|ends| ends.len()).max().unwrap_or_default();
    writeln!(
        out,
        "\n   # {:width$}  service {:>10} {:>9} {:>11}  most of the time",
        "flow", "bytes", "time", "goodput"
    )?;
    for ((number, flow), ends) in (1..).zip(&analysis.flows).zip(&ends) {
        writeln!(
            out,
            "{number:4} {ends:width$}  {:7} {:>10} {:>9} {:>11}  {}",
            flow.transport.to_string(),
            Size(flow.bytes()).to_string(),
            Span(flow.duration()).to_string(),
            rate(flow.goodput()),
            flow.reasons().first().map_or(String::new(), |reason| reason.brief()),
        )?;
    }
    Ok(())
}

fn flow(out: &mut impl Write, number: usize, flow: &Flow, palette: Palette) -> io::Result<()> {
    let heading = format!("flow {number}: {}", ends(flow));
    write!(out, "{}  {}", palette.paint(Paint::Heading, heading), flow.transport)?;
    if let Some(mtu) = flow.mtu() {
        write!(out, ", MTU {mtu}")?;
    }
    writeln!(out, ", {}", flow.certainty.name())?;
    writeln!(
        out,
        "  {} in {}, {}",
        Size(flow.bytes()),
        Span(flow.duration()),
        rate(flow.goodput())
    )?;
    let reasons = flow.reasons();
    for reason in &reasons {
        let stream = flow.streams.get(reason.stream).filter(|_| flow.streams.len() > 1);
        let whose = stream.map_or(String::new(), |stream| format!("{}: ", way(flow, stream)));
        writeln!(out, "  - {whose}{reason}")?;
    }
    for stream in &flow.streams {
        writeln!(out, "  {}", way(flow, stream))?;
        self::stream(out, stream)?;
    }
    match &flow.cm_exchange {
        Some(cm_exchange) => self::cm_exchange(out, cm_exchange),
        None => Ok(()),
    }
}

fn stream(out: &mut impl Write, stream: &Stream) -> io::Result<()> {
    for (kind, messages) in &stream.operations {
        row(out, kind.name(), operations(messages))?;
    }
    if let Some(drawn) = drawn(stream.arrived_over_time(), stream.last) {
        row(out, "goodput", drawn)?;
    }
    let latencies = stream.operations.iter().map(|(kind, of)| (kind.name(), &of.latency));
    let mut latencies: Vec<_> = latencies.filter(|(_, latency)| latency.count() > 0).collect();
    if stream.in_flight.ack_rtt.count() > 0 {
        latencies.push(("ACK", &stream.in_flight.ack_rtt));
    }
    if !latencies.is_empty() {
        let names = QUANTILES.map(|(name, _)| format!("{:>9}", name.replace('_', ".")));
        row(out, "", format_args!("{} {:>9} {:>9}", names.join(" "), "max", "count"))?;
    }
    for (name, latency) in latencies {
        row(out, &format!("{name} µs"), percentiles(latency))?;
    }
    if stream.in_flight.bytes.count() > 0 {
        let (bytes, packets) = (&stream.in_flight.bytes, &stream.in_flight.packets);
        row(
            out,
            "in flight",
            format_args!(
                "{} in {} (median), {} in {} at most",
                Size(bytes.median()),
                Count(packets.median(), "packet"),
                Size(bytes.max()),
                Count(packets.max(), "packet")
            ),
        )?;
    }
    row(out, "packets", packets(stream))?;
    row_unless_empty(out, "refusals", &refusals(stream))?;
    row_unless_empty(out, "network", &network(stream))
}

fn row(out: &mut impl Write, name: &str, text: impl Display) -> io::Result<()> {
    writeln!(out, "    {name:15} {text}")
}

fn row_unless_empty(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    if text.is_empty() { Ok(()) } else { row(out, name, text) }
}

/// Returns both ends of a flow: `10.0.0.1 qp 0x000011 > 10.0.0.2 qp 0x000012`.
pub(super) fn ends(flow: &Flow) -> String {
    format!("{} > {}", end(&flow.a), end(&flow.b))
}

fn end(end: &End) -> String {
    match end.qp {
        Some(qp) => format!("{} qp {qp}", end.ip),
        None => format!("{} qp ?", end.ip),
    }
}

/// Returns the side that sends the requests of a stream.
pub(super) fn way(flow: &Flow, stream: &Stream) -> String {
    let (a, b) = (flow.a.ip, flow.b.ip);
    let asks = (stream.direction.source, Some(stream.direction.qp));
    match (a == b, asks == (a, flow.b.qp)) {
        (false, true) => format!("{a} asks"),
        (false, false) => format!("{b} asks"),
        (true, _) => format!("qp {} is asked", stream.direction.qp),
    }
}

/// Returns sizes of messages: `2048 of 65536 bytes, 12 of 100 bytes`.
fn operations(messages: &Messages) -> String {
    let mut sizes: Vec<_> = messages.sizes.iter().collect();
    sizes.sort_unstable_by_key(|(size, count)| (std::cmp::Reverse(**count), **size));
    let parts = sizes.iter().take(4).map(|(size, count)| format!("{count} of {size} bytes"));
    let mut parts: Vec<_> = parts.collect();
    // While there is room for another size, messages without a size have an unknown one.
    let (other, unknown) = match sizes.len() < Messages::SIZES {
        true => (0, messages.other_sizes),
        false => (messages.other_sizes, 0),
    };
    let other = other + sizes.iter().skip(4).map(|(_, count)| **count).sum::<u64>();
    for (count, what) in [(other, "other sizes"), (unknown, "unknown size")] {
        if count > 0 {
            parts.push(format!("{count} of {what}"));
        }
    }
    let immediate = messages.with_immediate;
    if immediate > 0 {
        parts.push(format!("{immediate} with immediate data"));
    }
    parts.join(", ")
}

fn percentiles(of: &Distribution) -> String {
    let found = QUANTILES.map(|(_, share)| of.quantile(share)).into_iter().chain([of.max()]);
    let columns = found.map(|ns| format!("{:>9} ", Digits(ns as f64 / 1e3).to_string()));
    format!("{}{:>9}", columns.collect::<String>(), of.count())
}

fn packets(stream: &Stream) -> String {
    let again = &stream.recovery.again;
    let mut parts = vec![format!(
        "{}, {}",
        Count(stream.traffic.requests, "request"),
        Count(stream.traffic.answers, "answer")
    )];
    if again.total() > 0 {
        let causes = listed(&[
            (again.by_nak, "for a NAK"),
            (again.by_timeout, "after a timeout"),
            (again.by_rnr, "after an RNR NAK"),
            (again.implied, "for a later response"),
            (again.unexplained, "unexplained"),
            (again.spurious, "though answered here"),
        ]);
        let share = Share(again.total() as f64 / stream.traffic.requests.max(1) as f64);
        parts.push(format!("; {} retransmitted ({share}): {causes}", again.total()));
    }
    if again.responses > 0 {
        parts.push(format!("; {} answers came again", again.responses));
    }
    parts.concat()
}

fn refusals(stream: &Stream) -> String {
    let naks = stream.recovery.naks.iter();
    let naks = naks.map(|(nak, count)| format!("{count} NAK {}", nak.name()));
    let mut parts: Vec<_> = naks.collect();
    let rnr = &stream.recovery.rnr;
    if rnr.count > 0 {
        let total = Span(rnr.total);
        parts.push(format!("{} NAK receiver not ready, heeded for {total}", rnr.count));
    }
    let timeouts = &stream.recovery.timeouts;
    if timeouts.count > 0 {
        let (count, total, longest) =
            (timeouts.count, Span(timeouts.total), Span(timeouts.longest));
        parts.push(format!("{count} timeouts, {total} in all, {longest} the longest"));
    }
    parts.join(", ")
}

fn network(stream: &Stream) -> String {
    let missing = &stream.recovery.missing;
    listed(&[
        (missing.lost_before, "lost before the point of capture"),
        (missing.lost_behind, "lost behind it"),
        (missing.never(), "never captured"),
        (missing.responses, "answers to READs missing"),
        (stream.traffic.out_of_order, "out of order"),
        (stream.traffic.duplicates, "doubled"),
        (stream.traffic.cnps, "CNPs"),
        (stream.traffic.ecn_marked, "marked by routers (ECN)"),
    ])
}

/// Lists the counts that are not zero.
fn listed(counts: &[(u64, &str)]) -> String {
    let parts = counts.iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// Writes a line for each conversation of connection managers, at most `most`: those that did not go as planned first.
fn conversations(out: &mut impl Write, analysis: &Analysis, most: usize) -> io::Result<()> {
    let mut listed: Vec<_> = analysis.conversations.iter().collect();
    if listed.is_empty() {
        return Ok(());
    }
    listed.sort_by_key(|conversation| is_plain(conversation));
    writeln!(out, "\nconnection manager: {}", Count(listed.len() as u64, "conversation"))?;
    for conversation in listed.iter().take(most) {
        writeln!(out, "  {}", Told(conversation))?;
    }
    let more = listed.len().saturating_sub(most) as u64 + analysis.unlisted_conversations;
    if more > 0 {
        writeln!(out, "  {more} more")?;
    }
    Ok(())
}

/// Returns whether a conversation succeeded at the first attempt.
fn is_plain(conversation: &CmConversation) -> bool {
    let is_good = match conversation.outcome {
        Outcome::Connected | Outcome::Disconnected(_, true) => true,
        Outcome::Resolved(status) => status.0 == 0,
        _ => false,
    };
    is_good && conversation.repeated == Default::default()
}

/// A conversation in one line.
struct Told<'a>(&'a CmConversation);

impl Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CmConversation { active, passive, service, steps, repeated, .. } = self.0;
        write!(f, "{active} to {passive}, ")?;
        match service.ip_port() {
            Some((6, port)) => write!(f, "TCP port {port}")?,
            Some((17, port)) => write!(f, "UDP port {port}")?,
            _ => write!(f, "service 0x{:016x}", service.0)?,
        }
        match self.0.subject {
            Subject::Connection(transport) => write!(f, " ({transport}): ")?,
            Subject::Service => write!(f, " (datagrams): ")?,
        }
        let since = |from: u64, to: Option<u64>| {
            to.map_or("?".to_owned(), |to| Span(to.saturating_sub(from)).to_string())
        };
        let ready = steps.ready.or(steps.answered);
        let connected = format!(
            "connected in {} (REP after {}, RTU after {} more)",
            since(steps.asked, ready),
            since(steps.asked, steps.answered),
            since(steps.answered.unwrap_or(steps.asked), steps.ready)
        );
        match self.0.outcome {
            Outcome::Unanswered => write!(f, "no answer")?,
            Outcome::Replied => {
                write!(f, "REP after {}, no RTU", since(steps.asked, steps.answered))?;
            }
            Outcome::Connected => write!(f, "{connected}")?,
            Outcome::Rejected(by, reason) => {
                let after = since(steps.asked, steps.ended);
                write!(f, "rejected by {by} after {after}: {reason}")?;
            }
            Outcome::Disconnected(by, is_answered) => {
                if steps.answered.is_some() {
                    write!(f, "{connected}, ")?;
                }
                write!(f, "disconnected by {by}")?;
                match is_answered {
                    true => {
                        let from = steps.ending.unwrap_or(steps.asked);
                        write!(f, " (DREP after {})", since(from, steps.ended))?;
                    }
                    false => write!(f, ", no DREP")?,
                }
            }
            Outcome::Resolved(status) => {
                write!(f, "answered after {}: {status}", since(steps.asked, steps.answered))?;
            }
        }
        let repeated = listed(&[
            (repeated.requests, "requests again"),
            (repeated.replies, "REPs again"),
            (repeated.disconnects, "DREQs again"),
            (repeated.delays, "MRAs"),
        ]);
        if !repeated.is_empty() {
            write!(f, "; {repeated}")?;
        }
        Ok(())
    }
}

fn cm_exchange(out: &mut impl Write, cm_exchange: &CmExchange) -> io::Result<()> {
    let took = Span(cm_exchange.answered.saturating_sub(cm_exchange.asked));
    let asker = cm_exchange.there.source;
    writeln!(out, "  connection manager: {asker} asked, and was answered after {took}")?;
    row(out, "REQ", CmFields(&cm_exchange.request))?;
    row(out, "REP", CmFields(&cm_exchange.reply))
}

/// The fields of a message that are not zero, and its private data.
struct CmFields<'a>(&'a CmMessage);

impl Display for CmFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.fields.iter().map(|(name, value)| (name, value.to_string()));
        let parts =
            parts.filter(|(_, value)| !value.trim_start_matches("0x").trim_matches('0').is_empty());
        let parts: Vec<_> = parts.map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&parts.join(" "))?;
        if !self.0.private_data.is_empty() {
            write!(f, " private_data={}", hex(&self.0.private_data))?;
        }
        Ok(())
    }
}

fn rate(rate: Option<Rate>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string())
}

const COLUMNS: usize = 60;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws a rate over time with a bar for each column; `None` for an empty time.
fn drawn(bins: &Bins, end: u64) -> Option<String> {
    let lasts = end.checked_sub(bins.start()).filter(|lasts| *lasts > 0)?;
    let count = usize::try_from(lasts / bins.width() + 1).ok()?;
    let per_column = count.div_ceil(COLUMNS).max(1);
    let column = per_column as u64 * bins.width();
    let values = bins.values().iter().copied().chain(std::iter::repeat(0)).take(count);
    let values: Vec<_> = values.collect();
    let sums = values.chunks(per_column).map(|bins| bins.iter().sum::<u64>());
    let sums: Vec<_> = sums.collect();
    let most = *sums.iter().max().filter(|most| **most > 0)?;
    let bars = sums.iter().map(|sum| {
        let level = u128::from(*sum) * 8;
        let level = usize::try_from(level.div_ceil(u128::from(most.max(1)))).unwrap_or(8);
        BARS.get(level).copied().unwrap_or(' ')
    });
    let bars: String = bars.collect();
    let peak = rate(Rate::of(most, column));
    Some(format!("|{bars}| up to {peak}, {} a column", Span(column)))
}
