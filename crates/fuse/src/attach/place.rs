//! Where a mount is, so that it and no other is unmounted.
//!
//! A path may lead elsewhere at any time: who owns a directory above the mountpoint may rename it,
//! and put a link in its place. The mountpoint itself keeps its name in its directory while
//! something is mounted there. So the directory is opened, and the mount found and unmounted by
//! its name in that. A descriptor of the mount would keep it in use.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::base::mount_table;

/// The numbers of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MountId {
    /// Device number of the file system, major and minor.
    pub(super) device: (u32, u32),
    /// Number among all mounts; `None` before Linux 5.8.
    id: Option<u64>,
}

/// A directory's name in the directory that it is in.
#[derive(Debug)]
pub(super) struct Place {
    parent: OwnedFd,
    name: OsString,
}

impl Place {
    /// Opens the directory that `dir`, an absolute path, is in.
    ///
    /// # Errors
    /// Any error of `open(2)`.
    pub(super) fn of(dir: &Path) -> io::Result<Place> {
        let (parent, name) = match (dir.parent(), dir.file_name()) {
            (Some(parent), Some(name)) => (parent, name),
            _ => (dir, OsStr::new(".")),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Place { parent: open(parent, flags, Mode::empty())?, name: name.to_owned() })
    }

    /// Returns the numbers of the topmost mount there. Sends its server no request, so it need not
    /// have one.
    ///
    /// # Errors
    /// Any error of `statx(2)`.
    pub(super) fn mount(&self) -> io::Result<MountId> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        let found = statx(&self.parent, &self.name, flags, StatxFlags::TYPE | StatxFlags::MNT_ID)?;
        let has_id = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let device = (found.stx_dev_major, found.stx_dev_minor);
        Ok(MountId { device, id: has_id.then_some(found.stx_mnt_id) })
    }

    /// Opens the directory there, with the root of the topmost mount.
    ///
    /// # Errors
    /// Any error of `open(2)`.
    pub(super) fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.parent, &self.name, flags, Mode::empty())
    }

    /// Unmounts the topmost mount there; `dir` is its path, for a process that has no `/proc`.
    ///
    /// # Errors
    /// Any error of `umount2(2)`.
    pub(super) fn unmount(&self, dir: &Path, flags: UnmountFlags) -> Result<(), Errno> {
        let parent = format!("/proc/self/fd/{}", self.parent.as_raw_fd());
        let flags = flags | UnmountFlags::NOFOLLOW;
        let has_proc = statx(CWD, &parent, AtFlags::empty(), StatxFlags::TYPE).is_ok();
        if has_proc {
            unmount(Path::new(&parent).join(&self.name), flags)
        } else {
            unmount(dir, flags)
        }
    }
}

impl MountId {
    /// Returns where the mount is, and its path there: at `dir`, or where the mount table has it.
    ///
    /// # Errors
    /// `EINVAL` if this process does not see it, or another mount lies on it.
    pub(super) fn find(self, dir: &Path) -> io::Result<(Place, std::path::PathBuf)> {
        let at = |dir: &Path| Place::of(dir).ok().filter(|it| it.mount().is_ok_and(|m| m == self));
        if let Some(place) = at(dir) {
            return Ok((place, dir.to_owned()));
        }
        let id = self.id.ok_or(Errno::INVAL)?;
        let table = std::fs::read(mount_table::PATH)?;
        let line = mount_table::lines(&table).find(|line| line.is(id, self.device));
        let moved = line.map(|line| line.dir());
        let moved = moved.ok_or(Errno::INVAL)?;
        at(&moved).map(|place| (place, moved)).ok_or_else(|| Errno::INVAL.into())
    }
}
