//! Rebuilding of directories, extents, attributes and targets that can't be read completely.
//!
//! Each part is rebuilt in one transaction. Its readable blocks are used again, so a full volume
//! can be repaired too, and a crash leaves either the old part or the new one. A part that is too
//! large for that is built in unowned blocks, and the transaction only has the inode refer to them.
//! Inodes that lost their names with a part of a directory get names in `/lost+found` in the next
//! rounds, lost extents of a file become a hole, and names of a link whose target is lost are
//! removed.

use super::super::overlay::Overlay;
use super::super::plan::{Content, Rebuilt, SalvagedName};
use super::{Pool, Repair, State, Written};
use crate::btree::Tree;
use crate::dir::DirTree;
use crate::format::extent::Extent;
use crate::format::inode::block_of;
use crate::inode::attr;
use crate::inode::core::{AttrFork, DataFork, InodeCore};
use crate::inode::extents::{ExtentMap, ExtentTree, MapOwner};

/// Maximum number of records of an entry.
const RECORDS: usize = crate::dir::RECORDS_OF_ENTRY;

impl Repair<'_, '_, '_> {
    /// Rebuilds all broken parts. A part that can't be rebuilt, because the volume or its log lacks
    /// room, is given up. No part is rebuilt twice: if it is broken again, it is given up too.
    pub(super) fn trees(&self, state: &mut State) -> Written {
        let mut pool = Pool::new(self.plan);
        for rebuilt in &self.plan.rebuilt {
            let part = (rebuilt.ino, rebuilt.content.part());
            let is_made = state.rebuilt.insert(part)
                && (self.rebuild_with(&mut pool, rebuilt, &rebuilt.blocks)?
                    || self.rebuild_with(&mut pool, rebuilt, &[])?);
            if !is_made {
                state.given_up.parts.insert(part);
            }
        }
        Ok(!self.plan.rebuilt.is_empty())
    }

    /// Rebuilds a part in the blocks `again`, which it has had, and in unowned ones. If it is too
    /// large for one transaction of the log, all must be unowned: they are written first, and then
    /// the inode that refers to them.
    fn rebuild_with(&self, pool: &mut Pool<'_>, rebuilt: &Rebuilt, again: &[u64]) -> Written {
        let mut overlay = self.overlay();
        let fresh = room(rebuilt).saturating_sub(again.len());
        let fresh: Vec<_> = (0..fresh).map_while(|_| pool.next()).collect();
        // The blocks that are used again are used first, because the pool is used from its end.
        overlay.pool.extend(fresh.iter().chain(again));
        let is_made = self.rebuild(&mut overlay, rebuilt).is_some();
        let unused = std::mem::take(&mut overlay.pool);
        let inode = block_of(rebuilt.ino);
        let has_written = match again {
            _ if !is_made => false,
            [] => self.commit_large(overlay, |address| address != inode)?,
            _ => self.commit(overlay)?,
        };
        let back = if has_written { unused } else { fresh.iter().rev().copied().collect() };
        pool.back.extend(back.into_iter().filter(|block| !again.contains(block)));
        Ok(has_written)
    }

    fn rebuild(&self, overlay: &mut Overlay<'_, '_>, rebuilt: &Rebuilt) -> Option<()> {
        let ino = rebuilt.ino;
        let mut core = overlay.core(ino)?;
        match &rebuilt.content {
            Content::Names(names) => self.enter(overlay, ino, &mut core, names)?,
            Content::Extents(extents) => map(overlay, ino, &mut core, extents)?,
            Content::Attributes(list) => {
                core.attr = AttrFork::None;
                let blob = attr::encode(list).ok()?;
                attr::store(overlay, ino, block_of(ino), &mut core, &blob).ok()?;
            }
            Content::Target => core = InodeCore::free(core.generation),
        }
        overlay.set_core(ino, &core);
        Some(())
    }

    /// Replaces the entries of a directory by these names. Of equal names the first one wins.
    fn enter(
        &self,
        overlay: &mut Overlay<'_, '_>,
        ino: u64,
        core: &mut InodeCore,
        names: &[SalvagedName],
    ) -> Option<()> {
        (core.data, core.size) = (DataFork::Inline([].into()), 0);
        let directory = self.directory(ino);
        for SalvagedName { name, ino, kind } in names {
            let _ = directory.insert(overlay, core, name, (*ino, *kind)).ok()?;
        }
        Some(())
    }
}

/// Replaces the extents of a file by these.
fn map(
    overlay: &mut Overlay<'_, '_>,
    ino: u64,
    core: &mut InodeCore,
    extents: &[Extent],
) -> Option<()> {
    core.data = DataFork::None;
    let owner = MapOwner { ino, list_max: core.extents_room() };
    let mut map = ExtentMap::default();
    for extent in extents {
        map.insert(overlay, owner, *extent).ok()?;
    }
    core.data = map.into_fork();
    Some(())
}

/// Returns the maximum number of blocks that a part needs: for leaves that are half full, and some
/// for the blocks above them.
fn room(rebuilt: &Rebuilt) -> usize {
    let blocks = match &rebuilt.content {
        Content::Names(names) => Tree::<DirTree>::blocks_to_build(names.len() * RECORDS, 50),
        Content::Extents(list) => Tree::<ExtentTree>::blocks_to_build(list.len(), 50),
        // The attributes of an inode need at most that many blocks.
        Content::Attributes(_) => 64,
        Content::Target => 0,
    };
    blocks + 8
}
