//! A reader-writer lock whose readers are sharded over the CPUs once several CPUs contend.
//!
//! # Purpose
//!
//! All readers of a reader-writer lock write its line. A [`BrLock`](crate::percpu::brlock::BrLock)
//! has a lock for each CPU instead, which is too large for an object of which there are millions.
//! This lock is a word until it gets hot. Then it gets a *part* for each CPU, a count of the
//! readers that entered on it. Parts are *open* until a writer arrives: it closes them all, and
//! readers use the word again until that gets hot once more. (BRAVO, Dice and Kogan, USENIX ATC
//! 2019, has readers of all locks in one table, and one flag for open and closed.)
//!
//! The owner stores the pointer to the parts on a line that readers read anyway ([`ReaderParts`]),
//! so a reader of a part does not touch the word's line.
//!
//! # Invariants
//!
//! * Only a thread that holds the word as its writer makes, opens or closes parts.
//! * A reader is counted in the word or in one part, and its guard refers to that: it may be moved
//!   to another CPU.
//! * A closed part counts no reader once its last reader has left, because entering is an exchange
//!   that fails on a closed part. So a writer that holds the word, and has found all parts closed
//!   and empty, has exclusive access.
//! * Entering a part acquires what opening it released; leaving it releases what the writer's read
//!   of the part acquires.
//!
//! # Waiting
//!
//! A writer waits for readers in parts by polling: it spins, then yields, then sleeps up to a
//! millisecond at a time. So parts are for short sections; the other waits are like in an
//! [`RwLock`](crate::RwLock). A reader in a part never waits for the word, and readers that arrive
//! after the writer wait there.
//!
//! # Heat
//!
//! A use of the word that could have been in a part heats it by 4 if it shows that several CPUs
//! want it: it had to wait, or was on another CPU than the last one noted. One on the last CPU
//! cools it by 1, so a lock used by one CPU never gets hot. It is hot when it was heated as often
//! as it has parts, and at least twelve times. Opening and closing a part moves its line twice from
//! one CPU to another, and each heating of the word has moved its line. So in any sequence of
//! readers and writers, parts at most treble the number of line transfers.
//!
//! # Lock order
//!
//! It has one rank: to order checking a writer holds one lock.

use std::marker::PhantomData;

use crate::atomic::{AtomicPtr, AtomicU32, Ordering, const_unless_model};
use crate::cpu;
use crate::lock::LockClass;
use crate::lock::held;
use crate::lock::raw_rwlock::RawRwLock;
use crate::lock::stat::Waiting;
use crate::lock::wait::Backoff;
use crate::percpu::{CachePadded, PerCpu};

/// Flag: no reader may enter this part.
const CLOSED: u32 = 1 << 31;

/// Minimum number of heatings until a word is hot.
const TIMES_MIN: u32 = 12;
const HEAT_GAIN: u32 = 4;
const HEAT_BITS: u32 = 16;
const HEAT_MAX: u32 = (1 << HEAT_BITS) - 1;

/// A reader-writer lock in eight bytes. `Send` and `Sync`.
///
/// Methods take the lock's [`ReaderParts`]; all calls pass the same ones.
pub struct ShardedRwLock<C: LockClass> {
    class: PhantomData<fn() -> C>,
    word: RawRwLock,
    /// Heat, and above it the CPU that was noted last. A hint: written without synchronisation.
    heat: AtomicU32,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<ReaderParts>() == 8);

impl<C: LockClass> ShardedRwLock<C> {
    const_unless_model! {
        /// Creates an unlocked, cold lock.
        pub fn new() -> Self {
            Self { class: PhantomData, word: RawRwLock::new(), heat: AtomicU32::new(0) }
        }
    }

    /// Enters as the writer, and closes the parts if they are open. Blocks while a reader or writer
    /// is inside; readers that arrive later wait.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn write<'a>(&'a self, parts: &'a ReaderParts) -> ShardedWriteGuard<'a, C> {
        held::assert_no_section::<C>();
        self.write_in_section(parts)
    }

    /// Enters like [`write`](Self::write), but may be called while holding other locks of the same
    /// rank. The caller takes locks of this class in an order of its own.
    #[inline]
    pub fn write_nested<'a>(&'a self, parts: &'a ReaderParts) -> ShardedWriteGuard<'a, C> {
        held::assert_no_section::<C>();
        self.write_held(parts, true)
    }

    /// Enters like [`write`](Self::write), but may be called in an RCU section even if holders of
    /// this lock sleep: for a caller that knows that all threads which can hold this one are in RCU
    /// sections, too.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn write_in_section<'a>(&'a self, parts: &'a ReaderParts) -> ShardedWriteGuard<'a, C> {
        self.write_held(parts, false)
    }

    #[inline]
    fn write_held<'a>(&'a self, parts: &'a ReaderParts, nested: bool) -> ShardedWriteGuard<'a, C> {
        held::acquire::<C>(nested);
        let waited = self.word.write(C::stat);
        if let Some(parts) = parts.get()
            && are_open(parts)
        {
            close::<C>(parts);
        }
        ShardedWriteGuard { lock: self, parts, waited, not_send: PhantomData }
    }

    /// Enters as the writer if no thread is inside and the parts are closed. Never blocks.
    #[inline]
    pub fn try_write<'a>(&'a self, parts: &'a ReaderParts) -> Option<ShardedWriteGuard<'a, C>> {
        if !self.word.try_write(C::stat) {
            return None;
        }
        if parts.get().is_some_and(are_open) {
            // Closing them means waiting for the readers inside.
            self.word.unlock_write();
            return None;
        }
        held::note::<C>();
        Some(ShardedWriteGuard { lock: self, parts, waited: false, not_send: PhantomData })
    }

    /// Enters as a reader, by the part of this CPU if that is open. Otherwise blocks while a writer
    /// is inside or waits.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn read<'a>(&'a self, parts: &'a ReaderParts) -> ShardedReadGuard<'a, C> {
        self.read_held(parts, false)
    }

    /// Enters like [`read`](Self::read), but may be called while holding other locks of the same
    /// rank. The caller takes locks of this class in an order of its own.
    #[inline]
    pub fn read_nested<'a>(&'a self, parts: &'a ReaderParts) -> ShardedReadGuard<'a, C> {
        self.read_held(parts, true)
    }

    #[inline]
    fn read_held<'a>(&'a self, parts: &'a ReaderParts, nested: bool) -> ShardedReadGuard<'a, C> {
        if let Some(part) = parts.join() {
            held::acquire::<C>(nested);
            return ShardedReadGuard { inside: Inside::Part(part), not_send: PhantomData };
        }
        held::assert_no_section::<C>();
        held::acquire::<C>(nested);
        self.word.read(C::stat);
        ShardedReadGuard { inside: Inside::Word(self), not_send: PhantomData }
    }

    /// Returns whether readers of this CPU can enter a part.
    #[inline]
    pub fn is_open(&self, parts: &ReaderParts) -> bool {
        parts.get().is_some_and(|parts| parts.this().load(Ordering::Relaxed) & CLOSED == 0)
    }

    /// Returns whether a thread holds the word, or waits for it. Readers in parts do not count.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.word.is_taken()
    }

    /// Enters as a reader if the part of this CPU is open. Never blocks, and does not touch the
    /// word's line.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn read_in_part<'a>(&self, parts: &'a ReaderParts) -> Option<ShardedReadGuard<'a, C>> {
        let part = parts.join()?;
        held::acquire::<C>(false);
        Some(ShardedReadGuard { inside: Inside::Part(part), not_send: PhantomData })
    }

    /// Notes the CPU of a thread that shares the word. Returns whether the word got hot, so that
    /// the caller should [shard](ShardedWriteGuard::spread) the lock for `slots` CPUs; the word is
    /// then cold again.
    pub fn note_cpu(&self, slots: usize) -> bool {
        let (cpu, before) = (cpu::current() & HEAT_MAX, self.heat.load(Ordering::Relaxed));
        if before >> HEAT_BITS != cpu {
            return self.heat_up(cpu, slots);
        }
        if before & HEAT_MAX > 0 {
            self.heat.store(before - 1, Ordering::Relaxed);
        }
        false
    }

    #[cold]
    fn heat_up(&self, cpu: u32, slots: usize) -> bool {
        let heat = (self.heat.load(Ordering::Relaxed) & HEAT_MAX) + HEAT_GAIN;
        let times = u32::try_from(slots).unwrap_or(u32::MAX).max(TIMES_MIN);
        let is_hot = heat >= times.saturating_mul(HEAT_GAIN).min(HEAT_MAX);
        let heat = if is_hot { 0 } else { heat };
        self.heat.store(cpu << HEAT_BITS | heat, Ordering::Relaxed);
        is_hot
    }
}

impl<C: LockClass> Default for ShardedRwLock<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// The parts of a [`ShardedRwLock`], once it has some.
pub struct ReaderParts {
    /// From a box, or null. Set once.
    parts: AtomicPtr<Parts>,
}

/// The number of readers in each part, or `CLOSED` and the number of readers that have not left
/// yet.
type Parts = PerCpu<AtomicU32>;

impl ReaderParts {
    const_unless_model! {
        /// Creates it without parts.
        pub fn new() -> Self {
            Self { parts: AtomicPtr::new(std::ptr::null_mut()) }
        }
    }

    /// Returns the memory that `slots` parts take, in bytes.
    pub const fn bytes(slots: usize) -> usize {
        size_of::<Parts>() + slots * size_of::<CachePadded<AtomicU32>>()
    }

    #[inline]
    fn get(&self) -> Option<&Parts> {
        // SAFETY: the pointer is that of a box, which stays allocated until `self` is dropped.
        unsafe { self.parts.load(Ordering::Acquire).as_ref() }
    }

    /// Counts a reader in the part of this CPU, if that is open.
    #[inline]
    fn join(&self) -> Option<&AtomicU32> {
        let part = self.get()?.this();
        let mut count = part.load(Ordering::Relaxed);
        while count & CLOSED == 0 {
            match part.compare_exchange_weak(count, count + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(part),
                Err(now) => count = now,
            }
        }
        None
    }
}

impl Default for ReaderParts {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ReaderParts {
    fn drop(&mut self) {
        let parts = self.parts.load(Ordering::Relaxed);
        if !parts.is_null() {
            // SAFETY: the pointer is that of a box, and `&mut self` is the only reference.
            drop(unsafe { Box::from_raw(parts) });
        }
    }
}

/// Returns whether the parts are open, judging by the first one. The caller holds the word as its
/// writer.
#[inline]
fn are_open(parts: &Parts) -> bool {
    parts.get(0).is_some_and(|first| first.load(Ordering::Relaxed) & CLOSED == 0)
}

/// Closes the parts to new readers, and waits until the readers inside have left.
#[cold]
fn close<C: LockClass>(parts: &Parts) {
    // All are closed before the first wait: their readers leave during it.
    for part in parts.iter() {
        part.fetch_or(CLOSED, Ordering::Relaxed);
    }
    parts.iter().for_each(wait_for_readers::<C>);
}

fn wait_for_readers<C: LockClass>(part: &AtomicU32) {
    let is_empty = || part.load(Ordering::Acquire) == CLOSED;
    if is_empty() {
        return;
    }
    let _waiting = Waiting::start(C::stat(), std::ptr::from_ref(part).addr());
    let mut backoff = Backoff::new();
    while !is_empty() {
        backoff.wait();
    }
}

/// The counter that a reader is counted in.
enum Inside<'a, C: LockClass> {
    Word(&'a ShardedRwLock<C>),
    Part(&'a AtomicU32),
}

/// A reader inside a [`ShardedRwLock`]. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ShardedReadGuard<'a, C: LockClass> {
    inside: Inside<'a, C>,
    not_send: PhantomData<*const ()>,
}

impl<C: LockClass> Drop for ShardedReadGuard<'_, C> {
    #[inline]
    fn drop(&mut self) {
        match self.inside {
            Inside::Word(lock) => lock.word.unlock_read(),
            Inside::Part(part) => {
                part.fetch_sub(1, Ordering::Release);
            }
        }
        held::release::<C>();
    }
}

/// The writer inside a [`ShardedRwLock`]. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ShardedWriteGuard<'a, C: LockClass> {
    lock: &'a ShardedRwLock<C>,
    parts: &'a ReaderParts,
    waited: bool,
    not_send: PhantomData<*const ()>,
}

impl<C: LockClass> ShardedWriteGuard<'_, C> {
    /// Returns whether this writer had to wait for the word.
    #[inline]
    pub fn waited(&self) -> bool {
        self.waited
    }

    /// Notes that a thread waited that could have shared the lock. Returns whether the word got
    /// hot, like [`note_cpu`](ShardedRwLock::note_cpu).
    pub fn note_wait(&self, slots: usize) -> bool {
        self.lock.heat_up(cpu::current() & HEAT_MAX, slots)
    }

    /// Releases the lock to readers in parts: opens the parts, or makes them for `slots` CPUs if
    /// there are none.
    pub fn spread(self, slots: usize) {
        match self.parts.get() {
            // The parts are closed and empty, as this writer has exclusive access: no other thread
            // changes them.
            Some(parts) => parts.iter().for_each(|part| part.store(0, Ordering::Release)),
            None => {
                let parts = Box::new(Parts::new(slots, |_| AtomicU32::new(0)));
                self.parts.parts.store(Box::into_raw(parts), Ordering::Release);
            }
        }
    }
}

impl<C: LockClass> Drop for ShardedWriteGuard<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.unlock_write();
        held::release::<C>();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
