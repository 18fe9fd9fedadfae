//! `roce stats`: statistics of a capture as tables.

mod table;
mod tables;

use std::io::{BufWriter, Write};

use serde_json::{Map, Value};
use softroce_cli::{StatsArgs, StatsFormat};
use softroce_pcap::analyze::{Analysis, Count, Span};

use crate::analyzed::{self, Analyzed};
use crate::output::{self, Paint, Palette, json_line};

/// Runs the command.
pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<()> {
    let mut out = BufWriter::new(output::stdout());
    let mut is_first = true;
    analyzed::for_each(&args.input, &args.span, |analyzed| {
        print(&analyzed, args, &mut out, &mut is_first)?;
        out.flush()?;
        let Analyzed { name, analysis, .. } = &analyzed;
        if analysis.counts.roce_packets == 0 {
            let frames = analysis.counts.packets;
            output::warn(format_args!("{name}: no RoCEv2 packet among {frames} frames"));
        }
        Ok(())
    })
}

fn print(
    analyzed: &Analyzed,
    args: &StatsArgs,
    out: &mut impl Write,
    is_first: &mut bool,
) -> anyhow::Result<()> {
    let Analyzed { name, analysis, merged, .. } = analyzed;
    let tables = args.tables().iter().map(|table| (*table, tables::of(*table, analysis)));
    match args.format() {
        StatsFormat::Text => {
            let palette = Palette::of_stdout();
            if !std::mem::take(is_first) {
                writeln!(out)?;
            }
            writeln!(out, "{}", palette.paint(Paint::Heading, heading(name, analysis)))?;
            if let Some(merged) = merged {
                merged.text(out)?;
            }
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
                table.csv(out, name, table_name.name())?;
            }
        }
        StatsFormat::Json => {
            let mut object = Map::new();
            object.insert("file".into(), name.as_str().into());
            object.insert("packets".into(), analysis.counts.packets.into());
            object.insert("roce_packets".into(), analysis.counts.roce_packets.into());
            object.insert("bad_icrc_packets".into(), analysis.counts.icrc.bad.into());
            object.insert("duration_ns".into(), analysis.duration.into());
            if let Some(merged) = merged {
                object.insert("merged".into(), serde_json::to_value(merged)?);
            }
            for (table_name, table) in tables {
                object.insert(table_name.name().into(), table.json());
            }
            json_line(out, &Value::from(object))?;
        }
    }
    Ok(())
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
