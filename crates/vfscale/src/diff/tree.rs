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
    names: HashMap<u64, Rc<Vec<Name>>>,
    paths: HashMap<u64, PathBuf>,
}

impl<'s> Tree<'s> {
    pub(super) fn new(side: &'s Side) -> Self {
        let paths = HashMap::from([(ROOT_INO, PathBuf::from("/"))]);
        Self { side, inodes: HashMap::new(), names: HashMap::new(), paths }
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

    /// Returns the names in a directory; none in what is no directory, or does not exist.
    pub(super) fn names(&mut self, ino: u64) -> Result<Rc<Vec<Name>>, PoolError> {
        if let Some(known) = self.names.get(&ino) {
            return Ok(known.clone());
        }
        let found = match self.inode(ino)?.filter(|core| core.is_directory()) {
            Some(core) => self.side.names(ino, &core, Path::new("/"))?,
            None => Vec::new(),
        };
        let found = Rc::new(found);
        self.names.insert(ino, found.clone());
        Ok(found)
    }

    /// Returns the name of a directory other than the root.
    pub(super) fn edge_of(&mut self, ino: u64) -> Result<Edge, PoolError> {
        let side = self.side;
        let lost = || side.damaged(Path::new("/"), format!("directory {ino} has no name"));
        let core = self.inode(ino)?.filter(|core| core.is_directory()).ok_or_else(lost)?;
        let names = self.names(core.parent)?;
        let name = names.iter().find(|name| name.ino == ino).ok_or_else(lost)?.name.clone();
        Ok(Edge { dir: core.parent, name })
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
