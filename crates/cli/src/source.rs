//! The file system that the command line names, and how it is served.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vfscale::block::Device;
use vfscale::options::{Options, Size};
use vfscale::pool::PoolMaker;
use vfscale::posix::{At, MountFlags};
use vfscale::volume::{CacheBudget, Fence, Freezer, LiveVolume};
use vfscale::{Mode, Pool, PoolError, ProcFs, Vfs, Volume, VolumeBuilder, VolumeError};
use vfscale_command::say;
use vfscale_diskfs::BLOCK_BYTES;
use vfscale_fuse::{Attachment, Builder, Mounted, Sharing, Transport};

use crate::device;
use crate::error::Failure;
use crate::options::{MountOptions, caller};

use args::{ServeArgs, SourceArgs};

pub(crate) mod args;

/// Directory that shows the state of the tree.
const STATE_DIR: &str = "/.vfscale";

/// Time for which the kernel may cache attributes and names that change by themselves.
const STATE_CACHE: Duration = Duration::from_secs(1);

/// Default size of the caches of a volume, and the most of the memory that it may be.
const CACHE: (Size, Size) = (Size::Bytes(320 << 20), Size::Percent(25));

/// Default size of a new image: so large that it need not grow, as it is sparse.
pub(crate) const IMAGE_SIZE: u64 = 1 << 40;

/// Size of the log of such an image. Storage is reserved for all of it, and again for a copy of it
/// in each open branch, so it is that of a volume that a user would call small.
const IMAGE_LOG: u64 = 16 << 20;

/// A file system, in memory or in an image.
pub(crate) enum Source {
    Memory(Vfs),
    Volume(LiveVolume),
}

impl Source {
    /// Creates the file system in memory, or opens the volume. A missing volume is created if a
    /// size is given. Requests of the opening of an image of Ceph RBD fail after `patience`.
    pub(crate) fn open(
        source: &SourceArgs,
        options: &MountOptions,
        image: Option<(&Path, Option<u64>)>,
        patience: Option<Duration>,
    ) -> Result<Source, Failure> {
        if options.fs.no_recovery == Some(true) && (image.is_none() || !options.is_read_only()) {
            let why = "`-o norecovery` is for a volume that is only read: `-o ro,norecovery`";
            return Err(Failure::Usage(why.into()));
        }
        if image.is_none() && options.branch.is_some() {
            let why = "`-o branch=` is for a volume, not for a file system in memory";
            return Err(Failure::Usage(why.into()));
        }
        match image {
            None => memory(source, options).map(Source::Memory),
            Some(named) => volume(source, options, named, patience).map(Source::of),
        }
    }

    fn of(volume: Volume) -> Source {
        Source::Volume(LiveVolume::new(volume))
    }

    /// Opens a branch of a pool that this process has open.
    pub(crate) fn of_branch(
        pool: &Pool,
        name: &str,
        source: &SourceArgs,
        options: &MountOptions,
    ) -> Result<Source, Failure> {
        let is_read_only = options.is_read_only();
        if pool.is_read_only() && !is_read_only {
            let why = "its image is mounted for reading only: mount it with `-o ro`";
            return Err(Failure::Usage(why.into()));
        }
        let mut builder = branch(pool, name, is_read_only)?;
        // By default it shares the memory of the pool.
        if let Some(size) = cache_size(options) {
            builder = builder.cache_size(size);
        }
        configured(builder, source, options, None).map(Source::of)
    }

    /// Opens the volume on a device.
    pub(crate) fn of_device(
        device: Arc<dyn Device>,
        source: &SourceArgs,
        options: &MountOptions,
    ) -> Result<Source, Failure> {
        let builder = vfscale::volume_on(device).cache_size(caches(options));
        configured(builder, source, options, None).map(Source::of)
    }

    /// Calls `look` with the volume as it is now, if there is one, and it is open.
    fn volume<T>(&self, look: impl FnOnce(&Volume) -> T) -> Option<T> {
        match self {
            Source::Memory(_) => None,
            Source::Volume(volume) => volume.with(look),
        }
    }

    fn vfs(&self) -> Result<Vfs, Failure> {
        let closed = || Failure::Usage("the volume is closed".into());
        match self {
            Source::Memory(vfs) => Ok(vfs.clone()),
            Source::Volume(volume) => volume.with(|it| it.vfs().clone()).ok_or_else(closed),
        }
    }

    /// Returns the pool that the volume is a branch of.
    pub(crate) fn pool(&self) -> Option<Pool> {
        self.volume(Volume::pool).flatten()
    }

    /// Returns the handle that makes the first branch of the image.
    pub(crate) fn pool_maker(&self) -> Option<PoolMaker> {
        self.volume(Volume::pool_maker).flatten()
    }

    /// Returns the handle that freezes the volume.
    fn freezer(&self) -> Option<Freezer> {
        self.volume(Volume::freezer)
    }

    /// Returns whether changes are written to a volume.
    pub(crate) fn is_written(&self) -> bool {
        self.volume(|volume| !volume.driver().volume().is_read_only()).unwrap_or_default()
    }

    /// Returns a handle by which another thread can make the file system durable.
    pub(crate) fn syncer(&self) -> Syncer {
        match self {
            Source::Memory(_) => Syncer(None),
            Source::Volume(volume) => Syncer(Some(volume.clone())),
        }
    }

    /// Returns a handle that finds out whether another machine has taken the volume over.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.volume(Volume::fence)
    }

    /// Lets other processes wait for the volume once it is no longer mounted.
    pub(crate) fn publish_mount(&self, mounted: &Mounted) {
        let publish =
            |volume: &Volume| mounted.device().and_then(|device| volume.publish_mount(device));
        if let Some(Err(e)) = self.volume(publish) {
            tracing::info!("other programs will not wait for the volume to be closed: {e}");
        }
    }

    /// Closes the volume. The caller has ended the mount.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Source::Memory(_) => Ok(()),
            Source::Volume(volume) => Ok(volume.close().map_err(VolumeError::from)?),
        }
    }
}

/// A handle that makes a file system durable, and does not prevent it from being closed.
pub(crate) struct Syncer(Option<LiveVolume>);

impl Syncer {
    /// Makes all changes durable and returns whether that succeeded; prints the error otherwise.
    pub(crate) fn sync(&self) -> bool {
        match self.0.as_ref().and_then(|volume| volume.with(Volume::sync)) {
            Some(Err(e)) => {
                say(format_args!("vfscale: not everything could be written: {e}"));
                false
            }
            _ => true,
        }
    }
}

/// Returns what the kernel has to know of a mount.
pub(crate) fn attachment(options: &MountOptions, name: Option<&Path>) -> Attachment {
    let is_root = rustix::process::geteuid().is_root();
    let allow_other = options.allow_other.unwrap_or(is_root);
    // An absolute path: `vfscale grow` finds the mount of an image by it.
    let name = name.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    let name = name.map(|path| path.display().to_string());
    let name = options.source.clone().or(name).unwrap_or_else(|| "vfscale".into());
    Attachment::new()
        .source(name)
        .flags(options.apply(MountFlags::empty()))
        .allow_other(allow_other)
        .syncing(options.syncing())
}

/// Returns a builder of the mount, with everything set but the directory.
pub(crate) fn builder(
    source: &Source,
    serve: &ServeArgs,
    options: &MountOptions,
    name: Option<&Path>,
) -> Result<Builder, Failure> {
    let vfs = &source.vfs()?;
    let access_times = options.apply(MountFlags::empty()) & MountFlags::ACCESS_TIMES;
    if !access_times.is_empty() {
        // The kernel leaves access times to the server.
        vfs.task().posix().remount_bind("/", access_times)?;
    }
    if serve.proc {
        mount_state(vfs)?;
    }
    if options.writeback && serve.proc {
        return Err(Failure::Usage("`-o writeback` can't be used with --proc".into()));
    }
    if options.idmap && serve.proc {
        return Err(Failure::Usage("`-o idmap` can't be used with --proc".into()));
    }
    let mut builder = Builder::new(vfs)
        .sharing(if serve.proc {
            Sharing::Shared { cache: STATE_CACHE }
        } else {
            Sharing::Exclusive
        })
        .volatile(matches!(source, Source::Memory(_)))
        .writeback(options.writeback)
        .chattr(options.chattr)
        .idmap(options.idmap)
        .xattrs(options.xattrs.unwrap_or_default())
        .attachment(attachment(options, name))
        .branches(source.pool())
        .first_branch(source.pool_maker())
        .freezer(source.freezer())
        .transport(transport(serve, options)?);
    if let Source::Volume(volume) = source {
        builder = builder.follow(volume);
    }
    if let Some(image) = name {
        builder = builder.image(image);
    }
    if let Some(threads) = options.threads {
        builder = builder.threads(threads.into());
    }
    if let Some(polling) = options.poll {
        builder = builder.polling(polling);
    }
    Ok(builder)
}

/// Returns the transport, and first switches FUSE over io_uring on if that is requested.
fn transport(serve: &ServeArgs, options: &MountOptions) -> Result<Transport, Failure> {
    let transport = options.transport.unwrap_or_default();
    if !serve.enable_uring {
        return Ok(transport);
    }
    if transport != Transport::Uring {
        return Err(Failure::Usage("--enable-uring is for `--transport uring`".into()));
    }
    let changes = vfscale_fuse::enable_uring().map_err(Failure::EnableUring)?;
    for change in changes {
        say(format_args!("vfscale: switched on for the whole machine: {change}"));
    }
    Ok(transport)
}

/// Mounts a file system in the tree that shows the state of the tree.
fn mount_state(vfs: &Vfs) -> Result<(), Failure> {
    let task = vfs.task();
    task.posix().mkdirat(At::Cwd, STATE_DIR, Mode::from(0o555))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let (uid, gid) = caller();
    Ok(task.posix().mount(ProcFs::owned_by(vfs, uid, gid), STATE_DIR, flags)?)
}

/// Returns the options of the file system. The root directory of a new one belongs to the user.
fn owned(options: &MountOptions) -> Options {
    let (uid, gid) = caller();
    let mut options = options.fs.clone();
    options.uid.get_or_insert(uid);
    options.gid.get_or_insert(gid);
    options
}

/// Returns limits without a limit of open files: a mount has an open file for each inode that the
/// kernel caches, and the kernel bounds those.
pub(crate) fn limits() -> vfscale::Limits {
    vfscale::Limits::default().open_files(i64::MAX as u64)
}

/// Creates a file system in memory.
fn memory(source: &SourceArgs, options: &MountOptions) -> Result<Vfs, Failure> {
    let mut options = owned(options);
    options.size = source.memory.flatten().or(options.size);
    let builder = vfscale::memory().limits(limits()).scaling(source.scaling()?);
    Ok(options.memory(builder)?.build()?)
}

/// Returns the branch that the command line names.
pub(crate) fn branch_name(options: &MountOptions) -> String {
    options.branch.as_deref().unwrap_or(vfscale::pool::MAIN).to_owned()
}

/// Opens the pool in an image, with the caches of all its branches, which this process serves.
pub(crate) fn pool(
    source: &SourceArgs,
    options: &MountOptions,
    path: &Path,
    is_read_only: bool,
) -> Result<Pool, PoolError> {
    let take_over = source.take_over || options.fs.take_over == Some(true);
    let budget = CacheBudget::new(caches(options));
    let pool = device::pool(path).take_over(take_over).cache_budget(&budget);
    pool.read_only(is_read_only).open()
}

/// Opens a volume.
fn volume(
    source: &SourceArgs,
    options: &MountOptions,
    (path, size): (&Path, Option<u64>),
    patience: Option<Duration>,
) -> Result<Volume, Failure> {
    let cache_size = caches(options);
    let builder = match options.branch.as_ref() {
        None => vfscale::volume(path).cache_size(cache_size),
        Some(name) => {
            let is_read_only = options.is_read_only();
            branch(&pool(source, options, path, is_read_only)?, name, is_read_only)?
        }
    };
    configured(builder.patience(patience), source, options, size)
}

/// Returns the size of the caches that the command line gives.
fn cache_size(options: &MountOptions) -> Option<u64> {
    options.fs.cache_size.map(Size::on_this_machine)
}

/// Returns the size of the caches of a volume, or of all branches together.
fn caches(options: &MountOptions) -> u64 {
    let default = || CACHE.0.on_this_machine().min(CACHE.1.on_this_machine());
    cache_size(options).unwrap_or_else(default)
}

/// Returns the builder of a branch.
fn branch(pool: &Pool, name: &str, is_read_only: bool) -> Result<VolumeBuilder, Failure> {
    let is_frozen = pool.branches().iter().any(|info| info.name == *name && info.read_only);
    if is_frozen && !is_read_only {
        let why = format!("branch {name:?} can only be read: mount it with `-o ro`");
        return Err(Failure::Usage(why));
    }
    Ok(pool.branch(name))
}

/// Has a builder make a missing image of a size, which is the default one unless it was `asked`
/// for.
fn sized(builder: VolumeBuilder, size: u64, asked: Option<u64>) -> VolumeBuilder {
    let builder = builder.create(size);
    if asked.is_some() { builder } else { builder.log_size(IMAGE_LOG) }
}

/// Makes a missing image, as a run in a mount does, and opens no volume: the caller may fork later.
pub(crate) fn make_missing(image: &Path, asked: Option<u64>) -> Result<(), Failure> {
    let (uid, gid) = caller();
    let size = asked.unwrap_or(IMAGE_SIZE) & !(BLOCK_BYTES as u64 - 1);
    let builder = sized(vfscale::volume(image), size, asked).owner(uid, gid);
    Ok(builder.ceph(device::ceph()).make_missing()?)
}

/// Opens a volume with the options of the command line.
fn configured(
    builder: VolumeBuilder,
    source: &SourceArgs,
    options: &MountOptions,
    size: Option<u64>,
) -> Result<Volume, Failure> {
    let mut builder = builder.limits(limits()).scaling(source.scaling()?);
    builder = builder.read_only(options.is_read_only()).take_over(source.take_over);
    if let Some(size) = size {
        builder = sized(builder, size, source.size);
    }
    // Callers have set the size of the caches, which may be one for all branches.
    let mut options = owned(options);
    options.cache_size = None;
    Ok(options.volume(builder)?.ceph(device::ceph()).open()?)
}
