//! Descriptors that other code of the process may close.
//!
//! Programs close descriptors by number: all above 2, or one that they have closed already. The number may then belong
//! to a file of the program, which the library must neither read nor close.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::FileIdentity;

/// A descriptor that is closed after its last clone is dropped, but only if it still is that of the same file.
#[derive(Debug)]
pub(crate) struct OwnDescriptor<T: AsFd>(Arc<Guarded<T>>);

#[derive(Debug)]
struct Guarded<T: AsFd> {
    file: ManuallyDrop<T>,
    /// `None` if the system does not report it.
    identity: Option<FileIdentity>,
}

impl<T: AsFd> OwnDescriptor<T> {
    /// Takes an open descriptor.
    pub(crate) fn new(file: T) -> Self {
        let identity = FileIdentity::of(file.as_fd()).ok();
        Self(Arc::new(Guarded { file: ManuallyDrop::new(file), identity }))
    }

    /// Returns whether the descriptor still is that of the same file. Files without an inode of their own (eventfd,
    /// epoll) count as the same.
    pub(crate) fn is_own(&self) -> bool {
        self.0.is_own()
    }

    /// Makes a descriptor that stands for a file which other code has closed; its number is that of `other`.
    #[cfg(test)]
    pub(crate) fn replaced_by(other: T, closed: BorrowedFd<'_>) -> Self {
        let identity = FileIdentity::of(closed).ok();
        Self(Arc::new(Guarded { file: ManuallyDrop::new(other), identity }))
    }
}

impl<T: AsFd> Guarded<T> {
    fn is_own(&self) -> bool {
        self.identity.is_none() || FileIdentity::of(self.file.as_fd()).ok() == self.identity
    }
}

impl<T: AsFd> Drop for Guarded<T> {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: this is the only place that drops the file, and nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) }
        }
    }
}

impl<T: AsFd> Clone for OwnDescriptor<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: AsFd> Deref for OwnDescriptor<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.file
    }
}

impl<T: AsFd> AsFd for OwnDescriptor<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use super::*;

    fn is_open(number: i32) -> bool {
        Path::new("/proc/self/fd").join(number.to_string()).exists()
    }

    #[test]
    fn descriptor_of_another_file_is_not_closed() {
        let (own, mut peer) = UnixStream::pair().unwrap();
        let (foreign, mut program) = UnixStream::pair().unwrap();
        let number = foreign.as_raw_fd();
        let descriptor = OwnDescriptor::replaced_by(foreign, own.as_fd());
        assert!(!descriptor.is_own());
        drop(descriptor.clone());
        drop(descriptor);
        assert!(is_open(number));
        // The program still reads from its end.
        program.write_all(b"x").unwrap();
        let descriptor = OwnDescriptor::new(own);
        assert!(descriptor.is_own());
        drop(descriptor.clone());
        peer.write_all(b"y").unwrap();
        drop(descriptor);
        assert!(peer.read(&mut [0]).is_err() || peer.write_all(b"z").is_err(), "it is closed");
    }
}
