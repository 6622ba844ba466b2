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
//! # How a failure is judged
//!
//! By models, of which one has to explain the tree: with each call that has failed or without it. What a
//! failed call changes of data may be changed in part.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vfscale::Errno;
use vfscale_block::{CowDevice, Device, Fault, FaultyDevice, MemoryDevice, Operation};

use crate::history::History;
use crate::op::Op;
use crate::scripts::{Script, setup};
use crate::subject::{Opened, Subject};
use crate::sweep::{Violation, prepare};
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

/// A subject, and an image of it with the tree that every script finds.
pub struct Faults<'a> {
    subject: &'a dyn Subject,
    base: Arc<dyn Device>,
}

type Faulty = Arc<FaultyDevice<Arc<CowDevice>>>;

impl<'a> Faults<'a> {
    /// Makes the image, on a device of so many bytes.
    ///
    /// # Errors
    /// If the subject can't do even that.
    pub fn new(subject: &'a dyn Subject, device_bytes: u64) -> Result<Self, String> {
        let device = MemoryDevice::with_block_size(device_bytes, 512);
        let base: Arc<dyn Device> = Arc::new(device.map_err(|error| error.to_string())?);
        prepare(subject, &base)?;
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
        let run = catch_unwind(AssertUnwindSafe(|| self.run_and_judge(script, &device)));
        let why = match run {
            Ok(Ok(())) => return Ok(device.fired() > 0),
            Ok(Err(why)) => why,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                format!("panic: {}", text.unwrap_or_else(|| "of no words".into()))
            }
        };
        let why = format!("{operation} {n} failed ({extent:?}): {why}");
        Err(Violation { script: script.clone(), state: None, why })
    }

    fn run_and_judge(&self, script: &Script, device: &Faulty) -> Result<(), String> {
        let outcomes = match self.subject.open(device.clone()) {
            Ok(opened) => play(opened, &script.ops, device)?,
            Err(_) if device.fired() > 0 => Vec::new(),
            Err(why) => return Err(format!("not opened: {why}")),
        };
        // From here on the device is well.
        let image: Arc<dyn Device> = device.inner().clone();
        let opened = self.subject.open(image.clone()).map_err(|why| format!("reopened: {why}"))?;
        let task = opened.vfs().task();
        let tree = Tree::read(&task).map_err(|why| format!("reopened: {why}"))?;
        drop(task);
        opened.close().map_err(|why| format!("reopened: not closed: {why}"))?;
        judge(&script.ops, &outcomes, &tree)?;
        self.subject.check(&image).map_err(|why| format!("checked: {why}"))
    }
}

/// Makes the calls, and closes.
fn play(
    opened: Box<dyn Opened>,
    ops: &[Op],
    device: &Faulty,
) -> Result<Vec<Result<(), Errno>>, String> {
    let task = opened.vfs().task();
    let calls = ops.iter().filter(|op| **op != Op::Close);
    let run = |op: &Op| op.run(&task).and_then(|()| opened.done(op));
    let mut outcomes: Vec<_> = calls.map(run).collect();
    drop(task);
    match opened.close() {
        Ok(()) => outcomes.push(Ok(())),
        Err(_) if device.fired() > 0 => outcomes.push(Err(Errno::IO)),
        Err(why) => return Err(format!("not closed: {why}")),
    }
    Ok(outcomes)
}

/// How many of the failed calls are taken each for itself to have had an effect or none; the others are taken
/// together.
const CHOICES: usize = 5;

/// Whether the tree is what calls with these outcomes may have left.
fn judge(ops: &[Op], outcomes: &[Result<(), Errno>], tree: &Tree) -> Result<(), String> {
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
        let calls = ops.iter().zip(outcomes).filter(&mut counts);
        let (kept, results): (Vec<Op>, Vec<_>) = calls.map(|(op, o)| (op.clone(), *o)).unzip();
        match explains(&kept, &results, tree) {
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

/// Whether these calls leave this tree, of which those that have failed did what they should, or, of data, a
/// part of it.
fn explains(ops: &[Op], outcomes: &[Result<(), Errno>], tree: &Tree) -> Result<(), String> {
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
    verdict::judge(&history, ops.len(), tree).map(drop)
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
