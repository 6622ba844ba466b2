//! Names in `/lost+found` for inodes that are in use and have none, and a root to put it into.

use std::cell::RefCell;

use super::super::overlay::Overlay;
use super::{Pool, Repair, Written};
use crate::dir::Insertion;
use crate::format::inode::{CHUNK_INODES, ROOT_INO, block_of, chunk_of, records, slot_of};
use crate::format::superblock::Timestamp;
use crate::inode::core::{FileKind, InodeCore, TYPE_DIRECTORY};

/// Maximum number of inodes that one transaction links.
const INODES: usize = 32;
/// Number of names that are tried, in case other inodes have them.
const NAMES: u32 = 16;
/// Name of the directory that inodes without a name are linked into.
const LOST_FOUND: &str = "lost+found";

/// Iterates over a name, and alternatives in case it is taken.
fn names(name: &str) -> impl Iterator<Item = String> {
    let others = (1..NAMES).map(move |number| format!("{name}.{number}"));
    std::iter::once(name.to_owned()).chain(others)
}

impl Repair<'_, '_, '_> {
    /// Links inodes without a name into the directory for them.
    pub(super) fn lost(&self) -> Written {
        let pool = RefCell::new(Pool::new(self.plan));
        let mut has_written = false;
        for inodes in self.plan.lost.chunks(INODES) {
            has_written |= self.commit_each(inodes, &|overlay, inodes| {
                pool.borrow_mut().lend(overlay);
                let linked = self.link(overlay, inodes);
                pool.borrow_mut().settle(overlay);
                linked
            })?;
        }
        Ok(has_written)
    }

    fn link(&self, overlay: &mut Overlay<'_, '_>, inodes: &[u64]) -> Option<()> {
        let place = self.place(overlay)?;
        let mut above = overlay.core(place)?;
        for ino in inodes {
            let mut core = overlay.core(*ino)?;
            self.insert(overlay, place, &mut above, (&format!("#{ino}"), *ino, core.kind()?))?;
            core.nlink = self.check.links.named_once(*ino);
            if core.is_directory() {
                core.parent = place;
                above.nlink = above.nlink.saturating_add(1);
            }
            overlay.set_core(*ino, &core);
        }
        overlay.set_core(place, &above);
        Some(())
    }

    /// Inserts a name, or a similar one.
    fn insert(
        &self,
        overlay: &mut Overlay<'_, '_>,
        directory: u64,
        core: &mut InodeCore,
        (name, ino, kind): (&str, u64, FileKind),
    ) -> Option<()> {
        for name in names(name) {
            let to = (ino, kind);
            match self.directory(directory).insert(overlay, core, name.as_bytes(), to).ok()? {
                Insertion::At(_) => return Some(()),
                Insertion::Exists | Insertion::Full | Insertion::BadName => {}
            }
        }
        None
    }

    /// Returns the directory for inodes without a name. Creates it if it does not exist.
    fn place(&self, overlay: &mut Overlay<'_, '_>) -> Option<u64> {
        let mut root = overlay.core(ROOT_INO)?;
        for name in names(LOST_FOUND) {
            match self.directory(ROOT_INO).lookup(overlay, &root, name.as_bytes()).ok()? {
                Some(found) if found.kind == FileKind::Directory => return Some(found.ino),
                Some(_) => {}
                None => {
                    let ino = self.make(overlay)?;
                    let to = (&*name, ino, FileKind::Directory);
                    self.insert(overlay, ROOT_INO, &mut root, to)?;
                    root.nlink = root.nlink.saturating_add(1);
                    overlay.set_core(ROOT_INO, &root);
                    return Some(ino);
                }
            }
        }
        None
    }

    /// Makes an empty root directory, if there is no root.
    pub(super) fn root(&self) -> Written {
        let mut overlay = self.overlay();
        let made = self.plan.lacks_root.then(|| self.occupy(&mut overlay, ROOT_INO, 0o755));
        if made.flatten().is_some() { self.commit(overlay) } else { Ok(false) }
    }

    /// Creates an empty directory whose parent is the root, in a free inode.
    fn make(&self, overlay: &mut Overlay<'_, '_>) -> Option<u64> {
        let is_free = |free: u64, ino: u64| free >> (ino % CHUNK_INODES) & 1 == 1;
        self.check.links.chunks.iter().find_map(|(start, chunk)| {
            chunk.inodes(*start).find_map(|(ino, seen)| {
                let is_usable = is_free(chunk.free, ino) && seen.kind == 0 && !chunk.is_orphan(ino);
                is_usable.then(|| self.occupy(overlay, ino, 0o700))?.map(|()| ino)
            })
        })
    }

    /// Makes an inode an empty directory whose parent is the root.
    fn occupy(&self, overlay: &mut Overlay<'_, '_>, ino: u64, permissions: u32) -> Option<()> {
        let (block, _) = self.check.media.inodes(block_of(ino)).ok()?;
        let generation = records(&block)[slot_of(ino)].generation();
        let start = chunk_of(block_of(ino));
        let chunk = self.check.links.chunks.get(&start)?;
        let bit = 1 << (ino % CHUNK_INODES);
        self.set_mask(overlay, start, chunk.free & !bit, chunk.orphan & !bit)?;
        let core = InodeCore {
            nlink: 2,
            parent: ROOT_INO,
            ..InodeCore::new(
                TYPE_DIRECTORY | permissions,
                generation.wrapping_add(1),
                Timestamp::now().in_nanoseconds(),
            )
        };
        overlay.set_core(ino, &core);
        Some(())
    }
}
