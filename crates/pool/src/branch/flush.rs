//! Flushes and checkpoints.
//!
//! A flush of a small batch writes one record with the checksums of the contents, and flushes once.
//! Until a later record or checkpoint is durable, the blocks of the batch are *fragile*: a later
//! write of one goes to another place, since a checksum that is wrong after a power cut would undo
//! what this flush has promised.
//!
//! A larger batch is flushed first and recorded after that, with a second flush. A checkpoint
//! writes the nodes of the map that changed, and commits.
//!
//! A branch gets its log with the first batch of its opening, if one record has room for that, and
//! the nodes of the map wait for the next checkpoint. It takes a spare log of the pool if there is
//! one ([`crate::state::spare_logs`]), with no commit: the record is like any other one.
//!
//! Without a spare, the record is written at the same time as a commit that names a new log. This
//! is right for these reasons:
//!
//! * The commit flushes contents and record before its superblock. Until that is durable, nothing
//!   names the log, and its places are free; from then on contents and record are there. So the
//!   record is in no doubt: it needs no checksums, and its blocks are not fragile.
//! * A power cut before that leaves the record in a free place, and the next opening makes a commit
//!   of the same number, perhaps with a log in the same place and nothing in it yet. The record
//!   must not count then. So such a log has a random sequence, and no other one has it again.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::write::CHECKED_MAX;
use super::{Inner, LogState, NewPlace, Pending};
use crate::Error;
use crate::disk::delta_log;
use crate::disk::device::offset;
use crate::disk::format::{Entry, LOG_MAPS, LogMap, PLACE_BYTES, checksum_of};
use crate::disk::record::{LogArea, Record, unused_sequence};
use crate::space::bitmaps::{Lease, Purse};
use crate::state::commit::{Change, State};
use crate::state::dead_list::{self, DeadList};

/// Places that a branch may have given up before a flush makes a checkpoint; few in tests.
const GIVEN_UP_MAX: usize = if cfg!(test) { 40 } else { 4096 };
/// Nodes of the map that may have changed before a flush makes a checkpoint: writers wait while
/// they are copied.
const DIRTY_NODES_MAX: usize = 1024;

/// A batch that was closed.
type Batch = Vec<(u64, NewPlace)>;

/// The node that the writes after a capture belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextNode {
    pub(crate) id: u64,
    pub(crate) depth: u32,
    /// The root of the parent: a branch that still has it stays what it is.
    pub(crate) parent_root: Option<Entry>,
}

/// The fate of the log of a branch at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFate {
    /// The log is for the records that follow; a branch without one gets one.
    GoesOn,
    /// The log is given up, for no record follows: a closed branch holds no places for records.
    Ends,
    /// As [`GoesOn`](Self::GoesOn), and the caller has the gate: the branch grows.
    Grows,
}

/// A branch at one moment, for a commit.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) change: Change,
    /// The record with the root of that moment.
    pub(crate) record: Record,
    /// Whether anything has changed since the last checkpoint.
    pub(super) is_changed: bool,
    /// Whether later writes belong to the next node.
    pub(crate) is_next: bool,
}

impl Inner {
    /// Makes all writes durable that have returned.
    ///
    /// # Errors
    /// Errors of the device, [`Error::Failed`].
    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.shared.alive()?;
        let mut log = self.flush.lock();
        let (count, is_large) = {
            let pending = self.pending.lock();
            let given_up = pending.frees.len() + pending.deads.len();
            let is_large = given_up > GIVEN_UP_MAX || pending.dirty_nodes > DIRTY_NODES_MAX;
            (pending.open.len(), is_large)
        };
        let is_one_record = !is_large && (1..=LOG_MAPS).contains(&count);
        let is_first = log.area.is_none() && !log.must_checkpoint && is_one_record;
        if is_first && !self.take_spare(&mut log)? && self.begin_log(&mut log)? {
            return Ok(());
        }
        let room = log.room();
        if log.must_checkpoint || is_large || count > 0 && room == 0 {
            return self.checkpoint(&mut log, LogFate::GoesOn);
        }
        if count == 0 {
            return Ok(self.shared.disk.device.flush()?);
        }
        let batch = self.close_batch(CHECKED_MAX);
        match log.area {
            Some(area) if batch.len() <= room * LOG_MAPS => {
                let result = self.append(&mut log, area, &batch);
                log.must_checkpoint = result.is_err();
                result
            }
            _ => self.checkpoint(&mut log, LogFate::GoesOn),
        }
    }

    /// Takes a spare log, if the pool has one. Returns whether it has. Nothing is written.
    fn take_spare(&self, log: &mut LogState) -> Result<bool, Error> {
        let mut state = self.shared.state.lock();
        self.shared.alive()?;
        let node = self.node();
        if state.table.get(node).is_none() {
            return Err(Error::NoBranch(self.label.to_string()));
        }
        let Some(area) = self.shared.pop_spare(&mut state) else { return Ok(false) };
        state.table.update(node, |record| record.log = Some(area));
        *log = LogState { area: Some(area), next: 0, previous: 0, must_checkpoint: false };
        Ok(true)
    }

    /// Gives up the spare logs of the pool. Returns whether there was any.
    pub(crate) fn give_up_spares(&self) -> Result<bool, Error> {
        // A full pool asks often.
        let has_any = self.shared.spare_places() > 0;
        Ok(has_any && self.shared.give_up_spares(&mut self.shared.state.lock())?)
    }

    /// Makes the open batch durable as the first record of a new log. Returns false, and changes
    /// nothing on the device, if the batch is too large or there is no room for a log.
    fn begin_log(&self, log: &mut LogState) -> Result<bool, Error> {
        let mut state = self.shared.state.lock();
        self.shared.alive()?;
        let Some(mut record) = state.table.get(self.node()).cloned() else {
            return Err(Error::NoBranch(self.label.to_string()));
        };
        // No block of it becomes fragile.
        let batch = self.close_batch(0);
        let mut change = Change { held: Some(self.held.clone()), ..Change::default() };
        // Writers may have made it larger meanwhile. The checkpoint that follows has all of it.
        let is_small = batch.len() <= LOG_MAPS;
        let area =
            is_small.then(|| self.next_log(&mut state, None, unused_sequence(), &mut change));
        let Some(area) = area.flatten() else { return Ok(false) };
        let maps = batch.iter().map(|(block, new)| self.log_map(*block, *new, false));
        let maps: Vec<LogMap> = maps.collect::<Result<_, _>>()?;
        let (place, bytes) = delta_log::record(&self.shared.disk, area, record.id, 0, 0, 0, &maps);
        let previous = checksum_of(&bytes);
        change.written.blocks.push((place, bytes));
        record.log = Some(area);
        state.table.update(record.id, |old| *old = record);
        self.shared.commit(&mut state, change, || drop(self.readers.write()))?;
        *log = LogState { area: Some(area), next: 1, previous, must_checkpoint: false };
        Ok(true)
    }

    /// Takes the open batch; its blocks become fragile if it has at most `checked` ones, whose
    /// record will have checksums.
    fn close_batch(&self, checked: usize) -> Batch {
        let _alone = self.gate.write();
        let mut pending = self.pending.lock();
        let batch: Batch = pending.open.drain().collect();
        if batch.len() <= checked {
            pending.fragile.extend(batch.iter().map(|(block, _)| *block));
        }
        self.count_tracked(&pending);
        batch
    }

    /// Writes the records of a batch, and flushes.
    fn append(&self, log: &mut LogState, area: LogArea, batch: &Batch) -> Result<(), Error> {
        let device = &self.shared.disk.device;
        let is_checked = batch.len() <= CHECKED_MAX;
        if !is_checked {
            device.flush()?;
        }
        let maps: Vec<LogMap> = batch
            .iter()
            .map(|(block, new)| self.log_map(*block, *new, is_checked))
            .collect::<Result<_, _>>()?;
        let mut records = Vec::new();
        for (index, part) in maps.chunks(LOG_MAPS).enumerate() {
            let (disk, node) = (&self.shared.disk, self.node());
            let (place, bytes) =
                delta_log::record(disk, area, node, log.next, index, log.previous, part);
            log.previous = checksum_of(&bytes);
            log.next += 1;
            records.push((place, bytes));
        }
        self.shared.disk.write(&records)?;
        device.flush()?;
        // Earlier records are confirmed now.
        let mut pending = self.pending.lock();
        pending.fragile.clear();
        if is_checked {
            pending.fragile.extend(batch.iter().map(|(block, _)| *block));
        }
        self.count_tracked(&pending);
        Ok(())
    }

    fn log_map(&self, block: u64, new: NewPlace, is_checked: bool) -> Result<LogMap, Error> {
        let mut map = LogMap {
            block: block.into(),
            place: new.place.into(),
            checksum: 0.into(),
            kind: LogMap::FLUSHED.into(),
        };
        if is_checked {
            let sum = match new.checksum {
                Some(sum) => sum,
                None => {
                    let mut bytes = [0; PLACE_BYTES];
                    self.shared.disk.device.read_at(offset(new.place), &mut bytes)?;
                    crc32c::crc32c(&bytes)
                }
            };
            map.checksum = sum.into();
            map.kind = LogMap::CHECKED.into();
        }
        Ok(map)
    }

    /// Makes places free: those of spare logs, and with a checkpoint those that the branch has
    /// given up. Returns whether there was any.
    pub(super) fn reclaim(&self) -> Result<bool, Error> {
        let mut log = self.flush.lock();
        let had_spares = self.give_up_spares()?;
        if self.pending.lock().frees.is_empty() {
            return Ok(had_spares);
        }
        self.checkpoint(&mut log, LogFate::GoesOn)?;
        Ok(true)
    }

    /// Makes the places free that the branch has given up, with a checkpoint if there are any.
    ///
    /// # Errors
    /// Errors of the device, [`Error::Failed`].
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let mut log = self.flush.lock();
        let has_any = !self.pending.lock().frees.is_empty();
        if has_any { self.checkpoint(&mut log, LogFate::GoesOn) } else { Ok(()) }
    }

    /// Makes everything durable, and gives the log up, as closing does.
    ///
    /// # Errors
    /// Errors of the device, [`Error::Failed`].
    pub(crate) fn close(&self) -> Result<(), Error> {
        if self.is_read_only() {
            return Ok(());
        }
        let mut log = self.flush.lock();
        self.checkpoint(&mut log, LogFate::Ends)
    }

    fn checkpoint(&self, log: &mut LogState, fate: LogFate) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        self.shared.alive()?;
        let captured = self.capture(&mut state, log, None, fate);
        let captured = captured.inspect_err(|_| self.shared.fail())?;
        let Some(Captured { change, record, is_changed, .. }) = captured else {
            return Err(Error::Full);
        };
        if !is_changed {
            return Ok(self.shared.disk.device.flush()?);
        }
        let area = record.log;
        state.table.update(record.id, |old| *old = record);
        self.shared.commit(&mut state, change, || drop(self.readers.write()))?;
        self.captured(log, area);
        Ok(())
    }

    /// Locks the branch for a fork, and calls `fork` with the means to capture and to end.
    ///
    /// # Errors
    /// Errors of `fork`.
    pub(crate) fn with_capture<T>(
        &self,
        fork: impl FnOnce(&mut Capture<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut log = self.flush.lock();
        fork(&mut Capture { inner: self, log: &mut log })
    }

    /// Writes the map as it is now into blocks. With `next`, later writes belong to that node,
    /// unless the branch has nothing of its own yet. `None`, and nothing was done, if then places
    /// would be missing that its user has reserved.
    ///
    /// # Errors
    /// Any; the branch is of no use then.
    pub(super) fn capture(
        &self,
        state: &mut State,
        log: &LogState,
        next: Option<NextNode>,
        fate: LogFate,
    ) -> Result<Option<Captured>, Error> {
        let Some(mut record) = state.table.get(self.node()).cloned() else {
            return Err(Error::NoBranch(self.label.to_string()));
        };
        let mut change = Change { held: Some(self.held.clone()), ..Change::default() };
        let generation = state.generation + 1;
        let (pending, root, is_next) = {
            let _alone = (fate != LogFate::Grows).then(|| self.gate.write());
            let Some(backing) = self.backing(next.is_some()) else { return Ok(None) };
            let pending = self.take_pending();
            let root =
                self.write_map(generation, record.depth, &mut self.lease.lock(), &mut change)?;
            let next = next.filter(|next| next.parent_root != Some(root));
            if let Some(next) = next {
                self.begin(next, record.depth);
                self.held.give_fixed(backing);
            } else {
                self.shared.space.unprotect(backing);
                self.shared.space.give(backing);
            }
            (pending, root, next.is_some())
        };
        let is_changed = root != record.root
            || !(pending.allocs.is_empty() && pending.frees.is_empty())
            || log.must_checkpoint
            || fate == LogFate::Ends && record.log.is_some();
        if !is_changed {
            return Ok(Some(Captured { change, record, is_changed, is_next }));
        }
        let growth = pending.growth();
        change.sets.extend(pending.allocs);
        change.clears.extend(pending.frees);
        // A merge may have made places of an ancestor the branch's own.
        let above = state.table.own_above(&record);
        let (own, deads): (Vec<Entry>, Vec<Entry>) =
            pending.deads.into_iter().partition(|entry| entry.birth() > above);
        change.clears.extend(own.iter().map(|entry| entry.place()));
        let own = record.own.saturating_add(change.sets.len() as u64);
        let own = own.saturating_sub(change.clears.len() as u64);
        self.limit.count(own as i64 - record.own as i64 - growth);
        (record.own, record.root) = (own, root);
        let list = DeadList::of(&record);
        let list = dead_list::append(&self.shared, state, &mut change, record.id, list, deads)?;
        list.store(&mut record);
        record.log = match fate {
            LogFate::GoesOn | LogFate::Grows => {
                self.next_log(state, record.log, generation, &mut change)
            }
            LogFate::Ends => {
                self.shared.end_log(state, record.log, &mut change);
                None
            }
        };
        Ok(Some(Captured { change, record, is_changed, is_next }))
    }

    /// Takes the places that a fork needs in addition to what is reserved, and returns how many,
    /// for fixed blocks; `None` if the pool has too few. Without `is_fork` none is needed. The
    /// caller has the gate.
    fn backing(&self, is_fork: bool) -> Option<u64> {
        if !is_fork {
            return Some(0);
        }
        let budget = &self.shared.space.budget;
        let places = self.held.own_fixed();
        if !budget.take(places) {
            return None;
        }
        let space = &self.shared.space;
        if !self.held.is_filled(budget) || !space.protect(places) {
            space.give(places);
            return None;
        }
        Some(places)
    }

    /// Takes what has changed; blocks that are fragile stay so.
    fn take_pending(&self) -> Pending {
        let mut pending = self.pending.lock();
        let fragile = std::mem::take(&mut pending.fragile);
        let taken = std::mem::take(&mut *pending);
        pending.fragile = fragile;
        self.limit.count(taken.growth());
        self.count_tracked(&pending);
        taken
    }

    /// Makes later writes belong to another node, whose parent has the depth `above`.
    fn begin(&self, next: NextNode, above: u32) {
        self.node.store(next.id, Ordering::Release);
        self.own_above.store(above, Ordering::Release);
        self.depth.store(next.depth, Ordering::Release);
    }

    fn write_map(
        &self,
        generation: u64,
        birth: u32,
        lease: &mut Lease,
        change: &mut Change,
    ) -> Result<Entry, Error> {
        let mut sets = Vec::new();
        let mut place = || {
            let (place, _) = self.shared.space.take(lease, 1, 1)?;
            sets.push(place);
            Ok(Entry::new(place, birth))
        };
        let root = self.map().write(generation, &mut place, &mut change.written)?;
        let spared = std::mem::take(&mut change.written.spared);
        self.shared.space.give(self.held.refill(spared));
        change.sets = sets;
        Ok(root)
    }

    /// Returns the log for the records after a commit: the former one, a spare, or a new one if
    /// there is room for it. A branch without a log makes a checkpoint for each flush.
    fn next_log(
        &self,
        state: &mut State,
        former: Option<LogArea>,
        sequence: u64,
        change: &mut Change,
    ) -> Option<LogArea> {
        if let Some(area) = former.or_else(|| self.shared.pop_spare(state)) {
            return Some(LogArea { sequence, ..area });
        }
        self.shared.new_log(&mut self.lease.lock(), sequence, change)
    }

    /// Notes that a capture is durable.
    pub(super) fn captured(&self, log: &mut LogState, area: Option<LogArea>) {
        *log = LogState { area, next: 0, previous: 0, must_checkpoint: false };
        let mut pending = self.pending.lock();
        pending.fragile = HashSet::new();
        self.count_tracked(&pending);
    }

    /// Enters what the log says into the map, at the opening of the pool, and makes a checkpoint
    /// that gives the log up. All places are claimed.
    ///
    /// # Errors
    /// Errors of the device and [`Error::Damage`].
    pub(crate) fn replay(&self, maps: &[(u64, u64)]) -> Result<(), Error> {
        let depth = self.depth.load(Ordering::Relaxed);
        for (block, place) in maps {
            let path = self.map().path(*block)?;
            let mut given_up = Vec::new();
            let mut note = |home: Entry| given_up.push(home);
            let purse = Purse::new(&self.shared.space.budget, 0);
            while let Err(Error::Full) = path.make_dirty(&purse, &mut note) {
                // Nodes had their places before the power cut; now the reserve lends them.
                self.shared.state.lock().owe(1);
                purse.give(1);
            }
            given_up.push(path.leaf().replace(*block, Entry::new(*place, depth)));
            let mut pending = self.pending.lock();
            pending.allocs.push(*place);
            given_up.into_iter().for_each(|entry| self.give_up(&mut pending, entry));
        }
        let mut log = self.flush.lock();
        // Even a log without a valid map gets a new sequence: a content that was lost may be
        // written again, for another block, and would make its old record valid.
        log.must_checkpoint = true;
        self.checkpoint(&mut log, LogFate::Ends)
    }
}

/// The right to fork a branch: its flushes wait.
pub(crate) struct Capture<'c> {
    inner: &'c Inner,
    log: &'c mut LogState,
}

impl Capture<'_> {
    /// Captures the branch; see [`Inner::capture`].
    ///
    /// # Errors
    /// Any; the branch is of no use then.
    pub(crate) fn take(
        &mut self,
        state: &mut State,
        next: Option<NextNode>,
    ) -> Result<Option<Captured>, Error> {
        let captured = self.inner.capture(state, self.log, next, LogFate::GoesOn);
        captured.inspect_err(|_| self.inner.shared.fail())
    }

    /// Waits for the readers that are inside.
    pub(crate) fn drain(&self) {
        drop(self.inner.readers.write());
    }

    /// Notes that the capture is durable, and where the log is from now on.
    pub(crate) fn durable(&mut self, area: Option<LogArea>) {
        self.inner.captured(self.log, area);
    }
}
