//! The memory mappings of a task: the counterpart of a kernel's table for `mmap(2)`.
//!
//! The library maps nothing itself. An embedder that runs programs has an address space for each of
//! them, and records each of its [`mmap`], [`munmap`] and [`mprotect`] in the task. In return the
//! table provides the effects of the kernel's table on files. It refuses mappings that the open
//! mode or the seals of the file forbid. It holds the file open, so its data stays and its mount is
//! in use. [`fork`](Task::fork) copies it, [`exec`] empties it, and callers can read it
//! ([`mappings`]), also as `tasks/ID/maps` of the introspection driver.
//!
//! [`mmap`]: crate::Calls::mmap
//! [`munmap`]: crate::Calls::munmap
//! [`mprotect`]: crate::Calls::mprotect
//! [`exec`]: crate::Calls::exec
//! [`mappings`]: crate::Calls::mappings
//!
//! # Invariants
//!
//! * Areas do not overlap, begin and end at page boundaries, and are not empty.
//! * Adjacent areas that could be one area are merged: same protection, same file (the same open
//!   file, not the same inode) and contiguous offsets, or same name. So the table is as short as
//!   the kernel's.
//! * Readers see a change of the table as a whole, except an [`mprotect`] that fails
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

use crate::base::lock_classes::MmapLock;
use crate::file::open_file::File;
use crate::file::seals::WritableMap;
#[cfg(doc)]
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
pub(crate) struct Area {
    pub(crate) end: u64,
    pub(crate) protection: Protection,
    /// The protection that `protect` may set (`VM_MAYREAD` and so on).
    pub(crate) allowed: Protection,
    pub(crate) sharing: Sharing,
    pub(crate) what: Backing,
}

/// The memory behind a mapping.
#[derive(Clone)]
pub(crate) enum Backing {
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
    ) -> Result<(), Errno> {
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

    /// Inserts an area, which replaces those that it overlaps.
    pub(crate) fn put(&self, start: u64, area: Area) {
        let gone = self.0.lock().put(start, area);
        drop(gone);
    }

    /// Removes the areas between two addresses.
    pub(crate) fn cut(&self, start: u64, end: u64) {
        let gone = self.0.lock().cut(start, end);
        drop(gone);
    }

    /// Protects the areas between two addresses, up to the first gap or the first area that does
    /// not allow it.
    ///
    /// # Errors
    /// `ENOMEM` for a gap, `EACCES` for an area that does not allow it.
    pub(crate) fn protect(
        &self,
        start: u64,
        end: u64,
        protection: Protection,
    ) -> Result<(), Errno> {
        let mut gone = Vec::new();
        let done = self.0.lock().protect(start, end, protection, &mut gone);
        drop(gone);
        done
    }

    /// Returns the mappings, in the order of addresses, as they were at one moment.
    pub(crate) fn list(&self) -> Vec<Mapping> {
        let no_name: Arc<str> = "".into();
        let table = self.0.lock();
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

    /// Copies the table for a child.
    pub(crate) fn fork(&self) -> Maps {
        let table = self.0.lock().clone();
        Maps(Mutex::new(table))
    }
}
