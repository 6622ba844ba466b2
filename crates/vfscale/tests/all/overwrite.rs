//! Short writes over existing bytes of a file that several CPUs use: they run concurrently, and
//! otherwise behave like any write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vfscale::posix::{
    At, AtFlags, FallocateFlags, MemfdFlags, MountFlags, OFlags, SealFlags, Whence, XattrFlags,
};
use vfscale::{Credentials, Errno, File, MemFs, Mode, Scaling, Task};
use vfscale_sync::sharded_rwlock::ReaderParts;
use vfscale_sync::{cpu, rcu};

const CPUS: usize = 4;
const PAGE: u64 = 4096;
const MODE: Mode = Mode::from_bits_retain(0o666);

/// Returns a tree for several CPUs, and the file system in it whose memory is counted.
fn tree(scaling: Scaling) -> (Task, Arc<MemFs>) {
    let task = vfscale::memory().scaling(scaling).build().unwrap().task();
    let fs = MemFs::builder().size(16 << 20).slots(CPUS).build();
    task.create_dir("/d").unwrap();
    task.posix().mount(fs.clone(), "/d", MountFlags::empty()).unwrap();
    (task, fs)
}

/// Creates a file of `pages` pages of zeros.
fn file(task: &Task, pages: usize) -> File {
    let file = task.posix().open("/d/file", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    file.pwrite(&vec![0; pages * PAGE as usize], 0).unwrap();
    file
}

/// Lets several CPUs alternately take the lock of a file, often enough for it to be sharded.
fn share(file: &File) {
    for turn in 0..40 {
        let _on = cpu::pretend(turn % CPUS as u32);
        file.seek(Whence::Hole(0)).unwrap();
    }
}

/// Creates a file of `pages` pages whose lock is sharded.
fn shared(pages: usize) -> (Task, File) {
    let (task, fs) = tree(Scaling::with_slots(CPUS));
    let file = file(&task, pages);
    let before = fs.used_bytes();
    share(&file);
    assert_eq!(fs.used_bytes() - before, ReaderParts::bytes(CPUS) as u64);
    (task, file)
}

fn bytes(file: &File) -> Vec<u8> {
    let mut all = vec![0xee; file.stat().unwrap().size as usize];
    assert_eq!(file.pread(&mut all, 0).unwrap(), all.len());
    all
}

#[test]
fn the_shards_of_a_lock_are_charged_until_the_file_is_freed() {
    let (task, fs) = tree(Scaling::with_slots(CPUS));
    rcu::synchronize();
    let before = fs.used_bytes();
    let file = file(&task, 1);
    share(&file);
    share(&file);
    drop(file);
    task.remove_file("/d/file").unwrap();
    rcu::synchronize();
    assert_eq!(fs.used_bytes(), before);
}

#[test]
fn a_file_of_one_cpu_or_before_file_lock_is_not_spread() {
    let before = Scaling::with_slots(CPUS).and_before("file-lock").unwrap();
    for (scaling, cpus) in [(Scaling::with_slots(CPUS), 1), (before, CPUS)] {
        let (task, fs) = tree(scaling);
        let file = file(&task, 1);
        let before = fs.used_bytes();
        for turn in 0..100 {
            let _on = cpu::pretend(turn % cpus as u32);
            file.seek(Whence::Hole(0)).unwrap();
            file.pwrite(b"data", 0).unwrap();
        }
        assert_eq!(fs.used_bytes(), before);
    }
}

/// Overwriting threads that wait for each other get the lock sharded, too.
#[test]
fn overwriters_that_wait_shard_the_lock() {
    let (task, fs) = tree(Scaling::with_slots(CPUS));
    let file = file(&task, 16);
    let before = fs.used_bytes();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, done) = (&file, &done);
            scope.spawn(move || {
                let _on = cpu::pretend(thread);
                while !done.load(Ordering::Relaxed) {
                    file.pwrite(&[1; 16 << 10], u64::from(thread) * 4 * PAGE).unwrap();
                }
            });
        }
        vfscale_harness::wait_until("a write takes memory", || fs.used_bytes() != before);
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs.used_bytes() - before, ReaderParts::bytes(CPUS) as u64);
}

#[test]
fn without_memory_for_shards_a_lock_is_not_sharded() {
    let task = vfscale::memory().scaling(Scaling::with_slots(CPUS)).build().unwrap().task();
    let fs = MemFs::builder().size(64 << 10).slots(1).build();
    task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
    task.posix().mount(fs.clone(), "/d", MountFlags::empty()).unwrap();
    let file = file(&task, 1);
    let full = task.posix().open("/d/full", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    while full.pwrite(&[1; 4096], full.stat().unwrap().size).is_ok() {}
    // The rest of the memory is for smaller allocations.
    let name = "n".repeat(200);
    for n in 0..100 {
        let _ = task.posix().open(format!("/d/{name}{n}"), OFlags::CREATE | OFlags::RDWR, MODE);
    }
    let before = fs.used_bytes();
    assert!(fs.size_bytes() - before < ReaderParts::bytes(CPUS) as u64);
    share(&file);
    assert_eq!(fs.used_bytes(), before);
    file.pwrite(b"data", 0).unwrap();
}

/// Ranges within a page, over several pages, at the end of a page and of the file, and of all
/// lengths.
#[test]
fn bytes_are_where_they_were_written() {
    let (_task, file) = shared(70);
    let size = 70 * PAGE;
    let mut expected = bytes(&file);
    let offsets = [0, 1, 4000, 4095, 4096, 63 * PAGE, 63 * PAGE + 17, 64 * PAGE - 1];
    let lens = [1, 2, 96, 97, 4095, 4096, 4097, 8192, 16 << 10, (16 << 10) + 1, 32 << 10];
    let mut value = 0_u8;
    for (at, len) in offsets.iter().flat_map(|&at| lens.map(|len| (at, len as u64))) {
        // The last ranges end where the file does.
        for at in [at, size - len] {
            value = value % 250 + 1;
            let _on = cpu::pretend(u32::from(value) % CPUS as u32);
            let data = vec![value; len as usize];
            if at + len <= size {
                assert_eq!(file.pwrite(&data, at).unwrap(), data.len());
                expected[at as usize..(at + len) as usize].copy_from_slice(&data);
            }
        }
        share(&file);
    }
    assert!(bytes(&file) == expected);
}

#[test]
fn writes_that_do_more_than_overwrite_are_complete() {
    let (task, file) = shared(2);
    let stat = || file.stat().unwrap();
    // A write partly beyond the end.
    assert_eq!(file.pwrite(&[1; 8], 2 * PAGE - 4).unwrap(), 8);
    assert_eq!(stat().size, 2 * PAGE + 4);
    // A hole.
    file.truncate(8 * PAGE).unwrap();
    share(&file);
    let blocks = stat().blocks;
    assert_eq!(file.pwrite(&[2; 8], 6 * PAGE).unwrap(), 8);
    assert_eq!(stat().blocks, blocks + PAGE / 512);
    // A reserved page.
    file.fallocate(FallocateFlags::empty(), 7 * PAGE, PAGE).unwrap();
    share(&file);
    assert_eq!(file.pwrite(&[3; 8], 7 * PAGE).unwrap(), 8);
    let all = bytes(&file);
    assert_eq!(
        [all[2 * PAGE as usize + 3], all[6 * PAGE as usize], all[7 * PAGE as usize]],
        [1, 2, 3]
    );
    // An append.
    let appends = task.posix().open("/d/file", OFlags::WRONLY | OFlags::APPEND, MODE).unwrap();
    share(&file);
    assert_eq!(appends.pwrite(&[4; 8], 0).unwrap(), 8);
    assert_eq!(stat().size, 8 * PAGE + 8);
    // Several buffers.
    share(&file);
    let bufs = [&[5; 4][..], &[6; 4]].map(std::io::IoSlice::new);
    assert_eq!(file.pwritev(&bufs, 0).unwrap(), 8);
    assert_eq!(bytes(&file)[..8], [5, 5, 5, 5, 6, 6, 6, 6]);
}

#[test]
fn times_move_on() {
    let (_task, file) = shared(1);
    for _ in 0..3 {
        share(&file);
        let before = file.stat().unwrap();
        file.pwrite(b"data", 0).unwrap();
        let after = file.stat().unwrap();
        assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    }
    share(&file);
    let before = file.stat().unwrap();
    assert_eq!(file.pwrite(b"", 0).unwrap(), 0);
    assert_eq!(file.stat().unwrap().mtime, before.mtime);
}

#[test]
fn privileges_are_taken_away() {
    let (task, owned) = shared(1);
    let user = task.with_credentials(Credentials::user(1000, 1000));
    task.set_permissions("/d/file", Mode::from(0o6777)).unwrap();
    share(&owned);
    let file = user.posix().open("/d/file", OFlags::RDWR, MODE).unwrap();
    file.pwrite(b"data", 0).unwrap();
    assert_eq!(file.stat().unwrap().mode & 0o7777, 0o777);
    let capability: &[u8] = &[0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = "security.capability";
    let none = XattrFlags::empty();
    task.posix().setxattrat(At::Cwd, "/d/file", name, capability, none, AtFlags::empty()).unwrap();
    share(&owned);
    owned.pwrite(b"data", 0).unwrap();
    let gone = task.posix().getxattrat(At::Cwd, "/d/file", name, AtFlags::empty());
    assert_eq!(gone.unwrap_err().errno(), Errno::NODATA);
}

#[test]
fn a_sealed_file_is_not_written() {
    let (task, _) = tree(Scaling::with_slots(CPUS));
    let file = task.posix().memfd_create("memory", MemfdFlags::ALLOW_SEALING).unwrap();
    file.pwrite(&[0; 8192], 0).unwrap();
    share(&file);
    file.pwrite(&[1; 8], 0).unwrap();
    file.add_seals(SealFlags::WRITE).unwrap();
    share(&file);
    assert_eq!(file.pwrite(&[2; 8], 0).unwrap_err().errno(), Errno::PERM);
    assert_eq!(bytes(&file)[..8], [1; 8]);
}

/// Overwrites concurrent with truncations, holes and extending writes: in the end the bytes beyond
/// a truncation are zero, and the used space is right.
#[test]
fn stress_overwrites_and_other_changes() {
    let (_task, file) = shared(8);
    let done = AtomicBool::new(false);
    let (file, done) = (&file, &done);
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            scope.spawn(move || {
                let _on = cpu::pretend(u32::from(thread));
                let mut turn = 0;
                while !done.load(Ordering::Relaxed) {
                    turn = (turn + 1) % 4;
                    file.pwrite(&[thread + 1; PAGE as usize], turn * PAGE).unwrap();
                }
            });
        }
        let _on = cpu::pretend(2);
        for round in 0..3_000 {
            share(file);
            match round % 3 {
                0 => file.truncate(PAGE + 100).unwrap(),
                1 => {
                    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    file.fallocate(punch, 2 * PAGE, 2 * PAGE).unwrap();
                }
                _ => drop(file.pwrite(&[3; 2 * PAGE as usize], 7 * PAGE).unwrap()),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    file.truncate(PAGE + 100).unwrap();
    file.truncate(9 * PAGE).unwrap();
    let all = bytes(file);
    assert!(all[PAGE as usize + 100..].iter().all(|&byte| byte == 0));
    let stat = file.stat().unwrap();
    assert_eq!(stat.blocks, 2 * PAGE / 512);
}
