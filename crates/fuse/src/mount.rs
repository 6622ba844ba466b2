//! The public face: [`Builder`] mounts, [`Mounted`] is a mount.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use vfscale::pool::PoolMaker;
use vfscale::posix::MountFlags;
use vfscale::volume::{Follower, Freezer, LiveVolume};
use vfscale::{File, Pool, Vfs};
use vfscale_sync::thread::spawn;

use self::unserved::Unserved;
use self::watch::Watch;
use self::xattrs::Xattrs;
use crate::attach::{self, Attached, Attachment, Detach};
use crate::base::device::Device;
use crate::base::error::MountError;
use crate::base::polling::{Polling, PollingChoice};
use crate::base::recording::Recorder;
use crate::base::sharing::Sharing;
use crate::base::syncing::Syncing;
use crate::base::transport::Transport;
use crate::base::uring_switches::check_module;
use crate::control;
use crate::control::Host;
use crate::server::{Config, Server, VolumeRights};
use crate::session::{self, Workers};
use crate::statistics::{Counters, Statistics, Stats};
use crate::uring::{self, Crew};
use crate::wire::reply::Reply;
use crate::wire::{InitFlags, notify};

pub(crate) mod unserved;
mod watch;
pub(crate) mod xattrs;

/// Options of a mount. Made by [`Builder::new`], consumed by [`Builder::mount`].
#[derive(Clone)]
pub struct Builder {
    vfs: Vfs,
    threads: usize,
    polling: Polling,
    xattrs: Xattrs,
    transport: Transport,
    config: Config,
    volume: VolumeRights,
    live: Option<LiveVolume>,
    recorder: Option<Arc<dyn Recorder>>,
    how: Attachment,
}

/// Lower bound of the default number of workers: with two, one long transfer does not block all
/// other requests.
const THREADS_MIN: usize = 2;
/// Upper bound of the default number of workers: waking more costs more than it gains.
const THREADS_MAX: usize = 16;

/// Longest wait for data that the kernel holds back, before an unmount by force.
const FLUSH_MAX: Duration = Duration::from_secs(10);

impl Builder {
    /// Creates a builder that mounts the root of `vfs`: shared with the library, without caching of
    /// names and attributes, accessible to its owner only, with one worker per CPU (2 to 16).
    ///
    /// A mount holds an open file for each inode that the kernel caches. The tree's limit of open
    /// files ([`Limits::open_files`](vfscale::Limits::open_files)) must be above the number of
    /// inodes that the kernel may cache, or lookups fail with `ENFILE`.
    pub fn new(vfs: &Vfs) -> Builder {
        let cpus = std::thread::available_parallelism().map_or(THREADS_MIN, usize::from);
        Builder {
            vfs: vfs.clone(),
            threads: cpus.clamp(THREADS_MIN, THREADS_MAX),
            polling: Polling::Auto,
            xattrs: Xattrs::Served,
            transport: Transport::default(),
            config: Config {
                sharing: Sharing::Shared { cache: Duration::ZERO },
                volatile: false,
                writeback: false,
                has_xattrs: true,
                syncing: Syncing::default(),
                checks_open: false,
                idmap: false,
                is_permitted: false,
            },
            volume: VolumeRights::default(),
            live: None,
            recorder: None,
            how: Attachment::new(),
        }
    }

    /// Sets the number of worker threads, at least 1. Over io_uring they serve the requests that
    /// may take long.
    pub fn threads(mut self, threads: usize) -> Builder {
        self.threads = threads.max(1);
        self
    }

    /// Sets whether workers look for the next request for a moment before they sleep; default
    /// [`Polling::Auto`].
    pub fn polling(mut self, polling: Polling) -> Builder {
        self.polling = polling;
        self
    }

    /// Lets the owner of the mount and root make, list and delete branches of the image by requests
    /// to the mount ([`control`]), also of the branch that is mounted. `pool` is that of the volume
    /// ([`Volume::pool`](vfscale::Volume::pool)), and is held open as long as the mount.
    pub fn branches(mut self, pool: Option<Pool>) -> Builder {
        self.volume.pool = pool;
        self
    }

    /// Lets the owner of the mount and root make the first branch of the image by a request to the
    /// mount ([`control`]). `maker` is that of the volume
    /// ([`Volume::pool_maker`](vfscale::Volume::pool_maker)).
    pub fn first_branch(mut self, maker: Option<PoolMaker>) -> Builder {
        self.volume.maker = maker;
        self
    }

    /// Serves the requests of the owner of the mount and root that are about this process: to mount
    /// further branches ([`Request::Mount`](control::Request::Mount)), and to tell of the end of a
    /// mount ([`Request::Wait`](control::Request::Wait)). Each call has a thread.
    pub fn host(mut self, host: Host) -> Builder {
        self.volume.host = Some(host);
        self
    }

    /// Sets the path of the image, so that requests about another one are refused.
    pub fn image(mut self, image: &Path) -> Builder {
        self.volume.image = control::image_id(image);
        self
    }

    /// Lets the owner of the mount and root freeze the volume by a request to the mount
    /// ([`Connection::freeze`](control::Connection::freeze)). `freezer` is that of the volume
    /// ([`Volume::freezer`](vfscale::Volume::freezer)).
    pub fn freezer(mut self, freezer: Option<Freezer>) -> Builder {
        self.volume.freezer = freezer;
        self
    }

    /// Has the mount go on when its branch gets other contents: calls wait meanwhile, and the
    /// kernel is told what to forget. Then each use of a file that was open, and is another one
    /// or none in the new contents, fails with `ESTALE`, and a mapping of it with `SIGBUS`; other
    /// open files and directories go on. `live` is the volume whose tree is mounted. In exclusive
    /// use only, and from Linux 6.16 on: otherwise the branch can't get other contents as long as
    /// it is mounted.
    pub fn follow(mut self, live: &LiveVolume) -> Builder {
        self.live = Some(live.clone());
        self
    }

    /// Tells each change that is made through the mount, in an order in which they took effect:
    /// requests that change something are served one at a time. Not told are inode flags, locks,
    /// and syncs of the whole file system, which Linux keeps to itself. In exclusive use, without
    /// [`writeback`](Self::writeback).
    pub fn record(mut self, recorder: Arc<dyn Recorder>) -> Builder {
        self.recorder = Some(recorder);
        self
    }

    /// Sets which users change the file system while it is mounted.
    pub fn sharing(mut self, sharing: Sharing) -> Builder {
        self.config.sharing = sharing;
        self
    }

    /// Declares that the contents need not survive the mount. `fsync` then has nothing to do and
    /// needs no message.
    pub fn volatile(mut self, volatile: bool) -> Builder {
        self.config.volatile = volatile;
        self
    }

    /// Lets the kernel combine small writes before it sends them (exclusive use only).
    ///
    /// Small writes get several times cheaper. In exchange a lack of space is reported by a later
    /// write, or when the file is closed or synced, and `st_blocks` and `statfs` lag behind.
    /// `SEEK_DATA` and `SEEK_HOLE` take all of a file for data.
    pub fn writeback(mut self, writeback: bool) -> Builder {
        self.config.writeback = writeback;
        self
    }

    /// Has the kernel announce each opening of a file in exclusive use, so that immutable and
    /// append-only files can't be opened for writing. By default it does so only if the file system
    /// has, or has had, such a file when it is mounted.
    ///
    /// On other mounts in exclusive use, opening such a file succeeds, and each write fails with
    /// `EPERM`, through a file that was opened before as well. With [`writeback`](Self::writeback),
    /// making a file immutable or append-only there fails with `EOPNOTSUPP`.
    pub fn chattr(mut self, chattr: bool) -> Builder {
        self.config.checks_open = chattr;
        self
    }

    /// Lets mounts of this file system be id-mapped (`mount_setattr(2)` with `MOUNT_ATTR_IDMAP`,
    /// `mount -o X-mount.idmap`): users see other owners than are stored (Linux 6.12; exclusive use
    /// only). Only root can make such a mount.
    ///
    /// The kernel then tells the server of no call who makes it, but the owner of a new file. So
    /// only the kernel checks permissions, on every mount of the file system. A change of data or
    /// owner by a member of a file's group, or the removal of its ACL, clears its set-group-id bit
    /// if the group may not execute it, which otherwise stays.
    pub fn idmap(mut self, idmap: bool) -> Builder {
        self.config.idmap = idmap;
        self
    }

    /// Sets whether extended attributes work; default [`Xattrs::Served`].
    pub fn xattrs(mut self, xattrs: Xattrs) -> Builder {
        self.xattrs = xattrs;
        self
    }

    /// Sets how the kernel and this process exchange messages; default [`Transport::Classic`].
    pub fn transport(mut self, transport: Transport) -> Builder {
        self.transport = transport;
        self
    }

    /// Lets other users access the mount, subject to permissions. By default only the mounting user
    /// has access. Users other than root need the line `user_allow_other` in `/etc/fuse.conf`.
    pub fn allow_other(mut self, allow: bool) -> Builder {
        self.how.allow_other = allow;
        self
    }

    /// Sets the flags of the mount: `RDONLY`, `NOSUID`, `NODEV`, `NOEXEC`, `NOATIME`, ...
    pub fn flags(mut self, flags: MountFlags) -> Builder {
        self.how.flags = flags;
        self
    }

    /// Sets which changes are durable when their calls return.
    pub fn syncing(mut self, syncing: Syncing) -> Builder {
        self.how.syncing = syncing;
        self
    }

    /// Sets the name shown as the source in `/proc/mounts`; default `vfscale`.
    pub fn source(mut self, source: impl Into<String>) -> Builder {
        self.how.source = source.into();
        self
    }

    /// Sets all options that the kernel has to know.
    pub fn attachment(mut self, how: Attachment) -> Builder {
        self.how = how;
        self
    }

    /// Mounts at the directory `dir`, which need not be empty, and starts the workers.
    ///
    /// Uses `mount(2)` where that is permitted, and `fusermount3` otherwise. A path `/dev/fd/N`
    /// stands for a mount that another process has made: see [`mount_fd`](Self::mount_fd).
    ///
    /// # Errors
    /// Returns a [`MountError`], whose text names the cause and the remedy.
    pub fn mount(self, dir: impl AsRef<Path>) -> Result<Mounted, MountError> {
        let dir = dir.as_ref();
        match attach::descriptor(dir) {
            Some(number) => self.start(false, |_| attach::adopt(dir, Device::adopt_number(number))),
            None => self.start(true, |how| attach::attach(dir, how)),
        }
    }

    /// Starts the workers for a mount that another process has made, for example one with more
    /// rights, or in another mount namespace: `fd` is the open `/dev/fuse` that it named in the
    /// option `fd=` of `mount(2)`. It should have given the option `default_permissions`.
    ///
    /// The options of that mount hold, not those of this builder for a mount point:
    /// [`allow_other`](Self::allow_other), [`flags`](Self::flags), [`source`](Self::source).
    /// [`Mounted`] can't unmount it either: it is without a server from the end of this process on.
    ///
    /// # Errors
    /// Returns a [`MountError`], whose text names the cause and the remedy.
    pub fn mount_fd(self, fd: OwnedFd) -> Result<Mounted, MountError> {
        let dir = PathBuf::from(format!("/dev/fd/{}", fd.as_raw_fd()));
        self.start(false, |_| attach::adopt(&dir, Device::adopt(fd)))
    }

    /// Starts the workers for a mount that another process has made with
    /// [`Attachment::mount`]. The options of that mount hold, as with
    /// [`mount_fd`](Self::mount_fd), and [`syncing`](Self::syncing) has to be the same.
    ///
    /// [`Mounted`] can unmount it if this process sees it at the same path.
    ///
    /// # Errors
    /// Returns a [`MountError`]; the mount is ended then.
    pub fn serve(self, mount: Unserved) -> Result<Mounted, MountError> {
        self.start(true, |_| mount.into_parts())
    }

    /// Starts the workers. `is_permitted` tells that the mount has the option
    /// `default_permissions`.
    fn start(
        self,
        is_permitted: bool,
        attach: impl FnOnce(&Attachment) -> Result<(Device, Attached), MountError>,
    ) -> Result<Mounted, MountError> {
        if self.xattrs == Xattrs::Refused
            && let Some(path) = xattrs::find(&self.vfs.task()).map_err(MountError::FileSystem)?
        {
            return Err(MountError::HasXattrs { path });
        }
        if self.config.idmap && self.config.sharing != Sharing::Exclusive {
            return Err(MountError::IdMap("it needs exclusive use"));
        }
        let config = Config {
            has_xattrs: self.xattrs == Xattrs::Served,
            syncing: self.how.syncing,
            is_permitted,
            ..self.config
        };
        let config = match self.recorder {
            Some(_) => Config { sharing: Sharing::Exclusive, writeback: false, ..config },
            None => config,
        };
        let crew = match self.transport {
            Transport::Classic => None,
            Transport::Uring => Some(Crew::new(self.threads)),
        };
        if crew.is_some() {
            check_module().map_err(MountError::Uring)?;
        }
        let polling = match self.transport {
            Transport::Classic => PollingChoice::of(self.polling),
            Transport::Uring => PollingChoice::Never,
        };
        let workers = crew.map_or(self.threads, Crew::workers);
        let counters = Counters::new(workers, polling);
        let counters = Arc::new(match crew {
            None => counters,
            Some(crew) => counters.over_uring(crew.queues()),
        });
        let shared = Arc::clone(&counters);
        let server = Server::new(&self.vfs, config, self.volume, self.recorder, shared);
        let server = server.map_err(MountError::FileSystem)?;
        let (device, attached) = attach(&self.how)?;
        let mount = Arc::new(Mount { device: Arc::new(device), attached });
        let device = &mount.device;
        server.unsent.connect(device);
        if let Some(live) = &self.live {
            let follower: Weak<dyn Follower> = Arc::<Server>::downgrade(&server);
            live.follow(follower);
        }
        let started = match crew {
            None => session::handshake(device, &*server, InitFlags::empty())
                .and_then(|dialect| Workers::start(device, &server, dialect, &counters)),
            Some(crew) => uring::start(device, &server, &counters, crew),
        };
        match started {
            Ok(workers) => {
                let is_watched = !config.volatile && mount.attached.is_own();
                let watch = is_watched.then(|| watch(&server, mount.attached.dir()));
                let transport = self.transport;
                Ok(Mounted { server, mount, workers, transport, _watch: watch.flatten() })
            }
            Err(e) => {
                let _ = mount.attached.detach(&mount.device, Detach::Force);
                Err(e)
            }
        }
    }
}

/// Starts a thread that notices when the mount at `dir` becomes read-only.
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
/// `Send` and `Sync`. Dropping it sends what the kernel holds back, and unmounts by
/// [force](Unmounter::force): also where another mount namespace has a copy of the mount, as
/// `unshare --mount` makes one, which keeps it in use after an orderly unmount.
pub struct Mounted {
    server: Arc<Server>,
    mount: Arc<Mount>,
    workers: Workers,
    transport: Transport,
    _watch: Option<Watch>,
}

/// A handle that unmounts from another thread, such as one that waits for signals. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Unmounter(Arc<Mount>);

impl Mounted {
    /// Returns whether this process has made the mount, and can unmount it; see
    /// [`Builder::mount_fd`].
    pub fn is_own(&self) -> bool {
        self.mount.attached.is_own()
    }

    /// Returns how the kernel and this process exchange messages.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the directory of the mount, as an absolute path; `/dev/fd/N` if another process has
    /// made it.
    pub fn dir(&self) -> &Path {
        self.mount.attached.dir()
    }

    /// Returns the device number of the mount, major and minor (`st_dev`).
    ///
    /// # Errors
    /// `ENOENT` if another process has made the mount with
    /// [`Builder::mount_fd`].
    pub fn device(&self) -> io::Result<(u32, u32)> {
        self.mount.attached.device()
    }

    /// Returns the number of worker threads.
    pub fn threads(&self) -> usize {
        self.workers.count()
    }

    /// Returns statistics of the mount.
    pub fn stats(&self) -> Stats {
        self.server.stats()
    }

    /// Returns statistics of the mount, of each kind of request, and of the mounted tree. Takes the
    /// locks that [`Vfs::counts`] takes.
    pub fn statistics(&self) -> Statistics {
        self.server.statistics()
    }

    /// Returns whether the file system is still mounted.
    pub fn is_mounted(&self) -> bool {
        !self.workers.are_finished() && !attach::is_ended(&self.mount.device)
    }

    /// Returns a handle that unmounts from another thread.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter(Arc::clone(&self.mount))
    }

    /// Blocks until the file system is unmounted, by this process or another.
    pub fn wait(mut self) {
        self.workers.join();
    }

    /// Unmounts if the mount is not in use, and waits for the workers.
    ///
    /// # Errors
    /// Returns `EBUSY` and the mount, unchanged, while a process has a file open or its working
    /// directory inside.
    pub fn unmount(mut self) -> Result<(), (Mounted, io::Error)> {
        match self.mount.attached.detach(&self.mount.device, Detach::Idle) {
            Ok(()) => {
                self.workers.join();
                Ok(())
            }
            Err(e) => Err((self, e)),
        }
    }

    /// Makes the kernel drop its cached attributes, ACLs and data of the inode of `file`.
    ///
    /// Call it after a change through the library when the mount caches ([`Sharing::Shared`] with a
    /// time). Does nothing if the kernel does not know the inode.
    ///
    /// Must not be called by a thread on which a request of this mount waits.
    ///
    /// # Errors
    /// Returns any error of `stat`, and of the device after unmounting.
    pub fn invalidate(&self, file: &File) -> io::Result<()> {
        let Some(node) = self.server.nodes.find(&file.stat()?) else { return Ok(()) };
        self.mount.notify(Reply::new().inval_inode(node, 0))
    }

    /// Makes the kernel drop its cached result of looking up `name` in the directory `dir`, whether
    /// positive or negative.
    ///
    /// Must not be called by a thread on which a request of this mount waits.
    ///
    /// # Errors
    /// Returns any error of `stat`, and of the device after unmounting.
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
        // In a notification the code takes the field of a reply's negated error number.
        self.mount.notify(message.finish(0, -notify::INVAL_ENTRY))
    }
}

impl Mount {
    /// Has the kernel send the data that it holds back, and waits for it, at most [`FLUSH_MAX`]:
    /// before the mount is ended by force, which ends a wait that takes longer, too.
    fn flush(self: &Arc<Mount>) {
        let (done, waiting) = mpsc::channel::<()>();
        let mount = Arc::clone(self);
        let flushing = spawn("vfscale-flush", move || {
            if let Err(error) = mount.attached.flush(&mount.device) {
                tracing::warn!("cannot flush {}: {error}", mount.attached.dir().display());
            }
            drop(done);
        });
        match flushing {
            Ok(_) => {
                if waiting.recv_timeout(FLUSH_MAX) == Err(RecvTimeoutError::Timeout) {
                    let dir = self.attached.dir().display();
                    tracing::warn!("{dir} is unmounted before all data is written to it");
                }
            }
            Err(error) => tracing::warn!("no thread to flush a mount: {error}"),
        }
    }

    fn notify(&self, message: &[u8]) -> io::Result<()> {
        match self.device.send(message) {
            // The kernel has already forgotten the node or name.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            sent => sent,
        }
    }
}

impl Unmounter {
    /// Unmounts if the mount is not in use.
    ///
    /// # Errors
    /// Returns `EBUSY` if the mount is in use.
    pub fn unmount(&self) -> io::Result<()> {
        self.0.attached.detach(&self.0.device, Detach::Idle)
    }

    /// Unmounts by force; users of the mount get `ENOTCONN` or `ECONNABORTED` from then on, and
    /// data that the kernel has not sent yet is lost.
    ///
    /// A process without the right to unmount directly only detaches the mount: its present users
    /// can use it until this process ends, and no other process sees it.
    ///
    /// # Errors
    /// Returns any error of `umount2(2)`.
    pub fn force(&self) -> io::Result<()> {
        self.0.attached.detach(&self.0.device, Detach::Force)
    }

    /// Unmounts when the mount is no longer in use, or by force after `patience`, when the kernel
    /// has sent the data that it holds back (for which this waits at most ten seconds more).
    /// Returns whether force was needed.
    ///
    /// # Errors
    /// Returns any error of `umount2(2)` except `EBUSY`.
    pub fn unmount_within(&self, patience: Duration) -> io::Result<bool> {
        const STEP: Duration = Duration::from_millis(10);
        let end = Instant::now() + patience;
        loop {
            match self.unmount() {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    if Instant::now() >= end {
                        self.0.flush();
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
        // By force at once: an orderly unmount leaves a mount in use that another mount namespace
        // has a copy of, and then nobody here can end it.
        self.mount.flush();
        if let Err(e) = self.unmounter().force() {
            tracing::error!("cannot unmount {}: {e}", self.dir().display());
            return;
        }
        if attach::is_ended(&self.mount.device) {
            self.workers.join();
        }
        // Otherwise the mount still has users: the helper could only detach it. The workers serve
        // them until the process ends.
    }
}
