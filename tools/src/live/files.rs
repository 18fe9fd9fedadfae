//! Output files of a capture: one, or a ring of files.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Length of the fields of a block before its body, of which the second is the length of the block.
const BLOCK_HEADER_LEN: usize = 8;

/// An output of whole blocks of pcapng: a file, a FIFO or standard output.
#[derive(Debug)]
pub(super) struct BlockFile {
    out: File,
    /// Blocks that are not written yet.
    waiting: Vec<u8>,
    /// Bytes of the blocks that are written.
    len: u64,
}

impl BlockFile {
    /// Writes to an open file.
    pub(super) fn new(out: File) -> Self {
        Self { out, waiting: Vec::new(), len: 0 }
    }

    /// Returns the number of bytes of all blocks.
    pub(super) fn len(&self) -> u64 {
        self.len + self.waiting.len() as u64
    }

    /// Writes the waiting blocks. If the disk is full, the file ends with the last whole block.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        let mut written = 0;
        while let Some(rest) = self.waiting.get(written..).filter(|rest| !rest.is_empty()) {
            match self.out.write(rest) {
                Ok(0) => return Err(self.cut(written, io::ErrorKind::WriteZero.into())),
                Ok(len) => written += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut(written, error)),
            }
        }
        self.len += written as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Removes the beginning of a block behind the last whole one.
    fn cut(&mut self, written: usize, error: io::Error) -> io::Error {
        self.len += whole_blocks(self.waiting.get(..written).unwrap_or_default()) as u64;
        self.waiting.clear();
        // A FIFO has no length.
        let _ = self.out.set_len(self.len);
        error
    }
}

impl Write for BlockFile {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(block);
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.commit()
    }
}

/// Returns the length of the whole blocks that `bytes` begins with.
fn whole_blocks(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(rest) = bytes.get(whole..)
        && let Some(header) = rest.first_chunk::<BLOCK_HEADER_LEN>()
    {
        let [.., a, b, c, d] = *header;
        let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if len < BLOCK_HEADER_LEN || len > rest.len() {
            break;
        }
        whole += len;
    }
    whole
}

/// When a capture begins another file, and how many it keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RingOptions {
    /// Length of a file in kB (1000 bytes).
    pub(crate) filesize: Option<u64>,
    /// Time of a file in seconds.
    pub(crate) duration: Option<u64>,
    /// Number of files that are kept.
    pub(crate) files: Option<usize>,
}

impl RingOptions {
    /// Adds a condition such as `filesize:1000`, as dumpcap has it.
    pub(crate) fn with(mut self, text: &str) -> Result<Self, String> {
        let expected =
            || format!("`{text}`: expected filesize:KB, duration:SECONDS or files:NUMBER");
        let (name, value) = text.split_once(':').ok_or_else(expected)?;
        let value: u64 = value.parse().ok().filter(|value| *value > 0).ok_or_else(expected)?;
        match name {
            "filesize" => self.filesize = Some(value),
            "duration" => self.duration = Some(value),
            "files" => self.files = Some(usize::try_from(value).map_err(|_| expected())?),
            _ => return Err(expected()),
        }
        Ok(self)
    }

    /// Returns whether the file is full.
    pub(super) fn is_full(&self, bytes: u64, open_for: Duration) -> bool {
        self.filesize.is_some_and(|kb| bytes >= kb.saturating_mul(1000))
            || self.duration.is_some_and(|seconds| open_for.as_secs() >= seconds)
    }
}

/// Names of the files of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    path: PathBuf,
    keep: Option<usize>,
    count: u32,
    files: VecDeque<PathBuf>,
}

impl Ring {
    pub(super) fn new(path: &Path, keep: Option<usize>) -> Self {
        Self { path: path.to_owned(), keep, count: 0, files: VecDeque::new() }
    }

    /// Creates the next file. Its name has a number and the time, as with dumpcap. Removes the
    /// oldest file if there are too many.
    pub(super) fn next(&mut self, time: Duration) -> io::Result<File> {
        self.count += 1;
        let path = numbered(&self.path, self.count, time);
        let file = File::create(&path)?;
        self.files.push_back(path);
        if self.keep.is_some_and(|keep| self.files.len() > keep)
            && let Some(oldest) = self.files.pop_front()
        {
            // It may have been removed already.
            let _ = fs::remove_file(oldest);
        }
        Ok(file)
    }
}

/// Returns the path of a file of a ring: `x_00002_20261126235959.pcapng`. The time is UTC.
fn numbered(path: &Path, number: u32, time: Duration) -> PathBuf {
    let mut name: OsString = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("_{number:05}_{}", timestamp(time)));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns a time since the Unix epoch as year, month, day, hour, minute and second.
fn timestamp(time: Duration) -> String {
    let (days, seconds) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // Years begin on March 1, so that the day that some years lack is the last; an era has 400 years.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_the_date_in_utc() {
        for (seconds, expected) in [
            (0, "19700101000000"),
            (951_782_399, "20000228235959"),
            (951_782_400, "20000229000000"),
            (1_795_737_599, "20261126235959"),
            (4_107_542_400, "21000301000000"),
        ] {
            assert_eq!(timestamp(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn ring_keeps_the_newest_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::new(&folder.path().join("x.pcapng"), Some(2));
        for seconds in 0..4 {
            ring.next(Duration::from_secs(seconds)).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["x_00003_19700101000002.pcapng", "x_00004_19700101000003.pcapng"]);
    }

    #[test]
    fn ring_options_are_those_of_dumpcap() {
        let options = ["filesize:2", "files:3", "duration:5"];
        let options =
            options.iter().try_fold(RingOptions::default(), |all, one| all.with(one)).unwrap();
        let expected = RingOptions { filesize: Some(2), duration: Some(5), files: Some(3) };
        assert_eq!(options, expected);
        assert!(
            options.is_full(2000, Duration::ZERO) && options.is_full(0, Duration::from_secs(5))
        );
        assert!(!options.is_full(1999, Duration::from_millis(4999)));
        for text in ["filesize", "filesize:0", "filesize:x", "packets:5"] {
            let error = RingOptions::default().with(text).unwrap_err();
            assert_eq!(
                error,
                format!("`{text}`: expected filesize:KB, duration:SECONDS or files:NUMBER")
            );
        }
    }

    #[test]
    fn whole_blocks_end_before_a_cut_one() {
        let block =
            |len: u32| [&[6, 0, 0, 0][..], &len.to_le_bytes(), &vec![0; len as usize - 8]].concat();
        let bytes = [block(12), block(32)].concat();
        for (len, expected) in [(0, 0), (7, 0), (11, 0), (12, 12), (19, 12), (43, 12), (44, 44)] {
            assert_eq!(whole_blocks(&bytes[..len]), expected, "{len}");
        }
        assert_eq!(whole_blocks(&[0; 64]), 0, "a length that is impossible");
    }
}
