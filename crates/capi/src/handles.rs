//! Handles: numbers that C programs hold, and the tables of the objects that they name.
//!
//! # Invariants
//!
//! * A number consists of the kind of the object, a place in the table of that kind, and the count
//!   of handles that had the place before. No two handles of a process have the same number: a
//!   place whose count is exhausted is not used again.
//! * Its upper bit is set, so it is no address of user space: a program that follows it as a
//!   pointer gets a fault, not bytes.
//! * Every part of a table has the same entries, except while `changes` is locked.
//! * An object lives as long as its entry or a [`Used`]; each entry of a part counts as one.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use vfscale::Errno;
use vfscale_sync::cpu;
use vfscale_sync::lock::{Mutex, RwLock};
use vfscale_sync::percpu::PerCpu;

use crate::border::Failure;
use crate::ranks::{HandleChanges, HandleTable};

const PLACE_BITS: u32 = 24;
const COUNT_BITS: u32 = 35;
const PLACES_MAX: u64 = 1 << PLACE_BITS;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const TOP: u64 = 1 << 63;

/// The kind of the object that a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fs = 1,
    Task = 2,
    Dir = 3,
    Token = 4,
    Watcher = 5,
    CacheBudget = 6,
    Pool = 7,
    Diff = 8,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Fs,
        Kind::Task,
        Kind::Dir,
        Kind::Token,
        Kind::Watcher,
        Kind::CacheBudget,
        Kind::Pool,
        Kind::Diff,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Fs => "struct vfscale_fs",
            Kind::Task => "struct vfscale_task",
            Kind::Dir => "struct vfscale_dir",
            Kind::Token => "struct vfscale_token",
            Kind::Watcher => "struct vfscale_watcher",
            Kind::CacheBudget => "struct vfscale_cache_budget",
            Kind::Pool => "struct vfscale_pool",
            Kind::Diff => "struct vfscale_diff",
        }
    }
}

/// The parts of a handle's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    kind: u64,
    count: u64,
    place: u64,
}

impl Number {
    fn of(handle: u64) -> Option<Number> {
        let kind = handle >> (PLACE_BITS + COUNT_BITS) & 0xf;
        let count = handle >> PLACE_BITS & COUNT_MAX;
        (handle & TOP != 0).then_some(Number { kind, count, place: handle & (PLACES_MAX - 1) })
    }

    fn handle(self) -> u64 {
        TOP | self.kind << (PLACE_BITS + COUNT_BITS) | self.count << PLACE_BITS | self.place
    }
}

/// An object and the count of its uses on one CPU. Aligned to two lines, since x86 fetches them in
/// pairs.
#[repr(align(128))]
struct Counted<T>(Arc<T>);

/// The use of an object by a call.
pub(crate) struct Used<T>(Arc<Counted<T>>);

impl<T> Deref for Used<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

/// An entry: the count of its handle, and the object.
struct Entry<T> {
    count: u64,
    object: Arc<Counted<T>>,
}

/// A copy of the table, read by one CPU.
type Part<T> = RwLock<Vec<Option<Entry<T>>>, HandleTable>;

/// The places of a table.
#[derive(Default)]
struct Places {
    /// The count of the next handle of each place that was used.
    counts: Vec<u64>,
    free: Vec<u64>,
}

struct Inner<T> {
    parts: PerCpu<Part<T>>,
    changes: Mutex<Places, HandleChanges>,
}

/// The objects of one kind.
pub(crate) struct Table<T> {
    kind: Kind,
    /// Whether several CPUs often use the same object, so that each has a copy of the table.
    shared: bool,
    inner: OnceLock<Inner<T>>,
}

impl<T> Table<T> {
    /// Creates the empty table of a kind.
    pub(crate) const fn new(kind: Kind, shared: bool) -> Table<T> {
        Table { kind, shared, inner: OnceLock::new() }
    }

    fn inner(&self) -> &Inner<T> {
        self.inner.get_or_init(|| {
            let parts = if self.shared { cpu::slots() as usize } else { 1 };
            Inner {
                parts: PerCpu::new(parts, |_| RwLock::new(Vec::new())),
                changes: Mutex::new(Places::default()),
            }
        })
    }

    /// Adds an object, and returns its handle.
    ///
    /// # Errors
    /// `EMFILE` if there are 16,777,216 objects of the kind.
    pub(crate) fn insert(&self, object: T) -> Result<u64, Failure> {
        let inner = self.inner();
        let object = Arc::new(object);
        let mut places = inner.changes.lock();
        let place = match places.free.pop() {
            Some(place) => place,
            None if (places.counts.len() as u64) < PLACES_MAX => {
                places.counts.push(0);
                places.counts.len() as u64 - 1
            }
            None => return Err(Failure::new(Errno::MFILE, "too many handles of this kind")),
        };
        let at = place as usize;
        let count = places.counts[at];
        for part in inner.parts.iter() {
            let object = Arc::new(Counted(object.clone()));
            let mut part = part.write();
            if part.len() <= at {
                part.resize_with(at + 1, || None);
            }
            part[at] = Some(Entry { count, object });
        }
        Ok(Number { kind: self.kind as u64, count, place }.handle())
    }

    /// Returns the object of a handle.
    ///
    /// # Errors
    /// `EBADF` for a handle that was freed, or is none of this kind.
    pub(crate) fn get(&self, handle: u64) -> Result<Used<T>, Failure> {
        let number = self.check(handle)?;
        let part = self.inner().parts.this().read();
        match part.get(number.place as usize) {
            Some(Some(entry)) if entry.count == number.count => Ok(Used(entry.object.clone())),
            _ => Err(self.freed()),
        }
    }

    /// Removes a handle. Calls that use its object go on; the last of them drops it.
    ///
    /// # Errors
    /// `EBADF` for a handle that was freed, or is none of this kind.
    pub(crate) fn remove(&self, handle: u64) -> Result<(), Failure> {
        let number = self.check(handle)?;
        let inner = self.inner();
        let mut places = inner.changes.lock();
        let mut removed = Vec::with_capacity(inner.parts.len());
        for part in inner.parts.iter() {
            let mut part = part.write();
            let slot = part.get_mut(number.place as usize);
            removed.extend(slot.and_then(|e| e.take_if(|entry| entry.count == number.count)));
        }
        if removed.is_empty() {
            return Err(self.freed());
        }
        if number.count < COUNT_MAX {
            places.counts[number.place as usize] = number.count + 1;
            places.free.push(number.place);
        }
        // The object may close files, or wait, when it is dropped.
        drop(places);
        drop(removed);
        Ok(())
    }

    fn check(&self, handle: u64) -> Result<Number, Failure> {
        let number = Number::of(handle).ok_or_else(|| {
            let text = if handle == 0 { "is null" } else { "is not a handle of this library" };
            Failure::new(Errno::BADF, format!("the {} {text}", self.kind.name()))
        })?;
        if number.kind == self.kind as u64 {
            return Ok(number);
        }
        let is = Kind::ALL.iter().find(|kind| **kind as u64 == number.kind);
        let is = is.map_or("no handle of this library", |kind| kind.name());
        let text = format!("the {} is really a {is}", self.kind.name());
        Err(Failure::new(Errno::BADF, text))
    }

    #[cold]
    fn freed(&self) -> Failure {
        Failure::new(Errno::BADF, format!("the {} was freed", self.kind.name()))
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
