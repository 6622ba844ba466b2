//! The seals of an open file of memory.

use rustix::io::Errno;

use crate::base::error::{Named, Result, check_fork};
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::objects::file_description::FileMode;
use crate::objects::seals::{AS_IT_IS, SealFlags, Seals};

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
    /// and `GROW` fix its size, `WRITE` its contents, `FUTURE_WRITE` likewise, since there are
    /// no mappings, `EXEC` its execute permissions, and `SEAL` the seals themselves.
    /// `EXEC` on an executable file also adds `SHRINK`, `GROW`, `WRITE` and `FUTURE_WRITE`.
    ///
    /// # Errors
    /// `EPERM` if it is not open for writing, or its seals are sealed, which is the case unless it
    /// was made with [`MemfdFlags::ALLOW_SEALING`](crate::MemfdFlags::ALLOW_SEALING); `EINVAL` for
    /// other seals or files, `EBADF` for an `O_PATH` handle.
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
