//! The tables of an analysis.

use softroce_cli::TableName;
use softroce_pcap::analyze::{Analysis, Distribution, End, Flow, QUANTILES, Stream};

use super::table::{Cell, Table};

/// Returns a table of an analysis.
pub(super) fn of(name: TableName, analysis: &Analysis) -> Table {
    match name {
        TableName::Conversations => conversations(analysis),
        TableName::Opcodes => opcodes(analysis),
        TableName::Sizes => sizes(analysis),
        TableName::Latencies => latencies(analysis),
        TableName::Recovery => recovery(analysis),
        TableName::Naks => naks(analysis),
        TableName::Cm => cm(analysis),
        TableName::Handshakes => handshakes(analysis),
        TableName::Intervals => intervals(analysis),
    }
}

fn text(text: impl ToString) -> Cell {
    Cell::Text(text.to_string())
}

fn qp(end: &End) -> Cell {
    end.qp.map_or_else(|| text("-"), text)
}

/// Returns the requester of a stream.
fn requester(stream: &Stream) -> Cell {
    let address = stream.direction.source;
    text(match stream.from {
        Some(qp) => format!("{address} qp {qp}"),
        None => format!("{address} qp -"),
    })
}

/// Returns the streams of all flows, with the numbers of the flows.
fn streams(analysis: &Analysis) -> impl Iterator<Item = (u64, &Stream)> {
    let flows = (1..).zip(&analysis.flows);
    flows.flat_map(|(number, flow)| flow.streams.iter().map(move |stream| (number, stream)))
}

fn conversations(analysis: &Analysis) -> Table {
    let mut table = Table::new(&[
        "conversation",
        "a",
        "a_qp",
        "b",
        "b_qp",
        "service",
        "requests_of_a",
        "bytes_of_a",
        "requests_of_b",
        "bytes_of_b",
        "start_ns",
        "duration_ns",
        "goodput_bits_per_second",
        "joined",
    ]);
    for (number, flow) in (1..).zip(&analysis.flows) {
        let of = |asks_a: bool, figure: fn(&Stream) -> u64| {
            flow.streams.iter().filter(|s| is_of_a(flow, s) == asks_a).map(figure).sum::<u64>()
        };
        let requests = |of_a| of(of_a, |stream| stream.traffic.requests);
        let bytes = |of_a| of(of_a, |stream| stream.traffic.bytes);
        table.push(vec![
            Cell::Number(number),
            text(flow.a.ip),
            qp(&flow.a),
            text(flow.b.ip),
            qp(&flow.b),
            text(flow.transport),
            Cell::Number(requests(true)),
            Cell::Bytes(bytes(true)),
            Cell::Number(requests(false)),
            Cell::Bytes(bytes(false)),
            Cell::Time(flow.first()),
            Cell::Time(flow.duration()),
            flow.goodput().map_or(Cell::Unknown, |rate| Cell::Rate(rate.0)),
            text(flow.certainty.key()),
        ]);
    }
    table
}

/// Returns whether the requests of a stream come from end `a` of its flow.
fn is_of_a(flow: &Flow, stream: &Stream) -> bool {
    let to = End { ip: stream.direction.destination, qp: Some(stream.direction.qp) };
    stream.direction.source == flow.a.ip && to == flow.b
}

fn opcodes(analysis: &Analysis) -> Table {
    let mut table = Table::new(&["opcode", "name", "packets", "share", "payload_bytes"]);
    let counts = &analysis.composition.opcodes;
    let total: u64 = counts.values().map(|count| count.packets).sum();
    for (byte, count) in counts {
        table.push(vec![
            text(format!("0x{byte:02x}")),
            text(count.opcode),
            Cell::Number(count.packets),
            Cell::Share(count.packets as f64 / total.max(1) as f64),
            Cell::Bytes(count.bytes),
        ]);
    }
    table
}

fn sizes(analysis: &Analysis) -> Table {
    let mut table = Table::new(&["conversation", "requester", "operation", "size", "messages"]);
    for (number, stream) in streams(analysis) {
        for (kind, messages) in &stream.operations {
            let sizes = messages.sizes.iter().map(|(size, count)| (Cell::Number(*size), *count));
            // Sizes beyond those that are counted one by one, and sizes that the capture does not show.
            let others =
                (messages.other_sizes > 0).then_some((Cell::Unknown, messages.other_sizes));
            for (size, count) in sizes.chain(others) {
                table.push(vec![
                    Cell::Number(number),
                    requester(stream),
                    text(kind.name()),
                    size,
                    Cell::Number(count),
                ]);
            }
        }
    }
    table
}

fn latencies(analysis: &Analysis) -> Table {
    let mut table = Table::new(&[
        "conversation",
        "requester",
        "operation",
        "count",
        "min_ns",
        "p50_ns",
        "p90_ns",
        "p99_ns",
        "p99_9_ns",
        "max_ns",
        "mean_ns",
    ]);
    for (number, stream) in streams(analysis) {
        let operations = stream.operations.iter().map(|(kind, of)| (kind.name(), &of.latency));
        let acknowledgements = ("ACK", &stream.in_flight.ack_rtt);
        for (name, of) in operations.chain([acknowledgements]).filter(|(_, of)| of.count() > 0) {
            let mut row = vec![Cell::Number(number), requester(stream), text(name)];
            row.extend(distribution(of));
            table.push(row);
        }
    }
    table
}

fn distribution(of: &Distribution) -> Vec<Cell> {
    let mut cells = vec![Cell::Number(of.count()), Cell::Time(of.min())];
    cells.extend(QUANTILES.map(|(_, share)| Cell::Time(of.quantile(share))));
    cells.extend([Cell::Time(of.max()), Cell::Time(of.mean())]);
    cells
}

fn recovery(analysis: &Analysis) -> Table {
    let mut table = Table::new(&[
        "conversation",
        "requester",
        "retransmitted",
        "by_nak",
        "by_timeout",
        "by_rnr",
        "implied",
        "unexplained",
        "spurious",
        "bytes",
        "timeout_ns",
        "rnr_wait_ns",
        "lost_before",
        "lost_behind",
        "out_of_order",
        "duplicates",
        "cnps",
        "ecn_marked",
    ]);
    for (number, stream) in streams(analysis) {
        let (recovery, traffic) = (&stream.recovery, &stream.traffic);
        let again = &recovery.again;
        let figures = [
            again.total(),
            again.by_nak,
            again.by_timeout,
            again.by_rnr,
            again.implied,
            again.unexplained,
            again.spurious,
            again.bytes,
            recovery.timeouts.total,
            recovery.rnr.total,
            recovery.missing.lost_before,
            recovery.missing.lost_behind,
            traffic.out_of_order,
            traffic.duplicates,
            traffic.cnps,
            traffic.ecn_marked,
        ];
        if figures.iter().all(|figure| *figure == 0) {
            continue;
        }
        let cells = figures.into_iter().enumerate().map(|(at, figure)| match at {
            7 => Cell::Bytes(figure),
            8 | 9 => Cell::Time(figure),
            _ => Cell::Number(figure),
        });
        table.push([Cell::Number(number), requester(stream)].into_iter().chain(cells).collect());
    }
    table
}

fn naks(analysis: &Analysis) -> Table {
    let mut table = Table::new(&["conversation", "requester", "code", "naks"]);
    for (number, stream) in streams(analysis) {
        let codes = stream.recovery.naks.iter().map(|(nak, count)| (nak.name(), *count));
        let rnr = ("receiver not ready", stream.recovery.rnr.count);
        for (code, count) in codes.chain([rnr]).filter(|(_, count)| *count > 0) {
            table.push(vec![
                Cell::Number(number),
                requester(stream),
                text(code),
                Cell::Number(count),
            ]);
        }
    }
    table
}

fn cm(analysis: &Analysis) -> Table {
    let mut table = Table::new(&["message", "packets"]);
    for (name, count) in &analysis.composition.cm_messages {
        table.push(vec![text(name), Cell::Number(*count)]);
    }
    table
}

fn handshakes(analysis: &Analysis) -> Table {
    let columns = &["conversation", "active_side", "passive_side", "service", "start_ns", "rep_ns"];
    let mut table = Table::new(columns);
    for (number, flow) in (1..).zip(&analysis.flows) {
        let Some(exchange) = &flow.cm_exchange else { continue };
        table.push(vec![
            Cell::Number(number),
            text(exchange.there.source),
            text(exchange.there.destination),
            text(exchange.transport),
            Cell::Time(exchange.asked),
            Cell::Time(exchange.answered.saturating_sub(exchange.asked)),
        ]);
    }
    table
}

fn intervals(analysis: &Analysis) -> Table {
    let columns = &["start_ns", "packets", "bytes", "roce_packets", "roce_bytes", "roce_share"];
    let mut table = Table::new(columns);
    let intervals = &analysis.composition.intervals;
    let width = u64::try_from(intervals.width().as_nanos()).unwrap_or(u64::MAX);
    for (at, interval) in (0u64..).zip(intervals.counts()) {
        table.push(vec![
            Cell::Time(at.saturating_mul(width)),
            Cell::Number(interval.packets),
            Cell::Bytes(interval.bytes),
            Cell::Number(interval.roce_packets),
            Cell::Bytes(interval.roce_bytes),
            Cell::Share(interval.roce_bytes as f64 / interval.bytes.max(1) as f64),
        ]);
    }
    table
}
