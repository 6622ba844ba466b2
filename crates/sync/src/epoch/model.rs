//! The epochs in a model of shuttle: each thread of the model has sections and a bag of its own.
//!
//! The engine is that of every program. Its own steps are no steps of the model, so they cost no
//! schedules; `tests/loom/epoch.rs` explores them. Time does not pass: a grace period ends as soon
//! as no section is left that it waits for. From then on a thread of the model, which the
//! scheduler runs at any moment, makes the calls that waited. So may later sections of the thread
//! that has deferred them, as in every program.

use std::cell::Cell;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use shuttle::sync::mpsc::{self, Receiver, Sender};

use super::record::{Record, Records};
use super::{driver, record};

shuttle::thread_local! {
    /// Whether sections of this thread delay nothing.
    static IS_BLIND: Cell<bool> = Cell::new(false);
}

/// Wakes the thread that makes deferred calls.
struct Waker {
    sender: Sender<()>,
    /// Whether the thread waits for calls that are due, and was not woken.
    sleeps: bool,
}

/// The lock is the standard library's: no thread of a model is switched while it holds it.
static WAKER: Mutex<Option<Waker>> = Mutex::new(None);

fn waker() -> MutexGuard<'static, Option<Waker>> {
    WAKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets the threads of former runs: those of one that failed are in sections. Returns the
/// wakeups of the thread that makes deferred calls.
pub(crate) fn begin() -> Receiver<()> {
    driver::forget();
    record::forget();
    let (sender, wakeups) = mpsc::channel();
    mem::forget(waker().replace(Waker { sender, sleeps: false }));
    wakeups
}

/// Ends the sleep of the thread that makes deferred calls for good.
pub(crate) fn end() {
    let waker = waker().take();
    drop(waker);
}

/// Sleeps until deferred calls are due. Returns false at the end of the run.
pub(crate) fn sleep(wakeups: &Receiver<()>) -> bool {
    if let Some(waker) = &mut *waker() {
        waker.sleeps = true;
    }
    // shuttle wakes a parked thread all the time.
    wakeups.recv().is_ok()
}

/// Ends grace periods that nothing delays, and wakes the thread if calls are due. A thread of the
/// model has left its section.
pub(super) fn look() {
    // A model that has failed goes no further.
    if !std::thread::panicking() && Records::known().any(Record::has_waiting) {
        driver::drive(true, None);
        if is_due() {
            wake();
        }
    }
}

/// Returns whether deferred calls are due.
pub(crate) fn is_due() -> bool {
    Records::known().any(Record::is_due)
}

fn wake() {
    let sleeper = |waker: &mut Waker| mem::take(&mut waker.sleeps).then(|| waker.sender.clone());
    let sender = waker().as_mut().and_then(sleeper);
    if let Some(sender) = sender {
        // The thread may have ended with a run that failed.
        let _ = sender.send(());
    }
}

/// Returns whether sections of this thread delay nothing.
pub(super) fn is_blind() -> bool {
    IS_BLIND.try_with(Cell::get).unwrap_or(false)
}

/// Calls `f` as if this thread entered no section: a fault that a model has to find.
pub fn without_sections<T>(f: impl FnOnce() -> T) -> T {
    let before = IS_BLIND.with(|is| is.replace(true));
    let result = f();
    IS_BLIND.with(|is| is.set(before));
    result
}
