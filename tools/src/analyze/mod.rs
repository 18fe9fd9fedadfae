//! `roce analyze`: what connections did, and where their time went.

mod comments;
mod json;
mod page;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use softroce_pcap::analyze::{Analysis, Analyzer, Filter, Limits};

use crate::capture;
use crate::cli::AnalyzeArgs;
use crate::output::{self, Palette, json_line};

/// Runs the command.
pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<()> {
    ensure!(
        args.html.is_none() || args.files.len() == 1,
        "--html: {} captures are given, expected one, which the page shows",
        args.files.len()
    );
    if let Some(write) = &args.write {
        comments::check(args)?;
        if write.as_os_str() == "-" {
            // Standard output belongs to the copy.
            return capture::for_each(&args.files, |path| file(path, args, &mut io::sink()));
        }
    }
    let mut out = BufWriter::new(output::stdout());
    capture::for_each(&args.files, |path| {
        let result = file(path, args, &mut out);
        out.flush()?;
        result
    })
}

fn file(path: &Path, args: &AnalyzeArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let mut reader = capture::open(path)?;
    let mut analyzer = Analyzer::new(Limits::default(), filter(args));
    let end = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => analyzer.packet(&packet),
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    let analysis = analyzer.finish();
    print(args, path, &name, &analysis, out)?;
    let (frames, roce) = (analysis.counts.packets, analysis.counts.roce_packets);
    let filters = args.span.given();
    if roce == 0 {
        output::warn(format_args!("{name}: no RoCEv2 packet among {frames} frames"));
    } else if analysis.flows.is_empty() && !filters.is_empty() {
        output::warn(format_args!("{name}: no flow of {roce} RoCEv2 packets matches {filters}"));
    }
    let copied = match &args.write {
        Some(write) => comments::write(write, path, &analysis),
        None => Ok(()),
    };
    // The part before the error is printed too.
    end.with_context(|| name)?;
    copied
}

fn filter(args: &AnalyzeArgs) -> Filter {
    Filter {
        qps: args.span.qpn.clone(),
        addresses: args.span.addr.clone(),
        from: args.span.from,
        to: args.span.to,
    }
}

fn print(
    args: &AnalyzeArgs,
    path: &Path,
    name: &str,
    analysis: &Analysis,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if let Some(html) = &args.html {
        page::write(html, path, analysis)?;
    }
    if args.json {
        json_line(out, &json::whole(name, analysis, |_| None))?;
    } else {
        text::report(out, name, analysis, args.flows, Palette::of_stdout())?;
    }
    Ok(())
}
