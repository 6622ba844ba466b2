//! Runs scripts on a device of which one call fails, for every call that there is.
//!
//! # What is promised
//!
//! A call of the script returns what it would have, or an error that says that the device has failed. Nothing
//! panics or waits for ever. When the device is well again, the volume opens, and everything that a
//! successful `fsync` or `sync` had covered is there. Of a call that has failed, the effect is there or not.
//! When a sync fails, data may have been given up for good: then later syncs promise nothing about what was
//! written before, as in Linux.
//!
//! The same holds if power fails after the error ([`Faults::run_and_cut`]). Then the error is the worst there
//! is: a flush that fails loses what it should have covered, for good, and a write leaves a part or garbage.
//!
//! # How a failure is judged
//!
//! By models, of which one has to explain the tree: with each call that has failed or without it. What a
//! failed call changes of data may be changed in part.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfscale::Errno;
use vfscale_block::{CowDevice, CrashState, Device, Fault, FaultyDevice, Operation, OsError};
use vfscale_sync::random::Random;

use crate::history::History;
use crate::op::Op;
use crate::scripts::{Script, setup};
use crate::subject::{Disk, Lost, Opened, Subject};
use crate::sweep::{Recorded, Violation, disks, prepare, recording, recover, sample_from};
use crate::tree::Tree;
use crate::verdict;

/// Which calls of the device fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Only one.
    One,
    /// One, and all of its kind that follow.
    Rest,
}

/// What goes wrong before a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Worst {
    /// The flush with this number, from 1, fails, and what it should have covered is gone; later flushes
    /// succeed, or fail as well.
    Flush(u64, Extent),
    /// The write with this number fails, and its first half arrives.
    Write(u64, Extent),
    /// The write with this number of those that touch these bytes fails, and leaves garbage.
    Garbage(u64, std::ops::Range<u64>),
}

/// A subject, and an image of it with the tree that every script finds.
pub struct Faults<'a> {
    subject: &'a dyn Subject,
    base: Disk,
}

type Faulty = Arc<FaultyDevice<Arc<CowDevice>>>;

impl<'a> Faults<'a> {
    /// Makes the image, on one device of so many bytes.
    ///
    /// # Errors
    /// If the subject can't do even that.
    pub fn new(subject: &'a dyn Subject, device_bytes: u64) -> Result<Self, String> {
        let base = prepare(subject, device_bytes)?.swap_remove(0);
        Ok(Self { subject, base })
    }

    fn device(&self) -> Faulty {
        Arc::new(FaultyDevice::new(Arc::new(CowDevice::new(self.base.clone()))))
    }

    /// How many calls of a kind a script makes, from the opening to the end.
    ///
    /// # Errors
    /// If it does not work without any fault.
    pub fn calls(&self, script: &Script, operation: Operation) -> Result<u64, String> {
        let device = self.device();
        self.run_and_judge(script, &device)?;
        Ok(device.calls(operation))
    }

    /// Runs a script with the `n`-th call of a kind failing. Whether it has come to that.
    ///
    /// # Errors
    /// What must not be.
    pub fn run(
        &self,
        script: &Script,
        (operation, n, extent): (Operation, u64, Extent),
    ) -> Result<bool, Violation> {
        let device = self.device();
        let fault = Fault::on(operation);
        device.arm(match extent {
            Extent::One => fault.nth(n),
            Extent::Rest => fault.from(n),
        });
        match caught(|| self.run_and_judge(script, &device)) {
            Ok(()) => Ok(device.fired() > 0),
            Err(why) => {
                let why = format!("{operation} {n} failed ({extent:?}): {why}");
                Err(Violation { script: script.clone(), state: None, why })
            }
        }
    }

    fn run_and_judge(&self, script: &Script, device: &Faulty) -> Result<(), String> {
        let disk: Disk = device.clone();
        let outcomes = match self.subject.open(slice::from_ref(&disk)) {
            Ok(opened) => play(opened, &script.ops, &**device, &|| {})?,
            Err(_) if device.fired() > 0 => Vec::new(),
            Err(why) => return Err(format!("not opened: {why}")),
        };
        // From here on the device is well.
        let image: Disk = device.inner().clone();
        let judge = |tree: &Tree| judge(&script.ops, &outcomes, outcomes.len(), tree).map(|()| 0);
        recover(self.subject, slice::from_ref(&image), judge, false)
            .map_err(|why| format!("reopened: {why}"))
    }

    /// Where the file system can do without what is there, in bytes: garbage may be left there.
    #[must_use]
    pub fn may_be_garbage(&self) -> Vec<std::ops::Range<u64>> {
        let lost: Vec<Lost> = self.subject.may_be_lost(slice::from_ref(&self.base));
        lost.into_iter().map(|(_, range)| range).collect()
    }

    /// Runs a script on a device on which something goes wrong, and looks at some of the states that a power
    /// cut might have left since. Gives how many; none if it did not come to that.
    ///
    /// # Errors
    /// What must not be.
    pub fn run_and_cut(
        &self,
        script: &Script,
        worst: &Worst,
        states: usize,
        random: &mut Random,
    ) -> Result<usize, Violation> {
        let mut at = None;
        let cut = caught(|| self.run_and_cut_inner(script, worst, states, random, &mut at));
        cut.map_err(|why| {
            let why = format!("{worst:?} failed, then power: {why}");
            Violation { script: script.clone(), state: at, why }
        })
    }

    fn run_and_cut_inner(
        &self,
        script: &Script,
        worst: &Worst,
        states: usize,
        random: &mut Random,
        at: &mut Option<vfscale_block::CrashId>,
    ) -> Result<usize, String> {
        let recorded = recording(slice::from_ref(&self.base)).swap_remove(0);
        let device = Arc::new(FaultyDevice::new(recorded.clone()));
        let failed_at = arm(&device, worst);
        let disk: Disk = device.clone();
        let mark = || {
            recorded.mark("");
        };
        let outcomes = match self.subject.open(slice::from_ref(&disk)) {
            Ok(opened) => play(opened, &script.ops, &*device, &mark)?,
            Err(_) if device.fired() > 0 => Vec::new(),
            Err(why) => return Err(format!("not opened: {why}")),
        };
        if device.fired() == 0 {
            return Ok(0);
        }
        let first = failed_at.load(Ordering::Relaxed);
        let mut looked = 0;
        for state in sample_from(&recorded, first, (states, &[]), random) {
            looked += 1;
            *at = Some(state.id());
            self.look(script, &outcomes, &state)?;
        }
        Ok(looked)
    }

    /// Recovers a state of a device that is well again.
    fn look(
        &self,
        script: &Script,
        outcomes: &[Result<(), Errno>],
        state: &CrashState,
    ) -> Result<(), String> {
        let done = state.marks().min(outcomes.len());
        let judge = |tree: &Tree| judge(&script.ops, outcomes, done, tree).map(|()| 0);
        recover(self.subject, &disks(state), judge, false)
            .map_err(|why| format!("{done} calls had returned: {why}"))
    }
}

/// Prepares what goes wrong. Gives where it is noted how many lines the log had when it did.
fn arm(device: &Arc<FaultyDevice<Recorded>>, worst: &Worst) -> Arc<AtomicUsize> {
    let first = Arc::new(AtomicUsize::new(usize::MAX));
    let (noted, recorded) = (first.clone(), device.inner().clone());
    let is_flush = matches!(worst, Worst::Flush(..));
    let hook = move || {
        noted.fetch_min(recorded.log_len(), Ordering::Relaxed);
        if is_flush {
            recorded.forget();
        }
    };
    let when = |fault: Fault, n, extent| match extent {
        Extent::One => fault.nth(n),
        Extent::Rest => fault.from(n),
    };
    let fault = match worst {
        Worst::Flush(n, extent) => when(Fault::on(Operation::Flush), *n, *extent),
        Worst::Write(n, extent) => when(Fault::on(Operation::Write), *n, *extent),
        Worst::Garbage(n, range) => Fault::on(Operation::Write).within(range.clone()).nth(*n),
    };
    device.arm(fault.clone().run(hook));
    device.arm(match worst {
        Worst::Flush(..) => fault.fail(OsError::IO),
        Worst::Write(..) => fault.tear(TORN_BYTES),
        Worst::Garbage(..) => fault.garble(),
    });
    first
}

/// How much of a write that fails arrives, in bytes, at most.
const TORN_BYTES: u64 = 2048;

/// A panic is an error, too.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_else(|| "of no words".into())))
    })
}

/// Makes the calls, and closes. `returned` hears of each that has returned.
fn play<D: Device>(
    opened: Box<dyn Opened>,
    ops: &[Op],
    device: &FaultyDevice<D>,
    returned: &dyn Fn(),
) -> Result<Vec<Result<(), Errno>>, String> {
    let task = opened.vfs().task();
    let calls = ops.iter().filter(|op| **op != Op::Close);
    let run = |op: &Op| {
        let outcome = op.run(&task).and_then(|()| opened.done(op));
        returned();
        outcome
    };
    let mut outcomes: Vec<_> = calls.map(run).collect();
    drop(task);
    let closed = opened.close();
    returned();
    match closed {
        Ok(()) => outcomes.push(Ok(())),
        Err(_) if device.fired() > 0 => outcomes.push(Err(Errno::IO)),
        Err(why) => return Err(format!("not closed: {why}")),
    }
    Ok(outcomes)
}

/// How many of the failed calls are taken each for itself to have had an effect or none; the others are taken
/// together.
const CHOICES: usize = 5;

/// Whether the tree is what calls with these outcomes may have left, of which the first `done` had returned
/// and no more than one other had begun.
fn judge(
    ops: &[Op],
    outcomes: &[Result<(), Errno>],
    done: usize,
    tree: &Tree,
) -> Result<(), String> {
    let begun = outcomes.len().min(done + 1);
    let (ops, outcomes) = (&ops[..begun], &outcomes[..begun]);
    // Some part of a change of data may be none of it.
    let has_choice = |(op, outcome): &(&Op, &Result<(), Errno>)| {
        failed(outcome) && !op.is_sync() && !op.is_of_data()
    };
    let choices = ops.iter().zip(outcomes).filter(has_choice).count().min(CHOICES + 1);
    let mut complaints = Vec::new();
    for choice in likely_first(choices) {
        let mut nth = 0;
        let mut counts = |(op, outcome): &(&Op, &Result<(), Errno>)| {
            if !has_choice(&(op, outcome)) {
                return true;
            }
            nth += 1;
            choice >> (nth - 1).min(CHOICES) & 1 == 1
        };
        let calls = ops.iter().zip(outcomes).enumerate().filter(|(_, call)| counts(call));
        let calls: Vec<(usize, (Op, _))> =
            calls.map(|(at, (op, outcome))| (at, (op.clone(), *outcome))).collect();
        let returned = calls.iter().filter(|(at, _)| *at < done).count();
        let (kept, results): (Vec<Op>, Vec<_>) = calls.into_iter().map(|(_, call)| call).unzip();
        match explains(&kept, &results, returned, tree) {
            Ok(()) => return Ok(()),
            Err(why) => complaints.push(why),
        }
    }
    // The first two are without all that has failed, and with it.
    complaints.truncate(2);
    let complaints = complaints.join("; with it: ");
    Err(format!("{outcomes:?}: without what failed: {complaints}"))
}

/// All choices of so many things, each in its bit: none, all, and the first few before the rest, since what
/// fails for good has an effect only before.
fn likely_first(things: usize) -> Vec<usize> {
    let all = (1 << things) - 1;
    let first_few = (1..things).map(|few| (1 << few) - 1);
    let mut choices: Vec<usize> = [0, all].into_iter().chain(first_few).collect();
    choices.extend((0..=all).filter(|choice| !choice.wrapping_add(1).is_power_of_two()));
    choices.dedup();
    choices
}

fn failed(outcome: &Result<(), Errno>) -> bool {
    *outcome == Err(Errno::IO)
}

/// Whether these calls, of which so many had returned, leave this tree; those that have failed did what they
/// should, or, of data, a part of it.
fn explains(
    ops: &[Op],
    outcomes: &[Result<(), Errno>],
    returned: usize,
    tree: &Tree,
) -> Result<(), String> {
    let mut history = History::of(&setup(), ops)?;
    for (number, outcome) in outcomes.iter().enumerate() {
        if failed(outcome) {
            history.fail(number);
        }
    }
    let lost = outcomes.iter().zip(ops).position(|(o, op)| failed(o) && op.is_sync());
    if let Some(first) = lost {
        history.lose_data(first);
    }
    agree(&history, outcomes)?;
    verdict::judge(&history, returned, tree).map(drop)
}

/// Whether the calls that did not fail gave what they had to.
fn agree(history: &History, results: &[Result<(), Errno>]) -> Result<(), String> {
    let steps = history.steps.iter().zip(results);
    let wrong = steps.clone().find(|(step, result)| step.result != **result);
    match wrong {
        None => Ok(()),
        Some((step, result)) => Err(format!("{}: {result:?}, not {:?}", step.op, step.result)),
    }
}
