//! Places in images, as the command line names them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale::pool::MAIN;
use vfscale::{Error, Escaped, Task, Volume, VolumeError};

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

    /// Returns whether both places are in one branch of an image.
    pub(crate) fn is_beside(&self, other: &Place) -> bool {
        (&self.image, &self.branch) == (&other.image, &other.branch)
    }

    /// Returns the failure of a call in the image.
    pub(crate) fn failed(&self, error: Error) -> Failure {
        Failure::Files(self.image.clone(), error)
    }

    /// Has `act` read the files of the branch. Nothing is written.
    pub(crate) fn read<T>(
        &self,
        log_device: Option<&Path>,
        act: impl FnOnce(&Task) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.used(true, log_device, act)
    }

    /// Has `act` change the files of the branch. The changes are durable at the return.
    pub(crate) fn write<T>(
        &self,
        log_device: Option<&Path>,
        act: impl FnOnce(&Task) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.used(false, log_device, act)
    }

    fn used<T>(
        &self,
        read_only: bool,
        log_device: Option<&Path>,
        act: impl FnOnce(&Task) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let opened = self.open(read_only, log_device);
        let volume = opened.map_err(|failure| match elsewhere::is_locked(&failure) {
            true => self.in_use(failure),
            false => failure,
        })?;
        if !read_only && volume.driver().volume().is_read_only() {
            let why = "the branch can only be read; fork one that can be written: `vfscale branch";
            return Err(Failure::Refused(self.image.clone(), format!("{why} create`")));
        }
        let done = act(&volume.task());
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

    /// Returns the failure for an image that another process has open: says where it is mounted.
    fn in_use(&self, failure: Failure) -> Failure {
        let dirs = mounts::table().map(|table| mounts::of(&table, &self.image));
        let Some(dir) = dirs.ok().and_then(|dirs| dirs.into_iter().next()) else { return failure };
        let (dir, image) = (Escaped::new(&dir), Escaped::new(&self.image));
        let why = format!(
            "it is mounted at {dir}: use the files there; another branch can be mounted as well, \
             `vfscale mount {image} DIR -o branch=NAME`"
        );
        Failure::Refused(self.image.clone(), why)
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
