//! Volumes on branches of a pool: they survive all that volumes on devices survive, and siblings do
//! not see each other.
//!
//! `VFSCALE_CRASH_STATES` sets the total number of checked states of the sweeps here (400).

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use vfscale::{Errno, Vfs, Volume};
use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_crashtest::number;
use vfscale_crashtest::script::op::Op;
use vfscale_crashtest::script::{self, Script};
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::subject::{Disk, Opened, Subject};
use vfscale_crashtest::sweep::{Sweep, SweepPlan};
use vfscale_diskfs::copies;
use vfscale_pool::{Branch, Pool};
use vfscale_sync::random::{Random, seed};

const DEVICE: u64 = 40 << 20;
const BRANCH: u64 = 24 << 20;

/// A volume on branch `main`, which has been forked a few times.
struct Branches {
    volumes: Volumes,
    forks: usize,
    /// Whether scripts run on a child of `main`, whose log has to be replayed and replaced when it
    /// is first opened.
    of_child: bool,
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

    fn done(&self, op: &Op) -> Result<(), Errno> {
        self.volume.done(op)
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        if self.forks_child {
            Op::Sync.run(&self.vfs().task()).map_err(text)?;
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
                Op::Mkdir(format!("/depth{fork}")).run(&opened.vfs().task()).map_err(text)?;
                Op::Rmdir(format!("/depth{fork}")).run(&opened.vfs().task()).map_err(text)?;
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
    sweep(&subject, 8 << 20, &scripts, states / 2, seed);
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
        Op::Mkdir(format!("/both{n}")).run(&parent.task()).unwrap();
    }
    Op::Sync.run(&parent.task()).unwrap();
    pool.fork("main", "child", false).unwrap();
    let child = open(&pool, "child");
    for n in 0..50 {
        Op::Mkdir(format!("/parent{n}")).run(&parent.task()).unwrap();
        Op::Mkdir(format!("/child{n}")).run(&child.task()).unwrap();
        Op::Rmdir(format!("/both{n}")).run(&child.task()).unwrap();
        Op::Sync.run(&child.task()).unwrap();
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
