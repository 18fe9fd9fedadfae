//! Memory that two processes share, and that has no name.
//!
//! The other process may write whatever it likes, whenever it likes. So no reference into the memory exists: it is
//! copied from and to as registered memory is ([`raw`](super::raw)), or used by the word as atomics. It
//! cannot take the memory away: a file that could become shorter is refused.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use super::raw::copy;
use super::sys::FileMapping;

/// What neither process can do with the file: change its length, or this.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Bytes that are copied in one go. For more than 2112 the C library has `rep movsb` on processors which claim that it is
/// fast. On those of AMD it is at half the speed where the two sides lie badly to each other within their pages.
const PIECE: usize = 2048;

/// Bytes that another process may have mapped as well.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: FileMapping,
    len: usize,
}

impl Segment {
    /// Makes one of zeros, and a descriptor by which another process can [open](Self::open) it.
    ///
    /// # Errors
    ///
    /// The system has no memory, or no more descriptors.
    pub(crate) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        // SAFETY: the name is a C string, and the rest a number.
        let fd = unsafe {
            libc::memfd_create(c"softroce".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened `fd`, and nobody else knows it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(len as u64)?;
        // SAFETY: the call takes numbers.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapping = FileMapping::map(&file, 0, len, 0)?;
        Ok((Self { mapping, len }, file.into()))
    }

    /// Maps one that another process has made.
    ///
    /// # Errors
    ///
    /// `InvalidData` when it is not of this length, or could become shorter: who looks at what is gone is ended
    /// by the system. Otherwise what the system says.
    pub(crate) fn open(descriptor: OwnedFd, len: usize) -> io::Result<Self> {
        let file = File::from(descriptor);
        // SAFETY: the call takes numbers.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 {
            return Err(io::Error::last_os_error());
        }
        let found = file.metadata()?.len();
        if seals & SEALS != SEALS || found != len as u64 {
            let why = format!(
                "a segment of {found} bytes and seals {seals:#x}, not {len} and {SEALS:#x}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Self { mapping: FileMapping::map(&file, 0, len, 0)?, len })
    }

    /// Copies to offset `at`. `None`, and nothing is done, where that is not within the segment.
    #[inline]
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> Option<()> {
        self.bytes(at, from.len())?;
        for (at, piece) in (at..).step_by(PIECE).zip(from.chunks(PIECE)) {
            let to = self.bytes(at, piece.len())?;
            // SAFETY: `bytes` has checked the destination; the source is a slice of the same length, and none
            // lies in a segment.
            unsafe { copy(piece.as_ptr(), to, piece.len()) };
        }
        Some(())
    }

    /// Copies from offset `at`. `None`, and nothing is done, where that is not within the segment.
    #[inline]
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> Option<()> {
        self.bytes(at, to.len())?;
        for (at, piece) in (at..).step_by(PIECE).zip(to.chunks_mut(PIECE)) {
            let from = self.bytes(at, piece.len())?;
            // SAFETY: `bytes` has checked the source; the destination is a slice of the same length, and none
            // lies in a segment.
            unsafe { copy(from, piece.as_mut_ptr(), piece.len()) };
        }
        Some(())
    }

    /// The word at offset `at`; `None` where there is none, or it is not aligned.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU64> {
        let word = self.bytes(at, size_of::<u64>())?.cast::<u64>();
        // SAFETY: within the mapping, which lives as long as `self`, and aligned; others access it atomically or
        // by `copy`.
        word.is_aligned().then(|| unsafe { AtomicU64::from_ptr(word) })
    }

    #[inline]
    fn bytes(&self, at: usize, len: usize) -> Option<*mut u8> {
        let is_within = at.checked_add(len).is_some_and(|end| end <= self.len);
        is_within.then(|| self.mapping.as_ptr().wrapping_add(at))
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
