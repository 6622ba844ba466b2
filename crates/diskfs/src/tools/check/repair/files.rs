//! Files that have impossible extents, or blocks with another owner.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::contents::{Extents, Verdict, extent_of};
use super::super::finding::Problem;
use super::super::overlay::Overlay;
use super::{Pool, Repair, Written};
use crate::btree::Tree;
use crate::format::extent::Extent;
use crate::format::{BLOCK_BYTES, byte_of_block};
use crate::inode::core::{DataFork, InodeCore};
use crate::inode::extents::{ExtentMap, ExtentTree, MapOwner};

/// Maximum number of blocks that are copied in one I/O.
const COPY_BLOCKS: u64 = 256;
/// Maximum number of places that can't be written before the copy of a run is given up.
const FAILED_WRITES_MAX: u32 = 64;

impl Repair<'_, '_, '_> {
    /// Removes extents that can't belong to their files. A hole replaces each of them.
    pub(super) fn cuts(&self) -> Written {
        let mut has_written = false;
        for ino in &self.plan.cuts {
            let mut overlay = self.overlay();
            if self.cut(&mut overlay, *ino).is_some() {
                has_written |= self.commit(overlay)?;
            }
        }
        Ok(has_written)
    }

    fn cut(&self, overlay: &mut Overlay<'_, '_>, ino: u64) -> Option<()> {
        let mut core = overlay.core(ino)?;
        let mut walk = Extents::new(self.check, ino, core.size);
        let (good, wrong): (Vec<_>, Vec<_>) = self
            .extents(ino, &core)?
            .into_iter()
            .partition(|extent| matches!(walk.judge(&self.check.media, extent), Verdict::Good));
        core.data = match core.data {
            DataFork::Tree { root } => {
                let tree = Tree::<ExtentTree>::at(root, ino);
                for extent in &wrong {
                    tree.remove(overlay, extent.file_block.into()).ok()?;
                }
                if good.is_empty() { DataFork::None } else { DataFork::Tree { root } }
            }
            _ => ExtentMap::of_list(&good).into_fork(),
        };
        overlay.set_core(ino, &core);
        Some(())
    }

    /// Returns the extents of a file; `None` if not all can be read.
    fn extents(&self, ino: u64, core: &InodeCore) -> Option<Vec<Extent>> {
        match &core.data {
            _ if !core.is_regular() => None,
            DataFork::None | DataFork::Inline(_) => Some(Vec::new()),
            DataFork::Extents(list) => Some(list.to_vec()),
            DataFork::Tree { root } => {
                let mut list = Vec::new();
                let records = |records: &[_]| list.extend(records.iter().map(extent_of));
                let walked = self.check.tree(&Tree::<ExtentTree>::at(*root, ino), records);
                walked.damages.is_empty().then_some(list)
            }
        }
    }

    /// Gives files that share blocks with another owner blocks of their own, with a copy of the
    /// contents.
    pub(super) fn moves(&self) -> Written {
        let mut moves = self.plan.moves.clone();
        self.under_trees(&mut moves);
        // The unowned blocks are known only if all metadata could be read.
        if !self.check.is_complete {
            return Ok(false);
        }
        let mut pool = Pool::new(self.plan);
        let mut has_written = false;
        for (ino, runs) in &moves {
            let mut overlay = self.overlay();
            pool.lend(&mut overlay);
            if self.relocate(&mut overlay, &mut pool, *ino, runs).is_some() {
                pool.settle(&mut overlay);
                // The copies must be durable before the extents that refer to them.
                self.device.flush()?;
                has_written |= self.commit(overlay)?;
            }
        }
        Ok(has_written)
    }

    /// Adds data of files in blocks that turned out to belong to trees.
    fn under_trees(&self, moves: &mut BTreeMap<u64, Vec<Range<u64>>>) {
        if self.plan.tree_blocks.is_empty() {
            return;
        }
        for (start, chunk) in &self.check.links.chunks {
            for (ino, _) in chunk.inodes(*start).filter(|(_, seen)| seen.kind == REGULAR) {
                let core = self.overlay().core(ino);
                let extents = core.and_then(|core| self.extents(ino, &core)).unwrap_or_default();
                let lies_there = |run: &&Range<u64>| {
                    extents.iter().any(|extent| !shared(extent, run).is_empty())
                };
                let runs: Vec<_> =
                    self.plan.tree_blocks.iter().filter(lies_there).cloned().collect();
                if !runs.is_empty() {
                    moves.entry(ino).or_default().extend(runs);
                }
            }
        }
    }

    fn relocate(
        &self,
        overlay: &mut Overlay<'_, '_>,
        pool: &mut Pool<'_>,
        ino: u64,
        runs: &[Range<u64>],
    ) -> Option<()> {
        let mut core = overlay.core(ino)?;
        let mut map = ExtentMap::of(&core.data);
        for extent in self.extents(ino, &core)? {
            let mut shared: Vec<_> =
                runs.iter().map(|run| shared(&extent, run)).filter(|run| !run.is_empty()).collect();
            shared.sort_unstable_by_key(|run| run.start);
            let mut behind = 0;
            for run in shared {
                let run = run.start.max(behind)..run.end;
                behind = behind.max(run.end);
                self.replace(overlay, pool, (ino, &core, &mut map), &extent, run)?;
            }
        }
        core.data = map.into_fork();
        overlay.set_core(ino, &core);
        Some(())
    }

    /// Moves a part of an extent: `run`, in blocks of the device. A block that can't be read stays
    /// where it is, unless such blocks are given up: then there is a hole. Returns `None` if the
    /// volume has no room for the copy.
    fn replace(
        &self,
        overlay: &mut Overlay<'_, '_>,
        pool: &mut Pool<'_>,
        (ino, core, map): (u64, &InodeCore, &mut ExtentMap),
        extent: &Extent,
        run: Range<u64>,
    ) -> Option<()> {
        let owner = MapOwner { ino, list_max: core.extents_room() };
        let file_block = |place: u64| extent.file_block + (place - extent.start);
        let cut = |overlay: &mut _, map: &mut ExtentMap, from, to| {
            let range = (file_block(from), file_block(to));
            map.remove(overlay, owner, range, usize::MAX, &mut Vec::new(), &mut 0).ok()
        };
        // An unwritten extent has no data to copy.
        if extent.is_unwritten {
            return cut(overlay, map, run.start, run.end).map(drop);
        }
        let (mut at, mut single_until, mut failed_writes) = (run.start, run.start, 0);
        while at < run.end {
            let most = if at < single_until { 1 } else { COPY_BLOCKS };
            let to = pool.next_run(most.min(run.end - at))?;
            let blocks = to.end - to.start;
            match self.copy(at, &to) {
                Copied::All => {
                    cut(overlay, map, at, at + blocks)?;
                    let (file_block, start, blocks) = (file_block(at), to.start, blocks as u32);
                    let copy = Extent { file_block, start, blocks, ..*extent };
                    map.insert(overlay, owner, copy).ok()?;
                    at += u64::from(blocks);
                }
                Copied::Part => {
                    pool.back.extend(to.rev());
                    single_until = at + blocks;
                }
                Copied::Unread => {
                    pool.back.extend(to.rev());
                    if self.check.gives_up_unreadable() {
                        cut(overlay, map, at, at + 1)?;
                        let file_block = file_block(at);
                        self.lost.borrow_mut().push(Problem::Unread { ino, file_block });
                    }
                    at += 1;
                }
                // The place is not used again.
                Copied::Unwritten if failed_writes < FAILED_WRITES_MAX => failed_writes += 1,
                Copied::Unwritten => return None,
            }
        }
        Some(())
    }

    fn copy(&self, from: u64, to: &Range<u64>) -> Copied {
        let blocks = to.end - to.start;
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let is_read = self.device.read_at(byte_of_block(from), &mut bytes).is_ok();
        match is_read && self.device.write_at(byte_of_block(to.start), &bytes).is_ok() {
            true => Copied::All,
            // One of the blocks may be the reason.
            false if blocks > 1 => Copied::Part,
            false if is_read => Copied::Unwritten,
            false => Copied::Unread,
        }
    }
}

/// The result of copying blocks.
enum Copied {
    /// All were copied.
    All,
    /// Of several, some may be readable and writable.
    Part,
    /// The only one can't be read.
    Unread,
    /// The only one can't be written to its new place.
    Unwritten,
}

/// The kind of a regular file.
const REGULAR: u8 = crate::inode::core::FileKind::Regular as u8;

/// Returns the blocks of an extent that are in a run, in blocks of the device.
fn shared(extent: &Extent, run: &Range<u64>) -> Range<u64> {
    let (start, end) = (extent.start.max(run.start), extent.place_end().min(run.end));
    start..end.max(start)
}
