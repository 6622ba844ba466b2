//! A volume in an image, by the library in this process.
//!
//! All cases with the same [`Scaling`] share one open image, each in a directory of its own, as on
//! a mounted file system. The named image is for cases with all patches; cases with disabled
//! patches get an image of their own in the same directory, since a volume can be open only once.
//! Images and directories that were made for a run are removed with it.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::block::DeviceOptions;
use vfscale::posix::{At, UmountFlags};
use vfscale::{Mode, Scaling, VolumeError};
use vfscale_vfs::lockstat::ThreadOwner;

use super::calls::{Calls as _, Target};
use super::library::TaskCalls;
use super::spec::own_directory;
use crate::base::error::{Error, Fault, Outcome, Result};
use crate::base::results::Checkpoint;

/// Size of an image that a run makes. The image is sparse.
pub(super) const IMAGE_BYTES: u64 = 8 << 30;

/// An open image of a run. Dropping it removes the run's files, and closes the volume.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    /// The volume; `None` once the image is being dropped.
    open: Option<vfscale::Volume>,
    /// The run's directory in it.
    dir: String,
    cases: AtomicU64,
}

impl Image {
    /// Opens the image at `path`, or makes one, which is removed at the end of the run.
    ///
    /// # Errors
    /// Returns an error if the image holds no volume, another process has locked it, or there is no
    /// room.
    pub fn open(path: &Path, scaling: Scaling) -> Result<Arc<Image>> {
        let volume = vfscale::volume(path).create(IMAGE_BYTES).scaling(scaling).open();
        let volume = volume.map_err(Error::Volume)?;
        let task = volume.task();
        let failed = |error: vfscale::Error| {
            let name = path.display().to_string();
            Error::Volume(VolumeError::Mount { name, errno: error.errno() })
        };
        let mode = Mode::from(0o755);
        let dir = own_directory(|name| match task.posix().mkdirat(At::Cwd, name, mode) {
            Err(e) if e.errno() == vfscale::Errno::EXIST => Ok(false),
            made => made.map(|()| true),
        });
        let dir = format!("/{}", dir.map_err(failed)?);
        drop(task);
        let (path, cases) = (path.to_owned(), AtomicU64::new(0));
        Ok(Arc::new(Image { path, open: Some(volume), dir, cases }))
    }

    /// Makes an image next to `path` for cases with the `n`th set of disabled patches.
    ///
    /// # Errors
    /// Returns [`Error::Usage`] if the file exists, and any error of [`open`](Self::open).
    pub fn beside(path: &Path, n: usize, scaling: Scaling) -> Result<Arc<Image>> {
        let mut name = OsString::from(path);
        name.push(format!(".before-{}-{n}", std::process::id()));
        let path = PathBuf::from(name);
        if exists(&path)? {
            let what = format!("{} exists already; remove it", path.display());
            return Err(Error::Usage(what));
        }
        Image::open(&path, scaling)
    }

    /// Makes a directory in it for one case.
    ///
    /// # Errors
    /// Any error of `mkdir(2)`.
    pub fn case(self: &Arc<Self>) -> Outcome<Volume> {
        let n = self.cases.fetch_add(1, Ordering::Relaxed);
        let dir = format!("{}/case{n}", self.dir);
        if let Some(volume) = &self.open {
            volume.task().create_dir(&dir)?;
        }
        Ok(Volume { image: Arc::clone(self), dir: dir.into() })
    }

    /// Returns a description of the image, in place of mount options.
    #[must_use]
    pub fn options(&self) -> String {
        let made = self.open.as_ref().is_some_and(|volume| volume.is_new());
        let made = if made { "made for the run" } else { "as it was" };
        format!("volume {}, {made}", self.path.display())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let Some(volume) = self.open.take() else { return };
        let is_new = volume.is_new();
        if !is_new && let Err(e) = volume.task().remove_dir_all(&self.dir) {
            eprintln!("vfscale bench: cannot remove {} in {}: {e}", self.dir, self.path.display());
        }
        if let Err(e) = volume.close() {
            eprintln!("vfscale bench: {e}");
        }
        if is_new && let Err(e) = DeviceOptions::new().remove(&self.path) {
            eprintln!("vfscale bench: cannot remove {}: {e}", self.path.display());
        }
    }
}

/// Returns whether there is an image of a name: a file, or one of Ceph RBD.
pub(super) fn exists(path: &Path) -> Result<bool> {
    DeviceOptions::new().exists(path).map_err(|error| Error::Volume(VolumeError::Device(error)))
}

/// Counters of a journal at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalLook {
    /// Number of committed transactions.
    pub(crate) commits: u64,
    /// Number of times that a transaction has waited for log space, memory or a push.
    pub(crate) waits: u64,
    /// The latest checkpoints.
    pub(crate) checkpoints: Vec<Checkpoint>,
}

impl JournalLook {
    /// Returns the work since `earlier`.
    pub(crate) fn since(mut self, earlier: &JournalLook) -> JournalLook {
        self.commits -= earlier.commits;
        self.waits -= earlier.waits;
        let known = earlier.checkpoints.iter().map(|c| c.sequence).max().unwrap_or(0);
        self.checkpoints.retain(|checkpoint| checkpoint.sequence > known);
        self
    }
}

/// The directory of one case in a volume.
#[derive(Clone, Debug)]
pub struct Volume {
    image: Arc<Image>,
    dir: PathBuf,
}

impl Volume {
    /// Returns the owner of the volume's threads.
    pub(crate) fn thread_owner(&self) -> ThreadOwner {
        let open = self.image.open.as_ref();
        open.map_or(ThreadOwner::NONE, |volume| volume.driver().thread_owner())
    }

    /// Returns the counters of the volume's journal since it was opened.
    pub(crate) fn journal(&self) -> Option<JournalLook> {
        let volume = self.image.open.as_ref()?;
        let stats = volume.driver().volume().journal()?.stats();
        let checkpoints = stats.tickets.iter().map(|ticket| Checkpoint {
            sequence: ticket.sequence,
            items: ticket.items,
            reserved: ticket.reserved,
            used: ticket.used,
            returned: ticket.returned + ticket.spared,
        });
        Some(JournalLook {
            commits: stats.commits,
            waits: stats.space_waits + stats.memory_waits + stats.push_waits,
            checkpoints: checkpoints.collect(),
        })
    }

    /// Removes the case's directory.
    pub fn remove(&self) {
        if let Some(volume) = &self.image.open {
            let task = volume.task();
            // An interrupted case may have left mounts, the later ones below the earlier.
            let own = |at: &PathBuf| at.starts_with(&self.dir);
            let places = task.posix().mounts().into_iter().map(|mount| mount.mount_point);
            for place in places.filter(own).collect::<Vec<_>>().into_iter().rev() {
                let _ = task.posix().umount(place, UmountFlags::DETACH);
            }
            // If this fails, dropping the image tries again with the run's directory.
            let _ = task.remove_dir_all(&self.dir);
        }
    }
}

impl Target for Volume {
    type Calls = TaskCalls;

    fn enter(&self) -> Outcome<TaskCalls> {
        let open = self.image.open.as_ref();
        let volume = open.ok_or_else(|| Fault::wrong("the volume is closed"))?;
        let mut calls = TaskCalls::new(volume.vfs());
        let dir = CString::new(self.dir.as_os_str().as_bytes()).unwrap_or_default();
        calls.chdir(&dir)?;
        Ok(calls)
    }
}

#[cfg(test)]
mod tests;
