//! Rebases: a branch goes on from another state, with what it had made of its own.
//!
//! Another branch was given the new contents before. As for an adoption, the decision is
//! on frozen states, and the act sees to it that the branch is still what was looked at.

use crate::branch::registry::close;
use crate::calls::adoption::insert_merge;
use crate::calls::fork::{check_text, go_on, keep, refused};
use crate::calls::pool::next_id;
use crate::disk::format::DEPTH_MAX;
use crate::disk::record::{KEPT, Record, TEMPORARY};
use crate::state::commit::Change;
use crate::{Branch, Error, Pool};

impl Pool {
    /// Gives branch `name` the contents of branch `made`, whose name is free afterwards, and has
    /// the history tell that they have all that `decided` has: the [state](Self::snapshot) of the
    /// branch that `made` was made from. What it had becomes another branch, whose name is
    /// returned: `name@1`, or with the next number that is free; `None` if a branch that can only
    /// be read has it.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::Changed`] if the branch is not what `decided` is any more; [`Error::NoBranch`],
    /// [`Error::InUse`]; [`Error::Refused`] if one of them can only be read, or both are one;
    /// [`Error::Full`] and errors of the device.
    pub fn rebase(
        &self,
        name: &str,
        decided: &Branch,
        made: &str,
    ) -> Result<Option<String>, Error> {
        check_text("", name)?;
        let decided = decided.inner()?.node();
        self.shared.with_room(|| self.rebase_now(name, decided, made))
    }

    fn rebase_now(&self, name: &str, decided: u64, made: &str) -> Result<Option<String>, Error> {
        let mut branches = self.open.lock();
        close(&mut branches, name, 0)?;
        close(&mut branches, made, 0)?;
        let mut state = self.shared.state.lock();
        self.shared.check_room(&mut state)?;
        let (old, new) = (state.table.named(name)?.clone(), state.table.named(made)?.clone());
        if let Some(frozen) = [&old, &new].into_iter().find(|record| record.is_frozen()) {
            return Err(refused(&frozen.name, "it can only be read"));
        }
        if old.id == new.id {
            return Err(refused(made, "it is the branch itself"));
        }
        if new.depth + 2 > DEPTH_MAX {
            return Err(refused(made, "its history is too deep"));
        }
        let is_same =
            |now: &Record| (old.parent, old.root, old.blocks) == (now.id, now.root, now.blocks);
        if !state.table.get(decided).is_some_and(is_same) {
            return Err(Error::Changed(name.to_owned()));
        }
        let kept = keep(&mut state, &old, new.id);
        // The new state stays as a node of its own, for a rollback.
        let (result, next) = (new.id, next_id(&mut state));
        go_on(&mut state, new, next, KEPT);
        state.table.update(next, |record| {
            record.name = name.to_owned();
            (record.marks, record.time) = (old.marks & TEMPORARY, old.time);
            record.limit = old.limit;
        });
        insert_merge(&mut state, (decided, kept.as_deref().unwrap_or(name)), result);
        self.shared.commit(&mut state, Change::default(), || ())?;
        Ok(kept)
    }
}
