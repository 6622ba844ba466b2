//! Walks in the order of hashes.

use super::line::{Line, Link, Word};
use super::{HASH_BITS, HASH_MAX, Hashed, RcuTable};
use crate::lock::LockClass;
use crate::rcu::Guard;
use smallvec::SmallVec;
use std::ops::{ControlFlow, RangeInclusive};

/// How often a bucket is read without its lock before it is read under it.
const UNLOCKED_ATTEMPTS: u32 = 3;

/// How a walk goes on after it has looked at a bucket.
enum Next {
    Bucket,
    /// The bucket has changed meanwhile, or was moved.
    Again,
    Stop,
}

impl<T: Hashed, C: LockClass> RcuTable<T, C> {
    /// Calls `f` with the entries whose hash is at least `from`, in ascending order of their
    /// hashes, until it breaks.
    ///
    /// An entry that is in the table throughout is visited exactly once, even when the table is
    /// resized meanwhile: the walk goes from bucket to bucket by the hashes at their borders, which
    /// mean the same in every size. An entry that is inserted or removed meanwhile may be visited
    /// or not. Takes no lock and writes nothing. `f` may lock buckets of this table.
    pub fn scan<'g>(
        &self,
        from: u64,
        guard: &'g Guard,
        mut f: impl FnMut(&'g T) -> ControlFlow<()>,
    ) {
        let mut batch: SmallVec<[(u64, &'g T); 16]> = SmallVec::new();
        self.each_bucket(from, guard, |line, link, hashes| {
            batch.clear();
            // SAFETY: Entries outlive their removal by a grace period, and the guard holds that
            // up.
            let entries = line.entries(link).map(|entry| unsafe { &*entry.as_ptr() });
            let hashed = entries.map(|entry| (entry.table_hash(), entry));
            // An entry that is just moving away from this bucket may have its new hash already.
            batch.extend(hashed.filter(|(hash, _)| hashes.contains(hash)));
            batch.sort_unstable_by_key(|(hash, _)| *hash);
            let goes_on = batch.iter().all(|(_, entry)| f(entry).is_continue());
            if goes_on { Next::Bucket } else { Next::Stop }
        });
    }

    /// Calls `f` with all entries of one bucket after another, from that of hash `from` on, until
    /// it was called `enough` times. Returns the hash with which the next bucket begins, if there
    /// is one.
    ///
    /// For tables that don't change any more: entries of a bucket that was passed may be freed, and
    /// are not looked at by a later call that begins where this one ended. `from` is 0 or what such
    /// a call has returned. Takes no lock and writes nothing.
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
                // SAFETY: it is in the table, and so is kept by its owner.
                f(unsafe { entry.as_ref() });
                seen += 1;
            }
            next = (*hashes.end() < HASH_MAX).then(|| hashes.end() + 1);
            if seen < enough { Next::Bucket } else { Next::Stop }
        });
        next
    }

    /// Calls `f` with the hash of each entry from `from` on, in ascending order, and with what
    /// `read` reads of the entry, until `f` breaks. As [`scan`](Self::scan), but each bucket is
    /// read at one moment as far as insertions and announced changes
    /// ([`LockSet::announce`](super::LockSet::announce)) are concerned:
    ///
    /// * What `read` saw of an entry belonged to it while it was filed in this table under that
    ///   hash, if such parts change under an announcement only.
    /// * Of two entries that change places, or of which one replaces the other, under an
    ///   announcement, exactly one is visited in each place.
    ///
    /// `read` may be called for entries that `f` is not called with. Takes no lock, but that of a
    /// bucket which has changed under several attempts to read it, while `read` runs: the caller
    /// holds no bucket of this class, nor does `read` lock one. No lock is held while `f` runs.
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
                // SAFETY: As in `scan`.
                let entries = line.entries(link).map(|entry| unsafe { &*entry.as_ptr() });
                let hashed = entries.map(|entry| (entry.table_hash(), entry));
                let wanted = hashed.filter(|(hash, _)| hashes.contains(hash));
                batch.extend(wanted.map(|(hash, entry)| (hash, read(entry))));
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
            batch.sort_unstable_by_key(|(hash, _)| *hash);
            // One that was removed may have been read, and the next one of its hash, which was just
            // inserted.
            batch.dedup_by_key(|(hash, _)| *hash);
            let goes_on = batch.drain(..).all(|(hash, entry)| f(hash, entry).is_continue());
            if goes_on { Next::Bucket } else { Next::Stop }
        });
    }

    /// Calls `f` with each bucket from the first on, in order, with its link, until it returns
    /// false.
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

    /// Calls `f` with each bucket from that of hash `from` on, in order, with its link (read before
    /// anything else of it, and not moved) and with the hashes for which it is to be considered,
    /// until `f` says to stop.
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

/// The first hash of the bucket after that of `hash`.
fn after<T: Hashed, C: LockClass>(word: Word<T, C>, hash: u64) -> Option<u64> {
    let index = word.index_of(hash) + 1;
    (index < word.len()).then(|| (index as u64) << (HASH_BITS - word.bits()))
}
