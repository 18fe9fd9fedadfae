//! Anonymous memory that two processes share.
//!
//! The other process may write any bytes at any time. So no reference to the memory exists: copies access it as they
//! access registered memory ([`raw`](super::raw)), and words are atomics. The other process cannot truncate the
//! memory: `open` requires a sealed file.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use super::raw::{copy_in, copy_out};
use crate::sys::memory::{FileMapping, check_sealed, sealed_file};

/// Maximum number of bytes in one call of `memcpy`. Above 2112 bytes the C library uses `rep movsb` on processors
/// that report it as fast. On those of AMD it runs at half the speed for unfavourable offsets of the two sides within
/// their pages.
const COPY_CHUNK_BYTES: usize = 2048;

/// Memory that another process may have mapped too.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: FileMapping,
}

impl Segment {
    /// Creates a zeroed segment, and a descriptor by which another process can [open](Self::open) it.
    ///
    /// # Errors
    ///
    /// An I/O error when the system lacks memory or descriptors.
    pub(crate) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        let file = sealed_file(len)?;
        let mapping = FileMapping::of_whole(&file, len)?;
        Ok((Self { mapping }, file.into()))
    }

    /// Maps a segment that another process has created.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the segment has another length or can be truncated: an access beyond the end of a file
    /// raises SIGBUS. Other I/O errors of the system.
    pub(crate) fn open(descriptor: OwnedFd, len: usize) -> io::Result<Self> {
        let file = File::from(descriptor);
        check_sealed(&file, len)?;
        Ok(Self { mapping: FileMapping::of_whole(&file, len)? })
    }

    /// Copies to offset `at`. Returns `None`, without a copy, when the bytes are not within the segment.
    #[inline]
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        self.mapping.bytes(at, from.len())?;
        for (at, piece) in (at..).step_by(COPY_CHUNK_BYTES).zip(from.chunks(COPY_CHUNK_BYTES)) {
            copy_in(&self.mapping, at, piece)?;
        }
        Some(())
    }

    /// Copies from offset `at`. Returns `None`, without a copy, when the bytes are not within the segment.
    #[inline]
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        self.mapping.bytes(at, to.len())?;
        for (at, piece) in (at..).step_by(COPY_CHUNK_BYTES).zip(to.chunks_mut(COPY_CHUNK_BYTES)) {
            copy_out(&self.mapping, at, piece)?;
        }
        Some(())
    }

    /// Returns the word at offset `at`, or `None` when it is out of bounds or misaligned.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        self.mapping.word(at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_mappings_share_bytes() {
        let (ours, descriptor) = Segment::create(8192).unwrap();
        let theirs = Segment::open(descriptor, 8192).unwrap();
        ours.write(8185, b"the end").unwrap();
        let mut seen = [0; 8];
        theirs.read(8184, &mut seen).unwrap();
        assert_eq!(&seen, b"\0the end");
        theirs.word(16).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(ours.word(16).unwrap().load(Ordering::Relaxed), 7);
    }

    #[test]
    fn out_of_bounds_copies_do_nothing() {
        let (segment, _) = Segment::create(64).unwrap();
        assert_eq!(segment.write(60, &[1; 5]), None);
        assert_eq!(segment.read(usize::MAX, &mut [1]), None);
        assert!(
            segment.word(64).is_none() && segment.word(57).is_none() && segment.word(4).is_none()
        );
        assert!(segment.word(56).is_some());
        let mut all = [1; 64];
        segment.read(0, &mut all).unwrap();
        assert_eq!(all, [0; 64]);
    }

    #[test]
    fn unsealed_file_is_refused() {
        let refused = |file: File| Segment::open(file.into(), 4096).unwrap_err().kind();
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        refused(file);
        let (_, descriptor) = Segment::create(8192).unwrap();
        assert_eq!(refused(descriptor.into()), io::ErrorKind::InvalidData);
        let (_, descriptor) = Segment::create(4096).unwrap();
        assert!(File::from(descriptor.try_clone().unwrap()).set_len(0).is_err(), "nor is it");
        Segment::open(descriptor, 4096).unwrap();
    }
}
