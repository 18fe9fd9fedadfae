//! The bytes of a capture, a record at a time and each in one piece.
//!
//! ```text
//!  buffer  │ done with │ record │ read ahead │ room │
//!                      start    start + len  end
//! ```
//!
//! A record is lent out of the buffer into which it was read; only what the end of the buffer cuts
//! is moved. Nothing is waited for that the record does not need, so a capture can be read while it
//! is written.

use std::io::{self, Read};

/// What is read at a time: large enough that calls cost little, small enough to stay in a cache.
const READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    len: usize,
    end: usize,
    /// What the buffer becomes for a record longer than a piece.
    longest: usize,
}

impl<R: Read> Input<R> {
    /// Reads `source`, in which no record is longer than `longest` bytes.
    pub(crate) fn new(source: R, longest: usize) -> Self {
        Self { source, buffer: vec![0; READ_BYTES], start: 0, len: 0, end: 0, longest }
    }

    /// The bytes of the record that are read.
    pub(crate) fn record(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }

    /// Is done with the record, and begins the next with `len` bytes. Gives how many of them there
    /// are before the end of the input.
    pub(crate) fn begin(&mut self, len: usize) -> io::Result<usize> {
        self.start += self.len;
        self.len = 0;
        self.extend(len)
    }

    /// Takes `more` bytes into the record. Gives how many of them there are.
    pub(crate) fn extend(&mut self, more: usize) -> io::Result<usize> {
        let need = self.len + more;
        if self.end - self.start < need {
            self.fill(need)?;
        }
        let before = std::mem::replace(&mut self.len, need.min(self.end - self.start));
        Ok(self.len - before)
    }

    /// Reads on until there are `need` bytes from the record's first on, or no more.
    fn fill(&mut self, need: usize) -> io::Result<()> {
        if need > self.buffer.len() {
            // To its last size at once: growing by steps would hold two large ones at a time.
            let mut larger = vec![0; self.longest.max(need)];
            larger[..self.end - self.start].copy_from_slice(&self.buffer[self.start..self.end]);
            self.buffer = larger;
        } else {
            self.buffer.copy_within(self.start..self.end, 0);
        }
        self.end -= self.start;
        self.start = 0;
        while self.end < need {
            match self.source.read(&mut self.buffer[self.end..need.max(READ_BYTES)]) {
                Ok(0) => break,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time, and fails once with an interruption before each.
    struct Slow<'a> {
        bytes: &'a [u8],
        interrupted: bool,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n = into.len().min(1);
            self.bytes.read(&mut into[..n])
        }
    }

    #[test]
    fn records_are_whole_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut input = Input::new(Slow { bytes: &bytes, interrupted: false }, 1000);
        assert_eq!(input.begin(10).unwrap(), 10);
        assert_eq!(input.extend(290).unwrap(), 290);
        assert_eq!(input.record(), &bytes[..300]);
        assert_eq!(input.begin(650).unwrap(), 650);
        assert_eq!(input.record(), &bytes[300..950]);
        assert_eq!(input.begin(8).unwrap(), 8);
        assert_eq!(input.extend(100).unwrap(), 42, "what there is");
        assert_eq!(input.record(), &bytes[950..]);
        assert_eq!(input.begin(1).unwrap(), 0);
        assert_eq!(input.record(), b"");
    }

    #[test]
    fn records_across_the_ends_of_pieces_and_longer_ones_are_in_one_piece() {
        let bytes: Vec<u8> = (0..=250).cycle().take(5 * READ_BYTES).collect();
        let mut input = Input::new(bytes.as_slice(), 2 * READ_BYTES + 5);
        let mut at = 0;
        for len in [READ_BYTES - 1, 7, READ_BYTES, 2 * READ_BYTES + 5, 3, READ_BYTES - 14] {
            assert_eq!(input.begin(len).unwrap(), len);
            assert_eq!(input.record(), &bytes[at..at + len]);
            at += len;
        }
        assert_eq!((at, input.begin(1).unwrap()), (bytes.len(), 0));
    }
}
