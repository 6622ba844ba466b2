//! Turns the changes of a transaction in a group into [delayed](super::delayed) ones.

use std::cell::RefCell;
use std::sync::Arc;

use vfscale_sync::atomic::Ordering;
use zerocopy::little_endian::U64;

use super::ag_update::{AgChanges, impossible, touching};
use super::alloc_group::Group;
use super::delayed::{Covered, DelayedChunks, DelayedUpdate, RunsUpdate, bytes_of};
use super::{GroupNodes, GroupPart, Groups};
use crate::btree::Error;
use crate::buffer::Buffer;
use crate::format::{BlockRange, Expected};

impl Groups {
    /// Returns the delayed form of the changes of a transaction in a group, for which it has so
    /// much log space left; `None` if they have to be written into the trees. The caller holds the
    /// lock of the group.
    pub(super) fn delay<N: GroupNodes>(
        &self,
        group: &Group,
        nodes: &N,
        there: &DelayedChunks,
        part: &GroupPart<'_>,
        left: u64,
    ) -> Result<Option<DelayedUpdate>, Error<N::Error>> {
        if let Some(inodes) = part.of_inodes() {
            return group.delay(nodes, there, inodes);
        }
        let GroupPart::All(part) = part else { return Ok(None) };
        if !part.is_small() || !self.delayed.has_runs() || group.is_left_out() {
            return Ok(None);
        }
        let Some(mut update) = group.delay(nodes, there, &part.inodes)? else { return Ok(None) };
        let is_delayed = group.delay_runs(nodes, there, part, self.levels().into(), &mut update)?;
        // One byte for the rounding of `ChangeList::set_aside`.
        Ok((is_delayed && bytes_of(update.blocks) < left).then_some(update))
    }
}

impl Group {
    /// Adds changes of runs to a delayed update; the tree of free space has at most `levels`
    /// levels. Returns false if they have to be written into the tree, because a run is claimed and
    /// freed at once. The caller holds the lock of the group.
    ///
    /// # Errors
    /// [`Error`].
    fn delay_runs<N: GroupNodes>(
        &self,
        nodes: &N,
        delayed: &DelayedChunks,
        part: &AgChanges,
        levels: u64,
        update: &mut DelayedUpdate,
    ) -> Result<bool, Error<N::Error>> {
        let touch = |one: &BlockRange, other: &BlockRange| {
            one.start < other.end() && other.start < one.end()
        };
        if part.claims.iter().any(|claim| part.frees.iter().any(|free| touch(claim, free))) {
            return Ok(false);
        }
        let tree = self.layout().free_tree();
        let mut runs = Box::<RunsUpdate>::default();
        for run in &part.claims {
            self.cover(nodes, delayed, *run, (&mut runs, &mut update.held))?;
            let record = tree.at_or_before(nodes, run.start.into())?;
            let end =
                record.map_or(0, |record| record.key.get().saturating_add(record.value.get()));
            if end < run.end() || delayed.runs.has_claimed(*run) {
                return Err(impossible(self.whole().header(), *run, true).into());
            }
        }
        for run in &part.frees {
            let mut is_in_use = !delayed.runs.has_freed(*run);
            for part in delayed.runs.in_tree(*run) {
                self.cover(nodes, delayed, part, (&mut runs, &mut update.held))?;
                is_in_use &= touching(&self.layout(), nodes, part)?.is_some();
            }
            if !is_in_use {
                return Err(impossible(self.whole().header(), *run, false).into());
            }
        }
        let count = (part.claims.len() + part.frees.len()) as u64;
        // Each run is at most one insertion, and so are blocks that the trees get for it: a block
        // for each level, and one above. Besides, it needs blocks that exist, four of a level; but
        // no more than there are, with the two roots.
        let trees = self.counts.trees.load(Ordering::Relaxed) + 2;
        runs.existing = (4 * levels * count).min(trees.saturating_sub(delayed.existing));
        update.blocks += 2 * (levels + 1) * count + runs.existing;
        (runs.claims, runs.frees) = (part.claims.clone(), part.frees.clone());
        update.runs = Some(runs);
        Ok(true)
    }

    /// Reads the blocks of the tree of free space that a change of a run may take, unless they are
    /// held.
    fn cover<N: GroupNodes>(
        &self,
        nodes: &N,
        delayed: &DelayedChunks,
        run: BlockRange,
        (runs, held): (&mut RunsUpdate, &mut Vec<Arc<Buffer>>),
    ) -> Result<(), Error<N::Error>> {
        let is_in =
            |(low, high): &Covered| *low <= run.start && high.is_none_or(|high| run.end() < high);
        if delayed.covered.iter().chain(&runs.covered).any(is_in) {
            return Ok(());
        }
        let layout = self.layout();
        // A change of one tree looks at the height of both.
        let chunks = layout.chunk_tree();
        held.extend(nodes.hold(chunks.root(), &chunks.expected())?);
        let held = RefCell::new(held);
        let hold = |address: u64, expected: &Expected| {
            held.borrow_mut().extend(nodes.hold(address, expected)?);
            nodes.read(address, expected)
        };
        let keys = (run.start.into(), run.end().into());
        let (low, high) = layout.free_tree().around(nodes, keys, hold)?;
        runs.covered.push((low.get(), high.map(U64::get)));
        Ok(())
    }
}
