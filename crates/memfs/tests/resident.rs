//! The memory that files occupy is no more than what they are charged. A test process of its own,
//! because it measures the memory of the whole process.

#![allow(clippy::unwrap_used)]

mod memory_common;

use vfscale_memfs::MemFs;
use vfscale_sync::page;
use vfscale_vfs::{Mode, OFlags, Task, Vfs};

/// Returns the resident memory without idle pages of the pool, in bytes.
fn resident_bytes() -> u64 {
    let idle = page::idle_bytes() as u64;
    memory_common::resident_bytes() - idle
}

fn make_files(task: &Task, dir: &str, range: std::ops::Range<u32>) {
    for n in range {
        let path = format!("{dir}/a-20-byte-name-{n:05}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        drop(task.posix().open(path, flags, Mode::from(0o644)).unwrap());
    }
}

/// Calls `work`; returns the growth of the resident memory and of the charge, in bytes per piece.
fn cost(fs: &MemFs, pieces: u32, work: impl FnOnce()) -> (f64, f64) {
    let (resident, charged) = (resident_bytes(), fs.used_bytes());
    work();
    let each = |bytes: u64| bytes as f64 / f64::from(pieces);
    // The process may also have shrunk.
    (each(resident_bytes().saturating_sub(resident)), each(fs.used_bytes() - charged))
}

#[test]
fn files_cost_no_more_than_they_are_charged() {
    const FIRST: u32 = 5_000;
    let fs = MemFs::builder().size(1 << 30).build();
    let task = Vfs::new(fs.clone()).unwrap().task();
    // Memory that is allocated only once is not a cost of the files.
    make_files(&task, "", 0..FIRST);
    let (resident, charged) = (resident_bytes(), fs.used_bytes());
    for step in 1..20 {
        // Checked at each step, because the load factor of the directory's table varies.
        make_files(&task, "", FIRST * step..FIRST * (step + 1));
        let each = |bytes: u64| bytes as f64 / f64::from(FIRST * step);
        let (cost, charge) = (each(resident_bytes() - resident), each(fs.used_bytes() - charged));
        println!("{} files: {cost:.0} bytes each, charged {charge:.0}", FIRST * step);
        assert!(cost <= charge && charge <= 512.0, "{cost} bytes each, charged {charge}");
    }
    directories(&fs, &task);
    long_names(&fs, &task);
    symbolic_links(&fs, &task);
    data(&fs, &task);
}

fn directories(fs: &MemFs, task: &Task) {
    for files in [0, 1, 3, 8, 20] {
        const DIRS: u32 = 5_000;
        // In a directory of their own: the root's table may grow at any time.
        let (cost, charge) = cost(fs, DIRS, || {
            task.create_dir(format!("/dirs-{files}")).unwrap();
            for n in 0..DIRS {
                let dir = format!("/dirs-{files}/{n}");
                task.create_dir(&dir).unwrap();
                make_files(task, &dir, 0..files);
            }
        });
        println!("a directory of {files} files: {cost:.0} bytes, charged {charge:.0}");
        assert!(cost <= charge, "a directory of {files} files: {cost} bytes, charged {charge}");
    }
}

fn long_names(fs: &MemFs, task: &Task) {
    for len in [64, 100, 255] {
        const FILES: u32 = 5_000;
        let (cost, charge) = cost(fs, FILES, || {
            task.create_dir(format!("/long-{len}")).unwrap();
            for n in 0..FILES {
                let path = format!("/long-{len}/{n:0len$}");
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                drop(task.posix().open(path, flags, Mode::from(0o644)).unwrap());
            }
        });
        println!("a file with a name of {len} bytes: {cost:.0}, charged {charge:.0}");
        assert!(cost <= charge, "a name of {len} bytes: {cost} bytes, charged {charge}");
    }
}

fn symbolic_links(fs: &MemFs, task: &Task) {
    for len in [1, 60, 1_000, 4_095] {
        const LINKS: u32 = 2_000;
        let target = "t".repeat(len);
        let (cost, charge) = cost(fs, LINKS, || {
            task.create_dir(format!("/links-{len}")).unwrap();
            for n in 0..LINKS {
                task.symlink(&target, format!("/links-{len}/{n}")).unwrap();
            }
        });
        println!("a link of {len} bytes: {cost:.0}, charged {charge:.0}");
        assert!(cost <= charge, "a link of {len} bytes: {cost} bytes, charged {charge}");
    }
}

fn data(fs: &MemFs, task: &Task) {
    for len in [1, 4_097, 300_000] {
        const FILES: u32 = 300;
        let bytes = vec![1; len];
        let (cost, charge) = cost(fs, FILES, || {
            task.create_dir(format!("/data-{len}")).unwrap();
            for n in 0..FILES {
                let path = format!("/data-{len}/{n}");
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                let file = task.posix().open(path, flags, Mode::from(0o644)).unwrap();
                assert_eq!(file.write(&bytes).unwrap(), len);
            }
        });
        println!("a file of {len} bytes: {cost:.0}, charged {charge:.0}");
        assert!(cost <= charge, "a file of {len} bytes: {cost} bytes, charged {charge}");
    }
}
