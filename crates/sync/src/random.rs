//! Random numbers for tests that can be repeated, and a random key for hashes.
//!
//! # Invariants
//!
//! * The same seed gives the same numbers on every machine.
//! * A test that starts from [`seed`] prints the setting that repeats it.
//! * [`process_key`] returns the same number for as long as the process lives.
//!
//! Only [`process_key`] is hard to guess; the generator is not.

use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, OnceLock};

use crate::hash::GOLDEN_RATIO_64;

/// The environment variable that [`seed`] reads.
const VARIABLE: &str = "VFSCALE_SEED";

/// Returns the seed of a test: `VFSCALE_SEED` if that is a number, otherwise a [fresh](fresh_seed)
/// one. Prints it, so that a failed run can be repeated.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var(VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(fresh_seed);
    println!("{VARIABLE}={seed}");
    seed
}

/// Returns a random seed.
#[must_use]
pub fn fresh_seed() -> u64 {
    // The state is random for each process. The shift makes the number short enough to type.
    RandomState::new().hash_one(std::process::id()) >> 16
}

/// The value that [`process_key`] returns, if that is fixed.
static FIXED: OnceLock<u64> = OnceLock::new();

static KEY: LazyLock<u64> =
    LazyLock::new(|| FIXED.get().copied().unwrap_or_else(|| RandomState::new().hash_one(0u64)));

/// Returns a number that differs from process to process. Hashes start with it, so an attacker
/// can't choose names that collide.
#[inline]
#[must_use]
pub fn process_key() -> u64 {
    *KEY
}

/// Fixes the value of [`process_key`], for a process that must repeat exactly what another did.
/// Returns false if another value was returned or fixed before.
pub fn fix_process_key(key: u64) -> bool {
    let _ = FIXED.set(key);
    process_key() == key
}

/// A small generator (SplitMix64; Steele, Lea and Flood, OOPSLA 2014). Seeds that differ in any bit
/// give unrelated sequences, so threads may start from `seed ^ number << 32`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with any seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_RATIO_64);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, which is not 0. The bias is at most `limit` in 2^64.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Returns one of the items of `of`, which is not empty.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Shuffles `things` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
