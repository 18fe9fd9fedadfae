//! `roce analyze`: what connections did, and what their time went into.

mod json;
mod page;
mod text;

use std::io::{self, BufWriter, Write};

use anyhow::Context;
use softroce_pcap::analyze::{Analysis, Analyzer, Filter, Limits};

use crate::capture;
use crate::cli::AnalyzeArgs;

/// Runs the command.
pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<()> {
    let name = args.file.display().to_string();
    let mut reader = capture::open(&args.file)?;
    let mut analyzer = Analyzer::new(Limits::default(), filter(args));
    let end = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => analyzer.packet(&packet),
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    let analysis = analyzer.finish();
    tell(args, &name, &analysis)?;
    if analysis.counts.roce_packets == 0 {
        let frames = analysis.counts.packets;
        eprintln!("roce: {name}: no RoCEv2 packet among {frames} frames");
    }
    // What was readable comes first, also where the end is an error.
    end.with_context(|| name)
}

fn filter(args: &AnalyzeArgs) -> Filter {
    Filter {
        qps: args.qp.clone(),
        addresses: args.span.addr.clone(),
        from: args.span.from,
        to: args.span.to,
    }
}

fn tell(args: &AnalyzeArgs, name: &str, analysis: &Analysis) -> anyhow::Result<()> {
    if let Some(path) = &args.html {
        page::write(path, &args.file, analysis)?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer(&mut out, &json::whole(name, analysis, |_| None))?;
        writeln!(out)?;
    } else {
        text::report(&mut out, name, analysis, args.flows)?;
    }
    Ok(out.flush()?)
}
