//! Volumes on branches of a pool: they survive all that volumes on devices survive, and siblings do
//! not see each other.
//!
//! `VFSCALE_CRASH_STATES` sets the total number of checked states of the sweeps here (400).

use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vfscale::{Errno, OpenOptions, Task, Vfs, Volume};
use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_crashtest::number;
use vfscale_crashtest::script::{self, Script};
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::subject::{Disk, Opened, Subject};
use vfscale_crashtest::sweep::{Sweep, SweepPlan, recording};
use vfscale_diskfs::{Cut, copies};
use vfscale_pool::{Branch, Kind, Pool};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::CrashPlan;
use vfscale_testkit::calls::compound::Compound;

pub(crate) const DEVICE: u64 = 40 << 20;
const BRANCH: u64 = 24 << 20;

/// A volume on branch `main`, which has been forked a few times.
pub(crate) struct Branches {
    pub(crate) volumes: Volumes,
    pub(crate) forks: usize,
    /// Whether scripts run on a child of `main`, whose log has to be replayed and replaced when it
    /// is first opened.
    pub(crate) of_child: bool,
}

struct Open {
    volume: Box<dyn Opened>,
    branch: Arc<Branch>,
    pool: Pool,
    /// Whether to end as a crash does, and to fork the child.
    forks_child: bool,
}

impl Opened for Open {
    fn vfs(&self) -> &Vfs {
        self.volume.vfs()
    }

    fn done(&self, op: &Compound) -> Result<(), Errno> {
        self.volume.done(op)
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        if self.forks_child {
            Compound::sync().run(&self.vfs().task()).map_err(text)?;
            drop(self.volume);
            self.branch.close().map_err(text)?;
            self.pool.fork("main", "child", false).map_err(text)?;
            return self.pool.close().map_err(text);
        }
        self.volume.close()?;
        self.branch.close().map_err(text)?;
        whole(&self.pool)?;
        self.pool.close().map_err(text)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn whole(pool: &Pool) -> Result<(), String> {
    let report = pool.check().map_err(text)?;
    if report.problems.is_empty() { Ok(()) } else { Err(format!("{:?}", report.problems)) }
}

impl Branches {
    /// Calls `call` with branch `name`, and closes it.
    fn with<T>(
        pool: &Pool,
        name: &str,
        call: impl FnOnce(&[Disk]) -> Result<T, String>,
    ) -> Result<T, String> {
        let branch = pool.branch(name).map_err(text)?;
        let disk: Disk = branch.clone();
        let result = call(&[disk])?;
        branch.close().map_err(text)?;
        Ok(result)
    }
}

impl Subject for Branches {
    fn format(&self, disks: &[Disk]) -> Result<(), String> {
        let pool = Pool::create(disks[0].clone(), [9; 16]).map_err(text)?;
        pool.create_branch("main", BRANCH).map_err(text)?;
        Self::with(&pool, "main", |disks| self.volumes.format(disks))?;
        for fork in 0..self.forks {
            // Something of each depth.
            Self::with(&pool, "main", |disks| {
                let opened = self.volumes.open(disks)?;
                Compound::mkdir(format!("/depth{fork}")).run(&opened.vfs().task()).map_err(text)?;
                Compound::rmdir(format!("/depth{fork}")).run(&opened.vfs().task()).map_err(text)?;
                opened.close()
            })?;
            pool.fork("main", &format!("sibling{fork}"), fork % 2 == 0).map_err(text)?;
        }
        pool.close().map_err(text)
    }

    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String> {
        let pool = Pool::open(disks[0].clone()).map_err(text)?;
        let has_child = pool.list().iter().any(|info| info.name == "child");
        let branch = pool.branch(if has_child { "child" } else { "main" }).map_err(text)?;
        let disk: Disk = branch.clone();
        let volume = self.volumes.open(&[disk])?;
        Ok(Box::new(Open { volume, branch, pool, forks_child: self.of_child && !has_child }))
    }

    fn check(&self, disks: &[Disk]) -> Result<(), String> {
        let pool = Pool::open(disks[0].clone()).map_err(text)?;
        whole(&pool)?;
        for fork in 0..self.forks {
            Self::with(&pool, &format!("sibling{fork}"), |disks| self.volumes.check(disks))
                .map_err(|why| format!("sibling {fork}: {why}"))?;
        }
        let names = pool.list().into_iter().map(|info| info.name);
        let mut rest = names.filter(|name| !name.starts_with("sibling"));
        rest.try_for_each(|name| Self::with(&pool, &name, |disks| self.volumes.check(disks)))
    }
}

fn sweep(subject: &Branches, device_bytes: u64, scripts: &[Script], states: usize, seed: u64) {
    let states_of_script = (states / scripts.len()).max(1);
    let mut sweep =
        Sweep::new(subject, SweepPlan { device_bytes, states_of_script, seed }).unwrap();
    scripts.iter().for_each(|script| sweep.run(script));
    let summary = sweep.finish();
    println!("{summary}");
    assert!(summary.violations.is_empty(), "{summary}");
    assert!(summary.states * 2 > states, "{summary}");
}

#[test]
fn power_cuts_on_a_branch() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 400));
    let mut random = Random::new(seed);
    let scripts: Vec<Script> =
        (0..(states / 40).max(2)).map(|_| script::random(&mut random, 4)).collect();
    let subject = Branches { volumes: Volumes::default(), forks: 3, of_child: false };
    sweep(&subject, DEVICE, &scripts, states / 2, seed);
}

#[test]
fn power_cuts_on_a_branch_with_write_back() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 400));
    let mut random = Random::new(seed);
    let scripts: Vec<Script> =
        (0..(states / 100).max(2)).map(|_| script::random(&mut random, 60)).collect();
    let sync_interval = Some(Duration::from_millis(10));
    let volumes = Volumes { sync_interval, log_blocks: Some(256), ..Volumes::default() };
    let subject = Branches { volumes, forks: 1, of_child: false };
    sweep(&subject, DEVICE, &scripts, states / 2, seed);
}

/// The first opening of a child, and work in it, in a pool that is so small that places of others
/// are used again at once.
#[test]
fn power_cuts_in_a_child() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 400));
    let mut random = Random::new(seed);
    let scripts: Vec<Script> =
        (0..(states / 40).max(2)).map(|_| script::random(&mut random, 6)).collect();
    let volumes = Volumes { log_blocks: Some(256), ..Volumes::default() };
    let subject = Branches { volumes, forks: 2, of_child: true };
    // A volume reserves room for its log and its removals, and that counts several times.
    sweep(&subject, 16 << 20, &scripts, states / 2, seed);
}

fn open(pool: &Pool, name: &str) -> Volume {
    vfscale::volume_on(pool.branch(name).unwrap()).sync_interval(None).open().unwrap()
}

fn names(volume: &Volume) -> Vec<String> {
    let task = volume.task();
    let entries = task.read_dir("/").unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A program that does not know pools finds no volume, also where it looks for copies of a lost
/// superblock: a branch that is full of such copies has none of them there.
#[test]
fn a_pool_is_no_volume() {
    let device: Disk = Arc::new(MemoryDevice::new(DEVICE).unwrap());
    let volume: Disk = Arc::new(MemoryDevice::new(BRANCH).unwrap());
    Volumes::default().format(slice::from_ref(&volume)).unwrap();
    let mut blocks = vec![vec![0; 4096]; 3];
    for (block, power) in blocks.iter_mut().zip(10..) {
        volume.read_at(4096 << power, block).unwrap();
    }
    blocks.retain(|block| block.starts_with(b"vfsS"));
    assert!(!blocks.is_empty());
    let pool = Pool::create(device.clone(), [9; 16]).unwrap();
    for (number, block) in blocks.iter().enumerate() {
        let name = format!("b{number}");
        pool.create_branch(&name, DEVICE).unwrap();
        let branch = pool.branch(&name).unwrap();
        let mut offset = 0;
        while branch.write_at(offset, block).is_ok() {
            offset += 4096;
        }
        branch.close().unwrap();
        for lost in [false, true] {
            let image = CowDevice::new(device.clone());
            if lost {
                image.write_at(0, &[0; 4096]).unwrap();
            }
            assert!(copies::read(&image).is_err(), "copy {number}");
        }
        pool.delete(&name).unwrap();
        while pool.reap(1000).unwrap().more {}
    }
}

/// A child of a mounted volume has what the device had at that moment; both go on by themselves.
#[test]
fn a_fork_of_a_mounted_volume() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(2 * DEVICE).unwrap());
    let pool = Pool::create(device.clone(), [9; 16]).unwrap();
    pool.create_branch("main", BRANCH).unwrap();
    Branches::with(&pool, "main", |disks| Volumes::default().format(disks)).unwrap();
    let parent = open(&pool, "main");
    for n in 0..50 {
        Compound::mkdir(format!("/both{n}")).run(&parent.task()).unwrap();
    }
    Compound::sync().run(&parent.task()).unwrap();
    pool.fork("main", "child", false).unwrap();
    let child = open(&pool, "child");
    for n in 0..50 {
        Compound::mkdir(format!("/parent{n}")).run(&parent.task()).unwrap();
        Compound::mkdir(format!("/child{n}")).run(&child.task()).unwrap();
        Compound::rmdir(format!("/both{n}")).run(&child.task()).unwrap();
        Compound::sync().run(&child.task()).unwrap();
    }
    for (volume, own, other) in [(parent, "parent", "child"), (child, "child", "parent")] {
        let found = names(&volume);
        assert_eq!(found.iter().filter(|name| name.starts_with(own)).count(), 50);
        assert!(!found.iter().any(|name| name.starts_with(other)));
        let both = found.iter().filter(|name| name.starts_with("both")).count();
        assert_eq!(both, if own == "parent" { 50 } else { 0 });
        volume.close().unwrap();
    }
    // Power fails: nobody closes the branches.
    let pool = Pool::open(device).unwrap();
    let check = |name| Branches::with(&pool, name, |disks| Volumes::default().check(disks));
    check("main").unwrap();
    check("child").unwrap();
    whole(&pool).unwrap();
    pool.delete("child").unwrap();
    while pool.reap(1000).unwrap().more {}
    whole(&pool).unwrap();
    check("main").unwrap();
}

/// How many files a writer of [`forks_of_a_busy_volume`] has.
const FILES: u64 = 13;

/// Writes record `number` of a thread: to the end of one of its files in turn. Now and then makes a
/// directory that says how far it is, and renames it.
fn write_record(task: &Task, thread: usize, number: u64) {
    let path = format!("/t{thread} {}", number % FILES);
    let options = OpenOptions::new().append(true).create(true);
    let file = task.open_with(path, &options).unwrap();
    file.write(&[&number.to_le_bytes()[..], &[7; 300]].concat()).unwrap();
    if number % 5 == 4 {
        task.create_dir(format!("/new {thread} {number}")).unwrap();
        task.rename(format!("/new {thread} {number}"), format!("/d{thread} {number}")).unwrap();
    }
}

/// Returns how many records of a thread a volume has. They must be its first ones, the last one
/// perhaps in part, with the directories that belong to them.
fn records_of(volume: &Volume, thread: usize) -> Result<u64, String> {
    let task = volume.task();
    let mut found = Vec::new();
    for file in 0..FILES {
        let path = format!("/t{thread} {file}");
        let bytes = if task.exists(&path).map_err(text)? {
            task.read(&path).map_err(text)?
        } else {
            vec![]
        };
        for (at, record) in (0..).zip(bytes.chunks_exact(308)) {
            let number = u64::from_le_bytes(record[..8].try_into().unwrap());
            if number != file + at * FILES || record[8..] != [7; 300] {
                return Err(format!("{path}: record {at} is {number}"));
            }
            found.push(number);
        }
    }
    found.sort_unstable();
    let count = found.len() as u64;
    if !found.iter().copied().eq(0..count) {
        return Err(format!("thread {thread} lacks a record of {count}: {found:?}"));
    }
    for number in (4..count + 5).step_by(5) {
        let is_there = task.exists(format!("/d{thread} {number}")).map_err(text)?;
        // The directory of the last record may be missing; none is there before its record.
        if is_there != (number < count) && number + 1 != count {
            return Err(format!(
                "thread {thread}, {count} records, directory {number}: {is_there}"
            ));
        }
    }
    Ok(count)
}

/// Children of a volume that is written to without a sync have a beginning of what each thread did,
/// with all that had returned before the fork. Fails if the data that is dirty when the gate is
/// shut is not written, or if the gate of data is shut after that of the journal.
#[test]
fn forks_of_a_busy_volume() {
    const THREADS: usize = 3;
    let forks = number("VFSCALE_CRASH_STATES", 400) / 10;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 * DEVICE).unwrap());
    let pool = Pool::create(device.clone(), [9; 16]).unwrap();
    pool.create_branch("main", 4 * DEVICE).unwrap();
    Branches::with(&pool, "main", |disks| Volumes::default().format(disks)).unwrap();
    // Write-back in the background is always on its way.
    let parent = vfscale::volume_on(pool.branch("main").unwrap())
        .sync_interval(Some(Duration::from_millis(4)));
    let parent = parent.open().unwrap();
    let done: [AtomicU64; THREADS] = std::array::from_fn(|_| AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let now = || done.each_ref().map(|done| done.load(Ordering::SeqCst));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (task, done, is_over) = (parent.task(), &done[thread], &is_over);
            scope.spawn(move || {
                for number in 0..20_000 {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    write_record(&task, thread, number);
                    done.store(number + 1, Ordering::SeqCst);
                }
            });
        }
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for fork in 0..forks {
                thread::sleep(Duration::from_millis(3));
                let least = now();
                let cut = |cut: &mut Cut<'_>| {
                    pool.fork_with("main", "child", Kind::Writable, || cut.thaw())
                };
                parent.driver().cut(cut).unwrap().unwrap();
                let most = now();
                Branches::with(&pool, "child", |disks| Volumes::default().check(disks)).unwrap();
                let branch = pool.branch("child").unwrap();
                let child = vfscale::volume_on(branch.clone()).sync_interval(None).open().unwrap();
                for thread in 0..THREADS {
                    let count = records_of(&child, thread)
                        .unwrap_or_else(|why| panic!("fork {fork}: {why}"));
                    assert!(
                        (least[thread]..=most[thread] + 1).contains(&count),
                        "fork {fork}: {count}"
                    );
                }
                child.close().unwrap();
                branch.close().unwrap();
                pool.delete("child").unwrap();
                while pool.reap(10_000).unwrap().more {}
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    parent.close().unwrap();
    whole(&pool).unwrap();
}

/// A fork that has returned is there after every power cut, with all that calls had returned for,
/// although nothing was synced; one that has not is there whole or not at all.
#[test]
fn power_cuts_around_a_fork_of_unsynced_work() {
    const RECORDS: u64 = 40;
    let device: Disk = Arc::new(MemoryDevice::with_block_size(DEVICE, 512).unwrap());
    let pool = Pool::create(device.clone(), [9; 16]).unwrap();
    pool.create_branch("main", BRANCH).unwrap();
    Branches::with(&pool, "main", |disks| Volumes::default().format(disks)).unwrap();
    pool.close().unwrap();
    let recorded = recording(&[device]).remove(0);
    let pool = Pool::open(recorded.clone()).unwrap();
    let parent = open(&pool, "main");
    let write = |range: Range<u64>| range.for_each(|n| write_record(&parent.task(), 0, n));
    write(0..RECORDS);
    let fork = |cut: &mut Cut<'_>| pool.fork_with("main", "child", Kind::Writable, || cut.thaw());
    parent.driver().cut(fork).unwrap().unwrap();
    recorded.mark("forked");
    write(RECORDS..RECORDS + 20);
    Compound::sync().run(&parent.task()).unwrap();
    recorded.mark("synced");
    drop((parent, pool));
    let (mut forked, mut not) = (0, 0);
    for state in recorded.crash_states(CrashPlan::default().listed_max(4).samples(2)) {
        let pool = Pool::open(state.device()).unwrap();
        whole(&pool).unwrap_or_else(|why| panic!("{}: {why}", state.id()));
        let main = open(&pool, "main");
        let count = records_of(&main, 0).unwrap_or(0);
        assert!(state.marks() < 2 || count == RECORDS + 20, "{}: {count}", state.id());
        let is_forked = pool.list().iter().any(|info| info.name == "child");
        assert!(is_forked || state.marks() == 0, "{}", state.id());
        *(if is_forked { &mut forked } else { &mut not }) += 1;
        if is_forked {
            let child = open(&pool, "child");
            assert_eq!(records_of(&child, 0), Ok(RECORDS), "{}", state.id());
        }
    }
    assert!(forked > 20 && not > 20, "{forked} states with the fork, {not} without");
}
