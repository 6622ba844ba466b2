//! Resizing: moving the buckets of a table to another array while it is in use.
//!
//! # Bounded work
//!
//! A small array is moved by the thread that resizes it, at once. Of a larger one each call moves a
//! few groups of buckets: the call that begins, then each call that locks a bucket and finds it
//! moved, and each that would resize the table for another reason. [`Progress`] distributes the
//! groups among these calls, and the one that moves the last group replaces the table's word. So no
//! call takes time in proportion to the table, and with four groups for each call the resize of `n`
//! buckets ends within a few times `n` changes, before the table is due to grow again. Until then a
//! lookup reads a line of the old array more if its bucket is moved. A caller that locks all
//! buckets ([`LockReq::All`](super::LockReq::All)) finishes the resize first.

use super::line::{
    BITS_MAX, CONTENDED_BITS_MIN, FREE_BITS, Hint, Line, Link, Node, Progress, Word,
    contended_bits, free_nodes,
};
use super::{Hashed, RcuTable};
use crate::atomic::Ordering;
use crate::lock::wait::Spin;
use crate::lock::{LockClass, Mutex, MutexGuard};
use crate::percpu::spread;
use crate::rcu::Guard;
use smallvec::SmallVec;
use std::ptr::NonNull;

/// Number of buckets that are counted to estimate how full the table is.
const SAMPLE: usize = 32;
/// Maximum number of entries that the estimate counts in one bucket: many entries of one hash,
/// which no growth could separate, must not make the table grow for ever.
const SAMPLE_CAP: usize = 16;
/// Average number of entries per bucket from which the table grows.
const LOAD_MAX: usize = 5;
/// Average number of entries per bucket from which a small table grows a little when a bucket
/// overflows: with so few buckets a full one is common, and each use of a name in it would pay.
const LOAD_SMALL: usize = 2;
/// Average number of buckets that a locker checks to finish a resize of a small array.
const HELP_LINES: usize = 64;
/// Number of groups that a call moves of a larger one. Models move one, so it takes several calls.
pub(super) const STEP: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4 };
/// Maximum number of groups that a call looks at to find some that are not moved yet.
const STEP_LOOKS: usize = 16 * STEP;
/// Binary logarithm of the number of buckets below which a table grows by four; larger ones grow by
/// two.
const SMALL_BITS: u32 = 6;
/// Number of buckets (64 KiB) from which a freed array is handed over immediately.
const LARGE: usize = 1 << 10;
/// Number of buckets (4 MiB) from which no call frees an array: it takes the system milliseconds to
/// take back its pages.
const HUGE: usize = 1 << 16;
/// Binary logarithm of the factor by which a table shrinks in one step.
const SHRINK_BITS: u32 = 2;

#[cfg(all(test, not(any(loom, shuttle))))]
thread_local! {
    /// Number of groups that this thread has moved.
    pub(super) static MOVED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Whether to wait for the lock of a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocking {
    /// The caller may hold locks that come later in the order.
    Try,
    /// The caller holds no bucket, and needs the table in one array.
    Wait,
}

/// The binary logarithm of a number of buckets, and the reason for it.
#[derive(Clone, Copy)]
enum Size {
    /// The number of entries.
    Needed(u32),
    /// Contention of several CPUs.
    Contended(u32),
}

impl Size {
    fn bits(self) -> u32 {
        let (Size::Needed(bits) | Size::Contended(bits)) = self;
        bits
    }
}

/// The outcome of moving a group of buckets that belong together.
enum Step<T, C: LockClass> {
    /// They are moved, by this call or before, to this array.
    Moved(Word<T, C>),
    /// A lock was not free.
    Busy,
}

impl<T: Hashed, C: LockClass> RcuTable<T, C> {
    /// Grows the table for `entries` entries, so inserting them does not have to. Never shrinks.
    /// Does nothing if there is no memory. Waits for the locks of all buckets, one at a time; the
    /// caller holds no bucket.
    pub fn reserve(&self, entries: usize, guard: &Guard) {
        let bits = entries.div_ceil(LOAD_MAX / 2).next_power_of_two().ilog2().min(BITS_MAX);
        loop {
            let word = self.settled(guard);
            if word.bits() >= bits || !self.resize(word, Size::Needed(bits), Blocking::Wait, guard)
            {
                return;
            }
        }
    }

    /// Shrinks the table to the needs of its entries. Waits like [`reserve`](Self::reserve); the
    /// caller holds no bucket.
    pub fn shrink_to_fit(&self, guard: &Guard) {
        let wanted = self.len().div_ceil(LOAD_MAX / 2).next_power_of_two().ilog2();
        loop {
            let word = self.settled(guard);
            let bits = wanted.max(word.bits().saturating_sub(SHRINK_BITS));
            if word.bits() <= bits || !self.resize(word, Size::Needed(bits), Blocking::Wait, guard)
            {
                return;
            }
        }
    }

    /// Returns the buckets of the table, after any resize under way has been finished. Not null.
    /// Waits for the locks of buckets.
    pub(super) fn settled(&self, guard: &Guard) -> Word<T, C> {
        loop {
            let word = self.word();
            let Some(first) = word.line(0, guard) else {
                self.first_word(0);
                continue;
            };
            match first.link() {
                Link::Chain(_) => return word,
                Link::Moved(next) => {
                    self.migrate(word, next, 0, Blocking::Wait, guard);
                }
            }
        }
    }

    /// Resizes the table if a hint suggests it, after the bucket has been released. Never waits.
    #[cold]
    pub(super) fn follow(&self, hint: Hint, word: Word<T, C>, hash: u64, guard: &Guard) {
        if self.word() != word {
            // A resize is under way, or was.
            return;
        }
        if let Some(Link::Moved(next)) = word.line(0, guard).map(Line::link) {
            // One is under way, and has not come to this bucket yet.
            self.migrate(word, next, word.index_of(hash), Blocking::Try, guard);
            return;
        }
        let bits = word.bits();
        let wanted = match hint {
            Hint::None => Size::Needed(bits),
            Hint::Contended => {
                Size::Contended((bits + SHRINK_BITS).min(contended_bits()).max(bits))
            }
            Hint::Overflow => {
                let (sum, lines) = sample(word, word.index_of(hash), guard);
                let is_small = bits < SMALL_BITS;
                let step = match sum / lines {
                    LOAD_MAX.. if is_small => 2,
                    LOAD_MAX.. => 1,
                    LOAD_SMALL.. if is_small => 1,
                    _ => 0,
                };
                Size::Needed((bits + step).min(BITS_MAX))
            }
            Hint::Emptied => {
                let (floor, spreads) = self.floor(word);
                let less = (bits - SHRINK_BITS.min(bits)).max(floor);
                let is_sparse = || {
                    let (sum, lines) = sample(word, word.index_of(hash), guard);
                    2 * sum <= lines
                };
                match less < bits && is_sparse() {
                    true if spreads && less == floor => Size::Contended(less),
                    true => Size::Needed(less),
                    false => Size::Needed(bits),
                }
            }
        };
        if wanted.bits() != bits {
            self.resize(word, wanted, Blocking::Try, guard);
        }
    }

    /// Returns the size below which a table does not shrink by itself, and whether that is because
    /// several CPUs may use it, which needs a reservation. If none can be had, it shrinks further.
    fn floor(&self, word: Word<T, C>) -> (u32, bool) {
        let spread = contended_bits();
        if word.is_reserved() || spread::has_room(size_of::<Line<T, C>>() << spread) {
            (spread, true)
        } else {
            (CONTENDED_BITS_MIN, false)
        }
    }

    /// Moves the table from `old` to an array of another size, unless another thread moves it
    /// elsewhere. Returns false if it could not even start.
    fn resize(&self, old: Word<T, C>, size: Size, blocking: Blocking, guard: &Guard) -> bool {
        let allocated = match size {
            Size::Needed(bits) => Word::allocate(bits),
            Size::Contended(bits) => Word::allocate_reserved(bits),
        };
        let Some(fresh) = allocated else {
            // Slow is better than dead: the table works at any size.
            return false;
        };
        let Step::Moved(next) = self.move_group(old, fresh, 0, blocking, guard) else {
            // SAFETY: No other thread has seen the array.
            unsafe { fresh.free() };
            return false;
        };
        if next != fresh {
            // SAFETY: No other thread has seen the array.
            unsafe { fresh.free() };
        }
        self.migrate(old, next, 0, blocking, guard);
        true
    }

    /// Helps sometimes with a resize that a locker meets, so it is finished even if its starter had
    /// to leave buckets behind.
    #[cold]
    pub(super) fn help_sometimes(
        &self,
        old: Word<T, C>,
        next: Word<T, C>,
        hash: u64,
        guard: &Guard,
    ) {
        // The larger the table, the fewer threads help: the number of buckets that are checked in
        // vain is constant on average for each call.
        let seldom = match old.progress(guard) {
            Some(_) => 0,
            None => (old.len() / HELP_LINES).max(1) as u64 - 1,
        };
        if (hash >> FREE_BITS) & seldom == 0 && self.word() == old {
            // Each helper starts elsewhere, so they share the work. None waits: the holder of some
            // other bucket must not keep this caller from its own.
            self.migrate(old, next, old.index_of(hash), Blocking::Try, guard);
        }
    }

    /// Moves buckets of `old` to `next`: all, beginning near bucket `start`, if the array is
    /// small or the caller waits, otherwise a few. The last thread to finish replaces the
    /// table's word. Bucket 0 has been moved to `next` before.
    fn migrate(
        &self,
        old: Word<T, C>,
        next: Word<T, C>,
        start: usize,
        blocking: Blocking,
        guard: &Guard,
    ) {
        if let (Some(progress), Blocking::Try) = (old.progress(guard), blocking) {
            self.migrate_some(old, next, progress, guard);
            return;
        }
        let groups = old.len().min(next.len());
        let first = start / (old.len() / groups);
        let busy = |group: &usize| {
            let step = self.move_group(old, next, *group, blocking, guard);
            matches!(step, Step::Busy)
        };
        let left: Vec<usize> = (first..groups).chain(0..first).filter(busy).collect();
        // The holders may have released these in between.
        if !left.iter().any(busy) {
            self.finish(old, next, guard);
        }
    }

    /// Moves a few buckets of `old` to `next`. Groups that are locked elsewhere are left to later
    /// calls, which come round to them again.
    fn migrate_some(&self, old: Word<T, C>, next: Word<T, C>, progress: &Progress, guard: &Guard) {
        let groups = old.len().min(next.len());
        let before = progress.moved.load(Ordering::Relaxed);
        for _ in 0..STEP_LOOKS / STEP {
            let first = progress.begun.fetch_add(STEP, Ordering::Relaxed);
            for group in first..first.wrapping_add(STEP) {
                self.move_group(old, next, group & (groups - 1), Blocking::Try, guard);
            }
            // Acquire: all groups are moved before the word is replaced.
            let moved = progress.moved.load(Ordering::Acquire);
            if moved == groups {
                return self.finish(old, next, guard);
            }
            // This thread has moved some, or others are at work.
            if moved != before {
                return;
            }
        }
    }

    /// Replaces the table's word, when all buckets of `old` have been moved to `next`.
    fn finish(&self, old: Word<T, C>, next: Word<T, C>, guard: &Guard) {
        // Release: a thread that reads the word sees the buckets. Only one thread can win, since a
        // word isn't reused while its array is in use.
        let replaced = self.word.compare_exchange(
            old.into_raw(),
            next.into_raw(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if replaced.is_ok() {
            #[cfg(all(shuttle, not(loom)))]
            crate::model::count_resize();
            let left = Left(old);
            if old.len() >= HUGE {
                guard.defer_long(Box::new(move || left.free()));
                return;
            }
            guard.defer(move || left.free());
            if old.len() >= LARGE {
                guard.hand_over();
            }
        }
    }

    /// Moves one group: a bucket that is split, or the neighbours that are joined.
    fn move_group(
        &self,
        old: Word<T, C>,
        next: Word<T, C>,
        group: usize,
        blocking: Blocking,
        guard: &Guard,
    ) -> Step<T, C> {
        let width = old.len() / old.len().min(next.len());
        let lines: SmallVec<[&Line<T, C>; 4]> = (group * width..(group + 1) * width)
            .filter_map(|index| old.line(index, guard))
            .collect();
        // All buckets of a group are moved together, so the first is enough.
        if let Some(Link::Moved(to)) = lines.first().map(|line| line.link()) {
            return Step::Moved(to);
        }
        let mut held: SmallVec<[MutexGuard<'_, (), C>; 4]> = SmallVec::new();
        for line in &lines {
            let lock = match (blocking, held.is_empty()) {
                (Blocking::Try, _) => try_briefly(&line.lock),
                (Blocking::Wait, true) => Some(line.lock.lock()),
                // Ascending addresses.
                (Blocking::Wait, false) => Some(line.lock.lock_nested()),
            };
            let Some(lock) = lock else { return Step::Busy };
            held.push(lock);
        }
        if let Some(Link::Moved(to)) = lines.first().map(|line| line.link()) {
            return Step::Moved(to);
        }
        // Callers have read `old` from the table, whose word doesn't change until all of its
        // buckets are moved.
        debug_assert!(self.word() == old, "a resize of an array that isn't the table's");
        copy(&lines, next, guard);
        let mut cut: Vec<NonNull<Node<T>>> = Vec::new();
        lines.iter().for_each(|line| line.set_moved(next, &mut cut));
        drop(held);
        #[cfg(all(test, not(any(loom, shuttle))))]
        MOVED.set(MOVED.get() + 1);
        if let Some(progress) = old.progress(guard) {
            // Release: pairs with the load of the thread that finishes.
            progress.moved.fetch_add(1, Ordering::AcqRel);
        }
        if !cut.is_empty() {
            // SAFETY: The nodes have been cut off from their buckets.
            unsafe { guard.defer_unchecked(move || free_nodes(cut)) };
        }
        Step::Moved(next)
    }
}

/// An array that a table has left behind: its word is no longer reachable, neither in the table nor
/// in a moved bucket.
struct Left<T, C: LockClass>(Word<T, C>);

// SAFETY: It owns the array, which has no entries and no chains.
unsafe impl<T, C: LockClass> Send for Left<T, C> {}

impl<T: 'static, C: LockClass> Left<T, C> {
    /// Frees the array, a grace period after this was made.
    fn free(self) {
        // SAFETY: All readers that could see the word have left.
        unsafe { self.0.free_moved() };
    }
}

/// Tries a lock for about a microsecond, without blocking: long enough for its holder to leave. A
/// single look at a contended lock would hardly ever find it free.
fn try_briefly<C: LockClass>(lock: &Mutex<(), C>) -> Option<MutexGuard<'_, (), C>> {
    let mut spin = Spin::new();
    loop {
        let held = lock.try_lock();
        if held.is_some() || !spin.spin() {
            return held;
        }
    }
}

/// Copies the entries of locked buckets to the buckets of `next` that they belong to. No other
/// thread is in those: they are reachable only through the buckets that are being moved.
fn copy<T: Hashed, C: LockClass>(lines: &[&Line<T, C>], next: Word<T, C>, guard: &Guard) {
    for line in lines {
        for entry in line.entries(line.link()) {
            // SAFETY: The entry is in the table, where the lock holds it.
            let hash = unsafe { entry.as_ref() }.table_hash();
            if let Some(target) = next.line_of(hash, guard) {
                target.insert(entry, hash);
            }
        }
    }
}

/// Counts the entries of some buckets, distributed evenly over the table. Returns their sum, and
/// the number of buckets counted.
fn sample<T: Hashed, C: LockClass>(
    word: Word<T, C>,
    start: usize,
    guard: &Guard,
) -> (usize, usize) {
    let lines = word.len().min(SAMPLE);
    let stride = word.len() / lines;
    let sum = (0..lines)
        .filter_map(|i| word.line((start + i * stride) % word.len(), guard))
        .map(|line| line.entries(line.link()).take(SAMPLE_CAP).count())
        .sum();
    (sum, lines)
}
