//! The work of one worker.

use crate::base::error::Outcome;

/// The work of one worker.
pub trait Work {
    /// Returns whether a round is a fixed amount of work, instead of a fixed time.
    fn is_fixed(&self) -> bool {
        false
    }

    /// Prepares a round, while no time is taken.
    ///
    /// # Errors
    /// Returns a fault if that fails.
    fn begin(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// Returns how many more times [`op`](Self::op) may be called in this round.
    #[inline]
    fn left(&self) -> u64 {
        u64::MAX
    }

    /// Performs an operation. Returns the number of units that it counts for.
    ///
    /// # Errors
    /// Returns a fault if a call fails, or has visibly the wrong effect.
    fn op(&mut self) -> Outcome<u64>;

    /// Checks the effects of a round, while no time is taken.
    ///
    /// # Errors
    /// Returns a fault if the check fails.
    fn end(&mut self) -> Outcome<()>;
}
