//! The seals of an open file of memory, and the mappings that count against them.

use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::atomic::Ordering;

use crate::base::error::{Named, Result, check_fork};
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::objects::file_description::FileMode;
use crate::objects::seals::{AS_IT_IS, NO_WRITES, SealFlags, Seals};

/// A shared mapping of a sealable file through which the file could be written. Parts of a mapping
/// share one value.
pub(crate) struct WritableMap(File);

impl WritableMap {
    /// Counts a shared mapping, unless the seals prevent writes through it.
    ///
    /// # Errors
    /// `EPERM` if the mapping requests writes despite such seals.
    pub(crate) fn new(
        file: &File,
        writes: bool,
    ) -> std::result::Result<Option<Arc<WritableMap>>, Errno> {
        let inode = file.inode();
        let _locked = inode.lock();
        let Some(seals) = Seals::of(inode) else { return Ok(None) };
        if !seals.get().intersects(NO_WRITES) {
            seals.writable_maps.fetch_add(1, Ordering::AcqRel);
            return Ok(Some(Arc::new(WritableMap(file.clone()))));
        }
        if writes { Err(Errno::PERM) } else { Ok(None) }
    }
}

impl Drop for WritableMap {
    fn drop(&mut self) {
        if let Some(seals) = Seals::of(self.0.inode()) {
            seals.writable_maps.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl File {
    /// Returns the seals of a file of memory (`F_GET_SEALS`).
    ///
    /// # Errors
    /// `EINVAL` for any other file, `EBADF` for an `O_PATH` handle.
    pub fn seals(&self) -> Result<SealFlags> {
        check_fork().named("fcntl")?;
        let seals = match Seals::of(self.inode()) {
            _ if self.is_path() => Err(Errno::BADF),
            None => Err(Errno::INVAL),
            Some(seals) => Ok(seals.get()),
        };
        seals.of("fcntl", &self.0)
    }

    /// Adds seals to a file of memory (`F_ADD_SEALS`), which bind every open file of it. `SHRINK`
    /// and `GROW` fix its size, `WRITE` its contents, `FUTURE_WRITE` also its contents, except
    /// through existing mappings, `EXEC` its execute permissions, and `SEAL` the seals themselves.
    /// `EXEC` on an executable file also adds `SHRINK`, `GROW`, `WRITE` and `FUTURE_WRITE`.
    ///
    /// # Errors
    /// `EPERM` if it is not open for writing, or its seals are sealed, which is the case unless it
    /// was made with [`MemfdFlags::ALLOW_SEALING`](crate::MemfdFlags::ALLOW_SEALING); `EBUSY` for
    /// `WRITE` while a shared mapping could be written; `EINVAL` for other seals or files, `EBADF`
    /// for an `O_PATH` handle.
    pub fn add_seals(&self, seals: SealFlags) -> Result<()> {
        const KNOWN: SealFlags = AS_IT_IS.union(SealFlags::SEAL).union(SealFlags::EXEC);
        let add = || {
            check_fork()?;
            if self.is_path() {
                return Err(Errno::BADF);
            }
            if !self.mode().intersects(FileMode::CAN_WRITE) {
                return Err(Errno::PERM);
            }
            let inode = self.inode();
            match Seals::of(inode) {
                Some(own) if KNOWN.contains(seals) => {
                    let _locked = inode.lock();
                    own.add(inode, seals)
                }
                _ => Err(Errno::INVAL),
            }
        };
        add().of("fcntl", &self.0)
    }
}
