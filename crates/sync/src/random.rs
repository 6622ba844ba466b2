//! Numbers by chance, for tests that can be repeated, and a number for hashes.
//!
//! # Invariants
//!
//! * The same seed gives the same numbers on every machine.
//! * A test that begins from [`seed`] prints what repeats it.
//! * [`process_key`] gives the same number for as long as the process lives.
//!
//! Not for anything that must not be guessed, but for [`process_key`].

use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, OnceLock};

/// The environment variable that [`seed`] follows.
const VARIABLE: &str = "VFSCALE_SEED";

/// Where a test begins: at `VFSCALE_SEED` if that is a number, or else at a [fresh](fresh_seed)
/// one. Prints it, so that a run that fails can be repeated.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var(VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(fresh_seed);
    println!("{VARIABLE}={seed}");
    seed
}

/// A seed that nobody has used.
#[must_use]
pub fn fresh_seed() -> u64 {
    // The state is random for each process. Short enough to be typed again.
    RandomState::new().hash_one(std::process::id()) >> 16
}

/// What [`process_key`] is to give, if that is fixed.
static FIXED: OnceLock<u64> = OnceLock::new();

static KEY: LazyLock<u64> =
    LazyLock::new(|| FIXED.get().copied().unwrap_or_else(|| RandomState::new().hash_one(0u64)));

/// A number that differs from process to process, to begin hashes with, so that nobody can choose
/// what collides.
#[inline]
#[must_use]
pub fn process_key() -> u64 {
    *KEY
}

/// Has [`process_key`] give this number, for a process that must repeat exactly what another did.
/// Returns false if another number was given already.
pub fn fix_process_key(key: u64) -> bool {
    let _ = FIXED.set(key);
    process_key() == key
}

/// A small generator (SplitMix64; Steele, Lea and Flood 2014). Seeds that differ in any bit give
/// numbers that have nothing to do with each other, so that threads may begin at `seed ^ number <<
/// 32`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins at a seed, whichever.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any number below `limit`, which is not 0. Some are more likely than others by `limit` in
    /// 2^64.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// One of some things, of which there is at least one.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Puts things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
