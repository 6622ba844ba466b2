//! Volumes: crash-safe file systems in an image file or on a device.
//!
//! # Purpose
//!
//! [`volume`] (a path) and [`volume_on`] (any [`Device`]) set the options of a volume.
//! [`VolumeBuilder::open`] recovers it after a crash and mounts it as the root of a new tree;
//! [`Volume::close`] closes it. All changes made before a successful [`close`](Volume::close) or
//! sync are durable.
//!
//! # Invariants
//!
//! * A volume has one opener, or several that only read: any other opener gets an error that names
//!   the first.
//! * Dropping a volume without closing it, as an early `?` does, makes all changes durable if the
//!   device permits, but reports no error; the next opening recovers the volume. Only
//!   [`Volume::abandon`] has the effect of a crash: what was not synced is lost.
//! * The image is unlocked as soon as the last of the volume, its tasks and its open files is
//!   dropped, and is not written after that. This waits for no grace period, which may be long.
//!
//! # References
//!
//! A [`Volume`] holds its tree and its driver. Tasks hold the tree; tasks and files hold its
//! mounts. The volume is not closed while there are any. Dentries and inodes whose freeing waits
//! for a grace period hold the driver, and so the device. Therefore dropping a volume releases both
//! explicitly ([`DiskFs::leave`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vfscale_block::{Ceph, Device, DeviceOptions, Error as DeviceError, Guarded};
use vfscale_diskfs::BLOCK_BYTES;
use vfscale_diskfs::mkfs::{self, MkfsOptions, RootDirectory};
pub use vfscale_diskfs::{CacheBudget, OnError};
use vfscale_diskfs::{DiskFs, Fault, OpenError, Settings, copies};
use vfscale_memfs::MemFs;
use vfscale_vfs::driver::ErrorCursor;
use vfscale_vfs::driver::fork::{self, Owned};
use vfscale_vfs::types::MountFlags;
use vfscale_vfs::{Errno, FileSystem, Limits, Mode, Scaling, Task, Users, Vfs};

use crate::place::shared::{Access, MAIN, PoolShared};

mod freezer;
mod live;

pub use crate::diff::Differing;
pub use crate::error::volume::VolumeError;
use crate::place::devices::{DeviceSource, Opened};
use crate::place::lower::Lower;
pub use crate::place::places::Fence;
use crate::place::places::{Devices, OpenPlace, Place};
use crate::place::present::Present;
pub use freezer::Freezer;
pub use live::{CantFollow, Followed, Follower, LiveVolume};

/// Returns the options of a volume in an image file or on a block device; open it with
/// [`open`](VolumeBuilder::open).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("disk.vfs");
/// let volume = vfscale::volume(&path).create(64 << 20).open()?;
/// volume.task().write("/greeting", "hello\n")?;
/// volume.close()?;
///
/// let volume = vfscale::volume(&path).open()?;
/// assert_eq!(volume.task().read_to_string("/greeting")?, "hello\n");
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
pub fn volume(path: impl Into<PathBuf>) -> VolumeBuilder {
    VolumeBuilder::new(Place::Device(DeviceSource::Path(path.into())))
}

/// Returns the options of a volume on a device of the caller's, which
/// [`create`](VolumeBuilder::create) makes there.
pub fn volume_on(device: Arc<dyn Device>) -> VolumeBuilder {
    VolumeBuilder::new(Place::Device(DeviceSource::Device(device)))
}

/// The driver of an open volume. After it is dropped, the end of the last mount releases the driver
/// and its devices.
struct OpenDriver {
    fs: Arc<DiskFs>,
    devices: Option<Devices>,
    /// The errors of write-back that have been reported to the volume's owner.
    reported: ErrorCursor,
    /// Whether there is nothing more to write: the volume was closed or abandoned.
    is_over: bool,
}

impl OpenDriver {
    fn new(fs: Arc<DiskFs>, devices: Devices) -> Self {
        let reported = ErrorCursor::default();
        Self { fs, devices: Some(devices), reported, is_over: false }
    }

    /// Makes all changes durable; returns an error of this call, or of write-back since the last
    /// call.
    fn sync(&self) -> Result<(), Errno> {
        let synced = self.fs.sync_fs();
        let reported = self.fs.all_write_errors().and_then(|errors| self.reported.advance(errors));
        synced.and(reported.map_or(Ok(()), |code| Err(Errno::from_raw_os_error(code))))
    }
}

impl Drop for OpenDriver {
    fn drop(&mut self) {
        if !self.is_over {
            // The owner who wants to know about errors syncs or closes.
            let _ = self.sync();
        }
        if let Some(devices) = self.devices.take() {
            self.fs.leave(move || devices.release());
        }
    }
}

/// Minimum of changed metadata in memory, in bytes: some hundred blocks, enough for a change or
/// two.
const CHANGED_BYTES_MIN: u64 = 1 << 20;

/// Bytes at the start of a device that are zero if it is new.
const BLANK_BYTES: u64 = 1 << 20;

/// The size of caches from which that of the changed metadata of a branch follows: there may be
/// many branches. The caches themselves are in the budget of the pool.
const BRANCH_CACHE_BYTES: u64 = 16 << 20;

/// Options of [`volume`] and [`volume_on`].
///
/// ```
/// use std::time::Duration;
///
/// let options = vfscale::volume("disk.vfs")
///     .create(1 << 30)
///     .cache_size(64 << 20)
///     .sync_interval(Some(Duration::from_secs(1)));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct VolumeBuilder {
    place: Place,
    log: Option<DeviceSource>,
    device: DeviceOptions,
    size: Option<u64>,
    log_size: Option<u64>,
    root: RootDirectory,
    settings: Settings,
    limits: Limits,
}

impl VolumeBuilder {
    /// Returns the options of the volume in a branch.
    pub(crate) fn of_branch(pool: Arc<PoolShared>, name: &str) -> Self {
        let budget = Arc::clone(pool.budget());
        let builder = Self::new(Place::Branch(pool, name.to_owned()));
        builder.cache_size(BRANCH_CACHE_BYTES).cache_budget(&budget)
    }

    fn new(place: Place) -> Self {
        let (settings, limits) = (Settings::default(), Limits::default());
        let (device, root) = (DeviceOptions::default(), RootDirectory::default());
        Self { place, log: None, device, size: None, log_size: None, root, settings, limits }
    }

    /// Makes a volume of `bytes` if there is none: a sparse image at the path; or on the device of
    /// [`volume_on`], if that holds no volume and begins with zeros for a mebibyte.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use vfscale::block::MemoryDevice;
    ///
    /// let device = Arc::new(MemoryDevice::new(32 << 20)?);
    /// let volume = vfscale::volume_on(device).create(16 << 20).open()?;
    /// assert!(volume.is_new());
    /// # volume.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Sets the size of the log, in bytes, of an image that is created. By default it depends on
    /// the size of the image.
    pub fn log_size(mut self, bytes: u64) -> Self {
        self.log_size = Some(bytes);
        self
    }

    /// Sets the owner and group of the root directory of an image that is created; 0 and 0 by
    /// default. Does not affect an existing image.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        (self.root.uid, self.root.gid) = (uid, gid);
        self
    }

    /// Sets the permission bits of the root directory of an image that is created; 0755 by default.
    pub fn mode(mut self, mode: impl Into<Mode>) -> Self {
        self.root.mode = mode.into().bits();
        self
    }

    /// Sets limits for the memory of the tree other than its files: open files, pipes, sockets,
    /// locks.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the user and the configuration of Ceph, for images whose names begin with `rbd:`.
    pub fn ceph(mut self, ceph: Ceph) -> Self {
        self.device = self.device.ceph(ceph);
        self
    }

    /// Sets the time after which a request of the opening of an image of Ceph RBD fails with
    /// `ETIMEDOUT`, rounded up to seconds; whoever opens it again has new connections. By default
    /// it waits for the cluster. Requests of the open volume, and of the replay, always wait.
    pub fn patience(mut self, patience: Option<Duration>) -> Self {
        self.device = self.device.patience(patience);
        self
    }

    /// Takes images of Ceph RBD from a holder that is alive: the cluster refuses it from then on,
    /// and its log is replayed. An image in a file can't be taken over.
    pub fn take_over(mut self, take_over: bool) -> Self {
        self.device = self.device.take_over(take_over);
        self
    }

    /// Opens the volume without writing: no byte of the image changes. If the volume was not
    /// closed, its log is replayed in memory. The result (at most the size of the log) stays in
    /// memory until the volume is closed.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.settings.read_only = read_only;
        self
    }

    /// Opens the volume without reading its log and without writing: like
    /// [`read_only`](Self::read_only), for a volume whose log is lost or can't be read, or whose
    /// repair was interrupted. Only metadata that was written back is visible. The latest changes
    /// may be missing, or damaged if only part of a change was written back.
    pub fn no_recovery(mut self, no_recovery: bool) -> Self {
        self.settings.no_recovery = no_recovery;
        self
    }

    /// Sets the reaction when the volume is found to be corrupted, or its log fails:
    /// [`OnError::Shutdown`] by default.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.settings.on_error = on_error;
        self
    }

    /// Sets the size of the log that a volume in a branch of a pool gets when the branch is first
    /// opened for writing, in bytes: 1 MiB by default, at most the space of the volume's first log.
    /// From its first change until it is closed, the pool has that much reserved for it. The close
    /// of a branch that has filled its log often makes it 4 MiB, if the pool has much room.
    pub fn branch_log_size(mut self, bytes: u64) -> Self {
        self.settings.branch_log_blocks = Some(bytes / BLOCK_BYTES as u64);
        self
    }

    /// Sets the approximate size of the caches, in bytes: three quarters for file data, a quarter
    /// for metadata. Changed metadata may take another half of the size until it is written back;
    /// at that limit changes wait for write-back, even if the log has space. 320 MiB by default. A
    /// branch gets caches of its own with it, outside of the budget of its pool.
    pub fn cache_size(mut self, bytes: u64) -> Self {
        if let (Place::Branch(pool, _), Some(budget)) = (&self.place, &self.settings.cache_budget)
            && Arc::ptr_eq(pool.budget(), budget)
        {
            self.settings.cache_budget = None;
        }
        self.settings.metadata_cache_bytes = bytes / 4;
        self.settings.data_cache_bytes = bytes - bytes / 4;
        self.settings.journal.memory_bytes = Some((bytes / 2).max(CHANGED_BYTES_MIN));
        self
    }

    /// Has the caches of file data and metadata take their memory from a budget that several
    /// volumes share, instead of [`cache_size`](Self::cache_size). A volume takes what it uses, and
    /// gives back what it has not used for a while when another one needs it. By default each
    /// volume has memory of its own.
    ///
    /// A quarter of the budget is for metadata. Dirty data of all volumes takes at most three
    /// quarters of the rest, and a volume whose device does not answer does not keep others from
    /// writing. Changed metadata is not part of it: half of `cache_size` for each volume.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let budget = vfscale::volume::CacheBudget::new(64 << 20);
    /// let open = |name: &str| {
    ///     vfscale::volume(dir.path().join(name)).create(16 << 20).cache_budget(&budget).open()
    /// };
    /// let (a, b) = (open("a.vfs")?, open("b.vfs")?);
    /// a.task().write("/f", "in a\n")?;
    /// b.task().write("/f", "in b\n")?;
    /// assert!(budget.used().0 > 0);
    /// # a.close()?;
    /// # b.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache_budget(mut self, budget: &Arc<CacheBudget>) -> Self {
        self.settings.cache_budget = Some(Arc::clone(budget));
        self
    }

    /// Sets the time after which changes are durable without a sync, data together with names: 5
    /// seconds by default, plus the delays of a slow device. With `None`, changes are written only
    /// when the log is full.
    pub fn sync_interval(mut self, interval: Option<Duration>) -> Self {
        self.settings.sync_interval = interval;
        self
    }

    /// Sets whether the data of a file that replaces another (by a rename, or after a truncation to
    /// zero) is written before the replacement is durable. Then a program that writes a new file
    /// and renames it over the old one has one of the two after a crash, even without a sync. On by
    /// default. If off, such a file may be empty after a crash, as with ext4's `noauto_da_alloc`.
    pub fn auto_da_alloc(mut self, auto_da_alloc: bool) -> Self {
        self.settings.auto_da_alloc = auto_da_alloc;
        self
    }

    /// Sets [`Settings::dir_heat`], for tests.
    #[doc(hidden)]
    pub fn dir_heat(mut self, times: u32) -> Self {
        self.settings.dir_heat = times;
        self
    }

    /// Sets whether the blocks of removed files are discarded, in the background at the sync
    /// interval and when the volume is closed: an image then gives them back to its file system. By
    /// default they are if the device is thinly provisioned: a sparse image or memory, not a block
    /// device nor an image whose space is allocated.
    /// [`Calls::trim_fs`](crate::posix::Calls::trim_fs) discards all free blocks in any case.
    pub fn discard(mut self, discard: bool) -> Self {
        self.settings.discard = Some(discard);
        self
    }

    /// Sets the path of the log's image or device, for a volume that was created with an external
    /// log.
    pub fn log_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(DeviceSource::Path(path.into()));
        self
    }

    /// Sets the log's device, for a volume that was created with an external log.
    pub fn log_device(mut self, device: Arc<dyn Device>) -> Self {
        self.log = Some(DeviceSource::Device(device));
        self
    }

    /// Sets how its structures are sharded; by default for the number of CPUs of the machine.
    pub fn scaling(mut self, scaling: Scaling) -> Self {
        self.settings.journal.scaling = scaling;
        self
    }

    /// Recovers the volume if it was not closed, and mounts it as the root of a new tree.
    ///
    /// Blocks for the I/O: after a crash, until the log is read and replayed.
    ///
    /// # Errors
    /// Returns a [`VolumeError`], whose text names the cause and the remedy.
    pub fn open(self) -> Result<Volume, VolumeError> {
        let name = match &self.place {
            Place::Device(source) => source.name(),
            Place::Branch(pool, branch) => format!("{}:{branch}", pool.name()),
        };
        if fork::is_child() {
            return Err(VolumeError::Forked { name });
        }
        let access_times = self.access_times();
        let (device, is_new) = self.device()?;
        let log = self.log.as_ref().filter(|_| !self.settings.no_recovery);
        let log = log.map(|log| self.open_device(log)).transpose()?;
        let read_only = self.is_read_only();
        let mut settings = self.settings;
        settings.log_device = log.as_ref().map(Opened::device);
        let budget = settings.cache_budget.as_ref();
        let present = Arc::<Present>::default();
        let place =
            if read_only { device } else { device.or_lower(&name, budget, &present.current) };
        let mut devices = Devices { place, log };
        let fs = open_driver(&mut devices, &settings, read_only, &name)?;
        let vfs = mount(&fs, settings.journal.scaling, self.limits, access_times);
        let vfs = vfs.map_err(|errno| {
            fs.abandon();
            VolumeError::Mount { name: name.clone(), errno }
        })?;
        present.enter(&fs, &devices);
        let held = Owned::new(OpenDriver::new(fs, devices));
        let options = Box::new((settings, self.limits));
        Ok(Volume { vfs, held, name, is_new, present, options })
    }

    /// Returns the rule for access times of the root mount. In a fork, a read would copy the block
    /// of the inode.
    fn access_times(&self) -> MountFlags {
        match &self.place {
            Place::Branch(_, name) if name != MAIN => MountFlags::NOATIME,
            _ => MountFlags::RELATIME,
        }
    }

    fn is_read_only(&self) -> bool {
        self.settings.read_only || self.settings.no_recovery
    }

    fn device_options(&self) -> DeviceOptions {
        self.device.clone().read_only(self.is_read_only())
    }

    fn open_device(&self, source: &DeviceSource) -> Result<Opened, VolumeError> {
        source.open(&self.device_options()).map_err(|error| match source.missing(&error) {
            Some(path) => VolumeError::Missing(path.clone()),
            None => VolumeError::Device(error),
        })
    }

    /// Opens or creates the device; returns it, and whether it was created.
    fn device(&self) -> Result<(OpenPlace, bool), VolumeError> {
        let source = match &self.place {
            Place::Device(source) => source,
            Place::Branch(pool, name) => {
                return Ok((OpenPlace::Branch(pool.open_branch(name)?), false));
            }
        };
        let (device, is_new) = match (self.open_device(source), source, self.size) {
            (Err(VolumeError::Missing(_)), DeviceSource::Path(path), Some(bytes))
                if !self.is_read_only() =>
            {
                match self.make(path, bytes)? {
                    Some(made) => (Opened::Own(made), true),
                    None => (self.open_device(source)?, false),
                }
            }
            (Ok(Opened::Callers(device)), _, Some(bytes))
                if !self.is_read_only() && is_blank(&*device)? =>
            {
                self.format(&*device, bytes)?;
                (Opened::Callers(device), true)
            }
            (device, ..) => (device?, false),
        };
        Ok((OpenPlace::Device(device), is_new))
    }

    /// Makes the image that [`create`](Self::create) asks for, if it is missing, and opens no
    /// volume: the process may fork afterwards.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`VolumeError::Device`] and [`VolumeError::Make`]; the image is still missing then.
    pub fn make_missing(self) -> Result<(), VolumeError> {
        let Place::Device(DeviceSource::Path(path)) = &self.place else { return Ok(()) };
        match (self.device_options().exists(path), self.size) {
            (Ok(false), Some(bytes)) if !self.is_read_only() => self.make(path, bytes).map(drop),
            (Ok(_), _) => Ok(()),
            (Err(error), _) => Err(VolumeError::Device(error)),
        }
    }

    /// Makes an image. `None` if another one has been faster.
    fn make(&self, path: &Path, bytes: u64) -> Result<Option<Arc<dyn Guarded>>, VolumeError> {
        let exists = |error: &DeviceError| {
            error.os().is_some_and(|it| it.code() == Errno::EXIST.raw_os_error())
        };
        let device = match self.device.create(path, bytes) {
            Err(error) if exists(&error) => return Ok(None),
            created => created.map_err(VolumeError::Device)?,
        };
        self.format(&*device, bytes).inspect_err(|_| {
            // No other process can have used the image: it was just created, and was locked.
            device.release();
            let _ = self.device.remove(path);
        })?;
        Ok(Some(device))
    }

    /// Makes a volume on a device.
    fn format(&self, device: &dyn Device, bytes: u64) -> Result<(), VolumeError> {
        let log_blocks = self.log_size.map(|bytes| bytes / BLOCK_BYTES as u64);
        let (size, root) = (Some(bytes), self.root);
        let options = MkfsOptions { size, log_blocks, root, ..MkfsOptions::default() };
        let made = mkfs::format(device, &options).map(drop);
        made.map_err(|error| VolumeError::Make {
            name: device.name().into(),
            error: Box::new(error),
        })
    }
}

/// Returns whether a device holds no volume, and begins as a new one does.
fn is_blank(device: &dyn Device) -> Result<bool, VolumeError> {
    let mut start = vec![0; BLANK_BYTES.min(device.size()) as usize];
    device.read_at(0, &mut start).map_err(VolumeError::Device)?;
    let is_zero = start.iter().all(|byte| *byte == 0);
    Ok(is_zero && matches!(copies::read(device), Err(OpenError::NoVolume { .. })))
}

/// Opens the file system on the first of the devices; if that is a pool, on its branch `main`, and
/// replaces the device by it.
fn open_driver(
    devices: &mut Devices,
    settings: &Settings,
    read_only: bool,
    name: &str,
) -> Result<Arc<DiskFs>, VolumeError> {
    let failed = |fault| VolumeError::Open { name: name.to_owned(), fault: Box::new(fault) };
    let open = |place: &OpenPlace| DiskFs::open(place.device(), settings.clone());
    let device = match (open(&devices.place), devices.place.opened()) {
        (Err(Fault::Open(OpenError::Pool { .. })), Some(opened)) => opened.clone(),
        (opened, _) => return opened.map_err(failed),
    };
    // Other branches share the memory of this one, if it shares any.
    let budget = settings.cache_budget.clone();
    let pool = PoolShared::open(name, device, Access::new(read_only), budget)?;
    let branch = OpenPlace::Branch(pool.open_branch(MAIN)?);
    let opened = open(&branch).map_err(failed);
    devices.place = branch;
    opened
}

/// Creates a tree with the file system mounted as its root, with a rule for access times.
fn mount(
    fs: &Arc<DiskFs>,
    scaling: Scaling,
    limits: Limits,
    access_times: MountFlags,
) -> Result<Vfs, Errno> {
    let vfs = Vfs::with_limits(fs.clone(), scaling, limits)?;
    vfs.set_memory_driver(move || MemFs::builder().slots(scaling.slots()).build())?;
    if access_times != MountFlags::RELATIME {
        let mounted = vfs.task().posix().remount_bind("/", access_times);
        mounted.map_err(|error| error.errno())?;
    }
    Ok(vfs)
}

/// An open volume, mounted as the root of a tree. `Send` and `Sync`.
///
/// Dropping it without [`close`](Self::close) makes all changes durable as [`sync`](Self::sync)
/// does, but reports no error, and the next opening recovers them from the log. When the last of
/// the volume, its tasks and its open files is dropped, the image is released. When that drop
/// returns, the image can be opened again; it waits for I/O in progress. In the child of a fork,
/// the drop does nothing.
///
/// ```
/// # fn example() -> vfscale::Result<()> {
/// let volume = vfscale::volume("disk.vfs").create(64 << 20).open()?;
/// volume.task().write("/f", "x")?;
/// volume.sync()?;
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a volume that is dropped reports no error; close it"]
pub struct Volume {
    vfs: Vfs,
    held: Owned<OpenDriver>,
    name: String,
    is_new: bool,
    present: Arc<Present>,
    /// The options by which a switch opens it again.
    options: Box<(Settings, Limits)>,
}

impl Volume {
    /// Returns the tree.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// Returns a new task at the root of the tree, with all rights.
    pub fn task(&self) -> Task {
        self.vfs.task()
    }

    /// Returns the driver, with its statistics and the results of recovery.
    pub fn driver(&self) -> &Arc<DiskFs> {
        &self.held.fs
    }

    /// Returns the pool that the volume is a branch of.
    pub(crate) fn branch_of(&self) -> Option<Arc<PoolShared>> {
        self.held.devices.as_ref()?.branch()?.pool()
    }

    pub(crate) fn present(&self) -> &Arc<Present> {
        &self.present
    }

    /// Returns whether the volume was made when it was opened.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Tells other processes that this one serves the volume as the mount with a device number,
    /// major and minor (`st_dev`). When that mount is gone, they wait up to five seconds for the
    /// volume to be closed instead of reporting that it is in use.
    ///
    /// # Errors
    /// Returns any error of the file system of the image.
    pub fn publish_mount(&self, device: (u32, u32)) -> std::io::Result<()> {
        self.held.devices.as_ref().map_or(Ok(()), |devices| devices.publish_mount(device))
    }

    /// Returns a handle by which another thread finds out whether another process has taken the
    /// volume over, and which does not keep the volume open.
    pub fn fence(&self) -> Fence {
        Fence::new(&self.present.current, self.held.devices.as_ref())
    }

    /// Returns the device that may become a pool.
    pub(crate) fn lower(&self) -> Option<&Arc<Lower>> {
        self.held.devices.as_ref().and_then(Devices::lower)
    }

    /// Returns a handle that freezes the volume for a snapshot of its device; for a branch, all
    /// branches of the image.
    pub fn freezer(&self) -> Freezer {
        Freezer::new(&self.present, self.lower())
    }

    /// Makes all changes so far durable. Blocks for the I/O.
    ///
    /// # Errors
    /// [`VolumeError::Sync`] if not all changes became durable; [`VolumeError::Forked`] in the
    /// child of a fork.
    pub fn sync(&self) -> Result<(), VolumeError> {
        if fork::is_child() {
            return Err(VolumeError::Forked { name: self.name.clone() });
        }
        let synced = self.held.sync();
        synced.map_err(|errno| VolumeError::Sync { name: self.name.clone(), errno })
    }

    /// Drops the volume and writes nothing more, as a crash of this process would: the next opening
    /// recovers all synced changes, and perhaps some later ones.
    pub fn abandon(mut self) {
        self.held.is_over = true;
    }

    /// Makes all changes durable, closes the volume and releases its image, which can be opened
    /// again after the return.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// * [`VolumeError::InUse`] if there are other tasks or open files. The volume is
    ///   [returned](CloseError::into_volume), with all changes durable, and can be used and closed
    ///   again.
    /// * [`VolumeError::Sync`] if not all changes became durable. The volume is returned if it is
    ///   in use, and closed otherwise.
    /// * [`VolumeError::Close`] if it was not closed properly. Its image is released.
    /// * [`VolumeError::Forked`] in the child of a fork. The volume is returned.
    pub fn close(self) -> Result<(), CloseError> {
        if fork::is_child() {
            let error = VolumeError::Forked { name: self.name.clone() };
            return Err(CloseError { error, volume: Some(Box::new(self)) });
        }
        let Volume { vfs, mut held, name, is_new, present, options } = self;
        let synced = held.sync();
        let synced = synced.map_err(|errno| VolumeError::Sync { name: name.clone(), errno });
        if let Err(vfs) = vfs.end() {
            let Users { tasks, open_files, .. } = vfs.users();
            let in_use = VolumeError::InUse { name: name.clone(), tasks, open_files };
            let error = synced.err().unwrap_or(in_use);
            let volume = Volume { vfs, held, name, is_new, present, options };
            return Err(CloseError { error, volume: Some(Box::new(volume)) });
        }
        let closed = held.fs.close();
        held.is_over = true;
        let branch = held.devices.as_ref().map_or(Ok(()), Devices::close);
        drop(held);
        let closed = closed.map_err(|fault| VolumeError::Close { name, fault: Box::new(fault) });
        closed
            .and(branch.map_err(VolumeError::from))
            .and(synced)
            .map_err(|error| CloseError { error, volume: None })
    }
}

/// The reason why [`Volume::close`] failed, with the volume if it is in use.
///
/// Dropping the error drops the volume. `?` converts it to its [`VolumeError`].
///
/// ```
/// # fn example(volume: vfscale::Volume) -> vfscale::Result<()> {
/// let task = volume.task();
/// let busy = volume.close().unwrap_err();
/// println!("{busy}");
/// drop(task);
/// busy.into_volume().expect("it is still open").close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CloseError {
    error: VolumeError,
    volume: Option<Box<Volume>>,
}

impl CloseError {
    /// Returns the reason why the volume is not closed.
    pub fn error(&self) -> &VolumeError {
        &self.error
    }

    /// Returns the volume, still open, if it is in use. Close it again when its users have ended.
    #[must_use]
    pub fn into_volume(self) -> Option<Volume> {
        self.volume.map(|volume| *volume)
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<CloseError> for VolumeError {
    /// Drops the volume, if the error contains one.
    fn from(error: CloseError) -> Self {
        error.error
    }
}

impl From<VolumeError> for vfscale_vfs::Error {
    /// Retains the whole error as the [cause](vfscale_vfs::Error::cause).
    fn from(error: VolumeError) -> vfscale_vfs::Error {
        vfscale_vfs::Error::caused("volume", error.errno(), error)
    }
}

impl From<CloseError> for vfscale_vfs::Error {
    /// Drops the volume, if the error contains one.
    fn from(error: CloseError) -> vfscale_vfs::Error {
        error.error.into()
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}
