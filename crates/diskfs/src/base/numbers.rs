//! Maps by numbers: addresses of blocks, numbers of inodes.
//!
//! No user can choose these numbers to make them collide, and they are small: multiplication
//! distributes them well enough, at a fraction of the cost of a keyed hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use vfscale_sync::hash::fibonacci;

/// A map by numbers.
pub(crate) type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// Returns the shard of a number, of `shards` shards, a power of two.
pub(crate) fn shard_of(number: u64, shards: usize) -> usize {
    // The upper bits, since the tables in the shards use the lower ones of a similar product.
    (fibonacci(number) >> 40) as usize & (shards - 1)
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
        self.0 = fibonacci(self.0 ^ number).rotate_right(29);
    }
}
