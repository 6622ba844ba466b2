//! How much a branch may have for itself. See [`crate::state::limit`].

use crate::calls::fork::refused;
use crate::disk::format::PLACE_BYTES;
use crate::state::commit::Change;
use crate::{Error, Pool};

/// The least limit of a branch, in bytes: its log and what is kept for removals have to fit.
pub const LIMIT_MIN: u64 = 16 << 20;

impl Pool {
    /// Limits how much a branch may have for itself, in bytes rounded down to blocks of 4096;
    /// `None` ends that. What the branch has written since it was forked counts, its checkpoints
    /// included, until it gives it up: blocks that it shares with what it was forked from do not. A
    /// rollback, an adoption and a rebase begin the count anew. Once it is at the limit, a volume
    /// in it refuses with `EDQUOT` what needs more space; other branches notice nothing. A branch
    /// that has more already loses nothing.
    ///
    /// The limit stays with the name of the branch. If the branch that it was forked from is
    /// deleted, and nothing else has that one's blocks, it has these as well, and the limit rises
    /// by as much.
    ///
    /// Blocks for the I/O: two flushes. The branch may be open.
    ///
    /// # Errors
    /// [`Error::NoBranch`]; [`Error::Refused`] if the branch can only be read; [`Error::Size`] for
    /// a limit below [`LIMIT_MIN`]; errors of the device.
    pub fn set_limit(&self, name: &str, limit: Option<u64>) -> Result<(), Error> {
        if limit.is_some_and(|bytes| bytes < LIMIT_MIN) {
            return Err(Error::Size("the limit of a branch is at least 16 MiB"));
        }
        let places = limit.map_or(0, |bytes| bytes / PLACE_BYTES as u64);
        let branches = self.open.lock();
        let mut state = self.shared.state.lock();
        let record = state.table.named(name)?.clone();
        self.shared.alive()?;
        if record.is_frozen() {
            return Err(refused(name, "it can only be read"));
        }
        if record.limit != places {
            state.table.update(record.id, |record| record.limit = places);
            self.shared.commit(&mut state, Change::default(), || ())?;
        }
        if let (Some(open), Some(record)) = (branches.get(name), state.table.get(record.id)) {
            open.limit.load(&state.table, record);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
