//! `-w`: a copy of a capture in which packets have comments.
//!
//! The copy is written beside its destination, and takes its place when it is whole. A disk that is full ends the copy
//! after the last block that fits, so that the file can be read. A pipe is written as the packets come.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use softroce_pcap::{Annotator, Block, SummaryPlace};
use tempfile::NamedTempFile;

use crate::output::{self, Stdout};

/// A copy that is being written.
pub(crate) struct Annotated {
    path: PathBuf,
    annotator: Annotator<WholeBlocks>,
    packets: u64,
    /// The first error of the output. Nothing is written after it.
    failure: Option<io::Error>,
}

impl Annotated {
    /// Creates the copy of a capture; `-` is standard output. `command` is the name of the subcommand.
    pub(crate) fn create(path: &Path, input: &Path, command: &str) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let application = format!("roce {command} {}", env!("CARGO_PKG_VERSION"));
        let kind = fs::metadata(path).ok();
        let is_pipe = kind.is_some_and(|kind| !kind.is_file());
        let (output, place) = if path.as_os_str() == "-" {
            (Output::Stdout(output::stdout()), SummaryPlace::LastSection)
        } else if is_pipe {
            let pipe = OpenOptions::new().write(true).open(path).with_context(name)?;
            (Output::Pipe(pipe), SummaryPlace::LastSection)
        } else {
            let canonical = path.canonicalize().ok();
            ensure!(
                canonical.is_none() || input.canonicalize().ok() != canonical,
                "{}: expected another file than the one that is read",
                path.display()
            );
            // A link stays, and the file behind it is replaced.
            let destination = canonical.unwrap_or_else(|| path.to_owned());
            let folder = destination.parent().filter(|folder| !folder.as_os_str().is_empty());
            let mut builder = tempfile::Builder::new();
            builder.prefix(".roce-").permissions(Permissions::from_mode(0o666));
            let file = builder.tempfile_in(folder.unwrap_or(Path::new("."))).with_context(name)?;
            (Output::File { file, destination }, SummaryPlace::FirstSection)
        };
        let out = WholeBlocks::new(output);
        let annotator = Annotator::new(out, &application, place);
        Ok(Self { path: path.to_owned(), annotator, packets: 0, failure: None })
    }

    /// Writes the next block with its comments.
    pub(crate) fn block(&mut self, block: &Block<'_>, comments: &[String]) {
        if self.failure.is_some() {
            return;
        }
        match self.annotator.block(block, comments) {
            Ok(()) => self.packets += u64::from(block.packet().is_some()),
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Returns whether nothing more can be written.
    pub(crate) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Ends the copy with its summary. An error names the file and says how much of the capture it holds.
    pub(crate) fn finish(self, summary: &str) -> anyhow::Result<()> {
        let Self { path, annotator, packets, failure } = self;
        let name = path.display().to_string();
        let (mut out, patch) = annotator.finish(summary).with_context(|| name.clone())?;
        let failure = failure.or_else(|| out.flush().err());
        let is_file = matches!(out.output, Output::File { .. });
        let closed = out.close(patch.map(|patch| (patch.offset, patch.bytes)));
        match failure {
            Some(failure) if is_file => Err(failure).with_context(|| {
                format!("{name}: it ends after at most {packets} packets, and can be read")
            }),
            failure => failure.map_or(closed, Err).context(name),
        }
    }
}

enum Output {
    File { file: NamedTempFile, destination: PathBuf },
    Pipe(File),
    Stdout(Stdout),
}

/// An output to which each write is a block. A failure leaves whole blocks in a file.
struct WholeBlocks {
    output: Output,
    buffer: Vec<u8>,
    /// Ends of the blocks in the buffer.
    ends: Vec<usize>,
    /// Bytes of whole blocks in the file.
    written: u64,
}

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;

impl WholeBlocks {
    fn new(output: Output) -> Self {
        Self { output, buffer: Vec::new(), ends: Vec::new(), written: 0 }
    }

    /// Ends the output: a file becomes whole, gets `patch`, and takes its place.
    fn close(self, patch: Option<(u64, Vec<u8>)>) -> io::Result<()> {
        let Output::File { file, destination } = self.output else { return Ok(()) };
        file.as_file().set_len(self.written)?;
        if let Some((offset, bytes)) = patch
            && offset + bytes.len() as u64 <= self.written
        {
            file.as_file().write_all_at(&bytes, offset)?;
        }
        file.persist(destination).map(drop).map_err(|error| error.error)
    }
}

impl Write for WholeBlocks {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        self.buffer.extend(block);
        self.ends.push(self.buffer.len());
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            let rest = &self.buffer[done..];
            if rest.is_empty() {
                break Ok(());
            }
            let written = match &mut self.output {
                Output::File { file, .. } => file.as_file_mut().write(rest),
                Output::Pipe(pipe) => pipe.write(rest),
                Output::Stdout(stdout) => stdout.write(rest),
            };
            match written {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let whole = self.ends.iter().rev().find(|end| **end <= done).copied().unwrap_or_default();
        self.written += whole as u64;
        self.buffer.clear();
        self.ends.clear();
        match &mut self.output {
            Output::Stdout(stdout) if result.is_ok() => stdout.flush(),
            _ => result,
        }
    }
}
