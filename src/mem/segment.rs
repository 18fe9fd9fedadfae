//! Memory that two processes share, and that has no name.
//!
//! The other process may write whatever it likes, whenever it likes. So no reference into the memory exists: it is
//! copied from and to as registered memory is ([`raw`](super::raw)), or used by the word as atomics. It
//! cannot take the memory away: a file that could become shorter is refused.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

use super::raw::{copy_in, copy_out};
use crate::sys::memory::{FileMapping, check_sealed, sealed_file};

/// Bytes that are copied in one go. For more than 2112 the C library has `rep movsb` on processors which claim that it is
/// fast. On those of AMD it is at half the speed where the two sides lie badly to each other within their pages.
const PIECE: usize = 2048;

/// Bytes that another process may have mapped as well.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: FileMapping,
}

impl Segment {
    /// Makes one of zeros, and a descriptor by which another process can [open](Self::open) it.
    ///
    /// # Errors
    ///
    /// The system has no memory, or no more descriptors.
    pub(crate) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        let file = sealed_file(len)?;
        let mapping = FileMapping::of_whole(&file, len)?;
        Ok((Self { mapping }, file.into()))
    }

    /// Maps one that another process has made.
    ///
    /// # Errors
    ///
    /// `InvalidData` when it is not of this length, or could become shorter: who looks at what is gone is ended
    /// by the system. Otherwise what the system says.
    pub(crate) fn open(descriptor: OwnedFd, len: usize) -> io::Result<Self> {
        let file = File::from(descriptor);
        check_sealed(&file, len)?;
        Ok(Self { mapping: FileMapping::of_whole(&file, len)? })
    }

    /// Copies to offset `at`. `None`, and nothing is done, where that is not within the segment.
    #[inline]
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        self.mapping.bytes(at, from.len())?;
        for (at, piece) in (at..).step_by(PIECE).zip(from.chunks(PIECE)) {
            copy_in(&self.mapping, at, piece)?;
        }
        Some(())
    }

    /// Copies from offset `at`. `None`, and nothing is done, where that is not within the segment.
    #[inline]
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        self.mapping.bytes(at, to.len())?;
        for (at, piece) in (at..).step_by(PIECE).zip(to.chunks_mut(PIECE)) {
            copy_out(&self.mapping, at, piece)?;
        }
        Some(())
    }

    /// The word at offset `at`; `None` where there is none, or it is not aligned.
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
    fn both_see_what_one_of_them_writes() {
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
    fn what_is_not_within_is_left_alone() {
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
    fn what_could_go_away_is_not_opened() {
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
