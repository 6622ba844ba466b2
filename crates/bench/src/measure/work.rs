//! The work of one worker.

use crate::base::error::Outcome;

/// The work of one worker.
pub(crate) trait Work {
    /// Returns whether a round is a fixed amount of work, instead of a fixed time.
    fn is_fixed(&self) -> bool {
        false
    }

    /// Prepares a round, while no time is taken.
    fn begin(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// Returns how many more times [`op`](Self::op) may be called in this round.
    #[inline]
    fn left(&self) -> u64 {
        u64::MAX
    }

    /// Performs an operation. Returns the number of units that it counts for.
    fn op(&mut self) -> Outcome<u64>;

    /// Checks the effects of a round, while no time is taken.
    fn end(&mut self) -> Outcome<()>;
}
