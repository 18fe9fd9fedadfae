//! Copies a capture and adds comments to its packets.
//!
//! Blocks of pcapng are copied byte for byte, those of unknown types too. A block changes in two cases:
//!
//! - a packet with a comment has the comment as its first option; a simple packet block, which has no
//!   options, becomes an enhanced one with time 0;
//! - the first section header has the summary as its first option, and its length of the section becomes
//!   unknown.
//!
//! A pcap file becomes a section with one interface of the same link type and resolution.

use std::io::{self, Write};
use std::time::Duration;

use super::blocks::{
    BYTE_ORDER_MAGIC, Block, ENHANCED_PACKET, IF_FCSLEN, IF_TSRESOL, INTERFACE_DESCRIPTION,
    OBSOLETE_PACKET, OPT_COMMENT, OPT_END, PACKET_DATA_AT, Packet, PcapFileHeader, SECTION_HEADER,
    SECTION_OPTIONS_AT, SHB_USERAPPL, SIMPLE_PACKET, TRAILER_LEN, option, pad, word, word_bytes,
};

/// Where the summary of a capture stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SummaryPlace {
    /// In the first section header. The output can be written at any offset.
    FirstSection,
    /// In a section of its own behind all packets. The output is a pipe.
    LastSection,
}

/// A summary that belongs to an offset of the output; see [`Annotator::finish`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Offset in bytes since the beginning of the output.
    pub offset: u64,
    /// Bytes to write there.
    pub bytes: Vec<u8>,
}

/// Copies the blocks of a capture to an output, with comments.
///
/// Every block is one `write_all` to the output.
///
/// ```
/// use softroce_pcap::{Annotator, LinkType, Reader, SummaryPlace, Writer};
/// use std::time::Duration;
///
/// let mut writer = Writer::new(Vec::new(), LinkType::Raw, "an example")?;
/// writer.packet(Duration::from_secs(1), None, &[0x45, 0, 0, 20])?;
/// let file = writer.into_inner();
///
/// let mut reader = Reader::new(file.as_slice())?;
/// let mut annotator = Annotator::new(Vec::new(), "an example", SummaryPlace::LastSection);
/// while let Some(block) = reader.next_block()? {
///     let comment = block.packet().map(|packet| format!("packet {}", packet.number));
///     annotator.block(&block, comment.as_slice())?;
/// }
/// let (copy, patch) = annotator.finish("one packet")?;
/// assert!(copy.windows(8).any(|bytes| bytes == b"packet 1"));
/// assert_eq!(patch, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Annotator<W> {
    out: W,
    application: String,
    place: SummaryPlace,
    /// Offset of the summary, once the first section header is written.
    summary_at: Option<u64>,
    /// Byte order of the last section.
    big_endian: bool,
    /// Nanoseconds in a tick of the interface that a pcap file becomes.
    ticks_ns: u64,
    /// The block that is built.
    block: Vec<u8>,
}

impl<W: Write> Annotator<W> {
    /// Number of bytes of a summary; a longer one is cut.
    pub const MAX_SUMMARY_BYTES: usize = 1024;

    /// Number of comments of a packet; the last one counts the rest.
    pub const MAX_COMMENTS: usize = 64;

    /// Creates an annotator. `application` is the name in the section that a pcap file becomes.
    pub fn new(out: W, application: &str, place: SummaryPlace) -> Self {
        let application = application.to_owned();
        let block = Vec::new();
        Self { out, application, place, summary_at: None, big_endian: false, ticks_ns: 1, block }
    }

    /// Writes the next block of the capture, with comments if it is a packet. A comment beyond 65,535 bytes is cut.
    ///
    /// # Errors
    ///
    /// Errors of the output.
    pub fn block(&mut self, block: &Block<'_>, comments: &[impl AsRef<str>]) -> io::Result<()> {
        match block {
            Block::PcapHeader(header) => self.pcap_header(header),
            Block::PcapRecord(packet) => self.packet(packet, 0, comments, false),
            Block::PcapNg { bytes, big_endian, packet } => {
                self.big_endian = *big_endian;
                let is_first_section =
                    word(bytes, 0, *big_endian) == SECTION_HEADER && self.summary_at.is_none();
                match packet {
                    _ if is_first_section => self.first_section(bytes),
                    Some(packet) if !comments.is_empty() => self.commented(bytes, packet, comments),
                    _ => self.out.write_all(bytes),
                }
            }
        }
    }

    /// Ends the copy. Returns the output, not flushed, and the bytes that belong into the first section if the summary
    /// stands there.
    ///
    /// # Errors
    ///
    /// Errors of the output.
    pub fn finish(mut self, summary: &str) -> io::Result<(W, Option<Patch>)> {
        let summary = cut(summary, Self::MAX_SUMMARY_BYTES);
        let patch = match (self.place, self.summary_at) {
            (SummaryPlace::FirstSection, Some(offset)) => {
                let mut bytes = summary.as_bytes().to_vec();
                bytes.resize(Self::MAX_SUMMARY_BYTES, b' ');
                Some(Patch { offset, bytes })
            }
            _ => {
                self.section(summary.as_bytes(), self.big_endian)?;
                None
            }
        };
        Ok((self.out, patch))
    }

    /// Writes the first section header of pcapng, with room for the summary.
    fn first_section(&mut self, bytes: &[u8]) -> io::Result<()> {
        // A later section is not the first one, wherever the summary stands.
        self.summary_at = Some(SUMMARY_OFFSET);
        let (true, Some(head), Some(options)) = (
            self.place == SummaryPlace::FirstSection,
            bytes.get(..SECTION_OPTIONS_AT),
            bytes.get(SECTION_OPTIONS_AT..bytes.len() - TRAILER_LEN),
        ) else {
            return self.out.write_all(bytes);
        };
        self.block.clear();
        self.block.extend(&head[..16]);
        self.block.extend(u64::MAX.to_le_bytes());
        option(&mut self.block, OPT_COMMENT, &[b' '; MAX_SUMMARY_BYTES], self.big_endian);
        self.rest_of_options(options)
    }

    /// Writes a block of a packet with comments.
    fn commented(
        &mut self,
        bytes: &[u8],
        packet: &Packet<'_>,
        comments: &[impl AsRef<str>],
    ) -> io::Result<()> {
        let data_at = match word(bytes, 0, self.big_endian) {
            ENHANCED_PACKET | OBSOLETE_PACKET => PACKET_DATA_AT,
            SIMPLE_PACKET => return self.packet(packet, 0, comments, self.big_endian),
            _ => return self.out.write_all(bytes),
        };
        let options_at = data_at + packet.frame.len().next_multiple_of(4);
        let (Some(head), Some(options)) =
            (bytes.get(..options_at), bytes.get(options_at..bytes.len() - TRAILER_LEN))
        else {
            return self.out.write_all(bytes);
        };
        self.block.clear();
        self.block.extend(head);
        self.comments(comments, self.big_endian);
        self.rest_of_options(options)
    }

    /// Appends the options that the block had, and writes it.
    fn rest_of_options(&mut self, options: &[u8]) -> io::Result<()> {
        if options.is_empty() {
            option(&mut self.block, OPT_END, &[], self.big_endian);
        } else {
            self.block.extend(options);
        }
        self.write(self.big_endian)
    }

    fn pcap_header(&mut self, header: &PcapFileHeader) -> io::Result<()> {
        let room = [b' '; MAX_SUMMARY_BYTES];
        let is_first = self.place == SummaryPlace::FirstSection;
        self.section(if is_first { &room } else { &[] }, false)?;
        self.summary_at = Some(SUMMARY_OFFSET);
        self.begin(INTERFACE_DESCRIPTION, false);
        self.block.extend(header.link.to_le_bytes());
        self.block.extend([0, 0]);
        self.block.extend(header.snap_len.to_le_bytes());
        let exponent = if header.has_nanoseconds { 9 } else { 6 };
        option(&mut self.block, IF_TSRESOL, &[exponent], false);
        if let Some(bits) = header.fcs_bits {
            option(&mut self.block, IF_FCSLEN, &[bits], false);
        }
        option(&mut self.block, OPT_END, &[], false);
        self.ticks_ns = if header.has_nanoseconds { 1 } else { 1000 };
        self.write(false)
    }

    /// Writes a packet as an enhanced packet block.
    fn packet(
        &mut self,
        packet: &Packet<'_>,
        interface: u32,
        comments: &[impl AsRef<str>],
        big_endian: bool,
    ) -> io::Result<()> {
        let time = packet.time.map_or(0, |time| ticks(time, self.ticks_ns));
        let len = u32::try_from(packet.frame.len()).map_err(io::Error::other)?;
        let [high, low] = [time >> 32, time & u64::from(u32::MAX)]
            .map(|half| u32::try_from(half).unwrap_or_default());
        self.begin(ENHANCED_PACKET, big_endian);
        for field in [interface, high, low, len, packet.original_len] {
            self.block.extend(word_bytes(field, big_endian));
        }
        self.block.extend(packet.frame);
        pad(&mut self.block);
        if !comments.is_empty() {
            self.comments(comments, big_endian);
            option(&mut self.block, OPT_END, &[], big_endian);
        }
        self.write(big_endian)
    }

    /// Appends comments as options.
    fn comments(&mut self, comments: &[impl AsRef<str>], big_endian: bool) {
        let is_whole = comments.len() <= Self::MAX_COMMENTS;
        let kept = if is_whole { comments.len() } else { Self::MAX_COMMENTS - 1 };
        for comment in &comments[..kept] {
            let text = cut(comment.as_ref(), usize::from(u16::MAX));
            option(&mut self.block, OPT_COMMENT, text.as_bytes(), big_endian);
        }
        if !is_whole {
            let more = format!("{} more findings", comments.len() - kept);
            option(&mut self.block, OPT_COMMENT, more.as_bytes(), big_endian);
        }
    }

    /// Writes a section header with a comment, unless that is empty.
    fn section(&mut self, comment: &[u8], big_endian: bool) -> io::Result<()> {
        self.begin(SECTION_HEADER, big_endian);
        self.block.extend(word_bytes(BYTE_ORDER_MAGIC, big_endian));
        // Version 1.0; the length of the section is not known.
        for half in [1u16, 0] {
            self.block.extend(if big_endian { half.to_be_bytes() } else { half.to_le_bytes() });
        }
        self.block.extend(u64::MAX.to_le_bytes());
        if !comment.is_empty() {
            option(&mut self.block, OPT_COMMENT, comment, big_endian);
        }
        option(&mut self.block, SHB_USERAPPL, self.application.as_bytes(), big_endian);
        option(&mut self.block, OPT_END, &[], big_endian);
        self.write(big_endian)
    }

    fn begin(&mut self, kind: u32, big_endian: bool) {
        self.block.clear();
        self.block.extend(word_bytes(kind, big_endian));
        self.block.extend([0; 4]);
    }

    /// Writes the block that was built, with its lengths.
    fn write(&mut self, big_endian: bool) -> io::Result<()> {
        let len = u32::try_from(self.block.len() + TRAILER_LEN).map_err(io::Error::other)?;
        let len = word_bytes(len, big_endian);
        self.block.extend(len);
        self.block[4..8].copy_from_slice(&len);
        self.out.write_all(&self.block)
    }
}

const MAX_SUMMARY_BYTES: usize = Annotator::<Vec<u8>>::MAX_SUMMARY_BYTES;

/// Offset of the value of the first option in the first section header.
const SUMMARY_OFFSET: u64 = 28;

fn ticks(time: Duration, ticks_ns: u64) -> u64 {
    u64::try_from(time.as_nanos() / u128::from(ticks_ns)).unwrap_or(u64::MAX)
}

/// Returns the beginning of `text` that has no more than `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
