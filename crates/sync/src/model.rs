//! A runner of models of concurrent code, under `cfg(shuttle)`.
//!
//! # Purpose
//!
//! A model is a function that starts some threads, which share something, and asserts what must
//! hold in every order of execution. [`check`] runs it under many schedules, one after the other.
//!
//! # Invariants
//!
//! * A run depends on its schedule only. To its threads, all of them are on one CPU, unless they
//!   pretend another ([`cpu::pretend`]). The work that a run has deferred is done before the next
//!   run begins. All models of a process share the collector of RCU, so one runs at a time.
//! * The seed of the schedules is printed first; `VFSCALE_SEED` repeats it. A schedule that fails
//!   is printed by shuttle. A thread that sleeps for ever is a failure.
//! * `VFSCALE_SCHEDULES` is the share of the schedules of every model that run, in percent (100).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::mpsc::Receiver;
use shuttle::thread::{self, JoinHandle};

use crate::epoch::model as epochs;
use crate::{cpu, random, rcu};

pub use crate::epoch::model::without_sections;

/// Stack size of each thread of a model.
const STACK_BYTES: usize = 1 << 20;

/// Number of priority changes in a schedule of [`Schedules::Delays`].
const CHANGES: usize = 3;

/// A kind of schedule, and how many to run.
#[derive(Clone, Copy, Debug)]
pub enum Schedules {
    /// Random switches of threads at any moment.
    Turns(usize),
    /// Few switches of threads, at moments chosen at random (PCT; Burckhardt et al., 2010). Finds
    /// errors that need one long delay at the right moment, which schedules with many switches
    /// hardly ever produce.
    Delays(usize),
}

/// Runs `model` under all of these schedules.
///
/// # Panics
/// If the model or one of its threads panics, or all of them sleep.
pub fn check(schedules: &[Schedules], model: impl Fn() + Send + Sync + 'static) {
    run(schedules, &[false], Arc::new(model));
}

/// Runs `model` like [`check`], with all scaling patches and then without any; the model calls
/// [`is_without_patches`].
///
/// # Panics
/// If the model or one of its threads panics, or all of them sleep.
pub fn check_patches(schedules: &[Schedules], model: impl Fn() + Send + Sync + 'static) {
    run(schedules, &[false, true], Arc::new(model));
}

/// Starts a thread of a model that owns `own`.
pub fn spawn<A: Send + 'static, T: Send + 'static>(
    own: A,
    body: impl FnOnce(A) -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::spawn(move || body(own))
}

static IS_WITHOUT: AtomicBool = AtomicBool::new(false);

/// Returns whether the current model is to run without any of the scaling patches.
pub fn is_without_patches() -> bool {
    IS_WITHOUT.load(Ordering::Relaxed)
}

/// The longest time between two readings of the clock of a model: longer than a tick of the
/// system's clock.
const STEP_NANOS_MAX: u64 = 12_000_000;

/// Number of readings of the clock in the current run.
static READINGS: AtomicU64 = AtomicU64::new(0);
/// Sum of the steps of the clock in the current run, in nanoseconds.
static ELAPSED_NANOS: AtomicU64 = AtomicU64::new(0);
/// Number of resizes of tables that have been finished in the current run.
static RESIZES: AtomicU64 = AtomicU64::new(0);

/// Returns the time of the clock that a model uses instead of the system's, in nanoseconds since
/// 1970. Each reading advances it, by up to more than a tick of the system's clock. So when a
/// thread is delayed between reading the clock and using the result, the clock is far ahead, as on
/// a busy machine.
pub fn read_clock() -> i64 {
    static START: OnceLock<u64> = OnceLock::new();
    let start = *START.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() * 1_000_000_000
    });
    let reading = READINGS.fetch_add(1, Ordering::Relaxed) + 1;
    // Fibonacci hashing: steps of all lengths, in the same order in each run.
    let step = 1 + (crate::hash::fibonacci(reading) >> 32) % STEP_NANOS_MAX;
    (start + ELAPSED_NANOS.fetch_add(step, Ordering::Relaxed) + step) as i64
}

/// Counts a resize of a table that is finished.
pub(crate) fn count_resize() {
    RESIZES.fetch_add(1, Ordering::Relaxed);
}

/// Returns how many resizes of tables have been finished in the current run. A model checks with
/// this that it forces one.
pub fn resizes() -> u64 {
    RESIZES.load(Ordering::Relaxed)
}

impl Schedules {
    /// Returns these schedules with their number reduced to `percent`, at least one.
    fn share(self, percent: usize) -> Schedules {
        let share = |count: usize| (count * percent / 100).max(1);
        match self {
            Schedules::Turns(count) => Schedules::Turns(share(count)),
            Schedules::Delays(count) => Schedules::Delays(share(count)),
        }
    }
}

/// Returns the share of the schedules to run, in percent.
///
/// # Panics
/// If the environment variable is not a number.
fn percent() -> usize {
    match std::env::var("VFSCALE_SCHEDULES") {
        Ok(text) => text.parse().expect("VFSCALE_SCHEDULES is a number of percent"),
        Err(_) => 100,
    }
}

fn run(schedules: &[Schedules], without: &[bool], model: Arc<impl Fn() + Send + Sync + 'static>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (seed, percent) = (random::seed(), percent());
    for &without in without {
        println!("without patches: {without}");
        IS_WITHOUT.store(without, Ordering::Relaxed);
        for schedules in schedules.iter().map(|schedules| schedules.share(percent)) {
            println!("{schedules:?}");
            match schedules {
                Schedules::Turns(count) => {
                    run_with(RandomScheduler::new_from_seed(seed, count), model.clone());
                }
                Schedules::Delays(count) => {
                    run_with(PctScheduler::new_from_seed(seed, CHANGES, count), model.clone());
                }
            }
        }
    }
}

fn run_with(scheduler: impl Scheduler + 'static, model: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    shuttle::Runner::new(scheduler, config).run(move || {
        let _cpu = cpu::pretend(0);
        [&READINGS, &ELAPSED_NANOS, &RESIZES].iter().for_each(|it| it.store(0, Ordering::Relaxed));
        let wakeups = epochs::begin();
        let calls = shuttle::thread::spawn(move || make_calls(&wakeups));
        model();
        // Work that this run has deferred must be done in it.
        rcu::synchronize();
        epochs::end();
        calls.join().expect("deferred calls do not panic");
    });
}

/// Makes deferred calls whenever some are due.
fn make_calls(wakeups: &Receiver<()>) {
    loop {
        while epochs::is_due() {
            rcu::pin().flush();
        }
        if !epochs::sleep(wakeups) {
            return;
        }
    }
}
