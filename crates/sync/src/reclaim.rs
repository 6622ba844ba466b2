//! The reclaim thread: what is too long for the call that happens to come by, and deferred work
//! when nobody calls.
//!
//! # Purpose
//!
//! Deferred work runs in whatever call enters an RCU section at the right moment. That is fine for
//! some hundred small pieces, and as long as there are calls. But the end of a file system of
//! millions of files would be one piece, inside somebody's `open`; and when a program goes idle,
//! what it freed last would stay for ever. So there is one thread for the whole process that takes
//! long work off a queue ([`submit`]) and does it a step at a time, and between steps, and every
//! few milliseconds, ends grace periods and runs what waits for them. (The kernel has kworkers for
//! the one and `rcu_gp` threads for the other.) It also gives free memory back to the system, which
//! threads in RCU sections leave to it.
//!
//! # Its life
//!
//! It starts when there is something for it to do, or when a thread of a program that uses slabs
//! has deferred a bag of work, and ends a second after the last deferred work has run. In a model,
//! under Miri, and where the system has no thread to give, it never starts: [`submit`] then gives
//! the work back to the caller, who does it himself. A model of shuttle can have one
//! (`with_thread`).
//!
//! # Invariants
//!
//! * Between two steps the thread is in no RCU section and holds no lock; no step holds a section
//!   that began in another. So however long the work, it holds grace periods up for a step at most.
//! * Work begins a grace period after it was submitted, or later: whoever was in an RCU section
//!   when it was submitted has left that.
//! * [`wait_for`] returns when the work and all that it deferred have been done.
//! * Only the thread itself ends itself, under the queue's lock and with nothing queued: what is
//!   submitted before that is seen, and what is submitted after that starts another thread.
//!
//! # Locks
//!
//! `ReclaimQueue`, a leaf. Steps run without it.

/// Work in steps. The thread runs it in no RCU section, with no lock held.
pub trait Work: Send {
    /// Does some hundred microseconds' worth of it. False when nothing is left. It may enter RCU
    /// sections and take any lock, but may neither wait for other work that is queued nor panic;
    /// what panics is not done any further, and leaked.
    fn step(&mut self) -> bool;
}

crate::lock_class! {
    /// The work that waits for the reclaim thread.
    pub ReclaimQueue = ("reclaim_queue", 65050);
}

pub(crate) use imp::attend_to_bags;
#[cfg(all(shuttle, not(loom)))]
pub use imp::with_thread;
pub use imp::{attend, settle, submit, wait_for};

#[cfg(not(any(loom, shuttle, miri)))]
mod imp {
    use std::collections::VecDeque;
    use std::mem;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, Thread};
    use std::time::Duration;

    use super::{ReclaimQueue, Work};
    use crate::lock::{Condvar, Mutex};
    use crate::shrink::{self, Effort};
    use crate::{fork, rcu};

    /// How often it looks whether a grace period has ended.
    const TICK: Duration = Duration::from_millis(10);
    /// After how many looks that found nothing it wants to be told of deferred work again: a
    /// second.
    const QUIET_MAX: u32 = 100;
    /// How many more find nothing before it ends: somebody who saw that it attends may be about to
    /// hand over what he has deferred.
    const QUIET_AFTER: u32 = 20;
    /// How many looks in a row find nothing before it waits for the next tick. The end of a grace
    /// period takes two.
    const EMPTY_MAX: u32 = 4;
    /// How often it looks for more between two steps: then there is something else to do.
    const LOOKS_MAX: u32 = 1024;
    /// Regions of free memory that it gives back at most before it looks for other work: some
    /// hundred microseconds for whole ones.
    const SHRINK_REGIONS: usize = 8;

    struct State {
        queue: VecDeque<(u64, Box<dyn Work>)>,
        /// The key of what it does at the moment.
        current: Option<u64>,
        thread: Option<Thread>,
    }

    static STATE: Mutex<State, ReclaimQueue> =
        Mutex::new(State { queue: VecDeque::new(), current: None, thread: None });
    /// Something was finished.
    static FINISHED: Condvar = Condvar::new();
    /// Whether something is queued: changes under the queue's lock, which is not taken to find that
    /// nothing is.
    static QUEUED: AtomicBool = AtomicBool::new(false);
    /// The thread is there, and will look again before it ends.
    static ATTENDS: AtomicBool = AtomicBool::new(false);

    impl State {
        fn has(&self, key: u64) -> bool {
            self.current == Some(key) || self.queue.iter().any(|(queued, _)| *queued == key)
        }

        /// Starts the thread if there is none; whether there is one now.
        fn start(&mut self) -> bool {
            if self.thread.is_none() {
                let thread = thread::Builder::new().name("vfscale-reclaim".to_owned());
                self.thread = thread.spawn(run).ok().map(|handle| handle.thread().clone());
            }
            self.thread.is_some()
        }
    }

    /// Submits `work` to the thread, after a grace period and what was submitted before. The caller
    /// may be in an RCU section and hold locks; doesn't wait.
    ///
    /// # Errors
    /// The work, if there can be no thread.
    pub fn submit(key: u64, work: Box<dyn Work>) -> Result<(), Box<dyn Work>> {
        let mut state = STATE.lock();
        if !state.start() {
            return Err(work);
        }
        state.queue.push_back((key, work));
        QUEUED.store(true, Ordering::Relaxed);
        ATTENDS.store(true, Ordering::Relaxed);
        if let Some(thread) = &state.thread {
            thread.unpark();
        }
        Ok(())
    }

    /// Waits until no work is left that was submitted under `key`, and all that it deferred is
    /// done; it is the next to be done. Returns at once if there is none, and in the thread itself.
    /// The caller is in no RCU section and holds no lock.
    pub fn wait_for(key: u64) {
        let mut state = STATE.lock();
        let me = thread::current().id();
        if state.thread.as_ref().is_some_and(|thread| thread.id() == me) {
            return;
        }
        if let Some(at) = state.queue.iter().position(|(queued, _)| *queued == key)
            && let Some(first) = state.queue.remove(at)
        {
            state.queue.push_front(first);
        }
        while state.has(key) {
            state = FINISHED.wait(state);
        }
    }

    /// Waits until all work is done that was submitted, or that what is deferred by now submits:
    /// then nothing of a file system is left whose last user has gone. For who counts or measures
    /// what comes then. The caller is in no RCU section, holds no lock, and is no work itself.
    pub fn settle() {
        // The last use of a superblock may end with the count of a dentry, a grace period after its
        // mount.
        for _ in 0..4 {
            rcu::synchronize();
            let state = STATE.lock();
            drop(
                FINISHED
                    .wait_while(state, |state| state.current.is_some() || !state.queue.is_empty()),
            );
        }
    }

    /// Says that there is deferred work, which the thread shall look after for a while. One load
    /// when it does so already; else starts it. False if there can be no thread. The caller may be
    /// in an RCU section and hold locks; doesn't wait.
    #[inline]
    pub fn attend() -> bool {
        ATTENDS.load(Ordering::Relaxed) || begin_to_attend()
    }

    #[cold]
    fn begin_to_attend() -> bool {
        // A fork child has no such thread, and the lock may be that of a thread it has not either.
        if fork::is_child() {
            return false;
        }
        let mut state = STATE.lock();
        let starts = state.start();
        ATTENDS.store(starts, Ordering::Relaxed);
        starts
    }

    /// Has the thread attend whenever a thread has deferred as much as its bag has room for. So of
    /// the deferred work of a thread that goes idle, fewer than 128 calls wait for the next call in
    /// this process, and all others are done within milliseconds of their grace period.
    pub(crate) fn attend_to_bags() {
        rcu::on_bag(|| {
            attend();
        });
    }

    fn run() {
        let mut looks = Looks { passed: Arc::new(AtomicBool::new(true)) };
        let mut quiet = 0;
        loop {
            let had_work = do_next(&mut looks);
            quiet = if looks.look() || had_work { 0 } else { quiet + 1 };
            if quiet == QUIET_MAX {
                ATTENDS.store(false, Ordering::Relaxed);
            }
            if quiet >= QUIET_MAX + QUIET_AFTER {
                if ends() {
                    return;
                }
                // A thread has asked it to attend since.
                quiet = 0;
            }
            // Written only to change it: threads that defer work read it.
            if quiet == 0 && !ATTENDS.load(Ordering::Relaxed) {
                ATTENDS.store(true, Ordering::Relaxed);
            }
            let has_more = shrink::run(Effort::All, SHRINK_REGIONS);
            if !had_work && !has_more {
                thread::park_timeout(TICK);
            }
        }
    }

    /// Does the work that is first in the queue, and what it has deferred. False if there is none.
    fn do_next(looks: &mut Looks) -> bool {
        if !QUEUED.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = STATE.lock();
        let Some((key, mut work)) = state.queue.pop_front() else { return false };
        state.current = Some(key);
        QUEUED.store(!state.queue.is_empty(), Ordering::Relaxed);
        drop(state);
        rcu::synchronize();
        // Work that has panicked is leaked: its state is unknown. Other work continues.
        shrink::expect_whole(true);
        match catch_unwind(AssertUnwindSafe(|| {
            while work.step() {
                looks.look();
                shrink::run(Effort::Whole, SHRINK_REGIONS);
            }
        })) {
            Ok(()) => drop(work),
            Err(_) => mem::forget(work),
        }
        rcu::synchronize();
        shrink::expect_whole(false);
        let mut state = STATE.lock();
        state.current = None;
        FINISHED.notify_all();
        drop(state);
        true
    }

    /// Ends the thread's part in everything, unless there is work again.
    fn ends() -> bool {
        let mut state = STATE.lock();
        let ends = state.queue.is_empty() && !ATTENDS.load(Ordering::Relaxed);
        if ends {
            state.thread = None;
        }
        ends
    }

    /// How the thread looks after deferred work.
    struct Looks {
        /// A piece of deferred work of its own has run, and no other one was deferred yet. Bags are
        /// taken in order: then all has been taken that was handed over before.
        passed: Arc<AtomicBool>,
    }

    impl Looks {
        /// Runs deferred work for as long as there is some whose grace period has ended. Whether
        /// there was any, or some is left.
        fn look(&mut self) -> bool {
            if self.passed.swap(false, Ordering::Acquire) {
                let passed = Arc::clone(&self.passed);
                rcu::pin().defer(move || passed.store(true, Ordering::Release));
            }
            let (mut ran, mut empty) = (0, 0);
            for _ in 0..LOOKS_MAX {
                let now = rcu::run_due();
                ran += now;
                empty = if now > 0 { 0 } else { empty + 1 };
                if empty == EMPTY_MAX {
                    break;
                }
            }
            // The one of its own does not count.
            ran > 1 || !self.passed.load(Ordering::Acquire)
        }
    }
}

#[cfg(all(shuttle, not(loom)))]
mod imp {
    use std::mem;
    use std::sync::{Mutex, PoisonError};

    use super::Work;
    use crate::atomic::thread::{self, JoinHandle};
    use crate::rcu;

    /// The threads that the running model has started for submitted work, and the keys of work that
    /// is not done yet.
    ///
    /// The lock is the standard library's: all threads of a model run on one thread of the system,
    /// and none is switched away from while it holds this lock.
    #[derive(Default)]
    struct State {
        threads: Vec<JoinHandle<()>>,
        pending: Vec<u64>,
    }

    static STATE: Mutex<Option<State>> = Mutex::new(None);

    /// Calls `look` with the state, if the model has a reclaim thread. `look` must not switch
    /// threads.
    fn with_state<T>(look: impl FnOnce(&mut State) -> T) -> Option<T> {
        STATE.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(look)
    }

    /// Runs a model with a reclaim thread, and then waits for all work that was submitted. Each
    /// piece of work gets a thread of its own, which is harder on the code than one thread for all
    /// of them.
    pub fn with_thread<T>(model: impl FnOnce() -> T) -> T {
        *STATE.lock().unwrap_or_else(PoisonError::into_inner) = Some(State::default());
        let result = model();
        settle();
        *STATE.lock().unwrap_or_else(PoisonError::into_inner) = None;
        result
    }

    /// Starts a thread that does `work` after a grace period.
    ///
    /// # Errors
    /// The work, if the model has no reclaim thread ([`with_thread`]).
    pub fn submit(key: u64, mut work: Box<dyn Work>) -> Result<(), Box<dyn Work>> {
        if with_state(|state| state.pending.push(key)).is_none() {
            return Err(work);
        }
        let thread = thread::spawn(move || {
            rcu::synchronize();
            while work.step() {}
            drop(work);
            rcu::synchronize();
            with_state(|state| {
                let at = state.pending.iter().position(|pending| *pending == key);
                at.map(|at| state.pending.swap_remove(at))
            });
        });
        with_state(|state| state.threads.push(thread));
        Ok(())
    }

    /// Waits until no work is left that was submitted under `key`, and all that it deferred is
    /// done.
    pub fn wait_for(key: u64) {
        while with_state(|state| state.pending.contains(&key)) == Some(true) {
            thread::yield_now();
        }
    }

    /// Waits until all work is done that was submitted, or that what is deferred by now submits.
    pub fn settle() {
        for _ in 0..4 {
            rcu::synchronize();
            let threads = with_state(|state| mem::take(&mut state.threads)).unwrap_or_default();
            for thread in threads {
                thread.join().expect("the reclaim thread does not panic");
            }
        }
    }

    /// Returns false: no thread looks after deferred work.
    #[inline]
    pub fn attend() -> bool {
        false
    }

    /// Does nothing: no thread looks after deferred work.
    pub(crate) fn attend_to_bags() {}
}

#[cfg(any(loom, all(miri, not(shuttle))))]
mod imp {
    use super::Work;

    /// Gives the work back: there is no thread.
    ///
    /// # Errors
    /// The work.
    pub fn submit(_key: u64, work: Box<dyn Work>) -> Result<(), Box<dyn Work>> {
        Err(work)
    }

    /// Returns: nothing is ever queued.
    pub fn wait_for(_key: u64) {}

    /// Waits until what is deferred by now is done, and what that defers.
    pub fn settle() {
        (0..4).for_each(|_| crate::rcu::synchronize());
    }

    /// Returns false: there is no thread.
    #[inline]
    pub fn attend() -> bool {
        false
    }

    /// Does nothing: there is no thread.
    pub(crate) fn attend_to_bags() {}
}
