//! Hash tables whose lookups take no lock and write nothing: the children of directories.
//!
//! # Purpose
//!
//! A directory's children are looked up far more often than they change, and different threads make
//! and remove different children concurrently. An [`RcuTable`] serves both: a lookup reads the
//! table's word, one cache line of the bucket, and the entry; a change locks one bucket. A lock in
//! each bucket, with lookups under RCU, is the idea of the dcache hash in Piggin's "Scaling the
//! Linux VFS" (2009); growth by moving bucket after bucket follows the relativistic hash tables of
//! Triplett, McKenney and Walpole (USENIX ATC 2011), here by copying instead of relinking, since a
//! bucket is an array and not a list.
//!
//! # Layout
//!
//! ```text
//!  RcuTable: one word        bucket: one line of 64 bytes              node: one line
//!  +------------------+      +------+---------+-------------+-------+  +---------+------+
//!  | address | bits+1 | -->  | lock | version | 6 slots     | chain |->| 7 slots | next |
//!  +------------------+      +------+---------+-------------+-------+  +---------+------+
//!                            slot: 15 bits of the hash and a 1, 48 bits of address
//! ```
//!
//! The table's word holds the number of buckets next to their address, so a lookup reads nothing
//! else to find the bucket. A table without entries has no buckets and costs 8 bytes.
//!
//! Bits of a hash, from the top: the bucket (so buckets in order are hashes in order, for
//! [`RcuTable::scan`]); bits 21 to 35 are the tag in the slot; the lowest 20 are free for telling
//! entries of equal hash apart ([`Bucket::free_hash`]). A lookup compares tags before it touches an
//! entry, and the caller's `eq` decides.
//!
//! # Invariants
//!
//! * Only the holder of a bucket's lock changes its slots, version and chain.
//! * An entry stays in its slot until it is removed. It is in exactly one bucket that isn't moved.
//! * The version changes with every insertion. A lookup that found nothing and sees another version
//!   afterwards starts again. Otherwise it could miss a name that was inserted into a slot it had
//!   passed and removed from one it had not yet reached (a rename over an existing name). So a
//!   lookup is linearisable, with any result.
//! * A change of several steps, such as moving an entry to another name, announces itself in the
//!   version, and a lookup that found nothing repeats. So an entry that moves is never missing
//!   under both names.
//! * **Moved** buckets: growth (and shrinking) copies the entries of a bucket to the new buckets,
//!   and then replaces the chain by the word of the new buckets. From then on the old bucket is
//!   never changed again; every thread that reads its chain continues in the new ones. A lookup
//!   reads the chain before the slots: an entry that it finds in a bucket that was not moved then
//!   was present at that moment or later. An entry that it doesn't find there was absent when the
//!   bucket was moved, at the latest.
//! * A resize starts from the array of the table's word, with bucket 0, under its lock: this
//!   selects one resize at a time. When all buckets are moved, and not before, the table's word is
//!   replaced, and the old array is freed after a grace period.
//!
//! # Several CPUs
//!
//! A bucket is one line, which every change in it writes and every lookup in it reads. While there
//! are few entries, that is one line for all, unless the table was given more buckets in advance
//! ([`RcuTable::prepare`]). So a table into which several CPUs insert grows beyond the needs of its
//! entries, up to 32 buckets for each CPU: 2 KiB for each CPU of the machine. Two events show this
//! use: a lock held by another thread, and the **heat** of a bucket, in its version. One insertion
//! in eight compares its CPU with the last one that did; another CPU adds 3 to the heat, the last
//! one subtracts 1, and at 6 the table grows by four. So it takes at least two dozen insertions
//! into one bucket to multiply the buckets by four, and a thread that is moved from one CPU to
//! another does not cause it. For changes by one CPU the cost is two instructions in an insertion.
//! A table that grew for this reason shrinks only by [`RcuTable::shrink_to_fit`]. Its array is
//! bounded, with those of all other such tables of the process, by [`crate::percpu::spread`]:
//! beyond that it does not grow, and a table that has been large shrinks to the needs of its
//! entries.
//!
//! # Locks
//!
//! The buckets' locks have the class `C` of the table's owner. Several of them are locked only in
//! the order of their addresses ([`RcuTable::lock_set`], and a resize that joins neighbours). A
//! resize that starts when a bucket is released only tries its locks, since the caller may hold
//! other locks; the buckets that it has to leave behind are moved by later lockers of the table.
//!
//! # References
//!
//! A table owns its buckets and no entry. The inserter of an entry promises that it lives until a
//! grace period after its removal; a thread that looks one up may use it as long as it holds the
//! guard.

mod grow;
mod line;
mod scan;
mod set;

pub use set::{LockReq, LockSet};

use crate::atomic::{AtomicPtr, Ordering, const_unless_model};
use crate::lock::wait::Backoff;
use crate::lock::{LockClass, MutexGuard};
use crate::rcu::Guard;
use line::{
    BITS_MAX, CONTENDED_BITS_MIN, FREE_BITS, HASH_MAX, Hint, Line, Link, Seek, Word, contended_bits,
};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// An entry of an [`RcuTable`].
pub trait Hashed: 'static {
    /// Returns the hash of the entry. It never changes while the entry is in a table, and computing
    /// it neither panics nor locks. It has 63 bits, so it can serve as a file position; the 64th is
    /// ignored. Its top bits choose the bucket, so they must be as good as random.
    fn table_hash(&self) -> u64;
}

/// A hash table with lookups without a lock and a lock for each bucket. See the [module](self).
///
/// `Send` and `Sync` when `T` is both: threads share its entries.
pub struct RcuTable<T: Hashed, C: LockClass> {
    word: AtomicPtr<Line<T, C>>,
    entries: PhantomData<*const T>,
}

// SAFETY: The table hands out shared references to its entries on any thread, hence `Sync`; an
// entry inserted by one thread may be removed and dropped by another, hence `Send`. The table
// itself is an atomic word, and the buckets are changed under their locks.
unsafe impl<T: Hashed + Send + Sync, C: LockClass> Send for RcuTable<T, C> {}
// SAFETY: threads share only references to entries, which are `Sync`; the word is atomic, and
// buckets are changed under their locks.
unsafe impl<T: Hashed + Send + Sync, C: LockClass> Sync for RcuTable<T, C> {}

impl<T: Hashed, C: LockClass> RcuTable<T, C> {
    const_unless_model! {
        /// Creates a table without entries. It allocates nothing until a bucket is locked.
        pub fn new() -> Self {
            Self { word: AtomicPtr::new(std::ptr::null_mut()), entries: PhantomData }
        }
    }

    #[inline]
    fn word(&self) -> Word<T, C> {
        Word::from_raw(self.word.load(Ordering::Acquire))
    }

    /// Returns an entry under `hash` that `eq` accepts. `eq` is called with entries whose hash
    /// agrees in the bucket and in a tag of 15 bits, and has to compare all else, names for
    /// example.
    ///
    /// Takes no lock, writes nothing, and is linearisable: see the [module](self). It repeats if
    /// there was a concurrent insertion into the bucket, and waits only if it finds nothing while a
    /// change is announced there ([`LockSet::announce`]).
    #[inline(always)]
    pub fn find<'g>(
        &self,
        hash: u64,
        guard: &'g Guard,
        mut eq: impl FnMut(&T) -> bool,
    ) -> Option<&'g T> {
        // The guard is older than the read of the word, so the buckets outlive it.
        match self.word().line_of(hash, guard)?.seek(hash, &mut eq) {
            // SAFETY: Entries outlive their removal by a grace period, which the guard delays.
            Seek::Found(entry) => Some(unsafe { entry.as_ref() }),
            Seek::Absent => None,
            Seek::Changed => self.find_again(self.word(), hash, guard, eq),
            Seek::Moved(next) => self.find_again(next, hash, guard, eq),
        }
    }

    /// Repeats a lookup that met a change of the bucket, in the array that it has to look at now.
    #[cold]
    fn find_again<'g>(
        &self,
        mut word: Word<T, C>,
        hash: u64,
        guard: &'g Guard,
        mut eq: impl FnMut(&T) -> bool,
    ) -> Option<&'g T> {
        let mut wait = Backoff::new();
        loop {
            let line = word.line_of(hash, guard)?;
            match line.seek(hash, &mut eq) {
                // SAFETY: Entries outlive their removal by a grace period, which the guard delays.
                Seek::Found(entry) => return Some(unsafe { entry.as_ref() }),
                Seek::Absent => return None,
                Seek::Changed => wait.wait(),
                Seek::Moved(next) => word = next,
            }
        }
    }

    /// Locks the bucket of `hash`. Waits for other holders of this bucket.
    ///
    /// A thread may lock at most one bucket at a time in this way; [`lock_set`](Self::lock_set)
    /// locks several.
    #[inline]
    pub fn lock<'a>(&'a self, hash: u64, guard: &'a Guard) -> Bucket<'a, T, C> {
        let mut word = self.word();
        loop {
            let Some(line) = word.line_of(hash, guard) else {
                word = self.first_word(0);
                continue;
            };
            if let Link::Moved(next) = line.link() {
                self.help_sometimes(word, next, hash, guard);
                word = next;
                continue;
            }
            let (held, contended) = match line.lock.try_lock() {
                Some(held) => (held, false),
                None => (line.lock.lock(), true),
            };
            if let Link::Moved(next) = line.link() {
                drop(held);
                word = next;
                continue;
            }
            let hint = if contended { Hint::Contended } else { Hint::None };
            let bucket = BucketRef { word, line, hint };
            return Bucket { table: self, bucket, guard, hash, held: ManuallyDrop::new(held) };
        }
    }

    /// Gives an empty table its first `1 << bits` buckets, and returns the word that the table then
    /// has.
    #[cold]
    fn first_word(&self, bits: u32) -> Word<T, C> {
        let word = Word::allocate_or_abort(bits);
        let installed = self.word.compare_exchange(
            std::ptr::null_mut(),
            word.into_raw(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match installed {
            Ok(_) => word,
            Err(other) => {
                // SAFETY: No other thread has seen this array.
                unsafe { word.free() };
                Word::from_raw(other)
            }
        }
    }

    /// Gives the table its first buckets, if it has none, so the first insertion does not have to:
    /// that would write a line that lookups read. `1 << bits` buckets take 64 bytes each; the
    /// chance that two entries share a line is one in `1 << bits`.
    pub fn prepare(&self, bits: u32) {
        if self.word().is_null() {
            self.first_word(bits.min(BITS_MAX));
        }
    }

    /// Returns whether the table has the number of buckets that contention gives it, for that
    /// reason or for the number of its entries.
    #[inline]
    pub fn is_spread(&self) -> bool {
        let word = self.word();
        !word.is_null() && word.bits() >= contended_bits()
    }

    /// Returns the number of entries. Walks all buckets. Exact if no entry is inserted or removed
    /// concurrently; an entry present throughout is counted once in any case.
    pub fn len(&self) -> usize {
        let guard = crate::rcu::pin();
        let mut entries = 0;
        self.all_buckets(&guard, |line, link| {
            entries += line.entries(link).count();
            true
        });
        entries
    }

    /// Returns whether there are no entries. Stops at the first one. A caller that relies on the
    /// answer holds [`LockReq::All`] and calls [`LockSet::is_empty`].
    pub fn is_empty(&self) -> bool {
        let guard = crate::rcu::pin();
        let mut empty = true;
        self.all_buckets(&guard, |line, link| {
            empty = line.is_empty(link);
            empty
        });
        empty
    }

    /// Returns the memory of buckets and nodes in bytes, without this word and without the entries.
    /// Walks all buckets.
    pub fn bytes(&self) -> usize {
        let guard = crate::rcu::pin();
        let mut bytes = self.word().bytes();
        self.all_buckets(&guard, |line, link| {
            bytes += line.chain_bytes(link);
            true
        });
        bytes
    }
}

impl<T: Hashed, C: LockClass> Default for RcuTable<T, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Hashed, C: LockClass> fmt::Debug for RcuTable<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuTable").field("buckets", &self.word().len()).finish_non_exhaustive()
    }
}

impl<T: Hashed, C: LockClass> Drop for RcuTable<T, C> {
    fn drop(&mut self) {
        let word = self.word();
        if word.is_null() {
            return;
        }
        // A resize may have been left unfinished: then the new array is ours as well. Chains of
        // moved buckets have been retired already.
        // SAFETY: We have the table to ourselves, so no other thread is in these buckets or will
        // be.
        unsafe {
            let next = word.moved_to();
            word.free();
            if let Some(next) = next {
                next.free();
            }
        }
    }
}

/// A locked bucket, as used by [`Bucket`] and [`LockSet`]. Its owner holds the lock of the line,
/// and the line isn't moved.
struct BucketRef<'a, T: Hashed, C: LockClass> {
    word: Word<T, C>,
    line: &'a Line<T, C>,
    hint: Hint,
}

impl<'a, T: Hashed, C: LockClass> BucketRef<'a, T, C> {
    #[inline]
    fn find(&self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&'a T> {
        // SAFETY: An entry lives until a grace period after its removal, and both the lock and the
        // guard of 'a protect it.
        self.line.find_locked(hash, eq).map(|entry| unsafe { &*entry.as_ptr() })
    }

    /// Inserts an entry.
    ///
    /// # Safety
    ///
    /// The promises of [`Bucket::insert`] hold.
    unsafe fn insert(&mut self, entry: NonNull<T>) {
        // SAFETY: The caller promises that the entry is valid.
        let hash = unsafe { entry.as_ref() }.table_hash();
        debug_assert!(hash <= HASH_MAX, "a hash of more than 63 bits");
        debug_assert!(self.covers(hash), "an entry was inserted into another's bucket");
        let hint = self.line.insert(entry, hash);
        if hint != Hint::None {
            self.hint = hint;
        }
    }

    fn remove(&mut self, entry: &T, guard: &Guard) -> bool {
        debug_assert!(self.covers(entry.table_hash()), "an entry is sought in another's bucket");
        let removed = self.line.remove(NonNull::from(entry), guard);
        let may_shrink = self.word.bits() > CONTENDED_BITS_MIN;
        if removed && may_shrink && self.hint == Hint::None && self.line.is_vacant() {
            self.hint = Hint::Emptied;
        }
        removed
    }

    fn free_hash(&self, hash: u64) -> u64 {
        let low = (1u64 << FREE_BITS) - 1;
        let taken =
            |candidate: u64| self.find(hash, |entry| entry.table_hash() == candidate).is_some();
        let mut candidate = hash & !0xf;
        for _ in 0..=low {
            if !taken(candidate) {
                break;
            }
            candidate = (hash & !low) | (candidate.wrapping_add(1) & low);
        }
        candidate
    }

    /// Returns whether entries of this hash belong to this bucket.
    fn covers(&self, hash: u64) -> bool {
        self.word.is_line_of(hash, self.line)
    }
}

/// A locked bucket of an [`RcuTable`]. Dropping it releases the lock and may then resize the table.
///
/// Neither `Send` nor `Sync`, as every guard.
#[must_use = "the bucket is released when this is dropped"]
pub struct Bucket<'a, T: Hashed, C: LockClass> {
    table: &'a RcuTable<T, C>,
    bucket: BucketRef<'a, T, C>,
    guard: &'a Guard,
    hash: u64,
    held: ManuallyDrop<MutexGuard<'a, (), C>>,
}

impl<'a, T: Hashed, C: LockClass> Bucket<'a, T, C> {
    /// Returns an entry under `hash` that `eq` accepts; see [`RcuTable::find`]. The hash must
    /// belong to this bucket: the one it was locked for, or one that differs from it in the low
    /// bits only. Under any other, nothing is found.
    #[inline]
    pub fn find(&self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&'a T> {
        self.bucket.find(hash, eq)
    }

    /// Inserts the entry under its hash, which must belong to this bucket.
    ///
    /// # Safety
    ///
    /// * `entry` is valid for shared use until it has been removed from this table and a grace
    ///   period has passed since, even if the table is dropped before.
    /// * It is in no table yet that uses this `table_hash`, and its `table_hash` belongs to this
    ///   bucket, never changes while the entry is in the table, and never panics.
    #[inline]
    pub unsafe fn insert(&mut self, entry: NonNull<T>) {
        // SAFETY: The caller makes the promises of this function.
        unsafe { self.bucket.insert(entry) }
    }

    /// Removes the entry, which is identified by its address. Returns false if it isn't in this
    /// bucket.
    #[inline]
    pub fn remove(&mut self, entry: &T) -> bool {
        self.bucket.remove(entry, self.guard)
    }

    /// Returns a hash for a new entry, derived from `hash`, that no entry of this bucket has: the
    /// low four bits are the smallest free ones, or, if all sixteen are taken, the following values
    /// within the low 20 bits are tried. Lookups find the entry under any of these. (If all of the
    /// million are taken, the result is not unique.)
    pub fn free_hash(&self, hash: u64) -> u64 {
        self.bucket.free_hash(hash)
    }
}

impl<T: Hashed, C: LockClass> fmt::Debug for Bucket<'_, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").finish_non_exhaustive()
    }
}

impl<T: Hashed, C: LockClass> Drop for Bucket<'_, T, C> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Dropped only here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.held) };
        if self.bucket.hint != Hint::None {
            self.table.follow(self.bucket.hint, self.bucket.word, self.hash, self.guard);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
