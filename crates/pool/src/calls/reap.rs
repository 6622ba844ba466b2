//! Freeing the space of branches that were deleted.
//!
//! A deleted branch is a *zombie*. A step frees some of the places that only it had, and commits;
//! after the last one the node is gone. A frozen node without a name goes the same way when it has
//! no children any more. With a single child it is *merged* into it: the places that the child
//! does not have any more (its dead list) become free if the frozen node wrote them; the others,
//! and the node's own dead list, become the child's dead list. No map changes by that.
//!
//! The state at an adoption is kept for its only child, a branch that may be rolled back to it,
//! unless the pool is nearly full. So is a state that was merged, for the next merge. When all that
//! came of such a state is gone, its merges are said to be of the node before it: that is in the
//! results as well.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::branch::registry::{Branches, key_of_node};
use crate::calls::fork::merge_of;
use crate::calls::pool::next_id;
use crate::disk::format::{Entry, FANOUT};
use crate::disk::record::{LIMIT_MAX, MERGED, PASSING, Record, ZOMBIE};
use crate::space::bitmaps;
use crate::state::branch_table::Fate;
use crate::state::commit::{Change, Reaper, Shared, State};
use crate::state::dead_list::{self, DeadList};
use crate::state::map::{self, Map};
use crate::{Error, Pool};

/// The pool is nearly full if this part of it is free, or less.
const LOW_PART: u64 = 16;

/// The places that a step frees for a call that finds the pool full: 4 MiB.
const ROOM_PLACES: u64 = 1024;

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// The space that has become free, in bytes.
    pub freed: u64,
    /// Whether another step may free more.
    pub more: bool,
}

/// The next thing to be done.
enum Job {
    /// Free the places of a node without children.
    Prune(Record),
    /// Merge a frozen node into its only child.
    Merge(Record, Record),
    /// Have the records of merges of a node say the node before it.
    Lift(Record),
    /// Forget the merges of a node.
    Forget(Record),
}

impl Job {
    fn node(&self) -> &Record {
        match self {
            Self::Prune(node) | Self::Merge(node, _) | Self::Lift(node) | Self::Forget(node) => {
                node
            }
        }
    }
}

impl Shared {
    /// Does a step of the reaper for a call that finds the pool full. Returns whether there may be
    /// more room. No lock of a branch is held, nor that of the open branches.
    ///
    /// # Errors
    /// [`Error::Failed`].
    fn make_room(&self) -> Result<bool, Error> {
        self.reaper.get().map_or(Ok(false), |Reaper(step)| step())
    }

    /// Repeats a call as long as it finds the pool full and there is something to reap.
    ///
    /// # Errors
    /// Errors of the call.
    pub(crate) fn with_room<T>(
        &self,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match call() {
                Err(Error::Full) if self.make_room()? => {}
                result => return result,
            }
        }
    }
}

impl Pool {
    /// Lets calls that find the pool full do steps of the reaper, as long as the pool is open.
    pub(crate) fn reap_for_room(&self) {
        let (shared, open) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.open));
        let step = move || {
            let both = shared.upgrade().zip(open.upgrade());
            let Some((shared, open)) = both else { return Ok(false) };
            let pool = Self { shared, open };
            let reaped = pool.reap(ROOM_PLACES);
            pool.shared.alive()?;
            Ok(match reaped {
                Ok(Reaped { freed, more }) => freed > 0 || more,
                // A node that can't be read is passed over.
                Err(error) => error != Error::Full,
            })
        };
        let _ = self.shared.reaper.set(Reaper(Box::new(step)));
    }

    /// Frees space of deleted branches: about `places` places of 4096 bytes, or merges one node of
    /// the history into its child, which takes time and memory (8 bytes) for each place that the
    /// child has replaced. To be called until nothing is [left](Reaped::more).
    ///
    /// A node that can't be read keeps its space; later calls pass over it, until the pool is
    /// opened again.
    ///
    /// Blocks for the I/O: two flushes. Opening and forking branches waits for it.
    ///
    /// # Errors
    /// Errors of the device and [`Error::Damage`]: of one node, unless the pool has
    /// [failed](Error::Failed).
    pub fn reap(&self, places: u64) -> Result<Reaped, Error> {
        self.shared.alive()?;
        let mut branches = self.open.lock();
        let mut state = self.shared.state.lock();
        let job = self.next_job(&state, &branches);
        let Some(job) = job else { return Ok(Reaped::default()) };
        let id = job.node().id;
        // Of a handle that was dropped.
        branches.remove(&key_of_node(id));
        let freed = match job {
            Job::Prune(record) => self.prune(&mut state, record, places),
            Job::Merge(node, child) => self.merge(&mut state, &branches, node, child),
            Job::Lift(node) => self.lift(&mut state, &node),
            Job::Forget(node) => self.forget(&mut state, &node),
        };
        let freed = freed.inspect_err(|error| {
            if *error != Error::Full {
                state.table.damage(id, error.clone());
            }
        })?;
        let more = self.next_job(&state, &branches).is_some();
        Ok(Reaped { freed: freed * crate::disk::format::PLACE_BYTES as u64, more })
    }

    fn next_job(&self, state: &State, branches: &Branches<'_>) -> Option<Job> {
        let table = &state.table;
        let is_open = |record: &Record| {
            let open = branches.get(&key_of_node(record.id));
            open.is_some_and(|inner| inner.handles.load(Ordering::Acquire) > 0)
        };
        let closed = |fate| table.nameless(fate).filter(|record| !is_open(record));
        if let Some(record) = closed(Fate::Childless).next() {
            return Some(Job::Prune(record.clone()));
        }
        if let Some(record) = closed(Fate::Ended).next() {
            return Some(Job::Lift(record.clone()));
        }
        let budget = &self.shared.space.budget;
        let is_low = budget.available() < budget.total() / LOW_PART;
        let kept = is_low.then(|| closed(Fate::Kept)).into_iter().flatten();
        let merged = closed(Fate::Single).chain(kept).find_map(|record| {
            let child = table.kid(record.id)?;
            // The new list is written before the old ones are freed.
            let blocks = (record.dead_count + child.dead_count) / FANOUT as u64 + 1;
            let is_small = blocks <= bitmaps::reserve(self.shared.disk.layout().places) / 4
                || budget.available() > blocks;
            is_small.then(|| Job::Merge(record.clone(), child.clone()))
        });
        let forgotten = || closed(Fate::Merged).next().filter(|_| is_low);
        merged.or_else(|| forgotten().map(|record| Job::Forget(record.clone())))
    }

    /// Frees places of a node without children.
    fn prune(&self, state: &mut State, record: Record, places: u64) -> Result<u64, Error> {
        let above = state.table.own_above(&record);
        let disk = &self.shared.disk;
        let map = Map::open(disk, 0, record.root, map::levels(record.blocks))?;
        let mut change = Change::default();
        if map.prune(above, places.max(1), &mut change.clears)? {
            let list = DeadList::of(&record);
            change.clears.extend(dead_list::read(disk, list)?.1);
            if let Some(log) = record.log {
                change.clears.extend(log.places());
            }
            state.table.remove(record.id);
            for merge in state.table.merges_into(record.id) {
                state.table.remove(merge.id);
            }
        } else {
            let generation = state.generation + 1;
            let mut written = std::mem::take(&mut change.written);
            let reserved = |place| Entry::new(place, record.depth);
            let mut place = || self.shared.reserved(state, &mut change).map(reserved);
            let root = map.write(generation, &mut place, &mut written)?;
            change.written = written;
            let own = record.own.saturating_add(change.sets.len() as u64);
            let own = own.saturating_sub(change.clears.len() as u64);
            state.table.update(record.id, |record| {
                (record.root, record.own) = (root, own);
                record.flags |= ZOMBIE;
            });
        }
        let freed = (change.clears.len() as u64).saturating_sub(change.sets.len() as u64);
        self.shared.commit(state, change, || ())?;
        Ok(freed)
    }

    /// Merges a frozen node into its only child.
    fn merge(
        &self,
        state: &mut State,
        branches: &Branches<'_>,
        node: Record,
        child: Record,
    ) -> Result<u64, Error> {
        let disk = &self.shared.disk;
        let above = state.table.own_above(&node);
        let (of_node, node_blocks) = dead_list::read(disk, DeadList::of(&node))?;
        let (of_child, child_blocks) = dead_list::read(disk, DeadList::of(&child))?;
        let (own, mut kept): (Vec<Entry>, Vec<Entry>) =
            of_child.into_iter().partition(|entry| entry.birth() > above);
        kept.extend(of_node);
        let mut change = Change::default();
        change.clears.extend(own.iter().map(|entry| entry.place()));
        change.clears.extend(node_blocks.into_iter().chain(child_blocks));
        let list = DeadList::default();
        let list = dead_list::append(&self.shared, state, &mut change, child.id, list, kept)?;
        let both = child.own.saturating_add(node.own).saturating_sub(own.len() as u64);
        // Blocks that the branch has not written are not for its limit.
        let leaf = state.table.of_origin(child.origin).filter(|leaf| leaf.limit != 0);
        if let Some(id) = leaf.map(|leaf| leaf.id).filter(|_| node.origin != child.origin) {
            let more = both.saturating_sub(child.own);
            state.table.update(id, |leaf| {
                leaf.limit = leaf.limit.saturating_add(more).min(LIMIT_MAX);
            });
        }
        state.table.update(child.id, |child| {
            child.parent = node.parent;
            // A state that was only looked at is none that the child was forked from.
            child.flags |= if node.has(PASSING) { node.flags & MERGED } else { MERGED };
            child.own = both;
            list.store(child);
        });
        state.table.inherit_merges(node.id, child.id);
        state.table.remove(node.id);
        let freed = (change.clears.len() as u64).saturating_sub(change.sets.len() as u64);
        self.shared.commit(state, change, || ())?;
        if let Some(open) = branches.get(&child.name) {
            open.adopt(above);
        }
        if let Some(leaf) = state.table.of_origin(child.origin)
            && let Some(open) = branches.get(&leaf.name)
        {
            open.limit.load(&state.table, leaf);
        }
        Ok(freed)
    }

    /// Has the records of merges of a node say the node before it, which the results have as well.
    /// Nothing else comes from the node, which is freed then.
    fn lift(&self, state: &mut State, node: &Record) -> Result<u64, Error> {
        let own = state.table.merges_into(node.id);
        for merge in state.table.merges_of(node.id) {
            state.table.remove(merge.id);
            let state_of = |id, told| Some((state.table.get(id)?.clone(), told));
            let before = state_of(node.parent, &merge);
            // The result has all that was merged into the node, too. A full table forgets it.
            let own = own.iter().filter_map(|own| state_of(own.parent, own));
            for (before, told) in before.into_iter().chain(own).collect::<Vec<_>>() {
                if state.table.check_room().is_ok() {
                    let record = merge_of(&before, next_id(state), merge.merged);
                    let (time, text) = (told.time, told.text.clone());
                    state.table.insert(Record { time, text, ..record });
                }
            }
            state.table.drop_told_merges(merge.merged);
        }
        self.shared.commit(state, Change::default(), || ())?;
        Ok(0)
    }

    /// Forgets the merges of a node, which then is merged into its child.
    fn forget(&self, state: &mut State, node: &Record) -> Result<u64, Error> {
        for merge in state.table.merges_of(node.id) {
            state.table.remove(merge.id);
        }
        self.shared.commit(state, Change::default(), || ())?;
        Ok(0)
    }
}
