//! Open files: what the kernel knows by file handle.
//!
//! A handle is a place in a table, spread over shards with a lock each. It is made by `OPEN`,
//! `CREATE` or `OPENDIR` and goes with the one `RELEASE` that the kernel sends for each of them.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfscale::{Errno, File, Owner};

/// As many low bits of a handle, less one, name the shard.
const SHARDS: usize = 16;

/// A file opened through the mount.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) file: File,
    /// Who has asked for record locks through this handle and has not closed it since.
    owners: Mutex<Vec<Owner>>,
}

impl Open {
    fn owners(&self) -> MutexGuard<'_, Vec<Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `owner` locks through this handle.
    pub(crate) fn note_owner(&self, owner: Owner) {
        let mut owners = self.owners();
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }

    /// Notes that `owner` has closed a descriptor of this handle, which ends its locks.
    pub(crate) fn drop_owner(&self, owner: Owner) {
        self.owners().retain(|other| *other != owner);
    }

    /// Takes what is noted.
    pub(crate) fn take_owners(&self) -> Vec<Owner> {
        std::mem::take(&mut *self.owners())
    }
}

/// A file to act on: of a handle, or of a node.
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
struct Shard {
    places: Vec<Option<Arc<Open>>>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Shard>);

/// All open files of one connection.
#[derive(Debug)]
pub(crate) struct Files {
    shards: Box<[Slot]>,
    next: AtomicUsize,
}

impl Files {
    pub(crate) fn new() -> Files {
        Files { shards: (0..SHARDS).map(|_| Slot::default()).collect(), next: AtomicUsize::new(0) }
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index % SHARDS].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard and the place that a handle names; 0 is no handle.
    fn split(fh: u64) -> Option<(usize, usize)> {
        let n = usize::try_from(fh.checked_sub(1)?).ok()?;
        Some((n % SHARDS, n / SHARDS))
    }

    /// Enters an open file and gives its handle, which is never 0.
    pub(crate) fn insert(&self, file: File) -> u64 {
        let open = Arc::new(Open { file, owners: Mutex::default() });
        let index = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shard(index);
        let place = shard.free.pop().unwrap_or_else(|| {
            shard.places.push(None);
            shard.places.len() - 1
        });
        shard.places[place] = Some(open);
        (place * SHARDS + index + 1) as u64
    }

    /// The open file of a handle.
    ///
    /// # Errors
    /// `EBADF` for a handle that was not given out.
    pub(crate) fn get(&self, fh: u64) -> Result<Arc<Open>, Errno> {
        let (index, place) = Files::split(fh).ok_or(Errno::BADF)?;
        self.shard(index).places.get(place).cloned().flatten().ok_or(Errno::BADF)
    }

    /// Takes an open file out of the table.
    pub(crate) fn remove(&self, fh: u64) -> Option<Arc<Open>> {
        let (index, place) = Files::split(fh)?;
        let mut shard = self.shard(index);
        let open = shard.places.get_mut(place)?.take()?;
        shard.free.push(place);
        Some(open)
    }

    /// Takes all open files out of the table.
    pub(crate) fn take_all(&self) -> Vec<Arc<Open>> {
        let take = |i| {
            let Shard { places, .. } = std::mem::take(&mut *self.shard(i));
            places.into_iter().flatten()
        };
        (0..SHARDS).flat_map(take).collect()
    }

    /// How many files are open.
    pub(crate) fn count(&self) -> usize {
        let count = |i| {
            let shard = self.shard(i);
            shard.places.len() - shard.free.len()
        };
        (0..SHARDS).map(count).sum()
    }
}
