//! A reference count that carries its own lock, and is sharded over the CPUs when it gets hot.
//! Counterpart of `struct lockref` in Linux.
//!
//! # Purpose
//!
//! A dentry's `d_count` and `d_lock` in one word. In the common case a reference is taken and
//! dropped by one compare-and-exchange, without the lock (Long, lockref patches, 2013). That still
//! writes one line from every CPU, and a file that all CPUs open makes them wait for this line: a
//! case that those patches leave unsolved. So a count under contention may be *spread* (sharded)
//! over per-CPU parts, after Linux's `percpu_ref` (Kent Overstreet), and *collected* into one word
//! again when it has cooled down.
//!
//! # The word
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0 | locked |
//! | 1 | a thread sleeps for the lock |
//! | 2 | dead: no new reference by lookups |
//! | 3 | spread: references are counted in the parts |
//! | 4 | collecting: no longer spread, not yet summed |
//! | 5 | lockstat records the release of the lock |
//! | 6 | locked changes only: the count changes under the lock, always; or it is saturated |
//! | 8..14 | heat |
//! | 16..32 | CPU of the last change |
//! | 32..64 | count |
//!
//! # Invariants
//!
//! 1. While the lock is held only its holder changes the word, except that waiters set bit 1.
//!    Lock-free changes expect the locked bit clear in their exchange.
//! 2. The count changes from 1 to 0 only under the lock, by the holder's decision.
//! 3. Spread or collecting: the count in the word contains a bias of 2^31, which represents one
//!    reference, held by the spreading itself. References taken in a part may be dropped in the
//!    word and the reverse, so the word drifts from the bias, and parts become negative; neither
//!    approaches zero or the bias's double, for there are fewer than 2^30 references. So neither
//!    drops the last reference.
//! 4. Parts are accessed only inside an RCU guard, by a thread that saw bit 3 set inside that
//!    guard.
//! 5. The count never wraps. At 3 * 2^30, which only leaked references can reach, it is
//!    *saturated*, like `refcount_t` in Linux: the reference that does not fit sets bit 6, and from
//!    then on the count does not change any more, up or down. The object is never freed, and no
//!    user is harmed.
//!
//! The number of references is the word's count, less the bias if there is one, plus the parts.
//!
//! # Why the worst cases of the patch can't happen
//!
//! 1. "d_lock taken in dput with d_count = 2, and another thread decrements without the lock: 0
//!    with no deleting action." Only the holder of the lock changes the count (invariant 1); and a
//!    thread that drops without the lock exchanges a word with count 2 or more and no holder.
//! 2. "d_lock taken in dput with d_count = 1, and another thread increments without the lock: dead
//!    with a count of 1." Invariant 1 again: [`Put::Last`] is returned with the lock held and a
//!    count of 1, which does not change until the guard is dropped. A lookup waits, and then sees
//!    the object dead.
//!
//! # Why a collection counts exactly
//!
//! [`begin_collect`](Lockref::begin_collect) clears bit 3 immediately, not when the guard is
//! dropped, and the caller defers [`finish_collect`](Lockref::finish_collect) after that. By the
//! RCU guarantee a thread pinned later sees the bit clear and uses the word, in an exchange that
//! fails if the bit has been set again; a thread that still saw it set is pinned, and delays the
//! sum. So at the sum no thread changes the parts (invariant 4), each reference that was ever taken
//! is counted exactly once, and the sum is exact. The bias then is replaced by the one reference
//! that it represented, and that one is put like any other. Between the clearing of bit 3 and the
//! sum no thread can spread the count again, because bit 4 prevents it.
//!
//! A new spreading publishes the parts by the release of the unlock; a getter loads the word with
//! acquire, so it sees parts that belong to that spreading or a later one; a later one is
//! impossible while it is pinned.
//!
//! # Why the orderings suffice
//!
//! Dropping a reference is a release, locking an acquire, and all changes between are
//! read-modify-writes or stores of a lock holder. So all that was done through any reference
//! happens before the last put's guard. Parts: drops are releases and the sum acquires them. A
//! plain `get` needs no ordering, as the object lives as long as its caller's reference; a lookup's
//! get is an acquire, since the count may have changed from 0 to 1 and back before it.
//!
//! # Heat
//!
//! Each exchange writes its CPU next to the count. An exchange on another CPU than the last one
//! adds 4 to the heat, one on the last CPU subtracts 1. At 48 a put cools the word down and reports
//! [`Put::Contended`]: a word that bounces on every open and close is that hot after a dozen of
//! them, one whose users change every tenth operation never.

use std::marker::PhantomData;

use crossbeam_utils::CachePadded;

use crate::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering, const_unless_model};
use crate::cpu;
use crate::lock::held;
use crate::lock::park;
use crate::lock::stat::{self, Waiting};
use crate::lock::wait::Spin;
use crate::lock::{LockStat, LockStatRow};
use crate::rcu::Guard;

const LOCKED: u64 = 1;
const PARKED: u64 = 1 << 1;
const DEAD: u64 = 1 << 2;
const SPREAD: u64 = 1 << 3;
const COLLECTING: u64 = 1 << 4;
const TRACED: u64 = 1 << 5;
const LOCKED_ONLY: u64 = 1 << 6;

const HEAT_SHIFT: u32 = 8;
const HEAT_MAX: u64 = 63;
const HEAT_MASK: u64 = HEAT_MAX << HEAT_SHIFT;
const HEAT_GAIN: u64 = 4;
/// The heat from which a put reports contention.
const HEAT_REPORTED: u64 = 48;

const CPU_SHIFT: u32 = 16;
const CPU_MASK: u64 = 0xffff << CPU_SHIFT;

const COUNT_SHIFT: u32 = 32;
const ONE: u64 = 1 << COUNT_SHIFT;
/// The bias, added to the count while it is spread or collecting.
const BIAS: u64 = 1 << 31;
/// One more than the number of references there may be.
const COUNT_LIMIT: u64 = 1 << 30;
/// A count that only leaked references can reach, with or without bias: it is saturated.
const WORD_LIMIT: u64 = (BIAS + COUNT_LIMIT) << COUNT_SHIFT;

/// Number of exchanges that are tried before the lock is taken. The patch tried twice; a failed
/// exchange has brought the line into the cache, so a few more cost less than the lock.
#[cfg(not(any(loom, shuttle)))]
const TRIES: u32 = 8;
#[cfg(any(loom, shuttle))]
const TRIES: u32 = 2;

/// The lockstat counters of all lockrefs, which are one class.
pub(crate) static STAT: LockStat = LockStat::new("lockref", LockStatRow::NO_RANK);

/// A count and a lock in one word of eight bytes. `Send` and `Sync`.
///
/// Methods that may access parts take the object's [`SpreadPtr`] (all calls pass the same one) and
/// an RCU guard. A reference of the caller or that guard ensures that the object stays allocated
/// during every call.
pub struct Lockref {
    word: AtomicU64,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Lockref>() == 8 && size_of::<SpreadPtr>() == 8);

/// The outcome of dropping a reference.
#[must_use = "the last reference comes with a lock and a decision"]
pub enum Put<'a> {
    /// Dropped.
    Done,
    /// Dropped, and the word bounces between CPUs: the caller may [`spread`](Lockref::spread) it.
    Contended,
    /// Not dropped: it is the last one, and now locked. The caller decides, by
    /// [`dec`](LockrefGuard::dec) or [`mark_dead`](LockrefGuard::mark_dead) or both.
    Last(LockrefGuard<'a>),
}

impl Lockref {
    const_unless_model! {
        /// Creates an unlocked lockref of a live object, with `count` references (below 2^30).
        pub fn new(count: u32) -> Self {
            Self { word: AtomicU64::new((count as u64) << COUNT_SHIFT) }
        }
    }

    /// Creates a lockref like [`new`](Self::new), or with `true`, one whose count is changed under
    /// the lock only, as `d_count` was before the patch. Such a count never reports contention, and
    /// must not be spread.
    #[inline]
    pub fn with_locked_changes(count: u32, locked_only: bool) -> Self {
        let flag = if locked_only { LOCKED_ONLY } else { 0 };
        Self { word: AtomicU64::new(u64::from(count) << COUNT_SHIFT | flag) }
    }

    /// Takes one more reference; the caller has one already. May wait for the lock's holder.
    #[inline]
    pub fn get(&self, spread: &SpreadPtr, guard: &Guard) {
        let got = self.get_if(spread, guard, |_| true);
        debug_assert!(got);
    }

    /// Takes a reference if there is one already and the object is not dead. Returns `false`
    /// otherwise. May wait for the lock's holder.
    #[inline]
    pub fn get_not_zero(&self, spread: &SpreadPtr, guard: &Guard) -> bool {
        self.get_if(spread, guard, |word| word & DEAD == 0 && word >= ONE)
    }

    /// Takes a reference, possibly the first one, unless the object is dead. Returns `false` if it
    /// is. May wait for the lock's holder.
    #[inline]
    pub fn get_not_dead(&self, spread: &SpreadPtr, guard: &Guard) -> bool {
        self.get_if(spread, guard, |word| word & DEAD == 0)
    }

    #[inline]
    fn get_if(&self, spread: &SpreadPtr, guard: &Guard, allow: impl Fn(u64) -> bool) -> bool {
        let cpu = cpu::current();
        let mut word = self.word.load(Ordering::Acquire);
        for _ in 0..TRIES {
            if word & SPREAD != 0 {
                // Only the dead bit matters here: with a bias a reference exists.
                let allowed = allow(word);
                if allowed {
                    spread.part(cpu, guard).fetch_add(1, Ordering::Relaxed);
                }
                return allowed;
            }
            if word & (LOCKED | LOCKED_ONLY) != 0 {
                break;
            }
            if !allow(word) {
                return false;
            }
            if word >= WORD_LIMIT {
                break;
            }
            let next = touched(word + ONE, cpu);
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        self.get_locked(allow, cpu)
    }

    #[cold]
    fn get_locked(&self, allow: impl Fn(u64) -> bool, cpu: u32) -> bool {
        let mut guard = self.lock();
        guard.word = touched(guard.word, cpu);
        let allowed = allow(guard.word);
        if allowed {
            guard.inc();
        }
        allowed
    }

    /// Drops a reference, unless it is the last one. May wait for the lock's holder.
    #[inline]
    pub fn put<'a>(&'a self, spread: &SpreadPtr, guard: &Guard) -> Put<'a> {
        let cpu = cpu::current();
        let mut word = self.word.load(Ordering::Acquire);
        for _ in 0..TRIES {
            if word & SPREAD != 0 {
                spread.part(cpu, guard).fetch_sub(1, Ordering::Release);
                return Put::Done;
            }
            if word & (LOCKED | LOCKED_ONLY) != 0 || word < 2 * ONE {
                break;
            }
            let (next, hot) = cooled(touched(word - ONE, cpu));
            match self.word.compare_exchange_weak(word, next, Ordering::Release, Ordering::Acquire)
            {
                Ok(_) if hot => return Put::Contended,
                Ok(_) => return Put::Done,
                Err(now) => word = now,
            }
        }
        self.put_locked(cpu)
    }

    /// Drops a reference if one exchange is enough. Returns `false`, and does nothing, for the last
    /// reference, a spread count, a held lock or a hot word. Needs no RCU guard, for it accesses
    /// nothing but the word, and only while the reference exists.
    #[inline]
    #[must_use = "when `false` the reference is still to be put"]
    pub fn put_simple(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & (LOCKED | LOCKED_ONLY | SPREAD) != 0 || word < 2 * ONE {
            return false;
        }
        let (next, hot) = cooled(touched(word - ONE, cpu::current()));
        let put = || self.word.compare_exchange(word, next, Ordering::Release, Ordering::Relaxed);
        !hot && put().is_ok()
    }

    /// Marks the object dead if the caller's reference is the only one and no thread has the lock:
    /// like [`lock`](Self::lock) and [`mark_dead`](LockrefGuard::mark_dead), in one exchange.
    /// Returns `false`, and does nothing, otherwise. Never blocks.
    #[inline]
    #[must_use = "when `false` nothing was done"]
    pub fn mark_dead_if_last(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let others = LOCKED | LOCKED_ONLY | PARKED | DEAD | SPREAD | COLLECTING;
        if word & others != 0 || count_of(word) != 1 {
            return false;
        }
        let dead = word | DEAD;
        self.word.compare_exchange(word, dead, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn put_locked(&self, cpu: u32) -> Put<'_> {
        let mut guard = self.lock();
        debug_assert!(guard.count() > 0, "a reference was put twice");
        if guard.word >= WORD_LIMIT {
            return Put::Done;
        }
        let (word, hot) = cooled(touched(guard.word, cpu));
        guard.word = word;
        // With a bias the count is never 1, and subtracting from the word is as good as from a
        // part.
        if guard.count() <= 1 {
            return Put::Last(guard);
        }
        guard.dec();
        if hot { Put::Contended } else { Put::Done }
    }

    /// Takes the lock (`d_lock`). Blocks while another thread holds it: spins for about a
    /// microsecond, then sleeps. Until it is released other threads wait for references, unless the
    /// count is spread.
    #[inline]
    pub fn lock(&self) -> LockrefGuard<'_> {
        match self.claim(stat::free_word()) {
            Some(word) => LockrefGuard::new(self, word),
            None => self.lock_slow(),
        }
    }

    /// Takes the lock if it is free. Never blocks.
    #[inline]
    pub fn try_lock(&self) -> Option<LockrefGuard<'_>> {
        match self.claim(stat::free_word()) {
            Some(word) => Some(LockrefGuard::new(self, word)),
            None => self.try_lock_slow(),
        }
    }

    #[cold]
    fn try_lock_slow(&self) -> Option<LockrefGuard<'_>> {
        self.claim(0).map(|word| self.recorded(word))
    }

    /// Sets `LOCKED`, unless it is set in the word or in `refused`. Returns the word, or `None`.
    #[inline]
    fn claim(&self, refused: u32) -> Option<u64> {
        let refused = u64::from(refused);
        let mut word = self.word.load(Ordering::Relaxed);
        while (word | refused) & LOCKED == 0 {
            let locked = word | LOCKED;
            match self.word.compare_exchange_weak(
                word,
                locked,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(locked),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Creates the guard of a lock that this thread has just taken, and records that in lockstat.
    fn recorded(&self, word: u64) -> LockrefGuard<'_> {
        let traced = if STAT.acquired(self.key()) { TRACED } else { 0 };
        if traced != 0 {
            self.word.fetch_or(traced, Ordering::Relaxed);
        }
        LockrefGuard::new(self, word | traced)
    }

    #[cold]
    fn lock_slow(&self) -> LockrefGuard<'_> {
        let word = match self.claim(0) {
            Some(word) => word,
            None => self.wait(Waiting::start(&STAT, self.key())),
        };
        self.recorded(word)
    }

    /// Waits for a held lock until this thread has it. Returns the word.
    fn wait(&self, mut waiting: Waiting) -> u64 {
        let mut spin = Spin::new();
        let mut lost = 0_u32;
        loop {
            if let Some(word) = self.claim(0) {
                return word;
            }
            if spin.spin() || !self.mark_parked() {
                continue;
            }
            waiting.park();
            let still_held =
                || self.word.load(Ordering::Relaxed) & (LOCKED | PARKED) == LOCKED | PARKED;
            match park::park(self.key(), park::token(0, lost), still_held) {
                Some(park::HANDOFF) => {
                    // The lock was passed to us before we woke; only PARKED may have changed since.
                    return self.word.load(Ordering::Acquire);
                }
                Some(_) => lost += 1,
                None => {}
            }
            spin = Spin::new();
        }
    }

    /// Announces a sleeper on a held lock. Returns `false` if the lock is free or the word changed.
    fn mark_parked(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        if word & LOCKED == 0 {
            return false;
        }
        let parked = word | PARKED;
        word == parked
            || self
                .word
                .compare_exchange_weak(word, parked, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the count of the word: the references, unless it is spread or being collected; then
    /// a number above 2^30 without a meaning. For asserts and hints: it may have changed already.
    pub fn count(&self) -> u32 {
        count_of(self.word.load(Ordering::Relaxed))
    }

    /// Returns whether the object was marked dead. A hint unless the caller holds the lock.
    pub fn is_dead(&self) -> bool {
        self.word.load(Ordering::Acquire) & DEAD != 0
    }

    /// Returns whether references are counted in per-CPU parts now. A hint.
    pub fn is_spread(&self) -> bool {
        self.word.load(Ordering::Relaxed) & SPREAD != 0
    }

    /// Spreads (shards) the count over `slots` per-CPU parts (at least one), in effect when the
    /// guard is dropped. Returns `false` if it is spread or being collected already, or if there
    /// are 2^30 references. Allocates; never blocks otherwise.
    ///
    /// The spreading holds a reference of its own to the object, until it is collected. The caller
    /// has checked that the object may get one (it is not dead). While it is spread no put
    /// is the last, and [`mark_dead`](LockrefGuard::mark_dead) stops lookups only when the guard is
    /// dropped.
    pub fn spread(guard: &mut LockrefGuard<'_>, spread: &SpreadPtr, slots: usize) -> bool {
        if guard.is_biased() || u64::from(guard.count()) >= COUNT_LIMIT {
            return false;
        }
        spread.install(slots);
        guard.word = (guard.word | SPREAD) + (BIAS << COUNT_SHIFT);
        true
    }

    /// Redirects references to the word, with immediate effect. Returns `false`, and does nothing,
    /// if the count is not spread. Never blocks.
    ///
    /// After `true` the caller must let a grace period pass (that begins after this call) and then
    /// call [`finish_collect`](Self::finish_collect), once, normally from [`Guard::defer`].
    #[must_use = "after `true` finish_collect is due after a grace period"]
    pub fn begin_collect(guard: &mut LockrefGuard<'_>, _spread: &SpreadPtr, _rcu: &Guard) -> bool {
        if guard.word & SPREAD == 0 {
            return false;
        }
        let flip = SPREAD | COLLECTING;
        if guard.base & SPREAD == 0 {
            // Spread under this guard: no other thread has seen it yet.
            guard.word ^= flip;
            return true;
        }
        // Only PARKED can change concurrently, and this exchange does not touch it.
        guard.lockref.word.fetch_xor(flip, Ordering::Release);
        guard.base ^= flip;
        guard.word ^= flip;
        true
    }

    /// Sums the parts into the word, frees them, and puts the reference of the spreading, exactly
    /// as [`put`](Self::put) would: [`Put::Last`] if no other is left, else [`Put::Done`]. May wait
    /// for the lock's holder.
    ///
    /// # Panics
    ///
    /// If no collection was begun, or if more references were put than taken. Leaked references may
    /// saturate the count; the object is then never freed.
    ///
    /// # Safety
    ///
    /// [`begin_collect`](Self::begin_collect) has returned true for this object and these parts, a
    /// grace period that began after it has passed, so no thread can access the parts, and this is
    /// the only call for it.
    pub unsafe fn finish_collect<'a>(&'a self, spread: &SpreadPtr, _rcu: &Guard) -> Put<'a> {
        let mut guard = self.lock();
        assert!(guard.word & COLLECTING != 0, "no collection was begun");
        let references = unbiased(guard.word) + spread.take();
        let mut flags = guard.word & (ONE - 1) & !COLLECTING;
        let Ok(mut count) = u64::try_from(references) else {
            panic!("{references} references after a collection")
        };
        let limit = WORD_LIMIT >> COUNT_SHIFT;
        if guard.word >= WORD_LIMIT || count >= limit {
            (flags, count) = (flags | LOCKED_ONLY, limit);
        }
        guard.word = flags | (count.max(1) << COUNT_SHIFT);
        // If none is left, the count of 1 is the spreading's own reference.
        if count == 0 { Put::Last(guard) } else { Put::Done }
    }
}

fn count_of(word: u64) -> u32 {
    // The upper half of a word always fits.
    (word >> COUNT_SHIFT) as u32
}

/// Returns the references in the word itself while it is spread or collecting: negative if others
/// were taken on the parts and put here.
fn unbiased(word: u64) -> i64 {
    i64::from(count_of(word)) - BIAS.cast_signed()
}

/// Returns the word after a change by `cpu`: it records the CPU, and warms up if that is not the
/// last one.
#[inline]
fn touched(word: u64, cpu: u32) -> u64 {
    let here = (u64::from(cpu) << CPU_SHIFT) & CPU_MASK;
    let heat = (word & HEAT_MASK) >> HEAT_SHIFT;
    let heat = if word & CPU_MASK == here {
        heat.saturating_sub(1)
    } else {
        (heat + HEAT_GAIN).min(HEAT_MAX)
    };
    (word & !(HEAT_MASK | CPU_MASK)) | (heat << HEAT_SHIFT) | here
}

/// Returns the word, and whether to report contention; the word then starts cold again.
#[inline]
fn cooled(word: u64) -> (u64, bool) {
    let hot = word & HEAT_MASK >= HEAT_REPORTED << HEAT_SHIFT && word & LOCKED_ONLY == 0;
    (if hot { word & !HEAT_MASK } else { word }, hot)
}

/// A lockref's lock, held by this thread; dropping it unlocks and publishes what was changed
/// through it. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockrefGuard<'a> {
    lockref: &'a Lockref,
    /// The word in memory, except for PARKED.
    base: u64,
    /// The word that the unlock stores, with LOCKED.
    word: u64,
    not_send: PhantomData<*const ()>,
}

impl<'a> LockrefGuard<'a> {
    #[inline]
    fn new(lockref: &'a Lockref, word: u64) -> Self {
        held::acquire_unranked();
        Self { lockref, base: word, word, not_send: PhantomData }
    }

    /// Returns the count: references, or a number above 2^30 while spread or collecting.
    #[inline]
    pub fn count(&self) -> u32 {
        count_of(self.word)
    }

    /// Returns whether the object was marked dead.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.word & DEAD != 0
    }

    /// Returns whether references are counted in per-CPU parts.
    #[inline]
    pub fn is_spread(&self) -> bool {
        self.word & SPREAD != 0
    }

    /// Returns whether the count is spread or being collected, so [`count`](Self::count) has no
    /// meaning.
    #[inline]
    pub fn is_biased(&self) -> bool {
        self.word & (SPREAD | COLLECTING) != 0
    }

    /// Takes a reference. If the count is saturated it stays so, for good.
    #[inline]
    pub fn inc(&mut self) {
        if self.word >= WORD_LIMIT {
            self.word |= LOCKED_ONLY;
        } else {
            self.word += ONE;
        }
    }

    /// Drops a reference, possibly the last one, unless the count is saturated. Returns the new
    /// [`count`](Self::count).
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline]
    pub fn dec(&mut self) -> u32 {
        assert!(self.word >= ONE, "a reference was put twice");
        if self.word < WORD_LIMIT {
            self.word -= ONE;
        }
        self.count()
    }

    /// Marks the object dead for lookups, for good.
    #[inline]
    pub fn mark_dead(&mut self) {
        self.word |= DEAD;
    }

    #[cold]
    fn unlock_slow(&self, free: u64) {
        if self.base & TRACED != 0 {
            stat::released(self.lockref.key());
        }
        if self.base & PARKED == 0 {
            let word = &self.lockref.word;
            let alone =
                word.compare_exchange(self.base, free, Ordering::Release, Ordering::Relaxed);
            if alone.is_ok() {
                return;
            }
        }
        park::unpark_one(self.lockref.key(), |woken| {
            // Under the queue's lock, and the lock is still ours: PARKED is set, so no other thread
            // changes the word, and a thread about to sleep validates after this.
            let parked = if woken.more { PARKED } else { 0 };
            let (locked, token) = if woken.threads != 0 && woken.impatient {
                (LOCKED, park::HANDOFF)
            } else {
                (0, park::COMPETE)
            };
            self.lockref.word.store(free | parked | locked, Ordering::Release);
            token
        });
    }
}

impl Drop for LockrefGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        held::release_unranked();
        let free = self.word & !(LOCKED | PARKED | TRACED);
        if self.base & (PARKED | TRACED) == 0 {
            let word = &self.lockref.word;
            let alone =
                word.compare_exchange(self.base, free, Ordering::Release, Ordering::Relaxed);
            if alone.is_ok() {
                return;
            }
        }
        self.unlock_slow(free);
    }
}

/// One CPU's part, on lines of its own. The first element of a block holds the number of parts
/// after it.
type Part = CachePadded<AtomicI64>;

/// The per-CPU parts of a [`Lockref`], or none. Eight bytes; put it on a line that is seldom
/// written, for every get and put of a spread object reads it. `Send` and `Sync`.
pub struct SpreadPtr {
    /// The header of a boxed slice of parts, or null. Written only under the lockref's lock.
    parts: AtomicPtr<Part>,
}

impl SpreadPtr {
    const_unless_model! {
        /// Creates a pointer without parts.
        pub fn new() -> Self {
            Self { parts: AtomicPtr::new(std::ptr::null_mut()) }
        }
    }

    /// Returns the part of `cpu`. The caller saw the spread bit inside the RCU guard.
    #[inline]
    fn part<'g>(&self, cpu: u32, guard: &'g Guard) -> &'g AtomicI64 {
        match self.block(guard) {
            Some([_, parts @ ..]) if !parts.is_empty() => {
                let index = cpu as usize;
                let index = if index < parts.len() { index } else { index % parts.len() };
                &parts[index]
            }
            _ => no_parts(),
        }
    }

    /// Returns header and parts. They are freed only after a grace period that begins when the
    /// spread bit has been cleared, so a guard protects them.
    #[inline]
    fn block<'g>(&self, _guard: &'g Guard) -> Option<&'g [Part]> {
        let header = self.parts.load(Ordering::Acquire);
        if header.is_null() {
            return None;
        }
        // SAFETY: `install` published a slice whose first element holds the number of parts that
        // follow, and `take` frees it only after the grace period the guard holds back.
        unsafe {
            let parts = (**header).load(Ordering::Relaxed) as usize;
            Some(std::slice::from_raw_parts(header, parts + 1))
        }
    }

    /// Allocates parts. The caller holds the lock, and there are none.
    fn install(&self, slots: usize) {
        let slots = i64::try_from(slots).unwrap_or(i64::MAX).max(1);
        let header = std::iter::once(slots);
        let block: Box<[Part]> = header
            .chain((0..slots).map(|_| 0))
            .map(|value| Part::new(AtomicI64::new(value)))
            .collect();
        let block = Box::into_raw(block).cast::<Part>();
        let before = self.parts.swap(block, Ordering::Release);
        assert!(before.is_null(), "parts were left behind");
    }

    /// Frees the parts and returns their sum. The caller holds the lock, and a grace period has
    /// passed since the spread bit was cleared.
    fn take(&self) -> i64 {
        let header = self.parts.swap(std::ptr::null_mut(), Ordering::Acquire);
        if header.is_null() {
            return 0;
        }
        // SAFETY: the block has just been unlinked, and no other thread has seen it since the grace
        // period began.
        let block = unsafe { owned_block(header) };
        block.iter().skip(1).map(|part| part.load(Ordering::Acquire)).sum()
    }
}

/// Returns the box of a block.
///
/// # Safety
///
/// `SpreadPtr::install` stored `header`, and no other thread uses it any more.
unsafe fn owned_block(header: *mut Part) -> Box<[Part]> {
    // SAFETY: the header holds the number of parts that follow it in its box.
    unsafe {
        let parts = (**header).load(Ordering::Relaxed) as usize;
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(header, parts + 1))
    }
}

/// Panics: the lockref is marked as spread, but its pointer is empty, so it belongs to another
/// lockref.
#[cold]
fn no_parts() -> ! {
    panic!("a lockref was used with the spread pointer of another")
}

impl Default for SpreadPtr {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SpreadPtr {
    fn drop(&mut self) {
        let header = self.parts.load(Ordering::Relaxed);
        if !header.is_null() {
            // SAFETY: the object is being freed, so no other thread uses its parts.
            drop(unsafe { owned_block(header) });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
