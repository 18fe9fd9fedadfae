//! Reads captures: pcap of either byte order with micro- or nanoseconds, and pcapng.
//!
//! `pcap-parser` reads the headers of files and the descriptions of interfaces. Here is the rest:
//! cutting any `Read` into records, the directions of packets (a parse of all their options would take
//! many times the memory of the file), clocks, link types, and errors that say where.

use std::io::{self, Read};
use std::time::Duration;

use pcap_parser::{
    Block as ParsedBlock, InterfaceDescriptionBlock, OptionCode, PcapHeader, parse_block_be,
    parse_block_le, parse_pcap_header,
};
use softroce::port::Direction;
use thiserror::Error;

use super::blocks::{
    BYTE_ORDER_MAGIC, Block, ENHANCED_PACKET, EPB_FLAGS, INTERFACE_DESCRIPTION, OBSOLETE_PACKET,
    OPT_END, PACKET_DATA_AT, Packet, PcapFileHeader, SECTION_HEADER, SIMPLE_DATA_AT, SIMPLE_PACKET,
    word,
};
use super::input::Input;
use super::link::{LinkType, NotIp};

/// A capture being read, a packet at a time and in constant memory.
///
/// The input is read in large pieces and needs no `BufReader`; [`decompressed`](crate::decompressed)
/// makes one of a compressed file. See [`Writer`](crate::Writer) for an example.
///
/// Whatever the file says, no more than 20 MiB are kept: one record and the interfaces.
#[derive(Debug)]
pub struct Reader<R> {
    /// At the record last read.
    input: Input<R>,
    format: Format,
    /// Packets so far.
    count: u64,
    /// `next_block` has returned the header of the file.
    is_header_returned: bool,
}

/// Why a capture cannot be read on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file has no bytes.
    #[error(
        "the file is empty: expected a pcap or pcapng capture; did the capturing program have the right to capture?"
    )]
    Empty,
    /// It does not begin as pcap or pcapng does.
    #[error(
        "not a capture file (magic 0x{magic:08x}): expected pcap or pcapng, also compressed with gzip or zstd; \
         editcap converts other formats"
    )]
    NotACapture {
        /// The first four bytes, big-endian; missing ones are zero.
        magic: u32,
    },
    /// It ends inside the header of the file.
    #[error(
        "cut short in the file header: expected at least a whole header; copy or capture the file again"
    )]
    CutHeader,
    /// It ends inside a record, as it does when the program that wrote it was killed.
    #[error(
        "cut short in the record after packet {after}: packets up to that one were read; was the capturing program \
         killed, or the file copied in part?"
    )]
    CutShort {
        /// Number of the last whole packet.
        after: u64,
    },
    /// A record contradicts itself.
    #[error("malformed record after packet {after}: {what}")]
    Malformed {
        /// The number of the packet before it.
        after: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The input failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// No record of a sane file is longer; a length beyond it is a lie.
const MAX_RECORD_BYTES: usize = 16 << 20;
/// Nor has one more interfaces in a section.
const MAX_INTERFACES: usize = 1 << 16;
const PCAP_HEADER: usize = 24;
/// What stands before a record of pcap, at most.
const MAX_RECORD_HEADER: usize = 24;
/// The first bytes of a section header in either byte order.
const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const MAX_DESCRIPTION_BYTES: usize = 64 << 10;

const CONTRADICTION: &str = "its lengths contradict each other";
const UNKNOWN_INTERFACE: &str = "it names an interface that was not described";

#[derive(Debug)]
enum Format {
    /// One interface for the whole file.
    Pcap { big_endian: bool, record_header: usize, interface: Interface, header: PcapFileHeader },
    /// Byte order and interfaces of the current section.
    PcapNg { big_endian: bool, interfaces: Vec<Interface> },
}

/// Where packets come from, and its clock.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Result<LinkType, u32>,
    /// Units of the clock in a second.
    ticks_per_second: u64,
    /// Seconds from the epoch to the clock's zero.
    offset: i64,
    /// Bytes kept of a packet; 0 for all.
    snaplen: u32,
}

/// A packet within the record.
struct Found {
    interface: Interface,
    ticks: Option<u64>,
    direction: Option<Direction>,
    start: usize,
    len: usize,
    original_len: u32,
}

impl<R: Read> Reader<R> {
    /// Begins to read: tells the format from the first bytes.
    ///
    /// # Errors
    ///
    /// [`ReadError::NotACapture`], or what keeps the header from being read.
    pub fn new(source: R) -> Result<Self, ReadError> {
        let mut input = Input::new(source, MAX_RECORD_BYTES + MAX_RECORD_HEADER);
        let mut header = [0; PCAP_HEADER];
        let have = input.begin(4)?;
        header[..have].copy_from_slice(input.record());
        let [m0, m1, m2, m3, ..] = header;
        let not_a_capture =
            || ReadError::NotACapture { magic: u32::from_be_bytes([m0, m1, m2, m3]) };
        match have {
            0 => return Err(ReadError::Empty),
            1..4 => return Err(not_a_capture()),
            _ => {}
        }
        if [m0, m1, m2, m3] == SECTION_MAGIC {
            let format = Format::PcapNg { big_endian: false, interfaces: Vec::new() };
            let mut reader = Self { input, format, count: 0, is_header_returned: false };
            match reader.rest_of_block() {
                Err(ReadError::CutShort { .. }) => return Err(ReadError::CutHeader),
                header => header?,
            }
            reader.take_block()?;
            return Ok(reader);
        }
        // A file of another kind may be shorter than this header.
        let have = 4 + input.extend(PCAP_HEADER - 4)?;
        header[..have].copy_from_slice(input.record());
        let (_, parsed) = parse_pcap_header(&header).map_err(|_| not_a_capture())?;
        if have < PCAP_HEADER {
            return Err(ReadError::CutHeader);
        }
        let format = Format::of_pcap(&parsed);
        Ok(Self { input, format, count: 0, is_header_returned: false })
    }

    /// The next frame, or `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// What is wrong with the file. There is no reading on after it.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, ReadError> {
        self.is_header_returned = true;
        loop {
            match self.advance()? {
                None => return Ok(None),
                Some(None) => {}
                Some(Some(found)) => return Ok(Some(self.packet(&found))),
            }
        }
    }

    /// The next part of the file, or `None` at its end: first the header of a pcap file, and each block of a pcapng
    /// file, also of types that are not known. It takes the place of [`next_packet`](Self::next_packet) to copy a
    /// file.
    ///
    /// # Errors
    ///
    /// Those of [`next_packet`](Self::next_packet).
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        let is_first = !std::mem::replace(&mut self.is_header_returned, true);
        let found = match (&self.format, is_first) {
            (Format::Pcap { header, .. }, true) => return Ok(Some(Block::PcapHeader(*header))),
            (Format::PcapNg { .. }, true) => None,
            _ => match self.advance()? {
                None => return Ok(None),
                Some(found) => found,
            },
        };
        let packet = found.map(|found| self.packet(&found));
        Ok(match (&self.format, packet) {
            (Format::PcapNg { big_endian, .. }, packet) => {
                let bytes = self.input.record();
                Some(Block::PcapNg { bytes, big_endian: *big_endian, packet })
            }
            (Format::Pcap { .. }, packet) => packet.map(Block::PcapRecord),
        })
    }

    /// Reads the next record: `None` at the end of the file, `Some(None)` for a block without a packet.
    fn advance(&mut self) -> Result<Option<Option<Found>>, ReadError> {
        let found = match self.format {
            Format::Pcap { .. } => self.next_pcap().map(|found| found.map(Some)),
            Format::PcapNg { .. } => self.next_pcapng(),
        };
        let found = found.map_err(|error| match error {
            // A compressed file that is cut short.
            ReadError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                ReadError::CutShort { after: self.count }
            }
            error => error,
        })?;
        self.count += u64::from(matches!(found, Some(Some(_))));
        Ok(found)
    }

    /// Returns the packet in the record that was read.
    fn packet(&self, found: &Found) -> Packet<'_> {
        let frame = &self.input.record()[found.start..found.start + found.len];
        Packet {
            number: self.count,
            time: found.ticks.map(|ticks| found.interface.time(ticks)),
            direction: found.direction.or_else(|| found.interface.link.ok()?.direction(frame)),
            ip: match found.interface.link {
                Ok(link) => link.ip(frame),
                Err(number) => Err(NotIp::LinkType(number)),
            },
            link: found.interface.link,
            frame,
            original_len: found.original_len,
        }
    }

    fn next_pcap(&mut self) -> Result<Option<Found>, ReadError> {
        let Format::Pcap { big_endian, record_header, interface, .. } = self.format else {
            return Ok(None);
        };
        if !self.start_record(record_header)? {
            return Ok(None);
        }
        let word = |at| word(self.input.record(), at, big_endian);
        let [seconds, fraction, len, original_len] = [0, 4, 8, 12].map(word);
        let len = self.length(len)?;
        self.extend_record(len)?;
        let ticks = u64::from(seconds) * interface.ticks_per_second + u64::from(fraction);
        let ticks = Some(ticks);
        let start = record_header;
        Ok(Some(Found { interface, ticks, direction: None, start, len, original_len }))
    }

    /// Reads the next block; see [`advance`](Self::advance).
    fn next_pcapng(&mut self) -> Result<Option<Option<Found>>, ReadError> {
        if !self.start_record(8)? {
            return Ok(None);
        }
        self.rest_of_block()?;
        self.take_block().map(Some)
    }

    /// Completes the block that was begun.
    fn rest_of_block(&mut self) -> Result<(), ReadError> {
        // A section header says its byte order only after its length.
        let is_section = self.input.record().starts_with(&SECTION_MAGIC);
        if is_section {
            self.extend_record(12 - self.input.record().len())?;
        }
        let record = self.input.record();
        let big_endian = match &mut self.format {
            Format::PcapNg { big_endian, .. } => {
                if is_section {
                    *big_endian = record[8] == 0x1a;
                }
                *big_endian
            }
            Format::Pcap { .. } => false,
        };
        let len = self.length(word(record, 4, big_endian))?;
        match len.checked_sub(record.len()) {
            Some(more) if len % 4 == 0 => self.extend_record(more),
            _ => Err(self.malformed("its length is not one of a block")),
        }
    }

    /// Takes in the block that was read; says where the packet is if it is one.
    fn take_block(&mut self) -> Result<Option<Found>, ReadError> {
        let after = self.count;
        let malformed = |what| ReadError::Malformed { after, what };
        let Format::PcapNg { big_endian, interfaces } = &mut self.format else { return Ok(None) };
        let record = self.input.record();
        let word = |at: usize| word(record, at, *big_endian);
        // The length stands at either end.
        if record.len() < 12 || word(4) != word(record.len() - 4) {
            return Err(malformed(CONTRADICTION));
        }
        match word(0) {
            SECTION_HEADER if record.len() < 28 || word(8) != BYTE_ORDER_MAGIC => {
                Err(malformed("it is no section header"))
            }
            SECTION_HEADER => {
                interfaces.clear();
                Ok(None)
            }
            INTERFACE_DESCRIPTION => {
                if interfaces.len() == MAX_INTERFACES {
                    return Err(malformed("it is one interface more than 65536"));
                }
                interfaces.push(Interface::of_block(record, *big_endian).map_err(malformed)?);
                Ok(None)
            }
            kind @ (ENHANCED_PACKET | OBSOLETE_PACKET) => {
                let found = Found::with_time(record, kind, interfaces, *big_endian);
                found.map(Some).map_err(malformed)
            }
            SIMPLE_PACKET => {
                let found = Found::without_time(record, interfaces, *big_endian);
                found.map(Some).map_err(malformed)
            }
            // Statistics, names, secrets, and what is not known.
            _ => Ok(None),
        }
    }

    /// Reads the first `len` bytes of a record; `false` at the end of the file.
    fn start_record(&mut self, len: usize) -> Result<bool, ReadError> {
        match self.input.begin(len)? {
            0 => Ok(false),
            have if have == len => Ok(true),
            _ => Err(ReadError::CutShort { after: self.count }),
        }
    }

    /// Reads `more` bytes behind what is there of the record.
    fn extend_record(&mut self, more: usize) -> Result<(), ReadError> {
        match self.input.extend(more)? {
            have if have == more => Ok(()),
            _ => Err(ReadError::CutShort { after: self.count }),
        }
    }

    fn length(&self, len: u32) -> Result<usize, ReadError> {
        match usize::try_from(len) {
            Ok(len) if len <= MAX_RECORD_BYTES => Ok(len),
            _ => Err(self.malformed("longer than 16 MiB")),
        }
    }

    fn malformed(&self, what: &'static str) -> ReadError {
        ReadError::Malformed { after: self.count, what }
    }
}

impl Found {
    /// The packet in a whole block:
    ///
    /// ```text
    ///  type 4 │ length 4 │ interface 4 │ time, high 4 │ low 4 │ captured 4 │ original 4 │ data │ …
    /// ```
    ///
    /// In the obsolete kind half of the interface is a count of drops.
    fn with_time(
        record: &[u8],
        kind: u32,
        interfaces: &[Interface],
        big_endian: bool,
    ) -> Result<Self, &'static str> {
        const START: usize = PACKET_DATA_AT;
        if record.len() < START + 4 {
            return Err(CONTRADICTION);
        }
        let word = |at: usize| word(record, at, big_endian);
        let index = match kind {
            OBSOLETE_PACKET if big_endian => word(8) >> 16,
            OBSOLETE_PACKET => word(8) & 0xffff,
            _ => word(8),
        };
        let interface = usize::try_from(index).ok().and_then(|index| interfaces.get(index));
        let len = usize::try_from(word(20)).unwrap_or(usize::MAX);
        if len > record.len() - START - 4 {
            return Err(CONTRADICTION);
        }
        Ok(Self {
            interface: *interface.ok_or(UNKNOWN_INTERFACE)?,
            ticks: Some(u64::from(word(12)) << 32 | u64::from(word(16))),
            direction: direction(&record[START..record.len() - 4], len, big_endian),
            start: START,
            len,
            original_len: word(24),
        })
    }

    /// The packet in a whole block: type 4, length 4, original length 4, data.
    fn without_time(
        record: &[u8],
        interfaces: &[Interface],
        big_endian: bool,
    ) -> Result<Self, &'static str> {
        const START: usize = SIMPLE_DATA_AT;
        let interface = *interfaces.first().ok_or(UNKNOWN_INTERFACE)?;
        let room = record.len().checked_sub(START + 4).ok_or(CONTRADICTION)?;
        let original_len = word(record, 8, big_endian);
        let snaplen = if interface.snaplen > 0 { interface.snaplen } else { u32::MAX };
        let len = usize::try_from(original_len.min(snaplen)).unwrap_or(usize::MAX);
        if len > room {
            return Err(CONTRADICTION);
        }
        Ok(Self { interface, ticks: None, direction: None, start: START, len, original_len })
    }
}

impl Format {
    fn of_pcap(header: &PcapHeader) -> Self {
        // The upper half of the field holds the length of the frame check sequence, if any.
        let number = header.network.0.cast_unsigned() & 0xffff;
        Self::Pcap {
            big_endian: header.is_bigendian(),
            record_header: if header.is_modified_format() { 24 } else { 16 },
            interface: Interface {
                link: LinkType::from_number(number).ok_or(number),
                ticks_per_second: if header.is_nanosecond_precision() {
                    1_000_000_000
                } else {
                    1_000_000
                },
                offset: 0,
                snaplen: 0,
            },
            header: PcapFileHeader {
                link: u16::try_from(number).unwrap_or_default(),
                snap_len: header.snaplen,
                has_nanoseconds: header.is_nanosecond_precision(),
                fcs_bits: fcs_bits(header.network.0.cast_unsigned()),
            },
        }
    }
}

/// Returns the length of the frame check sequence in bits, from the field of the link type.
fn fcs_bits(field: u32) -> Option<u8> {
    const FCS_LEN_PRESENT: u32 = 1 << 26;
    let words = u8::try_from(field >> 28).unwrap_or_default();
    (field & FCS_LEN_PRESENT != 0).then_some(words * 16)
}

impl Interface {
    /// What a whole block describes.
    fn of_block(record: &[u8], big_endian: bool) -> Result<Self, &'static str> {
        // Each option takes more memory than bytes.
        if record.len() > MAX_DESCRIPTION_BYTES {
            return Err("an interface's description of more than 64 KiB");
        }
        let parse = if big_endian { parse_block_be } else { parse_block_le };
        let Ok((_, ParsedBlock::InterfaceDescription(block))) = parse(record) else {
            return Err(CONTRADICTION);
        };
        Self::described(&block, big_endian).ok_or("its clock has no unit of ours")
    }

    /// `None` when its clock counts units that 64 bits cannot hold.
    fn described(block: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Option<Self> {
        let number = block.linktype.0.cast_unsigned();
        let option = |code| block.options.iter().find(|o| o.code == code).map(|o| o.value());
        // `pcap-parser` 0.17 takes no power of two for a resolution, and reads offsets as
        // little-endian whatever the section says.
        let exponent = option(OptionCode::IfTsresol).and_then(|v| v.first()).copied().unwrap_or(6);
        let ticks_per_second = match exponent & 0x80 {
            0 => 10u64.checked_pow(u32::from(exponent))?,
            _ => 1u64.checked_shl(u32::from(exponent & 0x7f))?,
        };
        let offset = option(OptionCode::IfTsoffset).and_then(|v| v.first_chunk());
        let offset = offset.map_or(0, |bytes| match big_endian {
            true => i64::from_be_bytes(*bytes),
            false => i64::from_le_bytes(*bytes),
        });
        let link = LinkType::from_number(number).ok_or(number);
        Some(Self { link, ticks_per_second, offset, snaplen: block.snaplen })
    }

    /// The time since the epoch; one before it counts as the epoch.
    fn time(&self, ticks: u64) -> Duration {
        let seconds = (ticks / self.ticks_per_second).saturating_add_signed(self.offset);
        let fraction = u128::from(ticks % self.ticks_per_second) * 1_000_000_000;
        let ns = fraction / u128::from(self.ticks_per_second);
        Duration::new(seconds, u32::try_from(ns).unwrap_or_default())
    }
}

/// The direction that the flags among the options of a packet tell, behind its `len` bytes of data.
fn direction(body: &[u8], len: usize, big_endian: bool) -> Option<Direction> {
    let mut rest = body.get(len.next_multiple_of(4)..)?;
    loop {
        let ([a, b, c, d], behind) = rest.split_first_chunk::<4>()?;
        let half =
            |bytes| if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
        let (code, len) = (half([*a, *b]), usize::from(half([*c, *d])));
        match code {
            OPT_END => return None,
            EPB_FLAGS if len == 4 && behind.len() >= 4 => {
                return match word(behind, 0, big_endian) & 3 {
                    1 => Some(Direction::Received),
                    2 => Some(Direction::Sent),
                    _ => None,
                };
            }
            _ => rest = behind.get(len.next_multiple_of(4)..)?,
        }
    }
}
