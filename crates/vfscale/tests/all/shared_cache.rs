//! Volumes whose caches share one budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vfscale::Volume;
use vfscale::volume::CacheBudget;
use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_testkit::{Fault, FaultyDevice, Gate};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 8 * MIB;
/// The share of the budget that is for data.
const DATA: u64 = BUDGET / 4 * 3;
/// Half of that may be dirty, counted to within a part of it.
const DIRTY_LEAST: u64 = DATA / 4;
/// Bytes that a writer counts together.
const PIECE: u64 = 64 << 10;

fn device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(64 * MIB).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    Arc::new(device)
}

fn open(device: Arc<dyn Device>, budget: &Arc<CacheBudget>) -> Volume {
    vfscale::volume_on(device).cache_budget(budget).sync_interval(None).open().unwrap()
}

/// Returns a megabyte that is different for each number.
fn megabyte(number: u64) -> Vec<u8> {
    (0..MIB / 8).flat_map(|at| (at.wrapping_mul(31) ^ number).to_le_bytes()).collect()
}

fn write(volume: &Volume, path: &str, megabytes: u64) {
    let file = volume.task().create(path).unwrap();
    for number in 0..megabytes {
        assert_eq!(file.pwrite(&megabyte(number), number * MIB).unwrap(), MIB as usize);
    }
}

fn assert_read(volume: &Volume, path: &str, megabytes: u64) {
    let file = volume.task().open(path).unwrap();
    let mut read = vec![0; MIB as usize];
    for number in 0..megabytes {
        assert_eq!(file.pread(&mut read, number * MIB).unwrap(), MIB as usize);
        assert!(read == megabyte(number), "{path}, {number}");
    }
}

#[test]
fn volumes_take_no_more_than_the_budget_and_idle_ones_give_back() {
    let budget = CacheBudget::new(BUDGET);
    let volumes = [(); 3].map(|()| open(device(), &budget));
    for volume in &volumes {
        write(volume, "/file", 5);
        assert!(budget.used().0 <= DATA, "{:?}", budget.used());
        volume.sync().unwrap();
    }
    // The idle ones give what one needs, and it keeps its file.
    assert_read(&volumes[0], "/file", 5);
    assert_read(&volumes[0], "/file", 5);
    let used = budget.used().0;
    assert!(used > 4 * MIB && used <= DATA, "{used}");
    for volume in &volumes {
        assert_read(volume, "/file", 5);
        assert!(budget.used().0 <= DATA, "{:?}", budget.used());
    }
    for volume in volumes {
        volume.close().unwrap();
    }
}

#[test]
fn metadata_of_idle_volumes_makes_room() {
    let budget = CacheBudget::new(BUDGET);
    let devices = [(); 3].map(|()| device());
    for device in &devices {
        let volume = open(device.clone(), &budget);
        let task = volume.task();
        for dir in 0..20 {
            task.create_dir(format!("/{dir}")).unwrap();
            for name in 0..400 {
                task.write(format!("/{dir}/{name:0100}"), [7; 300]).unwrap();
            }
        }
        drop(task);
        volume.close().unwrap();
    }
    let volumes = devices.map(|device| open(device, &budget));
    for volume in &volumes {
        let task = volume.task();
        for dir in 0..20 {
            let names = task.read_dir(format!("/{dir}")).unwrap().count();
            assert_eq!(names, 400);
            assert_eq!(task.read(format!("/{dir}/{:0100}", 7)).unwrap(), [7; 300]);
        }
        // A few are in use at any time.
        let used = budget.used().1;
        assert!(used <= BUDGET / 4 + MIB / 2, "{used}");
    }
    for volume in volumes {
        volume.close().unwrap();
    }
}

/// Waits until writers have made as much dirty as they may, and then have written no more for some
/// time.
fn await_writers(written: &AtomicU64) {
    let start = Instant::now();
    let (mut seen, mut since) = (0, start);
    while (seen < DIRTY_LEAST && start.elapsed() < Duration::from_secs(20))
        || since.elapsed() < Duration::from_millis(300)
    {
        let now = written.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        vfscale_harness::pause(Duration::from_millis(5));
    }
}

/// Race: Writers whose device does not answer against a writer of another volume.
#[test]
fn a_device_that_hangs_does_not_take_the_budget() {
    let budget = CacheBudget::new(BUDGET);
    let slow = [(); 3].map(|()| Arc::new(FaultyDevice::new(device())));
    let hang = slow.clone().map(|device| open(device, &budget));
    let works = open(device(), &budget);
    let gate = Gate::new();
    let written = AtomicU64::new(0);
    let is_done = AtomicBool::new(false);
    let left = thread::scope(|scope| {
        for (device, volume) in slow.iter().zip(&hang) {
            // The first change of a volume waits for its log.
            let file = volume.task().create("/file").unwrap();
            volume.sync().unwrap();
            device.arm(Fault::on(Operation::Write).hold(&gate));
            let written = &written;
            scope.spawn(move || {
                for number in 0..20 {
                    let offsets = (number * MIB..).step_by(PIECE as usize);
                    for (piece, at) in megabyte(number).chunks(PIECE as usize).zip(offsets) {
                        file.pwrite(piece, at).unwrap();
                        written.fetch_add(PIECE, Ordering::Relaxed);
                    }
                }
            });
        }
        await_writers(&written);
        scope.spawn(|| {
            write(&works, "/file", 20);
            works.sync().unwrap();
            is_done.store(true, Ordering::Relaxed);
        });
        vfscale_harness::comes(Duration::from_secs(20), || is_done.load(Ordering::Relaxed));
        let left =
            (is_done.load(Ordering::Relaxed), written.load(Ordering::Relaxed), budget.used().0);
        gate.open();
        left
    });
    assert!(left.0, "the other volume waits for these devices");
    let bounds = DIRTY_LEAST..DATA;
    assert!(bounds.contains(&left.1), "{} bytes before the devices hung", left.1);
    assert!(left.2 <= DATA, "{}", left.2);
    slow.iter().for_each(|device| device.disarm());
    for volume in hang.into_iter().chain([works]) {
        assert_read(&volume, "/file", 20);
        volume.close().unwrap();
    }
}

#[test]
fn closed_volumes_return_all() {
    let budget = CacheBudget::new(BUDGET);
    for _ in 0..3 {
        let volume = open(device(), &budget);
        write(&volume, "/file", 3);
        volume.close().unwrap();
    }
    assert_all_returned(&budget);
}

/// The file is still to be freed, with its dirty data, when the volume ends.
#[test]
fn a_volume_that_ends_with_a_removed_file_returns_all() {
    let budget = CacheBudget::new(BUDGET);
    for _ in 0..3 {
        let volume = open(device(), &budget);
        write(&volume, "/file", 3);
        let task = volume.task();
        let file = task.open("/file").unwrap();
        task.remove_file("/file").unwrap();
        drop((volume, task));
        drop(file);
    }
    assert_all_returned(&budget);
}

fn assert_all_returned(budget: &CacheBudget) {
    let start = Instant::now();
    // Inodes go a grace period later.
    while budget.used() != (0, 0) {
        vfscale_sync::rcu::synchronize();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", budget.used());
    }
}
