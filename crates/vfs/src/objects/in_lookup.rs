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
//! # One word
//!
//! Keys are spread over shards, and each shard has a word. As long as one key of the shard is
//! locked at a time, the word has that key: locking and unlocking it is one exchange each. A thread
//! that finds the word taken *opens the list* of the shard, under its lock: it exchanges the word
//! for [`LISTED`] and enters the key that was there. From then on every thread that locks or
//! unlocks a key of the shard uses the list, for the exchanges of keys fail, until no key of the
//! shard is locked any more; then the word is free again. So a locked key is in the word or on the
//! list, never in both, and while there is a list no key enters the word.

use std::mem;

use vfscale_sync::atomic::thread::{self, Thread};
use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::hash::fibonacci;
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::percpu::CachePadded;

use crate::base::lock_classes::InLookup;

/// Number of shards, each on lines of its own. Names that are looked up concurrently rarely share
/// one.
const SHARDS: usize = 64;

/// The word of a shard of which no key is locked.
const FREE: u64 = 0;
/// The word of a shard whose locked keys are on its list.
const LISTED: u64 = 1;
/// Flag of all keys but that of moves.
const NAMED: u64 = 2;

/// A name or a number to lock. Two names that have one key by chance exclude each other, like one
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    /// Stands for all moves of directories between directories. No name has this key, so that a
    /// thread can hold both.
    pub(crate) const MOVES: Key = Key(4);

    /// Returns the key of a name: a directory's address and the name's hash.
    pub(crate) fn of_name(dir: usize, hash: u64) -> Key {
        Self::mix(dir as u64 ^ hash.rotate_left(32))
    }

    /// Returns the key of an inode's number.
    pub(crate) fn of_number(ino: u64) -> Key {
        Self::mix(ino)
    }

    /// A bijection, but for two bits.
    fn mix(value: u64) -> Key {
        Key(fibonacci(value) & !LISTED | NAMED)
    }

    fn shard(self) -> usize {
        // The upper bits of the product depend on all bits of its value.
        (self.0 >> 58) as usize % SHARDS
    }
}

struct Held {
    key: Key,
    waiting: Vec<Thread>,
}

impl Held {
    fn new(key: Key) -> Held {
        Held { key, waiting: Vec::new() }
    }

    /// Locks a key on the list. Returns its entry, and changes nothing, if it is locked already.
    fn enter(list: &mut Vec<Held>, key: Key) -> Option<&mut Held> {
        let at = list.iter().position(|held| held.key == key);
        if at.is_none() {
            list.push(Held::new(key));
        }
        at.map(|at| &mut list[at])
    }
}

/// The locked keys of one hash.
struct Shard {
    /// The locked key, or [`FREE`] or [`LISTED`]. [`LISTED`] is set and reset under the lock.
    word: AtomicU64,
    /// The locked keys while the word is [`LISTED`], and empty otherwise.
    held: Mutex<Vec<Held>, InLookup>,
}

/// A lock for each key. See the [module](self). `Send` and `Sync`.
pub(crate) struct KeyLocks {
    shards: Box<[CachePadded<Shard>]>,
}

/// A locked key; dropping it unlocks.
#[must_use = "the key is unlocked when the guard is dropped"]
pub(crate) struct KeyGuard<'a> {
    shard: &'a Shard,
    key: Key,
}

impl Shard {
    fn new() -> Shard {
        Shard { word: AtomicU64::new(FREE), held: Mutex::new(Vec::new()) }
    }

    /// Locks the key if no key of the shard is locked.
    fn take_free(&self, key: Key) -> bool {
        // Acquire: sees what the thread that had the key before has done.
        self.word.compare_exchange(FREE, key.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Has every thread use the list, until that is empty.
    fn list(&self) -> MutexGuard<'_, Vec<Held>, InLookup> {
        let mut held = self.held.lock();
        // Acquire: as in `take_free`.
        let before = self.word.swap(LISTED, Ordering::Acquire);
        if before != FREE && before != LISTED {
            held.push(Held::new(Key(before)));
        }
        held
    }

    /// Waits until the key is free, and locks it.
    #[cold]
    fn lock_slow(&self, key: Key) {
        loop {
            let mut list = self.list();
            let Some(held) = Held::enter(&mut list, key) else { return };
            held.waiting.push(thread::current());
            drop(list);
            // The holder wakes all waiters, which then compete again. A wakeup meant for another
            // purpose only causes one more look.
            thread::park();
        }
    }

    #[cold]
    fn try_lock_slow(&self, key: Key) -> bool {
        Held::enter(&mut self.list(), key).is_none()
    }

    #[cold]
    fn unlock_slow(&self, key: Key) {
        let mut list = self.held.lock();
        let waiting = match list.iter().position(|held| held.key == key) {
            Some(at) => mem::take(&mut list.swap_remove(at).waiting),
            None => Vec::new(),
        };
        if list.is_empty() {
            // Release: the next exchange of the word follows all that had a key on the list.
            self.word.store(FREE, Ordering::Release);
        }
        drop(list);
        waiting.iter().for_each(Thread::unpark);
    }
}

impl KeyLocks {
    pub(crate) fn new() -> KeyLocks {
        KeyLocks { shards: (0..SHARDS).map(|_| CachePadded::new(Shard::new())).collect() }
    }

    /// Locks `key`. Sleeps while another thread holds it; the caller holds no lock and is in no RCU
    /// section.
    pub(crate) fn lock(&self, key: Key) -> KeyGuard<'_> {
        let shard = &*self.shards[key.shard()];
        if cfg!(debug_assertions) {
            // Checks that the thread holds no lock which would have to follow.
            drop(shard.held.lock());
        }
        if !shard.take_free(key) {
            shard.lock_slow(key);
        }
        KeyGuard { shard, key }
    }

    /// Returns whether a thread has locked `key`. For assertions.
    pub(crate) fn is_locked(&self, key: Key) -> bool {
        let shard = &*self.shards[key.shard()];
        let is_listed = || shard.held.lock().iter().any(|held| held.key == key);
        shard.word.load(Ordering::Relaxed) == key.0 || is_listed()
    }

    /// Locks `key` unless another thread holds it. The caller may hold locks.
    pub(crate) fn try_lock(&self, key: Key) -> Option<KeyGuard<'_>> {
        let shard = &*self.shards[key.shard()];
        let is_locked = shard.take_free(key) || shard.try_lock_slow(key);
        is_locked.then(|| KeyGuard { shard, key })
    }
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next thread that locks a key of the shard.
        let word = &self.shard.word;
        if word.compare_exchange(self.key.0, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.shard.unlock_slow(self.key);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
