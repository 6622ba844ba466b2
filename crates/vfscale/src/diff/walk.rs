//! The walk of both trees, side by side: for trees whose blocks do not tell what differs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use vfscale_diskfs::{InodeCore, ROOT_INO};

use super::side::Side;
use super::{Diff, object};
use crate::error::pool::PoolError;

impl Diff<'_> {
    /// Compares what has the same path in both branches, and collects the rest.
    pub(super) fn walk(&mut self) -> Result<(), PoolError> {
        let root = PathBuf::from("/");
        let (one, other) = (self.a.inode(ROOT_INO, &root)?, self.b.inode(ROOT_INO, &root)?);
        self.same(ROOT_INO, (&one, &other), &root)?;
        let mut stack = vec![(root, ROOT_INO, one, other)];
        while let Some((path, ino, one, other)) = stack.pop() {
            let before = self.a.names(ino, &one, &path)?;
            let mut after: HashMap<_, _> =
                self.b.names(ino, &other, &path)?.into_iter().map(|it| (it.name, it.ino)).collect();
            for name in before {
                let path = path.join(OsStr::from_bytes(&name.name));
                let core = self.a.inode(name.ino, &path)?;
                let Some(ino) = after.remove(&name.name) else {
                    self.lose(self.a, path, name.ino, core)?;
                    continue;
                };
                let new = self.b.inode(ino, &path)?;
                if object(ino, &new) != object(name.ino, &core) {
                    self.lose(self.a, path.clone(), name.ino, core)?;
                    self.lose(self.b, path, ino, new)?;
                    continue;
                }
                self.same(ino, (&core, &new), &path)?;
                if core.is_directory() {
                    stack.push((path, ino, core, new));
                }
            }
            for (name, ino) in after {
                let path = path.join(OsStr::from_bytes(&name));
                let core = self.b.inode(ino, &path)?;
                self.lose(self.b, path, ino, core)?;
            }
        }
        Ok(())
    }

    /// Notes a path that only one side has, with all that is below it.
    fn lose(
        &mut self,
        side: &Side,
        path: PathBuf,
        ino: u64,
        core: InodeCore,
    ) -> Result<(), PoolError> {
        let is_old = std::ptr::eq(side, self.a);
        let mut stack = vec![(path, ino, core)];
        while let Some((path, ino, core)) = stack.pop() {
            if core.is_directory() {
                for name in side.names(ino, &core, &path)? {
                    let path = path.join(OsStr::from_bytes(&name.name));
                    let core = side.inode(name.ino, &path)?;
                    stack.push((path, name.ino, core));
                }
            }
            let paths = self.lost.entry(object(ino, &core)).or_default();
            if is_old { &mut paths.gone } else { &mut paths.come }.push(path);
        }
        Ok(())
    }
}
