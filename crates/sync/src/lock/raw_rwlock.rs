//! The word of a reader-writer lock, without data, class or order checking.
//!
//! A writer first takes `WRITER`, which stops new readers, and then waits for the readers that are
//! inside. So a writer that competes for the lock needs only a single moment without another
//! writer, and readers can't starve it. At most one thread holds `WRITER`, hence at most one waits
//! for readers to leave; it sleeps on an address of its own.
//!
//! All other threads sleep on the lock's address, and only while `WRITER` is set. Sleepers may
//! remain after `WRITER` is cleared (`PARKED` stays set): the thread that leaves the lock empty
//! wakes the next of them. A woken thread retries until it holds the lock, so the chain never
//! breaks.

use crate::atomic::{AtomicU32, Ordering, const_unless_model};
use crate::lock::contend::{Got, PARKED, contend};
use crate::lock::park;
use crate::lock::stat::{self, LockStat, Waiting};
use crate::lock::wait::Spin;

/// Flag: a writer holds the lock, or waits for the readers inside to leave.
const WRITER: u32 = 1;
/// Flag: the writer sleeps until the last reader leaves.
const DRAINING: u32 = 4;
/// Flag: lockstat records releases; a recorded thread is inside, or was.
const TRACED: u32 = 8;
/// The unit of the reader count.
const READER: u32 = 16;
const READERS: u32 = !(READER - 1);
/// A word with more readers than allowed. lockstat's words that no lock has are above it.
const WORD_LIMIT: u32 = 1 << 30;

/// The token of a sleeping reader.
const KIND_READER: park::Token = 0;
const KIND_WRITER: park::Token = 1;

/// The word of a reader-writer lock, in four bytes: up to 2^26 readers, or a writer. [`stat`]
/// defines the word that a fast path expects of a free lock.
pub(crate) struct RawRwLock {
    word: AtomicU32,
}

impl RawRwLock {
    const_unless_model! {
        /// Creates a free lock.
        pub(crate) fn new() -> Self {
            Self { word: AtomicU32::new(0) }
        }
    }

    /// Enters as a reader if no writer is inside or waits for readers to leave.
    #[inline]
    pub(crate) fn try_read(&self, stat: fn() -> &'static LockStat) -> bool {
        self.join(stat::free_word()) || self.try_read_slow(stat)
    }

    #[cold]
    fn try_read_slow(&self, stat: fn() -> &'static LockStat) -> bool {
        let joined = self.join(0);
        if joined {
            self.record(stat());
        }
        joined
    }

    /// Counts a reader, unless the word or `refused` contains `WRITER`.
    #[inline]
    fn join(&self, refused: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while (word | refused) & WRITER == 0 {
            if word >= WORD_LIMIT {
                too_many_readers();
            }
            match self.word.compare_exchange_weak(
                word,
                word + READER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Records in lockstat that this thread has entered.
    fn record(&self, stat: &'static LockStat) {
        if stat.acquired(self.key()) {
            self.word.fetch_or(TRACED, Ordering::Relaxed);
        }
    }

    /// Enters as a reader, waiting for a writer.
    #[inline]
    pub(crate) fn read(&self, stat: fn() -> &'static LockStat) {
        if !self.join(stat::free_word()) {
            self.read_slow(stat());
        }
    }

    #[cold]
    fn read_slow(&self, stat: &'static LockStat) {
        if !self.join(0) {
            let mut waiting = Waiting::start(stat, self.key());
            let queue = (self.key(), KIND_READER);
            contend(&self.word, WRITER, queue, &mut waiting, || self.join(0));
        }
        self.record(stat);
    }

    /// Returns whether a thread is inside, or a writer waits.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.word.load(Ordering::Acquire) & (READERS | WRITER) != 0
    }

    /// Enters as the writer if no thread is inside.
    #[inline]
    pub(crate) fn try_write(&self, stat: fn() -> &'static LockStat) -> bool {
        self.take_free() || self.try_write_slow(stat)
    }

    #[inline]
    fn take_free(&self) -> bool {
        let free = stat::free_word();
        self.word.compare_exchange(free, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn try_write_slow(&self, stat: fn() -> &'static LockStat) -> bool {
        let taken = self.take_empty();
        if taken {
            self.record(stat());
        }
        taken
    }

    /// Sets `WRITER` if no thread is inside; returns whether it did.
    fn take_empty(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let writer = word & PARKED | WRITER;
        word & !(PARKED | TRACED) == 0
            && self
                .word
                .compare_exchange(word, writer, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Enters as the writer, waiting for all threads inside. Returns whether there were any.
    #[inline]
    pub(crate) fn write(&self, stat: fn() -> &'static LockStat) -> bool {
        !self.take_free() && self.write_slow(stat())
    }

    #[cold]
    fn write_slow(&self, stat: &'static LockStat) -> bool {
        let waits = !self.take_empty();
        if waits {
            self.wait_to_write(Waiting::start(stat, self.key()));
        }
        self.record(stat);
        waits
    }

    fn wait_to_write(&self, mut waiting: Waiting) {
        let queue = (self.key(), KIND_WRITER);
        // A lock passed on by a writer has no reader inside.
        if contend(&self.word, WRITER, queue, &mut waiting, || self.claim()) == Got::Claimed {
            self.drain(&mut waiting);
        }
    }

    /// Sets `WRITER`, even with readers inside; returns false if another writer has set it.
    fn claim(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & WRITER == 0 {
            match self.word.compare_exchange_weak(
                word,
                word | WRITER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Waits, holding `WRITER`, until the readers inside have left.
    fn drain(&self, waiting: &mut Waiting) {
        let mut spin = Spin::new();
        loop {
            // Acquire: pairs with the release of each reader that left.
            let word = self.word.load(Ordering::Acquire);
            if word & READERS == 0 {
                if word & DRAINING != 0 {
                    self.word.fetch_and(!DRAINING, Ordering::Relaxed);
                }
                return;
            }
            if spin.spin() {
                continue;
            }
            if word & DRAINING == 0 {
                let draining = word | DRAINING;
                let marked = self.word.compare_exchange_weak(
                    word,
                    draining,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if marked.is_err() {
                    continue;
                }
            }
            waiting.park();
            park::park(self.drain_key(), KIND_WRITER, || {
                let word = self.word.load(Ordering::Relaxed);
                word & DRAINING != 0 && word & READERS != 0
            });
        }
    }

    /// Releases the reader's side.
    #[inline]
    pub(crate) fn unlock_read(&self) {
        let word = self.word.fetch_sub(READER, Ordering::Release);
        if word & (PARKED | DRAINING | TRACED) != 0 {
            self.unlock_read_slow(word);
        }
    }

    #[cold]
    fn unlock_read_slow(&self, word: u32) {
        if word & TRACED != 0 {
            stat::released(self.key());
        }
        if word & READERS != READER {
            return;
        }
        if word & TRACED != 0 {
            self.forget_traced();
        }
        if word & DRAINING != 0 {
            // Clearing the bit makes a writer that is not asleep yet check the word again.
            park::unpark_one(self.drain_key(), |_| {
                self.word.fetch_and(!DRAINING, Ordering::Relaxed);
                park::COMPETE
            });
        } else if word & WRITER == 0 {
            self.wake_left_over();
        }
    }

    /// Clears `TRACED` if no thread is inside: a recorded thread is counted as inside when it sets
    /// the flag.
    fn forget_traced(&self) {
        let empty = |word: u32| {
            (word & (READERS | WRITER) == 0 && word & TRACED != 0).then_some(word & !TRACED)
        };
        // If the exchange fails, another thread has entered, which will clear the flag.
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, empty);
    }

    /// Wakes the next sleepers of a lock that other threads may be taking concurrently.
    fn wake_left_over(&self) {
        park::unpark_while(self.key(), one_writer_or_readers(), |woken| {
            if !woken.more {
                self.word.fetch_and(!PARKED, Ordering::Relaxed);
            }
            park::COMPETE
        });
    }

    /// Releases the writer's side.
    #[inline]
    pub(crate) fn unlock_write(&self) {
        let alone = self.word.compare_exchange(WRITER, 0, Ordering::Release, Ordering::Relaxed);
        if alone.is_err() {
            self.unlock_write_slow();
        }
    }

    #[cold]
    fn unlock_write_slow(&self) {
        if self.word.load(Ordering::Relaxed) & TRACED != 0 {
            stat::released(self.key());
            let traced = WRITER | TRACED;
            let alone = self.word.compare_exchange(traced, 0, Ordering::Release, Ordering::Relaxed);
            if alone.is_ok() {
                return;
            }
        }
        park::unpark_while(self.key(), one_writer_or_readers(), |woken| {
            // Under the queue's lock, and the lock is still ours: with WRITER and PARKED set no
            // other thread changes the word, so a store is enough. A late reader may still clear
            // DRAINING, which is clear already.
            let parked = if woken.more { PARKED } else { 0 };
            if woken.threads == 0 || !woken.impatient {
                self.word.store(parked, Ordering::Release);
                return park::COMPETE;
            }
            let passed_on = if woken.first & KIND_WRITER != 0 {
                WRITER
            } else {
                u32::try_from(woken.threads).unwrap_or(u32::MAX).saturating_mul(READER)
            };
            // The woken acquire through the queue's lock; readers that enter concurrently need the
            // release.
            self.word.store(passed_on | parked, Ordering::Release);
            park::HANDOFF
        });
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns an address inside this lock's word, which belongs to no other lock.
    fn drain_key(&self) -> usize {
        self.key() + 1
    }
}

/// Selects sleepers from the head of the queue: one writer, or readers up to the first writer.
fn one_writer_or_readers() -> impl FnMut(park::Token) -> bool {
    let mut readers = 0_u32;
    let mut closed = false;
    move |token| {
        if closed {
            return false;
        }
        if token & KIND_WRITER != 0 {
            closed = true;
            return readers == 0;
        }
        readers += 1;
        true
    }
}

/// Aborts: 2^26 guards were leaked, and one more would make the count wrap and the lock
/// meaningless.
#[cold]
fn too_many_readers() -> ! {
    std::process::abort()
}
