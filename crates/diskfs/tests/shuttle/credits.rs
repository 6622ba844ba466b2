//! Random schedules of transactions on a device with hardly any storage left:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-diskfs --test shuttle credits::`.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use shuttle::sync::atomic::{AtomicI64, Ordering};
use shuttle::thread;
use vfscale_block::{Device, Error, Operation, OsError};
use vfscale_diskfs::tools::check;
use vfscale_diskfs::vfs_impl::DiskFs;
use vfscale_diskfs::{Fault, TxReservation, Volume, VolumeOptions};
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::{Task, Vfs};

use crate::volumes::{Disk, PAGE, device, mounted, one_list, schedules};

/// The log and the superblocks.
const FIXED: i64 = 256 + 3;
/// Blocks for write-back, and for removals.
const SUMS: i64 = 2 * 128;

/// A disk of which a number of blocks can be reserved. It checks that as many are reserved at any
/// time as are needed for certain.
#[derive(Debug)]
struct Limited {
    disk: Arc<Disk>,
    total: i64,
    left: AtomicI64,
    /// Blocks that have to be reserved: the fixed ones from the first change on, and those of
    /// transactions that have begun and not ended.
    needed: AtomicI64,
    /// How often it has refused.
    refused: AtomicI64,
}

impl Limited {
    fn new(total: i64) -> Arc<Self> {
        let (left, disk) = (total.into(), device());
        Arc::new(Self { disk, total, left, needed: AtomicI64::new(0), refused: AtomicI64::new(0) })
    }

    fn reserved(&self) -> i64 {
        self.total - self.left.load(Ordering::SeqCst)
    }

    /// Notes that blocks are needed from now on, or are not any more.
    fn need(&self, blocks: i64) {
        self.needed.fetch_add(blocks, Ordering::SeqCst);
    }

    fn has_refused(&self) -> bool {
        self.refused.load(Ordering::SeqCst) > 0
    }
}

impl Device for Limited {
    fn name(&self) -> &str {
        self.disk.name()
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }

    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn block_size(&self) -> u32 {
        self.disk.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.disk.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.disk.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), Error> {
        self.disk.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.disk.discard(offset, len)
    }

    fn must_reserve(&self) -> bool {
        true
    }

    fn reserve(&self, blocks: u64, _is_urgent: bool) -> Result<(), Error> {
        let blocks = blocks as i64;
        let less = |left: i64| (left >= blocks).then_some(left - blocks);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        let (device, operation) = (self.name().into(), Operation::Write);
        Err(Error::Io { device, operation, offset: 0, length: 0, source: OsError::NO_SPACE })
    }

    fn unreserve(&self, blocks: u64) {
        // Before the blocks are back: a transaction that gets them says so after that.
        let needed = self.needed.load(Ordering::SeqCst);
        let left = self.left.fetch_add(blocks as i64, Ordering::SeqCst) + blocks as i64;
        let reserved = self.total - left;
        assert!(reserved >= needed, "{reserved} blocks are reserved, and {needed} needed");
    }

    fn renew(&self, blocks: u64, most: u64) -> u64 {
        let stay = most.min(blocks);
        self.unreserve(blocks - stay);
        stay
    }

    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), Error> {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.reserve(bytes / PAGE as u64, false)?;
        self.need(FIXED + SUMS);
        Ok(())
    }
}

fn blocks(log_blocks: u32) -> TxReservation {
    TxReservation { log_blocks, space: 0, from_pool: false }
}

/// Begins a transaction of so many blocks and drops it. Returns whether it was accepted.
fn begin(device: &Limited, volume: &Volume, log_blocks: u32) -> bool {
    match volume.begin(blocks(log_blocks)) {
        Ok(tx) => {
            device.need(log_blocks.into());
            thread::yield_now();
            device.need(-i64::from(log_blocks));
            drop(tx);
            true
        }
        Err(Fault::NoSpace) => false,
        Err(fault) => panic!("{fault}"),
    }
}

/// Transactions of which only one fits at a time: each waits until that of the other one has ended,
/// and gets its blocks then. A third one never fits: it is refused, and takes nothing from them.
/// Fails if a transaction that ends does not wake the thread that waits; if blocks are given back
/// twice, by a settling that forgets what it gave or by two without their lock; if a refusal counts
/// beside others; and if spare blocks are not counted.
///
/// Race: The begin of a transaction near the limit / the ends of others / a thread that settles.
/// Seam: `Credits::wait_for_others` / `Credits::end` (`crates/diskfs/src/volume/credits.rs`) /
/// `Volume::settle_without` (`crates/diskfs/src/volume/settle.rs`); parties: two threads with
/// transactions that fit by themselves, one whose transaction does not, a sync.
#[test]
fn transactions_near_the_limit_wait_or_are_refused() {
    schedules(|| {
        let device = Limited::new(FIXED + SUMS + 70);
        let volume = Arc::new(Volume::open(device.clone(), VolumeOptions::default()).unwrap());
        let threads: Vec<_> = [(60, true), (50, true), (100, false)]
            .into_iter()
            .map(|(log_blocks, fits)| {
                let (device, volume) = (device.clone(), volume.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        assert_eq!(begin(&device, &volume, log_blocks), fits, "{log_blocks}");
                    }
                })
            })
            .collect();
        volume.sync().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        volume.sync().unwrap();
        // All of it is back, and none of it twice.
        assert_eq!(device.left.load(Ordering::SeqCst), 70);
        assert!(device.has_refused());
        volume.close().unwrap();
    });
}

/// Makes two directories, the second one when the first one is dirty.
fn change(task: &Task, number: usize) -> bool {
    task.create_dir(format!("/dir{number}")).is_ok()
        && task.create_dir(format!("/dir{number}/below")).is_ok()
}

fn opened(total: i64) -> (Arc<Limited>, Arc<DiskFs>, Vfs) {
    let device = Limited::new(total);
    let (fs, vfs) = mounted(device.clone(), one_list());
    (device, fs, vfs)
}

/// Returns the fewest blocks with which one thread can make its changes.
fn least() -> i64 {
    static LEAST: OnceLock<i64> = OnceLock::new();
    let is_enough = |total: i64| {
        let (_, fs, vfs) = opened(total);
        let is_done = change(&vfs.task(), 0);
        drop(vfs);
        fs.close().unwrap();
        is_done
    };
    *LEAST.get_or_init(|| {
        let (mut few, mut enough) = (FIXED + SUMS, FIXED + SUMS + 500);
        while enough - few > 1 {
            let middle = i64::midpoint(few, enough);
            *(if is_enough(middle) { &mut enough } else { &mut few }) = middle;
        }
        enough
    })
}

/// Threads whose changes don't fit beside each other, nor beside what others have not written home:
/// each waits, or writes home, and gets its blocks then. Fails if a transaction that ends does not
/// wake the thread that waits, if blocks are given back twice, and if spare blocks are not counted.
///
/// Race: The begin of a transaction near the limit / commits of others / write-back.
/// Seam: `Volume::credit_near_limit` / `Volume::settle_without`
/// (`crates/diskfs/src/volume/settle.rs`); parties: two threads that make directories, one whose
/// transaction never fits, a sync, the threads of the log.
#[test]
fn changes_near_the_limit_await_write_back() {
    schedules(|| {
        let (device, fs, vfs) = opened(least() + 2);
        let mut threads: Vec<_> = (0..2)
            .map(|number| {
                let task = vfs.task();
                thread::spawn(move || assert!(change(&task, number), "thread {number}"))
            })
            .collect();
        let (limited, volume) = (device.clone(), fs.volume().clone());
        threads.push(thread::spawn(move || assert!(!begin(&limited, &volume, 400))));
        fs.sync_fs().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(device.has_refused());
        let unwritten = fs.volume().journal().unwrap().unwritten_blocks() as i64;
        let reserved = device.reserved();
        assert!(reserved >= FIXED + SUMS + unwritten, "{reserved}: {unwritten} are not home");
        // Once all is home, all of it is back, and none of it twice.
        drop(fs.volume().freeze().unwrap());
        fs.volume().sync().unwrap();
        assert_eq!(device.reserved(), FIXED + SUMS);
        drop(vfs);
        fs.close().unwrap();
        let report = check::check(device.disk.clone(), &check::Options::default(), &mut ());
        let report = report.unwrap();
        assert_eq!(report.count, 0, "{:?}", report.findings.first());
    });
}
