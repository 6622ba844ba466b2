//! A runner of models of concurrent code, under `cfg(shuttle)`.
//!
//! # Purpose
//!
//! A model is a function that starts some threads, which share something, and asserts what must
//! hold in every order of execution. [`check`] runs it under many schedules, one after the other.
//!
//! # Invariants
//!
//! * A run depends on its schedule only: its threads are on one CPU as far as they know, unless
//!   they pretend another ([`cpu::pretend`]), and the work that a run has deferred is done before
//!   the next run begins. All models of a process share the collector of RCU, which is why one runs
//!   at a time.
//! * The seed of the schedules is printed first; `VFSCALE_SEED` repeats it. A schedule that fails
//!   is printed by shuttle. A thread that sleeps for ever is a failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

use crate::{cpu, random, rcu};

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

/// Runs `model` like [`check`], with all scaling patches and then without any; the model asks
/// [`is_without_patches`].
///
/// # Panics
/// If the model or one of its threads panics, or all of them sleep.
pub fn check_patches(schedules: &[Schedules], model: impl Fn() + Send + Sync + 'static) {
    run(schedules, &[false, true], Arc::new(model));
}

static IS_WITHOUT: AtomicBool = AtomicBool::new(false);

/// Returns whether the current model is to run without any of the scaling patches.
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
        // Work that this run has deferred must be done in it.
        rcu::synchronize();
    });
}
