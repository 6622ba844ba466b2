//! Conversion of volumes, forks, deletions, rollbacks and adoptions, as users of the library meet
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vfscale::block::{Device, Error as DeviceError, Operation};
use vfscale::{Errno, ForkOptions, Pool, PoolError, VolumeError};
use vfscale_block::MemoryDevice;
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_diskfs::{OpenError, copies};
use vfscale_testkit::{Call, CrashPlan, HookedDevice, RecordingDevice};

use crate::common::{image, read, within};

/// Returns a device with a volume that has some files, and was not closed.
fn crashed_volume() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::with_block_size(16 << 20, 4096).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    let task = volume.task();
    for n in 0..40 {
        task.write(format!("/f{n}"), vec![n as u8; 9000]).unwrap();
    }
    drop(task);
    volume.sync().unwrap();
    volume.abandon();
    let copy = MemoryDevice::with_block_size(16 << 20, 4096).unwrap();
    let mut bytes = vec![0; 16 << 20];
    device.read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    copy.flush().unwrap();
    copy
}

/// Opens what is on a device, and checks its files.
fn check_files(device: Arc<dyn Device>, what: &str) {
    let volume = vfscale::volume_on(device).open().unwrap();
    for n in 0..40 {
        assert_eq!(volume.task().read(format!("/f{n}")).unwrap(), vec![n as u8; 9000], "{what}");
    }
    volume.close().unwrap();
}

fn spoil_first_block(device: &dyn Device) {
    let mut block = [0; 4096];
    device.read_at(0, &mut block).unwrap();
    block[100] ^= 1;
    device.write_at(0, &block).unwrap();
}

/// Every cut of a conversion has the volume or the pool, with the contents that were synced; and
/// once the pool was opened, damage of the first block does not lead back to the volume.
#[test]
fn a_power_cut_in_a_conversion_leaves_the_volume_or_the_pool() {
    let device = Arc::new(RecordingDevice::new(crashed_volume()));
    let pool = vfscale::pool_on(device.clone()).convert(true).open().unwrap();
    assert_eq!(pool.branches()[0].name, "main");
    pool.close().unwrap();
    let plan = CrashPlan::default().exhaustive_bits(3).listed_max(5).samples(2);
    let (mut volumes, mut pools) = (0, 0);
    for state in device.crash_states(plan) {
        let device: Arc<dyn Device> = state.device();
        let is_pool = matches!(copies::read(&*device), Err(OpenError::Pool { .. }));
        *(if is_pool { &mut pools } else { &mut volumes }) += 1;
        check_files(device.clone(), &state.id().to_string());
        if is_pool {
            spoil_first_block(&*device);
            let refused = copies::read(&*device).unwrap_err();
            assert!(matches!(refused, OpenError::Pool { .. }), "{}: {refused}", state.id());
            check_files(device.clone(), "without the first block");
        }
    }
    assert!(volumes > 10 && pools > 2, "{volumes} volumes, {pools} pools");
}

#[test]
fn branches_do_not_see_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    for name in ["a", "b"] {
        pool.fork("main", name).unwrap();
    }
    let volumes = ["main", "a", "b"].map(|name| (name, pool.open(name).unwrap()));
    for (name, volume) in &volumes {
        assert_eq!(volume.task().read_to_string("/f").unwrap(), "base");
        volume.task().write("/f", name).unwrap();
        volume.task().write(format!("/only-{name}"), name).unwrap();
    }
    for (_, volume) in volumes {
        volume.close().unwrap();
    }
    for name in ["main", "a", "b"] {
        assert_eq!(read(&pool, name, "/f").as_deref(), Some(name));
        let names = within(&pool, name, |task| task.read_dir("/").unwrap().count());
        assert_eq!(names, 2);
    }
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
    // The volume that it was is the branch `main`.
    let main = vfscale::volume(&path).open().unwrap();
    assert_eq!(main.task().read_to_string("/f").unwrap(), "main");
    main.close().unwrap();
}

/// A fork of an open branch has all changes whose calls have returned; with `as_synced` those that
/// were synced at least.
#[test]
fn an_open_branch_is_forked() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let main = pool.branch("main").sync_interval(None).open().unwrap();
    main.task().write("/f", "synced").unwrap();
    main.sync().unwrap();
    main.task().write("/f", "returned").unwrap();
    pool.fork_with("main", "synced", ForkOptions::new().as_synced(true)).unwrap();
    pool.fork("main", "returned").unwrap();
    main.task().write("/f", "later").unwrap();
    assert_eq!(read(&pool, "synced", "/f").as_deref(), Some("synced"));
    assert_eq!(read(&pool, "returned", "/f").as_deref(), Some("returned"));
    main.close().unwrap();
    assert_eq!(read(&pool, "main", "/f").as_deref(), Some("later"));
    pool.close().unwrap();
}

/// Threads write records into a branch while it is forked: each fork has of each thread a beginning
/// of its records that includes all that had returned before.
#[test]
fn a_busy_branch_is_forked_at_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |_| ());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let main = pool.open("main").unwrap();
    let done = [const { AtomicU64::new(0) }; 3];
    let is_over = AtomicBool::new(false);
    let mut returned = Vec::new();
    thread::scope(|scope| {
        for (thread, done) in done.iter().enumerate() {
            let (task, is_over) = (main.task(), &is_over);
            scope.spawn(move || {
                for n in 0.. {
                    task.write(format!("/t{thread} {n}"), format!("{n}")).unwrap();
                    done.store(n + 1, Ordering::Release);
                    if is_over.load(Ordering::Relaxed) || n == 10_000 {
                        return;
                    }
                }
            });
        }
        for n in 0..8 {
            vfscale_harness::pause(Duration::from_millis(5));
            let before = done.each_ref().map(|done| done.load(Ordering::Acquire));
            pool.fork("main", &format!("b{n}")).unwrap();
            returned.push(before);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    main.close().unwrap();
    for (n, returned) in returned.iter().enumerate() {
        within(&pool, &format!("b{n}"), |task| {
            for (thread, returned) in returned.iter().enumerate() {
                let read = |n: &u64| task.read_to_string(format!("/t{thread} {n}")).ok();
                let count = (0..).take_while(|n| read(n).is_some()).count() as u64;
                assert!(count >= *returned, "fork {n}, thread {thread}: {count} of {returned}");
                assert!((0..*returned).all(|n| read(&n) == Some(n.to_string())));
                assert!((count + 1..count + 20).all(|n| read(&n).is_none()), "fork {n}");
            }
        });
    }
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

fn errno<T: std::fmt::Debug>(result: Result<T, PoolError>) -> Errno {
    result.unwrap_err().errno()
}

#[test]
fn branches_are_renamed_rolled_back_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "a").unwrap();
    within(&pool, "a", |task| task.write("/f", vec![7; 4 << 20]).unwrap());
    let free = pool.usage().free;
    assert_eq!(pool.rollback("a").unwrap().as_deref(), Some("a@1"));
    assert_eq!(read(&pool, "a", "/f").as_deref(), Some("base"));
    assert_eq!(within(&pool, "a@1", |task| task.read("/f").unwrap().len()), 4 << 20);
    pool.delete("a@1").unwrap();
    pool.rename("a", "b").unwrap();
    assert_eq!(errno(pool.delete("a")), Errno::NOENT);
    assert_eq!(errno(pool.delete("main")), Errno::INVAL);
    assert_eq!(errno(pool.rename("main", "m")), Errno::INVAL);
    assert_eq!(errno(pool.fork("main", "b")), Errno::EXIST);
    assert_eq!(errno(pool.fork("main", "x/y")), Errno::INVAL);
    let open = pool.open("b").unwrap();
    let rolled = pool.rollback("b").map(drop);
    for result in [pool.delete("b"), rolled, pool.rename("b", "c")] {
        assert_eq!(errno(result), Errno::BUSY);
    }
    assert!(matches!(pool.open("b"), Err(VolumeError::Pool(_))));
    open.close().unwrap();
    pool.delete("b").unwrap();
    pool.reap().unwrap();
    assert!(pool.usage().free > free + (3 << 20));
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    // A branch that is dropped without a close loses nothing.
    pool.fork("main", "c").unwrap();
    let open = pool.open("c").unwrap();
    open.task().write("/f", "dropped").unwrap();
    drop(open);
    assert_eq!(read(&pool, "c", "/f").as_deref(), Some("dropped"));
    pool.close().unwrap();
}

/// A branch that was dropped without a close, with its pool, is recovered.
#[test]
fn a_pool_that_was_not_closed_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork("main", "a").unwrap();
    let volume = pool.open("a").unwrap();
    volume.task().write("/f", "new").unwrap();
    let locked = vfscale::pool(&path).open().unwrap_err();
    assert!(matches!(locked, PoolError::Device(_)), "{locked}");
    drop(pool);
    // The volume holds the pool open.
    vfscale::pool(&path).open().unwrap_err();
    drop(volume);
    let pool = vfscale::pool(&path).read_only(true).open().unwrap();
    assert_eq!(read(&pool, "a", "/f").as_deref(), Some("new"));
    drop(pool);
    let pool = vfscale::pool(&path).open().unwrap();
    assert_eq!(read(&pool, "a", "/f").as_deref(), Some("new"));
    assert_eq!(read(&pool, "main", "/f").as_deref(), Some("base"));
    pool.close().unwrap();
}

#[test]
fn a_read_only_branch_keeps_its_contents() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork_with("main", "kept", ForkOptions::new().read_only(true)).unwrap();
    within(&pool, "main", |task| task.write("/f", "new").unwrap());
    let (one, two) = (pool.open("kept").unwrap(), pool.open("kept").unwrap());
    assert_eq!(one.task().read_to_string("/f").unwrap(), "base");
    let refused = two.task().write("/f", "x").unwrap_err();
    assert_eq!(refused.errno(), Errno::ROFS);
    one.close().unwrap();
    two.close().unwrap();
    pool.rollback("main").unwrap();
    assert_eq!(read(&pool, "main", "/f").as_deref(), Some("base"));
    assert!(pool.branches().iter().any(|info| info.name == "kept" && info.read_only));
    pool.close().unwrap();
}

#[test]
fn what_cannot_become_a_pool_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let plain = vfscale::pool(&path).open().unwrap_err();
    assert!(matches!(plain, PoolError::NoPool { .. }), "{plain}");
    let missing = vfscale::pool(dir.path().join("none")).convert(true).open().unwrap_err();
    assert_eq!(missing.errno(), Errno::NOENT);
    let empty = Arc::new(MemoryDevice::new(16 << 20).unwrap());
    let nothing = vfscale::pool_on(empty).convert(true).open().unwrap_err();
    assert!(matches!(nothing, PoolError::Superblock(OpenError::NoVolume { .. })), "{nothing}");

    let fixed = fixed(crashed_volume());
    let refused = vfscale::pool_on(fixed.clone()).convert(true).open().unwrap_err();
    assert!(refused.to_string().contains("fixed size"), "{refused}");
    check_files(fixed, "refused");

    let old = Arc::new(crashed_volume());
    spoil_first_block(&*old);
    let refused = vfscale::pool_on(old.clone()).convert(true).open().unwrap_err();
    assert!(refused.to_string().contains("superblock"), "{refused}");
    check_files(old, "refused");
}

/// The child takes the place of its parent.
#[test]
fn a_child_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    assert_eq!(errno(pool.adopt("main", "main")), Errno::INVAL);
    pool.fork("main", "a").unwrap();
    pool.fork("a", "b").unwrap();
    within(&pool, "b", |task| task.write("/f", "new").unwrap());
    // Opening, reading and closing the parent is no change.
    assert_eq!(read(&pool, "main", "/f").as_deref(), Some("base"));
    let refused = pool.adopt("b", "a").unwrap_err();
    assert!(refused.to_string().contains("has changed"), "{refused}");
    pool.adopt("main", "b").unwrap();
    assert_eq!(read(&pool, "main", "/f").as_deref(), Some("new"));
    assert_eq!(names(&pool), ["a", "main"]);
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());

    pool.fork("main", "c").unwrap();
    within(&pool, "c", |task| task.write("/f", "c").unwrap());
    within(&pool, "main", |task| task.write("/g", "changed").unwrap());
    let refused = pool.adopt("main", "c").unwrap_err();
    assert!(refused.to_string().contains("has changed"), "{refused}");
    let open = pool.open("c").unwrap();
    assert_eq!(errno(pool.adopt("main", "c")), Errno::BUSY);
    open.close().unwrap();
    assert_eq!(read(&pool, "c", "/f").as_deref(), Some("c"));
    pool.reap().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

/// When the pool is full, calls fail, but nothing of what was synced is lost, and a deleted branch
/// makes room.
#[test]
fn a_full_pool_loses_nothing_that_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let (mut whole, mut failed) = (Vec::new(), Vec::new());
    for n in 0..6 {
        let name = format!("b{n}");
        pool.fork("main", &name).unwrap();
        // A branch takes space for its log when it is first opened.
        let Ok(volume) = pool.open(&name) else {
            failed.push(name);
            continue;
        };
        let written = volume.task().write("/big", vec![n; 50 << 20]).is_ok();
        let synced = volume.sync().is_ok();
        let closed = volume.close().is_ok();
        if written && synced && closed { whole.push((n, name)) } else { failed.push(name) }
    }
    assert!(whole.len() >= 2 && !failed.is_empty(), "{whole:?} {failed:?}");
    for name in &failed {
        pool.delete(name).unwrap();
    }
    pool.reap().unwrap();
    assert_eq!(read(&pool, "main", "/f").as_deref(), Some("base"));
    for (n, name) in &whole {
        let found = within(&pool, name, |task| task.read("/big").unwrap());
        assert!(found.len() == 50 << 20 && found.iter().all(|byte| byte == n), "{name}");
    }
    pool.delete(&whole[0].1).unwrap();
    pool.reap().unwrap();
    pool.fork("main", "next").unwrap();
    within(&pool, "next", |task| task.write("/big", vec![9; 20 << 20]).unwrap());
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

fn names(pool: &Pool) -> Vec<String> {
    pool.branches().into_iter().map(|info| info.name).collect()
}

/// Returns a device that can't grow.
pub fn fixed(device: MemoryDevice) -> Arc<dyn Device> {
    Arc::new(HookedDevice::new(device, (), |device, (), call| match call {
        Call::Resize(_) => Err(DeviceError::Unsupported {
            device: device.name().into(),
            operation: Operation::Resize,
            why: "this device has a fixed size",
        }),
        call => call.pass(device),
    }))
}
