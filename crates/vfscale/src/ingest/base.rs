//! The base of an overlay, as its view tells it.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use vfscale_erofs::{Found, Inode, Reader};
use vfscale_vfs::Errno;

use super::fault::lie;
use crate::error::pool::PoolError;

type Result<T> = std::result::Result<T, PoolError>;

/// The first bytes of a handle that an overlay notes: its version, and a magic number.
const HANDLE: [u8; 2] = [0, 0xfb];
/// The types of handles of EROFS: of an inode number and a generation.
const NUMBER_32: u8 = 0x01;
const NUMBER_64: u8 = 0x81;

/// A directory of the base.
#[derive(Clone, Debug)]
pub(super) struct Lower {
    pub(super) nid: u64,
    /// Its path from the root.
    pub(super) path: PathBuf,
}

/// The names in a directory of the base, in order.
pub(super) struct Names(Vec<Found>);

impl Names {
    /// Returns the number of what has a name.
    pub(super) fn get(&self, name: &OsStr) -> Option<u64> {
        let found = self.0.binary_search_by(|it| (*it.name).cmp(name.as_bytes()));
        found.ok().map(|at| self.0[at].nid)
    }
}

/// The base.
pub(super) struct Base<'v> {
    reader: Reader<'v>,
}

impl<'v> Base<'v> {
    /// Opens a view.
    pub(super) fn open(view: &'v File) -> Result<Self> {
        let reader = Reader::open(view).map_err(|error| unread(Path::new(""), &error))?;
        Ok(Self { reader })
    }

    pub(super) fn root(&self) -> Lower {
        Lower { nid: self.reader.root(), path: PathBuf::new() }
    }

    fn inode(&self, nid: u64, path: &Path) -> Result<Inode> {
        self.reader.inode(nid).map_err(|error| unread(path, &error))
    }

    /// Returns the names in a directory.
    pub(super) fn names(&self, dir: &Lower) -> Result<Names> {
        let names = self.reader.names(&self.inode(dir.nid, &dir.path)?);
        names.map(Names).map_err(|error| unread(&dir.path, &error))
    }

    /// Returns the directory that has a name in `dir`, if it is one.
    pub(super) fn directory(
        &self,
        (dir, names): (&Lower, &Names),
        name: &OsStr,
    ) -> Result<Option<Lower>> {
        let Some(nid) = names.get(name) else { return Ok(None) };
        let path = dir.path.join(name);
        Ok(self.is_directory(nid, &path)?.then_some(Lower { nid, path }))
    }

    /// Returns whether an inode is a regular file with one name.
    pub(super) fn is_lone_file(&self, nid: u64, path: &Path) -> Result<bool> {
        let attributes = self.inode(nid, path)?.attributes;
        Ok(attributes.mode & 0o170_000 == 0o100_000 && attributes.links == 1)
    }

    fn is_directory(&self, nid: u64, path: &Path) -> Result<bool> {
        Ok(self.inode(nid, path)?.attributes.mode & 0o170_000 == 0o040_000)
    }

    /// Returns the directory that a path leads to, from the root or from `dir`.
    pub(super) fn resolve(&self, dir: Option<&Lower>, path: &Path) -> Result<Option<Lower>> {
        let mut at = match (path.is_absolute(), dir) {
            (true, _) => self.root(),
            (false, Some(dir)) => dir.clone(),
            (false, None) => return Ok(None),
        };
        for part in path.components() {
            at = match part {
                Component::RootDir => continue,
                Component::Normal(name) => match self.directory((&at, &self.names(&at)?), name)? {
                    Some(next) => next,
                    None => return Ok(None),
                },
                _ => return Ok(None),
            };
        }
        Ok(Some(at))
    }

    /// Returns the number of the inode that a handle is of; `None` if there is none in it.
    pub(super) fn number(&self, handle: &[u8], path: &Path) -> Result<Option<u64>> {
        let Some((head, rest)) = handle.split_first_chunk::<5>().filter(|_| !handle.is_empty())
        else {
            return Ok(None);
        };
        let Some((id, number)) = rest.split_first_chunk::<16>() else { return Ok(None) };
        let word = |at: usize| {
            let bytes = number.get(at * 4..at * 4 + 4)?.try_into().ok()?;
            Some(u64::from(u32::from_le_bytes(bytes)))
        };
        let number = match head[4] {
            _ if head[..2] != HANDLE => None,
            NUMBER_64 => word(0).zip(word(1)).map(|(high, low)| high << 32 | low),
            NUMBER_32 => word(0),
            _ => None,
        };
        match number {
            Some(_) if *id != self.reader.id() => {
                let what = "it is a copy of a file of another view";
                Err(lie(path, what, Errno::STALE))
            }
            None => Err(lie(path, "its handle in the base is none of EROFS", Errno::UCLEAN)),
            number => Ok(number),
        }
    }

    /// Finds a path of each of these inodes.
    pub(super) fn paths(&self, wanted: &BTreeMap<u64, PathBuf>) -> Result<BTreeMap<u64, PathBuf>> {
        let (mut found, mut met) = (BTreeMap::new(), HashSet::new());
        let mut stack = vec![self.root()];
        while found.len() < wanted.len()
            && let Some(dir) = stack.pop()
        {
            if !met.insert(dir.nid) {
                let what = "a directory of its view has two names";
                return Err(lie(&dir.path, what, Errno::UCLEAN));
            }
            for Found { name, nid, .. } in self.names(&dir)?.0 {
                let path = dir.path.join(OsStr::from_bytes(&name));
                if matches!(&*name, b"." | b"..") {
                    continue;
                } else if self.is_directory(nid, &path)? {
                    stack.push(Lower { nid, path });
                } else if wanted.contains_key(&nid) {
                    found.insert(nid, path);
                }
            }
        }
        match wanted.iter().find(|(nid, _)| !found.contains_key(nid)) {
            None => Ok(found),
            Some((_, path)) => {
                let what = "it is a copy of no file of the base";
                Err(lie(path, what, Errno::UCLEAN))
            }
        }
    }
}

/// Returns the error of a view that can't be read.
fn unread(path: &Path, error: &vfscale_erofs::Error) -> PoolError {
    lie(path, &format!("its view can't be read: {error}"), Errno::UCLEAN)
}
