//! The captures that a command reads.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use softroce_pcap::{Reader, decompressed};

/// Opens a capture, also a compressed one; `-` is standard input. An error names the file.
pub(crate) fn open(path: &Path) -> anyhow::Result<Reader<Box<dyn Read>>> {
    let name = || path.display().to_string();
    let input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).with_context(name)?),
    };
    let input = decompressed(input).with_context(name)?;
    Reader::new(input).with_context(name)
}
