//! Maps by numbers: addresses of blocks, numbers of inodes.
//!
//! Nobody chooses these in order to make them collide, and they are small: multiplying spreads them
//! well enough, and takes a fraction of what a keyed hash does.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers.
pub(crate) type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which of `shards` shards, a power of two, a number belongs to.
pub(crate) fn shard_of(number: u64, shards: usize) -> usize {
    // The upper bits, since the tables inside use the lower ones of a similar product.
    (number.wrapping_mul(SPREAD) >> 40) as usize & (shards - 1)
}

#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(SPREAD).rotate_right(29);
    }
}
