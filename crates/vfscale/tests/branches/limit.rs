//! Branches at the limit of a pool: each kind of reservation by itself.
//!
//! A volume reserves its log, the homes of its metadata and its dirty pages. Each test needs one of
//! these far more than the others, so what the others have reserved too much does not cover it: a
//! volume that forgets this reservation meets a full pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::block::{Device, MemoryDevice};
use vfscale::posix::{At, AtFlags, OFlags};
use vfscale::{Errno, Mode, Task, Volume};
use vfscale_diskfs::{check, check::Options, mkfs, mkfs::MkfsOptions};
use vfscale_pool::Pool;

use crate::watched::{Watched, watched};

const MODE: Mode = Mode::from_bits_retain(0o755);
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// The refusals after which a branch ends.
const REFUSED_MAX: u64 = 50;

/// A pool whose branch `main` was made by a test.
struct Limited {
    device: Arc<MemoryDevice>,
    pool: Pool,
    /// How many writes of volumes have found it full.
    full: Arc<AtomicU64>,
}

/// An open branch.
struct Open {
    name: &'static str,
    device: Arc<Watched>,
    volume: Volume,
}

impl Open {
    fn task(&self) -> Task {
        self.volume.task()
    }
}

impl Limited {
    /// Makes a pool of `bytes` bytes with a volume of `volume` bytes and a log of `log` blocks,
    /// which `fill` fills; and the branches `names` of it.
    fn new(
        (bytes, volume, log): (u64, u64, u64),
        names: &[&str],
        fill: impl FnOnce(&Task),
    ) -> Self {
        let device = Arc::new(MemoryDevice::new(bytes).unwrap());
        let pool = Pool::create(device.clone(), [5; 16]).unwrap();
        pool.create_branch("main", volume).unwrap();
        pool.create_branch("filler", 2 * bytes).unwrap();
        let main = Arc::new(pool.branch("main").unwrap());
        let options = MkfsOptions { log_blocks: Some(log), ..MkfsOptions::default() };
        mkfs::format(&*main, &options).unwrap();
        let opened = vfscale::volume_on(main.clone()).open().unwrap();
        fill(&opened.task());
        opened.close().unwrap();
        main.close().unwrap();
        for name in names {
            pool.fork("main", name, false).unwrap();
        }
        Self { device, pool, full: Arc::default() }
    }

    /// Opens a copy of the pool as a crash at this moment would leave it.
    fn copy(&self) -> Self {
        let device = Arc::new(MemoryDevice::new(self.device.size()).unwrap());
        let mut bytes = vec![0; MIB as usize];
        for at in (0..self.device.size()).step_by(bytes.len()) {
            self.device.read_at(at, &mut bytes).unwrap();
            device.write_at(at, &bytes).unwrap();
        }
        Self { pool: Pool::open(device.clone()).unwrap(), device, full: Arc::default() }
    }

    /// Opens a branch whose volume writes back only when it must.
    fn open(&self, name: &'static str) -> Open {
        let branch = self.pool.branch(name).unwrap();
        let device = Arc::new(watched(branch, self.full.clone()));
        let builder = vfscale::volume_on(device.clone()).cache_size(192 * MIB).sync_interval(None);
        Open { name, volume: builder.open().unwrap(), device }
    }

    /// Fills the pool with another branch until `left` bytes are free, or none.
    fn fill(&self, left: u64) {
        let filler = self.pool.branch("filler").unwrap();
        let mut at = 0;
        for step in [MIB, PAGE] {
            while self.pool.usage().free > left + step
                && filler.write_at(at, &vec![7; step as usize]).is_ok()
            {
                at += step;
            }
        }
        filler.flush().unwrap();
        filler.close().unwrap();
    }

    fn assert_never_full(&self, what: &str) {
        assert_eq!(self.full.load(Ordering::Relaxed), 0, "{what}: a volume found the pool full");
    }

    /// Closes a branch, and checks its volume.
    fn close(&self, open: Open) {
        let Open { name, device, volume } = open;
        volume.close().unwrap_or_else(|error| panic!("{name}: {error}"));
        device.below.close().unwrap();
        let device = Arc::new(self.pool.branch(name).unwrap());
        let report = check::check(device.clone(), &Options::default(), &mut ()).unwrap();
        assert_eq!(report.findings, [], "{name}");
        device.close().unwrap();
    }

    /// Checks the pool itself.
    fn check(&self) {
        assert_eq!(self.pool.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Returns whether a call was accepted; it may only lack space.
fn is_accepted<E: Into<Errno>>(result: Result<(), E>) -> bool {
    match result.map_err(Into::into) {
        Ok(()) => true,
        Err(Errno::NOSPC) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Overwrites a page of a file, all of its bytes with `byte`.
fn overwrite(task: &Task, path: &str, page: u64, byte: u8) -> Result<(), Errno> {
    let file = task.posix().open(path, OFlags::RDWR, MODE)?;
    let written = file.pwrite(&[byte; PAGE as usize], page * PAGE)?;
    if written == PAGE as usize { Ok(()) } else { Err(Errno::NOSPC) }
}

/// Three branches dirty all pages of a file that they share, three times what the pool has room
/// for, and write back at the end: what was accepted is there.
#[test]
fn pages_over_shared_blocks_are_reserved() {
    const PAGES: u64 = 24 * MIB / PAGE;
    let names = ["a", "b", "c"];
    let limited = Limited::new((80 * MIB, 64 * MIB, 256), &names, |task| {
        task.write("/shared", vec![1; 24 << 20]).unwrap();
    });
    let branches = names.map(|name| limited.open(name));
    let (mut accepted, mut refused) = ([const { Vec::new() }; 3], [0; 3]);
    for page in 0..PAGES {
        for (branch, open) in branches.iter().enumerate() {
            // Not in a row.
            let page = page * 1001 % PAGES;
            if refused[branch] == REFUSED_MAX {
                continue;
            }
            match is_accepted(overwrite(&open.task(), "/shared", page, 2 + branch as u8)) {
                true => accepted[branch].push(page),
                false => refused[branch] += 1,
            }
        }
    }
    assert!(refused.iter().all(|count| *count > 0), "{refused:?} were refused");
    assert!(accepted.iter().all(|pages| pages.len() > 100), "{refused:?} were refused");
    limited.assert_never_full("writing");
    branches.into_iter().for_each(|open| limited.close(open));
    limited.assert_never_full("writing back");
    for (branch, name) in names.into_iter().enumerate() {
        let open = limited.open(name);
        let bytes = open.task().read("/shared").unwrap();
        let mut expected = vec![1; 24 << 20];
        for page in &accepted[branch] {
            expected[(page * PAGE) as usize..][..PAGE as usize].fill(2 + branch as u8);
        }
        assert!(bytes == expected, "{name} has other bytes");
        limited.close(open);
    }
    limited.check();
}

/// Changes the inodes of thousands of files in a full pool: each has a block that is shared.
#[test]
fn homes_of_metadata_are_reserved() {
    const FILES: u64 = 16_000;
    let names = ["a", "b", "c"];
    let limited = Limited::new((96 * MIB, 64 * MIB, 512), &names, |task| {
        for file in 0..FILES {
            task.write(format!("/file{file}"), "").unwrap();
        }
    });
    let branches = names.map(|name| limited.open(name));
    // The first change reserves the log.
    for open in &branches {
        open.task().write("/first", "").unwrap();
        open.volume.sync().unwrap();
    }
    limited.fill(2 * MIB);
    let mut refused = 0;
    for file in 0..FILES {
        for open in &branches {
            let task = open.task();
            let file = format!("/file{}", file * 1001 % FILES);
            let mode = Mode::from_bits_retain(0o600);
            let changed = task.posix().fchmodat(At::Cwd, file, mode, AtFlags::empty());
            limited.assert_never_full("changing inodes");
            refused += u64::from(!is_accepted(changed));
        }
    }
    assert!(refused > 0, "none was refused");
    branches.into_iter().for_each(|open| limited.close(open));
    limited.assert_never_full("closing");
    limited.check();
}

/// Goes round the whole log in a pool that was filled after the first change.
#[test]
fn the_log_is_reserved() {
    let limited = Limited::new((96 * MIB, 512 * MIB, 4000), &["a"], |task| {
        task.write("/file", "").unwrap();
    });
    let branch = limited.pool.branch("a").unwrap();
    let device = Arc::new(watched(branch, limited.full.clone()));
    let volume = vfscale::volume_on(device.clone()).branch_log_size(16 * MIB).sync_interval(None);
    let open = Open { name: "a", volume: volume.open().unwrap(), device };
    let task = open.task();
    task.write("/file", "first").unwrap();
    open.volume.sync().unwrap();
    limited.fill(0);
    let mut accepted = 0;
    for n in 0..6000 {
        let mode = Mode::from_bits_retain(0o600 + n % 8);
        let changed = task.posix().fchmodat(At::Cwd, "/file", mode, AtFlags::empty());
        accepted += u64::from(is_accepted(changed));
        open.volume.sync().unwrap();
        limited.assert_never_full("logging");
    }
    assert!(accepted > 5000, "{accepted} changes were accepted");
    drop(task);
    limited.close(open);
    limited.check();
}

/// Small files that wait for write-back are written by the close of a full branch, although
/// removals have used up what is set aside for them.
#[test]
fn accepted_data_survives_removals_and_the_close() {
    const FILES: u64 = 3000;
    let limited = Limited::new((64 * MIB, 64 * MIB, 512), &["a"], |task| {
        for file in 0..FILES {
            task.write(format!("/file{file}"), vec![1; PAGE as usize]).unwrap();
            task.write(format!("/small{file}"), "").unwrap();
        }
    });
    let open = limited.open("a");
    open.task().write("/first", "").unwrap();
    open.volume.sync().unwrap();
    limited.fill(6 * MIB);
    let (mut accepted, mut removed) = (Vec::new(), 0);
    for file in 0..FILES {
        let file = file * 1001 % FILES;
        if is_accepted(overwrite(&open.task(), &format!("/file{file}"), 0, 2)) {
            accepted.push(file);
        }
        let gone = open.task().remove_file(format!("/small{file}"));
        removed += u64::from(is_accepted(gone));
    }
    assert!(accepted.len() > 20, "{} were accepted", accepted.len());
    assert!(accepted.len() < FILES as usize, "none was refused");
    assert!(removed > 500, "{removed} were removed");
    limited.assert_never_full("writing");
    limited.close(open);
    limited.assert_never_full("closing");
    let open = limited.open("a");
    for file in accepted {
        let bytes = open.task().read(format!("/file{file}")).unwrap();
        assert!(bytes == [2; PAGE as usize], "file {file} was not written back");
    }
    limited.close(open);
    limited.check();
}

/// A crash leaves a log to be replayed, and the pool is full afterwards: the branch is opened when
/// there is room, with all that was synced.
#[test]
fn a_log_is_replayed_when_there_is_room() {
    const FILES: u64 = 3000;
    let mode = Mode::from_bits_retain(0o600);
    let limited = Limited::new((64 * MIB, 64 * MIB, 1000), &["a"], |task| {
        for file in 0..FILES {
            task.write(format!("/file{file}"), "").unwrap();
        }
    });
    let open = limited.open("a");
    for file in 0..FILES {
        let task = open.task();
        task.posix().fchmodat(At::Cwd, format!("/file{file}"), mode, AtFlags::empty()).unwrap();
    }
    open.volume.sync().unwrap();
    let crashed = limited.copy();
    limited.close(open);
    crashed.fill(0);
    let branch = crashed.pool.branch("a").unwrap();
    let refused = vfscale::volume_on(branch.clone()).open().err().unwrap();
    assert_eq!(refused.errno(), Errno::NOSPC, "{refused}");
    branch.close().unwrap();
    drop(branch);
    crashed.pool.delete("filler").unwrap();
    while crashed.pool.reap(1000).unwrap().more {}
    let open = crashed.open("a");
    for file in 0..FILES {
        let status = open.task().metadata(format!("/file{file}")).unwrap();
        assert_eq!(status.mode & 0o777, 0o600, "file {file}");
    }
    crashed.close(open);
    crashed.check();
}
