//! The calls of `ioctl_iflags(2)`: the flags of an inode, as `lsattr(1)` reads them and `chattr(1)`
//! sets them.

use rustix::io::Errno;
use vfscale_sync::lock::assert_held;
use vfscale_sync::rcu;

use crate::base::error::{Outcome, Result, check_fork};
use crate::base::lock_classes::InodeData;
use crate::base::types::{Capabilities, InodeFlags};
use crate::file::failed::OnFile;
use crate::file::open_file::File;
use crate::file::synchronous::sync_change;
use crate::objects::inode::Inode;
use crate::objects::setattr::Plan;
use crate::objects::vfsmount::WriteAccess;
use crate::security::cred::Credentials;
use crate::syscalls::posix::Calls;

/// Returns the flags that the file system stores for files like this one.
fn storable(file: &File) -> Outcome<InodeFlags> {
    if file.is_path() {
        return Err(Errno::BADF);
    }
    let inode = file.inode();
    let stored = inode.sb().fs().inode_flags();
    let has_flags = inode.is_file() || inode.is_dir();
    if has_flags && !stored.is_empty() { Ok(stored) } else { Err(Errno::NOTTY) }
}

/// Plans a change of the flags, if `cred` may make it.
fn plan(
    inode: &Inode,
    flags: InodeFlags,
    stored: InodeFlags,
    cred: &Credentials,
) -> Outcome<Plan<'static>> {
    assert_held::<InodeData>();
    let is_privileged = (inode.flags() ^ flags).intersects(InodeFlags::PRIVILEGED);
    let is_refused = is_privileged && !cred.has(Capabilities::LINUX_IMMUTABLE);
    if is_refused || !cred.owns(inode) {
        return Err(Errno::PERM);
    }
    if !stored.contains(flags) {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(Plan { flags: Some(flags), ..Plan::default() })
}

impl File {
    /// Returns whether a file of its file system may be, or have been, immutable or only appended
    /// to ([`InodeFlags::PRIVILEGED`]). Once true, it stays true; on a volume also for later
    /// mounts.
    pub fn may_have_immutable(&self) -> bool {
        self.inode().sb().has_immutable()
    }
}

impl Calls<'_> {
    /// Returns the flags of a file or directory (`FS_IOC_GETFLAGS`), however it was opened.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle; `ENOTTY` for other types of files, and if the file system
    /// stores no flags.
    pub fn ioctl_getflags(&self, file: &File) -> Result<InodeFlags> {
        let get = || {
            check_fork()?;
            storable(file).map(|_| file.inode().flags())
        };
        get().of("ioctl", &file.0)
    }

    /// Replaces the flags of a file or directory (`FS_IOC_SETFLAGS`), however it was opened.
    ///
    /// A tree in memory stores the flags that `tmpfs` does: not `SYNC` and `DIRSYNC`. New files and
    /// directories get `NODUMP` and `NOATIME` of their directory; files also `SYNC`, directories
    /// `SYNC` and `DIRSYNC`. Blocks as `fchmod` does.
    ///
    /// # Errors
    /// `EPERM` if the caller does not own the file, and without `CAP_LINUX_IMMUTABLE` for a change
    /// of `IMMUTABLE` or `APPEND`; `EOPNOTSUPP` for a flag that the file system does not store;
    /// `EROFS`; `ENOSPC` and `EIO`; those of [`ioctl_getflags`](Self::ioctl_getflags).
    pub fn ioctl_setflags(&self, file: &File, flags: InodeFlags) -> Result<()> {
        let set = || {
            check_fork()?;
            if file.is_path() {
                return Err(Errno::BADF);
            }
            let _write = WriteAccess::new(file.path().mount())?;
            let (inode, stored) = (file.inode(), storable(file)?);
            inode.sb().with_space(|| {
                let _locked = inode.lock();
                let guard = rcu::pin();
                let mut plan = plan(inode, flags, stored, self.task.cred(&guard))?;
                if flags.intersects(InodeFlags::PRIVILEGED) {
                    inode.sb().note_immutable();
                }
                if inode.is_backed() {
                    drop(guard);
                    return plan.store(inode);
                }
                plan.apply(inode, &guard);
                Ok(())
            })?;
            sync_change(inode)
        };
        set().of("ioctl", &file.0)
    }
}
