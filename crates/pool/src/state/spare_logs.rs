//! Spare logs: delta logs that a branch takes without a commit.
//!
//! # Purpose
//!
//! A branch gets a delta log with the first flush after its opening. A commit that names the log
//! would cost six blocks and hold up all other commits. So the pool has up to four *spares*, which
//! its superblock names: places that are in use by nobody else, and a random sequence that no log
//! has had. A branch takes one in memory, and writes its first record there, which names the
//! branch: that record is what makes the log its own. The next commit, whoever makes it, writes the
//! log into the branch table and drops the spare from the superblock.
//!
//! Spares are logs that were given up when branches were closed, with new sequences. A fork makes
//! one if there is none, in its commit: the child will need it. A pool that becomes full gives them
//! up before it refuses a writer, so they count as free.
//!
//! # Power cuts
//!
//! Whoever opens a pool reads the first record of each spare, before it replays any log or hands
//! out a place. A record with the sequence of the spare makes the log that of its branch
//! ([`crate::state::read_spares`]), in memory, and everything that follows finds it in the branch
//! table. This is right for these reasons:
//!
//! * A spare has one taker at most until the next commit, since it leaves the list in memory at
//!   once, and that commit does not name it any more. If the log comes back as a spare, it does so
//!   with another sequence, in the commit that takes it from the branch. So a record with the
//!   sequence of a spare was written by the last taker since that commit.
//! * A branch has no other log then. It takes a spare only without a log, and loses its log only in
//!   a commit. The same commit that ends the branch, freezes its node or gives the log a new
//!   sequence names the spare no more. So a record of a node that can't be written, or that has a
//!   log, shows that blocks of the pool are wrong: the opening refuses it as damage. To leave out
//!   one of two logs would lose what a flush has promised.
//! * The first flush writes contents and record, and flushes once: the record has the checksums of
//!   the contents, which are fragile until a later record or commit confirms them. Or the contents
//!   are flushed before, if there are many. So the first record is like any later one.
//! * A first record that is not there was not flushed: the spare is unused. It may be taken again
//!   with the same sequence. So the first batch of a log that no commit has named has one record:
//!   the second record of such a batch could be there without the first, and would count after
//!   another first record with the same bytes. Later batches are written after the flush of the
//!   first record.
//! * A first record that can't be read may have been flushed. A later record tells whose log it
//!   is; without one, nothing does, and the pool is not opened. A repair goes on, and gives the
//!   spare another sequence, since the record may be readable another time.

use std::sync::atomic::Ordering;

use crate::Error;
use crate::disk::format::SPARES_MAX;
use crate::disk::layout::Layout;
use crate::disk::record::{LogArea, unused_sequence};
use crate::space::bitmaps::Lease;
use crate::state::commit::{Change, Shared, State};

/// Most places of a log.
const LOG_BLOCKS_MAX: u64 = 64;
/// A log becomes a spare only while so many times as many places are free.
const ROOM: u64 = 16;

/// Returns how many places a new log has.
fn log_blocks(layout: &Layout) -> u64 {
    (layout.places / 64).clamp(2, LOG_BLOCKS_MAX)
}

impl Shared {
    /// Takes a spare off the list. The caller makes it the log of a node in the branch table.
    pub(crate) fn pop_spare(&self, state: &mut State) -> Option<LogArea> {
        let area = state.spares.pop()?;
        self.count_spares(state);
        Some(area)
    }

    /// Gives up a log, for the commit of `change`: it becomes a spare if the pool wants one more,
    /// or its places become free.
    pub(crate) fn end_log(&self, state: &mut State, log: Option<LogArea>, change: &mut Change) {
        let Some(area) = log else { return };
        if state.spares.len() >= SPARES_MAX || !self.has_room(area.blocks.into()) {
            return change.clears.extend(area.places());
        }
        state.spares.push(LogArea { sequence: unused_sequence(), ..area });
        self.count_spares(state);
    }

    /// Makes a spare, for the commit of `change`, if there is none and the pool has room.
    pub(crate) fn stock(&self, state: &mut State, change: &mut Change) {
        if !(state.spares.is_empty() && self.has_room(log_blocks(&self.disk.layout()))) {
            return;
        }
        if let Some(area) = self.new_log(&mut state.lease, unused_sequence(), change) {
            state.spares.push(area);
            self.count_spares(state);
        }
    }

    /// Makes a log, for the commit of `change`; `None` if no row of places is long enough, or a
    /// bitmap can't be read. The caller can do without one.
    pub(crate) fn new_log(
        &self,
        lease: &mut Lease,
        sequence: u64,
        change: &mut Change,
    ) -> Option<LogArea> {
        let (space, blocks) = (&self.space, log_blocks(&self.disk.layout()));
        if !space.budget.take(blocks) {
            return None;
        }
        match space.take(lease, blocks, blocks) {
            Ok((place, _)) => {
                change.sets.extend(place..place + blocks);
                Some(LogArea { place, blocks: blocks as u32, sequence })
            }
            Err(_) => {
                space.give(blocks);
                None
            }
        }
    }

    /// Makes the places of all spares free. Returns whether there was any.
    ///
    /// # Errors
    /// Errors of the commit.
    pub(crate) fn give_up_spares(&self, state: &mut State) -> Result<bool, Error> {
        self.alive()?;
        let clears: Vec<u64> = state.spares.drain(..).flat_map(|area| area.places()).collect();
        if clears.is_empty() {
            return Ok(false);
        }
        self.count_spares(state);
        self.commit(state, Change { clears, ..Change::default() }, || ())?;
        Ok(true)
    }

    /// Returns how many places the spares have.
    pub(crate) fn spare_places(&self) -> u64 {
        self.spare_places.load(Ordering::Relaxed)
    }

    pub(crate) fn count_spares(&self, state: &State) {
        let places = state.spares.iter().map(|area| u64::from(area.blocks)).sum();
        self.spare_places.store(places, Ordering::Relaxed);
    }

    fn has_room(&self, blocks: u64) -> bool {
        !self.is_low() && self.space.budget.available() >= ROOM * blocks
    }
}

#[cfg(test)]
mod tests;
