//! Rebuilding of directories, extents, attributes and targets that can't be read completely.
//!
//! Each part is rebuilt in one transaction. Its readable blocks are used again, so a full volume
//! can be repaired too, and a crash leaves either the old part or the new one. Inodes that lost
//! their names with a part of a directory get names in `/lost+found` in the next rounds, lost
//! extents of a file become a hole, and names of a link whose target is lost are removed.

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
            let mut overlay = self.overlay();
            overlay.pool.extend((0..room(rebuilt)).map_while(|_| pool.next()));
            // The readable blocks are used first, because the pool is used from its end.
            overlay.pool.extend(&rebuilt.blocks);
            let is_made = state.rebuilt.insert(part)
                && self.rebuild(&mut overlay, rebuilt).is_some()
                && self.commit(overlay)?;
            if !is_made {
                state.given_up.insert(part);
            }
        }
        Ok(!self.plan.rebuilt.is_empty())
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

/// Returns the maximum number of blocks that a part needs besides its readable ones: for leaves
/// that are half full, and some for the blocks above them.
fn room(rebuilt: &Rebuilt) -> usize {
    let blocks = match &rebuilt.content {
        Content::Names(names) => Tree::<DirTree>::blocks_to_build(names.len() * RECORDS, 50),
        Content::Extents(list) => Tree::<ExtentTree>::blocks_to_build(list.len(), 50),
        // The attributes of an inode need at most that many blocks.
        Content::Attributes(_) => 64,
        Content::Target => 0,
    };
    (blocks + 8).saturating_sub(rebuilt.blocks.len())
}
