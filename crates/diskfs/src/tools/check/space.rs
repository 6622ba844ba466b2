//! Free space, once the used blocks are known, and the figures of groups.

use std::ops::Range;

use super::finding::{Figure, Problem};
use super::state::Check;
use super::watch::Phase;
use crate::LogPlace;
use crate::alloc::{Layout, Totals};
use crate::btree::Tree;
use crate::format::damage::GroupFault;
use crate::format::group::{FREE_ROOT_AT, FreeSpace, fault};
use crate::format::superblock::GroupSums;

impl Check<'_, '_> {
    /// Compares the free space of every group with the blocks that are not in use, and the stored
    /// figures of groups with the counted ones.
    pub(crate) fn free_space(&mut self) {
        let groups = self.media.geometry().groups();
        for group in 0..groups {
            self.tell.progress(Phase::FreeSpace, group.into(), groups.into());
            let mut blocks = self.media.geometry().blocks_of(group).unwrap_or_default();
            let accounted = self.groups.get(group as usize).map_or(0, |group| group.counted.blocks);
            blocks.end = blocks.end.min(blocks.start + accounted);
            let before = self.tell.count;
            let mut unowned = Vec::new();
            let (is_complete, is_settled) = (self.is_complete, self.is_settled());
            if let Some(plan) = self.plan.as_mut().filter(|_| is_complete) {
                self.used.absent(blocks.clone(), |run| unowned.push(run));
                if plan.needs_blocks() {
                    unowned.iter().for_each(|run| plan.unowned(run.clone()));
                }
            }
            let free = self.free_of(group, &blocks);
            self.figures.used_blocks += (blocks.end - blocks.start).saturating_sub(free);
            let Some(state) = self.groups.get_mut(group as usize) else { continue };
            // Blocks of unreadable structures look like leaked ones.
            if is_settled && state.is_space_known {
                let tell = &mut self.tell;
                self.used.absent(blocks, |blocks| tell.add(Problem::Leaked { blocks }));
            }
            if self.tell.count != before || !state.is_space_known {
                state.unowned = self.plan.is_some().then_some(unowned);
            }
            self.compare(group, free);
        }
    }

    /// Walks through the free space of a group and records its blocks. Returns their number.
    fn free_of(&mut self, group: u32, blocks: &Range<u64>) -> u64 {
        let root = blocks.start + FREE_ROOT_AT;
        let (mut behind, mut free) = (0, 0);
        let Self { media, tell, used, .. } = self;
        let mut each = |start: u64, len: u64| {
            let run = start..start.saturating_add(len);
            let is_inside = blocks.start <= run.start && run.end <= blocks.end;
            let is_apart = behind == 0 || run.start > behind;
            if !is_inside || !is_apart || !media.is_common(&run) {
                tell.add(fault(root, GroupFault::FreeRun { start, blocks: len }));
            }
            if !is_inside || !media.is_common(&run) {
                return;
            }
            free += len;
            let new = run.start.max(behind)..run.end;
            behind = behind.max(run.end);
            used.insert(new, |blocks| tell.add(Problem::FreeInUse { blocks, group }));
        };
        let tree = Tree::<FreeSpace>::at(root, group.into());
        // The structure of the tree was checked before.
        let walked = tree.check_records(
            &*media,
            |_| {},
            |_| {},
            |records| {
                records.iter().for_each(|run| each(run.key.get(), run.value.get()));
            },
        );
        walked.unwrap_or_default();
        free
    }

    /// Compares the sums in the superblock with those of the headers, if nothing else is wrong.
    pub(crate) fn sums(&mut self, log: LogPlace, found: Option<GroupSums>) {
        let Some(found) = found.filter(|_| self.tell.count == 0) else { return };
        let (mut all, mut trees) = (Totals::default(), 0);
        for (number, state) in (0..).zip(&self.groups) {
            let layout = Layout::new(self.media.geometry(), log, number);
            let (Some(layout), Some(header)) = (layout, &state.header) else { return };
            all.add(&Totals::of(&layout.with_blocks(header.blocks), header));
            trees = trees.max(header.tree_blocks);
        }
        let Totals { available, inodes, free_inodes, .. } = all;
        // The number of tree blocks is an upper bound.
        let counted = GroupSums { available, inodes, free_inodes, trees: found.trees.max(trees) };
        if found != counted || all.orphans > 0 {
            self.tell.add(Problem::Sums { found, counted });
        }
    }

    fn compare(&mut self, group: u32, free: u64) {
        let Some(state) = self.groups.get_mut(group as usize) else { return };
        state.counted.free = free;
        let Some(header) = &state.header else { return };
        let counted = &state.counted;
        for (figure, found, counted) in [
            (Figure::FreeBlocks, header.free, counted.free),
            (Figure::FreeInodes, header.free_inodes, counted.free_inodes),
            (Figure::Inodes, header.inodes, counted.inodes),
            (Figure::Orphans, header.orphans, counted.orphans),
            (Figure::TreeBlocks, header.tree_blocks, counted.tree_blocks),
        ] {
            if found != counted {
                self.tell.add(Problem::Figure { group, figure, found, counted });
            }
        }
    }
}
