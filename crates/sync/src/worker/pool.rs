//! The worker threads of the process, and the thread that has their timers.
//!
//! # Purpose
//!
//! Idle threads are few, and cost nothing: a worker that finds no item for [`IDLE`] ends. The timer
//! thread exists while there are items, and sleeps until the next timer is due; without a timer it
//! sleeps until there is one. So a process whose items are idle has one thread, whatever their
//! number.
//!
//! A thread inherits the CPUs that it may use from the thread that starts it. Items are queued by
//! threads that may be pinned to one CPU, and a worker serves all volumes; so the timer thread
//! starts the workers. It has the CPUs of the thread that made the first item.
//!
//! # Invariants
//!
//! * `coming` counts the threads that were woken or started and have not looked at the queues yet.
//!   As long as the system gives threads, there are at least as many as the queued items that
//!   should have one ([`Pool::needed`]): every change of a queue is followed by [`Pool::summon`]. A
//!   thread that ends a run looks, too, and may be first; then one that comes finds nothing.
//! * The timer thread wakes by `wakes_at`. It starts threads, and looks at timers, at items that
//!   wait for too long, and at threads that are missing.
//! * All of it ends when the last item is cancelled. The lock is a leaf, and no thread holds it
//!   while it runs or queues an item.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::item::{Item, Priority};
use crate::lock::{Mutex, MutexGuard};
use crate::thread::{self, Instant, Thread, spawn};
use crate::{cpu, lock_class};

lock_class! {
    /// The queues of work items, and the threads that serve them.
    pub WorkerPool = ("worker_pool", 64710);
}

/// The time after which a thread that has found no item ends.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// The time after which another thread takes a normal item, if no run has ended.
pub(super) const STALL: Duration = Duration::from_millis(10);

struct Pool {
    /// Items that get a thread at once.
    high: VecDeque<Arc<dyn Item>>,
    /// Other items, in the order of arrival.
    normal: VecDeque<Arc<dyn Item>>,
    /// Number of runs of `normal_active` that have ended since `looked_at`.
    ended: usize,
    /// When the timer thread last looked whether runs end.
    looked_at: Option<Instant>,
    /// Number of runs that were taken from `normal`.
    normal_active: usize,
    coming: usize,
    /// Threads that sleep until there is an item, the latest at the end.
    idle: Vec<Thread>,
    /// Number of threads that the timer thread has to start; they are coming.
    to_start: usize,
    /// The items with a timer, by address.
    timers: BTreeMap<usize, Timer>,
    /// Number of items that are not cancelled.
    items: usize,
    timer_thread: Option<Thread>,
    /// When the timer thread wakes at the latest; `None`: when it is woken.
    wakes_at: Option<Instant>,
}

#[cfg(not(shuttle))]
static POOL: Mutex<Pool, WorkerPool> = Mutex::new(Pool::new());

#[cfg(shuttle)]
shuttle::lazy_static! {
    /// The pool of a run of a model.
    static ref POOL: Mutex<Pool, WorkerPool> = Mutex::new(Pool::new());
}

/// An item that is to be queued between two times.
struct Timer {
    earliest: Instant,
    latest: Instant,
    item: Arc<dyn Item>,
}

/// An item that a thread has taken, and whether it counts as a normal run.
type Taken = (Arc<dyn Item>, bool);

/// Returns the number of normal runs beyond which items wait for their turn, and of idle threads.
pub(super) fn normal_max() -> usize {
    1 + 2 * cpu::most_slots() as usize
}

impl Pool {
    const fn new() -> Self {
        Pool {
            high: VecDeque::new(),
            normal: VecDeque::new(),
            ended: 0,
            looked_at: None,
            normal_active: 0,
            coming: 0,
            idle: Vec::new(),
            to_start: 0,
            timers: BTreeMap::new(),
            items: 0,
            timer_thread: None,
            wakes_at: None,
        }
    }

    /// Returns the number of queued items that should have a thread.
    fn needed(&self) -> usize {
        let free = normal_max().saturating_sub(self.normal_active);
        self.high.len() + self.normal.len().min(free)
    }

    /// Wakes threads for queued items, or has the timer thread start some.
    fn summon(&mut self) {
        while self.coming < self.needed() {
            match self.idle.pop() {
                Some(thread) => thread.unpark(),
                None => self.to_start += 1,
            }
            self.coming += 1;
        }
        if self.to_start > 0 {
            self.wake_timer_by(Instant::now());
        } else if self.is_behind() {
            self.wake_timer_by(Instant::now() + STALL);
        }
    }

    /// Starts the threads that were asked for. Those that the system refuses do not come.
    fn start_threads(&mut self) {
        for _ in 0..std::mem::take(&mut self.to_start) {
            if spawn("vfscale-worker", work).is_err() {
                self.coming -= 1;
            }
        }
    }

    /// Returns whether items are queued for which no thread comes.
    fn is_behind(&self) -> bool {
        self.coming < self.high.len() + self.normal.len()
    }

    /// Has the timer thread wake at a time, if it would sleep longer. Starts it if there is none.
    fn wake_timer_by(&mut self, at: Instant) {
        self.start_timer_thread();
        if self.wakes_at.is_none_or(|wakes_at| at < wakes_at)
            && let Some(thread) = &self.timer_thread
        {
            self.wakes_at = Some(at);
            thread.unpark();
        }
    }

    /// Starts the timer thread if there is none. If the system refuses, a later call tries again.
    fn start_timer_thread(&mut self) {
        if self.timer_thread.is_none() {
            let thread = spawn("vfscale-timer", keep_time);
            self.timer_thread = thread.ok().map(|handle| handle.thread().clone());
        }
    }

    fn take(&mut self) -> Option<Taken> {
        if let Some(item) = self.high.pop_front() {
            return Some((item, false));
        }
        if self.normal_active >= normal_max() {
            return None;
        }
        let item = self.normal.pop_front()?;
        self.normal_active += 1;
        Some((item, true))
    }

    /// Treats the first normal item like one of high priority, if no run has ended for [`STALL`]
    /// while it waited.
    fn promote(&mut self, now: Instant) {
        if self.normal.is_empty() {
            self.looked_at = None;
            return;
        }
        let since = *self.looked_at.get_or_insert(now);
        if since == now {
            self.ended = 0;
        } else if now.saturating_duration_since(since) >= STALL {
            self.looked_at = Some(now);
            if std::mem::take(&mut self.ended) == 0 {
                self.high.extend(self.normal.pop_front());
            }
        }
    }

    /// Removes and returns the items that may be queued now.
    fn take_due(&mut self, now: Instant) -> Vec<Arc<dyn Item>> {
        let due = self.timers.extract_if(.., |_, timer| timer.earliest <= now);
        due.map(|(_, timer)| timer.item).collect()
    }
}

/// The runs of an item, which belong to no thread.
pub(super) struct Runs;

impl Runs {
    pub(super) fn new() -> Self {
        Self
    }

    /// Queues a run.
    pub(super) fn start(&self, item: Arc<dyn Item>, priority: Priority) {
        let mut pool = POOL.lock();
        match priority {
            Priority::High => pool.high.push_back(item),
            Priority::Normal => pool.normal.push_back(item),
        }
        pool.summon();
    }

    /// Does nothing: a thread does not end with its run.
    pub(super) fn join_others(&self) {}

    /// Sets the timer of an item.
    pub(super) fn set_timer(&self, item: Arc<dyn Item>, earliest: Instant, latest: Instant) {
        let mut pool = POOL.lock();
        let former = pool.timers.insert(key_of(&*item), Timer { earliest, latest, item });
        pool.wake_timer_by(latest);
        drop(pool);
        drop(former);
    }

    /// Removes the timer of an item.
    pub(super) fn clear_timer(&self, item: &dyn Item) {
        let former = POOL.lock().timers.remove(&key_of(item));
        drop(former);
    }
}

fn key_of(item: &dyn Item) -> usize {
    std::ptr::from_ref(item).addr()
}

/// Counts an item.
pub(super) fn add() {
    let mut pool = POOL.lock();
    pool.items += 1;
    pool.start_timer_thread();
}

/// Counts an item that was cancelled. The threads end with the last one.
pub(super) fn remove() {
    let mut pool = POOL.lock();
    pool.items -= 1;
    if pool.items == 0 {
        pool.idle.iter().chain(&pool.timer_thread).for_each(Thread::unpark);
    }
}

/// Runs a worker thread.
fn work() {
    let mut pool = POOL.lock();
    pool.coming -= 1;
    loop {
        if let Some((item, is_normal)) = pool.take() {
            drop(pool);
            item.execute();
            pool = POOL.lock();
            pool.normal_active -= usize::from(is_normal);
            pool.ended += usize::from(is_normal);
            continue;
        }
        if pool.items == 0 || pool.idle.len() >= normal_max() {
            return;
        }
        pool.idle.push(thread::current());
        drop(pool);
        match sleep() {
            Some(woken) => pool = woken,
            None => return,
        }
    }
}

/// Sleeps until there is an item, and returns the locked pool; `None`: the thread has to end.
fn sleep() -> Option<MutexGuard<'static, Pool, WorkerPool>> {
    let (me, end) = (thread::current().id(), Instant::now() + IDLE);
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        thread::park_timeout(rest);
        let mut pool = POOL.lock();
        let Some(at) = pool.idle.iter().position(|thread| thread.id() == me) else {
            pool.coming -= 1;
            return Some(pool);
        };
        if pool.items == 0 || Instant::now() >= end {
            pool.idle.remove(at);
            return None;
        }
    }
}

/// Runs the timer thread.
fn keep_time() {
    let mut pool = POOL.lock();
    loop {
        let now = Instant::now();
        // This thread does not wake itself.
        pool.wakes_at = Some(now);
        pool.start_threads();
        if pool.items == 0 && !pool.is_behind() {
            (pool.timer_thread, pool.wakes_at) = (None, None);
            let of_cancelled = std::mem::take(&mut pool.timers);
            drop(pool);
            drop(of_cancelled);
            return;
        }
        let due = pool.take_due(now);
        if !due.is_empty() {
            drop(pool);
            due.into_iter().for_each(Item::queue);
            pool = POOL.lock();
            continue;
        }
        pool.promote(now);
        pool.summon();
        pool.start_threads();
        let stall = pool.is_behind().then(|| now + STALL);
        let timer = pool.timers.values().map(|timer| timer.latest).min();
        pool.wakes_at = stall.into_iter().chain(timer).min();
        let rest = pool.wakes_at.map(|at| at.saturating_duration_since(now));
        drop(pool);
        match rest {
            Some(rest) => thread::park_timeout(rest),
            None => thread::park(),
        }
        pool = POOL.lock();
    }
}
