//! Adoptions: a branch takes the contents of one that was forked from it.
//!
//! Whether it may is decided on contents, which takes time, and nobody has to wait for it. So the
//! decision is on frozen states, and the act sees to it that the branches are still what was looked
//! at: all places of a frozen node are shared, so a branch that has written anything since has
//! another root.

use std::sync::Arc;

use crate::branch::registry::close;
use crate::calls::fork::{check_text, give_up, go_on, merge_of, refused};
use crate::calls::pool::next_id;
use crate::calls::switch::{Switched, close_but};
use crate::disk::format::DEPTH_MAX;
use crate::disk::record::{KEPT, Record};
use crate::state::commit::{Change, State};
use crate::{Branch, Error, Pool};

/// The reason why two branches can't become one.
const NOTHING_IN_COMMON: &str = "it has no state in common with the other branch";

/// An adoption that is to be decided on. Keeps the states that the decision is about.
#[derive(Debug)]
pub struct Adoption {
    parent: String,
    child: String,
    base: Arc<Branch>,
    now: Arc<Branch>,
}

impl Adoption {
    /// Returns the name of the branch that is to adopt.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.parent
    }

    /// Returns the last state that both branches had in common.
    #[must_use]
    pub fn base(&self) -> &Arc<Branch> {
        &self.base
    }

    /// Returns the state of the parent, which may be the same node as [`base`](Self::base).
    #[must_use]
    pub fn now(&self) -> &Arc<Branch> {
        &self.now
    }

    /// Returns whether the parent has written nothing at all since then.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.base.inner().map(|base| base.node()) == self.now.inner().map(|now| now.node())
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        // Nothing is written, so nothing fails.
        let _ = self.base.close().and(self.now.close());
    }
}

impl Pool {
    /// Opens, for reading, the last state that two branches had in common: one that both come from,
    /// or that was [merged](Self::adopt_merged) into what they come from. Of several, the one that
    /// was made last. Both may be open.
    ///
    /// Blocks for the I/O: reads the root of the map.
    ///
    /// # Errors
    /// [`Error::NoBranch`]; [`Error::Refused`] if they are one, or have no state in common;
    /// [`Error::Damage`] and errors of the device.
    pub fn common(&self, a: &str, b: &str) -> Result<Arc<Branch>, Error> {
        let mut branches = self.open.lock();
        let state = self.shared.state.lock();
        let (one, other) = (state.table.named(a)?, state.table.named(b)?);
        if one.id == other.id {
            return Err(refused(b, "it is the branch itself"));
        }
        let common = state.table.base(one, other).map(|record| record.id);
        drop(state);
        let id = common.ok_or_else(|| refused(b, NOTHING_IN_COMMON))?;
        self.open_node(&mut branches, id)
    }

    /// Opens what has to be compared before `parent` may [adopt](Self::adopt) `child`. Both have to
    /// be closed, and may be opened again meanwhile.
    ///
    /// Blocks for the I/O: two flushes, or none if nothing was written since the last fork.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::InUse`]; [`Error::Refused`] if one of them can only be read,
    /// or if they have no state in common; [`Error::Full`] and errors of the device.
    pub fn adoption(&self, parent: &str, child: &str) -> Result<Adoption, Error> {
        self.shared.with_room(|| self.adoption_now(parent, child, None))
    }

    /// Opens what has to be compared. Only `held` may have the parent open.
    fn adoption_now(
        &self,
        parent: &str,
        child: &str,
        held: Option<&Branch>,
    ) -> Result<Adoption, Error> {
        let mut branches = self.open.lock();
        close_but(&mut branches, parent, held)?;
        close(&mut branches, child, 0)?;
        let base = adopted(&self.shared.state.lock(), parent, child)?.base;
        let now = self.frozen(&branches, parent)?;
        let base = self.open_node(&mut branches, base)?;
        let now = self.open_node(&mut branches, now).inspect_err(|_| base.release())?;
        Ok(Adoption { parent: parent.into(), child: child.into(), base, now })
    }

    /// Gives the parent of an [`Adoption`] the contents of the child, whose name is free
    /// afterwards. All that the parent has written since the [base](Adoption::base) is lost; the
    /// caller has made sure that it is nothing. A [rollback](Self::rollback) of the parent leads to
    /// this moment from then on.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::Changed`] if the parent is not what it was at the decision, or the base is another
    /// one; errors of [`adoption`](Self::adoption).
    pub fn adopt(&self, adoption: &Adoption) -> Result<(), Error> {
        self.shared.with_room(|| self.adopt_now(adoption, None, None)).map(drop)
    }

    /// Adopts as [`adopt`](Self::adopt) does, and has the history tell that the contents have all
    /// that `merged` has, a state of the branch with that name that does not change: what was
    /// merged is [common](Self::common) to its branch and to the parent from then on. It keeps its
    /// space as long as that may be asked for, unless the pool is nearly full.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// Errors of [`adopt`](Self::adopt).
    pub fn adopt_merged(
        &self,
        adoption: &Adoption,
        (merged, name): (&Branch, &str),
    ) -> Result<(), Error> {
        let merged = Some((merged, name));
        self.shared.with_room(|| self.adopt_now(adoption, merged, None)).map(drop)
    }

    /// Opens what has to be compared before the branch that `held` has open may adopt `child`, as
    /// [`adoption`](Self::adoption) does. Nobody writes to `held` during the call.
    ///
    /// # Errors
    /// Errors of [`adoption`](Self::adoption).
    pub fn adoption_held(&self, held: &Branch, child: &str) -> Result<Adoption, Error> {
        self.shared.with_room(|| self.adoption_now(held.opened_as(), child, Some(held)))
    }

    /// Adopts as [`adopt`](Self::adopt) and [`adopt_merged`](Self::adopt_merged) do, with the
    /// branch that `held` has open. Nobody writes to `held` during the call; if that succeeds, its
    /// user [releases](Branch::release) it.
    ///
    /// Blocks for the I/O: four flushes.
    ///
    /// # Errors
    /// Errors of [`adopt`](Self::adopt): then nothing was changed, and `held` goes on.
    pub fn adopt_held(
        &self,
        held: &Branch,
        adoption: &Adoption,
        merged: Option<(&Branch, &str)>,
    ) -> Result<Switched, Error> {
        let adopted = self.shared.with_room(|| self.adopt_now(adoption, merged, Some(held)))?;
        adopted.ok_or(Error::Closed)
    }

    /// Adopts. Only `held` may have the parent open.
    fn adopt_now(
        &self,
        adoption: &Adoption,
        merged: Option<(&Branch, &str)>,
        held: Option<&Branch>,
    ) -> Result<Option<Switched>, Error> {
        let merged = merged.map(|(merged, name)| named_merge(merged, name)).transpose()?;
        let Adoption { parent, child, base, now } = adoption;
        let (base, now) = (base.inner()?.node(), now.inner()?.node());
        let mut branches = self.open.lock();
        close_but(&mut branches, parent, held)?;
        close(&mut branches, child, 0)?;
        let mut state = self.shared.state.lock();
        self.shared.check_room(&mut state)?;
        let Adopted { old, new, base: base_now } = adopted(&state, parent, child)?;
        let is_same =
            |now: &Record| (old.parent, old.root, old.blocks) == (now.id, now.root, now.blocks);
        if base_now != base || !state.table.get(now).is_some_and(is_same) {
            return Err(Error::Changed(parent.clone()));
        }
        give_up(&mut state, old.id);
        // The adopted state stays as a node of its own, for a rollback.
        let (result, next) = (new.id, next_id(&mut state));
        go_on(&mut state, new, next, KEPT);
        state.table.update(next, |record| {
            record.name.clone_from(parent);
            (record.marks, record.time, record.limit) = (0, old.time, old.limit);
        });
        match merged {
            Some(merged) => insert_merge(&mut state, merged, result),
            None => state.table.update(result, |record| record.text.clone_from(child)),
        }
        self.shared.commit(&mut state, Change::default(), || ())?;
        drop(state);
        held.map(|_| self.switched(&mut branches, parent, result)).transpose()
    }
}

/// Returns the node of a state that was merged, and the name of its branch, if it can be noted.
///
/// # Errors
/// [`Error::Text`] and [`Error::Closed`].
fn named_merge<'n>(merged: &Branch, name: &'n str) -> Result<(u64, &'n str), Error> {
    check_text("", name)?;
    Ok((merged.inner()?.node(), name))
}

/// Notes that node `result` has all that a frozen node of the branch `name` has.
pub(super) fn insert_merge(state: &mut State, (merged, name): (u64, &str), result: u64) {
    let Some(merged) = state.table.get(merged).filter(|it| it.is_frozen()).cloned() else { return };
    let (id, text) = (next_id(state), name.to_owned());
    state.table.insert(Record { text, ..merge_of(&merged, id, result) });
    state.table.drop_told_merges(result);
}

/// The parties of an adoption.
struct Adopted {
    old: Record,
    new: Record,
    base: u64,
}

/// Returns the parties of an adoption that is possible.
fn adopted(state: &State, parent: &str, child: &str) -> Result<Adopted, Error> {
    let (old, new) = (state.table.named(parent)?.clone(), state.table.named(child)?.clone());
    if let Some(frozen) = [&old, &new].into_iter().find(|record| record.is_frozen()) {
        return Err(refused(&frozen.name, "it can only be read"));
    }
    if old.id == new.id {
        return Err(refused(child, "it is the parent itself"));
    }
    if new.depth + 2 > DEPTH_MAX {
        return Err(refused(child, "its history is too deep"));
    }
    let base = state.table.base(&old, &new);
    let base = base.ok_or_else(|| refused(child, NOTHING_IN_COMMON))?.id;
    Ok(Adopted { old, new, base })
}

#[cfg(test)]
mod tests;
