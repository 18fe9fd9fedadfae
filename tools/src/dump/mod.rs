//! `roce dump`: a capture as text, one line a packet.

mod annotated;
mod json;
mod line;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::time::Duration;

use anyhow::Context;
use softroce::wire::ParseError;
use softroce::wire::text::PacketLine;
use softroce_pcap::{Packet, Reader, RocePacket, dissect};

use crate::capture;
use crate::cli::DumpArgs;

use annotated::Annotated;

/// Runs the command.
pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<()> {
    let name = args.file.display();
    let reader = capture::open(&args.file)?;
    let mut output = Output::of(args)?;
    let result = dump(reader, args, &mut output).with_context(|| name.to_string());
    // What was readable comes first, also where the end is an error.
    output.finish()?;
    let Counted { frames, roce } = result?;
    if roce == 0 {
        eprintln!("roce: {name}: no RoCEv2 packet among {frames} frames");
    }
    Ok(())
}

#[derive(Default)]
struct Counted {
    frames: u64,
    roce: u64,
}

fn dump(
    mut reader: Reader<impl Read>,
    args: &DumpArgs,
    output: &mut Output,
) -> anyhow::Result<Counted> {
    let mut counted = Counted::default();
    let mut start = None;
    while let Some(packet) = reader.next_packet()? {
        counted.frames += 1;
        let time = packet.time.unwrap_or_default();
        let since_start = time.saturating_sub(*start.get_or_insert(time));
        let Ok(ip) = packet.ip else { continue };
        let in_time = args.span.from.is_none_or(|from| from <= since_start)
            && args.span.to.is_none_or(|to| since_start <= to);
        match dissect(ip) {
            Ok(Some(whole)) => {
                counted.roce += 1;
                if !in_time {
                    continue;
                }
                let wanted = whole.segments().filter(|roce| wanted(args, roce));
                output.frame(&packet, since_start, wanted)?;
            }
            Ok(None) => {}
            // Whether it is RoCE cannot be said. It is shown unless somebody looks for something.
            Err(e) if in_time && looks_for_nothing(args) => {
                output.error(&packet, since_start, &e)?;
            }
            Err(_) => {}
        }
    }
    Ok(counted)
}

fn looks_for_nothing(args: &DumpArgs) -> bool {
    args.qp.is_empty() && args.opcode.is_empty() && args.span.addr.is_empty()
}

/// Whether every filter that was given lets the packet through.
fn wanted(args: &DumpArgs, roce: &RocePacket<'_>) -> bool {
    let addresses = [roce.ip.source.ip(), roce.ip.destination.ip()];
    if !args.span.addr.is_empty() && !args.span.addr.iter().any(|addr| addresses.contains(addr)) {
        return false;
    }
    if args.qp.is_empty() && args.opcode.is_empty() {
        return true;
    }
    let Ok(datagram) = &roce.datagram else { return false };
    let qps = [Some(datagram.bth.dest_qp), datagram.deth().map(|deth| deth.source_qp)];
    if !args.qp.is_empty() && !args.qp.iter().any(|qp| qps.contains(&Some(*qp))) {
        return false;
    }
    let line = PacketLine(datagram).to_string();
    args.opcode.is_empty() || args.opcode.iter().any(|name| line.starts_with(name))
}

/// Where packets go.
enum Output {
    Text(BufWriter<io::StdoutLock<'static>>),
    Json(BufWriter<io::StdoutLock<'static>>),
    File(Annotated<BufWriter<File>>),
}

impl Output {
    fn of(args: &DumpArgs) -> anyhow::Result<Self> {
        let stdout = || BufWriter::new(io::stdout().lock());
        Ok(match &args.write {
            Some(path) => Self::File(Annotated::new(capture::create(path, &args.file)?)?),
            None if args.json => Self::Json(stdout()),
            None => Self::Text(stdout()),
        })
    }

    /// The RoCE packets of a frame.
    fn frame<'a>(
        &mut self,
        packet: &Packet<'_>,
        since_start: Duration,
        mut packets: impl Iterator<Item = RocePacket<'a>>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Text(out) => {
                packets.try_for_each(|roce| line::roce(out, packet, since_start, &roce))?;
            }
            Self::Json(out) => packets.try_for_each(|roce| json::packet(out, packet, &roce))?,
            Self::File(file) => {
                file.frame(packet, packets.map(|roce| line::Told(&roce).to_string()))?;
            }
        }
        Ok(())
    }

    fn error(
        &mut self,
        packet: &Packet<'_>,
        since_start: Duration,
        error: &ParseError,
    ) -> anyhow::Result<()> {
        match self {
            Self::Text(out) => line::error(out, packet, since_start, error)?,
            Self::Json(out) => json::error(out, packet, error)?,
            Self::File(file) => file.frame(packet, std::iter::once(error.to_string()))?,
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Text(mut out) | Self::Json(mut out) => out.flush()?,
            Self::File(file) => file.finish()?,
        }
        Ok(())
    }
}
