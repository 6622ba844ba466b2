//! Runs scripts on a device that fails one call, for every call that the script makes.
//!
//! # Guarantees under test
//!
//! A call of the script returns its normal result, or an error that reports a failed device. No
//! thread panics or waits forever. When the device works again, the volume opens, and everything
//! that a successful `fsync` or `sync` covered is present. A failed call has either taken effect or
//! not. When a sync fails, data may be lost permanently: as in Linux, later syncs then guarantee
//! nothing about data written before.
//!
//! This also holds if power fails after the error ([`Faults::run_and_cut`]). The error is then the
//! worst possible one: a failed flush permanently loses everything it should have covered, and a
//! failed write leaves a part of its data or garbage.
//!
//! # How a failure is judged
//!
//! By models, one of which must explain the tree: with and without each failed call. A failed
//! change of data may be made in part.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfscale::Errno;
use vfscale_block::{CowDevice, Device, Operation, OsError};
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::Compound;
use vfscale_testkit::{CrashState, Fault, FaultyDevice};

use crate::model::history::History;
use crate::model::tree::Tree;
use crate::model::verdict;
use crate::script::{Script, setup};
use crate::subject::{Disk, LostRange, Opened, Subject};
use crate::sweep::{Recorded, Violation, disks, prepare, recording, recover, sample_from};

/// Extent of a failure of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One call.
    One,
    /// One call and all later ones of its kind.
    Rest,
}

/// The worst error before a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorstError {
    /// Failure of the flush with this number, from 1, which loses everything it should have
    /// covered. Later flushes succeed, or fail as well.
    Flush(u64, Extent),
    /// Failure of the write with this number, whose first half is written.
    Write(u64, Extent),
    /// Failure of the write with this number, among those that touch these bytes. It leaves
    /// garbage.
    Garbage(u64, std::ops::Range<u64>),
}

/// A subject, and an image of it with the initial tree of all scripts.
pub struct Faults<'a> {
    subject: &'a dyn Subject,
    base: Disk,
}

type Faulty = Arc<FaultyDevice<Arc<CowDevice>>>;

impl<'a> Faults<'a> {
    /// Makes the image on one device of a given size.
    ///
    /// # Errors
    /// If the subject can't make it.
    pub fn new(subject: &'a dyn Subject, device_bytes: u64) -> Result<Self, String> {
        let base = prepare(subject, device_bytes, &setup())?.swap_remove(0);
        Ok(Self { subject, base })
    }

    fn device(&self) -> Faulty {
        Arc::new(FaultyDevice::new(Arc::new(CowDevice::new(self.base.clone()))))
    }

    /// Returns how many calls of a kind a script makes, from opening to closing the volume.
    ///
    /// # Errors
    /// If the script does not work without a fault.
    pub fn calls(&self, script: &Script, operation: Operation) -> Result<u64, String> {
        let device = self.device();
        self.run_and_judge(script, &device)?;
        Ok(device.calls(operation))
    }

    /// Runs a script with the `n`-th call of a kind failing. Returns whether there was such a call.
    ///
    /// # Errors
    /// Describes the violation.
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
        // From here on, the device works.
        let image: Disk = device.inner().clone();
        let judge = |tree: &Tree| judge(&script.ops, &outcomes, outcomes.len(), tree).map(|()| 0);
        recover(self.subject, slice::from_ref(&image), judge, false)
            .map_err(|why| format!("reopened: {why}"))
    }

    /// Returns the byte ranges that the file system can do without, where garbage may be left.
    pub fn may_be_garbage(&self) -> Vec<std::ops::Range<u64>> {
        let lost: Vec<LostRange> = self.subject.may_be_lost(slice::from_ref(&self.base));
        lost.into_iter().map(|(_, range)| range).collect()
    }

    /// Runs a script on a device with an error, and checks some states that a power cut might have
    /// left after it. Returns their number, which is 0 if the error did not occur.
    ///
    /// # Errors
    /// Describes the violation.
    pub fn run_and_cut(
        &self,
        script: &Script,
        worst: &WorstError,
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
        worst: &WorstError,
        states: usize,
        random: &mut Random,
        at: &mut Option<vfscale_testkit::CrashId>,
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

    /// Recovers a state on a working device.
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

/// Prepares the error. Returns the cell that will hold the length of the log at the time of the
/// error.
fn arm(device: &Arc<FaultyDevice<Recorded>>, worst: &WorstError) -> Arc<AtomicUsize> {
    let first = Arc::new(AtomicUsize::new(usize::MAX));
    let (noted, recorded) = (first.clone(), device.inner().clone());
    let is_flush = matches!(worst, WorstError::Flush(..));
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
        WorstError::Flush(n, extent) => when(Fault::on(Operation::Flush), *n, *extent),
        WorstError::Write(n, extent) => when(Fault::on(Operation::Write), *n, *extent),
        WorstError::Garbage(n, range) => Fault::on(Operation::Write).within(range.clone()).nth(*n),
    };
    device.arm(fault.clone().run(hook));
    device.arm(match worst {
        WorstError::Flush(..) => fault.fail(OsError::IO),
        WorstError::Write(..) => fault.tear(TORN_BYTES),
        WorstError::Garbage(..) => fault.garble(),
    });
    first
}

/// Maximum number of bytes that a failed write leaves.
const TORN_BYTES: u64 = 2048;

/// Converts a panic to an error.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_else(|| "without a message".into())))
    })
}

/// Makes the calls and closes the file system. Calls `returned` after each.
fn play<D: Device>(
    opened: Box<dyn Opened>,
    ops: &[Compound],
    device: &FaultyDevice<D>,
    returned: &dyn Fn(),
) -> Result<Vec<Result<(), Errno>>, String> {
    let task = opened.vfs().task();
    let run = |op: &Compound| {
        let outcome = op.run(&task).and_then(|()| opened.done(op));
        returned();
        outcome
    };
    let outcomes = ops.iter().map(run).collect();
    drop(task);
    let closed = opened.close();
    returned();
    match closed {
        Err(why) if device.fired() == 0 => Err(format!("not closed: {why}")),
        // The last call is a sync, so there is nothing that a close could lose.
        _ => Ok(outcomes),
    }
}

/// Number of failed calls whose effects are combined individually. All others are combined as one.
const CHOICES: usize = 5;

/// Checks that the tree is possible for calls with these outcomes, of which the first `done` had
/// returned and at most one more had begun.
fn judge(
    ops: &[Compound],
    outcomes: &[Result<(), Errno>],
    done: usize,
    tree: &Tree,
) -> Result<(), String> {
    let begun = outcomes.len().min(done + 1);
    let (ops, outcomes) = (&ops[..begun], &outcomes[..begun]);
    // A partial change of data includes no change.
    let has_choice = |(op, outcome): &(&Compound, &Result<(), Errno>)| {
        failed(outcome) && !op.is_sync() && !op.is_of_data()
    };
    let choices = ops.iter().zip(outcomes).filter(has_choice).count().min(CHOICES + 1);
    let mut complaints = Vec::new();
    for choice in likely_first(choices) {
        let mut nth = 0;
        let mut counts = |(op, outcome): &(&Compound, &Result<(), Errno>)| {
            if !has_choice(&(op, outcome)) {
                return true;
            }
            nth += 1;
            choice >> (nth - 1).min(CHOICES) & 1 == 1
        };
        let calls = ops.iter().zip(outcomes).enumerate().filter(|(_, call)| counts(call));
        let calls: Vec<(usize, (Compound, _))> =
            calls.map(|(at, (op, outcome))| (at, (op.clone(), *outcome))).collect();
        let returned = calls.iter().filter(|(at, _)| *at < done).count();
        let (kept, results): (Vec<Compound>, Vec<_>) =
            calls.into_iter().map(|(_, call)| call).unzip();
        match explains(&kept, &results, returned, tree) {
            Ok(()) => return Ok(()),
            Err(why) => complaints.push(why),
        }
    }
    // The first two complaints are those without and with all failed calls.
    complaints.truncate(2);
    let complaints = complaints.join("; with it: ");
    Err(format!("{outcomes:?}: without the failed calls: {complaints}"))
}

/// Returns all bitmaps of `things` choices. None, all, and the first few precede the others,
/// because a permanent failure leaves only the effects before it.
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

/// Checks that these calls, of which the first `returned` had returned, leave this tree. Failed
/// calls had their full effect or, for data, a part of it.
fn explains(
    ops: &[Compound],
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
    verdict::judge(&history, None, returned, tree).map(drop)
}

/// Checks that the calls that did not fail had the expected results.
fn agree(history: &History, results: &[Result<(), Errno>]) -> Result<(), String> {
    let steps = history.steps.iter().zip(results);
    let wrong = steps.clone().find(|(step, result)| step.result != **result);
    match wrong {
        None => Ok(()),
        Some((step, result)) => Err(format!("{}: {result:?}, not {:?}", step.op, step.result)),
    }
}
