//! A volume that a command changes, mounted or not.
//!
//! The process that mounts a volume has locked it, so no other process can write to it. Such a
//! volume is changed by a request to its mount, which `/proc/self/mountinfo` lists with the path of
//! the image as the source.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::VolumeError;
use vfscale::{block, block::Guarded};
use vfscale_diskfs::{Volume, VolumeOptions};

use super::open_log;
use crate::device::open;
use crate::error::Failure;
use crate::mounts;

/// A volume that was found at the place that a command names.
pub(super) enum Reached {
    /// No other process has it open.
    Closed(Arc<dyn Guarded>),
    /// Another process has it mounted at this directory.
    Mounted(PathBuf),
}

/// Finds the volume at a directory, or in an image or block device. `command` changes it if another
/// process has it open, and its mount is not found.
pub(super) fn reach(place: &Path, command: &'static str) -> Result<Reached, Failure> {
    if place.is_dir() {
        return Ok(Reached::Mounted(place.to_owned()));
    }
    match open(place, false) {
        Ok(device) => Ok(Reached::Closed(device)),
        Err(Failure::Device(locked @ block::Error::Locked { .. })) => {
            let dir = mount_of(&mounts::table()?, place);
            dir.map(Reached::Mounted).ok_or(Failure::InUse(locked, command))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns the directory at which a branch of an image is mounted by another process; `None` if no
/// process has the image open.
pub(super) fn mount_of_locked(
    image: &Path,
    command: &'static str,
) -> Result<Option<PathBuf>, Failure> {
    if image.is_dir() {
        return Ok(Some(image.to_owned()));
    }
    match open(image, true) {
        Ok(_) => Ok(None),
        Err(Failure::Device(locked @ block::Error::Locked { .. })) => {
            let dir = mount_of(&mounts::table()?, image);
            dir.map(Some).ok_or(Failure::InUse(locked, command))
        }
        Err(failure) => Err(failure),
    }
}

/// Opens the volume in `device`, with its external log if one is named, and closes it when `change`
/// has run. Returns the result of `change`, or the error of the closing if only that failed.
pub(super) fn change<T>(
    place: &Path,
    device: Arc<dyn Guarded>,
    log_device: Option<&Path>,
    change: impl FnOnce(&Volume) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let name = || place.display().to_string();
    let log_device = open_log(log_device, false)?;
    let options = VolumeOptions { log_device, ..VolumeOptions::default() };
    let volume = Volume::open(device, options).map_err(|fault| {
        Failure::Open(VolumeError::Open { name: name(), fault: Box::new(fault) })
    })?;
    let changed = change(&volume);
    let closed = volume.close();
    let changed = changed?;
    closed.map_err(|fault| {
        Failure::Open(VolumeError::Close { name: name(), fault: Box::new(fault) })
    })?;
    Ok(changed)
}

/// Returns the directory at which the volume in `image` is mounted, the latest one of several.
fn mount_of(mountinfo: &[u8], image: &Path) -> Option<PathBuf> {
    let image = &fs::canonicalize(image).unwrap_or_else(|_| image.to_owned());
    mounts::parse(mountinfo).rfind(|mount| mount.is_of(image)).map(|mount| mount.dir())
}

#[cfg(test)]
mod tests;
