//! Power cuts at random moments of a [`churn`] and a [`tangle`](crate::load::tangle), and the
//! recovery after each.
//!
//! # Load
//!
//! Several threads use a volume, each pretending to run on a separate CPU. Some make orphans and
//! immediately reuse space that other threads freed. Others make all kinds of calls, in separate
//! and in shared directories. In every third load the volume grows concurrently (`growth`). During
//! the load, a watcher repeatedly freezes the volume and compares its state in memory with its
//! device (`invariants`). Then some states that a power cut might have left are checked: each has a
//! random moment and any part of the writes not flushed before it, torn and in any order. Each
//! state is opened, which recovers it. It must contain everything promised before that moment, and
//! have no orphans and no findings. The last one is emptied and closed, and the next load begins
//! with it, so a volume ages by power cuts.
//!
//! Loads alternate between the settings of Kara 2014 (orphan lists) and Chinner 2020
//! (per-CPU delayed logging): all patches enabled, each one disabled, all disabled.
//!
//! # Invariants
//!
//! * All choices are determined by the seed. The timing of threads is not, so a failure may not be
//!   repeatable. Its message has the name of the state, and [`Kills::broken`] the image of that
//!   state.
//!
//! # Locks
//!
//! The module defines no locks.

mod growth;
mod invariants;

use std::fmt;
use std::ops::AddAssign;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use vfscale::{Errno, PATCHES, Scaling, Volume};
use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_sync::cpu;
use vfscale_sync::random::Random;
use vfscale_testkit::{CrashId, CrashState, Fault, FaultyDevice, RecordingDevice};

use crate::load::churn::{self, Promises};
use crate::load::joined;
use crate::load::tangle::{CallFault, Tangle, crowd};
use crate::subject::Subject;
use crate::subject::volume::Volumes;
use crate::sweep::sample;
use growth::Growth;

/// Number of loads of a volume before a new one is made.
const LOADS_OF_VOLUME: u64 = 20;
/// Size of a volume: so small that freed blocks are soon reused.
const DEVICE_BYTES: u64 = 32 << 20;
/// Number of CPU slots.
const SLOTS: usize = 8;
/// Number of loads per load in which the volume grows.
const GROWTHS: u64 = 3;

/// Options of a load.
#[derive(Clone, Copy, Debug)]
pub struct KillsPlan {
    /// Number of threads that make orphans and reuse space that other threads freed.
    pub threads: u64,
    /// Number of files that each of them makes.
    pub rounds: u64,
    /// Number of threads that make all kinds of calls in separate directories.
    pub own: u64,
    /// Number of threads that make all kinds of calls in shared directories.
    pub crowd: u64,
    /// Number of calls that each thread in a separate or shared directory makes.
    pub calls: usize,
    /// Number of power cuts that are checked.
    pub kills: usize,
}

/// Result of loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillsTally {
    /// Number of loads.
    pub loads: u64,
    /// Number of power cuts that were recovered and checked.
    pub kills: u64,
    /// Number of orphans that were found and removed.
    pub removed: u64,
    /// Number of orphans that were found and truncated.
    pub cut: u64,
    /// Number of checkpoints that were replayed.
    pub replayed: u64,
    /// Number of comparisons of a frozen volume with its device.
    pub compared: u64,
    /// Number of calls whose effect was judged.
    pub calls: u64,
    /// Number of times that a volume grew.
    pub grown: u64,
}

/// An injected fault that the test must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillsFault {
    /// The device reports flushes that it did not make.
    LostFlushes,
    /// The volume reports a growth that it did not make.
    LostGrowth,
    /// Calls have wrong effects.
    Calls(CallFault),
}

impl AddAssign for KillsTally {
    fn add_assign(&mut self, other: Self) {
        self.loads += other.loads;
        self.kills += other.kills;
        self.removed += other.removed;
        self.cut += other.cut;
        self.replayed += other.replayed;
        self.compared += other.compared;
        self.calls += other.calls;
        self.grown += other.grown;
    }
}

impl fmt::Display for KillsTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loads, kills, removed, cut, replayed, compared, calls, grown } = self;
        write!(f, "{kills} kills in {loads} loads: {replayed} checkpoints replayed, ")?;
        write!(
            f,
            "{removed} orphans removed and {cut} cut, {calls} calls judged, {grown} growths, "
        )?;
        write!(f, "{compared} comparisons while running")
    }
}

/// A volume whose power is cut repeatedly.
#[derive(Debug)]
pub struct Kills {
    plan: KillsPlan,
    random: Random,
    /// The image that the next load begins with.
    image: Arc<dyn Device>,
    loads: u64,
    fault: Option<KillsFault>,
    broken: Option<Arc<dyn Device>>,
}

impl Kills {
    /// Makes an empty volume. All choices are determined by `seed`.
    ///
    /// # Errors
    /// If the volume can't be made.
    pub fn new(plan: KillsPlan, seed: u64) -> Result<Self, String> {
        let (random, image) = (Random::new(seed), fresh()?);
        Ok(Self { plan, random, image, loads: 0, fault: None, broken: None })
    }

    /// Makes a volume with an injected fault, which must cause a violation.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub fn with_fault(plan: KillsPlan, seed: u64, fault: KillsFault) -> Result<Self, String> {
        Ok(Self { fault: Some(fault), ..Self::new(plan, seed)? })
    }

    /// Returns the state whose recovery failed, as the power cut left it.
    pub fn broken(&self) -> Option<&Arc<dyn Device>> {
        self.broken.as_ref()
    }

    /// Runs a load and checks states that power cuts might have left.
    ///
    /// # Errors
    /// Describes the violation.
    pub fn load(&mut self) -> Result<KillsTally, String> {
        if self.loads % LOADS_OF_VOLUME == LOADS_OF_VOLUME - 1 {
            self.image = fresh()?;
        }
        let scaling = setting(self.loads)?;
        self.loads += 1;
        let recording = Arc::new(RecordingDevice::new(self.image.clone()));
        let promised = self.promised(&recording)?;
        let mut tally = KillsTally { loads: 1, ..KillsTally::default() };
        tally.compared = self.work(&recording, &promised, scaling)?;
        tally.calls = promised.tangle.calls() as u64;
        tally.grown = promised.growth.times();
        let (mut last, mut random) = (None, Random::new(self.random.number()));
        for state in sample(&recording, (self.plan.kills, &[]), &mut random) {
            let id = state.id();
            match recover(&state, &promised, scaling) {
                Ok((recovered, kill)) => {
                    tally += kill;
                    last = Some(recovered);
                }
                Err(why) => return Err(self.broke(&recording, id, scaling, &why)),
            }
        }
        if let Some(device) = last {
            self.image = empty(&device, scaling)?;
        }
        Ok(tally)
    }

    fn promised(&mut self, recording: &Recording) -> Result<Promised, String> {
        let KillsPlan { own, calls, .. } = self.plan;
        let planted = match self.fault {
            Some(KillsFault::Calls(planted)) => Some(planted),
            _ => None,
        };
        let tangle = Tangle::new(recording.clone(), (own, calls), &mut self.random)?;
        Ok(Promised {
            churn: Promises::new(recording.clone()),
            tangle: tangle.with(planted),
            growth: Growth::new(recording.clone(), self.fault == Some(KillsFault::LostGrowth)),
        })
    }

    fn broke(&mut self, recording: &Recording, id: CrashId, scaling: Scaling, why: &str) -> String {
        self.broken = recording.crash_state(id).map(|state| -> Arc<dyn Device> { state.device() });
        format!("load {}, {scaling:?}, state {id}: {why}", self.loads)
    }

    /// Runs the threads of a load. Returns the number of comparisons.
    fn work(
        &mut self,
        recording: &Recording,
        promised: &Promised,
        scaling: Scaling,
    ) -> Result<u64, String> {
        let (seed, is_over) = (self.random.number(), AtomicBool::new(false));
        let mut device: Arc<dyn Device> = recording.clone();
        if self.fault == Some(KillsFault::LostFlushes) {
            let lying = FaultyDevice::new(device);
            lying.arm(Fault::on(Operation::Flush).lie());
            device = Arc::new(lying);
        }
        let volume = open(device, scaling)?;
        prepare(&volume, promised).map_err(|errno| format!("load {}: {errno}", self.loads))?;
        let grows = self.loads.is_multiple_of(GROWTHS);
        let (worked, compared) = thread::scope(|scope| {
            let (volume, is_over) = (&volume, &is_over);
            let growing = &promised.growth.growing;
            let watcher =
                scope.spawn(move || invariants::watch(volume, recording, (growing, is_over)));
            let grower = grows.then(|| scope.spawn(move || promised.growth.run(volume, is_over)));
            let worked = workers(volume, promised, self.plan, seed);
            is_over.store(true, Ordering::Relaxed);
            let grown = grower.map_or(Ok(()), |grower| joined(grower.join()));
            (worked.and(grown), joined(watcher.join()))
        });
        worked.map_err(|why| format!("load {}: {why}", self.loads))?;
        let compared = compared.map_err(|why| format!("load {}: while running: {why}", self.loads));
        volume.close().map_err(|error| format!("load {}: not closed: {error}", self.loads))?;
        compared
    }
}

type Recording = Arc<RecordingDevice<Arc<dyn Device>>>;

/// The guarantees for the state after a power cut.
struct Promised {
    churn: Promises<Arc<dyn Device>>,
    tangle: Tangle<Arc<dyn Device>>,
    growth: Growth<Arc<dyn Device>>,
}

impl Promised {
    /// Judges the state recovered from a power cut after `marks` marks.
    fn judge(&self, volume: &Volume, marks: usize) -> Result<(), String> {
        let task = volume.task();
        self.churn.judge(&task, marks)?;
        self.tangle.judge(&task, marks)?;
        crowd::judge(&task)?;
        self.growth.judge(volume, marks)
    }
}

/// Makes the directories that threads work in.
fn prepare(volume: &Volume, promised: &Promised) -> Result<(), Errno> {
    let task = volume.task();
    crowd::prepare(&task)?;
    promised.tangle.prepare(&task)
}

/// Runs all threads, each pretending to run on a separate CPU.
fn workers(volume: &Volume, promised: &Promised, plan: KillsPlan, seed: u64) -> Result<(), String> {
    let KillsPlan { threads, rounds, own, crowd, calls, .. } = plan;
    thread::scope(|scope| {
        let of_tangle = (0..own).map(|thread| {
            scope.spawn(move || {
                let _cpu = cpu::pretend((threads + thread) as u32);
                promised.tangle.run(volume.vfs(), thread as usize)
            })
        });
        let of_crowd = (0..crowd).map(|thread| {
            scope.spawn(move || {
                let _cpu = cpu::pretend((threads + own + thread) as u32);
                crowd::run(volume.vfs(), calls, seed ^ (thread + 1).wrapping_mul(0x9e37_79b9))
            })
        });
        let started: Vec<_> = of_tangle.chain(of_crowd).collect();
        let churned = churn::run(volume.vfs(), &promised.churn, (threads, rounds), seed);
        let others = started.into_iter().try_for_each(|thread| joined(thread.join()));
        churned.map_err(|errno| errno.to_string()).and(others)
    })
}

/// Makes an empty volume.
fn fresh() -> Result<Arc<dyn Device>, String> {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 512);
    let device: Arc<dyn Device> = Arc::new(device.map_err(|error| error.to_string())?);
    Volumes::default().format(slice::from_ref(&device))?;
    Ok(device)
}

/// Returns the scaling settings of a load, given its number.
fn setting(load: u64) -> Result<Scaling, String> {
    let all = Scaling::with_slots(SLOTS);
    let names: Vec<_> = PATCHES.iter().filter(|patch| patch.is_of_volumes()).collect();
    let before = |scaling: Scaling, name| {
        scaling.and_before(name).map_err(|error: vfscale::ScalingError| error.to_string())
    };
    match usize::try_from(load).unwrap_or(0) % (names.len() + 2) {
        0 => Ok(all),
        one if one <= names.len() => before(all, names[one - 1].name()),
        _ => names.iter().try_fold(all, |scaling, patch| before(scaling, patch.name())),
    }
}

fn open(device: Arc<dyn Device>, scaling: Scaling) -> Result<Volume, String> {
    let volume = vfscale::volume_on(device).scaling(scaling);
    let volume = volume.sync_interval(Some(Duration::from_millis(5)));
    volume.open().map_err(|error| format!("not opened: {error}"))
}

/// Recovers a state and judges it. Returns the recovered device.
fn recover(
    state: &CrashState,
    promised: &Promised,
    scaling: Scaling,
) -> Result<(Arc<dyn Device>, KillsTally), String> {
    let device: Arc<dyn Device> = state.device();
    let volume = open(device.clone(), scaling)?;
    let opened = *volume.driver().opened();
    let left = volume.driver().volume().orphans().len();
    if left != 0 || opened.orphans.failed != 0 {
        return Err(format!("{left} orphans are left; {opened:?}"));
    }
    promised.judge(&volume, state.marks())?;
    volume.close().map_err(|error| format!("not closed: {error}"))?;
    Volumes::default().check(slice::from_ref(&device))?;
    let (removed, cut) = (opened.orphans.removed, opened.orphans.cut);
    let replayed = opened.log.checkpoints;
    Ok((device, KillsTally { kills: 1, removed, cut, replayed, ..KillsTally::default() }))
}

/// Removes all files of a volume, and makes a copy of it that does not refer to older devices.
fn empty(device: &Arc<dyn Device>, scaling: Scaling) -> Result<Arc<dyn Device>, String> {
    let volume = open(device.clone(), scaling)?;
    let task = volume.task();
    for entry in task.read_dir("/").map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        task.remove_dir_all(&path).map_err(|error| format!("removing: {error}"))?;
    }
    drop(task);
    volume.close().map_err(|error| format!("not closed: {error}"))?;
    Volumes::default().check(slice::from_ref(device))?;
    copy(device)
}

/// Copies a device.
fn copy(from: &Arc<dyn Device>) -> Result<Arc<dyn Device>, String> {
    const PIECE: usize = 64 << 10;
    let device = MemoryDevice::with_block_size(from.size(), 512);
    let to = device.map_err(|error| error.to_string())?;
    let mut piece = vec![0; PIECE];
    for at in (0..from.size()).step_by(PIECE) {
        from.read_at(at, &mut piece).map_err(|error| error.to_string())?;
        if piece.iter().any(|byte| *byte != 0) {
            to.write_at(at, &piece).map_err(|error| error.to_string())?;
        }
    }
    Ok(Arc::new(to))
}
