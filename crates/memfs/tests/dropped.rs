//! The memory of a dropped file system is returned to the system while the program is idle. A test
//! process of its own, because it measures the memory of the whole process.

#![allow(clippy::unwrap_used)]

mod memory_common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vfscale_memfs::MemFs;
use vfscale_sync::cpu;
use vfscale_vfs::{At, FallocateFlags, Mode, OFlags, Vfs};

use memory_common::resident_bytes;

const MIB: u64 = 1 << 20;

/// Returns an upper bound of the idle pages in the page pool, in bytes.
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
            task.mkdir(At::Cwd, &dir, Mode::RWXU).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = task.open(format!("{dir}/file{n}"), flags, Mode::RWXU).unwrap();
        assert_eq!(file.write(&[7; 4096]).unwrap(), 4096);
    }
    vfs
}

/// Sleeps until at most `most` bytes are resident above `before`; returns how long that took.
fn wait_for_memory(before: u64, most: u64) -> Duration {
    let start = Instant::now();
    while resident_bytes().saturating_sub(before) > most {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{} bytes stay",
            resident_bytes() - before
        );
        thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// In the past, memory whose freeing the dead tree had deferred was not freed until the process
/// made some hundred thousand calls.
#[test]
fn a_dropped_file_system_returns_its_memory_without_further_calls() {
    let before = resident_bytes();
    let vfs = filled(100_000);
    assert!(resident_bytes() - before > 400 * MIB);
    drop(vfs);
    wait_for_memory(before, reserve());
}

/// Files of every kind: empty, of one page, sparse, with reserved space, large.
#[test]
fn a_dropped_file_system_has_nothing_taken() {
    let fs = MemFs::builder().size(1 << 30).build();
    let task = Vfs::new(fs.clone()).unwrap().task();
    let before = fs.used_bytes();
    for (n, (pages, apart)) in
        [(0, 1), (1, 1), (70, 1), (100, 1000), (2000, 1)].into_iter().enumerate()
    {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = task.open(format!("/{n}{}", "x".repeat(n * 40)), flags, Mode::RWXU).unwrap();
        for page in 0..pages {
            assert_eq!(file.pwrite(b"some", page * apart * 4096).unwrap(), 4);
        }
        file.fallocate(FallocateFlags::KEEP_SIZE, 1 << 30, 40 * 4096).unwrap();
    }
    assert!(fs.used_bytes() > before + 2000 * 4096);
    drop(task);
    let start = Instant::now();
    while Arc::strong_count(&fs) > 1 {
        assert!(start.elapsed() < Duration::from_secs(30), "it never ends");
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(fs.used_bytes(), 0);
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Measurement: `cargo test --release -p vfscale-memfs --test dropped -- --ignored --nocapture`. In
/// every second round another thread opens files concurrently. Its times are CPU time, which
/// excludes the scheduler's delays.
#[test]
#[ignore = "measures, and takes 5 GiB"]
fn figures_of_a_million_files() {
    let most = reserve() + 64 * MIB;
    for round in 0..10 {
        let before = resident_bytes();
        let vfs = filled(1_000_000);
        let full = resident_bytes() - before;
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let opener = (round % 2 == 1).then(|| scope.spawn(|| open_until(&is_over)));
            let start = Instant::now();
            drop(vfs);
            let dropped = start.elapsed();
            wait_for_memory(before, most);
            let took = start.elapsed();
            is_over.store(true, Ordering::Relaxed);
            let longest = opener.map(|opener| opener.join().unwrap());
            let left = resident_bytes().saturating_sub(before) / MIB;
            let full = full / MIB;
            println!(
                "{full} MiB, drop {dropped:?}, back after {took:?} ({left} MiB left), {longest:?}"
            );
        });
    }
}

/// Opens a file of another file system repeatedly. Returns the number of calls, and the longest
/// time.
fn open_until(is_over: &AtomicBool) -> (u64, Duration) {
    let task = Vfs::new(MemFs::builder().build()).unwrap().task();
    task.open("/f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    let (mut opens, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let begin = cpu_time();
        task.open("/f", OFlags::RDONLY, Mode::empty()).unwrap();
        longest = longest.max(cpu_time() - begin);
        opens += 1;
    }
    (opens, longest)
}
