//! Walks in the order of hashes.

use super::line::{HASH_BITS, HASH_MAX, Line, Link, Word};
use super::{Hashed, RcuTable};
use crate::lock::LockClass;
use crate::rcu::Guard;
use smallvec::SmallVec;
use std::ops::{ControlFlow, RangeInclusive};

/// Number of times that a bucket is read without its lock before it is read under it.
const UNLOCKED_ATTEMPTS: u32 = 3;

/// The next step of a walk after a bucket.
enum Next {
    Bucket,
    /// The bucket has changed during the read, or was moved.
    Again,
    Stop,
}

impl<T: Hashed, C: LockClass> RcuTable<T, C> {
    /// Visits the entries whose hash is at least `from`, in ascending order of their hashes, until
    /// `f` breaks.
    ///
    /// An entry that is in the table throughout is visited exactly once, even if the table is
    /// resized concurrently: the walk moves from bucket to bucket by the hashes at their borders,
    /// which have one meaning in every size. An entry that is inserted or removed during the walk
    /// may be visited or not. Takes no lock and writes nothing. `f` may lock buckets of this table.
    pub fn scan<'g>(
        &self,
        from: u64,
        guard: &'g Guard,
        mut f: impl FnMut(&'g T) -> ControlFlow<()>,
    ) {
        let mut batch: SmallVec<[(u64, &'g T); 16]> = SmallVec::new();
        self.each_bucket(from, guard, |line, link, hashes| {
            batch.clear();
            // SAFETY: Entries outlive their removal by a grace period, which the guard delays.
            let entries = line.entries(link).map(|entry| unsafe { &*entry.as_ptr() });
            let hashed = entries.map(|entry| (entry.table_hash(), entry));
            // An entry that is moving to another bucket may have its new hash already.
            batch.extend(hashed.filter(|(hash, _)| hashes.contains(hash)));
            batch.sort_unstable_by_key(|(hash, _)| *hash);
            let goes_on = batch.iter().all(|(_, entry)| f(entry).is_continue());
            if goes_on { Next::Bucket } else { Next::Stop }
        });
    }

    /// Visits all entries of one bucket after another, starting with the bucket of hash `from`,
    /// until `f` was called `enough` times. Returns the first hash of the next bucket, if there is
    /// one.
    ///
    /// For tables that don't change any more: entries of a bucket that was passed may be freed, and
    /// are not accessed by a later call that starts where this one ended. `from` is 0 or the result
    /// of such a call. Takes no lock and writes nothing.
    pub fn scan_buckets<'g>(
        &self,
        from: u64,
        enough: usize,
        guard: &'g Guard,
        mut f: impl FnMut(&'g T),
    ) -> Option<u64> {
        let (mut seen, mut next) = (0, None);
        self.each_bucket(from, guard, |line, link, hashes| {
            for entry in line.entries(link) {
                // SAFETY: the entry is in the table, so its owner keeps it alive.
                f(unsafe { entry.as_ref() });
                seen += 1;
            }
            next = (*hashes.end() < HASH_MAX).then(|| hashes.end() + 1);
            if seen < enough { Next::Bucket } else { Next::Stop }
        });
        next
    }

    /// Visits the entries from hash `from` on, in ascending order: `f` gets the hash, and the data
    /// that `read` reads of the entry, until it breaks. Unlike in [`scan`](Self::scan), each bucket
    /// is read at one moment with respect to insertions and announced changes
    /// ([`LockSet::announce`](super::LockSet::announce)):
    ///
    /// * All data that `read` reads of an entry belonged to it while it was in this table under
    ///   that hash, if such data change under an announcement only.
    /// * Of two entries that are exchanged, or of which one replaces the other, under an
    ///   announcement, exactly one is visited under each hash.
    ///
    /// `read` may be called for entries that `f` is not called with. Takes no lock, except, while
    /// `read` runs, the lock of a bucket that has changed under several attempts to read it: the
    /// caller holds no bucket of this class, nor does `read` lock one. No lock is held while `f`
    /// runs.
    pub fn scan_settled<'g, R>(
        &self,
        from: u64,
        guard: &'g Guard,
        mut read: impl FnMut(&'g T) -> R,
        mut f: impl FnMut(u64, R) -> ControlFlow<()>,
    ) {
        let mut batch: SmallVec<[(u64, R); 16]> = SmallVec::new();
        let mut attempts = 0;
        self.each_bucket(from, guard, |line, _, hashes| {
            let collect = |link| {
                batch.clear();
                if line.is_vacant() {
                    return;
                }
                // SAFETY: Entries outlive their removal by a grace period, which the guard delays.
                let entries = line.entries(link).map(|entry| unsafe { &*entry.as_ptr() });
                let hashed = entries.map(|entry| (entry.table_hash(), entry));
                let wanted = hashed.filter(|(hash, _)| hashes.contains(hash));
                // `for_each` visits the line and its nodes in two plain loops, unlike `extend`.
                wanted.for_each(|(hash, entry)| batch.push((hash, read(entry))));
            };
            attempts += 1;
            let is_settled = if attempts <= UNLOCKED_ATTEMPTS {
                line.read_settled(collect)
            } else {
                line.read_locked(collect)
            };
            if !is_settled {
                return Next::Again;
            }
            attempts = 0;
            if batch.is_empty() {
                return Next::Bucket;
            }
            if batch.len() > 1 {
                batch.sort_unstable_by_key(|(hash, _)| *hash);
                // The walk may have read an entry that was removed, and the next one of its hash,
                // which was just inserted.
                batch.dedup_by_key(|(hash, _)| *hash);
            }
            let goes_on = batch.drain(..).all(|(hash, entry)| f(hash, entry).is_continue());
            if goes_on { Next::Bucket } else { Next::Stop }
        });
    }

    /// Visits each bucket, in order, with its link, until `f` returns false.
    pub(super) fn all_buckets<'g>(
        &self,
        guard: &'g Guard,
        mut f: impl FnMut(&'g Line<T, C>, Link<T, C>) -> bool,
    ) {
        self.each_bucket(
            0,
            guard,
            |line, link, _| {
                if f(line, link) { Next::Bucket } else { Next::Stop }
            },
        );
    }

    /// Visits each bucket from the bucket of hash `from` on, in order, until `f` returns
    /// [`Next::Stop`]. `f` gets the bucket's link (read before anything else of it, and not moved)
    /// and the hashes for which the bucket is to be considered.
    fn each_bucket<'g>(
        &self,
        from: u64,
        guard: &'g Guard,
        mut f: impl FnMut(&'g Line<T, C>, Link<T, C>, RangeInclusive<u64>) -> Next,
    ) {
        let mut next = (from <= HASH_MAX).then_some(from);
        while let Some(hash) = next {
            let mut word = self.word();
            let (line, chain) = loop {
                let Some(line) = word.line_of(hash, guard) else { return };
                match line.link() {
                    Link::Moved(newer) => word = newer,
                    chain @ Link::Chain(_) => break (line, chain),
                }
            };
            let border = after(word, hash);
            match f(line, chain, hash..=border.map_or(HASH_MAX, |border| border - 1)) {
                Next::Bucket => next = border,
                Next::Again => {}
                Next::Stop => return,
            }
        }
    }
}

/// Returns the first hash of the bucket after the bucket of `hash`.
fn after<T: Hashed, C: LockClass>(word: Word<T, C>, hash: u64) -> Option<u64> {
    let index = word.index_of(hash) + 1;
    (index < word.len()).then(|| (index as u64) << (HASH_BITS - word.bits()))
}
