//! Locks that exist only while they are held or waited for, one for each key.
//!
//! Two lookups of one name in one directory must not call the driver concurrently: the second waits
//! and then finds the answer to the first. Linux has a hash of dentries "in lookup" for that. Here
//! the key (directory and hash of the name) is locked instead, because there may be no dentry yet.
//!
//! A change of a name locks its key as well ([`crate::namei::dir_ops`]), and inodes are created by
//! number under such a lock ([`SuperBlock::iget`](crate::objects::super_block::SuperBlock::iget)).
//!
//! Keys are locked across calls of a driver, which may take as long as a disk does. So a thread
//! that holds a lock or is in an RCU section must not lock a key, and a waiter sleeps. A thread
//! that locks several names locks them in the order of their keys, and numbers after names, one at
//! a time.
//!
//! The keys that are currently locked form a short list in each of a few shards. A shard's lock is
//! held only for a search of that list.

use std::mem;

use vfscale_sync::atomic::thread::{self, Thread};
use vfscale_sync::lock::Mutex;
use vfscale_sync::percpu::CachePadded;

use crate::base::lock_classes::InLookup;

/// Number of shards, each on lines of its own. Names that are looked up concurrently rarely share
/// one.
const SHARDS: usize = 64;

/// A directory's address and a name's hash; or a number and its hash.
pub(crate) type Key = (usize, u64);

struct Held {
    key: Key,
    waiting: Vec<Thread>,
}

type Shard = Mutex<Vec<Held>, InLookup>;

/// A lock for each key. See the [module](self). `Send` and `Sync`.
pub(crate) struct KeyLocks {
    shards: Box<[CachePadded<Shard>]>,
}

/// A locked key; dropping it unlocks.
#[must_use = "the key is unlocked when the guard is dropped"]
pub(crate) struct KeyGuard<'a> {
    locks: &'a KeyLocks,
    key: Key,
}

impl KeyLocks {
    pub(crate) fn new() -> KeyLocks {
        KeyLocks { shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect() }
    }

    fn shard(&self, (dir, hash): Key) -> &Shard {
        // Addresses of dentries are multiples of a cache line, and a hash is best at its top.
        &self.shards[(dir >> 6 ^ (hash >> 48) as usize) % SHARDS]
    }

    /// Locks `key`. Sleeps while another thread holds it; the caller holds no lock and is in no RCU
    /// section.
    pub(crate) fn lock(&self, key: Key) -> KeyGuard<'_> {
        loop {
            let mut shard = self.shard(key).lock();
            let Some(held) = shard.iter_mut().find(|held| held.key == key) else {
                shard.push(Held { key, waiting: Vec::new() });
                return KeyGuard { locks: self, key };
            };
            held.waiting.push(thread::current());
            drop(shard);
            // The holder wakes all waiters, which then compete again. A wakeup meant for another
            // purpose only causes one more look.
            thread::park();
        }
    }

    /// Locks `key` unless another thread holds it. The caller may hold locks.
    pub(crate) fn try_lock(&self, key: Key) -> Option<KeyGuard<'_>> {
        let mut shard = self.shard(key).lock();
        let is_free = shard.iter().all(|held| held.key != key);
        is_free.then(|| {
            shard.push(Held { key, waiting: Vec::new() });
            KeyGuard { locks: self, key }
        })
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        let mut shard = self.locks.shard(self.key).lock();
        let waiting = match shard.iter().position(|held| held.key == self.key) {
            Some(at) => mem::take(&mut shard.swap_remove(at).waiting),
            None => Vec::new(),
        };
        drop(shard);
        waiting.iter().for_each(Thread::unpark);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
