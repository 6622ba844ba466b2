//! Unmounts that reach the namespace of a run.
//!
//! Linux passes an unmount on to copies of a shared mount. Where mounts are private, as in most
//! containers, the copy in the namespace of a run would keep the server of each mount until the run
//! has ended.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Seek};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{UnmountFlags, unmount};
use vfscale_fuse::mount_table::lines;

use crate::error::Failure;
use crate::mounts;

/// Unmounts in the namespace of this thread what is unmounted outside, until it is dropped.
pub(crate) struct Follower {
    /// Its end ends the thread.
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Starts with the table of mounts of the namespace outside. The thread calls `begin` first.
    pub(crate) fn start(outside: File, begin: fn()) -> io::Result<Self> {
        let (ended, end) = io::pipe()?;
        let follow = move || {
            begin();
            let mut outside = outside;
            loop {
                let mut fds = [
                    PollFd::new(&outside, PollFlags::PRI),
                    PollFd::new(&ended, PollFlags::empty()),
                ];
                let is_over = match poll(&mut fds, None) {
                    Ok(_) => !fds[1].revents().is_empty(),
                    Err(error) => error != rustix::io::Errno::INTR,
                };
                let followed = if is_over { Ok(()) } else { follow(&mut outside) };
                if let Err(failure) = &followed {
                    tracing::warn!("unmounts have to wait for the end of the run: {failure}");
                }
                if is_over || followed.is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("vfscale-follow".into()).spawn(follow)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Unmounts the mounts of vfscale that are outside no more.
fn follow(outside: &mut File) -> Result<(), Failure> {
    let (mut table, inside) = (Vec::new(), mounts::table()?);
    let read = outside.rewind().and_then(|()| outside.read_to_end(&mut table));
    read.map_err(|error| Failure::System("read", error))?;
    for mount in lines(&inside).filter(|mount| mount.is_ours()) {
        if lines(&table).all(|other| other.device() != mount.device()) {
            let _ = unmount(mount.dir(), UnmountFlags::DETACH);
        }
    }
    Ok(())
}
