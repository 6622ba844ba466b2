//! Opening and creating: options, I/O methods, and the claim.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags};
use rustix::process::{Resource, getrlimit};
use vfscale_sync::Mutex;

use super::backing::{below, name_of};
use super::lock::{HeldBy, lock, lock_part, look};
use super::ring::Rings;
use super::segment::Alignment;
use super::sys::LockKind;
use super::{FileDevice, FileKind, sys};
use crate::{Error, Holder, Operation, OsError};

/// `statfs` magic number of a file system in memory, which accepts the flag for direct I/O without
/// supporting it.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Number of attempts to claim a block device. Its last holder may be about to release it, or may
/// have a child that is just being started and has the file open until then.
const CLAIMS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// Options for opening an image file or a block device.
///
/// ```
/// # mod vfscale { pub mod block { pub use vfscale_block::*; } }
/// use vfscale::block::{Device, FileDevice, FileOptions};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("disk.vfs");
/// let device = FileDevice::create(&path, 16 << 20)?;
/// device.write_at(4096, &[1; 4096])?;
/// device.flush()?;
/// drop(device);
/// let device = FileOptions::new().read_only(true).open(&path)?;
/// assert_eq!(device.size(), 16 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FileOptions {
    read_only: bool,
    direct: bool,
    io_uring: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { read_only: false, direct: true, io_uring: true }
    }
}

impl FileOptions {
    /// Returns the defaults: reading and writing, direct I/O, io_uring.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether to only read, and to share the device with other readers. No by default.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Sets whether to bypass the page cache, where that is possible. Yes by default.
    pub fn direct(self, direct: bool) -> Self {
        Self { direct, ..self }
    }

    /// Sets whether to run batches through io_uring, where that is permitted. Yes by default.
    pub fn io_uring(self, io_uring: bool) -> Self {
        Self { io_uring, ..self }
    }

    /// Opens an image file or a block device. Bytes after its last whole block are ignored.
    ///
    /// Blocks for the I/O; for at most five seconds if another process has served it as a mount
    /// that is gone, and is about to close it, or has ended; and for at most half a second if
    /// another process has it open whose name can't be read.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open, or the same bytes through a loop device;
    /// [`Error::Unsupported`] if it is neither an image file nor a block device; [`Error::Io`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<FileDevice, Error> {
        let path = path.as_ref();
        let opening = Opening { options: self, path, name: name(path) };
        let file = opening.io(opening.how().open(path))?;
        opening.finish(file)
    }

    /// Fails if another process has the image file or block device at `path` open. Takes no lock,
    /// and opens nothing that other openers notice.
    ///
    /// Blocks as [`open`](Self::open) does.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is in use; [`Error::Io`].
    pub fn check_free(path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let options = FileOptions::new().read_only(true);
        let opening = Opening { options, path, name: name(path) };
        let file = opening.io(opening.how().open(path))?;
        opening.io(look(&file))?.map_err(|held| opening.locked(held))
    }

    /// Creates and opens an image file of `size` bytes, sparse and all zero. The name must not
    /// exist.
    ///
    /// The file and its name are durable when this returns. If it fails, the file does not exist.
    /// Others see the name when the image is locked, on file systems that have unnamed files
    /// (`O_TMPFILE`).
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Misaligned`] for a size that is not in whole blocks; [`Error::ReadOnly`] with the
    /// option [`read_only`](Self::read_only); [`Error::Io`], also if the name exists.
    pub fn create(self, path: impl AsRef<Path>, size: u64) -> Result<FileDevice, Error> {
        let path = path.as_ref();
        let opening = Opening { options: self, path, name: name(path) };
        if opening.options.read_only {
            let (device, operation) = (opening.name, Operation::Open);
            return Err(Error::ReadOnly { device, operation });
        }
        opening.within_limit(size)?;
        // Errors are those of the second way, which knows the name.
        opening.create_locked(size).or_else(|_| opening.create_named(size))
    }
}

impl FileDevice {
    /// Opens an image file or a block device for reading and writing, with direct I/O and io_uring
    /// where they are available. [`FileOptions`] sets other choices.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open; [`Error::Io`], [`Error::Unsupported`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        FileOptions::new().open(path)
    }

    /// Creates an image file of `size` bytes, sparse and all zero, and opens it like
    /// [`open`](Self::open).
    ///
    /// # Errors
    /// [`Error::Io`], also if the name exists; [`Error::Misaligned`] for a size that is not in
    /// whole blocks.
    pub fn create(path: impl AsRef<Path>, size: u64) -> Result<Self, Error> {
        FileOptions::new().create(path, size)
    }
}

fn name(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

/// Returns the directory of a name.
fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// A device that is being opened.
struct Opening<'p> {
    options: FileOptions,
    path: &'p Path,
    name: Arc<str>,
}

impl Opening<'_> {
    fn io<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(|error| self.error((&error).into()))
    }

    fn error(&self, source: OsError) -> Error {
        let (device, operation) = (self.name.clone(), Operation::Open);
        Error::Io { device, operation, offset: 0, length: 0, source }
    }

    fn unsupported(&self, why: &'static str) -> Error {
        Error::Unsupported { device: self.name.clone(), operation: Operation::Open, why }
    }

    /// Refuses an image that this process may write the beginning of only: a volume would stop at
    /// its first write behind that.
    fn within_limit(&self, size: u64) -> Result<(), Error> {
        match getrlimit(Resource::Fsize).current {
            Some(limit) if limit < size => Err(Error::Refused {
                device: self.name.clone(),
                why: format!(
                    "this process may make files of {limit} bytes at most, and the image has \
                     {size}: raise the limit (ulimit -f unlimited), or make a smaller image"
                )
                .into(),
            }),
            _ => Ok(()),
        }
    }

    fn how(&self) -> OpenOptions {
        let mut how = OpenOptions::new();
        // Nonblocking, in case the path is a pipe. The flag is cleared again for files and block
        // devices.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        how.read(true).write(!self.options.read_only).custom_flags(flags);
        how
    }

    /// Creates an image file without a name, and gives it the name once it is locked and has its
    /// size: whoever opens it by this name finds it in use.
    fn create_locked(&self, size: u64) -> Result<FileDevice, Error> {
        let folder = folder(self.path);
        let mut how = self.how();
        let flags = OFlags::TMPFILE | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.io(how.custom_flags(flags.bits() as i32).open(folder))?;
        let device = self.finish(file)?;
        crate::Device::set_size(&device, size)?;
        let unnamed = format!("/proc/self/fd/{}", device.file.as_raw_fd());
        let linked = rustix::fs::linkat(CWD, unnamed, CWD, self.path, AtFlags::SYMLINK_FOLLOW);
        self.io(linked.map_err(Into::into))?;
        self.durable(device)
    }

    fn create_named(&self, size: u64) -> Result<FileDevice, Error> {
        let file = self.how().create_new(true).open(self.path).map_err(|error| {
            // If its directory is missing, the error names that.
            let missing = error.kind() == io::ErrorKind::NotFound;
            let device = if missing { name(folder(self.path)) } else { self.name.clone() };
            let (operation, source) = (Operation::Open, (&error).into());
            Error::Io { device, operation, offset: 0, length: 0, source }
        })?;
        let made = self.finish(file).and_then(|device| {
            crate::Device::set_size(&device, size)?;
            Ok(device)
        });
        // Another one that has locked it before keeps it.
        if made.as_ref().is_err_and(|error| !matches!(error, Error::Locked { .. })) {
            // The first error is worth more to the caller than an error of the removal.
            let _ = fs::remove_file(self.path);
        }
        self.durable(made?)
    }

    /// Makes the name of a new image durable, or removes it.
    fn durable(&self, device: FileDevice) -> Result<FileDevice, Error> {
        let synced = File::open(folder(self.path)).and_then(|folder| folder.sync_all());
        if synced.is_err() {
            let _ = fs::remove_file(self.path);
        }
        self.io(synced).map(|()| device)
    }

    /// Claims the opened file, and chooses the I/O methods.
    fn finish(&self, file: File) -> Result<FileDevice, Error> {
        let metadata = self.io(file.metadata())?;
        let file_type = metadata.file_type();
        let kind = if file_type.is_file() {
            FileKind::Image
        } else if file_type.is_block_device() {
            FileKind::BlockDevice
        } else {
            return Err(self.unsupported("neither an image file nor a block device"));
        };
        self.lock(&file)?;
        let below = match kind {
            FileKind::Image => Vec::new(),
            FileKind::BlockDevice => self.lock_below(metadata.rdev())?,
        };
        let file = if kind == FileKind::BlockDevice && !self.options.read_only {
            self.claim(file, metadata.rdev())?
        } else {
            file
        };
        let methods = self.methods(&file, kind)?;
        let size = self.io(match kind {
            FileKind::Image => file.metadata().map(|metadata| metadata.len()),
            FileKind::BlockDevice => sys::block_device_size(&file),
        })?;
        if kind == FileKind::Image && !self.options.read_only {
            self.within_limit(size)?;
        }
        let (rings, by_ring) = self.rings();
        Ok(FileDevice {
            name: self.name.clone(),
            file,
            below,
            kind,
            read_only: self.options.read_only,
            released: false.into(),
            block_size: methods.block_size,
            size: AtomicU64::new(size - size % u64::from(methods.block_size)),
            growing: Mutex::new(()),
            alignment: methods.alignment,
            rings,
            batches: AtomicU64::new(0),
            methods: format!("{}, {by_ring}", methods.description),
            lost: OnceLock::new(),
            discards: OnceLock::new(),
            refuses_discards: false.into(),
        })
    }

    fn lock(&self, file: &File) -> Result<(), Error> {
        let kind = if self.options.read_only { LockKind::Shared } else { LockKind::Exclusive };
        self.io(lock(file, kind))?.map_err(|held| self.locked(held))
    }

    /// Locks the files below a block device, but those of file systems that have no locks.
    fn lock_below(&self, number: u64) -> Result<Vec<File>, Error> {
        let mut files = Vec::new();
        for below in below(number, self.options.read_only) {
            if let Ok(Err(held)) = lock_part(&below.file, &below.part, number) {
                let way = held.way.map_or_else(|| name(&below.path), |way| name_of(way).into());
                return Err(self.locked_by(held.holder, Some(way)));
            }
            files.push(below.file);
        }
        Ok(files)
    }

    fn locked(&self, HeldBy { holder, way }: HeldBy) -> Error {
        self.locked_by(holder, way.map(|way| name_of(way).into()))
    }

    fn locked_by(&self, holder: Option<Holder>, way: Option<Arc<str>>) -> Error {
        let (device, holder) = (self.name.clone(), holder.map(Box::new));
        Error::Locked { device, holder, way, client: None }
    }

    /// Opens a block device once more with `O_EXCL`, so that the system refuses other openers with
    /// this flag, such as `mount`. `file` has the lock of this process, which the new open file
    /// takes over.
    fn claim(&self, file: File, number: u64) -> Result<File, Error> {
        let flags = (OFlags::EXCL | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(flags);
        let mut attempts = 0..CLAIMS;
        let claimed = loop {
            match how.open(self.path) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                other => break self.io(other)?,
            }
            if attempts.next().is_none() {
                let device = self.name.clone();
                return Err(Error::Locked { device, holder: None, way: None, client: None });
            }
            thread::sleep(PAUSE);
        };
        let metadata = self.io(claimed.metadata())?;
        if !metadata.file_type().is_block_device() || metadata.rdev() != number {
            return Err(self.unsupported("the name now refers to another device"));
        }
        // A process that locks the device between these two lines is excluded by the claim.
        drop(file);
        self.lock(&claimed)?;
        Ok(claimed)
    }

    fn rings(&self) -> (Option<Rings>, String) {
        if !self.options.io_uring {
            return (None, "pread and pwrite".into());
        }
        match Rings::new() {
            Ok(rings) => (Some(rings), "batches by io_uring".into()),
            Err(error) => (None, format!("pread and pwrite (no io_uring: {error})")),
        }
    }

    fn methods(&self, file: &File, kind: FileKind) -> Result<IoMethods, Error> {
        let found = Units::of(file, kind);
        let direct = match (self.options.direct, found.direct) {
            (false, _) => Err("as requested"),
            (true, Direct::No) => Err("no direct I/O here"),
            (true, Direct::Aligned { memory, block_size }) => {
                match Alignment::direct(memory, block_size) {
                    None => Err("direct I/O in too large units"),
                    Some(alignment) => match rustix::fs::fcntl_setfl(file, OFlags::DIRECT) {
                        Ok(()) => Ok((alignment, block_size)),
                        Err(_) => Err("direct I/O refused"),
                    },
                }
            }
        };
        Ok(match direct {
            Ok((alignment, block_size)) => {
                let block_size = block_size.max(512);
                let alignment = Alignment { offset: block_size as usize, ..alignment };
                IoMethods { alignment, block_size, description: "direct I/O".into() }
            }
            Err(why) => {
                // This clears the flags of opening as well.
                self.io(rustix::fs::fcntl_setfl(file, OFlags::empty()).map_err(Into::into))?;
                let description = format!("buffered I/O ({why})");
                IoMethods { alignment: Alignment::NONE, block_size: found.block_size, description }
            }
        })
    }
}

/// The chosen I/O methods.
struct IoMethods {
    alignment: Alignment,
    block_size: u32,
    description: String,
}

/// Whether a file supports direct I/O, with its units in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direct {
    No,
    Aligned { memory: u32, block_size: u32 },
}

/// The I/O units of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    pub(super) direct: Direct,
    /// Atomic unit of writes in bytes, as far as it can be known.
    block_size: u32,
}

impl Units {
    pub(super) fn of(file: &File, kind: FileKind) -> Self {
        let logical = match kind {
            FileKind::BlockDevice => rustix::fs::ioctl_blksszget(file).ok(),
            FileKind::Image => None,
        };
        let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
        let has_told = |stat: &rustix::fs::Statx| {
            StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN)
        };
        let direct = match told.filter(has_told) {
            Some(stat) if stat.stx_dio_offset_align == 0 => Direct::No,
            Some(stat) => Direct::Aligned {
                memory: stat.stx_dio_mem_align,
                block_size: stat.stx_dio_offset_align,
            },
            None if is_in_memory(file) => Direct::No,
            // Kernels before 6.1 and some file systems do not report it: a page suits them all.
            None => Direct::Aligned { memory: 4096, block_size: logical.unwrap_or(4096) },
        };
        // Without any information, a sector is the most that can be promised.
        let known = match direct {
            Direct::Aligned { block_size, .. } => Some(block_size),
            Direct::No => None,
        };
        let block_size = logical.or(known).unwrap_or(512);
        Self { direct, block_size: if block_size <= 512 { 512 } else { 4096 } }
    }
}

fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type as u64 == TMPFS_MAGIC)
}
