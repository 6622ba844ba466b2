//! Walks in the order of hashes.

use super::line::{Line, Link, Word};
use super::{HASH_BITS, HASH_MAX, Hashed, RcuTable};
use crate::lock::LockClass;
use crate::rcu::Guard;
use smallvec::SmallVec;
use std::ops::{ControlFlow, RangeInclusive};

impl<T: Hashed, C: LockClass> RcuTable<T, C> {
    /// Calls `f` with the entries whose hash is at least `from`, in ascending order of their
    /// hashes, until it breaks.
    ///
    /// An entry that is in the table throughout is visited exactly once, even when the table is
    /// resized meanwhile: the walk goes from bucket to bucket by the hashes at their borders, which
    /// mean the same in every size. An entry that is inserted or removed meanwhile may be visited or
    /// not. Takes no lock and writes nothing. `f` may lock buckets of this table.
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
            batch.iter().all(|(_, entry)| f(entry).is_continue())
        });
    }

    /// Calls `f` with each bucket from that of hash `from` on, in order, with its link (read before
    /// anything else of it, and not moved) and with the hashes for which it is to be considered, until
    /// `f` returns false.
    pub(super) fn each_bucket<'g>(
        &self,
        from: u64,
        guard: &'g Guard,
        mut f: impl FnMut(&'g Line<T, C>, Link<T, C>, RangeInclusive<u64>) -> bool,
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
            next = after(word, hash);
            if !f(line, chain, hash..=next.map_or(HASH_MAX, |border| border - 1)) {
                return;
            }
        }
    }
}

/// The first hash of the bucket after that of `hash`.
fn after<T: Hashed, C: LockClass>(word: Word<T, C>, hash: u64) -> Option<u64> {
    let index = word.index_of(hash) + 1;
    (index < word.len()).then(|| (index as u64) << (HASH_BITS - word.bits()))
}
