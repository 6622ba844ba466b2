//! Random schedules of transactions on a device with hardly any storage left:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-diskfs --test shuttle credits::`.

use std::sync::{Arc, OnceLock};

use shuttle::sync::atomic::Ordering;
use shuttle::thread;
use vfscale_diskfs::{DiskFs, Fault, Settings, Volume, check, internals::TxReservation};
use vfscale_sync::model;
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::{Task, Vfs};

use crate::volumes::{Disk, device, mounted, one_list, schedules};
use vfscale_testkit::Limited;

/// The log, of 256 blocks, and the superblocks.
const FIXED: i64 = 256 + 3;
/// Blocks for write-back, and for removals.
const SUMS: i64 = 2 * 128;

/// Returns a new volume on a device of which so many blocks can be reserved.
fn limited(total: i64) -> Arc<Limited<Arc<Disk>>> {
    Arc::new(Limited { kept: FIXED + SUMS, ..Limited::new(device(), total) })
}

fn blocks(log_blocks: u32) -> TxReservation {
    TxReservation { log_blocks, space: 0, from_pool: false }
}

/// Begins a transaction of so many blocks and drops it. Returns whether it was accepted.
fn begin(device: &Limited<Arc<Disk>>, volume: &Volume, log_blocks: u32) -> bool {
    match volume.begin(blocks(log_blocks)) {
        Ok(tx) => {
            device.needed.fetch_add(log_blocks.into(), Ordering::SeqCst);
            thread::yield_now();
            device.needed.fetch_sub(log_blocks.into(), Ordering::SeqCst);
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
        let device = limited(FIXED + SUMS + 70);
        let volume = Arc::new(Volume::open(device.clone(), Settings::default()).unwrap());
        let threads: Vec<_> = [(60, true), (50, true), (100, false)]
            .into_iter()
            .map(|(log_blocks, fits)| {
                model::spawn((device.clone(), volume.clone()), move |(device, volume)| {
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
        assert!(device.refused.load(Ordering::SeqCst) > 0);
        volume.close().unwrap();
    });
}

/// Makes two directories, the second one when the first one is dirty.
fn change(task: &Task, number: usize) -> bool {
    task.create_dir(format!("/dir{number}")).is_ok()
        && task.create_dir(format!("/dir{number}/below")).is_ok()
}

fn opened(total: i64) -> (Arc<Limited<Arc<Disk>>>, Arc<DiskFs>, Vfs) {
    let device = limited(total);
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
                model::spawn(vfs.task(), move |task| {
                    assert!(change(&task, number), "thread {number}")
                })
            })
            .collect();
        let (limited, volume) = (device.clone(), fs.volume().clone());
        threads.push(thread::spawn(move || assert!(!begin(&limited, &volume, 400))));
        fs.sync_fs().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(device.refused.load(Ordering::SeqCst) > 0);
        let unwritten = fs.volume().journal().unwrap().unwritten_blocks() as i64;
        let reserved = || device.total - device.left.load(Ordering::SeqCst);
        let now = reserved();
        assert!(now >= FIXED + SUMS + unwritten, "{now}: {unwritten} are not home");
        // Once all is home, all of it is back, and none of it twice.
        drop(fs.volume().freeze().unwrap());
        fs.volume().sync().unwrap();
        assert_eq!(reserved(), FIXED + SUMS);
        drop(vfs);
        fs.close().unwrap();
        let report = check::check(device.inner.clone(), &check::Options::default(), &mut ());
        let report = report.unwrap();
        assert_eq!(report.count, 0, "{:?}", report.findings.first());
    });
}
