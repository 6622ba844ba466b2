//! The directory that `vfscale run` mounts at.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use vfscale::Errno;
use vfscale_fuse::control;
use vfscale_fuse::mount_table::{MountLine, lines};

use crate::elsewhere;
use crate::error::Failure;
use crate::mounts;

/// Name of the directory of the mount, in one that only its user may search.
const INNER: &str = "mnt";

/// Time to find out whether a mount is dead.
const PATIENCE: Duration = Duration::from_secs(1);

/// An empty directory to mount at, in a directory of its own. Both are removed when this is
/// dropped, never their contents.
pub(super) struct TempDir {
    outer: PathBuf,
    inner: PathBuf,
}

impl TempDir {
    /// Makes it, and removes the dead mounts of runs that were killed. Other users may search it if
    /// it is `for_all`.
    pub(super) fn new(for_all: bool) -> Result<TempDir, Failure> {
        let parent = std::env::temp_dir();
        let failed = |e| Failure::TempDir(parent.clone(), e);
        let parent = parent.canonicalize().map_err(failed)?;
        remove_dead(&parent);
        let pid = std::process::id();
        let mut builder = DirBuilder::new();
        builder.mode(if for_all { 0o755 } else { 0o700 });
        let mut n = 0_u32;
        loop {
            let outer = parent.join(format!("vfscale-{pid}-{n}"));
            match builder.create(&outer) {
                Ok(()) => {
                    let dir = TempDir { inner: outer.join(INNER), outer };
                    std::fs::create_dir(&dir.inner).map_err(failed)?;
                    return Ok(dir);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < 10_000 => n += 1,
                Err(e) => return Err(failed(e)),
            }
        }
    }

    /// Returns the directory to mount at.
    pub(super) fn path(&self) -> &Path {
        &self.inner
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir(&self.inner);
        if let Err(e) = removed.and_then(|()| std::fs::remove_dir(&self.outer)) {
            tracing::warn!("cannot remove {}: {e}", self.inner.display());
        }
    }
}

/// Unmounts what processes of this user have mounted that are gone, and removes the directories. A
/// directory without a mount is left alone: one may be there in another namespace.
fn remove_dead(parent: &Path) {
    let Ok(table) = mounts::table() else { return };
    for mount in lines(&table).filter(MountLine::is_ours) {
        let dir = mount.dir();
        let is_dead = process_of(parent, &dir).is_some_and(|pid| test_kill_process(pid).is_err())
            && mounts::Trusted::only_self().has_made(&mount)
            && is_dead(&dir);
        if is_dead && control::unmount(&dir, false, true).is_ok() {
            let outer = dir.parent().unwrap_or(parent).to_owned();
            drop(TempDir { outer, inner: dir });
        }
    }
}

/// Returns the process that has made such a directory in `parent`.
fn process_of(parent: &Path, dir: &Path) -> Option<Pid> {
    let outer = dir.strip_prefix(parent).ok()?.parent().filter(|_| dir.ends_with(INNER))?;
    let (pid, _) = outer.to_str()?.strip_prefix("vfscale-")?.split_once('-')?;
    Pid::from_raw(pid.parse().ok()?)
}

/// Returns whether a mount has no server any more.
fn is_dead(dir: &Path) -> bool {
    // This is a request to the server, whatever the kernel has cached.
    let asked = elsewhere::within(PATIENCE, || Ok(rustix::fs::statfs(dir).map(|_| Vec::new())?));
    asked.is_err_and(|error| error.errno() == Errno::NOTCONN)
}
