//! One of two branches that are compared: its volume, read without a mount.

use std::path::Path;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_diskfs::on_disk::{INODE_MAGIC, RECORD_BYTES};
use vfscale_diskfs::rescue::{Loss, Name, Rescue};
use vfscale_diskfs::{BLOCK_BYTES, Extent, InodeCore};
use vfscale_erofs::Attribute;
use vfscale_pool::Branch;

use super::windows::Windows;
use crate::error::pool::PoolError;

/// A branch whose contents do not change while it is compared.
pub(crate) struct Side {
    name: String,
    branch: Arc<Branch>,
    volume: Rescue,
}

impl Side {
    /// Opens the volume in a branch: its log is replayed in memory. `name` is for errors.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`PoolError::Superblock`]; [`PoolError::Damage`] if the log can't be read.
    pub(crate) fn open(name: String, branch: Arc<Branch>) -> Result<Self, PoolError> {
        Self::open_on(name, branch.clone(), branch)
    }

    /// Opens the volume as [`open`](Self::open) does, to walk over its whole tree.
    pub(crate) fn open_to_walk(name: String, branch: Arc<Branch>) -> Result<Self, PoolError> {
        let device = Arc::new(Windows::new(branch.clone()));
        Self::open_on(name, branch, device)
    }

    fn open_on(
        name: String,
        branch: Arc<Branch>,
        device: Arc<dyn Device>,
    ) -> Result<Self, PoolError> {
        let volume = Rescue::open(device, None).map_err(PoolError::Superblock)?;
        if let vfscale_diskfs::rescue::LogRead::Unusable(fault) = volume.log() {
            let what = format!("its log can't be read: {fault}");
            return Err(PoolError::Damage { name, path: "/".into(), what });
        }
        Ok(Self { name, branch, volume })
    }

    /// Returns the branch.
    pub(crate) fn branch(&self) -> &Arc<Branch> {
        &self.branch
    }

    /// Returns the volume.
    pub(super) fn volume(&self) -> &Rescue {
        &self.volume
    }

    pub(crate) fn damaged(&self, path: &Path, what: impl ToString) -> PoolError {
        let (name, path, what) = (self.name.clone(), path.to_owned(), what.to_string());
        PoolError::Damage { name, path, what }
    }

    /// Returns the error of a file that can't be in a view.
    pub(crate) fn unfit(&self, path: &Path, error: vfscale_erofs::Error) -> PoolError {
        PoolError::View { name: self.name.clone(), path: path.to_owned(), error }
    }

    /// Fails if a part of what was read is missing.
    fn whole(&self, path: &Path, loss: Option<Loss>) -> Result<(), PoolError> {
        loss.map_or(Ok(()), |loss| Err(self.damaged(path, loss)))
    }

    pub(crate) fn inode(&self, ino: u64, path: &Path) -> Result<InodeCore, PoolError> {
        let found = self.volume.inode(ino).map_err(|loss| self.damaged(path, loss))?;
        let (core, loss) = found.ok_or_else(|| self.damaged(path, "it has no inode"))?;
        self.whole(path, loss)?;
        Ok(core)
    }

    /// Returns an inode that has a name, if it exists. The number may be one of another branch.
    pub(crate) fn find(&self, ino: u64, path: &Path) -> Result<Option<InodeCore>, PoolError> {
        let found = match self.volume.inode(ino) {
            Ok(found) => found,
            Err(_) if !self.has_inodes(ino, path)? => return Ok(None),
            Err(loss) => return Err(self.damaged(path, loss)),
        };
        let Some((core, loss)) = found.filter(|(core, _)| core.nlink > 0) else { return Ok(None) };
        self.whole(path, loss)?;
        Ok(Some(core))
    }

    /// Returns whether the block is one of inodes in which an inode would be.
    fn has_inodes(&self, ino: u64, path: &Path) -> Result<bool, PoolError> {
        let (mut magic, inodes) = ([0; INODE_MAGIC.0.len()], BLOCK_BYTES / RECORD_BYTES);
        self.read(ino / inodes as u64 * BLOCK_BYTES as u64, &mut magic, path)?;
        Ok(magic == INODE_MAGIC.0)
    }

    /// Returns the names in a directory, in any order.
    pub(crate) fn names(
        &self,
        ino: u64,
        core: &InodeCore,
        path: &Path,
    ) -> Result<Vec<Name>, PoolError> {
        let (names, losses) = self.volume.names(ino, core);
        self.whole(path, losses.into_iter().next())?;
        Ok(names)
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn target(
        &self,
        ino: u64,
        core: &InodeCore,
        path: &Path,
    ) -> Result<Vec<u8>, PoolError> {
        self.volume.target(ino, core).map_err(|loss| self.damaged(path, loss))
    }

    /// Returns the extended attributes, each with its name, in order.
    pub(crate) fn xattrs(
        &self,
        ino: u64,
        core: &InodeCore,
        path: &Path,
    ) -> Result<Vec<Attribute>, PoolError> {
        let (mut attributes, loss) = self.volume.attributes(ino, core);
        self.whole(path, loss)?;
        attributes.sort();
        Ok(attributes)
    }

    /// Returns the extents of a file.
    pub(crate) fn extents(
        &self,
        ino: u64,
        core: &InodeCore,
        path: &Path,
    ) -> Result<Vec<Extent>, PoolError> {
        let (extents, losses) = self.volume.file_extents(ino, core);
        self.whole(path, losses.into_iter().next())?;
        Ok(extents)
    }

    /// Reads bytes of the volume.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8], path: &Path) -> Result<(), PoolError> {
        self.volume.read(offset, buf).map_err(|error| self.damaged(path, error))
    }
}
