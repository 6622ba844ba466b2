//! The runs of blocks that transactions have claimed or freed, and that are not in the tree of free
//! space yet.
//!
//! A claimed run is free in the tree, and pending in the index, as it was before its transaction. A
//! freed one is in use in the tree. One that was claimed and freed since the tree was written stays
//! as it is in the tree: it is pending until the context is durable.

use crate::alloc::changes::in_order;
use crate::alloc::pending::Pending;
use crate::format::BlockRange;

/// Runs that differ from the tree of free space of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayedRuns {
    claims: Pending,
    frees: Pending,
    /// Claimed and freed.
    gone: Pending,
}

/// Runs to be entered into the tree of free space, each kind in order and without overlaps.
#[derive(Debug, Default)]
pub(crate) struct RunsToWrite {
    pub(crate) claims: Vec<BlockRange>,
    /// Freed blocks of files, and of metadata.
    pub(crate) frees: Vec<BlockRange>,
    pub(crate) destroyed: Vec<BlockRange>,
    /// Runs that need no change, and are available when the context is durable.
    pub(crate) gone: Vec<BlockRange>,
}

impl DelayedRuns {
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.frees.is_empty() && self.gone.is_empty()
    }

    /// Returns whether some of these blocks were freed already.
    pub(crate) fn has_freed(&self, run: BlockRange) -> bool {
        self.frees.has_of(run) || self.gone.has_of(run)
    }

    /// Returns whether some of these blocks were claimed already.
    pub(crate) fn has_claimed(&self, run: BlockRange) -> bool {
        self.claims.has_of(run) || self.gone.has_of(run)
    }

    /// Returns the parts of a run that are not claimed here.
    pub(crate) fn in_tree(&self, run: BlockRange) -> Vec<BlockRange> {
        let mut parts = Vec::new();
        self.claims.without(run.start, run.end(), |from, to| {
            parts.push(BlockRange::new(from, (to - from) as u32));
        });
        parts
    }

    pub(crate) fn claim(&mut self, run: BlockRange) {
        self.claims.add(run);
    }

    /// Notes a freed run, of which [nothing is free](Self::has_freed).
    pub(crate) fn free(&mut self, run: BlockRange) {
        self.cancel(run).into_iter().for_each(|part| self.frees.add(part));
    }

    /// Takes the claims of a freed run back. Returns the rest of it, which the tree has.
    fn cancel(&mut self, run: BlockRange) -> Vec<BlockRange> {
        let parts = self.in_tree(run);
        let mut from = run.start;
        for part in parts.iter().copied().chain([BlockRange::new(run.end(), 0)]) {
            if from < part.start {
                let claimed = BlockRange::new(from, (part.start - from) as u32);
                self.claims.remove(claimed);
                self.gone.add(claimed);
            }
            from = part.end();
        }
        parts
    }

    /// Forgets the freed runs: they stay in use on disk. Returns how many blocks they have.
    pub(crate) fn forget_frees(&mut self) -> u64 {
        std::mem::take(&mut self.frees).runs().map(|(_, blocks)| blocks).sum()
    }

    /// Returns these runs together with those of a transaction.
    ///
    /// # Errors
    /// A run that is freed twice.
    pub(crate) fn with(
        &self,
        claims: Vec<BlockRange>,
        frees: Vec<BlockRange>,
        destroyed: Vec<BlockRange>,
    ) -> Result<RunsToWrite, BlockRange> {
        if self.is_empty() {
            return Ok(RunsToWrite { claims, frees, destroyed, gone: Vec::new() });
        }
        let mut all = self.clone();
        let frees: Vec<_> = frees.into_iter().flat_map(|run| all.cancel(run)).collect();
        let destroyed = destroyed.into_iter().flat_map(|run| all.cancel(run)).collect();
        let merged = |noted: &Pending, runs: Vec<BlockRange>| {
            let noted = noted.runs().map(|(start, blocks)| BlockRange::new(start, blocks as u32));
            let merged = in_order(noted.chain(runs).collect(), |_| Some(0))?;
            Ok(merged.into_iter().map(|(_, run)| run).collect())
        };
        Ok(RunsToWrite {
            claims: merged(&all.claims, claims)?,
            frees: merged(&all.frees, frees)?,
            destroyed,
            gone: merged(&all.gone, Vec::new())?,
        })
    }
}

#[cfg(test)]
impl DelayedRuns {
    /// Returns the claims, the frees, and what is both.
    pub(crate) fn all(&self) -> [Vec<BlockRange>; 3] {
        [&self.claims, &self.frees, &self.gone].map(|runs| {
            runs.runs().map(|(start, blocks)| BlockRange::new(start, blocks as u32)).collect()
        })
    }
}

#[cfg(test)]
mod tests;
