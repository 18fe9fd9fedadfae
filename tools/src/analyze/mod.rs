//! `roce analyze`: what connections did, and where their time went.

mod comments;
mod json;
mod page;
mod text;

use std::io::{self, BufWriter, Write};

use anyhow::ensure;
use serde::Serialize;
use softroce_cli::AnalyzeArgs;

use crate::analyzed::{self, Analyzed};
use crate::merged::Merged;
use crate::output::{self, Palette, json_line};

/// Runs the command.
pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<()> {
    let captures = args.input.files.len();
    ensure!(
        args.html.is_none() || captures <= 1,
        "--html: {captures} captures are given, expected one, which the page shows"
    );
    if let Some(write) = &args.write {
        comments::check(args)?;
        if write.as_os_str() == "-" {
            // Standard output belongs to the copy.
            return analyze(args, &mut io::sink());
        }
    }
    analyze(args, &mut BufWriter::new(output::stdout()))
}

fn analyze(args: &AnalyzeArgs, out: &mut impl Write) -> anyhow::Result<()> {
    analyzed::for_each(&args.input, &args.span, |analyzed| {
        print(args, &analyzed, out)?;
        out.flush()?;
        let Analyzed { name, analysis, inputs, .. } = &analyzed;
        let (frames, roce) = (analysis.counts.packets, analysis.counts.roce_packets);
        let filters = args.span.given();
        if roce == 0 {
            output::warn(format_args!("{name}: no RoCEv2 packet among {frames} frames"));
        } else if analysis.flows.is_empty() && !filters.is_empty() {
            output::warn(format_args!(
                "{name}: no flow of {roce} RoCEv2 packets matches {filters}"
            ));
        }
        match (&args.write, inputs.as_slice()) {
            (Some(write), [input]) => comments::write(write, input, analysis),
            _ => Ok(()),
        }
    })
}

fn print(args: &AnalyzeArgs, analyzed: &Analyzed, out: &mut impl Write) -> anyhow::Result<()> {
    let Analyzed { name, inputs, analysis, merged } = analyzed;
    if let Some(html) = &args.html {
        page::write(html, inputs, name, analysis)?;
    }
    if args.json {
        let analysis = json::whole(name, analysis, |_| None);
        json_line(out, &WithMerged { analysis, merged: merged.as_ref() })?;
    } else {
        if let Some(merged) = merged {
            merged.text(out)?;
        }
        text::report(out, name, analysis, args.flows, Palette::of_stdout())?;
    }
    Ok(())
}

/// An analysis as JSON, and how its captures relate if there are two.
#[derive(Serialize)]
struct WithMerged<'a, T> {
    #[serde(flatten)]
    analysis: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    merged: Option<&'a Merged>,
}
