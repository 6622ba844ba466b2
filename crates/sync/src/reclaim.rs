//! The reclaim thread: it does work that is too long for an arbitrary call, and the deferred work
//! of a process that makes no calls.
//!
//! # Purpose
//!
//! Deferred work runs in any call that enters an RCU section at the right moment. That suffices for
//! some hundred short items, and while the process makes calls. But the end of a file system of
//! millions of files would be one item, inside an unrelated `open`; and when a program becomes
//! idle, the memory that it freed last would never be released. So one thread for the whole process
//! takes long work off a queue ([`submit`]) and does it in steps. Between steps, and every few
//! milliseconds, it ends grace periods and runs the work that waits for them. (The kernel has
//! kworkers for the former and `rcu_gp` threads for the latter.) It also returns free memory to the
//! system, which threads in RCU sections leave to it.
//!
//! # Lifetime
//!
//! The thread starts when it has work, when a thread of a program that uses slabs has deferred a
//! bag of work, or when the page pool retains much free memory. It ends a second after the last
//! deferred work has run, or later if free memory still decays (`shrink`): then it wakes once a
//! second, for some seconds. In a model, under Miri, and if the system can't create a thread, it
//! never starts: [`submit`] then returns the work to the caller, which does it itself. A model of
//! shuttle can have a reclaim thread (`with_thread`).
//!
//! # Invariants
//!
//! * Between two steps the thread is in no RCU section and holds no lock; no section that begins in
//!   a step outlasts it. So work of any length delays grace periods by one step at most.
//! * Work begins at least a grace period after it was submitted: every thread that was in an RCU
//!   section at that moment has left it.
//! * A panic ends the work or the deferred call that panics, and nothing else.
//! * [`wait_for`] returns when the work, and everything that the work deferred, is done.
//! * Only the thread itself decides to end, under the queue's lock and with an empty queue: it sees
//!   work that was submitted before that, and work that is submitted after that starts another
//!   thread.
//!
//! # Locks
//!
//! `ReclaimQueue`, a leaf. Steps run without it.

/// Work in steps. The thread runs it in no RCU section, with no lock held.
pub trait Work: Send {
    /// Does some hundred microseconds of the work. Returns false when nothing is left. May enter
    /// RCU sections and take any lock, but may neither wait for other queued work nor panic; work
    /// that panics is not continued, and is leaked.
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
    use std::mem::{self, ManuallyDrop};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, Thread};
    use std::time::Duration;

    use super::{ReclaimQueue, Work};
    use crate::caught::survives;
    use crate::lock::{Condvar, Mutex};
    use crate::shrink::{self, Effort, WINDOW, Windows};
    use crate::thread::spawn;
    use crate::{fork, rcu};

    /// The interval at which the thread checks whether a grace period has ended.
    const TICK: Duration = Duration::from_millis(10);
    /// The number of checks that find no work, a second's, after which threads have to announce
    /// deferred work again.
    const QUIET_MAX: u32 = 100;
    /// The number of further checks that find no work before the thread ends: a thread that has
    /// read `ATTENDS` may be about to hand over the work that it has deferred.
    const QUIET_AFTER: u32 = 20;
    /// The number of consecutive calls of `run_due` that run nothing before the thread waits for
    /// the next tick. The end of a grace period takes two.
    const EMPTY_MAX: u32 = 4;
    /// The maximum number of calls of `run_due` between two steps, because the thread has other
    /// work to do.
    const LOOKS_MAX: u32 = 1024;
    /// The maximum number of regions of free memory that the thread returns before it checks for
    /// other work: some hundred microseconds for whole regions.
    const SHRINK_REGIONS: usize = 8;

    struct State {
        queue: VecDeque<(u64, Box<dyn Work>)>,
        /// The key of the work that the thread is doing.
        current: Option<u64>,
        thread: Option<Thread>,
    }

    static STATE: Mutex<State, ReclaimQueue> =
        Mutex::new(State { queue: VecDeque::new(), current: None, thread: None });
    /// Notified when work is finished.
    static FINISHED: Condvar = Condvar::new();
    /// Whether work is queued. Written under the queue's lock, and read without it, so an empty
    /// queue costs no lock.
    static QUEUED: AtomicBool = AtomicBool::new(false);
    /// Whether the thread exists, and will check again before it ends.
    static ATTENDS: AtomicBool = AtomicBool::new(false);

    impl State {
        fn has(&self, key: u64) -> bool {
            self.current == Some(key) || self.queue.iter().any(|(queued, _)| *queued == key)
        }

        /// Starts the thread if there is none. Returns whether there is one now.
        fn start(&mut self) -> bool {
            if self.thread.is_none() {
                let thread = spawn("vfscale-reclaim", run);
                self.thread = thread.ok().map(|handle| handle.thread().clone());
            }
            self.thread.is_some()
        }
    }

    /// Submits `work` to the thread, which does it after a grace period and after work that was
    /// submitted before. The caller may be in an RCU section and hold locks. Does not wait. In a
    /// [fork] child the work is leaked, like deferred work.
    ///
    /// # Errors
    /// The work, if no thread can be started.
    pub fn submit(key: u64, work: Box<dyn Work>) -> Result<(), Box<dyn Work>> {
        if fork::is_child() {
            mem::forget(work);
            return Ok(());
        }
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

    /// Waits until no work is left that was submitted under `key`, and everything that this work
    /// deferred is done. The thread does this work next. Returns immediately if there is none, or
    /// if the caller is the thread itself, or in a [fork] child, in which nothing is done. The
    /// caller is in no RCU section and holds no lock.
    pub fn wait_for(key: u64) {
        // The lock may be held by a thread that does not exist in the child.
        if fork::is_child() {
            return;
        }
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

    /// Waits until all work is done that was submitted, or that calls deferred so far submit. After
    /// that nothing is left of a file system that its last user has released. For callers that
    /// count or measure the state after that. The caller is in no RCU section, holds no lock, and
    /// is not itself work of the thread.
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

    /// Announces deferred work, for which the thread will check for a while. Costs one load if the
    /// thread does so already; otherwise starts it. Returns false if no thread can be started. The
    /// caller may be in an RCU section and hold locks. Does not wait.
    #[inline]
    pub fn attend() -> bool {
        ATTENDS.load(Ordering::Relaxed) || begin_to_attend()
    }

    #[cold]
    fn begin_to_attend() -> bool {
        // A fork child has no such thread, and the lock may be held by a thread that does not exist
        // in the child.
        if fork::is_child() {
            return false;
        }
        let mut state = STATE.lock();
        let starts = state.start();
        ATTENDS.store(starts, Ordering::Relaxed);
        // The thread may sleep for a window.
        if let Some(thread) = &state.thread {
            thread.unpark();
        }
        starts
    }

    /// Makes each thread call [`attend`] whenever it has deferred as many calls as its bag has room
    /// for. So when a thread becomes idle, fewer than 128 of its deferred calls wait for the next
    /// call in this process, and all others run within milliseconds of their grace period. From
    /// then on the thread also does long deferred work.
    pub(crate) fn attend_to_bags() {
        rcu::on_bag(|| {
            attend();
        });
        rcu::on_long(|work| match submit(0, Box::new(Once(Some(work)))) {
            Ok(()) => None,
            Err(mut work) => Some(Box::new(move || while work.step() {})),
        });
    }

    /// A function that is work of one step.
    struct Once(Option<Box<dyn FnOnce() + Send>>);

    impl Work for Once {
        fn step(&mut self) -> bool {
            if let Some(work) = self.0.take() {
                work();
            }
            false
        }
    }

    fn run() {
        let mut looks = Looks { passed: Arc::new(AtomicBool::new(true)) };
        let mut windows = Windows::new();
        let mut quiet = 0;
        loop {
            let had_work = do_next(&mut looks);
            quiet = if looks.look() || had_work { 0 } else { quiet + 1 };
            if quiet == QUIET_MAX {
                ATTENDS.store(false, Ordering::Relaxed);
            }
            let mut is_over = quiet >= QUIET_MAX + QUIET_AFTER;
            if is_over {
                if !shrink::decays() && ends() {
                    return;
                }
                // Another thread may have called `attend` since then.
                is_over = !ATTENDS.load(Ordering::Relaxed);
                quiet = if is_over { quiet } else { 0 };
            }
            // Written only to change it, because threads that defer work read it.
            if quiet == 0 && !ATTENDS.load(Ordering::Relaxed) {
                ATTENDS.store(true, Ordering::Relaxed);
            }
            windows.look();
            let has_more = shrink::run(Effort::All, SHRINK_REGIONS);
            if !had_work && !has_more {
                // Only the decay of free memory is left to wait for.
                thread::park_timeout(if is_over { WINDOW } else { TICK });
            }
        }
    }

    /// Does the first work in the queue, and everything that this work has deferred. Returns false
    /// if the queue is empty.
    fn do_next(looks: &mut Looks) -> bool {
        if !QUEUED.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = STATE.lock();
        let Some((key, work)) = state.queue.pop_front() else { return false };
        state.current = Some(key);
        QUEUED.store(!state.queue.is_empty(), Ordering::Relaxed);
        drop(state);
        rcu::synchronize();
        shrink::expect_whole(true);
        // Work that has panicked is leaked: its state is unknown. Other work continues.
        let mut work = ManuallyDrop::new(work);
        survives(|| {
            while work.step() {
                looks.look();
                shrink::run(Effort::Whole, SHRINK_REGIONS);
            }
            drop(ManuallyDrop::into_inner(work));
        });
        rcu::synchronize();
        shrink::expect_whole(false);
        let mut state = STATE.lock();
        state.current = None;
        FINISHED.notify_all();
        drop(state);
        true
    }

    /// Deregisters the thread, which then ends, unless there is work again. Returns whether it did.
    fn ends() -> bool {
        let mut state = STATE.lock();
        let ends = state.queue.is_empty() && !ATTENDS.load(Ordering::Relaxed);
        if ends {
            state.thread = None;
        }
        ends
    }

    /// The thread's checks for deferred work.
    struct Looks {
        /// Whether the thread's last marker, a deferred call of its own, has run, and it has not
        /// deferred another one yet. Bags are taken in order: then all bags have been taken that
        /// were handed over before the marker.
        passed: Arc<AtomicBool>,
    }

    impl Looks {
        /// Runs deferred work for as long as there is some whose grace period has ended. Returns
        /// whether there was any, or some is left.
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
            // The marker does not count.
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
    /// and the model never switches from a thread that holds this lock.
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
    /// item of work gets a thread of its own, a harder test of the code than one thread for all of
    /// them.
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

    /// Waits until no work is left that was submitted under `key`, and everything that this work
    /// deferred is done.
    pub fn wait_for(key: u64) {
        while with_state(|state| state.pending.contains(&key)) == Some(true) {
            thread::yield_now();
        }
    }

    /// Waits until all work is done that was submitted, or that calls deferred so far submit.
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

    /// Returns the work, because there is no thread.
    ///
    /// # Errors
    /// The work.
    pub fn submit(_key: u64, work: Box<dyn Work>) -> Result<(), Box<dyn Work>> {
        Err(work)
    }

    /// Returns immediately, because no work is ever queued.
    pub fn wait_for(_key: u64) {}

    /// Waits until the calls deferred so far are done, and the calls that these defer.
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
