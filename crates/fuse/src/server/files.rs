//! Open files by file handle.
//!
//! A handle is an index into a table that is sharded, with one lock per shard. `OPEN`, `CREATE` and
//! `OPENDIR` create a handle; the kernel sends one `RELEASE` for each, which removes it.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfscale::posix::Owner;
use vfscale::{Errno, File};

/// Number of shards. A handle less one, modulo this, is the shard.
const SHARDS: usize = 16;

/// A file opened through the mount.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) file: File,
    /// The owners that requested record locks through this handle and have not closed it since.
    owners: Mutex<Vec<Owner>>,
}

impl Open {
    fn owners(&self) -> MutexGuard<'_, Vec<Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that `owner` locks through this handle.
    pub(crate) fn note_owner(&self, owner: Owner) {
        let mut owners = self.owners();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// Removes `owner`, which has closed a descriptor of this handle; that ends its locks.
    pub(crate) fn drop_owner(&self, owner: Owner) {
        self.owners().retain(|other| *other != owner);
    }

    /// Takes the recorded owners.
    pub(crate) fn take_owners(&self) -> Vec<Owner> {
        std::mem::take(&mut *self.owners())
    }
}

/// A file to act on: that of a handle, or that of a node.
#[derive(Debug)]
pub(crate) enum Target {
    Handle(Arc<Open>),
    Node(File),
}

impl Deref for Target {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            Target::Handle(open) => &open.file,
            Target::Node(file) => file,
        }
    }
}

#[derive(Debug, Default)]
struct HandleTable {
    slots: Vec<Option<Arc<Open>>>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct FileShard(Mutex<HandleTable>);

/// All open files of one connection.
#[derive(Debug)]
pub(crate) struct Files {
    shards: Box<[FileShard]>,
    next: AtomicUsize,
}

impl Files {
    pub(crate) fn new() -> Files {
        Files {
            shards: (0..SHARDS).map(|_| FileShard::default()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, HandleTable> {
        self.shards[index % SHARDS].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shard and the index of a handle; 0 is no handle.
    fn split(fh: u64) -> Option<(usize, usize)> {
        let n = usize::try_from(fh.checked_sub(1)?).ok()?;
        Some((n % SHARDS, n / SHARDS))
    }

    /// Adds an open file and returns its handle, which is never 0.
    pub(crate) fn insert(&self, file: File) -> u64 {
        let open = Arc::new(Open { file, owners: Mutex::default() });
        let index = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shard(index);
        let slot = shard.free.pop().unwrap_or_else(|| {
            shard.slots.push(None);
            shard.slots.len() - 1
        });
        shard.slots[slot] = Some(open);
        (slot * SHARDS + index + 1) as u64
    }

    /// Returns the open file of a handle.
    ///
    /// # Errors
    /// Returns `EBADF` for an unknown handle.
    pub(crate) fn get(&self, fh: u64) -> Result<Arc<Open>, Errno> {
        let (index, slot) = Files::split(fh).ok_or(Errno::BADF)?;
        self.shard(index).slots.get(slot).cloned().flatten().ok_or(Errno::BADF)
    }

    /// Removes an open file from the table.
    pub(crate) fn remove(&self, fh: u64) -> Option<Arc<Open>> {
        let (index, slot) = Files::split(fh)?;
        let mut shard = self.shard(index);
        let open = shard.slots.get_mut(slot)?.take()?;
        shard.free.push(slot);
        Some(open)
    }

    /// Removes all open files from the table.
    pub(crate) fn take_all(&self) -> Vec<Arc<Open>> {
        let take = |i| {
            let HandleTable { slots, .. } = std::mem::take(&mut *self.shard(i));
            slots.into_iter().flatten()
        };
        (0..SHARDS).flat_map(take).collect()
    }

    /// Returns the number of open files.
    pub(crate) fn count(&self) -> usize {
        let count = |i| {
            let shard = self.shard(i);
            shard.slots.len() - shard.free.len()
        };
        (0..SHARDS).map(count).sum()
    }
}
