//! Registered memory with guard bytes around it, and memory that peers must not read or change.

use std::sync::Arc;

use softroce::ids::PdId;
use softroce::mem::{Access, HostMemory, Memory, Region};

/// Guard bytes, as many as the longest packet of the targets.
const GUARD_BYTES: [u8; 1024] = [0xe7; 1024];

/// Contents of memory that peers must not read: sixteen bytes that occur nowhere else.
const SECRET: [u8; 16] = *b"not yours to see";

/// A region in the caller's memory, between guard bytes that must not change.
pub struct Guarded {
    memory: Arc<Memory>,
    pub region: Arc<Region>,
    start: *mut [u8],
}

impl Guarded {
    pub fn new(memory: &Arc<Memory>, pd: PdId, len: usize, iova: u64, access: Access) -> Self {
        let bytes = [&GUARD_BYTES[..], &vec![0; len], &GUARD_BYTES].concat().into_boxed_slice();
        let start = Box::into_raw(bytes);
        // SAFETY: the offset is within the allocation.
        let inner = unsafe { start.cast::<u8>().add(GUARD_BYTES.len()) };
        // SAFETY: the bytes are initialized, and freed after the region is deregistered; only the library accesses
        // them.
        let host = unsafe { HostMemory::from_raw(inner, len) };
        let region = memory.register(pd, host, Some(iova), access).expect("a region");
        Self { memory: Arc::clone(memory), region, start }
    }

    /// Creates memory with a secret, registered in domain `pd`.
    pub fn secret(memory: &Arc<Memory>, pd: PdId, iova: u64, access: Access) -> Self {
        let guarded = Self::new(memory, pd, 1024, iova, access);
        guarded.region.write_at(0, &SECRET.repeat(64)).expect("within the region");
        guarded
    }

    /// Returns the bytes of the region.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.len()];
        self.region.read_at(0, &mut bytes).expect("a live region");
        bytes
    }

    /// Asserts that the guard bytes have not changed.
    pub fn assert_guards(&self) {
        for at in [0, GUARD_BYTES.len() + self.region.len()] {
            // SAFETY: the offset is within the allocation.
            let wall = unsafe { self.start.cast::<u8>().add(at) };
            // SAFETY: the guard bytes are allocated and not registered, so no other code writes to them.
            let wall = unsafe { std::slice::from_raw_parts(wall, GUARD_BYTES.len()) };
            assert!(wall == GUARD_BYTES, "a write next to a region");
        }
    }

    /// Asserts that the secret has not changed.
    pub fn assert_secret(&self) {
        self.assert_guards();
        assert!(self.bytes() == SECRET.repeat(64), "a write to memory of another");
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.memory.deregister(&self.region);
        // SAFETY: the region is deregistered, so no code accesses the bytes, and they are freed once.
        drop(unsafe { Box::from_raw(self.start) });
    }
}

/// Asserts that a datagram does not contain the secret.
pub fn assert_tells_no_secret(mut datagram: &[u8]) {
    while let Some(at) = datagram.iter().position(|byte| *byte == SECRET[0]) {
        datagram = &datagram[at..];
        assert!(!datagram.starts_with(&SECRET), "memory of another was sent");
        datagram = &datagram[1..];
    }
}
