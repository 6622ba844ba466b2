//! The number of open branches that an image takes.

use std::sync::Arc;

use vfscale::block::MemoryDevice;
use vfscale::{Errno, Volume};
use vfscale_diskfs::mkfs::{self, MkfsOptions};

const WRITTEN: usize = 200 << 10;

/// Writes and syncs a file.
fn change(volume: &Volume) -> Result<(), Errno> {
    volume.task().write("/file", vec![7; WRITTEN])?;
    volume.sync().map_err(|error| error.errno())
}

/// Opens branches of a volume of 1 GiB, one after the other, writes and syncs a file in each, and
/// leaves them open, until the pool is full or `most` are open. Returns their number.
fn opened(most: usize) -> usize {
    let device = Arc::new(MemoryDevice::new(1 << 30).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let pool = vfscale::pool_on(device).convert(true).open().unwrap();
    let mut open: Vec<Volume> = Vec::new();
    while open.len() < most {
        let name = format!("b{}", open.len());
        let opened = pool.fork("main", &name).map_err(|error| error.errno()).and_then(|()| {
            let volume = pool.branch(&name).sync_interval(None).open();
            volume.map_err(|error| error.errno())
        });
        let changed = opened.and_then(|volume| match change(&volume) {
            Ok(()) => Ok(volume),
            Err(error) => {
                volume.close().unwrap();
                Err(error)
            }
        });
        match changed {
            Ok(volume) => open.push(volume),
            Err(error) => {
                assert_eq!(error, Errno::NOSPC);
                break;
            }
        }
    }
    let count = open.len();
    // Each of them can still be changed, or removed from.
    for volume in &open {
        volume.task().remove_file("/file").unwrap();
    }
    open.into_iter().for_each(|volume| volume.close().unwrap());
    pool.close().unwrap();
    count
}

#[test]
fn many_changed_branches_are_open_at_once() {
    let count = opened(5000);
    assert!(count >= 190, "{count} branches");
}

/// Returns how much less is free in the pool when a branch of a volume of `bytes` bytes is open,
/// when a byte was written in it, and when that is synced; in KiB.
fn reserved(bytes: u64) -> [u64; 3] {
    let device = Arc::new(MemoryDevice::new(bytes).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let pool = vfscale::pool_on(device).convert(true).open().unwrap();
    pool.fork("main", "trial").unwrap();
    let free = || pool.usage().free;
    let before = free();
    let volume = pool.branch("trial").sync_interval(None).open().unwrap();
    let opened = free();
    volume.task().write("/file", "a").unwrap();
    let changed = free();
    volume.sync().unwrap();
    let reserved = [opened, changed, free()].map(|now| (before - now) >> 10);
    volume.close().unwrap();
    pool.close().unwrap();
    reserved
}

/// The figures of docs/POOL.md, with what the file itself takes.
#[test]
fn a_branch_holds_little_in_reserve() {
    let figures =
        [(64 << 20, [11_000, 4600]), (1 << 30, [14_500, 5700]), (1 << 40, [17_500, 6900])];
    for (bytes, [changed_max, rest_max]) in figures {
        let [opened, changed, rest] = reserved(bytes);
        eprintln!("{bytes} bytes: {opened}, {changed}, {rest} KiB");
        assert!(opened <= 400 && changed <= changed_max && rest <= rest_max, "{bytes} bytes");
    }
}
