//! Volumes: file systems in an image file or on a device, which survive a crash.
//!
//! # Purpose
//!
//! [`volume`] (a path) and [`volume_on`] (any [`Device`]) set a volume up; [`VolumeBuilder::open`] recovers
//! what a crash has left and mounts it as the root of a new tree; [`Volume::close`] takes leave of
//! it. What [`close`](Volume::close) or a sync has returned for is durable.
//!
//! # Invariants
//!
//! * One opener at a time: who comes second gets an error that names the first.
//! * A volume that is dropped without having been closed is as after a crash: all that was synced is there,
//!   and the next opening recovers it.
//! * The image is free for others as soon as the last of the volume, its tasks and its open files has
//!   gone, and is not written after that. Nobody waits for a grace period, which may be long.
//!
//! # Who holds which reference
//!
//! A [`Volume`] holds its tree and its driver. Tasks hold the tree, tasks and files the mounts of it: as
//! long as there are any, the volume is not closed. Dentries and inodes that still wait to be freed,
//! behind grace periods, hold the driver and so the device: so this ends both explicitly
//! ([`DiskFs::leave`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vfscale_block::{Device, FileDevice, FileOptions, Operation};
use vfscale_diskfs::format::BLOCK_BYTES;
use vfscale_diskfs::mkfs::{self, MkfsError, MkfsOptions, RootDirectory};
use vfscale_diskfs::vfs_impl::{DiskFs, DiskOptions, OnError};
use vfscale_diskfs::{Fault, OpenError};
use vfscale_memfs::MemFs;
use vfscale_vfs::driver::ErrorCursor;
use vfscale_vfs::driver::fork::{self, Owned};
use vfscale_vfs::{Errno, FileSystem, Limits, Mode, Scaling, Task, Users, Vfs};

/// A volume in an image file, or on a block device: set it up, then [`open`](VolumeBuilder::open).
///
/// ```
/// use vfscale::{At, Mode};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("disk.vfs");
/// let volume = vfscale::volume(&path).create(64 << 20).open()?;
/// volume.task().write_file("/greeting", "hello\n")?;
/// volume.close()?;
///
/// let volume = vfscale::volume(&path).open()?;
/// assert_eq!(volume.task().read_to_string("/greeting")?, "hello\n");
/// volume.close()?;
/// # Ok(())
/// # }
/// ```
pub fn volume(path: impl Into<PathBuf>) -> VolumeBuilder {
    VolumeBuilder::new(Place::Path(path.into()))
}

/// A volume on a device of the caller's.
pub fn volume_on(device: Arc<dyn Device>) -> VolumeBuilder {
    VolumeBuilder::new(Place::Device(device))
}

#[derive(Clone, Debug)]
enum Place {
    Path(PathBuf),
    Device(Arc<dyn Device>),
}

impl Place {
    fn name(&self) -> String {
        match self {
            Place::Path(path) => path.display().to_string(),
            Place::Device(device) => device.name().to_owned(),
        }
    }

    fn open(&self, read_only: bool) -> Result<Opened, VolumeError> {
        match self {
            Place::Device(device) => Ok(Opened::Theirs(device.clone())),
            Place::Path(path) => match FileOptions::new().read_only(read_only).open(path) {
                Ok(device) => Ok(Opened::Ours(Arc::new(device))),
                Err(error) if is_missing(&error) => Err(VolumeError::Missing(path.clone())),
                Err(error) => Err(VolumeError::Device(error)),
            },
        }
    }
}

/// A device, and whose it is.
enum Opened {
    /// Opened here, and to be released.
    Ours(Arc<FileDevice>),
    Theirs(Arc<dyn Device>),
}

impl Opened {
    fn device(&self) -> Arc<dyn Device> {
        match self {
            Opened::Ours(device) => device.clone(),
            Opened::Theirs(device) => device.clone(),
        }
    }

    /// Others may have it, whoever refers to it still. Nobody uses it any more.
    fn release(&self) {
        if let Opened::Ours(device) = self {
            device.release();
        }
    }
}

/// What a volume is on, and its log. Dropped, they are released.
struct Devices([Option<Opened>; 2]);

impl Devices {
    fn release(&self) {
        self.0.iter().flatten().for_each(Opened::release);
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.release();
    }
}

/// The driver of a volume. Dropped, it and its devices are left when the last mount ends.
struct Held {
    fs: Arc<DiskFs>,
    devices: Option<Devices>,
    /// Which errors of write-back its owner was told of.
    told: ErrorCursor,
}

impl Held {
    /// Makes all durable; tells what went wrong, now or since this was last called.
    fn sync(&self) -> Result<(), Errno> {
        let synced = self.fs.sync_fs();
        let told = self.fs.all_write_errors().and_then(|errors| self.told.advance(errors));
        synced.and(told.map_or(Ok(()), |code| Err(Errno::from_raw_os_error(code))))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(devices) = self.devices.take() {
            self.fs.leave(move || devices.release());
        }
    }
}

fn is_missing(error: &vfscale_block::Error) -> bool {
    let not_found = |e: vfscale_block::OsError| e.kind() == std::io::ErrorKind::NotFound;
    matches!(error, vfscale_block::Error::Io { operation: Operation::Open, source, .. }
        if not_found(*source))
}

/// The least that changed metadata may take in memory: some hundred blocks, so that a change or two fit.
const CHANGED_BYTES_MIN: u64 = 1 << 20;

/// Options of [`volume`] and [`volume_on`].
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct VolumeBuilder {
    place: Place,
    log: Option<Place>,
    size: Option<u64>,
    log_size: Option<u64>,
    root: RootDirectory,
    options: DiskOptions,
    limits: Limits,
    scaling: Scaling,
}

impl VolumeBuilder {
    fn new(place: Place) -> Self {
        let (options, scaling) = (DiskOptions::default(), Scaling::default());
        let root = RootDirectory::default();
        let limits = Limits::default();
        Self { place, log: None, size: None, log_size: None, root, options, limits, scaling }
    }

    /// Makes an image of so many bytes, which is sparse, if there is none. Only where a path was given.
    pub fn create(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// The size of the log, in bytes, of an image that is made. By default it follows the size of the
    /// image.
    pub fn log_size(mut self, bytes: u64) -> Self {
        self.log_size = Some(bytes);
        self
    }

    /// The owner and group of the root directory of an image that is made; 0 and 0 by default. An image
    /// that is there keeps those it has.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        (self.root.uid, self.root.gid) = (uid, gid);
        self
    }

    /// The permission bits of the root directory of an image that is made; 0755 by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.root.mode = mode.bits();
        self
    }

    /// Bounds what the tree takes in memory beside its files: open files, pipes, sockets, locks.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Writes nothing: no byte of the image changes. The log of a volume that was not closed is replayed in
    /// memory, which keeps what it has (as much as the log at most) until the volume is closed.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options.read_only = read_only;
        self
    }

    /// Reads what is home and does not look at the log, nor need it, and writes nothing: as
    /// [`read_only`](Self::read_only) for a volume whose log can't be read or is lost, or whose repair was
    /// interrupted. What was changed last may be missing, or damaged where only half of it is home.
    pub fn no_recovery(mut self, no_recovery: bool) -> Self {
        self.options.no_recovery = no_recovery;
        self
    }

    /// What callers see when the volume meets damage, or its log fails: [`OnError::Shutdown`] by default.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.options.on_error = on_error;
        self
    }

    /// How many bytes it keeps in memory, about: three quarters of them of files, a quarter of what
    /// describes them. What describes them and was changed may take half as much again until it is written
    /// in its place; from there on changes wait for that, whatever room the log has. 320 MiB by default.
    pub fn cache_size(mut self, bytes: u64) -> Self {
        self.options.metadata_cache_bytes = bytes / 4;
        self.options.data_cache_bytes = bytes - bytes / 4;
        self.options.changed_metadata_bytes = (bytes / 2).max(CHANGED_BYTES_MIN);
        self
    }

    /// After how long changes are durable that nobody has synced, data with their names: 5 seconds by
    /// default, and what a slow device takes longer. `None`: when the log is full, and not before.
    pub fn sync_interval(mut self, interval: Option<Duration>) -> Self {
        self.options.sync_interval = interval;
        self
    }

    /// Writes the data of a file that replaces another, by a rename or after having been cut to
    /// nothing, before that is durable: who writes a new file and renames it over the old one finds one
    /// of the two after a crash, also if nobody has synced. On by default; without it such a file may
    /// be empty then, as after `noauto_da_alloc` of ext4.
    pub fn auto_da_alloc(mut self, auto_da_alloc: bool) -> Self {
        self.options.auto_da_alloc = auto_da_alloc;
        self
    }

    /// The image or device with its log, for a volume that was made with one of its own.
    pub fn log_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(Place::Path(path.into()));
        self
    }

    /// The same, a device of the caller's.
    pub fn log_device(mut self, device: Arc<dyn Device>) -> Self {
        self.log = Some(Place::Device(device));
        self
    }

    /// How far its structures are spread; as far as the machine has CPUs by default.
    pub fn scaling(mut self, scaling: Scaling) -> Self {
        self.scaling = scaling;
        self
    }

    /// Recovers the volume, if it was not closed, and mounts it as the root of a new tree.
    ///
    /// Blocks for the I/O; after a crash for as long as it takes to read and replay the log.
    ///
    /// # Errors
    /// See [`VolumeError`]; its text says what is wrong and the remedy.
    pub fn open(self) -> Result<Volume, VolumeError> {
        let name = self.place.name();
        if fork::is_child() {
            return Err(VolumeError::Forked { name });
        }
        let (device, is_new) = self.device()?;
        let log = self.log.as_ref().filter(|_| !self.options.no_recovery);
        let log = log.map(|log| log.open(self.is_read_only())).transpose()?;
        let mut options = self.options;
        options.log_device = log.as_ref().map(Opened::device);
        let on = device.device();
        let devices = Devices([Some(device), log]);
        options.scaling = journal_scaling(&self.scaling);
        options.orphan_lists = self.scaling.orphan_lists();
        options.dirty_lists = self.scaling.dirty_lists();
        let fs = DiskFs::open(on, options)
            .map_err(|fault| VolumeError::Open { name: name.clone(), fault: Box::new(fault) })?;
        let vfs = mount(&fs, self.scaling, self.limits).map_err(|errno| {
            fs.abandon();
            VolumeError::Mount { name: name.clone(), errno }
        })?;
        let held = Owned::new(Held { fs, devices: Some(devices), told: ErrorCursor::default() });
        Ok(Volume { vfs, held, name, is_new })
    }

    fn is_read_only(&self) -> bool {
        self.options.read_only || self.options.no_recovery
    }

    /// The device, and whether it was made just now.
    fn device(&self) -> Result<(Opened, bool), VolumeError> {
        match (self.place.open(self.is_read_only()), &self.place, self.size) {
            (Err(VolumeError::Missing(_)), Place::Path(path), Some(bytes))
                if !self.is_read_only() =>
            {
                self.make(path, bytes).map(|device| (Opened::Ours(device), true))
            }
            (device, ..) => device.map(|device| (device, false)),
        }
    }

    fn make(&self, path: &Path, bytes: u64) -> Result<Arc<FileDevice>, VolumeError> {
        let device = FileOptions::new().create(path, bytes).map_err(VolumeError::Device)?;
        let log_blocks = self.log_size.map(|bytes| bytes / BLOCK_BYTES as u64);
        let options = MkfsOptions { log_blocks, root: self.root, ..MkfsOptions::default() };
        if let Err(error) = mkfs::format(&device, &options) {
            // Nobody else has had it: it was made a moment ago, and is locked.
            let _ = std::fs::remove_file(path);
            let (name, error) = (path.display().to_string(), Box::new(error));
            return Err(VolumeError::Make { name, error });
        }
        Ok(Arc::new(device))
    }
}

/// Mounts it as the root of a new tree.
fn mount(fs: &Arc<DiskFs>, scaling: Scaling, limits: Limits) -> Result<Vfs, Errno> {
    let vfs = Vfs::with_limits(fs.clone(), scaling, limits)?;
    vfs.set_memory_driver(MemFs::builder().slots(scaling.slots()).build())?;
    Ok(vfs)
}

/// The settings of the log in those of everything.
fn journal_scaling(scaling: &Scaling) -> vfscale_journal::Scaling {
    vfscale_journal::Scaling {
        read_mostly: scaling.read_mostly(),
        active_trans_slots: scaling.active_trans_slots(),
        cil_counter_slots: scaling.cil_counter_slots(),
        cil_list_slots: scaling.cil_list_slots(),
        busy_extents: scaling.busy_extents(),
        ..vfscale_journal::Scaling::with_slots(scaling.slots())
    }
}

/// A volume that is open, and mounted as the root of a tree. `Send` and `Sync`.
///
/// Dropping it without [`close`](Self::close) writes nothing more: the next opening recovers what was
/// synced. The drop of the last of the volume, its tasks and its open files lets go of the image, which
/// can be opened again when that returns; it waits for I/O that is under way. In the child of a fork the drop
/// does nothing.
#[must_use = "a volume that is dropped is as after a crash; close it"]
pub struct Volume {
    vfs: Vfs,
    held: Owned<Held>,
    name: String,
    is_new: bool,
}

impl Volume {
    /// The tree.
    #[must_use]
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// A task at the root of the tree, with all rights.
    #[must_use]
    pub fn task(&self) -> Task {
        self.vfs.task()
    }

    /// The driver: what it has recovered, its figures.
    #[must_use]
    pub fn driver(&self) -> &Arc<DiskFs> {
        &self.held.fs
    }

    /// Whether the image was made when it was opened.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Makes all that was changed so far durable. Blocks for the I/O.
    ///
    /// # Errors
    /// [`VolumeError::Sync`]; [`VolumeError::Forked`].
    pub fn sync(&self) -> Result<(), VolumeError> {
        if fork::is_child() {
            return Err(VolumeError::Forked { name: self.name.clone() });
        }
        let synced = self.held.sync();
        synced.map_err(|errno| VolumeError::Sync { name: self.name.clone(), errno })
    }

    /// Makes everything durable, closes the volume, and lets go of its image, which can be opened again at
    /// once.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`VolumeError::InUse`] if there are other tasks, or files of it are open: the volume is
    /// [given back](CloseError::into_volume), with everything durable, and can be used and closed again.
    /// [`VolumeError::Sync`] if not everything became durable; the volume is given back if it is in use,
    /// or is closed. [`VolumeError::Close`] if it was not closed properly; its image is released.
    /// [`VolumeError::Forked`] in the child of a fork: the volume is given back.
    pub fn close(self) -> Result<(), CloseError> {
        if fork::is_child() {
            let error = VolumeError::Forked { name: self.name.clone() };
            return Err(CloseError { error, volume: Some(Box::new(self)) });
        }
        let Volume { vfs, held, name, is_new } = self;
        let synced = held.sync();
        let synced = synced.map_err(|errno| VolumeError::Sync { name: name.clone(), errno });
        if let Err(vfs) = vfs.end() {
            let Users { tasks, open_files, .. } = vfs.users();
            let in_use = VolumeError::InUse { name: name.clone(), tasks, open_files };
            let error = synced.err().unwrap_or(in_use);
            return Err(CloseError {
                error,
                volume: Some(Box::new(Volume { vfs, held, name, is_new })),
            });
        }
        let closed = held.fs.close();
        drop(held);
        let closed = closed.map_err(|fault| VolumeError::Close { name, fault: Box::new(fault) });
        closed.and(synced).map_err(|error| CloseError { error, volume: None })
    }
}

/// Why a volume is not closed, and the volume, if it is in use: [`Volume::close`].
///
/// Dropped, it drops the volume. It turns into its [`VolumeError`] with `?`.
#[derive(Debug)]
pub struct CloseError {
    error: VolumeError,
    volume: Option<Box<Volume>>,
}

impl CloseError {
    /// Why.
    #[must_use]
    pub fn error(&self) -> &VolumeError {
        &self.error
    }

    /// The volume, open as it was, if it is in use. To be closed again when its users have gone.
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
    /// Drops the volume, if it was given back.
    fn from(error: CloseError) -> Self {
        error.error
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a volume can't be opened, made or closed. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// There is no such image.
    #[error(
        "{}: there is no such image; make one with `vfscale mkfs`, or say its size to have it made",
        .0.display()
    )]
    Missing(PathBuf),
    /// The device can't be opened or made: somebody else has it, or the system says no.
    #[error("{}{}", .0, remedy_of_device(.0))]
    Device(vfscale_block::Error),
    /// It can't be opened.
    #[error("{}{}", named(.name, .fault), remedy(.fault))]
    Open {
        /// The volume.
        name: String,
        /// Why.
        fault: Box<Fault>,
    },
    /// The image was made, and no volume in it.
    #[error("{name}: cannot make a volume: {error}")]
    Make {
        /// The image.
        name: String,
        /// Why.
        error: Box<MkfsError>,
    },
    /// It was opened, and can't be mounted.
    #[error("{name}: cannot mount it: {errno}; `vfscale fsck` says more")]
    Mount {
        /// The volume.
        name: String,
        /// Why.
        errno: Errno,
    },
    /// Not everything became durable.
    #[error("{name}: not everything could be written: {errno}; what was not synced may be lost")]
    Sync {
        /// The volume.
        name: String,
        /// Why.
        errno: Errno,
    },
    /// There are tasks, files or mounts of its tree.
    #[error(
        "{name}: not closed: {} and {} use it still; end them, and close it again",
        counted(*.tasks, "task"), counted(*.open_files, "open file")
    )]
    InUse {
        /// The volume.
        name: String,
        /// How many tasks and clones of its [`Vfs`] there are; another tree counts as one.
        tasks: usize,
        /// How many of its files are open.
        open_files: usize,
    },
    /// This process is the child of one that forked after it had used the library, and is not another program
    /// since. Only the parent can use the volume, and go on writing it.
    #[error(
        "{name}: a child of fork can't use it; open it in the child of a process that has not used vfscale"
    )]
    Forked {
        /// The volume.
        name: String,
    },
    /// It was not closed properly; what was synced is there when it is opened again.
    #[error("{name}: not closed: {fault}; it will be recovered when it is opened again")]
    Close {
        /// The volume.
        name: String,
        /// Why.
        fault: Box<Fault>,
    },
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What is wrong with which volume; most faults of a device name it already.
fn named(name: &str, fault: &Fault) -> String {
    let text = fault.to_string();
    if text.starts_with(name) { text } else { format!("{name}: {text}") }
}

fn remedy_of_device(error: &vfscale_block::Error) -> &'static str {
    match error {
        vfscale_block::Error::Locked { .. } => "; unmount or close it there first",
        _ => "",
    }
}

fn remedy(fault: &Fault) -> &'static str {
    match fault {
        Fault::Open(OpenError::NoVolume { .. }) => "; `vfscale mkfs` makes a volume",
        Fault::Damage(_) | Fault::Open(OpenError::Superblock { .. }) => {
            "; `vfscale fsck` says more, and `--repair` mends it"
        }
        Fault::ReadOnly => "; it can be opened for reading only",
        Fault::LogDevice(_) => "; say where its log is",
        Fault::Journal(vfscale_journal::Error::Features { .. }) => "",
        Fault::Journal(_) => {
            "; `vfscale fsck` says more, what is home can be read without the log (`-o ro,norecovery`), and \
             `vfscale fsck --repair --discard-log` makes a new one, without what this one has"
        }
        _ => "",
    }
}
