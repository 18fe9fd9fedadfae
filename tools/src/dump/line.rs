//! A packet as a line of text.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use softroce::wire::ParseError;
use softroce::wire::cm::Message;
use softroce::wire::text::PacketLine;
use softroce_pcap::flow::{CmPlace, CmRelation};
use softroce_pcap::{Extent, Icrc, Packet};

use super::shown::Shown;
use crate::output::{Paint, Palette};

/// Writes a RoCE packet.
pub(super) fn roce(
    out: &mut impl Write,
    palette: Palette,
    packet: &Packet<'_>,
    since_start: Duration,
    shown: &Shown<'_>,
) -> io::Result<()> {
    let roce = &shown.roce;
    let (from, to) = (roce.ip.source.ip(), roce.ip.destination.ip());
    let (number, seconds) = (packet.number, Seconds(since_start));
    writeln!(out, "{number:6} {seconds}  {from} > {to}  {}", Described { shown, palette })
}

/// Writes an IP packet that cannot be parsed.
pub(super) fn error(
    out: &mut impl Write,
    packet: &Packet<'_>,
    since_start: Duration,
    error: &ParseError,
) -> io::Result<()> {
    writeln!(out, "{:6} {}  {error}", packet.number, Seconds(since_start))
}

/// Fields of a packet beside number, time and addresses.
pub(super) struct Described<'a> {
    pub(super) shown: &'a Shown<'a>,
    pub(super) palette: Palette,
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shown: Shown { roce, place }, palette } = self;
        match &roce.datagram {
            Ok(datagram) => {
                write!(f, "{:#}", PacketLine(datagram))?;
                match Message::of(datagram) {
                    Some(Ok(message)) => write!(f, "  {message}")?,
                    Some(Err(e)) => write!(f, "  {e}")?,
                    None => {}
                }
                if let Some(place) = place {
                    write!(f, "  {}", Placed(place))?;
                }
            }
            Err(e) => write!(f, "{}", palette.paint(Paint::Bad, e))?,
        }
        if roce.ip.traffic_class & ECN_MASK == ECN_CE {
            f.write_str("  ecn ce")?;
        }
        if let Some(vni) = roce.vni {
            write!(f, "  vni {vni}")?;
        }
        match roce.extent {
            Extent::Whole => {}
            Extent::Segment { index, of } => write!(f, "  segment {} of {of}", index + 1)?,
            Extent::Unsplit => {
                f.write_str("  longer than a packet: a burst, and no ICRC shows how to cut it")?;
            }
        }
        match roce.icrc {
            Icrc::Good => f.write_str("  icrc good"),
            Icrc::Bad { .. } if roce.is_flush_of_rxe() => f.write_str("  icrc as rxe has it"),
            Icrc::Bad { found, computed } => {
                // The bytes in their order on the wire, as tshark shows them.
                let (found, expected) = (found.swap_bytes(), computed.swap_bytes());
                let bad = palette.paint(Paint::Bad, "icrc BAD");
                write!(f, "  {bad} 0x{found:08x}, expected 0x{expected:08x}")
            }
            Icrc::Cut => f.write_str("  icrc not captured"),
            Icrc::Missing => f.write_str("  icrc missing"),
        }
    }
}

/// Place of a message in a conversation of connection managers.
struct Placed<'a>(&'a CmPlace);

impl fmt::Display for Placed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CmPlace { conversation, relation } = self.0;
        write!(f, "conversation {conversation}")?;
        match relation {
            CmRelation::Begins => Ok(()),
            CmRelation::Answers { packet, after } => {
                write!(f, ", answers packet {packet} after {after:?}")
            }
            CmRelation::Repeats { packet, after } => {
                write!(f, ", repeats packet {packet} after {after:?}")
            }
        }
    }
}

/// ECN field of the traffic class (RFC 3168).
const ECN_MASK: u8 = 3;

/// Congestion experienced.
const ECN_CE: u8 = 3;

/// A time as `12.345678901`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:3}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}
