//! Names: the inodes that they refer to, the number of names of each inode, and the paths from the
//! root to all directories.

use std::collections::HashMap;

use super::finding::{Part, Problem};
use super::links::{DIRECTORY, DirState, Seen, UNREADABLE};
use super::state::Check;
use super::watch::Phase;
use crate::dir::{self, NameHash};
use crate::format::inode::ROOT_INO;
use crate::inode::core::InodeCore;

impl Check<'_, '_> {
    /// Checks a directory: its entries, and the inodes that they refer to.
    pub(crate) fn directory(&mut self, ino: u64, core: &InodeCore) {
        self.links.directories.entry(ino).or_default().parent = core.parent;
        let directory = dir::Directory::new(ino, NameHash::of(self.media.volume()));
        let (mut damages, mut blocks) = (Vec::new(), Vec::new());
        let Self { media, tell, links, plan, .. } = self;
        let checked = directory.check(
            &*media,
            core,
            &mut |damage| damages.push(damage),
            &mut |block| blocks.push(block),
            &mut |entry| links.name(tell, plan, (ino, &entry)),
        );
        // Only damage ends a walk that does not write.
        checked.unwrap_or_default();
        if !damages.is_empty() {
            self.broken(ino, Part::Names, damages);
        }
        self.own_unless_broken(ino, Part::Names, blocks);
    }

    /// Compares the names with the inodes, when all are known.
    pub(crate) fn names(&mut self) {
        let total = self.links.chunks.len() as u64;
        let Self { tell, links, plan, is_named, .. } = self;
        for (done, (start, chunk)) in (0..).zip(&links.chunks) {
            tell.progress(Phase::Names, done, total);
            for (ino, seen) in chunk.inodes(*start) {
                if seen.kind == 0 || seen.kind == UNREADABLE {
                    continue;
                }
                let directory = links.directories.get(&ino).filter(|_| seen.kind == DIRECTORY);
                let (found, counted) = (seen.nlink, counted(ino, seen, directory));
                // A name that could not be read may refer to this inode.
                let is_wrong = found != counted && (*is_named || counted > found);
                let is_nameless = found == 0 && counted == 0 && !chunk.is_orphan(ino) && *is_named;
                if is_wrong {
                    tell.add(Problem::Links { ino, found, counted });
                } else if is_nameless {
                    tell.add(Problem::Nameless { ino });
                }
                let parent = directory.and_then(|directory| directory.wrong_parent(ino));
                if let Some((found, expected)) = parent {
                    tell.add(Problem::Parent { ino, found, expected });
                }
                let Some(plan) = plan else { continue };
                if counted == 0 && (is_wrong || is_nameless) {
                    plan.lost(ino);
                } else if is_wrong && *is_named {
                    plan.inode(ino).nlink = Some(counted);
                }
                if let Some((_, expected)) = parent {
                    plan.inode(ino).parent = Some(expected);
                }
            }
        }
        self.connections();
    }

    /// Finds directories that are their own ancestors: no path leads to them from the root.
    fn connections(&mut self) {
        // Whether the ancestors of a directory end at the root, or at least at a directory without
        // a name, which was reported.
        let mut ends: HashMap<u64, bool> = HashMap::with_capacity(self.links.directories.len());
        let mut numbers: Vec<_> = self.links.directories.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let (mut way, mut at) = (Vec::new(), number);
            let has_end = loop {
                if let Some(known) = ends.get(&at) {
                    break *known;
                }
                // Until the climb reaches an end, it has none.
                ends.insert(at, false);
                way.push(at);
                let up = self.links.directories.get(&at).map_or(0, |directory| directory.place(at));
                if up == 0 || at == ROOT_INO {
                    break true;
                }
                at = up;
            };
            if has_end {
                ends.extend(way.into_iter().map(|ino| (ino, true)));
            } else if !way.is_empty() {
                self.tell.add(Problem::Unconnected { ino: number });
                self.plan(|plan| plan.loops.push(number));
            }
        }
    }
}

/// Returns the link count of an inode. A directory has a link for its name, one for itself, and one
/// for each directory in it.
fn counted(ino: u64, seen: Seen, directory: Option<&DirState>) -> u32 {
    match directory {
        Some(_) if seen.names == 0 && ino != ROOT_INO => 0,
        Some(directory) => directory.directories.saturating_add(2),
        None => seen.names,
    }
}
