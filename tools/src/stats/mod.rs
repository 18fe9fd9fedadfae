//! `roce stats`: statistics of a capture as tables.

mod table;
mod tables;

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value};
use softroce_pcap::analyze::{Analysis, Analyzer, Count, Filter, Limits, Span};

use crate::capture;
use crate::cli::{StatsArgs, StatsFormat};
use crate::output::{self, Paint, Palette, json_line};

/// Runs the command.
pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<()> {
    let mut out = BufWriter::new(output::stdout());
    let mut is_first = true;
    capture::for_each(&args.files, |path| {
        let result = file(path, args, &mut out, &mut is_first);
        out.flush()?;
        result
    })
}

fn file(
    path: &Path,
    args: &StatsArgs,
    out: &mut impl Write,
    is_first: &mut bool,
) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let mut reader = capture::open(path)?;
    let filter = Filter {
        qps: args.span.qpn.clone(),
        addresses: args.span.addr.clone(),
        from: args.span.from,
        to: args.span.to,
    };
    let mut analyzer = Analyzer::new(Limits::default(), filter);
    let end = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => analyzer.packet(&packet),
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    let analysis = analyzer.finish();
    let tables = args.tables().iter().map(|table| (*table, tables::of(*table, &analysis)));
    match args.format() {
        StatsFormat::Text => {
            let palette = Palette::of_stdout();
            if !std::mem::take(is_first) {
                writeln!(out)?;
            }
            writeln!(out, "{}", palette.paint(Paint::Heading, heading(&name, &analysis)))?;
            // An empty table says nothing.
            for (table_name, table) in tables.filter(|(_, table)| !table.is_empty()) {
                writeln!(out, "\n{}", palette.paint(Paint::Heading, table_name.name()))?;
                table.text(out)?;
            }
        }
        StatsFormat::Csv => {
            for (table_name, table) in tables {
                if !std::mem::take(is_first) {
                    writeln!(out)?;
                }
                table.csv(out, &name, table_name.name())?;
            }
        }
        StatsFormat::Json => {
            let mut object = Map::new();
            object.insert("file".into(), name.clone().into());
            object.insert("packets".into(), analysis.counts.packets.into());
            object.insert("roce_packets".into(), analysis.counts.roce_packets.into());
            object.insert("bad_icrc_packets".into(), analysis.counts.icrc.bad.into());
            object.insert("duration_ns".into(), analysis.duration.into());
            for (table_name, table) in tables {
                object.insert(table_name.name().into(), table.json());
            }
            json_line(out, &Value::from(object))?;
        }
    }
    if analysis.counts.roce_packets == 0 {
        let frames = analysis.counts.packets;
        output::warn(format_args!("{name}: no RoCEv2 packet among {frames} frames"));
    }
    // The part before the error is printed too.
    end.with_context(|| name)
}

fn heading(name: &str, analysis: &Analysis) -> String {
    format!(
        "{name}: {} in {}, {} of RoCEv2, {} with a bad ICRC, {}",
        Count(analysis.counts.packets, "packet"),
        Span(analysis.duration),
        analysis.counts.roce_packets,
        analysis.counts.icrc.bad,
        Count(analysis.flows.len() as u64, "conversation")
    )
}
