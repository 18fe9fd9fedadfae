//! A capture file in which each packet has a comment.

use std::io::{self, Write};

use softroce_pcap::{LinkType, Packet, Record, Writer};

/// A capture file being written, and the link types of its interfaces.
pub(super) struct Annotated<W> {
    writer: Writer<W>,
    links: Vec<LinkType>,
}

impl<W: Write> Annotated<W> {
    pub(super) fn new(out: W) -> io::Result<Self> {
        let name = concat!("roce dump ", env!("CARGO_PKG_VERSION"));
        let links = vec![LinkType::Ethernet];
        Ok(Self { writer: Writer::new(out, links[0], name)?, links })
    }

    /// Writes a frame with `lines` as its comment, or nothing without lines. The last line counts those that do not
    /// fit into a comment.
    pub(super) fn frame(
        &mut self,
        packet: &Packet<'_>,
        lines: impl Iterator<Item = String>,
    ) -> io::Result<()> {
        let (mut comment, mut left_out) = (String::new(), 0);
        for line in lines {
            if comment.len() + line.len() > MAX_COMMENT_BYTES {
                left_out += 1;
                continue;
            }
            if !comment.is_empty() {
                comment.push('\n');
            }
            comment.push_str(&line);
        }
        if left_out > 0 {
            comment.push_str(&format!("\n{left_out} more"));
        }
        // A frame of an unknown link type has no lines.
        let (false, Ok(link)) = (comment.is_empty(), packet.link) else { return Ok(()) };
        let interface = self.interface(link)?;
        self.writer.record(&Record {
            interface,
            time: packet.time.unwrap_or_default(),
            direction: None,
            frame: packet.frame,
            original_len: packet.original_len,
            comment: &comment,
        })
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }

    fn interface(&mut self, link: LinkType) -> io::Result<u32> {
        if let Some(at) = self.links.iter().position(|known| *known == link) {
            return u32::try_from(at).map_err(io::Error::other);
        }
        self.links.push(link);
        self.writer.interface(link)
    }
}

/// Bytes of a comment, with room left for the last line.
const MAX_COMMENT_BYTES: usize = 65_000;
