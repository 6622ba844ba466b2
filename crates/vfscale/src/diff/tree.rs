//! The tree of one side, as far as it is looked at: each part is read once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use vfscale_diskfs::rescue::Name;
use vfscale_diskfs::{InodeCore, ROOT_INO};

use super::object::{Object, object};
use super::side::Side;
use crate::error::pool::PoolError;

/// Most directories above a file: a volume has no more blocks.
const DEPTH_MAX: usize = 1 << 16;

/// Blocks that the lookup of a name reads in most directories.
const LOOKUP_BLOCKS: u64 = 2;

/// A name in a directory, by the number of that.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) dir: u64,
    pub(crate) name: Box<[u8]>,
}

/// The tree of a side.
pub(super) struct Tree<'s> {
    pub(super) side: &'s Side,
    inodes: HashMap<u64, Option<Rc<InodeCore>>>,
    /// The names in directories, by inode.
    names: HashMap<u64, Rc<Vec<Name>>>,
    /// How many names in a directory were looked up singly.
    singly: HashMap<u64, u64>,
    paths: HashMap<u64, PathBuf>,
}

impl<'s> Tree<'s> {
    pub(super) fn new(side: &'s Side) -> Self {
        let paths = HashMap::from([(ROOT_INO, PathBuf::from("/"))]);
        let (inodes, names, singly) = Default::default();
        Self { side, inodes, names, singly, paths }
    }

    /// Notes an inode that has a name, so that it is not asked for.
    pub(super) fn keep(&mut self, ino: u64, core: InodeCore) {
        self.inodes.insert(ino, Some(Rc::new(core)));
    }

    /// Returns an inode that has a name.
    pub(super) fn inode(&mut self, ino: u64) -> Result<Option<Rc<InodeCore>>, PoolError> {
        if let Some(known) = self.inodes.get(&ino) {
            return Ok(known.clone());
        }
        let found = self.side.volume().existing(ino);
        let found = found.map_err(|loss| self.side.damaged(Path::new("/"), loss))?;
        let found = found.filter(|core| core.nlink > 0).map(Rc::new);
        self.inodes.insert(ino, found.clone());
        Ok(found)
    }

    /// Returns which inode has this number, if one with a name has.
    pub(super) fn object(&mut self, ino: u64) -> Result<Option<Object>, PoolError> {
        Ok(self.inode(ino)?.map(|core| object(ino, &core)))
    }

    /// Returns the names in a directory, by inode; none in what is no directory, or does not exist.
    pub(super) fn names(&mut self, ino: u64) -> Result<Rc<Vec<Name>>, PoolError> {
        if let Some(known) = self.names.get(&ino) {
            return Ok(known.clone());
        }
        let mut found = match self.inode(ino)?.filter(|core| core.is_directory()) {
            Some(core) => self.side.names(ino, &core, Path::new("/"))?,
            None => Vec::new(),
        };
        found.sort_unstable_by_key(|name| name.ino);
        let found = Rc::new(found);
        self.names.insert(ino, found.clone());
        Ok(found)
    }

    /// Returns names that lead to an inode from its parent: where it tells that one is, or all. If
    /// there are none, it does not tell its parent.
    pub(super) fn told_edges(&mut self, ino: u64) -> Result<Vec<Edge>, PoolError> {
        let Some(core) = self.inode(ino)?.filter(|core| core.parent != 0) else {
            return Ok(Vec::new());
        };
        let dir = core.parent;
        let edge = |name: &Name| Edge { dir, name: name.name.clone() };
        if let Some(above) = self.inode(dir)?.filter(|above| above.is_directory())
            && !self.names.contains_key(&dir)
        {
            // At most as much is read as the directory has, before all of it is.
            let singly = self.singly.entry(dir).or_default();
            *singly += 1;
            if *singly * LOOKUP_BLOCKS < above.blocks {
                let found = self.side.volume().told_names(ino, &core, &above);
                let found = found.map_err(|loss| self.side.damaged(Path::new("/"), loss))?;
                if !found.is_empty() {
                    return Ok(found.iter().map(edge).collect());
                }
            }
        }
        let names = self.names(dir)?;
        let first = names.partition_point(|name| name.ino < ino);
        Ok(names[first..].iter().take_while(|name| name.ino == ino).map(edge).collect())
    }

    /// Returns the name of a directory other than the root.
    pub(super) fn edge_of(&mut self, ino: u64) -> Result<Edge, PoolError> {
        let is_directory = self.inode(ino)?.is_some_and(|core| core.is_directory());
        let found = if is_directory { self.told_edges(ino)? } else { Vec::new() };
        let lost = || format!("directory {ino} has no name");
        found.into_iter().next().ok_or_else(|| self.side.damaged(Path::new("/"), lost()))
    }

    /// Returns the path of a directory.
    pub(super) fn path(&mut self, dir: u64) -> Result<PathBuf, PoolError> {
        let (mut below, mut at) = (Vec::new(), dir);
        let mut path = loop {
            if let Some(known) = self.paths.get(&at) {
                break known.clone();
            }
            let edge = self.edge_of(at)?;
            below.push((at, edge.name));
            at = edge.dir;
            if below.len() > DEPTH_MAX {
                return Err(self
                    .side
                    .damaged(Path::new("/"), format!("directory {dir} is in a loop")));
            }
        };
        for (dir, name) in below.into_iter().rev() {
            path.push(OsStr::from_bytes(&name));
            self.paths.insert(dir, path.clone());
        }
        Ok(path)
    }

    /// Returns the path of a name.
    pub(super) fn path_of(&mut self, edge: &Edge) -> Result<PathBuf, PoolError> {
        Ok(self.path(edge.dir)?.join(OsStr::from_bytes(&edge.name)))
    }
}
