//! The table of mounts of this process, `/proc/self/mountinfo`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use vfscale_fuse::mount_table::{MountLine, PATH, lines};

use crate::error::Failure;

/// Reads the table.
pub(crate) fn table() -> Result<Vec<u8>, Failure> {
    std::fs::read(PATH).map_err(|error| Failure::System(PATH, error))
}

/// Returns the topmost mount at the directory `dir`.
pub(crate) fn at<'a>(table: &'a [u8], dir: &Path) -> Option<MountLine<'a>> {
    lines(table).rfind(|mount| mount.dir() == dir)
}

/// The users whose mounts a command believes: root, its own, and the owner of the image. Every
/// other user can mount something with the source of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trusted {
    root: u32,
    own: u32,
    owner: Option<u32>,
}

impl Trusted {
    /// Returns the users that are trusted with an image, if one is named.
    pub(crate) fn with(image: Option<&Path>) -> Trusted {
        let owner = image.and_then(|image| image.metadata().ok()).map(|meta| meta.uid());
        Trusted { root: 0, own: rustix::process::geteuid().as_raw(), owner }
    }

    /// Returns the user of this process alone.
    pub(crate) fn only_self() -> Trusted {
        let own = rustix::process::geteuid().as_raw();
        Trusted { root: own, own, owner: None }
    }

    /// Returns whether a user is one of them.
    pub(crate) fn has(self, user: u32) -> bool {
        user == self.root || user == self.own || Some(user) == self.owner
    }

    /// Returns whether one of them has made the mount.
    pub(crate) fn has_made(self, mount: &MountLine<'_>) -> bool {
        mount.user().is_some_and(|user| self.has(user))
    }
}

/// Returns the directories at which branches of the image are mounted by users that are trusted
/// with it, and that no other mount hides: the latest mount first, each device once.
pub(crate) fn of(table: &[u8], image: &Path) -> Vec<PathBuf> {
    let image = &image.canonicalize().unwrap_or_else(|_| image.to_owned());
    let trusted = Trusted::with(Some(image));
    let is_topmost = |mount: &MountLine<'_>| {
        at(table, &mount.dir()).is_some_and(|topmost| topmost.device() == mount.device())
    };
    let mut devices = Vec::new();
    let mut dirs = Vec::new();
    for mount in lines(table).rev().filter(|mount| is_of(mount, image)) {
        if !devices.contains(&mount.device()) && trusted.has_made(&mount) && is_topmost(&mount) {
            devices.push(mount.device());
            dirs.push(mount.dir());
        }
    }
    dirs
}

/// Returns whether a path leads to a directory. Sends the server of a mount at it no request.
pub(crate) fn is_dir(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    found.is_ok_and(|it| FileType::from_raw_mode(it.stx_mode.into()).is_dir())
}

/// Returns the device number of what is mounted at a directory. Sends its server no request.
pub(crate) fn device_of(dir: &Path) -> std::io::Result<(u32, u32)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, dir, flags, StatxFlags::TYPE)?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Returns the source of the mount of vfscale that a directory is in.
pub(crate) fn source_around(table: &[u8], dir: &Path) -> Option<PathBuf> {
    let (major, minor) = device_of(&dir.canonicalize().ok()?).ok()?;
    let device = format!("{major}:{minor}");
    let is_it = |mount: &MountLine<'_>| mount.is_ours() && mount.device() == device.as_bytes();
    lines(table).find(is_it).map(|mount| mount.source())
}

/// Returns whether the whole tree of the volume in `image` is mounted here.
fn is_of(mount: &MountLine<'_>, image: &Path) -> bool {
    // The path is shown as text, whatever its bytes are.
    let image = image.display().to_string();
    mount.is_whole() && mount.is_ours() && *mount.source() == *image
}

#[cfg(test)]
mod tests;
