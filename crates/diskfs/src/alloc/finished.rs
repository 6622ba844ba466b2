//! Groups that a transaction has changed, until the journal has the transaction.

use smallvec::SmallVec;
use vfscale_journal::ChangeList;
use vfscale_sync::MutexGuard;
use vfscale_sync::atomic::{AtomicU64, Ordering};

use super::ag_update::Outcome;
use super::alloc_group::Group;
use super::changes::Changes;
use super::delayed::{DelayedGroups, DelayedUpdate, GroupState, bytes_of};
use super::headers;
use crate::base::ranks::GroupLock;
use crate::format::BlockRange;

/// Runs that a transaction has freed: free in the trees, and not to be used before the transaction
/// is durable.
#[derive(Debug, Default)]
#[must_use = "lost runs are not free before the next mount"]
pub struct Busy {
    pub(super) parts: Vec<BusyPart>,
    blocks: u64,
    /// Of these, the blocks that transactions before have freed, and noted as
    /// [expected](Busy::expected).
    noted: u64,
    /// Number of blocks that the transaction has freed, and a later one enters into the trees.
    delayed: u64,
}

/// The runs freed in one group.
#[derive(Debug)]
pub(super) struct BusyPart {
    pub(super) group: u32,
    pub(super) runs: Vec<BlockRange>,
    /// Number of these blocks that were tree blocks before.
    pub(super) drained: u64,
    /// If the group was extended, the new upper bound on its tree blocks.
    pub(super) tree_max: Option<u64>,
}

impl Busy {
    /// Returns the number of blocks that the transaction has freed.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of blocks that were not expected to become available before; less than
    /// none for those that don't.
    pub(crate) fn expected(&self) -> i64 {
        (self.blocks + self.delayed) as i64 - self.noted as i64
    }

    /// Returns the runs that were freed.
    pub(crate) fn runs(&self) -> impl Iterator<Item = BlockRange> {
        self.parts.iter().flat_map(|part| part.runs.iter().copied())
    }

    /// Returns whether nothing was freed, and [`Groups::durable`](super::Groups::durable) need not
    /// be called.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.blocks == 0
    }
}

/// Groups that a transaction has changed, which stay locked until the journal has the transaction.
#[must_use = "a finished transaction has to be committed or abandoned"]
pub struct Finished<'g> {
    pub(super) delayed: &'g DelayedGroups,
    /// Upper bound on the tree blocks of any group so far.
    pub(super) largest_trees: &'g AtomicU64,
    pub(super) parts: SmallVec<[Locked<'g>; 1]>,
    /// The log space that was set aside and that it uses, in bytes.
    pub(super) used: u64,
}

pub(super) struct Locked<'g> {
    pub(super) group: &'g Group,
    pub(super) work: Work,
    pub(super) guard: MutexGuard<'g, GroupState, GroupLock>,
}

/// The changes of a group.
pub(super) enum Work {
    /// They are in its trees, with all changes that were delayed before.
    Written(Box<Outcome>),
    /// They are delayed.
    Delayed(DelayedUpdate),
}

impl Finished<'_> {
    /// Returns the reservation that the transaction needs for its delayed changes, in bytes of
    /// items, and the one that it gets for the delayed changes of others which it logs.
    pub fn log_bytes(&self) -> (u64, u64) {
        self.parts.iter().fold((0, 0), |(needed, gained), part| match &part.work {
            Work::Written(_) => (needed, gained + bytes_of(part.guard.delayed.blocks)),
            // One byte for the rounding of `ChangeList::set_aside`.
            Work::Delayed(update) => (needed + bytes_of(update.blocks) + 1, gained),
        })
    }

    /// Prepares the commit of the log's transaction: gives it its place in the order of the
    /// transactions of the groups, and moves log space between it and the delayed changes. Called
    /// once, when nothing can fail any more but the commit.
    pub fn prepare(&mut self, log: &mut ChangeList) {
        let delayed = self.delayed;
        for Locked { group, work, guard } in &mut self.parts {
            log.follow(guard.order);
            let there = &mut guard.delayed;
            match work {
                Work::Written(_) => {
                    log.take_over(there.log_bytes);
                    self.used += there.log_bytes;
                    (there.log_bytes, there.blocks) = (0, 0);
                }
                Work::Delayed(update) => {
                    // The reservation was found sufficient before.
                    let space = log.set_aside(bytes_of(update.blocks)).unwrap_or(0);
                    delayed.set_aside(space);
                    there.log_bytes += space;
                    there.blocks += update.blocks;
                    if !there.is_listed {
                        there.is_listed = true;
                        delayed.list.add(group.whole().group());
                    }
                }
            }
        }
    }

    /// Takes the runs that the transaction has freed, to be passed to
    /// [`Groups::durable`](super::Groups::durable) when it is durable. Called once, before the
    /// commit.
    pub fn busy(&mut self) -> Busy {
        let mut busy = Busy::default();
        for Locked { group, work, guard } in &mut self.parts {
            let outcome = match work {
                Work::Written(outcome) => outcome,
                Work::Delayed(update) => {
                    busy.delayed += update.expected();
                    continue;
                }
            };
            busy.noted += guard.delayed.expected;
            let runs = std::mem::take(&mut outcome.busy);
            let freed: u64 = runs.iter().map(|run| run.len()).sum();
            if !group.is_left_out() {
                busy.blocks += freed - outcome.drained - outcome.extended + outcome.donated;
            }
            let tree_max = (outcome.extended > 0).then(|| group.whole().tree_blocks_max());
            let (group, drained) = (group.whole().group(), outcome.drained);
            if !runs.is_empty() || drained > 0 || tree_max.is_some() {
                busy.parts.push(BusyPart { group, runs, drained, tree_max });
            }
        }
        busy
    }

    /// Publishes the changes, after the journal has the transaction, with the order id `order`, and
    /// unlocks the groups.
    pub fn committed(&mut self, changes: &Changes, order: u64) {
        let blocks = changes.blocks();
        // Not before the commit: the blocks are always counted, here or in the log.
        self.delayed.use_up(self.used);
        for Locked { group, work, guard } in &mut self.parts {
            guard.order = guard.order.max(order);
            let range = group.whole().blocks();
            let chunks = blocks.into_iter().flat_map(|blocks| &blocks.undo.chunks);
            let claimed = changes.claimed_inodes.iter().chain(chunks);
            let claimed = claimed.filter(|(chunk, _)| range.contains(chunk));
            match &mut *work {
                Work::Written(outcome) => {
                    headers::raise(self.largest_trees, outcome.header.tree_blocks);
                    guard.delayed.clear();
                    group.counts.set(&outcome.header);
                    group.account(outcome.header.blocks);
                }
                Work::Delayed(update) => {
                    guard.delayed.note(update);
                    for (chunk, masks) in &update.masks {
                        guard.delayed.masks.insert(*chunk, *masks);
                    }
                    add(&group.counts.free_inodes, update.free_inodes);
                    add(&group.counts.orphans, update.orphans);
                    // New orphans change nothing in the index.
                    if update.freed.is_empty() && claimed.clone().next().is_none() {
                        continue;
                    }
                }
            }
            group.change_index(|index| {
                let new = blocks.into_iter().flat_map(|it| it.new_chunks.range(range.clone()));
                new.for_each(|(chunk, free)| index.chunks.add(*chunk, *free));
                claimed.for_each(|(chunk, inodes)| index.chunks.forget(*chunk, *inodes));
                match work {
                    Work::Written(outcome) => outcome.enter(index),
                    Work::Delayed(update) => {
                        let freed = update.freed.iter();
                        freed.for_each(|(chunk, freed)| index.chunks.add(*chunk, *freed));
                    }
                }
            });
        }
        self.parts.clear();
    }
}

/// Adds to a counter that only the holder of the group's lock writes.
fn add(counter: &AtomicU64, more: i64) {
    let sum = counter.load(Ordering::Relaxed).saturating_add_signed(more);
    counter.store(sum, Ordering::Relaxed);
}
