//! A volume that a command changes, mounted or not.
//!
//! The process that mounts a volume has locked it, so no other process can write to it. Such a
//! volume is changed by a request to its mount, which `/proc/self/mountinfo` lists with the path of
//! the image as the source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::VolumeError;
use vfscale::block::{self, Device, Guarded};
use vfscale_diskfs::{OpenError, Settings, Volume, copies};

use super::open_log;
use crate::device::open;
use crate::error::Failure;
use crate::mounts;

/// A volume that was found at the place that a command names; of an image whose branches are
/// mounted at several directories, one of them.
pub(super) enum Reached {
    /// No other process has it open.
    Closed(Arc<dyn Guarded>),
    /// No other process has it open, and it is a branch of the image.
    Branches,
    /// Another process has it mounted at this directory.
    Mounted(PathBuf),
}

/// Finds the volume at a directory, or in an image or block device. `command` changes it if another
/// process has it open, and its mount is not found.
pub(super) fn reach(place: &Path, command: &'static str) -> Result<Reached, Failure> {
    if mounts::is_dir(place) {
        return Ok(Reached::Mounted(place.to_owned()));
    }
    match open(place, false) {
        Ok(device) => match copies::read(&*device) {
            Err(OpenError::Pool { .. }) => Ok(Reached::Branches),
            _ => Ok(Reached::Closed(device)),
        },
        Err(Failure::Device(locked @ block::Error::Locked { .. })) => {
            let dir = mounts::of(&mounts::table()?, place).into_iter().next();
            dir.map(Reached::Mounted).ok_or(Failure::InUse(locked, command))
        }
        Err(failure) => Err(failure),
    }
}

/// Opens the volume in `device`, with its external log if one is named, and closes it when `change`
/// has run. Returns the result of `change`, or the error of the closing if only that failed.
pub(super) fn change<T>(
    place: &Path,
    device: Arc<dyn Device>,
    log_device: Option<&Path>,
    change: impl FnOnce(&Volume) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let name = || place.display().to_string();
    let log_device = open_log(log_device, false)?;
    let options = Settings { log_device, ..Settings::default() };
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
