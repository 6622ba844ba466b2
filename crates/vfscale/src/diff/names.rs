//! From inodes to names: what differs, by the inodes that may.
//!
//! Directories are told apart by their inodes and not by their paths, so the names in one that was
//! moved are the same names. What has changed of an inode's names has to agree with its number of
//! links; otherwise a directory is missing among the candidates.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use vfscale_diskfs::{InodeCore, ROOT_INO};

use super::candidates::{Unclear, candidates};
use super::edges::Edges;
use super::near::search;
use super::object::{Object, is_same};
use super::side::Side;
use super::tree::{Edge, Tree};

/// Records of one inode, of each side.
type Both = (Rc<InodeCore>, Rc<InodeCore>);

impl<'s> Edges<'s> {
    /// Finds what differs from the blocks that do.
    ///
    /// # Errors
    /// [`Unclear`].
    pub(super) fn by_blocks(a: &'s Side, b: &'s Side) -> Result<Self, Unclear> {
        let inodes = candidates(a, b)?;
        let mut edges = Self::new(a, b);
        for ino in &inodes {
            edges.compare_names(*ino, &inodes)?;
        }
        edges.check_links(&inodes)?;
        for ino in &inodes {
            if let Some((one, other)) = edges.both(*ino)? {
                edges.compare(*ino, (&one, &other), "/".as_ref())?;
            }
        }
        edges.kept.retain(|ino, _| edges.changed.contains_key(ino));
        edges.searched = inodes;
        Ok(edges)
    }

    /// Finds the names that both sides have of those inodes that have changed and are `wanted`.
    ///
    /// # Errors
    /// [`Unclear`].
    pub(super) fn find_names(&mut self, wanted: impl Fn(u64) -> bool) -> Result<(), Unclear> {
        let missing = self.missing(wanted)?;
        search(self.b.side, missing, &self.searched, &mut self.kept)
    }

    /// Returns an inode of both sides, if it is the same one.
    fn both(&mut self, ino: u64) -> Result<Option<Both>, Unclear> {
        let both = self.a.inode(ino)?.zip(self.b.inode(ino)?);
        Ok(both.filter(|(one, other)| is_same(ino, one, other)))
    }

    /// Compares the names in a directory, if the inode is one on a side.
    fn compare_names(&mut self, dir: u64, inodes: &BTreeSet<u64>) -> Result<(), Unclear> {
        let (before, after) = (self.a.names(dir)?, self.b.names(dir)?);
        let is_one = self.a.object(dir)? == self.b.object(dir)?;
        let mut come: HashMap<&[u8], u64> =
            after.iter().map(|name| (&*name.name, name.ino)).collect();
        for name in &*before {
            let edge = Edge { dir, name: name.name.clone() };
            let is_candidate = inodes.contains(&name.ino);
            if is_one
                && come.get(&*name.name) == Some(&name.ino)
                && (!is_candidate || self.a.object(name.ino)? == self.b.object(name.ino)?)
            {
                come.remove(&*name.name);
                if is_candidate {
                    self.kept.entry(name.ino).or_default().push(edge);
                }
            } else {
                let object = self.a.object(name.ino)?.ok_or(Unclear)?;
                self.gone.entry(object).or_default().push(edge);
            }
        }
        for (name, ino) in come {
            let object = self.b.object(ino)?.ok_or(Unclear)?;
            self.come.entry(object).or_default().push(Edge { dir, name: name.into() });
        }
        Ok(())
    }

    /// Returns those of the files that have changed of which not all names are known, and how many
    /// are missing. A directory tells its parent, so its name is found at once.
    fn missing(&mut self, is_wanted: impl Fn(u64) -> bool) -> Result<HashMap<u64, usize>, Unclear> {
        let mut wanted = HashMap::new();
        let changed = self.changed.keys().copied().filter(|ino| is_wanted(*ino));
        for ino in changed.collect::<Vec<_>>() {
            let (Some(core), Some(object)) = (self.b.inode(ino)?, self.b.object(ino)?) else {
                continue;
            };
            let edges = [self.come.get(&object), self.kept.get(&ino)];
            let known = edges.into_iter().flatten().map(Vec::len).sum();
            match links_of(ino, &core).checked_sub(known) {
                None => return Err(Unclear),
                Some(0) => {}
                Some(_) if core.is_directory() => {
                    let edge = self.b.edge_of(ino)?;
                    self.kept.entry(ino).or_default().push(edge);
                }
                Some(missing) => _ = wanted.insert(ino, missing),
            }
        }
        Ok(wanted)
    }

    /// Compares the changes of the names of each inode with those of its number of links.
    fn check_links(&mut self, inodes: &BTreeSet<u64>) -> Result<(), Unclear> {
        let mut objects: HashSet<Object> =
            self.gone.keys().chain(self.come.keys()).copied().collect();
        for ino in inodes {
            objects.extend(self.a.object(*ino)?.into_iter().chain(self.b.object(*ino)?));
        }
        let links = |tree: &mut Tree<'_>, object: Object| -> Result<usize, Unclear> {
            let is_it = tree.object(object.0)? == Some(object);
            let core = tree.inode(object.0)?.filter(|_| is_it);
            Ok(core.map_or(0, |core| links_of(object.0, &core)))
        };
        for object in objects {
            let [gone, come] =
                [&self.gone, &self.come].map(|edges| edges.get(&object).map_or(0, Vec::len));
            if links(&mut self.a, object)? + come != links(&mut self.b, object)? + gone {
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
