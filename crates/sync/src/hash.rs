//! Fibonacci hashing of integers (Knuth, The Art of Computer Programming, volume 3, section 6.4).
//!
//! For numbers that no attacker chooses, such as addresses and inode numbers. Names are hashed with
//! keys ([`hash_keys`](crate::random::hash_keys)).

/// 2^64 divided by the golden ratio, made odd. `GOLDEN_RATIO_64` of Linux is its negation.
pub const GOLDEN_RATIO_64: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a hash of `number`. Its upper bits depend on all bits of `number`, and consecutive
/// numbers are far apart; its lower bits depend on the lower bits only.
#[inline]
pub const fn fibonacci(number: u64) -> u64 {
    number.wrapping_mul(GOLDEN_RATIO_64)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
