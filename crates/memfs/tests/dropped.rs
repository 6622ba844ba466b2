//! The memory of a dropped file system is returned to the system while the program is idle. A test
//! process of its own, because it measures the memory of the whole process.

#![allow(clippy::unwrap_used)]

mod memory_common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vfscale_memfs::MemFs;
use vfscale_sync::{cpu, page, rcu, reclaim};
use vfscale_vfs::{At, FallocateFlags, Mode, OFlags, Vfs};

use memory_common::resident_bytes;

const MIB: u64 = 1 << 20;

/// Excludes other tests: each watches the memory of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// Sleeps until at most `most` bytes are resident above `before`; returns how long that took.
fn wait_for_memory(before: u64, most: u64) -> Duration {
    let start = Instant::now();
    let is_back = || resident_bytes().saturating_sub(before) <= most;
    vfscale_harness::wait_until("memory is given back", is_back);
    start.elapsed()
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

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the CPU time of the reclaim thread. Zero if that does not exist.
fn reclaim_cpu_time() -> Duration {
    let name = |dir: &Path| std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
    let mut tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let Some(dir) = tasks.find(|dir| name(dir).starts_with("vfscale-reclaim")) else {
        return Duration::ZERO;
    };
    let stat = std::fs::read_to_string(dir.join("schedstat")).unwrap_or_default();
    stat.split(' ').next().and_then(|n| n.parse().ok()).map_or(Duration::ZERO, Duration::from_nanos)
}

/// Figures: `cargo test --release -p vfscale-memfs --test dropped -- --ignored --nocapture`. Every
/// second time another thread opens files concurrently: the number of its calls, the longest, and
/// for comparison the longest time of doing nothing. These are CPU times, which do not depend on
/// the scheduler; a hypervisor that takes the CPU away still counts, in both.
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
            let (start, cpu) = (Instant::now(), reclaim_cpu_time());
            drop(vfs);
            let dropped = start.elapsed();
            wait_for_memory(before, most);
            let took = start.elapsed();
            is_over.store(true, Ordering::Relaxed);
            let longest = opener.map(|opener| opener.join().unwrap());
            let left = resident_bytes().saturating_sub(before) / MIB;
            let full = full / MIB;
            let cpu = reclaim_cpu_time().saturating_sub(cpu);
            println!(
                "{full} MiB, drop {dropped:?}, back after {took:?} ({cpu:?} of CPU, {left} MiB left), \
                 {longest:?}"
            );
        });
    }
}

/// Opens a file of another file system repeatedly. Returns the number of calls, the longest time of
/// one, and the longest time between two looks at the clock with nothing between them.
fn open_until(is_over: &AtomicBool) -> (u64, Duration, Duration) {
    let task = Vfs::new(MemFs::builder().build()).unwrap().task();
    task.posix().open("/f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    let (mut opens, mut longest, mut nothing) = (0, Duration::ZERO, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let begin = cpu_time();
        task.posix().open("/f", OFlags::RDONLY, Mode::empty()).unwrap();
        let end = cpu_time();
        longest = longest.max(end - begin);
        nothing = nothing.max(cpu_time() - end);
        opens += 1;
    }
    (opens, longest, nothing)
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
