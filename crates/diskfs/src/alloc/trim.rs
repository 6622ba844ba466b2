//! Claims of free runs that are to be discarded.
//!
//! A run that is being discarded is claimed, so nobody can get it in the meantime, and given back
//! ([`Groups::unclaim`]) afterwards. Claims are made in an index, which has only runs whose free is
//! durable: no crash gives a discarded block back to its former owner. The blocks that the trees of
//! a group may need are left to them.

use std::ops::Range;

use super::{FreeRuns, Groups};
use crate::btree::{Error, Nodes};

impl Groups {
    /// Claims free runs within `range`, up to `most` blocks in all and each of them of a run of at
    /// least `shortest` blocks: those of one zone, in which the range begins. The caller has
    /// reserved `most` blocks, gives the runs back ([`unclaim`](Self::unclaim)) and continues at
    /// [`FreeRuns::next`].
    ///
    /// Takes leaf locks, and reads a zone that is not loaded from the device, with a group locked.
    ///
    /// # Errors
    /// [`Error`], from that reading.
    pub fn claim_within<N: Nodes>(
        &self,
        nodes: &N,
        range: Range<u64>,
        (shortest, most): (u64, u64),
    ) -> Result<FreeRuns, Error<N::Error>> {
        let nothing = |next: u64| FreeRuns { runs: Vec::new(), next };
        let Some(group) = self.group_of(range.start).and_then(|group| self.at(group)) else {
            return Ok(nothing(range.end));
        };
        if let Err(error) = group.ensure_read(nodes) {
            self.leave_out_damaged(group, error)?;
            return Ok(nothing(range.end.min(group.whole().blocks().end)));
        }
        // Blocks by which the group has grown may not be accounted for yet.
        let accounted = range.start..range.end.min(group.layout().blocks().end);
        if accounted.is_empty() {
            return Ok(nothing(range.end.min(group.whole().blocks().end)));
        }
        let found = group.claim_within(nodes, &accounted, (shortest, most));
        self.shrink_indexes();
        let found = found.or_else(|error| self.leave_out_damaged(group, error).map(|()| None))?;
        Ok(found.unwrap_or_else(|| nothing(accounted.end)))
    }
}
