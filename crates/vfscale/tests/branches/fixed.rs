//! Pools on devices that can't grow.

use std::sync::Arc;

use vfscale::block::Device;
use vfscale::{Errno, Pool, Task};
use vfscale_block::MemoryDevice;
use vfscale_diskfs::mkfs::{self, MkfsOptions};

use crate::common::within;
use crate::pools::fixed;

const MIB: u64 = 1 << 20;

/// Returns a device of 96 MiB that can't grow, with a volume of `volume` bytes.
fn formatted(volume: u64) -> Arc<dyn Device> {
    let device = MemoryDevice::with_block_size(96 * MIB, 4096).unwrap();
    mkfs::format(&device, &MkfsOptions { size: Some(volume), ..MkfsOptions::default() }).unwrap();
    fixed(device)
}

/// Writes 10 MiB.
fn fill(task: &Task, byte: u8) {
    for n in 0..10 {
        task.write(format!("/f{n}"), vec![byte; MIB as usize]).unwrap();
    }
}

fn check(task: &Task, byte: u8) {
    for n in 0..10 {
        assert!(task.read(format!("/f{n}")).unwrap() == vec![byte; MIB as usize], "{n}");
    }
}

/// Makes two branches, of which each writes everything anew: that is more than what is behind the
/// volume.
fn use_branches(pool: &Pool) {
    assert!(pool.usage().free > 55 * MIB, "{:?}", pool.usage());
    assert_eq!(pool.usage().size, 96 * MIB);
    for (name, byte) in [("a", 2), ("b", 3)] {
        pool.fork("main", name).unwrap();
        within(pool, name, |task| fill(task, byte));
    }
    for (name, byte) in [("a", 2), ("b", 3)] {
        within(pool, name, |task| check(task, byte));
    }
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_volume_on_a_device_of_a_fixed_size_becomes_a_pool() {
    let device = formatted(76 * MIB);
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    fill(&volume.task(), 1);
    volume.close().unwrap();
    let pool = vfscale::pool_on(device.clone()).convert(true).open().unwrap();
    use_branches(&pool);
    within(&pool, "main", |task| check(task, 1));
    pool.close().unwrap();
    let pool = vfscale::pool_on(device).open().unwrap();
    within(&pool, "a", |task| check(task, 2));
    within(&pool, "main", |task| check(task, 1));
    pool.close().unwrap();
}

#[test]
fn an_open_volume_on_a_device_of_a_fixed_size_becomes_a_pool() {
    let device = formatted(76 * MIB);
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    fill(&volume.task(), 1);
    let pool = volume.make_pool().unwrap();
    use_branches(&pool);
    check(&volume.task(), 1);
    volume.task().write("/later", "l").unwrap();
    volume.close().unwrap();
    drop(pool);
    let pool = vfscale::pool_on(device).open().unwrap();
    within(&pool, "main", |task| check(task, 1));
    within(&pool, "b", |task| check(task, 3));
    pool.close().unwrap();
}

/// Without room behind the volume nothing has changed, and the error names the remedy.
#[test]
fn a_volume_that_fills_its_device_is_refused() {
    for size in [96, 84] {
        let device = formatted(size * MIB);
        let refused = vfscale::pool_on(device.clone()).convert(true).open().unwrap_err();
        assert_eq!(refused.errno(), Errno::FBIG);
        assert!(refused.to_string().contains("--branch-space"), "{refused}");
        let volume = vfscale::volume_on(device).open().unwrap();
        assert_eq!(volume.make_pool().unwrap_err().errno(), Errno::FBIG);
        volume.task().write("/f", "goes on").unwrap();
        volume.close().unwrap();
    }
}
