//! The first branch of a volume that is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use vfscale::block::Device;
use vfscale::{Errno, Pool, PoolError, Task, Volume};
use vfscale_block::{MemoryDevice, Operation};
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_diskfs::{OpenError, copies};
use vfscale_testkit::{CrashPlan, Fault, FaultyDevice, RecordingDevice};

use crate::common::{image, read, within};

const BYTES: u64 = 16 << 20;

/// Returns a device of 16 MiB with an empty volume.
fn formatted() -> MemoryDevice {
    let device = MemoryDevice::with_block_size(BYTES, 4096).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    device
}

fn is_pool(device: &dyn Device) -> bool {
    matches!(copies::read(device), Err(OpenError::Pool { .. }))
}

/// Writes records `n` of a thread, each in a file of its own, until it is told to stop, or until
/// four threads have used half of the volume.
fn write_records(task: &Task, thread: usize, done: &AtomicU64, is_over: &AtomicBool) {
    for n in 0..1500 {
        task.write(format!("/t{thread} {n}"), vec![n as u8; 3000 + thread]).unwrap();
        // A file that is written again and again, in place.
        task.write(format!("/t{thread}"), format!("{n}")).unwrap();
        done.store(n + 1, Ordering::Release);
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Checks that a branch has, of each thread, a beginning of its records with all of `returned`.
fn check_records(task: &Task, returned: &[u64], what: &str) {
    for (thread, returned) in returned.iter().enumerate() {
        let read = |n: u64| task.read(format!("/t{thread} {n}")).ok();
        let count = (0..).take_while(|n| read(*n).is_some()).count() as u64;
        assert!(count >= *returned, "{what}, thread {thread}: {count} of {returned}");
        for n in 0..*returned {
            assert_eq!(read(n).unwrap(), vec![n as u8; 3000 + thread], "{what}: {n}");
        }
        assert!((count + 1..count + 20).all(|n| read(n).is_none()), "{what}");
    }
}

/// Four threads write while the volume becomes a pool, and while two more branches are made.
///
/// Race: Writers of an open volume against its becoming a pool.
#[test]
fn a_busy_volume_becomes_a_pool() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let volume = vfscale::volume(&path).open().unwrap();
    let freezer = volume.freezer();
    freezer.freeze(|| ()).unwrap();
    let maker = volume.pool_maker().unwrap();
    assert!(maker.pool().is_none() && volume.pool().is_none());
    let opened = volume.task().open("/f").unwrap();
    let done = [const { AtomicU64::new(0) }; 4];
    let is_over = AtomicBool::new(false);
    let mut returned = Vec::new();
    thread::scope(|scope| {
        for (thread, done) in done.iter().enumerate() {
            let (task, is_over) = (volume.task(), &is_over);
            scope.spawn(move || write_records(&task, thread, done, is_over));
        }
        for n in 0..3 {
            let are_on = || done.iter().all(|done| done.load(Ordering::Acquire) >= 10 * (n + 1));
            vfscale_harness::wait_until("the writers get on", are_on);
            let before = done.each_ref().map(|done| done.load(Ordering::Acquire));
            maker.make_pool().unwrap().fork("main", &format!("b{n}")).unwrap();
            returned.push(before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(returned[0].iter().all(|done| *done > 0));
    // The volume is a branch now, and both handles freeze the pool.
    let copy = dir.path().join("copy.vfs");
    freezer.freeze(|| std::fs::copy(&path, &copy)).unwrap().unwrap();
    volume.freezer().freeze(|| ()).unwrap();
    assert_eq!(vfscale::pool(&copy).read_only(true).open().unwrap().branches().len(), 4);
    assert_eq!(volume.pool().unwrap().branches().len(), 4);
    assert!(matches!(vfscale::pool(&path).open().unwrap_err(), PoolError::Device(_)));
    let mut base = String::new();
    std::io::Read::read_to_string(&mut &opened, &mut base).unwrap();
    assert_eq!(base, "base");
    drop(opened);
    let last = done.each_ref().map(|done| done.load(Ordering::Acquire));
    check_records(&volume.task(), &last, "before it is closed");
    volume.close().unwrap();
    assert!(maker.pool().is_none());
    assert_eq!(maker.make_pool().unwrap_err().errno(), Errno::NODEV);
    let pool = vfscale::pool(&path).open().unwrap();
    for (n, returned) in returned.iter().enumerate() {
        within(&pool, &format!("b{n}"), |task| check_records(task, returned, &format!("b{n}")));
    }
    within(&pool, "main", |task| check_records(task, &last, "main"));
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

/// Makes an open volume a pool, and changes it before, between and after.
fn record(device: &Arc<RecordingDevice<MemoryDevice>>) {
    let volume = vfscale::volume_on(device.clone()).sync_interval(None).open().unwrap();
    let task = volume.task();
    for n in 0..20 {
        task.write(format!("/f{n}"), vec![n as u8; 9000]).unwrap();
    }
    volume.sync().unwrap();
    device.mark("synced");
    task.write("/unsynced", "u").unwrap();
    let pool = volume.make_pool().unwrap();
    device.mark("pool");
    task.write("/f0", "changed in the pool").unwrap();
    pool.fork("main", "b").unwrap();
    device.mark("forked");
    task.write("/f1", "changed after the fork").unwrap();
    for n in 20..30 {
        task.write(format!("/f{n}"), vec![n as u8; 9000]).unwrap();
    }
    volume.sync().unwrap();
    device.mark("end");
    drop((task, pool));
    volume.close().unwrap();
}

/// Checks what a power cut has left, by what had returned before.
fn check_cut(device: &Arc<dyn Device>, past: &[String], what: &str) {
    let has = |mark: &str| past.iter().any(|it| it == mark);
    let is_pool = is_pool(&**device);
    assert!(is_pool || !has("pool"), "{what}");
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    let task = volume.task();
    let synced = |task: &Task, from: usize| {
        for n in from..20 {
            assert_eq!(task.read(format!("/f{n}")).unwrap(), vec![n as u8; 9000], "{what}: {n}");
        }
    };
    if has("synced") {
        synced(&task, 2);
    }
    if has("pool") {
        assert_eq!(task.read_to_string("/unsynced").unwrap(), "u", "{what}");
    }
    if has("end") {
        assert_eq!(task.read_to_string("/f1").unwrap(), "changed after the fork", "{what}");
    }
    let names: Vec<String> =
        volume.pool().iter().flat_map(Pool::branches).map(|b| b.name).collect();
    drop(task);
    volume.close().unwrap();
    if names.iter().any(|name| name == "b") {
        let pool = vfscale::pool_on(device.clone()).open().unwrap();
        within(&pool, "b", |task| {
            synced(task, 1);
            assert_eq!(task.read_to_string("/f0").unwrap(), "changed in the pool", "{what}");
        });
        assert_eq!(pool.check().unwrap(), Vec::<String>::new(), "{what}");
        pool.close().unwrap();
    } else {
        assert!(!has("forked"), "{what}");
    }
}

/// Every cut while an open volume becomes a pool, is changed and forked, leaves the volume or the
/// pool, with what was synced, or had returned before the pool was made.
#[test]
fn a_power_cut_while_an_open_volume_becomes_a_pool() {
    let device = Arc::new(RecordingDevice::new(formatted()));
    record(&device);
    let plan = CrashPlan::default().exhaustive_bits(2).listed_max(3).samples(1);
    let marks: Vec<String> = device.marks().iter().map(ToString::to_string).collect();
    let (mut volumes, mut pools, mut forks) = (0, 0, 0);
    for state in device.crash_states(plan) {
        let device: Arc<dyn Device> = state.device();
        let past = &marks[..state.marks()];
        *(if is_pool(&*device) { &mut pools } else { &mut volumes }) += 1;
        forks += u32::from(past.iter().any(|mark| mark == "forked"));
        check_cut(&device, past, &state.id().to_string());
    }
    assert!(volumes > 20 && pools > 20 && forks > 5, "{volumes}, {pools}, {forks}");
}

/// A call of the device fails while the pool is made: the volume goes on, or is shut down, and what
/// was synced is there when it is opened again.
#[test]
fn a_device_fails_while_an_open_volume_becomes_a_pool() {
    let (mut going_on, mut shut_down) = (0, 0);
    for operation in [Operation::Write, Operation::Flush, Operation::Resize] {
        for call in 1.. {
            let device = Arc::new(FaultyDevice::new(formatted()));
            let volume = vfscale::volume_on(device.clone()).sync_interval(None).open().unwrap();
            volume.task().write("/f", "synced").unwrap();
            volume.sync().unwrap();
            device.arm(Fault::on(operation).nth(device.calls(operation) + call));
            let made = volume.make_pool();
            let fired = device.fired();
            device.disarm();
            let Err(refused) = made else {
                // The conversion had no call that late.
                volume.abandon();
                break;
            };
            assert_eq!(fired, 1);
            assert!(matches!(refused.errno(), Errno::IO | Errno::FBIG), "{refused}");
            assert!(volume.pool().is_none());
            let name = format!("{operation:?} {call}");
            check_failed(volume, &device, &name, &mut going_on, &mut shut_down);
        }
    }
    assert!(going_on > 10 && shut_down > 3, "{going_on}, {shut_down}");
}

/// Checks a volume that has not become a pool because its device has failed.
fn check_failed(
    volume: Volume,
    device: &Arc<FaultyDevice<MemoryDevice>>,
    name: &str,
    going_on: &mut u32,
    shut_down: &mut u32,
) {
    let written = volume.task().write("/g", "later").is_ok() && volume.sync().is_ok();
    *(if written { going_on } else { shut_down }) += 1;
    assert!(!written || !is_pool(&**device), "{name}");
    let _ = volume.close();
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    assert_eq!(volume.task().read_to_string("/f").unwrap(), "synced", "{name}");
    if written {
        assert_eq!(volume.task().read_to_string("/g").unwrap(), "later", "{name}");
    }
    // The second attempt.
    volume.make_pool().unwrap().fork("main", "b").unwrap();
    volume.close().unwrap();
    let pool = vfscale::pool_on(device.clone()).open().unwrap();
    assert_eq!(read(&pool, "b", "/f").as_deref(), Some("synced"), "{name}");
    assert_eq!(pool.check().unwrap(), Vec::<String>::new(), "{name}");
    pool.close().unwrap();
}

#[test]
fn an_open_volume_that_cannot_become_a_pool_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let volume = vfscale::volume(&path).read_only(true).open().unwrap();
    assert!(volume.pool_maker().unwrap().pool().is_none());
    assert_eq!(volume.make_pool().unwrap_err().errno(), Errno::ROFS);
    volume.close().unwrap();

    let (device, log) = (formatted(), Arc::new(MemoryDevice::new(BYTES).unwrap()));
    let device = Arc::new(device);
    let options = MkfsOptions { log_device: Some(log.clone()), ..MkfsOptions::default() };
    mkfs::format(&*device, &MkfsOptions { force: true, ..options }).unwrap();
    let volume = vfscale::volume_on(device).log_device(log).open().unwrap();
    let refused = volume.make_pool().unwrap_err();
    assert_eq!(refused.errno(), Errno::XDEV);
    assert!(refused.to_string().contains("copy its files"), "{refused}");
    volume.task().write("/f", "later").unwrap();
    volume.close().unwrap();
}

/// An open volume whose pool is full refuses calls, and is not shut down.
#[test]
fn a_volume_that_has_become_a_pool_is_refused_when_that_is_full() {
    let device = Arc::new(formatted());
    let volume = vfscale::volume_on(device.clone()).sync_interval(None).open().unwrap();
    let task = volume.task();
    for n in 0..200 {
        task.write(format!("/f{n}"), vec![n as u8; 40_000]).unwrap();
    }
    let pool = volume.make_pool().unwrap();
    // Each fork shares everything, and each round then writes everything anew.
    let mut refused = None;
    'rounds: for round in 0..60_u64 {
        if let Err(error) = pool.fork("main", &format!("b{round}")) {
            refused = Some(error.errno());
            break;
        }
        for n in 0..200 {
            if let Err(error) = task.write(format!("/f{n}"), vec![round as u8; 40_000]) {
                refused = Some(error.errno());
                break 'rounds;
            }
        }
    }
    assert_eq!(refused, Some(Errno::NOSPC));
    volume.sync().unwrap();
    assert!(!volume.driver().volume().is_shut_down());
    task.remove_file("/f0").unwrap();
    for round in 0..20 {
        if pool.delete(&format!("b{round}")).is_err() {
            break;
        }
    }
    pool.reap().unwrap();
    volume.sync().unwrap();
    task.write("/again", "there is room").unwrap();
    drop(task);
    volume.close().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}
