//! Forking, deleting, renaming branches, and rolling them back.
//!
//! A fork of a branch freezes its node of the history: the frozen node keeps the map, and both the
//! parent and the child continue as new nodes below it, one deeper. From then on each place of the
//! frozen node has a birth that is not their own. A parent that has written nothing since its last
//! fork needs no new frozen node: the child becomes another child of the former one.
//!
//! The writers of the parent wait while the dirty nodes of its map are copied in memory, not for
//! the I/O. One commit makes the fork durable with everything that the parent had written before:
//! two flushes.

use crate::branch::flush::{Capture, Captured, NextNode};
use crate::commit::{Change, Shared, State};
use crate::format::DEPTH_MAX;
use crate::pool::next_id;
use crate::record::{FROZEN, LogArea, Record, ZOMBIE};
use crate::registry::close;
use crate::{Error, Pool};

/// A fork that was asked for.
#[derive(Clone, Copy)]
struct Fork<'n> {
    parent: &'n str,
    name: &'n str,
    read_only: bool,
}

impl Pool {
    /// Makes branch `name` with the contents that `parent` has now: all writes that have returned
    /// are in it, whether they were flushed or not. With `read_only` it can't be written. The
    /// parent may be open. A fork is there whole after a power cut, or not at all.
    ///
    /// Blocks for the I/O: two flushes. Writers of the parent wait for a part of the call, its
    /// flushes for all of it.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::Name`], [`Error::Exists`], [`Error::Refused`] if the history
    /// is too deep, [`Error::Full`] and errors of the device.
    pub fn fork(&self, parent: &str, name: &str, read_only: bool) -> Result<(), Error> {
        self.fork_with(parent, name, read_only, || ())
    }

    /// Makes a branch as [`fork`](Self::fork) does, and calls `captured` as soon as the contents
    /// are those of one moment, before the I/O: what the parent writes from then on is not in the
    /// child. `captured` is not called if that moment is not reached. So whoever has stopped the
    /// writers of the parent need not hold them up any longer. `captured` must not use the pool or
    /// its branches.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// Errors of [`fork`](Self::fork).
    pub fn fork_with(
        &self,
        parent: &str,
        name: &str,
        read_only: bool,
        captured: impl FnOnce(),
    ) -> Result<(), Error> {
        let fork = Fork { parent, name, read_only };
        let branches = self.open.lock();
        let open = branches.get(parent).cloned();
        match open.filter(|inner| !inner.is_read_only()) {
            Some(inner) => {
                inner.with_capture(|capture| self.fork_from(fork, Some(capture), captured))
            }
            None => self.fork_from(fork, None, captured),
        }
    }

    fn fork_from(
        &self,
        Fork { parent, name, read_only }: Fork<'_>,
        capture: Option<&mut Capture<'_>>,
        captured: impl FnOnce(),
    ) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        state.table.check_new(name)?;
        self.shared.check_room(&mut state)?;
        let record = state.table.named(parent)?.clone();
        if record.depth + 2 > DEPTH_MAX {
            return Err(refused(parent, "its history is too deep"));
        }
        if record.is_frozen() {
            insert_child(&mut state, &record, name, read_only);
            captured();
            return self.shared.commit_fork(&mut state);
        }
        let parent_root = state.table.get(record.parent).map(|parent| parent.root);
        let next = NextNode { id: next_id(&mut state), depth: record.depth + 1, parent_root };
        let Some(capture) = capture else {
            let is_next = parent_root != Some(record.root);
            freeze(&mut state, record, is_next, next, name, read_only);
            captured();
            return self.shared.commit_fork(&mut state);
        };
        // Reservations must be there in full: from now on no block is the parent's own.
        let mut captured_parent = capture.take(&mut state, Some(next))?;
        if captured_parent.is_none() && self.shared.give_up_spares(&mut state)? {
            captured_parent = capture.take(&mut state, Some(next))?;
        }
        let Captured { mut change, record, is_next, .. } = captured_parent.ok_or(Error::Full)?;
        self.shared.stock(&mut state, &mut change);
        captured();
        let generation = state.generation + 1;
        let area = record.log.map(|area| LogArea { sequence: generation, ..area });
        freeze(&mut state, Record { log: area, ..record }, is_next, next, name, read_only);
        self.shared.commit(&mut state, change, || capture.drain())?;
        capture.durable(area);
        Ok(())
    }

    /// Deletes a branch. Its space becomes free by [`reap`](Self::reap). A branch that others were
    /// forked from loses its name; they don't change.
    ///
    /// Blocks for the I/O: two flushes. Works in a full pool.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::InUse`] and errors of the device.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let mut branches = self.open.lock();
        close(&mut branches, name, 0)?;
        let mut state = self.shared.state.lock();
        let id = state.table.named(name)?.id;
        self.shared.alive()?;
        let has_kids = state.table.kids(id) > 0;
        state.table.update(id, |record| {
            record.name.clear();
            record.flags |= if has_kids { 0 } else { FROZEN | ZOMBIE };
        });
        self.shared.commit(&mut state, Change::default(), || ())
    }

    /// Renames a branch.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::InUse`], [`Error::Name`], [`Error::Exists`] and errors of the
    /// device.
    pub fn rename(&self, name: &str, to: &str) -> Result<(), Error> {
        let mut branches = self.open.lock();
        close(&mut branches, name, 0)?;
        let mut state = self.shared.state.lock();
        let id = state.table.named(name)?.id;
        state.table.check_new(to)?;
        self.shared.alive()?;
        state.table.update(id, |record| record.name = to.into());
        self.shared.commit(&mut state, Change::default(), || ())
    }

    /// Gives a branch the contents back that it had at its last fork, as parent or as child. If all
    /// others that had this state are gone, [`reap`](Self::reap) may have dropped it; a read-only
    /// branch keeps it.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::InUse`], [`Error::Refused`] if it can only be read, was never
    /// forked, or that state is gone, [`Error::Full`] and errors of the device.
    pub fn rollback(&self, name: &str) -> Result<(), Error> {
        let mut branches = self.open.lock();
        close(&mut branches, name, 0)?;
        let mut state = self.shared.state.lock();
        let record = state.table.named(name)?.clone();
        self.shared.check_room(&mut state)?;
        if record.is_frozen() {
            return Err(refused(name, "it can only be read"));
        }
        let parent = state.table.base_of(&record)?.clone();
        state.table.update(record.id, |record| {
            record.name.clear();
            record.flags |= FROZEN | ZOMBIE;
        });
        insert_child(&mut state, &parent, name, false);
        self.shared.commit(&mut state, Change::default(), || ())
    }

    /// Gives a branch the contents of one that was forked from it, whose name is free afterwards.
    /// All that the parent has written since that fork is lost; the caller has made sure that it is
    /// nothing. Both have to be closed.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::InUse`]; [`Error::Refused`] if one of them can only be read,
    /// or if the state that the parent had at its last fork is none that the child comes from.
    /// Errors of the device.
    pub fn adopt(&self, parent: &str, child: &str) -> Result<(), Error> {
        let mut branches = self.open.lock();
        close(&mut branches, parent, 0)?;
        close(&mut branches, child, 0)?;
        let mut state = self.shared.state.lock();
        self.shared.alive()?;
        let (old, new) = (state.table.named(parent)?.clone(), state.table.named(child)?.clone());
        if let Some(frozen) = [&old, &new].into_iter().find(|record| record.is_frozen()) {
            return Err(refused(&frozen.name, "it can only be read"));
        }
        let base = state.table.base_of(&old)?.id;
        let mut line =
            std::iter::successors(state.table.get(new.parent), |at| state.table.get(at.parent));
        if old.id == new.id || !line.any(|node| node.id == base) {
            return Err(refused(child, "it was not forked from the parent's last fork"));
        }
        state.table.update(old.id, |record| {
            record.name.clear();
            record.flags |= FROZEN | ZOMBIE;
        });
        state.table.update(new.id, |record| record.name = parent.into());
        self.shared.commit(&mut state, Change::default(), || ())
    }
}

impl Shared {
    /// Commits a fork whose parent is not open.
    fn commit_fork(&self, state: &mut State) -> Result<(), Error> {
        let mut change = Change::default();
        self.stock(state, &mut change);
        self.commit(state, change, || ())
    }
}

fn refused(name: &str, why: &'static str) -> Error {
    Error::Refused { name: name.into(), why }
}

/// Adds a branch with the contents of a frozen node.
fn insert_child(state: &mut State, base: &Record, name: &str, read_only: bool) {
    let id = next_id(state);
    state.table.insert(child(base, id, name, read_only));
}

fn child(base: &Record, id: u64, name: &str, read_only: bool) -> Record {
    Record {
        id,
        parent: base.id,
        depth: base.depth + 1,
        flags: if read_only { FROZEN } else { 0 },
        root: base.root,
        blocks: base.blocks,
        log: None,
        dead: 0,
        dead_count: 0,
        own: 0,
        origin: id,
        name: name.into(),
    }
}

/// Adds branch `name` with the contents of `record`. With `is_next` the node of `record` is frozen,
/// and its branch goes on as node `next`.
fn freeze(
    state: &mut State,
    record: Record,
    is_next: bool,
    next: NextNode,
    name: &str,
    read_only: bool,
) {
    if let Some(parent) = state.table.get(record.parent).filter(|_| !is_next).cloned() {
        state.table.update(record.id, |old| *old = record);
        return insert_child(state, &parent, name, read_only);
    }
    let frozen =
        Record { log: None, name: String::new(), flags: record.flags | FROZEN, ..record.clone() };
    state.table.update(record.id, |old| *old = frozen.clone());
    let Record { log, origin, .. } = record;
    state.table.insert(Record { log, origin, ..child(&frozen, next.id, &record.name, false) });
    insert_child(state, &frozen, name, read_only);
}
