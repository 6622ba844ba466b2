//! Directories, extents, attributes and targets that can't be read as a whole are made anew.
//!
//! Each goes into one transaction: blocks that could be read are used again, so that a full volume
//! can be repaired, and a crash leaves what was there or what there is to be. What a directory has
//! lost gets names in `/lost+found` in the next rounds, where a file has lost extents there is a
//! hole then, and names that lead to a link which is gone are removed.

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

/// The most records that an entry has.
const RECORDS: usize = crate::dir::RECORDS_OF_ENTRY;

impl Repair<'_, '_, '_> {
    /// Makes all parts anew that are broken. What can't be, for want of room in the volume or in
    /// its log, is given up, and what was made anew once is not a second time.
    pub(super) fn trees(&self, state: &mut State) -> Written {
        let mut pool = Pool::new(self.plan);
        for rebuilt in &self.plan.rebuilt {
            let part = (rebuilt.ino, rebuilt.content.part());
            let mut overlay = self.overlay();
            overlay.pool.extend((0..room(rebuilt)).map_while(|_| pool.next()));
            // The last one is taken first.
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

    /// Gives a directory these names, and no others. Of two that are the same the first one stays.
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

/// Gives a file these extents, and no others.
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

/// Returns the most blocks that a part may take, in leaves that are half full, with some for the
/// blocks above them.
fn room(rebuilt: &Rebuilt) -> usize {
    let blocks = match &rebuilt.content {
        Content::Names(names) => Tree::<DirTree>::blocks_to_build(names.len() * RECORDS, 50),
        Content::Extents(list) => Tree::<ExtentTree>::blocks_to_build(list.len(), 50),
        // All attributes of an inode take that many at most.
        Content::Attributes(_) => 64,
        Content::Target => 0,
    };
    (blocks + 8).saturating_sub(rebuilt.blocks.len())
}
