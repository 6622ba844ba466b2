//! Places in images, as the command line names them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale::pool::MAIN;
use vfscale::{Error, Volume, VolumeError};

use super::tree::{Mounted, Tree};
use crate::elsewhere::visit::visit;
use crate::error::Failure;
use crate::{device, elsewhere, mounts};

/// The form of a place, for the help of the command line.
pub(crate) const FORM: &str = "IMAGE[:BRANCH][:/PATH]";
/// The size of the caches: what is copied is read or written once.
const CACHE_BYTES: u64 = 64 << 20;

/// A file in a branch of an image: `IMAGE[:BRANCH][:/PATH]`.
///
/// The path begins at the first `:/`. The branch is what follows the last colon before it, unless a
/// file of the host has the whole name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) image: PathBuf,
    branch: Option<String>,
    /// The path from the root directory; `/` if none is given.
    pub(crate) path: PathBuf,
}

impl From<OsString> for Place {
    fn from(text: OsString) -> Self {
        Self::parse(&text, Path::exists)
    }
}

impl Place {
    /// Returns the place if the text has a path, and so is no name of the host.
    pub(crate) fn with_path(text: &OsStr) -> Option<Place> {
        split(text).map(|_| text.to_owned().into())
    }

    fn parse(text: &OsStr, is_image: impl Fn(&Path) -> bool) -> Place {
        let (place, path) = split(text).unwrap_or((text, OsStr::new("/")));
        // The first colon of an image of Ceph RBD begins no branch.
        let names = place.as_bytes();
        let names = names.strip_prefix(b"rbd:").unwrap_or(names);
        let colon = names.iter().rposition(|byte| *byte == b':');
        let branch = colon.map(|at| &names[at + 1..]).filter(|name| !name.contains(&b'/'));
        let branch = branch.and_then(|name| str::from_utf8(name).ok());
        let branch = branch.filter(|name| !name.is_empty() && !is_image(Path::new(place)));
        let len = place.len() - branch.map_or(0, |name| name.len() + 1);
        Place {
            image: OsStr::from_bytes(&place.as_bytes()[..len]).into(),
            branch: branch.map(str::to_owned),
            path: path.into(),
        }
    }

    /// Returns the name of the branch.
    pub(crate) fn branch(&self) -> &str {
        self.branch.as_deref().unwrap_or(MAIN)
    }

    /// Returns whether both places are in one branch of an image.
    pub(crate) fn is_beside(&self, other: &Place) -> bool {
        (&self.image, &self.branch) == (&other.image, &other.branch)
    }

    /// Returns the failure of a call in the image.
    pub(crate) fn failed(&self, error: Error) -> Failure {
        Failure::Files(self.image.clone(), error)
    }

    /// Has `act` read the files of the branch. Nothing is written.
    pub(super) fn read<T>(
        &self,
        log_device: Option<&Path>,
        act: impl FnOnce(&Tree<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.used(true, log_device, act)
    }

    /// Has `act` change the files of the branch. The changes are durable at the return.
    pub(super) fn write<T>(
        &self,
        log_device: Option<&Path>,
        act: impl FnOnce(&Tree<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.used(false, log_device, act)
    }

    fn used<T>(
        &self,
        read_only: bool,
        log_device: Option<&Path>,
        act: impl FnOnce(&Tree<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let volume = match self.open(read_only, log_device) {
            Err(failure) if elsewhere::is_locked(&failure) => {
                return self.on_mount(read_only, failure, act);
            }
            opened => opened?,
        };
        if !read_only && volume.driver().volume().is_read_only() {
            let why = "the branch can only be read; fork one that can be written: `vfscale branch";
            return Err(Failure::Refused(self.image.clone(), format!("{why} create`")));
        }
        let done = act(&Tree::Opened(&volume.task()));
        let closed = volume.close();
        let done = done?;
        closed.map_err(VolumeError::from)?;
        Ok(done)
    }

    fn open(&self, read_only: bool, log_device: Option<&Path>) -> Result<Volume, Failure> {
        let mut builder = match self.branch.as_deref() {
            None | Some(MAIN) => vfscale::volume(&self.image).read_only(read_only),
            Some(name) => {
                let pool = device::pool(&self.image).read_only(read_only).open()?;
                pool.branch(name)
            }
        };
        if let Some(path) = log_device {
            builder = builder.log_path(path);
        }
        Ok(builder.cache_size(CACHE_BYTES).ceph(device::ceph()).open()?)
    }

    /// Has `act` use the files of the branch where it is mounted, or has the process that serves
    /// the image mount it for that time. Returns `failure` if no process serves branches of it.
    fn on_mount<T>(
        &self,
        read_only: bool,
        failure: Failure,
        act: impl FnOnce(&Tree<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let dirs = mounts::of(&mounts::table()?, &self.image);
        let is_it = |dir: &&PathBuf| elsewhere::has_branch(dir, self.branch());
        let at = |dir: &Path| {
            let mounted = Mounted::new(dir).map_err(|error| self.failed(error))?;
            let done = act(&Tree::Mounted(&mounted))?;
            if !read_only {
                mounted.sync().map_err(|error| self.failed(error))?;
            }
            Ok(done)
        };
        match dirs.iter().find(is_it) {
            Some(dir) => at(dir),
            None => visit(&self.image, self.branch(), read_only, at)?.ok_or(failure),
        }
    }
}

/// Returns what stands before the path, and the path, if there is one.
fn split(text: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = text.as_bytes();
    let at = bytes.windows(2).position(|two| two == b":/")?;
    Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
}

#[cfg(test)]
mod tests;
