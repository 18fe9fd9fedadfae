//! `-T fields` and `-T json`: chosen fields of each packet, as tshark prints them.

use std::io::{self, Write};

use softroce_pcap::display_filter::{Field, Subject};
use softroce_pcap::json;

/// Writes the fields of a packet in a line, separated by tabs. Values of one field are separated by commas.
pub(super) fn line(
    out: &mut impl Write,
    fields: &[Field],
    subject: &Subject<'_>,
) -> io::Result<()> {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.write_all(b"\t")?;
        }
        out.write_all(field.texts(subject).join(",").as_bytes())?;
    }
    out.write_all(b"\n")
}

/// A list of packets that is written as `tshark -T json` writes it.
pub(super) struct JsonList<W> {
    out: W,
    is_empty: bool,
}

impl<W: Write> JsonList<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out, is_empty: true }
    }

    /// Writes the fields of a packet.
    pub(super) fn packet(&mut self, fields: &[Field], subject: &Subject<'_>) -> io::Result<()> {
        let begin = if std::mem::take(&mut self.is_empty) { "[\n" } else { ",\n" };
        self.out.write_all(begin.as_bytes())?;
        json::fields(&mut self.out, fields, subject)
    }

    /// Ends the list.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(if self.is_empty { b"[]\n" } else { b"\n]\n" })?;
        self.out.flush()
    }
}
