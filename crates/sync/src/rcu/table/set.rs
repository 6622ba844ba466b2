//! Several buckets, of one table or more, locked together.

use super::line::{Hint, Line, Link};
use super::{BucketRef, Hashed, RcuTable};
use crate::atomic::{Ordering, fence};
use crate::lock::{LockClass, MutexGuard};
use crate::rcu::Guard;
use smallvec::SmallVec;
use std::fmt;
use std::ptr::{self, NonNull};

/// A request for locks of a [`LockSet`].
pub enum LockReq<'a, T: Hashed, C: LockClass> {
    /// The bucket of a hash.
    One(&'a RcuTable<T, C>, u64),
    /// All buckets of a table: other threads can neither insert nor remove.
    All(&'a RcuTable<T, C>),
}

impl<T: Hashed, C: LockClass> Clone for LockReq<'_, T, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Hashed, C: LockClass> Copy for LockReq<'_, T, C> {}

impl<T: Hashed, C: LockClass> fmt::Debug for LockReq<'_, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(table, hash) => f.debug_tuple("One").field(table).field(hash).finish(),
            Self::All(table) => f.debug_tuple("All").field(table).finish(),
        }
    }
}

/// The locks of a set; three are enough for a rename that replaces a directory without children.
type BucketLocks<'a, C> = SmallVec<[MutexGuard<'a, (), C>; 4]>;
type Lines<'a, T, C> = SmallVec<[&'a Line<T, C>; 4]>;

/// Buckets that are locked together, identified by the index of their request. Dropping it releases
/// all of them and may then resize the tables.
///
/// Neither `Send` nor `Sync`, like every guard.
#[must_use = "the buckets are released when this is dropped"]
pub struct LockSet<'a, T: Hashed, C: LockClass, const N: usize> {
    reqs: [LockReq<'a, T, C>; N],
    /// For `One` its bucket; for `All` the first one, with the word of all.
    buckets: [BucketRef<'a, T, C>; N],
    /// The hash whose bucket a hint refers to.
    hints: [u64; N],
    held: BucketLocks<'a, C>,
    /// The buckets with an announced change; their locks are in `held`.
    announced: Option<[&'a Line<T, C>; 2]>,
    guard: &'a Guard,
}

impl<T: Hashed, C: LockClass> RcuTable<T, C> {
    /// Locks all requested buckets, each once, in the order of their addresses. Waits for other
    /// holders; the caller holds no bucket of this class.
    ///
    /// If a table was resized before all locks were taken, all are released and it starts again.
    pub fn lock_set<'a, const N: usize>(
        reqs: [LockReq<'a, T, C>; N],
        guard: &'a Guard,
    ) -> LockSet<'a, T, C, N> {
        loop {
            let mut buckets = reqs.map(|req| req.locate(guard));
            let mut hints = [0; N];
            let held = if let Some((lines, count)) = two_lines(&reqs, &buckets) {
                lock_lines(&lines[..count], &reqs, &mut buckets, &mut hints)
            } else {
                lock_lines(&all_lines(&reqs, &buckets, guard), &reqs, &mut buckets, &mut hints)
            };
            if let Some(held) = held {
                return LockSet { reqs, buckets, hints, held, announced: None, guard };
            }
        }
    }
}

/// Returns the buckets of two requests of one each, in the order of their addresses, and how many
/// they are: one if both are the same. A rename of a file needs no list that could be longer.
#[inline]
fn two_lines<'a, T: Hashed, C: LockClass, const N: usize>(
    reqs: &[LockReq<'a, T, C>; N],
    buckets: &[BucketRef<'a, T, C>; N],
) -> Option<([&'a Line<T, C>; 2], usize)> {
    let [LockReq::One(..), LockReq::One(..)] = reqs.as_slice() else { return None };
    let [first, second] = buckets.as_slice() else { return None };
    let (first, second) = (first.line, second.line);
    let lines = if first.order() <= second.order() { [first, second] } else { [second, first] };
    Some((lines, if ptr::eq(first, second) { 1 } else { 2 }))
}

/// Returns all buckets of the requests, each once, in the order of their addresses.
fn all_lines<'a, T: Hashed, C: LockClass, const N: usize>(
    reqs: &[LockReq<'a, T, C>; N],
    buckets: &[BucketRef<'a, T, C>; N],
    guard: &'a Guard,
) -> Lines<'a, T, C> {
    let most = reqs.iter().zip(buckets).map(|(req, bucket)| match req {
        LockReq::One(..) => 1,
        LockReq::All(_) => bucket.word.len(),
    });
    let mut lines = Lines::with_capacity(most.sum());
    for (req, bucket) in reqs.iter().zip(buckets) {
        match req {
            LockReq::One(..) => lines.push(bucket.line),
            LockReq::All(_) => lines.extend(bucket.lines(guard)),
        }
    }
    lines.sort_unstable_by_key(|line| line.order());
    lines.dedup_by(|a, b| ptr::eq(*a, *b));
    lines
}

/// Locks buckets in this order. Returns `None`, and releases them, if one has been moved; if none
/// has, none can be until they are released. A table that was settled when its buckets were looked
/// up then still has these, and no others.
#[inline]
fn lock_lines<'a, T: Hashed, C: LockClass, const N: usize>(
    lines: &[&'a Line<T, C>],
    reqs: &[LockReq<'a, T, C>; N],
    buckets: &mut [BucketRef<'a, T, C>; N],
    hints: &mut [u64; N],
) -> Option<BucketLocks<'a, C>> {
    let mut held = BucketLocks::with_capacity(lines.len());
    for line in lines {
        let lock = line.lock.try_lock().unwrap_or_else(|| {
            note_contention(line, reqs, buckets, hints);
            if held.is_empty() { line.lock.lock() } else { line.lock.lock_nested() }
        });
        held.push(lock);
    }
    lines.iter().all(|line| matches!(line.link(), Link::Chain(_))).then_some(held)
}

/// Notes that another thread held the lock of a bucket, in the requests for this bucket alone: a
/// request for all buckets gains nothing from more of them.
#[cold]
fn note_contention<'a, T: Hashed, C: LockClass, const N: usize>(
    line: &Line<T, C>,
    reqs: &[LockReq<'a, T, C>; N],
    buckets: &mut [BucketRef<'a, T, C>; N],
    hints: &mut [u64; N],
) {
    for ((req, bucket), hint) in reqs.iter().zip(buckets).zip(hints) {
        if let LockReq::One(_, hash) = req
            && ptr::eq(bucket.line, line)
        {
            bucket.hint = Hint::Contended;
            *hint = *hash;
        }
    }
}

impl<'a, T: Hashed, C: LockClass> LockReq<'a, T, C> {
    fn table(&self) -> &'a RcuTable<T, C> {
        match self {
            Self::One(table, _) | Self::All(table) => table,
        }
    }

    /// Returns the bucket to lock, which may be moved before it is locked.
    fn locate(&self, guard: &'a Guard) -> BucketRef<'a, T, C> {
        let (table, hash) = match *self {
            Self::One(table, hash) => (table, hash),
            Self::All(table) => (table, 0),
        };
        let whole = matches!(self, Self::All(_));
        let mut word = if whole { table.settled(guard) } else { table.word() };
        loop {
            let Some(line) = word.line_of(hash, guard) else {
                word = table.first_word(0);
                continue;
            };
            match line.link() {
                Link::Moved(next) if !whole => {
                    table.help_sometimes(word, next, hash, guard);
                    word = next;
                }
                _ => return BucketRef { word, line, hint: Hint::None },
            }
        }
    }
}

impl<'a, T: Hashed, C: LockClass> BucketRef<'a, T, C> {
    /// Returns all buckets of this bucket's array.
    fn lines(&self, guard: &'a Guard) -> impl Iterator<Item = &'a Line<T, C>> {
        let word = self.word;
        (0..word.len()).filter_map(move |index| word.line(index, guard))
    }
}

impl<'a, T: Hashed, C: LockClass, const N: usize> LockSet<'a, T, C, N> {
    /// Returns the bucket of `hash` in request `i`.
    fn bucket(&self, i: usize, hash: u64) -> BucketRef<'a, T, C> {
        let BucketRef { word, line, hint } = self.buckets[i];
        let line = match self.reqs[i] {
            LockReq::One(..) => line,
            LockReq::All(_) => word.line_of(hash, self.guard).unwrap_or(line),
        };
        BucketRef { word, line, hint }
    }

    /// Looks up an entry like [`Bucket::find`](super::Bucket::find), in the bucket or table of
    /// request `i`.
    ///
    /// # Panics
    ///
    /// If there is no request `i`; this holds for all methods.
    #[inline]
    pub fn find(&self, i: usize, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&'a T> {
        self.bucket(i, hash).find(hash, eq)
    }

    /// Inserts an entry like [`Bucket::insert`](super::Bucket::insert).
    ///
    /// # Safety
    ///
    /// The promises of [`Bucket::insert`](super::Bucket::insert) hold.
    #[inline]
    pub unsafe fn insert(&mut self, i: usize, entry: NonNull<T>) {
        // SAFETY: The caller promises that the entry is valid.
        let hash = unsafe { entry.as_ref() }.table_hash();
        let mut bucket = self.bucket(i, hash);
        // SAFETY: The caller makes the promises of this function.
        unsafe { bucket.insert(entry) };
        self.note(i, hash, bucket.hint);
    }

    /// Removes an entry like [`Bucket::remove`](super::Bucket::remove).
    #[inline]
    pub fn remove(&mut self, i: usize, entry: &T) -> bool {
        let hash = entry.table_hash();
        let mut bucket = self.bucket(i, hash);
        let removed = bucket.remove(entry, self.guard);
        self.note(i, hash, bucket.hint);
        removed
    }

    /// Returns a free hash like [`Bucket::free_hash`](super::Bucket::free_hash).
    pub fn free_hash(&self, i: usize, hash: u64) -> u64 {
        self.bucket(i, hash).free_hash(hash)
    }

    /// Returns whether the bucket of request `i`, or for [`LockReq::All`] the table, has no
    /// entries.
    pub fn is_empty(&self, i: usize) -> bool {
        let bucket = &self.buckets[i];
        let vacant = |line: &Line<T, C>| line.is_empty(line.link());
        match self.reqs[i] {
            LockReq::One(..) => vacant(bucket.line),
            LockReq::All(_) => bucket.lines(self.guard).all(vacant),
        }
    }

    /// Announces a change of several steps in the buckets of two requests ([`LockReq::One`]): until
    /// [`settle`](Self::settle) or the end of the set, lookups that find nothing there repeat.
    /// Settles an earlier announcement.
    pub fn announce(&mut self, requests: [usize; 2]) {
        self.settle();
        let [first, second] = requests.map(|i| self.buckets[i].line);
        first.begin_change();
        if !ptr::eq(first, second) {
            second.begin_change();
        }
        // The stores of the versions come before all that the change does to entries.
        fence(Ordering::SeqCst);
        self.announced = Some([first, second]);
    }

    /// Ends the announced change, if there is one.
    pub fn settle(&mut self) {
        if let Some([first, second]) = self.announced.take() {
            first.end_change();
            if !ptr::eq(first, second) {
                second.end_change();
            }
        }
    }

    fn note(&mut self, i: usize, hash: u64, hint: Hint) {
        if hint != Hint::None {
            self.buckets[i].hint = hint;
            self.hints[i] = hash;
        }
    }
}

impl<T: Hashed, C: LockClass, const N: usize> fmt::Debug for LockSet<'_, T, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockSet").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl<T: Hashed, C: LockClass, const N: usize> Drop for LockSet<'_, T, C, N> {
    #[inline]
    fn drop(&mut self) {
        self.settle();
        self.held.clear();
        for (i, bucket) in self.buckets.iter().enumerate() {
            if bucket.hint != Hint::None {
                self.reqs[i].table().follow(bucket.hint, bucket.word, self.hints[i], self.guard);
            }
        }
    }
}
