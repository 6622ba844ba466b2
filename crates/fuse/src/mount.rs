//! The public face: [`Builder`] mounts, [`Mounted`] is the mount.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vfscale::{File, MountFlags, Vfs};

use crate::attach::{self, Attached, Attachment, Detach};
use crate::device::Device;
use crate::error::MountError;
use crate::server::{Config, Server};
use crate::session::{self, Workers};
use crate::watch::Watch;
use crate::wire::notify;
use crate::wire::reply::Reply;

/// Who changes the file system while it is mounted, which decides how much the kernel may cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Only users of the mount.
    ///
    /// The kernel keeps names, attributes and data for as long as it likes, opens and closes files
    /// without a message, and keeps file locks itself. Changes through the library would not be
    /// seen.
    Exclusive,
    /// Users of the mount, and the program through the library.
    ///
    /// Files are opened and locked in the library, so that both sides see each other's open files
    /// and locks.
    Shared {
        /// For how long the kernel may believe names and attributes. With zero it asks each time,
        /// and each side sees what the other did at once; otherwise changes made through the
        /// library show after this time, or after [`Mounted::invalidate`].
        cache: Duration,
    },
}

/// How to mount. Made by [`Builder::new`], used up by [`Builder::mount`].
#[derive(Clone)]
pub struct Builder {
    vfs: Vfs,
    threads: usize,
    sharing: Sharing,
    volatile: bool,
    writeback: bool,
    how: Attachment,
}

/// At least two workers, so that one long transfer does not hold up everybody.
const THREADS_MIN: usize = 2;
/// With more workers by default than this, waking them costs more than they bring.
const THREADS_MAX: usize = 16;

impl Builder {
    /// Mounts the root of `vfs`: shared with the library and without caching of names and
    /// attributes, for its owner only, with a worker for each CPU (2 to 16).
    ///
    /// A mount keeps an open file for each inode that the kernel knows: the tree's limit of open files
    /// ([`Limits::open_files`](vfscale::Limits::open_files)) is to be above what the kernel may cache, or
    /// lookups fail with `ENFILE`.
    pub fn new(vfs: &Vfs) -> Builder {
        let cpus = std::thread::available_parallelism().map_or(THREADS_MIN, usize::from);
        Builder {
            vfs: vfs.clone(),
            threads: cpus.clamp(THREADS_MIN, THREADS_MAX),
            sharing: Sharing::Shared { cache: Duration::ZERO },
            volatile: false,
            writeback: false,
            how: Attachment {
                source: "vfscale".into(),
                flags: MountFlags::empty(),
                allow_other: false,
            },
        }
    }

    /// The number of worker threads, at least 1.
    pub fn threads(mut self, threads: usize) -> Builder {
        self.threads = threads.max(1);
        self
    }

    /// Who changes the file system while it is mounted.
    pub fn sharing(mut self, sharing: Sharing) -> Builder {
        self.sharing = sharing;
        self
    }

    /// Says that the file system outlives nothing, so that `fsync` has nothing to do and needs no
    /// message.
    pub fn volatile(mut self, volatile: bool) -> Builder {
        self.volatile = volatile;
        self
    }

    /// Lets the kernel gather small writes before it passes them on (exclusive use only).
    ///
    /// Small writes get several times cheaper. In exchange a lack of space may show only when a
    /// file is closed or synced, and `st_blocks` and `statfs` lag behind.
    pub fn writeback(mut self, writeback: bool) -> Builder {
        self.writeback = writeback;
        self
    }

    /// Lets other users in; each is checked by permissions. Without it only the user who mounts
    /// gets in. Users other than root need the line `user_allow_other` in `/etc/fuse.conf`.
    pub fn allow_other(mut self, allow: bool) -> Builder {
        self.how.allow_other = allow;
        self
    }

    /// The flags of the mount: `RDONLY`, `NOSUID`, `NODEV`, `NOEXEC`, `NOATIME`, ...
    pub fn flags(mut self, flags: MountFlags) -> Builder {
        self.how.flags = flags;
        self
    }

    /// The name shown as the source in `/proc/mounts`; default `vfscale`.
    pub fn source(mut self, source: impl Into<String>) -> Builder {
        self.how.source = source.into();
        self
    }

    /// Mounts at the directory `dir`, which need not be empty, and starts the workers.
    ///
    /// Mounts by system call where that is permitted, through `fusermount3` where it is not.
    ///
    /// # Errors
    /// See [`MountError`]; its text names what is wrong and the remedy.
    pub fn mount(self, dir: impl AsRef<Path>) -> Result<Mounted, MountError> {
        let config =
            Config { sharing: self.sharing, volatile: self.volatile, writeback: self.writeback };
        let server = Arc::new(Server::new(&self.vfs, config).map_err(MountError::FileSystem)?);
        let (device, attached) = attach::attach(dir.as_ref(), &self.how)?;
        let mount = Arc::new(Mount { device: Arc::new(device), attached });
        let started = session::handshake(&mount.device, &*server)
            .and_then(|dialect| Workers::start(&mount.device, &server, dialect, self.threads));
        match started {
            Ok(workers) => {
                let watch = (!config.volatile).then(|| watch(&server, mount.attached.dir()));
                Ok(Mounted { server, mount, workers, _watch: watch.flatten() })
            }
            Err(e) => {
                let _ = mount.attached.detach(&mount.device, Detach::Force);
                Err(e)
            }
        }
    }
}

/// Has somebody notice when the mount at `dir` becomes read-only.
fn watch(server: &Arc<Server>, dir: &Path) -> Option<Watch> {
    let started = Watch::start(server, dir);
    let note = |error: &io::Error| tracing::warn!("remounts are not noticed: {error}");
    started.inspect_err(note).ok()
}

#[derive(Debug)]
struct Mount {
    device: Arc<Device>,
    attached: Attached,
}

/// A mounted file system.
///
/// `Send` and `Sync`. Dropping it unmounts, by force if the mount is in use.
pub struct Mounted {
    server: Arc<Server>,
    mount: Arc<Mount>,
    workers: Workers,
    _watch: Option<Watch>,
}

/// Figures about a mount, taken one after the other while it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Inodes that the kernel knows by number, beside the root.
    pub nodes: usize,
    /// How often the kernel was told of them and has not forgotten.
    pub lookups: u64,
    /// Files and directories opened through the mount (0 in exclusive use, where opening needs no
    /// message).
    pub open_files: usize,
    /// Requests that wait for a file lock.
    pub waiting: usize,
    /// Requests served since the mount.
    pub requests: u64,
}

/// Unmounts from elsewhere, as from a thread that waits for signals. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Unmounter(Arc<Mount>);

impl Mounted {
    /// The directory it is mounted at, as an absolute path.
    pub fn dir(&self) -> &Path {
        self.mount.attached.dir()
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        let (nodes, lookups) = self.server.nodes.totals();
        Stats {
            nodes,
            lookups,
            open_files: self.server.files.count(),
            waiting: self.server.waiting.count(),
            requests: self.workers.served(),
        }
    }

    /// Whether it is still mounted.
    pub fn is_mounted(&self) -> bool {
        !self.workers.are_finished() && !attach::is_ended(&self.mount.device)
    }

    /// A means to unmount from elsewhere.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter(Arc::clone(&self.mount))
    }

    /// Blocks until it is unmounted, by whomever.
    pub fn wait(mut self) {
        self.workers.join();
    }

    /// Unmounts if nobody uses the mount, and waits for the workers.
    ///
    /// # Errors
    /// `EBUSY`, with the mount as it was, while a process has a file open or its working directory
    /// inside; the mount comes back with the error.
    pub fn unmount(mut self) -> Result<(), (Mounted, io::Error)> {
        match self.mount.attached.detach(&self.mount.device, Detach::Idle) {
            Ok(()) => {
                self.workers.join();
                Ok(())
            }
            Err(e) => Err((self, e)),
        }
    }

    /// Makes the kernel drop what it caches of the inode that `file` stands for: attributes, ACLs
    /// and data. To be called after a change through the library when the mount caches
    /// ([`Sharing::Shared`] with a time); an inode that the kernel does not know needs nothing.
    ///
    /// Must not be called by a thread on which a request of this mount waits.
    ///
    /// # Errors
    /// Those of `stat`, and of the device after unmounting.
    pub fn invalidate(&self, file: &File) -> io::Result<()> {
        let Some(node) = self.server.nodes.find(&file.stat()?) else { return Ok(()) };
        let mut message = Reply::new();
        message.u64(node);
        // From the start, to the end.
        message.u64(0);
        message.u64(0);
        self.mount.notify(&mut message, notify::INVAL_INODE)
    }

    /// Makes the kernel drop what it believes of a name in the directory `dir`: that it leads
    /// somewhere, or nowhere. As [`invalidate`](Self::invalidate).
    ///
    /// # Errors
    /// Those of `stat`, and of the device after unmounting.
    pub fn invalidate_name(&self, dir: &File, name: impl AsRef<Path>) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let Some(node) = self.server.nodes.find(&dir.stat()?) else { return Ok(()) };
        let name = name.as_ref().as_os_str().as_bytes();
        let mut message = Reply::new();
        message.u64(node);
        message.u32(name.len() as u32);
        message.u32(0);
        message.put(name);
        message.put(&[0]);
        self.mount.notify(&mut message, notify::INVAL_ENTRY)
    }
}

impl Mount {
    fn notify(&self, message: &mut Reply, code: i32) -> io::Result<()> {
        // The device wants the code where a reply has its negated error number.
        match self.device.send(message.finish(0, -code)) {
            // The kernel has forgotten by itself.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            sent => sent,
        }
    }
}

impl Unmounter {
    /// Unmounts if nobody uses the mount.
    ///
    /// # Errors
    /// `EBUSY` while somebody does.
    pub fn unmount(&self) -> io::Result<()> {
        self.0.attached.detach(&self.0.device, Detach::Idle)
    }

    /// Unmounts; whoever uses the mount gets `ENOTCONN` or `ECONNABORTED` from then on.
    ///
    /// Without the right to unmount directly, users keep the mount, unseen by others, until this
    /// process ends.
    ///
    /// # Errors
    /// Those of `umount2(2)`.
    pub fn force(&self) -> io::Result<()> {
        self.0.attached.detach(&self.0.device, Detach::Force)
    }

    /// Unmounts, giving users until `patience` is over to leave, and by force then. Says whether
    /// force was needed.
    ///
    /// # Errors
    /// Those of `umount2(2)` but `EBUSY`.
    pub fn unmount_within(&self, patience: Duration) -> io::Result<bool> {
        const STEP: Duration = Duration::from_millis(10);
        let end = Instant::now() + patience;
        loop {
            match self.unmount() {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    if Instant::now() >= end {
                        return self.force().map(|()| true);
                    }
                    std::thread::sleep(STEP);
                }
                outcome => return outcome.map(|()| false),
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounter = self.unmounter();
        if let Err(e) = unmounter.unmount().or_else(|_| unmounter.force()) {
            tracing::error!("cannot unmount {}: {e}", self.dir().display());
            return;
        }
        if attach::is_ended(&self.mount.device) {
            self.workers.join();
        }
        // Otherwise users have the mount still (it went through the helper, which can't end it for
        // them); the workers serve them for as long as the process lives.
    }
}
