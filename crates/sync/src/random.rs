//! Random numbers for tests that can be repeated, and a random key for hashes.
//!
//! # Invariants
//!
//! * The same seed gives the same numbers on every machine.
//! * A test that starts from [`seed`] prints the setting that repeats it.
//! * [`hash_keys`] returns the same numbers for as long as the process lives.
//!
//! Only [`hash_keys`] are hard to guess; the generator is not.

use std::hash::{BuildHasher, RandomState};
use std::sync::{LazyLock, OnceLock};

use crate::hash::GOLDEN_RATIO_64;

/// The environment variable that [`seed`] reads.
const VARIABLE: &str = "VFSCALE_SEED";

/// Returns the seed of a test: `VFSCALE_SEED` if that is a number, otherwise a [fresh](fresh_seed)
/// one. Prints it, so that a failed run can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var(VARIABLE).ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(fresh_seed);
    println!("{VARIABLE}={seed}");
    seed
}

/// Returns a random seed.
pub fn fresh_seed() -> u64 {
    // The state is random for each process. The shift makes the number short enough to type.
    RandomState::new().hash_one(std::process::id()) >> 16
}

/// The secret numbers of a hash that multiplies; see [`hash_keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKeys {
    /// Combined with the data by exclusive or, before the first and the last step.
    pub salts: [u64; 2],
    /// Multiplied by, in all steps but the last, and in the last. Odd.
    pub factors: [u64; 2],
}

impl HashKeys {
    /// Returns the keys of a seed, always the same ones, with known multipliers: for processes that
    /// must repeat exactly, and have no user to defend against.
    pub const fn from_seed(seed: u64) -> Self {
        Self { salts: [seed; 2], factors: [0xd6e8_feb8_6659_fd93, GOLDEN_RATIO_64] }
    }

    /// Makes keys that are hard to guess.
    fn unknown() -> Self {
        let random = RandomState::new();
        let number = |number: u64| random.hash_one(number);
        Self { salts: [number(0), number(1)], factors: [number(2) | 1, number(3) | 1] }
    }
}

/// The seed of [`hash_keys`], if that is fixed.
static FIXED: OnceLock<u64> = OnceLock::new();

static KEYS: LazyLock<HashKeys> =
    LazyLock::new(|| FIXED.get().map_or_else(HashKeys::unknown, |seed| HashKeys::from_seed(*seed)));

/// Returns numbers that differ from process to process. Hashes of names depend on all of them, so
/// an attacker can't choose names that collide.
///
/// They are four results of SipHash-1-3 under a key of 128 bits that is not stored, so none of them
/// tells anything about another. The multipliers are secret as well: hashes are shown as positions
/// in directories, and with known multipliers each one would be an equation in one number of 64
/// bits.
#[inline]
pub fn hash_keys() -> &'static HashKeys {
    &KEYS
}

/// Fixes [`hash_keys`], for a process that must repeat exactly what another did. Returns false if
/// other keys were returned or fixed before.
pub fn fix_hash_keys(seed: u64) -> bool {
    let _ = FIXED.set(seed);
    *hash_keys() == HashKeys::from_seed(seed)
}

/// A small generator (SplitMix64; Steele, Lea and Flood, OOPSLA 2014). Seeds that differ in any bit
/// give unrelated sequences, so threads may start from `seed ^ number << 32`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with any seed.
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
