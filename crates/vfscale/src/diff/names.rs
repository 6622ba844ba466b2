//! From inodes to names: what differs, by the inodes that may.
//!
//! Directories are told apart by their inodes and not by their paths, so the names in one that was
//! moved are the same names. What has changed of an inode's names has to agree with its number of
//! links; otherwise a directory is missing among the candidates.

use std::collections::{BTreeSet, HashMap, HashSet};

use vfscale_diskfs::{InodeCore, ROOT_INO};

use super::candidates::{Unclear, candidates};
use super::compare::changes;
use super::near::search;
use super::tree::{Edge, Tree};
use super::{Diff, Object, is_same};

/// The names that differ, by their inodes.
#[derive(Default)]
pub(super) struct Names {
    gone: HashMap<Object, Vec<Edge>>,
    come: HashMap<Object, Vec<Edge>>,
    /// Names of candidates that both sides have.
    kept: HashMap<u64, Vec<Edge>>,
}

impl Diff<'_> {
    /// Collects what differs from the blocks that do.
    ///
    /// # Errors
    /// [`Unclear`]; the comparison is of no use then.
    pub(super) fn by_blocks(&mut self) -> Result<(), Unclear> {
        let inodes = candidates(self.a, self.b)?;
        let (mut a, mut b) = (Tree::new(self.a), Tree::new(self.b));
        let mut names = Names::default();
        for ino in &inodes {
            names.compare(*ino, &inodes, (&mut a, &mut b))?;
        }
        names.check(&inodes, (&mut a, &mut b))?;
        let changed = self.changed(&inodes, (&mut a, &mut b))?;
        let wanted = names.missing(&changed, &mut b)?;
        search(self.b, wanted, &inodes, &mut names.kept)?;
        for ino in changed {
            let (Some(one), Some(other)) = (a.inode(ino)?, b.inode(ino)?) else { continue };
            let mut paths = Vec::new();
            if !other.is_directory() {
                for edge in names.kept.get(&ino).into_iter().flatten() {
                    paths.push(b.path_of(edge)?);
                }
            } else if b.object(ino)?.is_some_and(|object| !names.come.contains_key(&object)) {
                paths.push(b.path(ino)?);
            }
            for path in paths {
                self.same(ino, (&one, &other), &path)?;
            }
        }
        for (edges, tree, is_old) in [(names.gone, &mut a, true), (names.come, &mut b, false)] {
            for (object, edges) in edges {
                let lost = self.lost.entry(object).or_default();
                let paths = if is_old { &mut lost.gone } else { &mut lost.come };
                for edge in edges {
                    paths.push(tree.path_of(&edge)?);
                }
            }
        }
        Ok(())
    }

    /// Returns those of the candidates that are the same inode on both sides, and have changed.
    fn changed(
        &mut self,
        inodes: &BTreeSet<u64>,
        (a, b): (&mut Tree<'_>, &mut Tree<'_>),
    ) -> Result<Vec<u64>, Unclear> {
        let mut changed = Vec::new();
        for &ino in inodes {
            let (Some(one), Some(other)) = (a.inode(ino)?, b.inode(ino)?) else { continue };
            let Some(object) = b.object(ino)?.filter(|_| is_same(ino, &one, &other)) else {
                continue;
            };
            let changes = changes((self.a, ino, &one), (self.b, ino, &other), "/".as_ref())?;
            self.known.insert(object, changes);
            if changes.any() {
                changed.push(ino);
            }
        }
        Ok(changed)
    }
}

impl Names {
    /// Compares the names in a directory, if the inode is one on a side.
    fn compare(
        &mut self,
        dir: u64,
        inodes: &BTreeSet<u64>,
        (a, b): (&mut Tree<'_>, &mut Tree<'_>),
    ) -> Result<(), Unclear> {
        let (before, after) = (a.names(dir)?, b.names(dir)?);
        let is_one = a.object(dir)? == b.object(dir)?;
        let mut come: HashMap<&[u8], u64> =
            after.iter().map(|name| (&*name.name, name.ino)).collect();
        for name in &*before {
            let edge = Edge { dir, name: name.name.clone() };
            let is_candidate = inodes.contains(&name.ino);
            if is_one
                && come.get(&*name.name) == Some(&name.ino)
                && (!is_candidate || a.object(name.ino)? == b.object(name.ino)?)
            {
                come.remove(&*name.name);
                if is_candidate {
                    self.kept.entry(name.ino).or_default().push(edge);
                }
            } else {
                let object = a.object(name.ino)?.ok_or(Unclear)?;
                self.gone.entry(object).or_default().push(edge);
            }
        }
        for (name, ino) in come {
            let object = b.object(ino)?.ok_or(Unclear)?;
            self.come.entry(object).or_default().push(Edge { dir, name: name.into() });
        }
        Ok(())
    }

    /// Returns those of the inodes of which not all names are known, and how many are missing.
    fn missing(&self, inodes: &[u64], b: &mut Tree<'_>) -> Result<HashMap<u64, usize>, Unclear> {
        let mut wanted = HashMap::new();
        for ino in inodes {
            let (Some(core), Some(object)) = (b.inode(*ino)?, b.object(*ino)?) else { continue };
            let edges = [self.come.get(&object), self.kept.get(ino)];
            let known = edges.into_iter().flatten().map(Vec::len).sum();
            match links_of(*ino, &core).checked_sub(known) {
                // A directory tells its parent.
                _ if core.is_directory() => {}
                None => return Err(Unclear),
                Some(0) => {}
                Some(missing) => _ = wanted.insert(*ino, missing),
            }
        }
        Ok(wanted)
    }

    /// Compares the changes of the names of each inode with those of its number of links.
    fn check(
        &self,
        inodes: &BTreeSet<u64>,
        (a, b): (&mut Tree<'_>, &mut Tree<'_>),
    ) -> Result<(), Unclear> {
        let mut objects: HashSet<Object> =
            self.gone.keys().chain(self.come.keys()).copied().collect();
        for ino in inodes {
            objects.extend(a.object(*ino)?.into_iter().chain(b.object(*ino)?));
        }
        for object in objects {
            let links = |tree: &mut Tree<'_>| -> Result<usize, Unclear> {
                let is_it = tree.object(object.0)? == Some(object);
                Ok(tree
                    .inode(object.0)?
                    .filter(|_| is_it)
                    .map_or(0, |core| links_of(object.0, &core)))
            };
            let count = |edges: &HashMap<_, Vec<_>>| edges.get(&object).map_or(0, Vec::len);
            if links(a)? + count(&self.come) != links(b)? + count(&self.gone) {
                return Err(Unclear);
            }
        }
        Ok(())
    }
}

/// Returns how many names an inode has.
fn links_of(ino: u64, core: &InodeCore) -> usize {
    match core.is_directory() {
        true => usize::from(ino != ROOT_INO),
        false => core.nlink as usize,
    }
}
