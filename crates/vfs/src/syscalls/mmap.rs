//! The calls that record mappings of memory in a task: `mmap`, `munmap`, `mprotect`.

use rustix::io::Errno;

use crate::base::error::{Named, Result, check_fork};
use crate::base::types::MountFlags;
use crate::file::open_file::File;
use crate::file::seals::WritableMap;
use crate::objects::file_description::FileMode;
use crate::syscalls::posix::Calls;
use crate::task::mmap_table::{Area, Backing, Mapping, PAGE_BYTES, Protection, Sharing, Source};

/// Returns the end of a range, rounded up to a page.
fn end_of(start: u64, len: u64) -> std::result::Result<u64, Errno> {
    let len = len.checked_next_multiple_of(PAGE_BYTES).ok_or(Errno::NOMEM)?;
    start.checked_add(len).ok_or(Errno::NOMEM)
}

/// Returns the protection that a mapping of `file` may ever have, or an error if such a mapping is
/// forbidden.
fn allowed(
    file: &File,
    protection: Protection,
    sharing: Sharing,
) -> std::result::Result<Protection, Errno> {
    let mut allowed = Protection::all();
    if sharing == Sharing::Shared {
        if !file.mode().intersects(FileMode::CAN_WRITE) {
            allowed.remove(Protection::WRITE);
        } else if file.inode().is_append() {
            return Err(Errno::ACCESS);
        }
    }
    if !allowed.contains(protection) || !file.mode().intersects(FileMode::CAN_READ) {
        return Err(Errno::ACCESS);
    }
    let flags = file.path().mount().flags() | file.inode().sb().flags();
    if flags.contains(MountFlags::NOEXEC) {
        allowed.remove(Protection::EXEC);
        if protection.contains(Protection::EXEC) {
            return Err(Errno::PERM);
        }
    }
    if !file.inode().is_file() || file.is_text() {
        return Err(Errno::NODEV);
    }
    Ok(allowed)
}

impl Calls<'_> {
    /// Records a mapping of `len` bytes, rounded up to pages, from address `start` on, in place of
    /// earlier mappings there (`mmap` with `MAP_FIXED`). A file stays open while it is mapped. The
    /// call maps no memory: see the [module](crate::task::mmap_table).
    ///
    /// # Errors
    /// As `mmap(2)`: `EINVAL` for an empty range, or an address or offset within a page; `ENOMEM`
    /// for a range beyond the address space; `EOVERFLOW` beyond the largest file; `EACCES` if the
    /// file was not opened for it (reading, always; writing, for a shared writable mapping), or is
    /// open for writing and only appended to, for a shared one;
    /// `EPERM` for an executable mapping of a file on a mount with `NOEXEC`, or a shared writable
    /// one of a sealed file; `ENODEV` if it is no regular file, `EBADF` for an `O_PATH` handle.
    pub fn mmap(
        &self,
        start: u64,
        len: u64,
        protection: Protection,
        sharing: Sharing,
        source: Source<'_>,
    ) -> Result<()> {
        let map = || {
            check_fork()?;
            let offset = match source {
                Source::File { file, .. } if file.is_path() => return Err(Errno::BADF),
                Source::File { offset, .. } => offset,
                Source::Anonymous(_) => 0,
            };
            if len == 0 || !offset.is_multiple_of(PAGE_BYTES) {
                return Err(Errno::INVAL);
            }
            let end = end_of(start, len)?;
            if !start.is_multiple_of(PAGE_BYTES) {
                return Err(Errno::INVAL);
            }
            let (what, allowed) = match source {
                Source::Anonymous(name) => {
                    let name = name.into();
                    let what = match sharing {
                        Sharing::Private => Backing::Own { name },
                        Sharing::Shared => Backing::Shared { name, offset: 0 },
                    };
                    (what, Protection::all())
                }
                Source::File { file, offset } => {
                    let inode = file.inode();
                    let past = offset.saturating_add(end - start);
                    if inode.is_file() && past > inode.sb().fs().size_max() {
                        return Err(Errno::OVERFLOW);
                    }
                    let mut allowed = allowed(file, protection, sharing)?;
                    let mut writable = None;
                    if allowed.contains(Protection::WRITE)
                        && sharing == Sharing::Shared
                        && inode.is_sealable()
                    {
                        writable = WritableMap::new(file, protection.contains(Protection::WRITE))?;
                        allowed.set(Protection::WRITE, writable.is_some());
                    }
                    (Backing::File { file: file.clone(), offset, writable }, allowed)
                }
            };
            let area = Area { end, protection, allowed, sharing, what };
            self.task.maps().put(start, area);
            Ok(())
        };
        map().named("mmap")
    }

    /// Removes the mappings of `len` bytes, rounded up to pages, from address `start` on. A gap is
    /// no error.
    ///
    /// # Errors
    /// `EINVAL` for an empty range, an address within a page, or a range beyond the address space.
    pub fn munmap(&self, start: u64, len: u64) -> Result<()> {
        let unmap = || {
            check_fork()?;
            if len == 0 || !start.is_multiple_of(PAGE_BYTES) {
                return Err(Errno::INVAL);
            }
            let end = end_of(start, len).map_err(|_| Errno::INVAL)?;
            self.task.maps().cut(start, end);
            Ok(())
        };
        unmap().named("munmap")
    }

    /// Changes the protection of the mappings of a range. After a failure, the part before it stays
    /// changed.
    ///
    /// # Errors
    /// `EINVAL` for an address within a page; `ENOMEM` if the range has a gap; `EACCES` for a
    /// protection with which it could not have been mapped.
    pub fn mprotect(&self, start: u64, len: u64, protection: Protection) -> Result<()> {
        let protect = || {
            check_fork()?;
            if !start.is_multiple_of(PAGE_BYTES) {
                return Err(Errno::INVAL);
            }
            let end = end_of(start, len)?;
            self.task.maps().protect(start, end, protection)
        };
        protect().named("mprotect")
    }

    /// Returns a consistent snapshot of the task's mappings, in the order of addresses.
    pub fn mappings(&self) -> Vec<Mapping> {
        if check_fork().is_err() {
            return Vec::new();
        }
        self.task.maps().list()
    }
}
