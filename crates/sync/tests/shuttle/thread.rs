//! The threads and the clock of the worker pool in a model, in place of those of the crate.
//!
//! Short sleeps end after a turn of the other threads, and the clock goes on by that time. A dice
//! decides whether a long sleep does, too, or lasts until it is ended: then a wake-up that is lost
//! leaves threads that sleep for ever, which fails the model.

use std::cell::RefCell;
use std::io;
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{JoinHandle, yield_now};

/// The shortest sleep that may last for ever.
const LONG: Duration = Duration::from_millis(100);

/// The time of a reading of the clock.
const READING: Duration = Duration::from_micros(1);

shuttle::thread_local! {
    static ME: RefCell<Option<Thread>> = RefCell::new(None);
}

shuttle::lazy_static! {
    static ref WORLD: World = World::default();
}

/// The state of a run. Neither its atomics nor its lock are steps of the model.
#[derive(Default)]
struct World {
    nanos: AtomicU64,
    threads: std::sync::Mutex<Vec<JoinHandle<()>>>,
    forgets: AtomicBool,
}

/// A time of the model's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        let step = READING.as_nanos() as u64;
        Self(Duration::from_nanos(WORLD.nanos.fetch_add(step, Ordering::Relaxed)))
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

/// A thread of the pool.
#[derive(Clone)]
pub(crate) struct Thread(Arc<Sleep>);

#[derive(Default)]
struct Sleep {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    is_woken: bool,
    sleeps: bool,
}

impl Thread {
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Wakes the thread, or has its next sleep end at once.
    pub(crate) fn unpark(&self) {
        let mut state = self.0.state.lock().unwrap();
        if state.sleeps || !WORLD.forgets.load(Ordering::Relaxed) {
            state.is_woken = true;
            self.0.woken.notify_one();
        }
    }

    /// Returns this, as the standard library's handle of a thread does.
    pub(crate) fn thread(&self) -> &Self {
        self
    }
}

pub(crate) fn current() -> Thread {
    ME.with(|me| me.borrow().clone()).expect("a thread of the pool")
}

pub(crate) fn park() {
    let me = current();
    let mut state = me.0.state.lock().unwrap();
    state.sleeps = true;
    while !state.is_woken {
        state = me.0.woken.wait(state).unwrap();
    }
    *state = State::default();
}

pub(crate) fn park_timeout(time: Duration) {
    let end = Instant::now() + time;
    if time >= LONG && thread_rng().gen_bool(0.5) {
        return park();
    }
    yield_now();
    WORLD.nanos.fetch_max(end.0.as_nanos() as u64, Ordering::Relaxed);
    current().0.state.lock().unwrap().is_woken = false;
}

/// Starts a thread.
pub(crate) fn spawn(_name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let thread = Thread(Arc::default());
    let me = thread.clone();
    let handle = shuttle::thread::spawn(move || {
        ME.with(|of_thread| of_thread.replace(Some(me)));
        body();
    });
    WORLD.threads.lock().unwrap().push(handle);
    Ok(thread)
}

/// Waits until all threads of the pool have ended, and returns their number.
pub(crate) fn join_all() -> usize {
    let next = || WORLD.threads.lock().unwrap().pop();
    std::iter::from_fn(next).map(|thread| thread.join().unwrap()).count()
}

/// Has threads forget a wake-up that comes before they sleep: a fault that a model has to find.
pub(crate) fn forget_early_wakeups() {
    WORLD.forgets.store(true, Ordering::Relaxed);
}
