//! The directory of a mount for a time, as that of `vfscale run`.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use vfscale::Escaped;
use vfscale_command::say;
use vfscale_fuse::control;

use crate::error::Failure;
use crate::mounts;

/// Name of the directory of the mount, in one that only its user may search.
const INNER: &str = "mnt";

/// First part of the name of that one.
const PREFIX: &str = "vfscale-";

/// The largest id that Linux gives a process.
const PID_MAX: u32 = 1 << 22;

/// Time that processes left behind by the command get to leave the file system.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// An empty directory to mount at, in a directory of its own. Both are removed when this is
/// dropped, never their contents.
///
/// Each process that uses the outer one has a shared lock of it until it ends. If nobody has, the
/// runs were killed.
pub(crate) struct TempDir {
    outer: PathBuf,
    inner: PathBuf,
    _lock: OwnedFd,
}

impl TempDir {
    /// Makes it, and removes the dead mounts and the directories of runs that were killed. Other
    /// users may search it if it is `for_all`.
    pub(crate) fn new(for_all: bool) -> Result<TempDir, Failure> {
        let parent = std::env::temp_dir();
        let failed = |e| Failure::TempDir(parent.clone(), e);
        let parent = parent.canonicalize().map_err(failed)?;
        remove_dead(&parent);
        let pid = std::process::id();
        let mut builder = DirBuilder::new();
        builder.mode(if for_all { 0o755 } else { 0o700 });
        for n in 0_u32.. {
            let outer = parent.join(format!("{PREFIX}{pid}-{n}"));
            let made = builder.create(&outer).and_then(|()| {
                let dir = TempDir::shared(&outer.join(INNER))?;
                std::fs::create_dir(&dir.inner).map(|()| dir)
            });
            match made {
                // Another run has found it without a lock.
                Err(e) if e.kind() == io::ErrorKind::NotFound && parent.is_dir() && n < 10_000 => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < 10_000 => {}
                made => return made.map_err(failed),
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// Uses the directory that another run has made.
    pub(crate) fn shared(inner: &Path) -> io::Result<TempDir> {
        let outer = inner.parent().unwrap_or(inner).to_owned();
        let lock = rustix::fs::open(&outer, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        flock(&lock, FlockOperation::LockShared)?;
        Ok(TempDir { outer, inner: inner.to_owned(), _lock: lock })
    }

    /// Returns the directory to mount at.
    pub(crate) fn path(&self) -> &Path {
        &self.inner
    }

    /// Leaves it to others, who use it.
    pub(crate) fn leave(mut self) {
        self.outer.clear();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !self.outer.as_os_str().is_empty()
            && let Err(e) = remove(&self.outer)
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {e}", self.inner.display());
        }
    }
}

/// Removes both directories. A run may have been killed before it made the inner one, and another
/// one may have removed what was not locked yet.
fn remove(outer: &Path) -> io::Result<()> {
    match std::fs::remove_dir(outer.join(INNER)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => std::fs::remove_dir(outer),
    }
}

/// Removes what runs of this user have left that were killed, in a directory.
pub(crate) fn remove_dead(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let outer = entries.flatten().filter(|it| is_of_run(&it.file_name())).map(|it| it.path());
    for outer in outer {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(lock) = rustix::fs::open(&outer, flags, Mode::empty()) else { continue };
        let own = rustix::process::geteuid().as_raw();
        let is_own = rustix::fs::fstat(&lock).is_ok_and(|stat| stat.st_uid == own);
        if is_own && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_unused(&outer);
        }
    }
}

/// Returns whether a directory with this name is one of a run: `vfscale-PID-N`.
fn is_of_run(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    let is_number = |text: &str, most: u32| text.parse().is_ok_and(|number: u32| number <= most);
    numbers.is_some_and(|(pid, n)| is_number(pid, PID_MAX) && is_number(n, u32::MAX))
}

/// Removes the directories of a run that is gone, with its mount if that is dead.
fn remove_unused(outer: &Path) {
    let dir = outer.join(INNER);
    let Ok(table) = mounts::table() else { return };
    let Some(mount) = mounts::at(&table, &dir) else {
        let _ = remove(outer);
        return;
    };
    let is_own = mount.is_ours() && mounts::Trusted::only_self().has_made(&mount);
    if is_own && super::is_dead(&dir) {
        let _ = unmount_dead(&dir);
    }
}

/// Unmounts what has no server any more, and removes the directories if a run has made them.
pub(crate) fn unmount_dead(dir: &Path) -> io::Result<()> {
    control::unmount(dir, false, true)?;
    if let Some(outer) = dir.parent().filter(|_| dir.ends_with(INNER))
        && outer.file_name().is_some_and(is_of_run)
    {
        let _ = remove(outer);
    }
    Ok(())
}

/// Says that processes have lost their file system.
pub(crate) fn say_forced(dir: &Path) {
    let dir = Escaped::new(dir);
    say(format_args!(
        "vfscale: processes that the command left behind used {dir}; it was unmounted under them"
    ));
}
