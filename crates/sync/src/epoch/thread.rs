//! Sections of this thread.

use std::cell::Cell;
use std::mem;
use std::ptr;
use std::sync::Once;

use super::bag::Deferred;
use super::driver::drive;
use super::fences;
use super::record::{EPOCH, Record};
use crate::fork;

/// Number of outermost sections between two looks of a thread whose bags wait.
const LOOK_EVERY: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// Number of outermost sections between two looks of a thread whose bags hold many bytes.
const LOOK_EVERY_BYTES: u32 = 8;

/// Number of bytes whose freeing a thread has deferred after which it looks in its next outermost
/// section: a quarter of a second cache, so that pages are used again before they leave it.
const HELD_MAX: usize = 256 << 10;

/// Maximum number of bags that one look runs.
pub(super) const BAGS_MAX: usize = 8;

#[cfg(all(shuttle, not(loom)))]
use shuttle::thread_local;

thread_local! {
    /// The record of this thread. Without a destructor, so reading it costs a load.
    static CURRENT: Cell<*const Record> = const { Cell::new(ptr::null()) };
    static GIVES_BACK: GivesBack = const { GivesBack(Cell::new(None)) };
}

/// Returns the record of this thread; null, if it has none.
#[inline]
fn current() -> *const Record {
    CURRENT.try_with(Cell::get).unwrap_or(ptr::null())
}

fn set_current(record: *const Record) {
    // A model drops this value, too, when a thread ends.
    let _ = CURRENT.try_with(|current| current.set(record));
}

/// Gives the record back when the thread ends.
struct GivesBack(Cell<Option<&'static Record>>);

impl Drop for GivesBack {
    fn drop(&mut self) {
        if let Some(record) = self.0.get() {
            // Another destructor may still be in a section.
            if record.nesting.get() == 0 {
                give_back(record);
            } else {
                record.is_ending.set(true);
            }
        }
    }
}

#[cold]
fn give_back(record: &'static Record) {
    set_current(ptr::null());
    record.give_back();
}

/// Returns whether this thread is in a section.
#[inline]
pub(crate) fn is_pinned() -> bool {
    // SAFETY: records are never freed, and this one is the thread's own.
    unsafe { current().as_ref() }.is_some_and(|record| record.nesting.get() > 0)
}

/// Enters a section of a thread that is in none.
#[inline]
fn enter_outermost(record: &Record) {
    #[cfg(all(shuttle, not(loom)))]
    if super::model::is_blind() {
        return;
    }
    EPOCH.enter(&record.section);
}

/// Enters a section, and returns the record of this thread.
#[inline]
pub(super) fn enter() -> &'static Record {
    // SAFETY: records are never freed.
    let record = unsafe { current().as_ref() }.unwrap_or_else(|| register());
    let nesting = record.nesting.get();
    record.nesting.set(nesting + 1);
    if nesting == 0 {
        if record.looks.get() != 0 && count_down(record) {
            return record;
        }
        enter_outermost(record);
    }
    record
}

/// Leaves a section of this thread.
#[inline]
pub(super) fn leave(record: &'static Record) {
    let nesting = record.nesting.get() - 1;
    record.nesting.set(nesting);
    if nesting == 0 {
        record.section.leave();
        if record.is_ending.get() {
            give_back(record);
        }
        #[cfg(all(shuttle, not(loom)))]
        super::model::look();
    }
}

/// Leaves the section of this thread and enters another one, if it has one guard.
pub(super) fn enter_again(record: &Record) {
    if record.nesting.get() == 1 {
        record.section.leave();
        enter_outermost(record);
    }
}

/// Adds a call to the bag of this thread.
#[inline]
pub(super) fn defer(record: &Record, call: Deferred) {
    if record.push(call) {
        // If another thread has the queue, a later call seals the bag.
        record.try_to_seal();
        look_soon(record);
    }
}

/// Notes that calls deferred by this thread will free `bytes` of memory. If these have become many,
/// seals the bag, and has the next outermost section look after it.
#[inline]
pub(super) fn note_bytes(record: &Record, bytes: usize) {
    let held = record.held.get() + bytes;
    record.held.set(held);
    if held >= HELD_MAX {
        look_next(record);
    }
}

#[cold]
fn look_next(record: &Record) {
    record.held.set(0);
    record.has_bytes.set(true);
    record.try_to_seal();
    if record.has_waiting() {
        record.looks.set(1);
    }
}

/// Seals the bag of this thread.
pub(super) fn seal(record: &Record) {
    record.seal();
    look_soon(record);
}

fn look_soon(record: &Record) {
    if record.looks.get() == 0 && record.has_waiting() {
        record.looks.set(LOOK_EVERY);
    }
}

/// Finds or makes a record for this thread.
#[cold]
fn register() -> &'static Record {
    static FIRST: Once = Once::new();
    // In a child the `Once` may be in the state that another thread's unfinished call left.
    if !fork::is_child() {
        FIRST.call_once(|| {
            fork::watch();
            fences::register();
        });
    }
    let record = Record::take();
    record.looks.set(u32::from(record.has_waiting()));
    set_current(record);
    // A thread whose values are being dropped gives the record back when it leaves its section.
    let is_kept = GIVES_BACK.try_with(|gives_back| gives_back.0.set(Some(record))).is_ok();
    record.is_ending.set(!is_kept);
    record
}

/// The section that a thread is about to be in. A panic leaves it; only in a model does one pass.
struct Entering(&'static Record);

impl Drop for Entering {
    fn drop(&mut self) {
        leave(self.0);
    }
}

/// Counts an outermost section of a thread whose bags wait, which it is about to enter, and looks
/// after them from time to time. Returns whether the thread is in a section that must go on: work
/// that has run keeps a guard.
#[cold]
fn count_down(record: &'static Record) -> bool {
    let left = record.looks.get() - 1;
    record.looks.set(left);
    if left > 0 || fork::is_child() {
        return false;
    }
    // Before the section, which would delay the grace period that begins.
    if record.waits() {
        drive(false, Some(record));
    }
    enter_outermost(record);
    let section = Entering(record);
    let has_more = record.run_own(BAGS_MAX);
    record.looks.set(match (has_more, record.has_waiting()) {
        (true, _) => 1,
        (false, true) if record.has_bytes.get() => LOOK_EVERY_BYTES,
        (false, true) => LOOK_EVERY,
        (false, false) => 0,
    });
    if !record.has_waiting() {
        record.has_bytes.set(false);
    }
    mem::forget(section);
    record.nesting.get() > 1
}
