//! The captures that a command reads, and what it writes beside them.

use std::fs::File;
use std::io::{self, BufWriter, Read};
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

/// Creates a file that must not be the one that is read.
pub(crate) fn create(path: &Path, input: &Path) -> anyhow::Result<BufWriter<File>> {
    let same = path.canonicalize().is_ok_and(|path| input.canonicalize().is_ok_and(|i| i == path));
    anyhow::ensure!(!same, "{}: expected another file than the one that is read", path.display());
    Ok(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
}
