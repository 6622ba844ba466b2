//! The work of one worker.

use crate::base::error::Outcome;

/// What one worker does.
pub(crate) trait Work {
    /// Whether a round is a fixed amount of work, instead of a fixed time.
    fn is_fixed(&self) -> bool {
        false
    }

    /// Before a round, while no time is taken.
    fn begin(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// How many more times [`op`](Self::op) may be called in this round.
    #[inline]
    fn left(&self) -> u64 {
        u64::MAX
    }

    /// One operation. Returns what it counts for, in the workload's unit.
    fn op(&mut self) -> Outcome<u64>;

    /// After a round, while no time is taken: checks what the file system did.
    fn end(&mut self) -> Outcome<()>;
}
