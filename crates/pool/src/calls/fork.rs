//! Forking, deleting, renaming branches, and rolling them back.
//!
//! A fork of a branch freezes its node of the history: the frozen node keeps the map, and both the
//! parent and the child continue as new nodes below it, one deeper. From then on each place of the
//! frozen node has a birth that is not their own. A parent that has written nothing since its last
//! fork needs no new frozen node: the child becomes another child of the former one.
//!
//! A *snapshot* is a fork without a child: a frozen node without a name, for as long as somebody
//! has it open. Nothing is left of it: the reaper merges it into the node that went on.
//!
//! The writers of the parent wait while the dirty nodes of its map are copied in memory, not for
//! the I/O. One commit makes the fork durable with everything that the parent had written before:
//! two flushes.

use std::sync::Arc;

use crate::branch::flush::{Capture, Captured, NextNode};
use crate::branch::registry::{Branches, close};
use crate::calls::pool::next_id;
use crate::calls::switch::{Switched, close_but};
use crate::disk::format::{DEPTH_MAX, NAME_MAX};
use crate::disk::record::{self, FROZEN, LogArea, PASSING, Record, TEMPORARY, ZOMBIE};
use crate::state::branch_table::Table;
use crate::state::commit::{Change, Shared, State};
use crate::{Branch, Error, Pool};

/// The kind of a new branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A branch that can be written.
    #[default]
    Writable,
    /// A branch that can only be read.
    ReadOnly,
    /// A branch that can be written, and lives no longer than the pool is open: whoever opens the
    /// pool next deletes it. A new name makes it a lasting one.
    Temporary,
}

/// The reason why nothing is forked from a state.
pub(crate) const TOO_DEEP: &str = "its history is too deep";

/// A branch that is to be made.
#[derive(Clone, Copy)]
struct Child<'n> {
    name: &'n str,
    kind: Kind,
    text: &'n str,
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
        let kind = if read_only { Kind::ReadOnly } else { Kind::Writable };
        self.fork_with(parent, name, kind, || ())
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
        kind: Kind,
        captured: impl FnOnce(),
    ) -> Result<(), Error> {
        let mut captured = Some(captured);
        self.shared.with_room(|| {
            let branches = self.open.lock();
            let captured = || captured.take().map_or((), |captured| captured());
            let child = Child { name, kind, text: "" };
            self.freeze(&branches, parent, Some(child), captured).map(drop)
        })
    }

    /// Makes a *checkpoint* of a branch: a branch that can only be read, with what `branch` has
    /// now, and with a text of one line. Returns its name, `branch@1` or with the number after the
    /// greatest one in use. Calls `captured` as [`fork_with`](Self::fork_with) does.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// Errors of [`fork`](Self::fork), and [`Error::Text`].
    pub fn checkpoint(
        &self,
        branch: &str,
        text: &str,
        captured: impl FnOnce(),
    ) -> Result<String, Error> {
        let mut captured = Some(captured);
        self.shared.with_room(|| {
            let branches = self.open.lock();
            let name = free_name(&self.shared.state.lock().table, branch);
            check_text(&name, text)?;
            let child = Child { name: &name, kind: Kind::ReadOnly, text };
            let captured = || captured.take().map_or((), |captured| captured());
            self.freeze(&branches, branch, Some(child), captured)?;
            Ok(name)
        })
    }

    /// Opens, for reading, what a branch has now: all writes that have returned, whether they were
    /// flushed or not. It does not change, has no name, and is gone when the handle and the branch
    /// are. The branch may be open. Calls `captured` as [`fork_with`](Self::fork_with) does.
    ///
    /// Blocks for the I/O: two flushes, or none if nothing was written since the last fork.
    ///
    /// # Errors
    /// Errors of [`fork`](Self::fork).
    pub fn snapshot(&self, name: &str, captured: impl FnOnce()) -> Result<Arc<Branch>, Error> {
        let mut captured = Some(captured);
        self.shared.with_room(|| {
            let mut branches = self.open.lock();
            let captured = || captured.take().map_or((), |captured| captured());
            let node = self.freeze(&branches, name, None, captured)?;
            self.open_node(&mut branches, node)
        })
    }

    /// Freezes what a branch has now, for a child if there is one. Returns the frozen node.
    pub(crate) fn frozen(&self, branches: &Branches<'_>, name: &str) -> Result<u64, Error> {
        self.freeze(branches, name, None, || ())
    }

    fn freeze(
        &self,
        branches: &Branches<'_>,
        parent: &str,
        child: Option<Child<'_>>,
        captured: impl FnOnce(),
    ) -> Result<u64, Error> {
        let open = branches.get(parent).cloned();
        match open.filter(|inner| !inner.is_read_only()) {
            Some(inner) => {
                inner.with_capture(|capture| self.fork_from(parent, child, Some(capture), captured))
            }
            None => self.fork_from(parent, child, None, captured),
        }
    }

    /// Forks a branch, and returns the node that was frozen.
    fn fork_from(
        &self,
        parent: &str,
        child: Option<Child<'_>>,
        capture: Option<&mut Capture<'_>>,
        captured: impl FnOnce(),
    ) -> Result<u64, Error> {
        let mut state = self.shared.state.lock();
        if let Some(Child { name, .. }) = child {
            state.table.check_new(name)?;
        }
        let record = state.table.named(parent)?.clone();
        // A branch that has grown since then is another state.
        let former = state.table.get(record.parent).filter(|it| it.blocks == record.blocks);
        let parent_root = former.map(|parent| parent.root);
        let is_next = parent_root != Some(record.root);
        if child.is_none() && capture.is_none() && (record.is_frozen() || !is_next) {
            captured();
            return Ok(if record.is_frozen() { record.id } else { record.parent });
        }
        self.shared.check_room(&mut state)?;
        if record.depth + 2 > DEPTH_MAX {
            return Err(refused(parent, TOO_DEEP));
        }
        if let (true, Some(child)) = (record.is_frozen(), child) {
            insert_child(&mut state, &record, child);
            captured();
            self.shared.commit_fork(&mut state)?;
            return Ok(record.id);
        }
        let next = NextNode { id: next_id(&mut state), depth: record.depth + 1, parent_root };
        let Some(capture) = capture else {
            let frozen = freeze(&mut state, record, is_next, next, child);
            captured();
            self.shared.commit_fork(&mut state)?;
            return Ok(frozen);
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
        let frozen = freeze(&mut state, Record { log: area, ..record }, is_next, next, child);
        self.shared.commit(&mut state, change, || capture.drain())?;
        capture.durable(area);
        Ok(frozen)
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
    /// [`Error::NoBranch`], [`Error::InUse`], [`Error::Name`], [`Error::Exists`]; [`Error::Text`]
    /// if the name leaves too little room for the text; and errors of the device.
    pub fn rename(&self, name: &str, to: &str) -> Result<(), Error> {
        let mut branches = self.open.lock();
        close(&mut branches, name, 0)?;
        let mut state = self.shared.state.lock();
        let id = state.table.named(name)?.id;
        state.table.check_new(to)?;
        check_text(to, &state.table.named(name)?.text)?;
        self.shared.alive()?;
        state.table.update(id, |record| {
            record.name = to.into();
            record.marks &= !TEMPORARY;
        });
        self.shared.commit(&mut state, Change::default(), || ())
    }

    /// Gives a branch the contents back that it had at its last fork, as parent or as child, or at
    /// its last [adoption](Self::adopt). If all others that had this state are gone,
    /// [`reap`](Self::reap) may have dropped it; a read-only branch keeps it.
    ///
    /// The contents until now become another branch, whose name is returned: `name@1`, or
    /// with the next number that is free. `None` if it has written nothing since then, or
    /// since a checkpoint.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::InUse`], [`Error::Refused`] if it can only be read, was never
    /// forked, or that state is gone, [`Error::Full`] and errors of the device.
    pub fn rollback(&self, name: &str) -> Result<Option<String>, Error> {
        self.shared.with_room(|| self.roll_back(name, None, None)).map(|(kept, _)| kept)
    }

    /// Gives a branch the contents of one that can only be read, as of a
    /// [checkpoint](Self::checkpoint), and otherwise does what [`rollback`](Self::rollback) does.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// Errors of [`rollback`](Self::rollback); [`Error::Refused`] if `to` can be written.
    pub fn rollback_to(&self, name: &str, to: &str) -> Result<Option<String>, Error> {
        self.shared.with_room(|| self.roll_back(name, Some(to), None)).map(|(kept, _)| kept)
    }

    /// Rolls a branch back, which only `held` may have open.
    pub(crate) fn roll_back(
        &self,
        name: &str,
        to: Option<&str>,
        held: Option<&Branch>,
    ) -> Result<(Option<String>, Option<Switched>), Error> {
        let mut branches = self.open.lock();
        close_but(&mut branches, name, held)?;
        let mut state = self.shared.state.lock();
        let record = state.table.named(name)?.clone();
        self.shared.check_room(&mut state)?;
        if record.is_frozen() {
            return Err(refused(name, "it can only be read"));
        }
        let base = match to {
            Some(to) => state.table.named(to)?.clone(),
            None => state.table.base_of(&record)?.clone(),
        };
        if !base.is_frozen() {
            let why = "it can be written, and a rollback leads to a branch that can only be read";
            return Err(refused(&base.name, why));
        }
        if base.depth + 2 > DEPTH_MAX {
            return Err(refused(&base.name, TOO_DEEP));
        }
        let kept = keep(&mut state, &record, base.id);
        let kind = if record.has(TEMPORARY) { Kind::Temporary } else { Kind::Writable };
        let id = insert_child(&mut state, &base, Child { name, kind, text: "" });
        // The branch is the same one.
        state.table.update(id, |now| (now.time, now.limit) = (record.time, record.limit));
        self.shared.commit(&mut state, Change::default(), || ())?;
        drop(state);
        let switched = held.map(|_| self.switched(&mut branches, name, base.id)).transpose()?;
        Ok((kept, switched))
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

/// Checks that a branch can have a text.
///
/// # Errors
/// [`Error::Text`].
pub(crate) fn check_text(name: &str, text: &str) -> Result<(), Error> {
    let max = record::text_max(name);
    if text.len() <= max && !text.contains(char::is_control) {
        return Ok(());
    }
    Err(Error::Text { name: name.into(), text: text.into(), max })
}

pub(crate) fn refused(name: &str, why: &'static str) -> Error {
    Error::Refused { name: name.into(), why }
}

/// Takes the name off a branch whose contents become others. What it had is another branch then,
/// whose name is returned, unless node `base` or a branch that can only be read has it.
pub(super) fn keep(state: &mut State, record: &Record, base: u64) -> Option<String> {
    let is_there = |other: &Record| {
        let is_kept = other.id == base || other.is_frozen() && !other.name.is_empty();
        is_kept && (other.root, other.blocks) == (record.root, record.blocks)
    };
    let is_lost = !state.table.records().any(is_there);
    let kept = is_lost.then(|| free_name(&state.table, &record.name));
    match kept.clone() {
        Some(name) => state.table.update(record.id, |record| record.name = name),
        None => give_up(state, record.id),
    }
    kept
}

/// Gives up a node without children.
pub(crate) fn give_up(state: &mut State, id: u64) {
    state.table.update(id, |record| {
        record.name.clear();
        record.flags |= FROZEN | ZOMBIE;
    });
}

/// Returns a name that no branch has, for a checkpoint of branch `name`, or for what it had before
/// a rollback.
pub(crate) fn free_name(table: &Table, name: &str) -> String {
    let numbered = |number: u64| {
        let number = format!("@{number}");
        let end = name.floor_char_boundary(NAME_MAX - number.len());
        format!("{}{number}", &name[..end])
    };
    let number_of = |other: &Record| -> Option<u64> {
        let digits = other.name.strip_prefix(name)?.strip_prefix('@')?;
        digits.parse::<u32>().ok().map(u64::from)
    };
    let mut number = 1 + table.records().filter_map(number_of).max().unwrap_or_default();
    while table.find(&numbered(number)).is_some() {
        number += 1;
    }
    numbered(number)
}

/// Adds a branch with the contents of a frozen node, which is one that was forked from then on.
/// Returns the id.
fn insert_child(state: &mut State, base: &Record, Child { name, kind, text }: Child<'_>) -> u64 {
    if base.has(PASSING) {
        state.table.update(base.id, |base| base.marks &= !PASSING);
    }
    let id = next_id(state);
    let flags = if kind == Kind::ReadOnly { FROZEN } else { 0 };
    let marks = if kind == Kind::Temporary { TEMPORARY } else { 0 };
    let text = text.to_owned();
    state.table.insert(Record { flags, marks, text, ..child(base, id, name) });
    id
}

/// Returns the record of a merge of a frozen node, of which node `merged` came.
pub(crate) fn merge_of(state: &Record, id: u64, merged: u64) -> Record {
    Record { flags: FROZEN, merged, ..child(state, id, "") }
}

pub(crate) fn child(base: &Record, id: u64, name: &str) -> Record {
    Record {
        id,
        parent: base.id,
        depth: base.depth + 1,
        flags: 0,
        root: base.root,
        blocks: base.blocks,
        log: None,
        dead: 0,
        dead_count: 0,
        own: 0,
        origin: id,
        marks: 0,
        time: record::now(),
        merged: 0,
        sent: 0,
        limit: 0,
        name: name.into(),
        text: String::new(),
    }
}

/// Freezes the contents of `record`, and adds the child that has them, if there is one. With
/// `is_next` the node of `record` is frozen, and its branch goes on as node `next`. Returns the
/// frozen node.
fn freeze(
    state: &mut State,
    record: Record,
    is_next: bool,
    next: NextNode,
    child: Option<Child<'_>>,
) -> u64 {
    let parent = state.table.get(record.parent).filter(|_| !is_next).cloned();
    let frozen = match parent {
        Some(parent) => {
            state.table.update(record.id, |old| *old = record);
            parent
        }
        None => go_on(state, record, next.id, if child.is_none() { PASSING } else { 0 }),
    };
    if let Some(child) = child {
        insert_child(state, &frozen, child);
    }
    frozen.id
}

/// Freezes the node of a branch, which goes on below it as node `next`. Returns the frozen node,
/// which has `marks`.
pub(crate) fn go_on(state: &mut State, record: Record, next: u64, marks: u32) -> Record {
    let flags = record.flags | FROZEN;
    let time = record::now();
    let frozen = Record { log: None, name: String::new(), flags, marks, time, ..record.clone() };
    state.table.update(record.id, |old| *old = frozen.clone());
    let Record { log, origin, marks, time, limit, .. } = record;
    let next = child(&frozen, next, &record.name);
    state.table.insert(Record { log, origin, marks, time, limit, ..next });
    frozen
}
