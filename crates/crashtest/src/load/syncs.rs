//! Concurrent syncs, background writes, throttled writers and remounts on a slow device, and power
//! cuts that test their guarantees.
//!
//! # Purpose
//!
//! In scripts ([`crate::script`]) one thread makes one call after the other, on a device that
//! takes no time, so a sync writes all dirty data itself. Here the device is slow. A sync nearly
//! always finds files whose write-back another thread has begun and not finished: the background
//! writer, or a writer throttled until memory is free.
//!
//! # Guarantees under test
//!
//! * Data written before a sync, or a remount to read-only, was called are present if the call has
//!   returned ([`Promise::Holds`]).
//! * Nothing is written to a volume while it is read-only.
//!
//! # Locks
//!
//! The list of written data is a leaf lock.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use vfscale::posix::{MountFlags, OFlags};
use vfscale::{Errno, Mode, Task, Vfs};
use vfscale_block::{MemoryDevice, Operation};
use vfscale_sync::random::Random;
use vfscale_testkit::calls::compound::Compound;
use vfscale_testkit::calls::pattern;
use vfscale_testkit::{CrashId, Fault, FaultyDevice};

use crate::load::churn::{Promise, Promises};
use crate::load::joined;
use crate::subject::volume::Volumes;
use crate::subject::{Disk, Subject};
use crate::sweep::{Recorded, disks, recording, sample};

const DEVICE_BYTES: u64 = 32 << 20;
/// Size of the cache: less than the writers' dirty data at times.
const CACHE_BYTES: u64 = 512 << 10;
/// Interval of the background writer.
const INTERVAL: Duration = Duration::from_millis(3);
/// Duration of a write.
const WRITE: Duration = Duration::from_micros(300);
/// Duration of a flush.
const FLUSH: Duration = Duration::from_millis(1);
/// Duration of a read-only phase of the volume.
const READ_ONLY: Duration = Duration::from_millis(2);
/// Maximum number of bytes of a write.
const PIECE_MAX: u64 = 40_000;
/// Number of writes to a file.
const PIECES: u64 = 4;

/// Number of threads and amount of their work.
#[derive(Clone, Copy, Debug)]
pub struct SyncsPlan {
    /// Number of threads that write.
    pub writers: u64,
    /// Number of writes of each.
    pub rounds: u64,
    /// Whether a thread makes the volume read-only from time to time.
    pub remounts: bool,
    /// Number of power cuts that are checked.
    pub cuts: usize,
}

/// An injected fault that the test must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFault {
    /// No fault.
    Nothing,
    /// A sync forces the log and flushes, but does not wait for data that other threads write back.
    SyncOfTheLogOnly,
    /// The device ignores flushes.
    NoFlush,
}

/// Result of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncsTally {
    /// Number of syncs that returned.
    pub syncs: u64,
    /// Number of remounts to read-only that succeeded.
    pub remounts: u64,
    /// Number of promises about files.
    pub promised: u64,
    /// Number of power cuts that were checked.
    pub cuts: u64,
}

impl AddAssign for SyncsTally {
    fn add_assign(&mut self, other: Self) {
        self.syncs += other.syncs;
        self.remounts += other.remounts;
        self.promised += other.promised;
        self.cuts += other.cuts;
    }
}

impl fmt::Display for SyncsTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { syncs, remounts, promised, cuts } = self;
        write!(f, "{cuts} cuts; {syncs} syncs and {remounts} remounts promised {promised} times")
    }
}

/// Runs threads on a new volume, and checks states that power cuts might have left.
///
/// # Errors
/// Describes the violation.
pub fn run(plan: SyncsPlan, planted: SyncFault, seed: u64) -> Result<SyncsTally, String> {
    let subject = Volumes {
        sync_interval: Some(INTERVAL),
        cache_bytes: Some(CACHE_BYTES),
        ..Volumes::default()
    };
    let base = MemoryDevice::with_block_size(DEVICE_BYTES, 512);
    let base: Disk = Arc::new(base.map_err(|error| error.to_string())?);
    subject.format(slice::from_ref(&base))?;
    let recorded = recording(&[base]).swap_remove(0);
    let work = Work::new(plan, planted, &recorded);
    let mut tally = work.make(&subject, seed)?;
    let mut random = Random::new(seed);
    for state in sample(&recorded, (plan.cuts, &[]), &mut random) {
        tally.cuts += 1;
        let wrong = |id: CrashId, why: String| format!("seed {seed}, state {id}: {why}");
        let judged =
            recover(&subject, &disks(&state), |task| work.promises.judge(task, state.marks()));
        judged.map_err(|why| wrong(state.id(), why))?;
    }
    Ok(tally)
}

fn recover(
    subject: &Volumes,
    disks: &[Disk],
    judge: impl Fn(&Task) -> Result<(), String>,
) -> Result<(), String> {
    let opened = subject.open(disks).map_err(|why| format!("not opened: {why}"))?;
    judge(&opened.vfs().task())?;
    opened.close().map_err(|why| format!("not closed: {why}"))?;
    subject.check(disks)
}

/// State that the threads share.
struct Work {
    plan: SyncsPlan,
    planted: SyncFault,
    device: Arc<FaultyDevice<Recorded>>,
    promises: Promises<Disk>,
    /// By path, the tag and the number of bytes written by calls that have returned.
    written: Mutex<BTreeMap<String, (u32, u64)>>,
    is_over: AtomicBool,
}

impl Work {
    fn new(plan: SyncsPlan, planted: SyncFault, recorded: &Recorded) -> Self {
        let device = Arc::new(FaultyDevice::new(recorded.clone()));
        device.arm(Fault::on(Operation::Write).delay(WRITE));
        device.arm(Fault::on(Operation::Flush).delay(FLUSH));
        if planted == SyncFault::NoFlush {
            device.arm(Fault::on(Operation::Flush).lie());
        }
        let promises = Promises::new(recorded.clone());
        Self { plan, planted, device, promises, written: Mutex::default(), is_over: false.into() }
    }

    fn make(&self, subject: &Volumes, seed: u64) -> Result<SyncsTally, String> {
        let disk: Disk = self.device.clone();
        let opened = subject.open(&[disk])?;
        let vfs = opened.vfs();
        let worked = thread::scope(|scope| {
            let write = |writer| scope.spawn(move || self.write(&vfs.task(), writer, seed));
            let writers: Vec<_> = (0..self.plan.writers).map(write).collect();
            let syncer = scope.spawn(|| self.sync(vfs));
            let remounter = scope.spawn(|| self.remount(vfs));
            let written = writers.into_iter().map(|writer| joined(writer.join()));
            let written = written.collect::<Vec<_>>().into_iter().collect::<Result<Vec<()>, _>>();
            self.is_over.store(true, Ordering::Release);
            let (synced, remounted) = (joined(syncer.join()), joined(remounter.join()));
            written.and(Ok((synced?, remounted?)))
        });
        let (mut tally, remounted) = worked?;
        tally += remounted;
        opened.close().map_err(|why| format!("not closed: {why}"))?;
        Ok(tally)
    }

    /// Returns the data written by calls that have returned.
    fn written(&self) -> BTreeMap<String, (u32, u64)> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Promises the data written before a call that has returned, as far as they have changed.
    /// Returns the number of promises.
    fn promise(
        &self,
        said: &mut BTreeMap<String, (u32, u64)>,
        written: BTreeMap<String, (u32, u64)>,
    ) -> u64 {
        let mut count = 0;
        for (path, (tag, len)) in &written {
            if said.get(path) != Some(&(*tag, *len)) {
                self.promises.say(path, Promise::Holds(*tag, *len));
                count += 1;
            }
        }
        *said = written;
        count
    }

    fn write(&self, task: &Task, writer: u64, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed ^ (writer + 1).wrapping_mul(0x9e37_79b9));
        let (mut path, mut len) = (String::new(), 0);
        for round in 0..self.plan.rounds {
            let tag = ((writer << 16) | (round / PIECES)) as u32;
            if round.is_multiple_of(PIECES) {
                (path, len) = (format!("/{writer}.{}", round / PIECES), 0);
            }
            let bytes = pattern::bytes(tag, len, 1 + random.below(PIECE_MAX) as usize);
            append(task, &path, &bytes).map_err(|errno| format!("{path}: {errno}"))?;
            len += bytes.len() as u64;
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.insert(path.clone(), (tag, len));
            drop(written);
            // Between its writes, no writer has the volume open for writing, so a remount can
            // succeed.
            thread::sleep(Duration::from_micros(random.below(1500)));
        }
        Ok(())
    }

    fn sync(&self, vfs: &Vfs) -> Result<SyncsTally, String> {
        let (task, mut tally, mut said) = (vfs.task(), SyncsTally::default(), BTreeMap::new());
        let sync = match self.planted {
            SyncFault::SyncOfTheLogOnly => Compound::fsync_dir("/"),
            _ => Compound::sync(),
        };
        while !self.is_over.load(Ordering::Acquire) {
            let written = self.written();
            sync.run(&task).map_err(|errno| format!("sync: {errno}"))?;
            tally.syncs += 1;
            tally.promised += self.promise(&mut said, written);
        }
        Ok(tally)
    }

    fn remount(&self, vfs: &Vfs) -> Result<SyncsTally, String> {
        let (task, mut tally, mut said) = (vfs.task(), SyncsTally::default(), BTreeMap::new());
        while self.plan.remounts && !self.is_over.load(Ordering::Acquire) {
            let written = self.written();
            match task.posix().remount("/", MountFlags::RDONLY) {
                Ok(()) => {}
                Err(error) if error.errno() == Errno::BUSY => {
                    thread::sleep(WRITE);
                    continue;
                }
                Err(error) => return Err(format!("to read-only: {error}")),
            }
            let writes = self.device.calls(Operation::Write);
            tally.remounts += 1;
            tally.promised += self.promise(&mut said, written);
            thread::sleep(READ_ONLY);
            let later = self.device.calls(Operation::Write);
            if later != writes {
                return Err(format!("{} writes while it was read-only", later - writes));
            }
            task.posix()
                .remount("/", MountFlags::empty())
                .map_err(|e| format!("to writable: {e}"))?;
            thread::sleep(READ_ONLY);
        }
        Ok(tally)
    }
}

/// Appends to a file, which is created if missing. Waits while the volume is read-only.
fn append(task: &Task, path: &str, bytes: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
    let file = loop {
        match task.posix().open(path, flags, Mode::from(0o644)) {
            Err(error) if error.errno() == Errno::ROFS => thread::sleep(WRITE),
            opened => break opened?,
        }
    };
    let mut done = 0;
    while done < bytes.len() {
        done += file.write(&bytes[done..])?;
    }
    Ok(())
}
