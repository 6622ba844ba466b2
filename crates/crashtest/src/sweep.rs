//! Runs scripts on recording devices, and looks at what a crash might have left of each.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vfscale::MountFlags;
use vfscale_block::{
    CrashId, CrashPlan, CrashState, Device, MemoryDevice, Moment, RecordingDevice,
};
use vfscale_sync::random::Random;

use crate::history::History;
use crate::op::Op;
use crate::scripts::{Script, setup};
use crate::subject::{Disk, Lost, Opened, Subject};
use crate::times::Clock;
use crate::tree::Tree;
use crate::verdict;

/// Every how many states a state is used after its recovery.
const WORK: usize = 8;
/// Every how many states the recovery is itself cut off, and how many of the states of that are looked at.
const AGAIN: (usize, usize) = (16, 3);
/// Longer than a tick of the clock that files have their times from.
const TICK: Duration = Duration::from_millis(12);

/// A device that records what a script does.
pub type Recorded = Arc<RecordingDevice<Disk>>;

/// What a sweep is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The size of the first device, in bytes.
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
    base: Vec<Disk>,
    plan: Plan,
    summary: Summary,
}

impl<'a> Sweep<'a> {
    /// Makes the image.
    ///
    /// # Errors
    /// If the subject can't do even that.
    pub fn new(subject: &'a dyn Subject, plan: Plan) -> Result<Self, String> {
        let base = prepare(subject, plan.device_bytes)?;
        Ok(Self { subject, base, plan, summary: Summary::default() })
    }

    /// Runs a script, and looks at some of the states that it might have left.
    pub fn run(&mut self, script: &Script) {
        self.summary.scripts += 1;
        if let Err(why) = self.run_inner(script) {
            self.violation(script, None, why);
        }
    }

    /// How many states have been looked at.
    #[must_use]
    pub fn states(&self) -> usize {
        self.summary.states
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
        let mut history = History::of(&setup(), &script.ops)?;
        let recorded = recording(&self.base);
        record(self.subject, &recorded, &mut history)?;
        let mut random = Random::new(self.plan.seed ^ self.summary.scripts as u64);
        let lost = self.subject.may_be_lost(&self.base);
        for state in sample(&recorded[0], (self.plan.states_of_script, &lost), &mut random) {
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
        let disks = disks(state);
        // A check tells what can't be read.
        if !state.has_lost() {
            let checked = self.subject.check(&disks);
            checked.map_err(|why| format!("checked before it is opened: {why}"))?;
        }
        let judge = |tree: &Tree| verdict::judge(history, done, tree);
        if !number.is_multiple_of(AGAIN.0) {
            return recover(self.subject, &disks, judge, number.is_multiple_of(WORK));
        }
        let recorded = recording(&disks);
        recover(self.subject, &dynamic(&recorded), judge, false)?;
        let mut random = Random::new(self.plan.seed ^ number as u64);
        let lost = self.subject.may_be_lost(&self.base);
        for again in sample(&recorded[0], (AGAIN.1, &lost), &mut random) {
            self.summary.states += 1;
            self.summary.again += 1;
            recover(self.subject, &self::disks(&again), judge, false)
                .map_err(|why| format!("recovered again, {}: {why}", again.id()))?;
        }
        Ok(())
    }
}

/// Makes the devices, and puts the tree that every script finds on them.
pub(crate) fn prepare(subject: &dyn Subject, device_bytes: u64) -> Result<Vec<Disk>, String> {
    let sizes = [device_bytes].into_iter().chain(subject.others());
    let device = |bytes| -> Result<Disk, String> {
        let device = MemoryDevice::with_block_size(bytes, 512);
        Ok(Arc::new(device.map_err(|error| error.to_string())?))
    };
    let disks = sizes.map(device).collect::<Result<Vec<Disk>, String>>()?;
    subject.format(&disks)?;
    let opened = subject.open(&disks)?;
    let task = opened.vfs().task();
    for op in setup() {
        op.run(&task).map_err(|errno| format!("setup: {op}: {errno}"))?;
    }
    opened.done(&Op::Sync).map_err(|errno| format!("setup: {errno}"))?;
    drop(task);
    opened.close()?;
    subject.check(&disks)?;
    // Whatever a script changes has other times then.
    thread::sleep(TICK);
    Ok(disks)
}

/// Starts recording what is done to devices, side by side.
#[must_use]
pub fn recording(disks: &[Disk]) -> Vec<Recorded> {
    let mut recorded: Vec<Recorded> = Vec::new();
    for disk in disks {
        let next = match recorded.first() {
            None => RecordingDevice::new(disk.clone()),
            Some(first) => RecordingDevice::beside(first, disk.clone()),
        };
        recorded.push(Arc::new(next));
    }
    recorded
}

/// The devices that record, as a subject wants them.
#[must_use]
pub fn dynamic(recorded: &[Recorded]) -> Vec<Disk> {
    recorded.iter().map(|disk| Arc::clone(disk) as Disk).collect()
}

/// The devices of a state.
#[must_use]
pub fn disks(state: &CrashState) -> Vec<Disk> {
    state.devices().iter().map(|disk| Arc::clone(disk) as Disk).collect()
}

/// Runs the calls of a script; each that has returned leaves a mark. The history learns which times files had
/// after each.
fn record(
    subject: &dyn Subject,
    recorded: &[Recorded],
    history: &mut History,
) -> Result<(), String> {
    let disks = dynamic(recorded);
    let opened = subject.open(&disks)?;
    let task = opened.vfs().task();
    let mut clock = Clock::start(history, &task, subject.keeps_all_times())?;
    for (number, step) in history.steps.iter().enumerate() {
        if step.op == Op::Close {
            continue;
        }
        let result = step.op.run(&task).and_then(|()| opened.done(&step.op));
        if result != step.result {
            return Err(format!("call {number}: {result:?} instead of {:?}", step.result));
        }
        clock.note(history, number, &task)?;
        recorded[0].mark(step.op.to_string());
    }
    drop(task);
    opened.close()?;
    recorded[0].mark("closed");
    history.clock = Some(clock);
    subject.check(&disks).map_err(|why| format!("after it was closed: {why}"))
}

/// Some of the states that a crash might have left of what is recorded: all that are different enough, or as
/// many of them as are wanted, by chance; some with sectors in `lost` that can't be read. Each call of a
/// script, as far as marks tell, has as many as any other, however little it writes.
pub fn sample<D: Device + 'static>(
    device: &RecordingDevice<D>,
    what: (usize, &[Lost]),
    random: &mut Random,
) -> impl Iterator<Item = CrashState> {
    sample_from(device, 0, what, random)
}

/// The same of crashes that came when the log had `lines` lines at least.
pub fn sample_from<D: Device + 'static>(
    device: &RecordingDevice<D>,
    lines: usize,
    (wanted, lost): (usize, &[Lost]),
    random: &mut Random,
) -> impl Iterator<Item = CrashState> {
    let plan =
        CrashPlan::default().listed_max(4).samples(3).exhaustive_bits(3).seed(random.number());
    let plan = lost.iter().fold(plan, |plan, (disk, range)| plan.lost_on(*disk, [range.clone()]));
    let moments = device.crash_states(plan.clone()).moments();
    let chosen = choose(&moments, lines, wanted, random);
    let (mut states, mut next) = (device.crash_states(plan), 0);
    chosen.into_iter().filter_map(move |number| {
        let passed = number - next;
        next = number + 1;
        // States that are passed over are not made.
        states.nth(passed)
    })
}

/// The numbers of `wanted` states, in order: calls take turns in choosing one of theirs.
fn choose(moments: &[Moment], lines: usize, wanted: usize, random: &mut Random) -> Vec<usize> {
    let first = moments.partition_point(|moment| moment.lines < lines);
    let mut calls: Vec<Vec<usize>> = Vec::new();
    let mut of = None;
    for (number, moment) in moments.iter().enumerate().skip(first) {
        if of.replace(moment.marks) != Some(moment.marks) {
            calls.push(Vec::new());
        }
        calls.last_mut().into_iter().for_each(|states| states.push(number));
    }
    calls.iter_mut().for_each(|states| random.shuffle(states));
    let mut chosen = Vec::new();
    while chosen.len() < wanted && !calls.is_empty() {
        random.shuffle(&mut calls);
        let left = wanted - chosen.len();
        chosen.extend(calls.iter_mut().take(left).filter_map(Vec::pop));
        calls.retain(|states| !states.is_empty());
    }
    chosen.sort_unstable();
    chosen
}

/// Opens a state, judges its tree, works in it if told to, closes and checks it.
pub(crate) fn recover(
    subject: &dyn Subject,
    disks: &[Disk],
    judge: impl Fn(&Tree) -> Result<usize, String>,
    works: bool,
) -> Result<(), String> {
    let opened = subject.open(disks).map_err(|why| format!("not opened: {why}"))?;
    let task = opened.vfs().task();
    // What is read here moves no times that another recovery would find.
    task.remount_bind("/", MountFlags::NOATIME).map_err(|error| error.to_string())?;
    judge(&Tree::read(&task)?)?;
    if works {
        work(&*opened)?;
    }
    drop(task);
    opened.close().map_err(|why| format!("not closed: {why}"))?;
    subject.check(disks).map_err(|why| format!("checked: {why}"))
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

#[cfg(test)]
mod tests;
