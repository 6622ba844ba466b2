//! Threads that change names side by side in shared directories, where all of them are delayed, and
//! power cuts that test the order of each.
//!
//! # Guarantees under test
//!
//! Each thread has names of its own. Those that a cut leaves are the names after some prefix of its
//! calls, with the directories that they are in: not shorter than at the last sync of the thread
//! that had returned.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use vfscale::Task;
use vfscale_block::MemoryDevice;
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::Compound;
use vfscale_testkit::calls::op::Op;

use crate::load::joined;
use crate::subject::volume::Volumes;
use crate::subject::{Disk, Subject};
use crate::sweep::{Recorded, disks, dynamic, recording, sample};

/// Size of the volume in bytes.
const DEVICE_BYTES: u64 = 32 << 20;
/// The directories that the threads share.
const DIRS: [&str; 2] = ["/one", "/two"];
/// Number of calls of a thread between two syncs, on average.
const CALLS_OF_SYNC: u64 = 40;
/// Length of the longest part that a name is filled up with.
const FILL_MAX: usize = 60;

/// Number of threads and amount of their work.
#[derive(Clone, Copy, Debug)]
pub struct NamesPlan {
    /// Number of threads.
    pub threads: usize,
    /// Number of calls of each.
    pub calls: usize,
    /// Size of the log in blocks of 4 KiB.
    pub log_blocks: u64,
    /// Whether the log is on a device of its own, which is cut at the same moment.
    pub has_log_device: bool,
    /// Whether promises are made without a sync: a planted fault, which the test must find.
    pub promises_more: bool,
    /// Number of power cuts that are checked.
    pub cuts: usize,
}

/// Result of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesTally {
    /// Number of syncs that returned.
    pub syncs: u64,
    /// Number of power cuts that were checked.
    pub cuts: u64,
    /// Number of names that were found.
    pub names: u64,
}

impl AddAssign for NamesTally {
    fn add_assign(&mut self, other: Self) {
        self.syncs += other.syncs;
        self.cuts += other.cuts;
        self.names += other.names;
    }
}

impl fmt::Display for NamesTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { syncs, cuts, names } = self;
        write!(f, "{cuts} cuts, {syncs} syncs, {names} names found")
    }
}

/// Returns the path of the name that call `call` of a thread makes.
fn path(thread: usize, call: usize) -> String {
    let fill = "x".repeat(call * 7 % FILL_MAX);
    format!("{}/{thread}-{call}-{fill}", DIRS[call / 3 % 2])
}

/// Returns call number `call` of a thread: it makes names, moves every other one to the name of a
/// later call, and removes most.
fn op(thread: usize, call: usize) -> Compound {
    match call % 6 {
        3 => Compound::rename(path(thread, call - 3), path(thread, call), 0),
        4 => Compound::unlink(path(thread, call - 3)),
        5 if call >= 60 && call % 12 == 5 => Compound::unlink(path(thread, call - 50)),
        _ => Compound::create(path(thread, call)),
    }
}

/// Returns the paths of a thread after so many calls.
fn paths_after(thread: usize, calls: usize) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for call in 0..calls {
        let op = op(thread, call);
        match (&*op.0, &*op.paths()) {
            ([Op::Rename { .. }], [from, to]) => {
                paths.remove(*from);
                paths.insert((*to).to_owned());
            }
            ([Op::Unlink { .. }], [path]) => _ = paths.remove(*path),
            (_, made) => paths.extend(made.iter().map(|path| (*path).to_owned())),
        }
    }
    paths
}

/// A sync that has returned: the number of marks since, the thread, and the number of its calls.
type Promised = (usize, usize, usize);

/// Runs threads on a new volume, and checks states that power cuts might have left.
///
/// # Errors
/// Describes the violation.
pub fn run(plan: NamesPlan, seed: u64) -> Result<NamesTally, String> {
    let log_device = plan.has_log_device.then_some(plan.log_blocks * 4096);
    let log_blocks = Some(plan.log_blocks);
    let subject = Volumes { dir_heat: Some(0), log_blocks, log_device, ..Volumes::default() };
    let device = |bytes| {
        let device = MemoryDevice::with_block_size(bytes, 512);
        device.map(|device| Arc::new(device) as Disk).map_err(|error| error.to_string())
    };
    let bases: Result<Vec<_>, _> =
        [DEVICE_BYTES].into_iter().chain(log_device).map(device).collect();
    let bases = bases?;
    subject.format(&bases)?;
    let recorded = recording(&bases);
    let (mut tally, promised) = make(plan, &subject, &recorded, seed)?;
    let mut random = Random::new(seed);
    for state in sample(&*recorded[0], (plan.cuts, &[]), &mut random) {
        tally.cuts += 1;
        let wrong = |why: String| format!("seed {seed}, state {}: {why}", state.id());
        let left = disks(&state);
        let opened = subject.open(&left).map_err(|why| wrong(format!("not opened: {why}")))?;
        let task = opened.vfs().task();
        for thread in 0..plan.threads {
            let marks = state.marks();
            let of_thread = promised.iter().filter(|(mark, of, _)| *mark <= marks && *of == thread);
            let least = of_thread.map(|(.., calls)| *calls).max().unwrap_or(0);
            tally.names += judge(&task, (thread, plan.calls), least).map_err(wrong)?;
        }
        drop(task);
        opened.close().map_err(|why| wrong(format!("not closed: {why}")))?;
        subject.check(&left).map_err(wrong)?;
    }
    Ok(tally)
}

/// Runs the threads. Returns the syncs that have returned.
fn make(
    plan: NamesPlan,
    subject: &Volumes,
    recorded: &[Recorded],
    seed: u64,
) -> Result<(NamesTally, Vec<Promised>), String> {
    let opened = subject.open(&dynamic(recorded))?;
    let (vfs, promised) = (opened.vfs(), Mutex::new(Vec::new()));
    let run = |op: Compound, task: &Task| op.run(task).map_err(|errno| format!("{op}: {errno}"));
    let task = vfs.task();
    for dir in DIRS {
        run(Compound::mkdir(dir), &task)?;
    }
    run(Compound::sync(), &task)?;
    drop(task);
    // Before this moment the directories need not be there.
    recorded[0].mark("begun");
    let work = &|thread: usize| {
        let (task, mut random) = (vfs.task(), Random::new(seed ^ (thread as u64 + 1) << 32));
        for call in 0..plan.calls {
            run(op(thread, call), &task)?;
            if random.below(CALLS_OF_SYNC) == 0 {
                if !plan.promises_more {
                    run(Compound::sync(), &task)?;
                }
                let mark = recorded[0].mark(format!("thread {thread}: {} calls", call + 1));
                let mut promised = promised.lock().unwrap_or_else(PoisonError::into_inner);
                promised.push((mark, thread, call + 1));
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads).map(|at| scope.spawn(move || work(at))).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| joined(thread.join())).collect();
        ended.into_iter().collect::<Result<(), String>>()
    })?;
    opened.close().map_err(|why| format!("not closed: {why}"))?;
    let promised = promised.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((NamesTally { syncs: promised.len() as u64, ..NamesTally::default() }, promised))
}

/// Checks that the names of a thread are those after at least `least` of its calls. Returns their
/// number.
fn judge(task: &Task, (thread, calls): (usize, usize), least: usize) -> Result<u64, String> {
    let mut found = BTreeSet::new();
    for dir in DIRS {
        // A cut may be before the directories.
        for entry in task.read_dir(dir).into_iter().flatten() {
            let entry = entry.map_err(|error| format!("{dir}: {error}"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("{thread}-")) {
                let path = format!("{dir}/{name}");
                let seen = task.symlink_metadata(&path);
                seen.map_err(|error| format!("{path}: {error}"))?;
                found.insert(path);
            }
        }
    }
    if (least..=calls).any(|calls| paths_after(thread, calls) == found) {
        return Ok(found.len() as u64);
    }
    let earlier = (0..least).rfind(|calls| paths_after(thread, *calls) == found);
    Err(format!("thread {thread}: names after {earlier:?} calls, {least} were promised: {found:?}"))
}
