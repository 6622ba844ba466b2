//! The memory of a dropped file system is returned to the system while the program is idle. A test
//! process of its own, because it measures the memory of the whole process.

#![allow(clippy::unwrap_used)]

mod memory_common;

use std::sync::Arc;
use std::thread;

use vfscale_harness::alone;
use vfscale_memfs::MemFs;
use vfscale_sync::{cpu, page, rcu, reclaim};
use vfscale_vfs::{At, FallocateFlags, Mode, OFlags, Vfs};

use memory_common::resident_bytes;

const MIB: u64 = 1 << 20;

/// Returns how many bytes are resident once all memory of earlier tests has been returned.
fn bytes_at_rest() -> u64 {
    reclaim::settle();
    page::trim();
    resident_bytes()
}

/// Returns a number of bytes that exceeds what the page pool ever retains.
fn reserve() -> u64 {
    26 * MIB + u64::from(cpu::possible()) * MIB / 2
}

/// Returns a file system with `files` files of one page each, in directories of a thousand.
fn filled(files: u32) -> Vfs {
    let vfs = Vfs::new(MemFs::builder().size(16 << 30).build()).unwrap();
    let task = vfs.task();
    for n in 0..files {
        let dir = format!("/{}", n / 1000);
        if n % 1000 == 0 {
            task.posix().mkdirat(At::Cwd, &dir, Mode::RWXU).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = task.posix().open(format!("{dir}/file{n}"), flags, Mode::RWXU).unwrap();
        assert_eq!(file.write(&[7; 4096]).unwrap(), 4096);
    }
    vfs
}

/// Sleeps until at most `most` bytes are resident above `before`.
fn wait_for_memory(before: u64, most: u64) {
    let is_back = || resident_bytes().saturating_sub(before) <= most;
    vfscale_harness::wait_until("memory is given back", is_back);
}

/// In the past, memory whose freeing the dead tree had deferred was not freed until the process
/// made some hundred thousand calls.
#[test]
fn a_dropped_file_system_gives_its_memory_back_though_nobody_calls() {
    let _alone = alone();
    let before = bytes_at_rest();
    let vfs = filled(100_000);
    assert!(resident_bytes() - before > 400 * MIB);
    drop(vfs);
    wait_for_memory(before, reserve());
}

/// In the past, the memory of a file that was unlinked or truncated stayed until other calls were
/// made.
///
/// Race: Returning free memory to the system against threads that free and take pages.
#[test]
fn a_large_file_gives_its_memory_back_though_nobody_calls() {
    let _alone = alone();
    let task = Vfs::new(MemFs::builder().size(1 << 30).build()).unwrap().task();
    let create = || task.posix().open("/f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    let before = bytes_at_rest();
    for is_cut in [false, true] {
        let file = create();
        let piece = vec![7; MIB as usize];
        (0..100).for_each(|n| assert_eq!(file.pwrite(&piece, n * MIB).unwrap(), piece.len()));
        assert!(resident_bytes() - before > 90 * MIB);
        if is_cut {
            file.truncate(0).unwrap();
        } else {
            drop(file);
            task.remove_file("/f").unwrap();
        }
        wait_for_memory(before, reserve());
    }
}

/// In the past, deferred frees of many files were handed over, and no thread ran them.
#[test]
fn removed_files_give_their_memory_back_though_nobody_calls() {
    const FILES: u32 = 2000;
    let _alone = alone();
    let task = Vfs::new(MemFs::builder().size(1 << 30).build()).unwrap().task();
    let before = bytes_at_rest();
    for n in 0..FILES {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = task.posix().open(format!("/{n}"), flags, Mode::RWXU).unwrap();
        assert_eq!(file.write(&[7; 64 << 10]).unwrap(), 64 << 10);
    }
    assert!(resident_bytes() - before > 120 * MIB);
    for n in 0..FILES {
        task.remove_file(format!("/{n}")).unwrap();
    }
    wait_for_memory(before, reserve());
}

/// Files of every kind: without data, of a page, sparse, with space set aside, large.
#[test]
fn a_dropped_file_system_has_nothing_taken() {
    let _alone = alone();
    let fs = MemFs::builder().size(1 << 30).build();
    let task = Vfs::new(fs.clone()).unwrap().task();
    let before = fs.used_bytes();
    for (n, (pages, apart)) in
        [(0, 1), (1, 1), (70, 1), (100, 1000), (2000, 1)].into_iter().enumerate()
    {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file =
            task.posix().open(format!("/{n}{}", "x".repeat(n * 40)), flags, Mode::RWXU).unwrap();
        for page in 0..pages {
            assert_eq!(file.pwrite(b"some", page * apart * 4096).unwrap(), 4);
        }
        file.fallocate(FallocateFlags::KEEP_SIZE, 1 << 30, 40 * 4096).unwrap();
    }
    assert!(fs.used_bytes() > before + 2000 * 4096);
    drop(task);
    vfscale_harness::wait_until("the driver has no other user", || Arc::strong_count(&fs) == 1);
    assert_eq!(fs.used_bytes(), 0);
}

/// Files without data used to wait in the queue of deferred work until the next call: their inodes
/// and names are small, and did not wake the reclaim thread.
///
/// Race: Deferred work against a program that becomes idle.
#[test]
fn empty_files_that_were_removed_give_their_memory_back_though_nobody_calls() {
    const FILES: u32 = 300_000;
    let _alone = alone();
    let vfs = Vfs::new(MemFs::builder().size(16 << 30).build()).unwrap();
    let task = vfs.task();
    let name = |n: u32| format!("/{}/file{n}", n / 1000);
    for dir in 0..FILES / 1000 {
        task.posix().mkdirat(At::Cwd, format!("/{dir}"), Mode::RWXU).unwrap();
    }
    let before = bytes_at_rest();
    for n in 0..FILES {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        drop(task.posix().open(name(n), flags, Mode::RWXU).unwrap());
    }
    assert!(resident_bytes() - before > 100 * MIB);
    // While this thread is in a section no grace period ends, and all that is removed waits.
    let section = rcu::pin();
    thread::scope(|scope| {
        scope.spawn(|| (0..FILES).for_each(|n| task.remove_file(name(n)).unwrap()));
    });
    assert!(resident_bytes() - before > 100 * MIB);
    drop(section);
    wait_for_memory(before, reserve());
}
