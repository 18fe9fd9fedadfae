//! `roce dump`: a capture as text, one line a packet.

mod json;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::time::Duration;

use anyhow::Context;
use softroce::wire::text::Line;
use softroce_pcap::{Icrc, Packet, Reader, RocePacket, dissect};

use crate::cli::DumpArgs;

/// Runs the command.
pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<()> {
    let name = args.file.display();
    let input: Box<dyn Read> = match args.file.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(&args.file).with_context(|| name.to_string())?),
    };
    let reader = Reader::new(BufReader::new(input)).with_context(|| name.to_string())?;
    let mut out = BufWriter::new(io::stdout().lock());
    let result = dump(reader, args, &mut out).with_context(|| name.to_string());
    // What was readable comes first, also where the end is an error.
    out.flush()?;
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
    out: &mut impl Write,
) -> anyhow::Result<Counted> {
    let mut counted = Counted::default();
    let mut start = None;
    while let Some(packet) = reader.next_packet()? {
        counted.frames += 1;
        let time = packet.time.unwrap_or_default();
        let since_start = time.saturating_sub(*start.get_or_insert(time));
        let Ok(ip) = packet.ip else { continue };
        match dissect(ip) {
            Ok(Some(roce)) => {
                counted.roce += 1;
                if wanted(args, &roce) {
                    print(args, out, &packet, since_start, &roce)?;
                }
            }
            Ok(None) => {}
            // Whether it is RoCE cannot be said. It is shown unless somebody looks for something.
            Err(e) if args.qp.is_empty() && args.opcode.is_empty() && args.addr.is_empty() => {
                match args.json {
                    true => json::error(out, &packet, &e)?,
                    false => writeln!(out, "{:6} {}  {e}", packet.number, Seconds(since_start))?,
                }
            }
            Err(_) => {}
        }
    }
    Ok(counted)
}

/// Whether every filter that was given lets the packet through.
fn wanted(args: &DumpArgs, roce: &RocePacket<'_>) -> bool {
    let addresses = [roce.ip.source.ip(), roce.ip.destination.ip()];
    if !args.addr.is_empty() && !args.addr.iter().any(|addr| addresses.contains(addr)) {
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
    let line = Line(datagram).to_string();
    args.opcode.is_empty() || args.opcode.iter().any(|name| line.starts_with(name))
}

fn print(
    args: &DumpArgs,
    out: &mut impl Write,
    packet: &Packet<'_>,
    since_start: Duration,
    roce: &RocePacket<'_>,
) -> anyhow::Result<()> {
    if args.json {
        return json::packet(out, packet, roce);
    }
    let (from, to) = (roce.ip.source.ip(), roce.ip.destination.ip());
    write!(out, "{:6} {}  {from} > {to}  ", packet.number, Seconds(since_start))?;
    match &roce.datagram {
        Ok(datagram) => write!(out, "{:#}", Line(datagram))?,
        Err(e) => write!(out, "{e}")?,
    }
    match roce.icrc {
        Icrc::Good => writeln!(out, "  icrc good")?,
        Icrc::Bad { found, computed } => {
            // As tshark shows it: the bytes in their order on the wire.
            let (found, expected) = (found.swap_bytes(), computed.swap_bytes());
            writeln!(out, "  icrc BAD 0x{found:08x}, expected 0x{expected:08x}")?;
        }
        Icrc::Missing => writeln!(out, "  icrc missing")?,
    }
    Ok(())
}

/// `12.345678901`.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:3}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}
