//! What models of concurrent code are run with, under `cfg(shuttle)`.
//!
//! # Purpose
//!
//! A model is a function that begins some threads, which share something, and asserts what must
//! hold whatever order they run in. [`check`] runs it under many schedules, one after the other.
//!
//! # Invariants
//!
//! * A schedule is all that a run depends on: its threads are on one CPU as far as they know,
//!   unless they pretend another ([`cpu::pretend`]), and what a run has deferred is done before the
//!   next begins. The collector of RCU is shared by all models of a process, which is why one runs
//!   at a time.
//! * The seed of the schedules is printed first; `VFSCALE_SEED` repeats it. A schedule that fails
//!   is printed by shuttle. A thread that sleeps for ever is a failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

use crate::{cpu, random, rcu};

/// Of each thread of a model.
const STACK_BYTES: usize = 1 << 20;

/// Changes of priority in a schedule of [`Schedules::Delays`].
const CHANGES: usize = 3;

/// Which schedules, and how many.
#[derive(Clone, Copy, Debug)]
pub enum Schedules {
    /// Threads take turns at any moment.
    Turns(usize),
    /// Few switches of threads, at moments chosen at random (PCT; Burckhardt et al. 2010): for what
    /// takes one long delay at the right moment, which schedules that switch all the time hardly
    /// ever have.
    Delays(usize),
}

/// Runs `model` under all of these schedules.
///
/// # Panics
/// When the model does, or one of its threads, or all of them sleep.
pub fn check(schedules: &[Schedules], model: impl Fn() + Send + Sync + 'static) {
    run(schedules, &[false], Arc::new(model));
}

/// As [`check`], with all patches and then without any: what the model makes is to ask
/// [`is_without_patches`].
///
/// # Panics
/// As [`check`].
pub fn check_patches(schedules: &[Schedules], model: impl Fn() + Send + Sync + 'static) {
    run(schedules, &[false, true], Arc::new(model));
}

static IS_WITHOUT: AtomicBool = AtomicBool::new(false);

/// Whether the model that runs now is to be without any of the patches.
#[must_use]
pub fn is_without_patches() -> bool {
    IS_WITHOUT.load(Ordering::Relaxed)
}

fn run(schedules: &[Schedules], without: &[bool], model: Arc<impl Fn() + Send + Sync + 'static>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = random::seed();
    for &without in without {
        println!("without patches: {without}");
        IS_WITHOUT.store(without, Ordering::Relaxed);
        for &schedules in schedules {
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
        model();
        // What was deferred belongs to this run, and must be done in it.
        rcu::synchronize();
    });
}
