//! A thread that notices when the mount becomes read-only.
//!
//! On a remount to read-only, other file systems first write everything. Linux has a message for
//! that (`SYNCFS`), but sends it only to some kinds of servers. A plain `fuse` server gets no
//! message at all, neither for `sync(2)` nor for a remount. But the kernel wakes threads that poll
//! the mount table. So a thread polls it, and makes everything durable when it finds the superblock
//! read-only. That happens a moment after the remount has returned; a caller that must wait until
//! it is complete calls [`control::sync`](crate::control::sync).
//!
//! The thread holds the server, and with it the file system, until the [`Watch`] is dropped.
//! Dropping it waits for the thread.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use vfscale_sync::thread::spawn;

use crate::base::mount_table::{self, lines};
use crate::server::Server;

/// A thread that watches the flags of a mount.
pub(crate) struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to watch the topmost mount at `dir`.
    ///
    /// # Errors
    /// Returns the system's error if there is no `/proc`, or if there are too many files or
    /// threads.
    pub(crate) fn start(server: &Arc<Server>, dir: &Path) -> io::Result<Watch> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let mut mounts = Mounts(File::open(mount_table::PATH)?);
        let table = mounts.read()?;
        let at_dir = lines(&table).rfind(|line| line.dir() == dir);
        let Some(mount) = at_dir else { return Err(Errno::NOENT.into()) };
        let (device, is_read_only) = (mount.device().to_vec(), mount.is_read_only());
        let (server, stopped) = (Arc::clone(server), Arc::clone(&stop));
        let run = move || look(&server, &mut mounts, &device, is_read_only, &stopped);
        let thread = spawn("fuse-mounts", run)?;
        Ok(Watch { stop, thread: Some(thread) })
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Any number will do. The counter can't overflow: this is the only write to it.
        let _ = rustix::io::write(&*self.stop, &[1; 8]);
        if let Some(thread) = self.thread.take() {
            // The panic has already been reported by the thread.
            let _ = thread.join();
        }
    }
}

/// Watches until `stop` is readable, or the mount has ended.
fn look(
    server: &Server,
    mounts: &mut Mounts,
    device: &[u8],
    mut was_read_only: bool,
    stop: &OwnedFd,
) {
    loop {
        let mut polled = [
            PollFd::new(&mounts.0, PollFlags::PRI),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return tracing::warn!("remounts are not noticed any more: {errno}"),
        }
        if !polled[1].revents().is_empty() {
            return;
        }
        let table = match mounts.read() {
            Ok(table) => table,
            Err(error) => return tracing::warn!("remounts are not noticed any more: {error}"),
        };
        let Some(mount) = lines(&table).find(|line| line.device() == device) else { return };
        let is_read_only = mount.is_read_only();
        if is_read_only
            && !was_read_only
            && let Err(errno) = server.make_durable()
        {
            tracing::error!(%errno, "mounted read-only, and not everything could be written");
        }
        was_read_only = is_read_only;
    }
}

/// The mount table. It can be polled for changes since the last read.
struct Mounts(File);

impl Mounts {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut table = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut table)?;
        Ok(table)
    }
}
