//! The walk of both trees, side by side: for trees whose blocks do not tell what differs.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale_diskfs::ROOT_INO;

use super::edges::Edges;
use super::object::{Object, is_same, object};
use super::side::Side;
use super::tree::Edge;
use crate::error::pool::PoolError;

/// A name that only one side has.
struct Single {
    path: PathBuf,
    edge: Edge,
    ino: u64,
    is_old: bool,
}

/// A walk that is under way.
struct Walk<'s> {
    edges: Edges<'s>,
    /// The directories that were met, and the files with several names.
    met: HashSet<Object>,
    /// Directories that both have, and names that only one has, which are to be looked at.
    pairs: Vec<(PathBuf, u64)>,
    singles: Vec<Single>,
}

impl<'s> Edges<'s> {
    /// Finds what differs by a walk of both trees: the directories of both, and what only one has.
    pub(super) fn walk(a: &'s Side, b: &'s Side) -> Result<Self, PoolError> {
        let (met, pairs, singles) = Default::default();
        let mut walk = Walk { edges: Self::new(a, b), met, pairs, singles };
        walk.meet(ROOT_INO, Path::new("/"))?;
        loop {
            if let Some(single) = walk.singles.pop() {
                walk.single(single)?;
            } else if let Some((path, ino)) = walk.pairs.pop() {
                walk.pair(&path, ino)?;
            } else {
                return Ok(walk.edges);
            }
        }
    }
}

impl Walk<'_> {
    /// Compares an inode that both sides may have. Returns whether they do.
    fn meet(&mut self, ino: u64, path: &Path) -> Result<bool, PoolError> {
        let (a, b) = (self.edges.a.side, self.edges.b.side);
        let (Some(one), Some(other)) = (a.find(ino, path)?, b.find(ino, path)?) else {
            return Ok(false);
        };
        if !is_same(ino, &one, &other) {
            return Ok(false);
        }
        let is_dir = one.is_directory();
        if (is_dir || one.nlink > 1) && !self.met.insert(object(ino, &one)) {
            return Ok(true);
        }
        self.edges.compare(ino, (&one, &other), path)?;
        if is_dir {
            self.pairs.push((path.to_owned(), ino));
            self.edges.a.keep(ino, one);
            self.edges.b.keep(ino, other);
        }
        Ok(true)
    }

    /// Compares the names in a directory that both have.
    fn pair(&mut self, path: &Path, dir: u64) -> Result<(), PoolError> {
        let (a, b) = (self.edges.a.side, self.edges.b.side);
        let before = a.names(dir, &a.inode(dir, path)?, path)?;
        let after = b.names(dir, &b.inode(dir, path)?, path)?;
        let mut after: HashMap<_, _> = after.into_iter().map(|it| (it.name, it.ino)).collect();
        for name in before {
            let path = path.join(OsStr::from_bytes(&name.name));
            let ino = name.ino;
            let is_kept = after.get(&name.name) == Some(&ino) && self.meet(ino, &path)?;
            let edge = Edge { dir, name: name.name };
            if !is_kept {
                self.singles.push(Single { path, edge, ino, is_old: true });
                continue;
            }
            after.remove(&edge.name);
            if self.edges.changed.contains_key(&ino) {
                self.edges.kept.entry(ino).or_default().push(edge);
            }
        }
        for (name, ino) in after {
            let path = path.join(OsStr::from_bytes(&name));
            self.singles.push(Single { path, edge: Edge { dir, name }, ino, is_old: false });
        }
        Ok(())
    }

    /// Notes a name that only one side has, and what is below it if the other one has not that
    /// directory.
    fn single(&mut self, Single { path, edge, ino, is_old }: Single) -> Result<(), PoolError> {
        let edges = &mut self.edges;
        let (tree, names) = match is_old {
            true => (&mut edges.a, &mut edges.gone),
            false => (&mut edges.b, &mut edges.come),
        };
        let (side, core) = (tree.side, tree.side.inode(ino, &path)?);
        let object = object(ino, &core);
        names.entry(object).or_default().push(edge);
        if self.meet(ino, &path)? || !core.is_directory() || !self.met.insert(object) {
            return Ok(());
        }
        for name in side.names(ino, &core, &path)? {
            let path = path.join(OsStr::from_bytes(&name.name));
            let edge = Edge { dir: ino, name: name.name };
            self.singles.push(Single { path, edge, ino: name.ino, is_old });
        }
        let tree = if is_old { &mut self.edges.a } else { &mut self.edges.b };
        tree.keep(ino, core);
        Ok(())
    }
}
