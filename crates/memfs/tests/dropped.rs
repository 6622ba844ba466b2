//! Memory of a file system that is dropped goes back to the system while the program is idle. A process of its
//! own, because it watches the memory of the whole process.

#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::{Duration, Instant};

use vfscale_memfs::MemFs;
use vfscale_sync::cpu;
use vfscale_vfs::{At, Mode, OFlags, Vfs};

const MIB: u64 = 1 << 20;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// What the page pool keeps at most, and some.
fn reserve() -> u64 {
    26 * MIB + u64::from(cpu::possible()) * MIB / 2
}

/// A file system with so many files of a page, in directories of a thousand.
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

/// Sleeps until less than `most` bytes are resident above `before`; returns how long.
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

/// Of 100,000 files, 98,000 pages stayed for ever.
#[test]
fn a_dropped_file_system_gives_its_memory_back_though_nobody_calls() {
    let before = resident_bytes();
    let vfs = filled(100_000);
    assert!(resident_bytes() - before > 400 * MIB);
    drop(vfs);
    wait_for_memory(before, reserve());
}

/// Figures: `cargo test --release -p vfscale-memfs --test dropped -- --ignored --nocapture`.
#[test]
#[ignore = "measures, and takes 5 GiB"]
fn figures_of_a_million_files() {
    for round in 0..5 {
        let before = resident_bytes();
        let vfs = filled(1_000_000);
        let full = resident_bytes() - before;
        let beside = Vfs::new(MemFs::builder().build()).unwrap().task();
        beside.open("/f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        let start = Instant::now();
        drop(vfs);
        let dropped = start.elapsed();
        let (mut longest, mut opens) = (Duration::ZERO, 0);
        while resident_bytes().saturating_sub(before) > reserve() && start.elapsed().as_secs() < 30
        {
            for _ in 0..2000 {
                let begin = Instant::now();
                beside.open("/f", OFlags::RDONLY, Mode::empty()).unwrap();
                longest = longest.max(begin.elapsed());
                opens += 1;
            }
        }
        let took = start.elapsed();
        let left = resident_bytes().saturating_sub(before) / MIB;
        println!(
            "round {round}: {} MiB, drop {dropped:?}, all back after {took:?} ({left} MiB left), \
             longest of {opens} opens {longest:?}",
            full / MIB
        );
    }
}
