//! Names that refer to no inode, have the wrong type, or are surplus names of a directory.

use super::super::overlay::Overlay;
use super::super::plan::NameFix;
use super::{Repair, Written};
use crate::dir::{DirEntry, Directory, NameHash};

/// Maximum number of names that one transaction changes.
const NAMES: usize = 32;

impl Repair<'_, '_, '_> {
    /// Repairs names.
    pub(super) fn names(&self) -> Written {
        // A name that seems to refer to no inode may refer to one in an unknown chunk.
        if !self.check.has_all_chunks {
            return Ok(false);
        }
        let mut fixes = self.plan.names.clone();
        fixes.extend(self.plan.loops.iter().filter_map(|ino| self.way_to(*ino)));
        fixes.sort_by_key(|fix| (fix.directory, fix.position));
        fixes.dedup_by_key(|fix| (fix.directory, fix.position));
        let mut has_written = false;
        for of_one in fixes.chunk_by(|a, b| a.directory == b.directory) {
            for part in of_one.chunks(NAMES) {
                has_written |=
                    self.commit_each(part, &|overlay, part| self.change(overlay, part))?;
            }
        }
        Ok(has_written)
    }

    pub(super) fn directory(&self, ino: u64) -> Directory {
        Directory::new(ino, NameHash::of(self.check.media.volume()))
    }

    fn change(&self, overlay: &mut Overlay<'_, '_>, fixes: &[NameFix]) -> Option<()> {
        let ino = fixes.first()?.directory;
        let mut core = overlay.core(ino)?;
        let directory = self.directory(ino);
        for NameFix { position, name, to, .. } in fixes {
            let position = *position;
            match *to {
                Some((ino, kind)) => {
                    let entry = DirEntry { position, ino, kind, name };
                    directory.replace_at(overlay, &mut core, &entry).ok()?;
                }
                None => directory.remove_at(overlay, &mut core, position, name).ok()?,
            }
        }
        overlay.set_core(ino, &core);
        Some(())
    }

    /// Returns the name of a directory that is its own ancestor.
    fn way_to(&self, ino: u64) -> Option<NameFix> {
        let place = self.check.links.place(ino);
        let core = self.overlay().core(place)?;
        let mut found = None;
        let checked = self.directory(place).check(
            &self.check.media,
            &core,
            &mut |_| {},
            &mut |_| {},
            &mut |entry| {
                if entry.ino == ino && found.is_none() {
                    let (position, name) = (entry.position, entry.name.into());
                    found = Some(NameFix { directory: place, position, name, to: None });
                }
            },
        );
        checked.ok()?;
        found
    }
}
