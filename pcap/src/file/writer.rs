//! Writes pcapng: one section, nanoseconds, comments.
//!
//! ```text
//!  section header │ interface description │ enhanced packet │ enhanced packet │ …
//! ```
//!
//! Each block is `type 4 │ length 4 │ body, padded to 4 │ length 4`; we write little-endian.

use std::io::{self, Write};
use std::time::Duration;

use softroce::port::Direction;

use super::blocks::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, EPB_FLAGS, IF_DESCRIPTION, IF_NAME, IF_TSRESOL,
    INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, ISB_IFDROP, ISB_IFRECV, OPT_COMMENT, OPT_END,
    SECTION_HEADER, SHB_USERAPPL, option, pad,
};
use super::link::LinkType;

/// A capture file being written.
///
/// Every packet is one `write_all` to the output, so a `BufWriter` below is worth having, and a
/// reader of an unbuffered output sees whole packets.
///
/// ```
/// use std::time::Duration;
/// use softroce::port::Direction;
/// use softroce_pcap::{LinkType, Reader, Writer};
///
/// let mut writer = Writer::new(Vec::new(), LinkType::Raw, "an example")?;
/// writer.packet(Duration::from_secs(1), Some(Direction::Sent), &[0x45, 0, 0, 20])?;
/// let file = writer.into_inner();
///
/// let mut reader = Reader::new(file.as_slice())?;
/// let packet = reader.next_packet()?.expect("there is one");
/// assert_eq!(packet.time, Some(Duration::from_secs(1)));
/// assert_eq!(packet.ip, Ok([0x45, 0, 0, 20].as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Writer<W> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
}

/// A packet to be written, with all that there is to say of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// The interface that it was seen on: 0 is the one that the file began with.
    pub interface: u32,
    /// Since the Unix epoch.
    pub time: Duration,
    /// Whether this host sent or received it, if one knows.
    pub direction: Option<Direction>,
    /// What is written: begins with what the interface's link type demands; with
    /// [`LinkType::Raw`] that is the IP header.
    pub frame: &'a [u8],
    /// Bytes it had on the wire, if `frame` is not all of it.
    pub original_len: u32,
    /// What is to be said of it, if anything.
    pub comment: &'a str,
}

/// What a file says of an interface. Empty texts are left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its description.
    pub text: String,
    /// Bytes that a packet may have in the file; 0 without a limit.
    pub snap_len: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a file: writes the section header, which names `application`, and interface 0.
    ///
    /// # Errors
    ///
    /// What the output returns.
    pub fn new(out: W, link: LinkType, application: &str) -> io::Result<Self> {
        let mut writer = Self::section(out, application)?;
        writer.interface(link)?;
        Ok(writer)
    }

    /// Begins a file without an interface: writes the section header, which names `application`.
    ///
    /// # Errors
    ///
    /// What the output returns.
    pub fn section(out: W, application: &str) -> io::Result<Self> {
        let mut writer = Self { out, block: Vec::new(), interfaces: 0 };
        writer.block(SECTION_HEADER, |body| {
            body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
            // Version 1.0; the length of the section is not known.
            body.extend([1, 0, 0, 0]);
            body.extend(u64::MAX.to_le_bytes());
            option(body, SHB_USERAPPL, application.as_bytes(), false);
            option(body, OPT_END, &[], false);
        })?;
        Ok(writer)
    }

    /// Describes another interface, and returns its number.
    ///
    /// # Errors
    ///
    /// What the output returns.
    pub fn interface(&mut self, link: LinkType) -> io::Result<u32> {
        self.described_interface(link, &Description::default())
    }

    /// Describes another interface in words, and returns its number.
    ///
    /// # Errors
    ///
    /// What the output returns; a text of 64 KiB is invalid input.
    pub fn described_interface(
        &mut self,
        link: LinkType,
        description: &Description,
    ) -> io::Result<u32> {
        let texts = [(IF_NAME, &description.name), (IF_DESCRIPTION, &description.text)];
        for (_, text) in texts {
            u16::try_from(text.len()).map_err(io::Error::other)?;
        }
        self.block(INTERFACE_DESCRIPTION, |body| {
            body.extend(link.number().to_le_bytes());
            // Reserved.
            body.extend([0, 0]);
            body.extend(description.snap_len.to_le_bytes());
            for (code, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
                option(body, *code, text.as_bytes(), false);
            }
            // Times count 10^-9 s.
            option(body, IF_TSRESOL, &[9], false);
            option(body, OPT_END, &[], false);
        })?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Appends the numbers of packets that an interface has received and dropped until `time`.
    ///
    /// # Errors
    ///
    /// What the output returns.
    pub fn statistics(
        &mut self,
        interface: u32,
        time: Duration,
        received: u64,
        dropped: u64,
    ) -> io::Result<()> {
        let ns = u64::try_from(time.as_nanos()).map_err(io::Error::other)?;
        self.block(INTERFACE_STATISTICS, |body| {
            body.extend(interface.to_le_bytes());
            body.extend(halves(ns));
            option(body, ISB_IFRECV, &received.to_le_bytes(), false);
            option(body, ISB_IFDROP, &dropped.to_le_bytes(), false);
            option(body, OPT_END, &[], false);
        })
    }

    /// Appends a whole packet, of interface 0, without comment.
    ///
    /// # Errors
    ///
    /// Those of [`record`](Self::record).
    pub fn packet(
        &mut self,
        time: Duration,
        direction: Option<Direction>,
        frame: &[u8],
    ) -> io::Result<()> {
        self.record(&Record { time, direction, frame, ..Record::default() })
    }

    /// Appends a packet.
    ///
    /// # Errors
    ///
    /// What the output returns; a frame of 4 GiB is invalid input, and so is a comment of 64 KiB.
    pub fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let len = u32::try_from(record.frame.len()).map_err(io::Error::other)?;
        let ns = u64::try_from(record.time.as_nanos()).map_err(io::Error::other)?;
        u16::try_from(record.comment.len()).map_err(io::Error::other)?;
        self.block(ENHANCED_PACKET, |body| {
            body.extend(record.interface.to_le_bytes());
            body.extend(halves(ns));
            body.extend(len.to_le_bytes());
            body.extend(record.original_len.max(len).to_le_bytes());
            body.extend(record.frame);
            pad(body);
            if !record.comment.is_empty() {
                option(body, OPT_COMMENT, record.comment.as_bytes(), false);
            }
            if let Some(direction) = record.direction {
                let flags: u32 = match direction {
                    Direction::Received => 1,
                    Direction::Sent => 2,
                };
                option(body, EPB_FLAGS, &flags.to_le_bytes(), false);
            }
            if record.direction.is_some() || !record.comment.is_empty() {
                option(body, OPT_END, &[], false);
            }
        })
    }

    /// Flushes the output.
    ///
    /// # Errors
    ///
    /// What the output returns.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The output.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// The output, not flushed.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.block.clear();
        self.block.extend(kind.to_le_bytes());
        self.block.extend([0; 4]);
        body(&mut self.block);
        let len = u32::try_from(self.block.len() + 4).map_err(io::Error::other)?.to_le_bytes();
        self.block.extend(len);
        self.block[4..8].copy_from_slice(&len);
        self.out.write_all(&self.block)
    }
}

/// Returns a time as blocks have it: the high half first, each half little-endian.
fn halves(ns: u64) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h] = ns.to_le_bytes();
    [e, f, g, h, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut writer = Writer::new(Vec::new(), LinkType::Raw, "roce").unwrap();
        let time = Duration::new(1, 2);
        writer.packet(time, Some(Direction::Sent), &[0x45, 1, 2, 3, 4]).unwrap();
        let word = u32::to_le_bytes;
        let expected = [
            // section header
            word(0x0a0d_0d0a),
            word(40),
            word(0x1a2b_3c4d),
            word(1),
            word(u32::MAX),
            word(u32::MAX),
            [4, 0, 4, 0],
            *b"roce",
            [0; 4],
            word(40),
            // interface description
            word(1),
            word(32),
            word(101),
            word(0),
            [9, 0, 1, 0],
            [9, 0, 0, 0],
            [0; 4],
            word(32),
            // enhanced packet
            word(6),
            word(52),
            word(0),
            word(0),
            word(1_000_000_002),
            word(5),
            word(5),
            [0x45, 1, 2, 3],
            [4, 0, 0, 0],
            [2, 0, 4, 0],
            word(2),
            [0; 4],
            word(52),
        ];
        assert_eq!(writer.into_inner(), expected.concat());
    }

    #[test]
    fn interface_has_its_name_and_statistics() {
        let mut writer = Writer::section(Vec::new(), "roce").unwrap();
        let begin = writer.get_ref().len();
        let description =
            Description { name: "softroce0".into(), text: "PID 7".into(), snap_len: 96 };
        assert_eq!(writer.described_interface(LinkType::Raw, &description).unwrap(), 0);
        writer.statistics(0, Duration::from_nanos(1 << 32 | 5), 7, 8).unwrap();
        let word = u32::to_le_bytes;
        let expected = [
            [word(1), word(60), word(101), word(96)].concat(),
            [&[2, 0, 9, 0][..], b"softroce0", &[0; 3], &[3, 0, 5, 0], b"PID 7", &[0; 3]].concat(),
            [[9, 0, 1, 0], [9, 0, 0, 0], [0; 4], word(60)].concat(),
            [word(5), word(52), word(0), word(1), word(5)].concat(),
            [[4, 0, 8, 0], word(7), word(0), [5, 0, 8, 0], word(8), word(0)].concat(),
            [[0; 4], word(52)].concat(),
        ];
        assert_eq!(writer.get_ref()[begin..], expected.concat());
    }
}
