//! The memory of removed files is returned to the system, and other files can use it. A test
//! process of its own, because it measures the memory of the whole process.

#![allow(clippy::unwrap_used)]

mod memory_common;

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_memfs::MemFs;
use vfscale_sync::{cpu, page, rcu};
use vfscale_vfs::{At, Mode, OFlags, Task, Vfs};

use memory_common::resident_bytes;

const MIB: u64 = 1 << 20;

/// Maximum of idle pages in the page pool.
const IDLE_MAX: u64 = 16 * MIB;

/// Returns an upper bound of the idle pages in the page pool, in bytes.
fn reserve() -> u64 {
    IDLE_MAX + 2 * MIB + u64::from(cpu::possible()) * MIB / 2
}

fn file_system(size: u64) -> (Arc<MemFs>, Task) {
    let fs = MemFs::builder().size(size).build();
    let task = Vfs::new(fs.clone()).unwrap().task();
    (fs, task)
}

/// Creates files of `len` bytes until there is no space left; returns their number.
fn fill(task: &Task, prefix: &str, len: usize) -> u64 {
    let bytes = vec![7; len];
    for n in 0.. {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let made = task.posix().open(format!("/{prefix}{n}"), flags, Mode::from(0o644));
        let written = made.and_then(|file| if len > 0 { file.write(&bytes) } else { Ok(0) });
        match written {
            Ok(written) if written == len => {}
            Ok(_) => return n + 1,
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                let is_there = task.metadata(format!("/{prefix}{n}")).is_ok();
                return n + u64::from(is_there);
            }
        }
    }
    unreachable!("a file system without an end")
}

fn remove(task: &Task, prefix: &str, range: Range<u64>) {
    for n in range {
        task.remove_file(format!("/{prefix}{n}")).unwrap();
    }
}

/// Both parts in one test, since they would disturb each other.
#[test]
fn removed_files_give_their_memory_back() {
    page::set_idle_max(IDLE_MAX as usize);
    let before = resident_bytes();
    one_large_file(before);
    data_then_names(before);
}

fn one_large_file(before: u64) {
    const LEN: u64 = 300 * MIB;
    let (fs, task) = file_system(1 << 30);
    let file = task.posix().open("/f", OFlags::CREATE | OFlags::RDWR, Mode::empty()).unwrap();
    let piece = vec![7; MIB as usize];
    for n in 0..LEN / MIB {
        assert_eq!(file.pwrite(&piece, n * MIB).unwrap(), piece.len());
    }
    // This occupies the end of the heap.
    task.posix().mkdirat(At::Cwd, "/d", Mode::empty()).unwrap();
    assert!(resident_bytes() - before >= LEN);
    drop(file);
    task.remove_file("/f").unwrap();
    rcu::synchronize();
    let after = resident_bytes().saturating_sub(before);
    println!("after {LEN} bytes: {after} resident, {} used", fs.used_bytes());
    assert!(after <= reserve() + 8 * MIB, "{after} bytes stay resident");
}

/// A file system that was full of data and is then filled with names, which use other memory, takes
/// no more than its size, the freed memory that readers may still access, and the pool's reserve.
fn data_then_names(before: u64) {
    const SIZE: u64 = 128 * MIB;
    let (fs, task) = file_system(SIZE);
    for round in 0..2 {
        let big = fill(&task, "big", 1 << 20);
        assert!((100..=128).contains(&big), "{big} files of a MiB");
        remove(&task, "big", 0..big);
        let small = fill(&task, "small", 0);
        assert!(small > 200_000, "{small} names");
        let resident = resident_bytes().saturating_sub(before);
        println!("round {round}: {small} names, {resident} resident, {} used", fs.used_bytes());
        let most = SIZE + SIZE / 8 + reserve() + 4 * MIB;
        assert!(resident <= most, "{resident} bytes are resident, more than {most}");
        remove(&task, "small", 0..small);
    }
}
