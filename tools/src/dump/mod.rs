//! `roce dump`: a capture as text, one line a packet.

mod annotated;
mod fields;
mod line;
mod shown;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use softroce::ids::Qpn;
use softroce::wire::ParseError;
use softroce::wire::text::PacketLine;
use softroce_cli::{DumpArgs, FieldFormat};
use softroce_pcap::display_filter::{Field, Subject};
use softroce_pcap::flow::CmConversations;
use softroce_pcap::{Packet, Reader, RocePacket, dissect, json};

use crate::capture;
use crate::live;
use crate::output::{self, Paint, Palette, Stdout};

use annotated::Annotated;
use fields::JsonList;
use shown::Shown;

/// Number of queue pairs that a message lists.
const MAX_QPNS_LISTED: usize = 8;

/// Runs the command.
pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<()> {
    let mut output = Output::of(args)?;
    let result = match &args.interface {
        Some(device) => live(device, args, &mut output),
        None => capture::for_each(&args.files, |path| file(path, args, &mut output)),
    };
    // Packets before an error are printed too.
    output.finish()?;
    result
}

/// Prints the packets of a device of a running program.
fn live(device: &str, args: &DumpArgs, output: &mut Output) -> anyhow::Result<()> {
    let packets: Box<dyn Read> = Box::new(live::pipe(device)?);
    let reader = Reader::new(packets).with_context(|| device.to_owned())?;
    dump(reader, device, args, output, &mut Counts::default())
}

fn file(path: &Path, args: &DumpArgs, output: &mut Output) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let reader = capture::open(path)?;
    if args.files.len() > 1 {
        output.heading(&name)?;
    }
    let mut counts = Counts::default();
    let result = dump(reader, &name, args, output, &mut counts);
    result.with_context(|| name.clone())?;
    let Counts { frames, roce, shown, qpns } = counts;
    if roce == 0 {
        output::warn(format_args!("{name}: no RoCEv2 packet among {frames} frames"));
    } else if shown == 0 {
        let listed: Vec<_> = qpns.iter().take(MAX_QPNS_LISTED).map(ToString::to_string).collect();
        let more = if qpns.len() > MAX_QPNS_LISTED { ", …" } else { "" };
        output::warn(format_args!(
            "{name}: none of {roce} RoCEv2 packets matches {}; its queue pairs are {}{more}",
            args.filters(),
            listed.join(", ")
        ));
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    frames: u64,
    roce: u64,
    shown: u64,
    /// Destination queue pairs, until one more than a message lists is known.
    qpns: BTreeSet<Qpn>,
}

fn dump(
    mut reader: Reader<impl Read>,
    name: &str,
    args: &DumpArgs,
    output: &mut Output,
    counts: &mut Counts,
) -> anyhow::Result<()> {
    let mut start = None;
    let mut conversations = CmConversations::default();
    while let Some(packet) = reader.next_packet()? {
        counts.frames += 1;
        let time = packet.time.unwrap_or_default();
        let since_start = time.saturating_sub(*start.get_or_insert(time));
        let Ok(ip) = packet.ip else { continue };
        let in_time = args.span.from.is_none_or(|from| from <= since_start)
            && args.span.to.is_none_or(|to| since_start <= to);
        match dissect(ip) {
            Ok(Some(whole)) => {
                counts.roce += 1;
                if let Ok(datagram) = &whole.datagram
                    && counts.qpns.len() <= MAX_QPNS_LISTED
                {
                    counts.qpns.insert(datagram.bth.dest_qp);
                }
                // Conversations have the packets that are not shown too.
                let shown = |roce| Shown::of(&mut conversations, &packet, roce);
                let mut packets = whole.segments().map(shown);
                if !in_time {
                    packets.for_each(drop);
                    continue;
                }
                let shown = &mut counts.shown;
                let matching = packets.by_ref().filter(|Shown { roce, .. }| {
                    matches(args, roce)
                        && args.display_filter.as_ref().is_none_or(|filter| {
                            filter.matches(&Subject { frame: &packet, roce, since_start })
                        })
                });
                let matching = matching.inspect(|_| *shown += 1);
                output.frame(name, &packet, since_start, matching)?;
                if args.interface.is_some() {
                    output.flush()?;
                }
            }
            Ok(None) => {}
            // It may be RoCE or not, so it is shown unless a filter asks for something.
            Err(e) if in_time && has_no_filter(args) => {
                counts.shown += 1;
                output.error(name, &packet, since_start, &e)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn has_no_filter(args: &DumpArgs) -> bool {
    args.span.qpn.is_empty()
        && args.opcode.is_empty()
        && args.span.addr.is_empty()
        && args.display_filter.is_none()
}

/// Returns whether a packet matches every filter that was given.
fn matches(args: &DumpArgs, roce: &RocePacket<'_>) -> bool {
    let addresses = [roce.ip.source.ip(), roce.ip.destination.ip()];
    if !args.span.addr.is_empty() && !args.span.addr.iter().any(|addr| addresses.contains(addr)) {
        return false;
    }
    if args.span.qpn.is_empty() && args.opcode.is_empty() {
        return true;
    }
    let Ok(datagram) = &roce.datagram else { return false };
    let qpns = [Some(datagram.bth.dest_qp), datagram.deth().map(|deth| deth.source_qp)];
    if !args.span.qpn.is_empty() && !args.span.qpn.iter().any(|qpn| qpns.contains(&Some(*qpn))) {
        return false;
    }
    let line = PacketLine(datagram).to_string();
    args.opcode.is_empty() || args.opcode.iter().any(|name| line.starts_with(name))
}

/// Destination of packets.
enum Output {
    Text(BufWriter<Stdout>, Palette),
    Json(BufWriter<Stdout>),
    File(Annotated<BufWriter<File>>),
    Fields(BufWriter<Stdout>, Vec<Field>),
    FieldsJson(JsonList<BufWriter<Stdout>>, Vec<Field>),
}

impl Output {
    fn of(args: &DumpArgs) -> anyhow::Result<Self> {
        let stdout = || BufWriter::new(output::stdout());
        Ok(match &args.write {
            Some(path) => Self::File(Annotated::new(capture::create(path, &args.files)?)?),
            None if args.type_ == Some(FieldFormat::Fields) => {
                Self::Fields(stdout(), args.fields().to_vec())
            }
            None if args.type_ == Some(FieldFormat::Json) => {
                Self::FieldsJson(JsonList::new(stdout()), args.fields().to_vec())
            }
            None if args.json => Self::Json(stdout()),
            None => Self::Text(stdout(), Palette::of_stdout()),
        })
    }

    /// Writes the name of one of several files.
    fn heading(&mut self, name: &str) -> anyhow::Result<()> {
        if let Self::Text(out, palette) = self {
            writeln!(out, "{}", palette.paint(Paint::Heading, name))?;
        }
        Ok(())
    }

    /// Writes the RoCE packets of a frame.
    fn frame<'a>(
        &mut self,
        name: &str,
        packet: &Packet<'_>,
        since_start: Duration,
        mut packets: impl Iterator<Item = Shown<'a>>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Text(out, palette) => packets
                .try_for_each(|shown| line::roce(out, *palette, packet, since_start, &shown))?,
            Self::Json(out) => {
                packets.try_for_each(|Shown { roce, place }| {
                    json::packet(out, name, packet, &roce, place)
                })?;
            }
            Self::Fields(out, fields) => packets.try_for_each(|Shown { roce, .. }| {
                fields::line(out, fields, &Subject { frame: packet, roce: &roce, since_start })
            })?,
            Self::FieldsJson(list, fields) => packets.try_for_each(|Shown { roce, .. }| {
                list.packet(fields, &Subject { frame: packet, roce: &roce, since_start })
            })?,
            Self::File(file) => {
                let text =
                    |shown| line::Described { shown: &shown, palette: Palette::PLAIN }.to_string();
                file.frame(packet, packets.map(text))?;
            }
        }
        Ok(())
    }

    /// Writes an IP packet that cannot be parsed.
    fn error(
        &mut self,
        name: &str,
        packet: &Packet<'_>,
        since_start: Duration,
        error: &ParseError,
    ) -> anyhow::Result<()> {
        match self {
            Self::Text(out, _) => line::error(out, packet, since_start, error)?,
            Self::Json(out) => json::error(out, name, packet, error)?,
            Self::File(file) => file.frame(packet, std::iter::once(error.to_string()))?,
            // It has none of the fields.
            Self::Fields(..) | Self::FieldsJson(..) => {}
        }
        Ok(())
    }

    /// Prints what waits, for the reader of a running program's packets.
    fn flush(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Text(out, _) | Self::Json(out) | Self::Fields(out, _) => Ok(out.flush()?),
            // They are whole at the end.
            Self::FieldsJson(..) | Self::File(_) => Ok(()),
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Text(mut out, _) | Self::Json(mut out) | Self::Fields(mut out, _) => {
                out.flush()?;
            }
            Self::FieldsJson(list, _) => list.finish()?,
            Self::File(file) => file.finish()?,
        }
        Ok(())
    }
}
