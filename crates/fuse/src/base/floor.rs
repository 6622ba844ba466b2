//! The latest exact time that Linux has stamped a change with.
//!
//! Since 6.13 Linux stamps a change with the last tick of its clock or with that time, whichever is
//! later, and with an exact time if somebody has read the times of the file since its last change.
//! A file of our own serves to make it do the latter.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Result;
use rustix::time::{ClockId, clock_gettime};

/// A file whose changes raise that time; none where Linux has no such time.
#[derive(Debug)]
pub(crate) struct Floor(Option<OwnedFd>);

impl Floor {
    /// Makes the file.
    pub(crate) fn new() -> Floor {
        Floor(Floor::open().unwrap_or_else(|error| {
            tracing::debug!("times may be later than those of other file systems: {error}");
            None
        }))
    }

    fn open() -> Result<Option<OwnedFd>> {
        /// More changes than fall on ticks.
        const CHANGES: usize = 5;
        let file = rustix::fs::memfd_create("vfscale-times", MemfdFlags::CLOEXEC)?;
        let mut last = change(&file)?;
        for _ in 0..CHANGES {
            let time = change(&file)?;
            if time == last {
                return Ok(None);
            }
            last = time;
        }
        Ok(Some(file))
    }

    /// Has Linux stamp no change from now on with a time earlier than now.
    pub(crate) fn raise(&self) {
        /// The first change may get a time that somebody else has raised to before.
        const CHANGES_MAX: usize = 3;
        let Some(file) = &self.0 else { return };
        let now = clock_gettime(ClockId::Realtime);
        for _ in 0..CHANGES_MAX {
            match change(file) {
                Ok(time) if time < (now.tv_sec, now.tv_nsec) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!("a time may be later than those of others: {error}");
                    return;
                }
            }
        }
    }
}

/// Changes the file and reads the time of that, so that the next change has an exact one. Returns
/// it.
fn change(file: &OwnedFd) -> Result<(i64, i64)> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })?;
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_ctime as i64, stat.st_ctime_nsec as i64))
}
