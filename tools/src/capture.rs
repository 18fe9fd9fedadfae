//! Opening captures, and creating files beside them.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use softroce_pcap::{Reader, decompressed};

use crate::{outcome, output};

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

/// Creates a file that must not be one of those that are read.
pub(crate) fn create(path: &Path, inputs: &[PathBuf]) -> anyhow::Result<BufWriter<File>> {
    let canonical = path.canonicalize().ok();
    let is_input = |input: &PathBuf| canonical.is_some() && input.canonicalize().ok() == canonical;
    anyhow::ensure!(
        !inputs.iter().any(is_input),
        "{}: expected another file than the one that is read",
        path.display()
    );
    Ok(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
}

/// Runs `read` for each file. A file that cannot be read does not keep the others from being read: all errors but
/// the last are printed, and the last is returned.
pub(crate) fn for_each(
    files: &[PathBuf],
    mut read: impl FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut failure = None;
    for path in files {
        if let Err(error) = read(path) {
            if output::is_reader_closed(&error) {
                return Err(error);
            }
            if let Some(earlier) = failure.replace(error) {
                output::warn(outcome::text_of(&earlier));
            }
        }
    }
    failure.map_or(Ok(()), Err)
}
