//! Keys of regions and windows, and maps indexed by them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map indexed by [`index`] or [`hash_key`].
pub(super) type ByKey<T> = HashMap<u32, T, BuildHasherDefault<KeyHasher>>;

/// Returns the index of a key, which is unique among regions and windows.
pub(super) const fn index(key: u32) -> u32 {
    key >> 8
}

/// Returns the whole key rotated so that its random bits are the low ones, which select the bucket of a map.
pub(super) const fn hash_key(key: u32) -> u32 {
    key.rotate_right(8)
}

/// A multiplicative hash, which suffices because the stored keys are random numbers of this device.
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
