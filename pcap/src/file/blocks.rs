//! Parts of a capture file: packets, and blocks of pcapng as they stand in a file.
//!
//! ```text
//!  type 4 │ length 4 │ body, padded to 4 │ length 4
//! ```
//!
//! Options are the end of a body, each `code 2 │ length 2 │ value, padded to 4`.

use std::time::Duration;

use softroce::port::Direction;

use super::link::{LinkType, NotIp};

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
pub(super) const OBSOLETE_PACKET: u32 = 2;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const INTERFACE_STATISTICS: u32 = 5;
pub(super) const ENHANCED_PACKET: u32 = 6;

pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Where the options of a section header begin.
pub(super) const SECTION_OPTIONS_AT: usize = 24;
/// Where the data of an enhanced or obsolete packet begins.
pub(super) const PACKET_DATA_AT: usize = 28;
/// Where the data of a simple packet begins.
pub(super) const SIMPLE_DATA_AT: usize = 12;
/// Bytes of the length that ends a block.
pub(super) const TRAILER_LEN: usize = 4;

pub(super) const OPT_END: u16 = 0;
pub(super) const OPT_COMMENT: u16 = 1;
pub(super) const SHB_USERAPPL: u16 = 4;
pub(super) const IF_NAME: u16 = 2;
pub(super) const IF_DESCRIPTION: u16 = 3;
pub(super) const IF_TSRESOL: u16 = 9;
pub(super) const IF_FCSLEN: u16 = 13;
pub(super) const EPB_FLAGS: u16 = 2;
pub(super) const ISB_IFRECV: u16 = 4;
pub(super) const ISB_IFDROP: u16 = 5;

/// A frame of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Its number in the file, from 1, counting every frame as Wireshark does.
    pub number: u64,
    /// When it was seen, since the Unix epoch; the format may leave it out.
    pub time: Option<Duration>,
    /// Whether the capturing host sent or received it; most captures leave it out.
    pub direction: Option<Direction>,
    /// The IP packet in it, with what follows it in the frame; or why there is none.
    pub ip: Result<&'a [u8], NotIp>,
    /// What `frame` begins with, or the number of a link type that we do not know.
    pub link: Result<LinkType, u32>,
    /// The bytes captured, link header first.
    pub frame: &'a [u8],
    /// Bytes it had on the wire: more than `frame` has when the capture cut it.
    pub original_len: u32,
}

/// A part of a capture file. All parts in their order are the file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Block<'a> {
    /// The header of a pcap file.
    PcapHeader(PcapFileHeader),
    /// A record of a pcap file.
    PcapRecord(Packet<'a>),
    /// A block of a pcapng file, of any type.
    PcapNg {
        /// The whole block, with its type and both lengths.
        bytes: &'a [u8],
        /// The byte order of its section.
        big_endian: bool,
        /// The packet in it, if it is a block of a packet.
        packet: Option<Packet<'a>>,
    },
}

/// Fields of the header of a pcap file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcapFileHeader {
    /// `LINKTYPE_` number of all frames.
    pub link: u16,
    /// Bytes that are kept of a frame; 0 for all.
    pub snap_len: u32,
    /// The file counts nanoseconds instead of microseconds.
    pub has_nanoseconds: bool,
    /// Length of the frame check sequence in bits, if the header tells it.
    pub fcs_bits: Option<u8>,
}

impl<'a> Block<'a> {
    /// Returns the packet in the block, if there is one.
    pub const fn packet(&self) -> Option<&Packet<'a>> {
        match self {
            Self::PcapHeader(_) => None,
            Self::PcapRecord(packet) => Some(packet),
            Self::PcapNg { packet, .. } => packet.as_ref(),
        }
    }
}

/// Reads a word at `at`, where `bytes` has one.
pub(super) fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// Returns a word in the byte order of a section.
pub(super) const fn word_bytes(word: u32, big_endian: bool) -> [u8; 4] {
    if big_endian { word.to_be_bytes() } else { word.to_le_bytes() }
}

/// Appends an option. A value beyond 65,535 bytes is cut.
pub(super) fn option(body: &mut Vec<u8>, code: u16, value: &[u8], big_endian: bool) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    let len = u16::try_from(value.len()).unwrap_or_default();
    for half in [code, len] {
        body.extend(if big_endian { half.to_be_bytes() } else { half.to_le_bytes() });
    }
    body.extend(value);
    pad(body);
}

/// Pads to a multiple of four bytes.
pub(super) fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}
