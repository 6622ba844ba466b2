//! Work on the branches of an image, in this process or in the one that has it open.

use std::path::{Path, PathBuf};

use vfscale::block::Error as DeviceError;
use vfscale::{Errno, Pool, PoolError};

use super::{Turn, busy, is_dead, is_locked};
use crate::error::Failure;
use crate::{device, mounts};

/// Has the process that serves an image do what `ask` asks at the directory of a mount, or does it
/// `here` if no process has the image open. Begins again, for a time, while another command has the
/// image open, and if a server ends before it has done it. `command` changes the image if another
/// process has it open, and its mount is not found.
pub(crate) fn at_server_or_here<T>(
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
            Err(failure) if is_locked(&failure) => {
                return Err(busy(Some(image), failure.to_string()));
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
        failure => is_locked(failure),
    }
}

/// Returns the directory at which a branch of an image is mounted by another process; `None` if no
/// process has the image open.
fn mount_of_locked(image: &Path, command: &'static str) -> Result<Option<PathBuf>, Failure> {
    if mounts::is_dir(image) {
        return Ok(Some(image.to_owned()));
    }
    // Readers may have it open, of whom no mount is asked.
    let free = device::options(true).check_free(image);
    match free.map_err(Failure::from).or_else(|_| device::open(image, true).map(drop)) {
        Ok(()) => Ok(None),
        Err(Failure::Device(locked @ DeviceError::Locked { .. })) => {
            let mut dirs = mounts::of(&mounts::table()?, image).into_iter();
            let dir = dirs.find(|dir| !is_dead(dir));
            Ok(Some(dir.ok_or(Failure::InUse(locked, command))?))
        }
        Err(failure) => Err(failure),
    }
}

/// How a pool is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// A volume that is none yet becomes a pool.
    Convert,
}

/// Opens the pool in an image, and closes it when `act` has run.
pub(crate) fn with_pool<T>(
    image: &Path,
    access: Access,
    act: impl FnOnce(&Pool) -> Result<T, PoolError>,
) -> Result<T, Failure> {
    let builder = device::pool(image).read_only(access == Access::Read);
    let pool = builder.convert(access == Access::Convert).open()?;
    let result = act(&pool);
    let closed = if access == Access::Read { Ok(()) } else { pool.close() };
    let result = result?;
    closed?;
    Ok(result)
}
