//! Keys of regions and windows, and maps by them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// By [`index`], or by [`whole`].
pub(super) type ByKey<T> = HashMap<u32, T, BuildHasherDefault<KeyHasher>>;

/// The part of a key that no other region or window has.
pub(super) const fn index(key: u32) -> u32 {
    key >> 8
}

/// The whole key, with the bits that are random always in the low places, which spread it in a map.
pub(super) const fn whole(key: u32) -> u32 {
    key.rotate_right(8)
}

/// Multiplies: keys are random already, and only ours are ever stored.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write_u32(&mut self, key: u32) {
        self.0 = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
