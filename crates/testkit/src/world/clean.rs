//! Checks that vfscale releases the space of a sequence.
//!
//! When every task has ended and everything is removed, as many blocks and inodes must be free as
//! at the start. Otherwise a reference leaked or the accounting is wrong. Memory freed after a
//! grace period is waited for by ending a mount.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::driver::FileSystem;
use vfscale::posix::{At, AtFlags, InodeFlags, MountFlags, OFlags, StatFs, UmountFlags};
use vfscale::{Errno, Error, Mode, Task};

/// Maximum number of stacked mounts.
const STACKED_MAX: usize = 100;

/// Removes everything and describes the space that is not free again, if any. `new_fs` makes a file
/// system to mount: ending that mount waits until removed files are freed.
///
/// # Errors
/// If something can't be removed by its name: files below a mount, or on the root.
pub(crate) fn leaked_space<F: FileSystem>(
    task: &Task,
    fresh: &StatFs,
    new_fs: impl Fn() -> Arc<F>,
) -> Result<Option<String>, Error> {
    task.posix().remount("/", MountFlags::empty())?;
    let root = task.metadata("/")?;
    if task.metadata("/..")?.mnt_id != root.mnt_id {
        return Err(Error::new("clean", Errno::BUSY));
    }
    unguard(task, Path::new("/"))?;
    remove_below(task, Path::new("/"))?;
    for name in task.posix().listxattrat(At::Cwd, "/", AtFlags::empty())? {
        task.posix().removexattrat(At::Cwd, "/", name, AtFlags::empty())?;
    }
    let mut now = *fresh;
    // Once for files that the tasks held, and again for files that those references held.
    for _ in 0..3 {
        task.posix().mkdirat(At::Cwd, "/x", Mode::empty())?;
        task.posix().mount(new_fs(), "/x", MountFlags::empty())?;
        task.posix().umount("/x", UmountFlags::empty())?;
        task.remove_dir("/x")?;
        now = task.posix().statfs(At::Cwd, "/")?;
        if (now.blocks_free, now.files_free) == (fresh.blocks_free, fresh.files_free) {
            return Ok(None);
        }
    }
    let kept = |fresh: u64, now: u64| i128::from(fresh) - i128::from(now);
    Ok(Some(format!(
        "{} blocks and {} inodes are not free again",
        kept(fresh.blocks_free, now.blocks_free),
        kept(fresh.files_free, now.files_free)
    )))
}

/// Clears the flags of a file, which may forbid to remove it.
fn unguard(task: &Task, path: &Path) -> Result<(), Error> {
    if task.symlink_metadata(path)?.flags.intersects(InodeFlags::PRIVILEGED) {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = task.posix().open(path, flags, Mode::empty())?;
        task.posix().ioctl_setflags(&file, InodeFlags::empty())?;
    }
    Ok(())
}

fn remove_below(task: &Task, dir: &Path) -> Result<(), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let names: Vec<OsString> = task
        .posix()
        .open(dir, flags, Mode::empty())?
        .read_dir()
        .map(|entry| entry.map(|entry| entry.name))
        .collect::<Result<_, _>>()?;
    for name in names.into_iter().filter(|name| name != "." && name != "..") {
        remove(task, dir.join(name))?;
    }
    Ok(())
}

fn remove(task: &Task, path: PathBuf) -> Result<(), Error> {
    for _ in 0..STACKED_MAX {
        let stat = task.symlink_metadata(&path)?;
        if !stat.mount_root {
            unguard(task, &path)?;
            if !stat.is_dir() {
                return task.remove_file(&path);
            }
            remove_below(task, &path)?;
            return task.remove_dir(&path);
        }
        task.posix().umount(&path, UmountFlags::DETACH | UmountFlags::NOFOLLOW)?;
    }
    Err(Error::new("clean", Errno::BUSY))
}

#[cfg(test)]
mod tests;
