//! `-r A -r B`: captures of both ends, read as one.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use softroce_pcap::Reader;
use softroce_pcap::merge::{Alignment, MergedPacket, Merger, Survey};

use crate::capture;
use crate::merged::Merged;

/// Captures of both ends.
pub(crate) struct BothEnds {
    names: [String; 2],
    merger: Merger,
    readers: [Option<Reader<Box<dyn Read>>>; 2],
}

impl BothEnds {
    /// Opens the captures, and estimates offset and drift of their clocks, for which each is read once.
    pub(crate) fn open(files: &[PathBuf]) -> anyhow::Result<Self> {
        let [first, second] = files else {
            bail!("-r: {} captures are given, expected two, one of each end", files.len());
        };
        let files = [first.as_path(), second.as_path()];
        for file in files {
            ensure!(
                file.as_os_str() != "-",
                "-r: standard input is given, expected a file, which is read twice"
            );
        }
        let names = files.map(|file| file.display().to_string());
        let surveys = [survey(files[0])?, survey(files[1])?];
        let alignment = Alignment::of(&surveys[0], &surveys[1])
            .with_context(|| format!("{} and {}", names[0], names[1]))?;
        let readers = [Some(capture::open(files[0])?), Some(capture::open(files[1])?)];
        Ok(Self { names, merger: Merger::new(alignment), readers })
    }

    /// Returns the names of both captures.
    pub(crate) const fn names(&self) -> &[String; 2] {
        &self.names
    }

    /// Returns the name of both captures as one.
    pub(crate) fn name(&self) -> String {
        format!("{} and {}", self.names[0], self.names[1])
    }

    /// Returns how the captures relate, as far as they have been read.
    pub(crate) fn merged(&self) -> Merged {
        Merged::of(&self.merger, &self.names)
    }

    /// Calls `take` for each packet in the order of sending.
    ///
    /// Returns the first error of `take`, which ends the reading. An error of a capture does not end that of the other:
    /// the first one is returned as the value.
    pub(crate) fn for_each(
        &mut self,
        mut take: impl FnMut(&MergedPacket) -> anyhow::Result<()>,
    ) -> anyhow::Result<Option<anyhow::Error>> {
        let mut failure = None;
        while let Some(end) = self.merger.wants() {
            if let Err(error) = read(&mut self.readers[end], end, &mut self.merger) {
                failure.get_or_insert(error.context(self.names[end].clone()));
            }
            while let Some(packet) = self.merger.next_packet() {
                take(&packet)?;
            }
        }
        Ok(failure)
    }
}

/// Returns a sample of a capture. A capture that ends with an error is sampled up to there.
fn survey(path: &Path) -> anyhow::Result<Survey> {
    let mut reader = capture::open(path)?;
    let mut survey = Survey::default();
    while let Ok(Some(packet)) = reader.next_packet() {
        survey.packet(&packet);
    }
    Ok(survey)
}

/// Reads the next packet of a capture into the merger.
fn read(
    reader: &mut Option<Reader<Box<dyn Read>>>,
    end: usize,
    merger: &mut Merger,
) -> anyhow::Result<()> {
    let packet = match reader {
        Some(reader) => reader.next_packet(),
        None => Ok(None),
    };
    match packet {
        Ok(Some(packet)) => merger.packet(end, &packet),
        Ok(None) => merger.end(end),
        Err(error) => {
            merger.end(end);
            return Err(error.into());
        }
    }
    Ok(())
}
