//! The memory mappings of a task: the counterpart of a kernel's table for `mmap(2)`.
//!
//! The library maps nothing itself. An embedder that runs programs has an address space for each of
//! them, and records each of its `mmap` ([`Task::map`]), `munmap` ([`Task::unmap`]) and `mprotect`
//! ([`Task::protect`]) in the task. In return the table provides the effects of the kernel's table
//! on files. It refuses mappings that the open mode or the seals of the file forbid. It holds the
//! file open, so its data stays and its mount is in use. [`fork`](Task::fork) copies it,
//! [`exec`](Task::exec) empties it, and callers can read it ([`Task::mappings`]), also as
//! `tasks/ID/maps` of the introspection driver.
//!
//! # Invariants
//!
//! * Areas do not overlap, begin and end at page boundaries, and are not empty.
//! * Adjacent areas that could be one area are merged: same protection, same file (the same open
//!   file, not the same inode) and contiguous offsets, or same name. So the table is as short as
//!   the kernel's.
//! * Readers see a change of the table as a whole, except a [`protect`](Task::protect) that fails
//!   half-way, as in Linux.
//!
//! # Locks
//!
//! `mmap_lock` of the task, under which no other lock is taken: a file whose last mapping ends is
//! closed after the lock is released.

use std::collections::BTreeMap;
use std::sync::Arc;

use bitflags::bitflags;
use rustix::io::Errno;
use vfscale_sync::lock::Mutex;

use crate::base::error::{Named, Result, check_fork};
use crate::base::lock_classes::MmapLock;
use crate::base::types::MountFlags;
use crate::file::open_file::{File, FileMode};
use crate::file::seals::WritableMap;
use crate::task::task_struct::Task;

/// The size of a page in bytes.
pub const PAGE_BYTES: u64 = 4096;

bitflags! {
    /// The protection of a mapping (`PROT_READ` and so on).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Protection: u8 {
        /// Readable.
        const READ = 1;
        /// Writable.
        const WRITE = 2;
        /// Executable.
        const EXEC = 4;
    }
}

/// The visibility of writes to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Visible to this task only (`MAP_PRIVATE`).
    Private,
    /// Visible to all that map or read the same file, and to children (`MAP_SHARED`).
    Shared,
}

/// The source of a mapping.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A file, from an offset that is a multiple of [`PAGE_BYTES`].
    File {
        /// The file, which stays open while it is mapped.
        file: &'a File,
        /// The offset in bytes.
        offset: u64,
    },
    /// Memory without a file, with the name that the table shows: `[heap]`, `[stack]`, or empty.
    Anonymous(&'a str),
}

/// A snapshot of one mapping.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address of the byte after its last one.
    pub end: u64,
    /// Its protection.
    pub protection: Protection,
    /// The visibility of writes to it.
    pub sharing: Sharing,
    /// The offset in the file of the byte at `start`. In shared memory without a file offsets count
    /// from its first mapping; private memory has none, and this is 0.
    pub offset: u64,
    /// The file, which this value holds open.
    pub file: Option<File>,
    /// The name of memory without a file.
    pub name: Arc<str>,
}

/// A mapping in the table, whose key is its start.
#[derive(Clone)]
struct Area {
    end: u64,
    protection: Protection,
    /// The protection that `protect` may set (`VM_MAYREAD` and so on).
    allowed: Protection,
    sharing: Sharing,
    what: Backing,
}

#[derive(Clone)]
enum Backing {
    File { file: File, offset: u64, writable: Option<Arc<WritableMap>> },
    Shared { name: Arc<str>, offset: u64 },
    Own { name: Arc<str> },
}

impl Backing {
    /// Returns the backing of the area's rest, from `bytes` on.
    fn behind(&self, bytes: u64) -> Backing {
        match self {
            Backing::File { file, offset, writable } => Backing::File {
                file: file.clone(),
                offset: offset + bytes,
                writable: writable.clone(),
            },
            Backing::Shared { name, offset } => {
                Backing::Shared { name: name.clone(), offset: offset + bytes }
            }
            Backing::Own { name } => Backing::Own { name: name.clone() },
        }
    }
}

impl Area {
    /// Returns whether this area, which begins at `start`, and `next`, which begins at its end, can
    /// be one area.
    fn goes_on_in(&self, start: u64, next: &Area) -> bool {
        let same = self.protection == next.protection
            && self.allowed == next.allowed
            && self.sharing == next.sharing;
        same && match (&self.what, &next.what) {
            (
                Backing::File { file, offset, .. },
                Backing::File { file: other, offset: then, .. },
            ) => file.id() == other.id() && offset + (self.end - start) == *then,
            // Each `map` call allocates its own name, so memory of another call does not merge.
            (Backing::Shared { name, .. }, Backing::Shared { name: other, .. }) => {
                Arc::ptr_eq(name, other)
            }
            (Backing::Own { name }, Backing::Own { name: other }) => name == other,
            _ => false,
        }
    }
}

/// The table of a task.
pub(crate) struct Maps(Mutex<Table, MmapLock>);

/// Areas by their start.
#[derive(Clone, Default)]
struct Table(BTreeMap<u64, Area>);

impl Table {
    /// Splits an area that contains `at` into two.
    fn split(&mut self, at: u64) {
        let Some((&start, area)) = self.0.range_mut(..at).next_back() else { return };
        if at < area.end {
            let second = Area { what: area.what.behind(at - start), ..area.clone() };
            area.end = at;
            self.0.insert(at, second);
        }
    }

    /// Merges the areas that meet at `at`, if possible. Pushes the removed area to `gone`, which
    /// the caller drops later.
    fn join(&mut self, at: u64, gone: &mut Vec<Area>) {
        let Some(next) = self.0.get(&at) else { return };
        let (end, before) = (next.end, self.0.range(..at).next_back());
        let Some((&start, area)) = before else { return };
        if area.end == at && area.goes_on_in(start, next) {
            gone.extend(self.0.remove(&at));
            if let Some(area) = self.0.get_mut(&start) {
                area.end = end;
            }
        }
    }

    /// Removes the areas between two addresses.
    fn cut(&mut self, start: u64, end: u64) -> Vec<Area> {
        self.split(start);
        self.split(end);
        let starts: Vec<u64> = self.0.range(start..end).map(|(at, _)| *at).collect();
        starts.iter().filter_map(|at| self.0.remove(at)).collect()
    }

    /// Inserts an area, which replaces those that it overlaps.
    fn put(&mut self, start: u64, area: Area) -> Vec<Area> {
        let end = area.end;
        let mut gone = self.cut(start, end);
        self.0.insert(start, area);
        self.join(start, &mut gone);
        self.join(end, &mut gone);
        gone
    }

    /// Protects the areas between two addresses, up to the first gap or the first area that does
    /// not allow it.
    fn protect(
        &mut self,
        start: u64,
        end: u64,
        protection: Protection,
        gone: &mut Vec<Area>,
    ) -> std::result::Result<(), Errno> {
        self.split(start);
        self.split(end);
        let mut at = start;
        let done = loop {
            match self.0.get_mut(&at) {
                _ if at == end => break Ok(()),
                None => break Err(Errno::NOMEM),
                Some(area) if !area.allowed.contains(protection) => break Err(Errno::ACCESS),
                Some(area) => {
                    area.protection = protection;
                    let next = area.end;
                    self.join(at, gone);
                    at = next;
                }
            }
        };
        // Also merges areas that were split although their protection stayed equal.
        self.join(at, gone);
        self.join(end, gone);
        done
    }
}

impl Maps {
    /// Removes all areas.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.0.lock());
        drop(gone);
    }

    pub(crate) fn new() -> Maps {
        Maps(Mutex::new(Table::default()))
    }

    /// Copies the table for a child.
    pub(crate) fn fork(&self) -> Maps {
        let table = self.0.lock().clone();
        Maps(Mutex::new(table))
    }
}

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
    if sharing == Sharing::Shared && !file.mode().intersects(FileMode::CAN_WRITE) {
        allowed.remove(Protection::WRITE);
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

impl Task {
    /// Records a mapping of `len` bytes, rounded up to pages, from address `start` on, in place of
    /// earlier mappings there (`mmap` with `MAP_FIXED`). A file stays open while it is mapped. The
    /// call maps no memory: see the [module](crate::task::mmap_table).
    ///
    /// ```text
    /// let source = Source::File { file: &file, offset: 0 };
    /// task.map(0x7000_0000, 4096, Protection::READ, Sharing::Private, source)?;
    /// ```
    ///
    /// # Errors
    /// As `mmap(2)`: `EINVAL` for an empty range, or an address or offset within a page; `ENOMEM`
    /// for a range beyond the address space; `EOVERFLOW` beyond the largest file; `EACCES` if the
    /// file was not opened for it (reading, always; writing, for a shared writable mapping);
    /// `EPERM` for an executable mapping of a file on a mount with `NOEXEC`, or a shared writable
    /// one of a sealed file; `ENODEV` if it is no regular file, `EBADF` for an `O_PATH` handle.
    pub fn map(
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
            let gone = self.maps().0.lock().put(start, area);
            drop(gone);
            Ok(())
        };
        map().named("mmap")
    }

    /// Removes the mappings of `len` bytes, rounded up to pages, from address `start` on. A gap is
    /// no error.
    ///
    /// # Errors
    /// `EINVAL` for an empty range, an address within a page, or a range beyond the address space.
    pub fn unmap(&self, start: u64, len: u64) -> Result<()> {
        let unmap = || {
            check_fork()?;
            if len == 0 || !start.is_multiple_of(PAGE_BYTES) {
                return Err(Errno::INVAL);
            }
            let end = end_of(start, len).map_err(|_| Errno::INVAL)?;
            let gone = self.maps().0.lock().cut(start, end);
            drop(gone);
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
    pub fn protect(&self, start: u64, len: u64, protection: Protection) -> Result<()> {
        let protect = || {
            check_fork()?;
            if !start.is_multiple_of(PAGE_BYTES) {
                return Err(Errno::INVAL);
            }
            let end = end_of(start, len)?;
            let mut gone = Vec::new();
            let done = self.maps().0.lock().protect(start, end, protection, &mut gone);
            drop(gone);
            done
        };
        protect().named("mprotect")
    }

    /// Returns a consistent snapshot of the task's mappings, in the order of addresses.
    pub fn mappings(&self) -> Vec<Mapping> {
        if check_fork().is_err() {
            return Vec::new();
        }
        let no_name: Arc<str> = "".into();
        let table = self.maps().0.lock();
        let areas = table.0.iter().map(|(start, area)| {
            let (file, offset, name) = match &area.what {
                Backing::File { file, offset, .. } => (Some(file.clone()), *offset, &no_name),
                Backing::Shared { name, offset } => (None, *offset, name),
                Backing::Own { name } => (None, 0, name),
            };
            Mapping {
                start: *start,
                end: area.end,
                protection: area.protection,
                sharing: area.sharing,
                offset,
                file,
                name: name.clone(),
            }
        });
        areas.collect()
    }
}
