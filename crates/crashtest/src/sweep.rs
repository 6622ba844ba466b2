//! Runs scripts on recording devices and checks the states that crashes might have left.

use std::fmt;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vfscale::posix::MountFlags;
use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::Compound;
use vfscale_testkit::{CrashId, CrashPlan, CrashState, Moment, RecordingDevice};

use crate::model::clock::Clock;
use crate::model::history::History;
use crate::model::tree::Tree;
use crate::model::verdict;
use crate::script::{Script, setup};
use crate::subject::{Disk, LostRange, Opened, Subject};

/// Number of states per state whose recovered volume is also used.
const WORK: usize = 8;
/// Number of states per state whose recovery is itself interrupted, and the number of states of
/// that recovery to check.
const AGAIN: (usize, usize) = (16, 3);
/// Duration longer than a tick of the clock that stamps files.
const TICK: Duration = Duration::from_millis(12);

/// A device that records the writes of a script.
pub type Recorded = Arc<RecordingDevice<Disk>>;

/// Options of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepPlan {
    /// Size of the first device in bytes.
    pub device_bytes: u64,
    /// Maximum number of states of a script.
    pub states_of_script: usize,
    /// Seed of all random choices.
    pub seed: u64,
}

/// The beginning that all scripts of a sweep share, and the crashes in them.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The calls that make the initial tree.
    pub setup: Vec<Compound>,
    /// The selection of states.
    pub crashes: CrashPlan,
    /// Whether each state is checked also before it is opened, not only each eighth, and the power
    /// is also cut while the file system is closed.
    pub is_thorough: bool,
}

/// A broken guarantee.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The script.
    pub script: Script,
    /// Name of the state, if the violation was found in one.
    pub state: Option<CrashId>,
    /// Description of the violation.
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

/// Result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of scripts that were run.
    pub scripts: usize,
    /// Number of states that were recovered and checked.
    pub states: usize,
    /// Number of those that an interrupted recovery left.
    pub again: usize,
    /// All violations.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scripts, states, again, violations } = self;
        write!(f, "{states} states of {scripts} scripts, {again} of interrupted recoveries: ")?;
        write!(f, "{} violations", violations.len())?;
        violations.iter().try_for_each(|violation| write!(f, "\n\n{violation}"))
    }
}

impl iter::Sum for Summary {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, other| {
            sum.scripts += other.scripts;
            sum.states += other.states;
            sum.again += other.again;
            sum.violations.extend(other.violations);
            sum
        })
    }
}

/// A subject, and an image of it with the initial tree of all scripts.
pub struct Sweep<'a> {
    subject: &'a dyn Subject,
    base: Vec<Disk>,
    plan: SweepPlan,
    bounds: Bounds,
    summary: Summary,
}

impl<'a> Sweep<'a> {
    /// Makes the image, with the tree of [`setup`]. Some states have unreadable sectors.
    ///
    /// # Errors
    /// If the subject can't make it.
    pub fn new(subject: &'a dyn Subject, plan: SweepPlan) -> Result<Self, String> {
        let setup = setup();
        let base = prepare(subject, plan.device_bytes, &setup)?;
        let crashes = crashes(&subject.may_be_lost(&base));
        let bounds = Bounds { setup, crashes, is_thorough: true };
        Ok(Self { subject, base, plan, bounds, summary: Summary::default() })
    }

    /// Makes the image.
    ///
    /// # Errors
    /// If the subject can't make it.
    pub fn within(
        subject: &'a dyn Subject,
        plan: SweepPlan,
        bounds: Bounds,
    ) -> Result<Self, String> {
        let base = prepare(subject, plan.device_bytes, &bounds.setup)?;
        Ok(Self { subject, base, plan, bounds, summary: Summary::default() })
    }

    /// Runs a script and checks some of the states that it might have left.
    pub fn run(&mut self, script: &Script) {
        self.summary.scripts += 1;
        if let Err(why) = self.run_inner(script) {
            self.violation(script, None, why);
        }
    }

    /// Returns the number of states that were checked.
    pub fn states(&self) -> usize {
        self.summary.states
    }

    /// Returns the result.
    #[must_use]
    pub fn finish(self) -> Summary {
        self.summary
    }

    fn violation(&mut self, script: &Script, state: Option<CrashId>, why: String) {
        self.summary.violations.push(Violation { script: script.clone(), state, why });
    }

    fn run_inner(&mut self, script: &Script) -> Result<(), String> {
        let history = History::of(&self.bounds.setup, &script.ops)?;
        let recorded = recording(&self.base);
        let clock = record(self.subject, &recorded, &history)?;
        let mut random = Random::new(self.plan.seed ^ self.summary.scripts as u64);
        let what = (self.plan.states_of_script, self.bounds.crashes.clone());
        let within = |moments: &[Moment]| self.looked_at(script, moments);
        for state in sample_of(&recorded[0], &within, what, &mut random) {
            let number = self.summary.states;
            self.summary.states += 1;
            if let Err(why) = self.look((&history, &clock), &state, number) {
                self.violation(script, Some(state.id()), why);
            }
        }
        Ok(())
    }

    /// Returns the numbers of the moments at which the power may be cut. Of those during the close,
    /// the first is that after the last call.
    fn looked_at(&self, script: &Script, moments: &[Moment]) -> Range<usize> {
        let first_with = |marks| moments.partition_point(|at| at.marks < marks);
        let first = first_with(script.first);
        let closing =
            moments.get(first_with(script.ops.len())).filter(|_| !self.bounds.is_thorough);
        let end = closing.map(|last| moments.partition_point(|at| at.lines <= last.lines));
        first..end.unwrap_or(moments.len())
    }

    /// Recovers a state and judges it.
    fn look(
        &mut self,
        (history, clock): (&History, &Clock),
        state: &CrashState,
        number: usize,
    ) -> Result<(), String> {
        let done = state.marks().min(history.steps.len());
        let disks = disks(state);
        // A check reports unreadable sectors.
        let is_checked = self.bounds.is_thorough || number.is_multiple_of(WORK);
        if is_checked && !state.has_lost() {
            let checked = self.subject.check(&disks);
            checked.map_err(|why| format!("checked before it is opened: {why}"))?;
        }
        self.repair_refused(state, &disks)?;
        let judge = |tree: &Tree| verdict::judge(history, Some(clock), done, tree);
        if !number.is_multiple_of(AGAIN.0) {
            return recover(self.subject, &disks, judge, number.is_multiple_of(WORK));
        }
        let recorded = recording(&disks);
        recover(self.subject, &dynamic(&recorded), judge, false)?;
        let mut random = Random::new(self.plan.seed ^ number as u64);
        let what = (AGAIN.1, self.bounds.crashes.clone());
        for again in sample_of(&recorded[0], &|all| 0..all.len(), what, &mut random) {
            self.summary.states += 1;
            self.summary.again += 1;
            let disks = self::disks(&again);
            self.repair_refused(&again, &disks)
                .and_then(|()| recover(self.subject, &disks, judge, false))
                .map_err(|why| format!("recovered again, {}: {why}", again.id()))?;
        }
        Ok(())
    }

    /// Repairs a state with unreadable sectors, if it can't be opened: what can't be read was never
    /// promised then.
    fn repair_refused(&self, state: &CrashState, disks: &[Disk]) -> Result<(), String> {
        if !state.has_lost() {
            return Ok(());
        }
        let copy = |disk: &Disk| Arc::new(CowDevice::new(disk.clone())) as Disk;
        let copies: Vec<Disk> = disks.iter().map(copy).collect();
        match self.subject.open(&copies) {
            Ok(opened) => opened.close(),
            Err(why) => {
                let repaired = self.subject.repair(disks);
                repaired.map_err(|left| format!("not opened: {why}; repaired: {left}"))
            }
        }
    }
}

/// Makes the devices, and the initial tree of all scripts on them.
pub(crate) fn prepare(
    subject: &dyn Subject,
    device_bytes: u64,
    setup: &[Compound],
) -> Result<Vec<Disk>, String> {
    let sizes = [device_bytes].into_iter().chain(subject.others());
    let device = |bytes| -> Result<Disk, String> {
        let device = MemoryDevice::with_block_size(bytes, 512);
        Ok(Arc::new(device.map_err(|error| error.to_string())?))
    };
    let disks = sizes.map(device).collect::<Result<Vec<Disk>, String>>()?;
    subject.format(&disks)?;
    let opened = subject.open(&disks)?;
    let task = opened.vfs().task();
    for op in setup {
        op.run(&task).map_err(|errno| format!("setup: {op}: {errno}"))?;
    }
    opened.done(&Compound::sync()).map_err(|errno| format!("setup: {errno}"))?;
    drop(task);
    opened.close()?;
    subject.check(&disks)?;
    // After this, every change of a script changes the times.
    thread::sleep(TICK);
    Ok(disks)
}

/// Wraps devices in recorders with a common log.
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

/// Converts recording devices to the type that a subject takes.
pub fn dynamic(recorded: &[Recorded]) -> Vec<Disk> {
    recorded.iter().map(|disk| Arc::clone(disk) as Disk).collect()
}

/// Returns the devices of a state.
pub fn disks(state: &CrashState) -> Vec<Disk> {
    state.devices().iter().map(|disk| Arc::clone(disk) as Disk).collect()
}

/// Runs the calls of a script and marks the log after each return. Returns the times that files had
/// after each call.
pub(crate) fn record(
    subject: &dyn Subject,
    recorded: &[Recorded],
    history: &History,
) -> Result<Clock, String> {
    let disks = dynamic(recorded);
    let opened = subject.open(&disks)?;
    let task = opened.vfs().task();
    let mut clock = Clock::start(history, &task, subject.keeps_all_times())?;
    for (number, step) in history.steps.iter().enumerate() {
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
    subject.check(&disks).map_err(|why| format!("after it was closed: {why}"))?;
    Ok(clock)
}

/// Samples the states that a crash might have left of a recording: all that differ enough, or a
/// random selection if these are more than requested. Some have unreadable sectors in `lost`. Each
/// call of a script, as delimited by marks, gets an equal number of states, however little it
/// writes.
pub fn sample<D: Device + 'static>(
    device: &RecordingDevice<D>,
    what: (usize, &[LostRange]),
    random: &mut Random,
) -> impl Iterator<Item = CrashState> {
    sample_from(device, 0, what, random)
}

/// Samples like [`sample`], but only crashes at which the log had at least `lines` lines.
pub fn sample_from<D: Device + 'static>(
    device: &RecordingDevice<D>,
    lines: usize,
    (wanted, lost): (usize, &[LostRange]),
    random: &mut Random,
) -> impl Iterator<Item = CrashState> {
    let within = |all: &[Moment]| all.partition_point(|at| at.lines < lines)..all.len();
    sample_of(device, &within, (wanted, crashes(lost)), random)
}

/// Returns the crashes of a sample, after some of which sectors in `lost` are unreadable.
fn crashes(lost: &[LostRange]) -> CrashPlan {
    let plan = CrashPlan::default().listed_max(4).samples(3).exhaustive_bits(3);
    lost.iter().fold(plan, |plan, (disk, range)| plan.lost_on(*disk, [range.clone()]))
}

fn sample_of<D: Device + 'static>(
    device: &RecordingDevice<D>,
    within: &dyn Fn(&[Moment]) -> Range<usize>,
    (wanted, plan): (usize, CrashPlan),
    random: &mut Random,
) -> impl Iterator<Item = CrashState> + use<D> {
    let plan = plan.seed(random.number());
    let moments = device.crash_states(plan.clone()).moments();
    let chosen = choose(&moments, within(&moments), wanted, random);
    let (mut states, mut next) = (device.crash_states(plan), 0);
    chosen.into_iter().filter_map(move |number| {
        let passed = number - next;
        next = number + 1;
        // Skipped states are not materialized.
        states.nth(passed)
    })
}

/// Chooses the numbers of `wanted` states, in order: calls alternately choose one of theirs.
fn choose(
    moments: &[Moment],
    within: Range<usize>,
    wanted: usize,
    random: &mut Random,
) -> Vec<usize> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    let mut of = None;
    for (number, moment) in moments.iter().enumerate().take(within.end).skip(within.start) {
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

/// Opens a state, judges its tree, uses the volume if `works` is set, closes and checks it.
pub(crate) fn recover(
    subject: &dyn Subject,
    disks: &[Disk],
    judge: impl Fn(&Tree) -> Result<usize, String>,
    works: bool,
) -> Result<(), String> {
    let opened = subject.open(disks).map_err(|why| format!("not opened: {why}"))?;
    let task = opened.vfs().task();
    // The reads below must not change times that another recovery would find.
    task.posix().remount_bind("/", MountFlags::NOATIME).map_err(|error| error.to_string())?;
    judge(&Tree::read(&task)?)?;
    if works {
        work(&*opened)?;
    }
    drop(task);
    opened.close().map_err(|why| format!("not closed: {why}"))?;
    subject.check(disks).map_err(|why| format!("checked: {why}"))
}

/// Uses the recovered volume: makes a file and removes everything.
fn work(opened: &dyn Opened) -> Result<(), String> {
    let task = opened.vfs().task();
    let ops = [
        Compound::mkdir("/new"),
        Compound::create("/new/file"),
        Compound::append("/new/file", 50_000, 9_999),
        Compound::fsync("/new/file"),
        Compound::sync(),
    ];
    for op in ops {
        op.run(&task).map_err(|errno| format!("after recovery: {op}: {errno}"))?;
    }
    for entry in task.read_dir("/").map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        task.remove_dir_all(&path).map_err(|e| format!("after recovery: removing: {e}"))?;
    }
    Compound::sync().run(&task).map_err(|errno| format!("after recovery: sync: {errno}"))
}

#[cfg(test)]
mod tests;
