//! A freeze of the volume behind a mount, for as long as the process lives that has asked for it.
//!
//! No request ends a freeze: all workers may sleep in requests that wait for the thaw. Instead a
//! thread of the server holds the volume, and watches the process; and it waits no longer than the
//! process has asked for.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vfscale::Errno;
use vfscale::volume::Freezer;
use vfscale_sync::thread::spawn;

/// The longest freeze.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// Freezes a volume until the process ends, and for `limit` at most. Blocks until it is frozen.
pub(crate) fn freeze(freezer: &Freezer, process: Pid, limit: Duration) -> Result<(), Errno> {
    if limit.is_zero() || limit > LONGEST {
        return Err(Errno::INVAL);
    }
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let (sender, frozen) = sync_channel(1);
    let freezer = freezer.clone();
    let hold = move || {
        let told = sender.clone();
        let held = freezer.freeze(|| {
            let _ = told.send(Ok(()));
            await_end(&process, limit)
        });
        match held {
            Ok(true) => {}
            Ok(false) => {
                let seconds = limit.as_secs_f64();
                tracing::warn!("a freeze has ended after {seconds} s, before who had asked for it");
            }
            Err(errno) => drop(sender.send(Err(errno))),
        }
    };
    spawn("vfscale-freeze", hold)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    frozen.recv().unwrap_or(Err(Errno::IO))
}

/// Waits until a process has ended, for at most `limit`; returns whether it has.
fn await_end(process: &OwnedFd, limit: Duration) -> bool {
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) => {}
            Ok(_) => return true,
            Err(error) if io::Error::from(error).kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!("the process that has asked for a freeze can't be watched: {error}");
                return false;
            }
        }
    }
}
