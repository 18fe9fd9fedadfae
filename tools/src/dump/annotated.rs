//! A capture file in which each packet has a comment.

use std::io::{self, Write};

use softroce_pcap::{LinkType, Packet, Record, Writer};

/// The file, and the link types of its interfaces.
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

    /// Writes the frame, unless there is nothing to say of it. Lines beyond what a comment holds are
    /// left out, which the last one says.
    pub(super) fn frame(
        &mut self,
        packet: &Packet<'_>,
        lines: impl Iterator<Item = String>,
    ) -> io::Result<()> {
        let (mut comment, mut left_out) = (String::new(), 0);
        for line in lines {
            if comment.len() + line.len() > LONGEST_COMMENT {
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
        // Where the link type is not one of ours, no packet was found.
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

/// Bytes that leave room for the last line in a comment.
const LONGEST_COMMENT: usize = 65_000;
