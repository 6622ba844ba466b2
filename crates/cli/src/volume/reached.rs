//! A volume that a command changes, mounted or not.
//!
//! The process that mounts a volume has locked it, so no other process can write to it. Such a
//! volume is changed by a request to its mount, which `/proc/self/mountinfo` lists with the path of
//! the image as the source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::block::{self, Device, Guarded};
use vfscale::{Errno, Pool, PoolError, VolumeError};
use vfscale_diskfs::{OpenError, Settings, Volume, copies};

use super::open_log;
use crate::device::open;
use crate::elsewhere::{self, Turn};
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

/// Has the process that serves an image do what `ask` asks at the directory of a mount, or does it
/// `here` if no process has the image open. Begins again, for a time, while another command has the
/// image open, and if a server ends before it has done it. `command` changes the image if another
/// process has it open, and its mount is not found.
pub(super) fn at_server_or_here<T>(
    image: &Path,
    command: &'static str,
    mut ask: impl FnMut(&Path) -> Result<T, Failure>,
    mut here: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut turn = Turn::new();
    loop {
        let done = mount_of_locked(image, command).and_then(|dir| match dir {
            Some(dir) => ask(&dir),
            None => here(),
        });
        match done {
            Err(failure) if may_pass(&failure) && !mounts::is_dir(image) && turn.wait(&failure) => {
            }
            Err(failure) if elsewhere::is_locked(&failure) => {
                return Err(elsewhere::busy(Some(image), failure.to_string()));
            }
            done => return done,
        }
    }
}

/// Returns whether a failure is that of a process which has the image open for a moment.
fn may_pass(failure: &Failure) -> bool {
    match failure {
        Failure::InUse(..) | Failure::Ended(..) => true,
        Failure::Sync(_, error) => {
            matches!(
                error.errno(),
                Errno::NOENT | Errno::NOTTY | Errno::NOTCONN | Errno::CONNABORTED
            )
        }
        failure => elsewhere::is_locked(failure),
    }
}

/// Returns the directory at which a branch of an image is mounted by another process; `None` if no
/// process has the image open.
fn mount_of_locked(image: &Path, command: &'static str) -> Result<Option<PathBuf>, Failure> {
    if mounts::is_dir(image) {
        return Ok(Some(image.to_owned()));
    }
    // Readers may have it open, of whom no mount is asked.
    let free = crate::device::options(true).check_free(image);
    match free.map_err(Failure::from).or_else(|_| open(image, true).map(drop)) {
        Ok(()) => Ok(None),
        Err(Failure::Device(locked @ block::Error::Locked { .. })) => {
            let mut dirs = mounts::of(&mounts::table()?, image).into_iter();
            let dir = dirs.find(|dir| !elsewhere::is_dead(dir));
            Ok(Some(dir.ok_or(Failure::InUse(locked, command))?))
        }
        Err(failure) => Err(failure),
    }
}

/// How a pool is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// A volume that is none yet becomes a pool.
    Convert,
}

/// Opens the pool in an image, and closes it when `act` has run.
pub(super) fn with_pool<T>(
    image: &Path,
    access: Access,
    act: impl FnOnce(&Pool) -> Result<T, PoolError>,
) -> Result<T, Failure> {
    let builder = crate::device::pool(image).read_only(access == Access::Read);
    let pool = builder.convert(access == Access::Convert).open()?;
    let result = act(&pool);
    let closed = if access == Access::Read { Ok(()) } else { pool.close() };
    let result = result?;
    closed?;
    Ok(result)
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
