//! Runs scripts on a recording device, and looks at what a crash might have left of each.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use vfscale_block::{CrashId, CrashPlan, CrashState, Device, MemoryDevice, RecordingDevice};
use vfscale_sync::random::Random;

use crate::history::History;
use crate::op::Op;
use crate::scripts::{Script, setup};
use crate::subject::{Opened, Subject};
use crate::tree::Tree;
use crate::verdict;

/// Every how many states a state is used after its recovery.
const WORK: usize = 8;
/// Every how many states the recovery is itself cut off, and how many of the states of that are looked at.
const AGAIN: (usize, usize) = (16, 3);

/// What a sweep is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The size of the device, in bytes.
    pub device_bytes: u64,
    /// The most states of one script.
    pub states_of_script: usize,
    /// What all chances follow from.
    pub seed: u64,
}

/// What must not be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The script.
    pub script: Script,
    /// The name of the state, if one was looked at.
    pub state: Option<CrashId>,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.script.name)?;
        for (number, op) in self.script.ops.iter().enumerate() {
            writeln!(f, "    {number}: {op}")?;
        }
        if let Some(state) = self.state {
            write!(f, "  state {state}: ")?;
        }
        write!(f, "{}", self.why)
    }
}

/// How much was done.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Scripts that were run.
    pub scripts: usize,
    /// States that were recovered and looked at.
    pub states: usize,
    /// Those of them that a recovery left which was cut off.
    pub again: usize,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scripts, states, again, violations } = self;
        write!(f, "{states} states of {scripts} scripts, {again} of cut off recoveries: ")?;
        write!(f, "{} violations", violations.len())?;
        violations.iter().try_for_each(|violation| write!(f, "\n\n{violation}"))
    }
}

/// A subject, and an image of it with the tree that every script finds.
pub struct Sweep<'a> {
    subject: &'a dyn Subject,
    base: Arc<dyn Device>,
    plan: Plan,
    summary: Summary,
}

impl<'a> Sweep<'a> {
    /// Makes the image.
    ///
    /// # Errors
    /// If the subject can't do even that.
    pub fn new(subject: &'a dyn Subject, plan: Plan) -> Result<Self, String> {
        let device = MemoryDevice::with_block_size(plan.device_bytes, 512);
        let base: Arc<dyn Device> = Arc::new(device.map_err(|error| error.to_string())?);
        prepare(subject, &base)?;
        Ok(Self { subject, base, plan, summary: Summary::default() })
    }

    /// Runs a script, and looks at some of the states that it might have left.
    pub fn run(&mut self, script: &Script) {
        self.summary.scripts += 1;
        if let Err(why) = self.run_inner(script) {
            self.violation(script, None, why);
        }
    }

    /// How it went.
    #[must_use]
    pub fn finish(self) -> Summary {
        self.summary
    }

    fn violation(&mut self, script: &Script, state: Option<CrashId>, why: String) {
        self.summary.violations.push(Violation { script: script.clone(), state, why });
    }

    fn run_inner(&mut self, script: &Script) -> Result<(), String> {
        let history = History::of(&setup(), &script.ops)?;
        let device = Arc::new(RecordingDevice::new(self.base.clone()));
        record(self.subject, &device, &history)?;
        let mut random = Random::new(self.plan.seed ^ self.summary.scripts as u64);
        let lost = self.subject.may_be_lost(&*self.base);
        for state in sample(&device, (self.plan.states_of_script, &lost), &mut random) {
            let number = self.summary.states;
            self.summary.states += 1;
            if let Err(why) = self.look(&history, &state, number) {
                self.violation(script, Some(state.id()), why);
            }
        }
        Ok(())
    }

    /// Recovers a state and judges it.
    fn look(&mut self, history: &History, state: &CrashState, number: usize) -> Result<(), String> {
        let done = state.marks().min(history.steps.len());
        // A check tells what can't be read.
        if !state.has_lost() {
            let image: Arc<dyn Device> = state.device();
            let checked = self.subject.check(&image);
            checked.map_err(|why| format!("checked before it is opened: {why}"))?;
        }
        if !number.is_multiple_of(AGAIN.0) {
            let device: Arc<dyn Device> = state.device();
            return recover(self.subject, device, |tree| verdict::judge(history, done, tree), {
                number.is_multiple_of(WORK)
            });
        }
        let recording = Arc::new(RecordingDevice::new(state.device()));
        let judge = |tree: &Tree| verdict::judge(history, done, tree);
        recover(self.subject, recording.clone(), judge, false)?;
        let mut random = Random::new(self.plan.seed ^ number as u64);
        let lost = self.subject.may_be_lost(&*self.base);
        for again in sample(&recording, (AGAIN.1, &lost), &mut random) {
            self.summary.states += 1;
            self.summary.again += 1;
            recover(self.subject, again.device(), judge, false)
                .map_err(|why| format!("recovered again, {}: {why}", again.id()))?;
        }
        Ok(())
    }
}

/// Puts the tree that every script finds on a device.
pub(crate) fn prepare(subject: &dyn Subject, device: &Arc<dyn Device>) -> Result<(), String> {
    subject.format(device)?;
    let opened = subject.open(device.clone())?;
    let task = opened.vfs().task();
    for op in setup() {
        op.run(&task).map_err(|errno| format!("setup: {op}: {errno}"))?;
    }
    opened.done(&Op::Sync).map_err(|errno| format!("setup: {errno}"))?;
    drop(task);
    opened.close()?;
    subject.check(device)
}

/// Runs the calls of a script; each that has returned leaves a mark.
fn record<D: Device + 'static>(
    subject: &dyn Subject,
    device: &Arc<RecordingDevice<D>>,
    history: &History,
) -> Result<(), String> {
    let opened = subject.open(device.clone())?;
    let task = opened.vfs().task();
    for (number, step) in history.steps.iter().enumerate() {
        if step.op == Op::Close {
            continue;
        }
        let result = step.op.run(&task).and_then(|()| opened.done(&step.op));
        if result != step.result {
            return Err(format!("call {number}: {result:?} instead of {:?}", step.result));
        }
        device.mark(step.op.to_string());
    }
    drop(task);
    opened.close()?;
    device.mark("closed");
    let image: Arc<dyn Device> = device.clone();
    subject.check(&image).map_err(|why| format!("after it was closed: {why}"))
}

/// Some of the states that a crash might have left of what is recorded: all that are different enough, or as
/// many of them as are wanted, by chance; some with sectors in `lost` that can't be read.
pub fn sample<D: Device + 'static>(
    device: &RecordingDevice<D>,
    (wanted, lost): (usize, &[Range<u64>]),
    random: &mut Random,
) -> impl Iterator<Item = CrashState> {
    let plan =
        CrashPlan::default().listed_max(4).samples(3).exhaustive_bits(3).seed(random.number());
    let plan = plan.lost_in(lost.iter().cloned());
    let all = device.crash_states(plan.clone()).count();
    let mut chosen: Vec<usize> = (0..all).collect();
    random.shuffle(&mut chosen);
    chosen.truncate(wanted);
    chosen.sort_unstable();
    let (mut states, mut next) = (device.crash_states(plan), 0);
    chosen.into_iter().filter_map(move |number| {
        let passed = number - next;
        next = number + 1;
        // States that are passed over are not made.
        states.nth(passed)
    })
}

/// Opens a state, judges its tree, works in it if told to, closes and checks it.
fn recover(
    subject: &dyn Subject,
    device: Arc<dyn Device>,
    judge: impl Fn(&Tree) -> Result<usize, String>,
    works: bool,
) -> Result<(), String> {
    let opened = subject.open(device.clone()).map_err(|why| format!("not opened: {why}"))?;
    let task = opened.vfs().task();
    judge(&Tree::read(&task)?)?;
    if works {
        work(&*opened)?;
    }
    drop(task);
    opened.close().map_err(|why| format!("not closed: {why}"))?;
    subject.check(&device).map_err(|why| format!("checked: {why}"))
}

/// Uses what was recovered: takes everything away, and makes and removes something.
fn work(opened: &dyn Opened) -> Result<(), String> {
    let task = opened.vfs().task();
    let ops = [
        Op::Mkdir("/new".into()),
        Op::Create("/new/file".into()),
        Op::Append { path: "/new/file".into(), len: 50_000, tag: 9_999 },
        Op::Fsync("/new/file".into()),
        Op::Sync,
    ];
    for op in ops {
        op.run(&task).map_err(|errno| format!("after recovery: {op}: {errno}"))?;
    }
    for entry in task.list_dir("/").map_err(|error| error.to_string())? {
        let path = std::path::Path::new("/").join(&entry.name);
        task.remove_dir_all(&path).map_err(|e| format!("after recovery: removing: {e}"))?;
    }
    Op::Sync.run(&task).map_err(|errno| format!("after recovery: sync: {errno}"))
}
