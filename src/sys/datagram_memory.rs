//! Memory for datagrams in which their payloads are aligned.
//!
//! Most payloads follow a BTH of 12 bytes, and a packet of full length takes 16 bytes more than its payload. So if the
//! first payload of a burst is aligned to 16 bytes, all are. Processors copy such a payload up to twice as fast as one
//! that is not, with `rep movsb` more than with other instructions. Linux shifts Ethernet frames by two bytes for a
//! similar reason (`NET_IP_ALIGN`).
//!
//! The first payload is in the middle of a page. Linux builds a datagram near the start of a page, programs often register
//! whole pages, and copies between memories that begin at nearly the same offset in a page are slow (4 KiB aliasing).
//! `docs/design/memory.md` has the figures.

use std::ops::{Deref, DerefMut, Range};

/// Length of the smallest page.
const PAGE: usize = 4096;

/// Offset of the first payload in its page.
const PAYLOAD_OFFSET: usize = PAGE / 2;

/// Length of the header before an aligned payload: of a BTH.
pub(crate) const HEADER: usize = 12;

/// Zeroed memory of which the byte behind a BTH is in the middle of a page.
#[derive(Debug)]
pub(crate) struct DatagramMemory {
    bytes: Box<[u8]>,
    /// Index of the first byte.
    start: usize,
    len: usize,
}

impl DatagramMemory {
    /// Allocates `len` bytes. The system provides pages when they are first written.
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0; len + PAGE].into_boxed_slice();
        let payload = (bytes.as_ptr().addr() + HEADER) % PAGE;
        Self { start: (PAGE + PAYLOAD_OFFSET - payload) % PAGE, len, bytes }
    }

    /// Returns a part, with one check of its bounds.
    #[inline]
    pub(crate) fn part(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[self.start + range.start..self.start + range.end]
    }

    /// Returns a part, with one check of its bounds.
    #[inline]
    pub(crate) fn part_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.bytes[self.start + range.start..self.start + range.end]
    }
}

impl Deref for DatagramMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.part(0..self.len)
    }
}

impl DerefMut for DatagramMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.part_mut(0..self.len)
    }
}

impl Clone for DatagramMemory {
    fn clone(&self) -> Self {
        let mut clone = Self::new(self.len);
        clone.copy_from_slice(self);
        clone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_in_the_middle_of_a_page_in_the_clone_too() {
        for len in [12, 100, 65_536] {
            let mut memory = DatagramMemory::new(len);
            memory.fill(7);
            for memory in [memory.clone(), memory] {
                assert_eq!((memory.as_ptr().addr() + HEADER) % PAGE, PAYLOAD_OFFSET);
                assert_eq!(*memory, vec![7; len]);
            }
        }
    }
}
