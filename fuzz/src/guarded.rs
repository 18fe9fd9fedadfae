//! Registered memory with a wall before and behind it, and memory that no peer may see or change.

use std::sync::Arc;

use softroce::ids::PdId;
use softroce::mem::{Access, HostMemory, Memory, Region};

/// A wall: as long as the longest packet that the targets take.
const WALL: [u8; 1024] = [0xe7; 1024];

/// What is in memory that no peer may see: sixteen bytes that nobody comes by otherwise.
const SECRET: [u8; 16] = *b"not yours to see";

/// A region of the caller's memory, and walls around it that nobody may touch.
pub struct Guarded {
    memory: Arc<Memory>,
    pub region: Arc<Region>,
    start: *mut [u8],
}

impl Guarded {
    pub fn new(memory: &Arc<Memory>, pd: PdId, len: usize, iova: u64, access: Access) -> Self {
        let bytes = [&WALL[..], &vec![0; len], &WALL].concat().into_boxed_slice();
        let start = Box::into_raw(bytes);
        // SAFETY: the offset is within the allocation.
        let inner = unsafe { start.cast::<u8>().add(WALL.len()) };
        // SAFETY: the bytes are initialized, and freed when the region has been deregistered;
        // nothing refers to them but the library.
        let host = unsafe { HostMemory::from_raw(inner, len) };
        let region = memory.register(pd, host, Some(iova), access).expect("a region");
        Self { memory: Arc::clone(memory), region, start }
    }

    /// Memory with a secret in it, which is registered in domain `pd`.
    pub fn secret(memory: &Arc<Memory>, pd: PdId, iova: u64, access: Access) -> Self {
        let guarded = Self::new(memory, pd, 1024, iova, access);
        guarded.region.write_at(0, &SECRET.repeat(64)).expect("within the region");
        guarded
    }

    /// What is in the region.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.len()];
        self.region.read_at(0, &mut bytes).expect("a live region");
        bytes
    }

    /// Nobody has written next to it.
    pub fn assert_walls(&self) {
        for at in [0, WALL.len() + self.region.len()] {
            // SAFETY: the offset is within the allocation.
            let wall = unsafe { self.start.cast::<u8>().add(at) };
            // SAFETY: there is a wall, which is not registered: nobody writes to it meanwhile.
            let wall = unsafe { std::slice::from_raw_parts(wall, WALL.len()) };
            assert!(wall == WALL, "a write next to a region");
        }
    }

    /// Nobody has written there at all.
    pub fn assert_secret(&self) {
        self.assert_walls();
        assert!(self.bytes() == SECRET.repeat(64), "a write to memory of another");
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.memory.deregister(&self.region);
        // SAFETY: the region is deregistered, so nobody uses the bytes, and they are freed once.
        drop(unsafe { Box::from_raw(self.start) });
    }
}

/// A datagram tells nothing of memory that no peer may see.
pub fn assert_tells_no_secret(mut datagram: &[u8]) {
    while let Some(at) = datagram.iter().position(|byte| *byte == SECRET[0]) {
        datagram = &datagram[at..];
        assert!(!datagram.starts_with(&SECRET), "memory of another was sent");
        datagram = &datagram[1..];
    }
}
