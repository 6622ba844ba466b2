//! Open files.
//!
//! A [`File`] is a counted handle on an open file description: the path at which it was opened,
//! status flags, a position. Clones share the description, as after `dup(2)`; dropping the last one
//! closes it. A file works without a task, and continues to work after its name is removed or its
//! permissions change. Calls enter an RCU section before they take a lock, because entering a
//! section may run deferred work, which takes locks itself.

use std::fmt;
use std::io::IoSliceMut;

use rustix::io::Errno;
use vfscale_sync::lock::assert_held;
use vfscale_sync::rcu;

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::lock_classes::InodeData;
use crate::base::types::{FallocateFlags, FileType, OFlags, Stat, StatFs};
use crate::file::failed::OnFile;
use crate::file::synchronous::sync_change;
use crate::mount::atime::touch_atime;
use crate::objects::file_description::{FileMode, OpenFile, SharedFile};
use crate::objects::inode::Inode;
use crate::objects::inode_xattrs::{drop_capabilities, has_capabilities};
use crate::objects::memfd_seals;
use crate::objects::seq_file::ReadResult;
use crate::objects::setattr::Plan;
use crate::objects::super_block::SuperBlock;
use crate::objects::vfsmount::Path;
use crate::security::cred::Credentials;

/// Flags that `set_flags` (`F_SETFL`) changes.
const SETTABLE: OFlags =
    OFlags::APPEND.union(OFlags::NONBLOCK).union(OFlags::NOATIME).union(OFlags::DIRECT);

/// A handle on an open file. `Send` and `Sync`; one pointer in size.
///
/// Its own `read`, `write`, `write_all` and `seek` return [`Error`](crate::Error). With the traits
/// of [`std::io`] in scope, a call on a `&mut File` is that of the trait, which returns
/// [`std::io::Error`]; `?` converts either to an [`Error`](crate::Error), and back.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom, Write};
/// # mod vfscale { pub use vfscale_vfs::*; }
/// use vfscale::File;
///
/// fn append(file: &mut File, line: &str) -> vfscale::Result<String> {
///     file.seek(SeekFrom::End(0))?;
///     file.write_all(line.as_bytes())?;
///     file.seek(SeekFrom::Start(0))?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     Ok(text)
/// }
/// ```
#[derive(Clone)]
pub struct File(pub(crate) SharedFile);

/// Removes the privileges that end with a change of the data: always file capabilities, and set-id
/// bits if the user is unprivileged, except those that `keep` preserves (see [`preserved_ids`]).
///
/// # Errors
/// The errors of a backed driver.
#[inline]
pub(crate) fn drop_privileges(inode: &Inode, keep: FileMode) -> Outcome<()> {
    assert_held::<InodeData>();
    if inode.is_backed() {
        return drop_privileges_backed(inode, keep);
    }
    if keeps_privileges(inode, keep) {
        return Ok(());
    }
    drop_capabilities(inode, &rcu::pin());
    let (mode, gone) = set_ids_to_drop(inode, keep);
    if gone != 0 {
        inode.set_mode(mode & !gone);
        inode.touch_ctime();
    }
    Ok(())
}

/// Drops privileges of an inode of a backed driver, which stores the change first.
#[cold]
fn drop_privileges_backed(inode: &Inode, keep: FileMode) -> Outcome<()> {
    let no_capabilities = inode.has_extra() && has_capabilities(inode, &rcu::pin());
    let (mode, gone) = set_ids_to_drop(inode, keep);
    if gone == 0 && !no_capabilities {
        return Ok(());
    }
    let mode = (gone != 0).then_some(mode & !gone);
    Plan { mode, no_capabilities, ..Plan::default() }.store(inode)
}

/// Returns the mode, and the set-id bits that a change of the data removes from it.
#[inline]
fn set_ids_to_drop(inode: &Inode, keep: FileMode) -> (u32, u32) {
    let special = inode.special_bits();
    if special & 0o6000 == 0 || keep.contains(FileMode::FSETID) || !inode.is_file() {
        return (special, 0);
    }
    let mode = inode.mode();
    let mut gone = mode & 0o4000;
    if mode & 0o0010 != 0 || !keep.contains(FileMode::GROUP) {
        gone |= mode & 0o2000;
    }
    (mode, gone)
}

/// Returns whether a change of the data removes no privileges.
pub(crate) fn keeps_privileges(inode: &Inode, keep: FileMode) -> bool {
    !inode.may_be_capable() && set_ids_to_drop(inode, keep).1 == 0
}

impl File {
    /// Opens a place. The caller has asked whether there is room
    /// ([`room_for_file`](crate::mount::vfs_shared::VfsShared::room_for_file)).
    ///
    /// # Errors
    /// `ENFILE`, if there was no room or another thread has taken it since.
    #[inline]
    pub(crate) fn new(path: Path, mode: FileMode, flags: OFlags) -> Outcome<File> {
        match SuperBlock::open_file(OpenFile::new(path, mode, flags)) {
            Ok(file) => Ok(File(file)),
            Err(_) => Err(Errno::NFILE),
        }
    }

    /// Opens an end of the stream of an inode. The stream already counts the end, until the file is
    /// closed.
    ///
    /// # Errors
    /// As [`new`](Self::new); then the end is closed.
    pub(crate) fn new_stream(path: Path, mode: FileMode, flags: OFlags) -> Outcome<File> {
        match SuperBlock::open_file(OpenFile::new(path, mode.as_stream(), flags)) {
            Ok(file) => {
                file.note_stream();
                Ok(File(file))
            }
            Err(file) => {
                file.release_stream();
                Err(Errno::NFILE)
            }
        }
    }

    #[inline]
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns whether it is an end of a stream: a pipe, a fifo or a socket. These have no
    /// positions.
    #[inline]
    pub(crate) fn is_stream(&self) -> bool {
        self.0.mode().intersects(FileMode::STREAM)
    }

    #[inline]
    pub(crate) fn inode(&self) -> &Inode {
        self.0.inode()
    }

    /// Returns the identifier of the open file description, unique while it is open.
    pub fn id(&self) -> u64 {
        self.0.as_ptr() as usize as u64
    }

    pub(crate) fn mode(&self) -> FileMode {
        self.0.mode()
    }

    /// Returns whether it is only a path (`O_PATH`).
    pub fn is_path(&self) -> bool {
        self.0.mode().contains(FileMode::PATH)
    }

    /// Returns the current flags (`F_GETFL`): access mode and status flags.
    pub fn flags(&self) -> OFlags {
        self.0.flags()
    }

    /// Sets the status flags (`F_SETFL`): `APPEND`, `NONBLOCK`, `NOATIME`, `DIRECT`; ignores
    /// others. `credentials` decide about `NOATIME`.
    ///
    /// # Errors
    /// `EBADF` for an `O_PATH` handle; `EPERM` for `NOATIME` on a file that the caller does not
    /// own, and for a change of `APPEND` on a file with
    /// [`InodeFlags::APPEND`](crate::InodeFlags::APPEND).
    pub fn set_flags(&self, flags: OFlags, credentials: &Credentials) -> Result<()> {
        let set = || {
            check_fork()?;
            if self.is_path() {
                return Err(Errno::BADF);
            }
            let changed = (self.flags() ^ flags) & OFlags::APPEND;
            if !changed.is_empty() && self.inode().is_append() {
                return Err(Errno::PERM);
            }
            let adds_noatime =
                flags.contains(OFlags::NOATIME) && !self.flags().contains(OFlags::NOATIME);
            if adds_noatime && !credentials.owns(self.inode()) {
                return Err(Errno::PERM);
            }
            let kept = self.flags().difference(SETTABLE) | (flags & SETTABLE);
            self.0.set_flags(kept);
            Ok(())
        };
        set().of("fcntl", &self.0)
    }

    /// Returns the attributes of the file.
    pub fn stat(&self) -> Result<Stat> {
        check_fork().named("fstat")?;
        let path = self.path();
        Ok(crate::file::stat::fill(path.mount(), path.dentry(), self.inode()))
    }

    /// Returns the state of its file system.
    pub fn statfs(&self) -> Result<StatFs> {
        check_fork().named("fstatfs")?;
        let mount = self.path().mount();
        Ok(mount.sb().statfs(mount.flags()))
    }

    /// Returns the type of the file.
    pub fn file_type(&self) -> FileType {
        self.inode().file_type()
    }

    #[inline]
    pub(crate) fn check_read(&self, offset: u64, len: usize) -> Outcome<&Inode> {
        if !self.0.mode().contains(FileMode::READ) {
            return Err(self.0.mode().no_position());
        }
        check_range(offset, len)?;
        let inode = self.inode();
        if inode.is_dir() { Err(Errno::ISDIR) } else { Ok(inode) }
    }

    #[inline]
    pub(crate) fn read_inner(&self, offset: u64, buf: &mut [u8]) -> ReadResult<usize> {
        check_offset(offset)?;
        let inode = self.check_read(offset, buf.len())?;
        let end = buf.is_empty() || offset >= inode.size();
        let n = if end {
            self.read_text(offset, buf)?
        } else {
            inode.sb().fs().read_at(inode, offset, buf)?
        };
        self.accessed(inode);
        Ok(n)
    }

    #[inline]
    pub(crate) fn accessed(&self, inode: &Inode) {
        if !self.flags().contains(OFlags::NOATIME) {
            touch_atime(self.path().mount(), inode);
        }
    }

    /// Reads at `offset`, independent of the file's position; returns the number of bytes, 0 at the
    /// end.
    ///
    /// # Errors
    /// `EBADF` if not open for reading, `EISDIR`, `EINVAL` for an offset above `i64::MAX`.
    #[inline]
    pub fn pread(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        check_fork().named("pread")?;
        self.with_text(|| self.read_inner(offset, buf)).of("pread", &self.0)
    }

    /// Reads at the file's position and advances it; returns the number of bytes, 0 at the end. A
    /// pipe or socket has no position: the read blocks until data arrives, unless opened with
    /// `NONBLOCK`.
    ///
    /// # Errors
    /// As [`pread`](Self::pread); `EAGAIN` instead of blocking.
    pub fn read(&self, buf: &mut [u8]) -> Result<usize> {
        if self.is_stream() {
            return self.read_stream(&mut [IoSliceMut::new(buf)], None).of("read", &self.0);
        }
        check_fork().named("read")?;
        let len = buf.len();
        self.with_text(|| self.read_with(len, |offset| self.read_inner(offset, buf)))
            .of("read", &self.0)
    }

    fn read_with(
        &self,
        len: usize,
        read: impl FnOnce(u64) -> ReadResult<usize>,
    ) -> ReadResult<usize> {
        if len > 0 && (self.inode().is_dir() || self.is_at_end()) {
            // A read that does not move the position needs no lock.
            let inode = self.check_read(self.0.pos.get(), len)?;
            self.accessed(inode);
            return Ok(0);
        }
        let mut pos = self.0.pos.lock();
        let n = read(pos.get())?;
        pos.set(pos.get() + n as u64);
        Ok(n)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> ReadResult<usize> {
        check_offset(offset)?;
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if len == 0 && self.0.mode().contains(FileMode::READ) {
            return Ok(0);
        }
        self.check_read(offset, len)?;
        let mut done = 0;
        for buf in bufs {
            let n = self.read_inner(offset + done as u64, buf)?;
            done += n;
            if n < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Reads into several buffers at `offset`.
    ///
    /// # Errors
    /// As [`pread`](Self::pread).
    pub fn preadv(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        check_fork().named("preadv")?;
        self.with_text(|| self.read_vectored_at(offset, bufs)).of("preadv", &self.0)
    }

    /// Reads into several buffers at the file's position and advances it. Blocks as
    /// [`read`](Self::read) does.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn readv(&self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        if self.is_stream() {
            return self.read_stream(bufs, None).of("readv", &self.0);
        }
        check_fork().named("readv")?;
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.with_text(|| self.read_with(len, |offset| self.read_vectored_at(offset, bufs)))
            .of("readv", &self.0)
    }

    pub(crate) fn check_write(&self) -> Outcome<&Inode> {
        check_fork()?;
        if self.0.mode().contains(FileMode::WRITE) {
            Ok(self.inode())
        } else {
            Err(self.0.mode().no_position())
        }
    }

    /// Allocates, punches or zeroes a range (`fallocate`).
    ///
    /// # Errors
    /// `EINVAL` for an empty range, `EFBIG`, `ENOSPC`, `EOPNOTSUPP` for an unsupported mode,
    /// `EBADF` if not open for writing, `EISDIR`, `ENODEV` for other types, `EPERM` for an
    /// immutable file, and for other modes than allocation if the file is only appended to.
    pub fn fallocate(&self, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.with_space(|| self.fallocate_inner(mode, offset, len)).of("fallocate", &self.0)
    }

    fn fallocate_inner(&self, mode: FallocateFlags, offset: u64, len: u64) -> Outcome<()> {
        check_fork()?;
        let limit = i64::MAX as u64;
        if self.is_path() {
            return Err(Errno::BADF);
        }
        if len == 0 || len > limit || offset > limit {
            return Err(Errno::INVAL);
        }
        check_fallocate_mode(mode)?;
        if !self.0.mode().intersects(FileMode::CAN_WRITE) {
            return Err(Errno::BADF);
        }
        let allocates = FallocateFlags::KEEP_SIZE.contains(mode);
        if self.inode().is_immutable() || (self.inode().is_append() && !allocates) {
            return Err(Errno::PERM);
        }
        if self.inode().file_type() == FileType::Socket {
            return Err(Errno::NODEV);
        }
        let inode = self.check_write()?;
        if inode.is_dir() {
            return Err(Errno::ISDIR);
        }
        if !inode.is_file() {
            return Err(Errno::NODEV);
        }
        let fs = inode.sb().fs();
        if offset + len > fs.size_max() {
            return Err(Errno::FBIG);
        }
        let locked = inode.lock();
        memfd_seals::check_fallocate(inode, mode, offset + len)?;
        fs.fallocate(inode, mode, offset, len)?;
        drop_privileges(inode, self.0.mode())?;
        inode.touch_in_passing();
        drop(locked);
        self.0.changed();
        sync_change(inode)
    }
}

/// Refuses invalid modes of `fallocate`: unknown modes, combined modes, and those that require or
/// exclude `KEEP_SIZE`.
fn check_fallocate_mode(mode: FallocateFlags) -> Outcome<()> {
    const WRITE_ZEROES: u32 = 128;
    let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
    let what = mode.difference(FallocateFlags::KEEP_SIZE);
    let alone =
        [FallocateFlags::empty(), FallocateFlags::ZERO_RANGE, FallocateFlags::UNSHARE_RANGE];
    let shifting = [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE];
    let known = match what {
        FallocateFlags::PUNCH_HOLE => keeps_size,
        _ if alone.contains(&what) => true,
        _ => (shifting.contains(&what) || what.bits() == WRITE_ZEROES) && !keeps_size,
    };
    if known { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}

/// Checks an offset. Offsets are signed in Linux: the upper half is invalid, an error that precedes
/// all others.
#[inline]
pub(crate) fn check_offset(offset: u64) -> Outcome<()> {
    if offset > i64::MAX as u64 { Err(Errno::INVAL) } else { Ok(()) }
}

/// Checks that a range does not exceed the largest offset.
#[inline]
pub(crate) fn check_range(offset: u64, len: usize) -> Outcome<()> {
    if len as u64 > i64::MAX as u64 - offset { Err(Errno::INVAL) } else { Ok(()) }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guard = rcu::pin();
        let name = String::from_utf8_lossy(self.path().dentry().name(&guard)).into_owned();
        f.debug_struct("File")
            .field("name", &name)
            .field("ino", &self.inode().ino())
            .field("flags", &self.flags())
            .finish()
    }
}
