//! Freed space is available again: a call that lacks space waits for the space that is being freed.

use vfscale_vfs::types::FallocateFlags;
use vfscale_vfs::{File, OpenOptions};

use super::*;

const PIECE: usize = 128 * 1024;
const ROUNDS: u32 = 8;

/// Returns a volume on which nothing becomes durable unless a call waits for it.
fn slow(bytes: u64) -> Mounted {
    slow_with(bytes, 4 * MIB)
}

fn slow_with(bytes: u64, data_cache_bytes: u64) -> Mounted {
    let device = MemoryDevice::new(bytes).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    let options = Settings { sync_interval: None, data_cache_bytes, ..Settings::default() };
    opened_with(Arc::new(device), options)
}

fn create(task: &Task, path: &str) -> File {
    task.open_with(path, &OpenOptions::new().write(true).create(true)).unwrap()
}

/// Writes until no space is left; returns the number of bytes.
fn fill(file: &File) -> u64 {
    let piece = vec![7; PIECE];
    let mut bytes = 0;
    loop {
        match file.write(&piece) {
            Ok(written) => bytes += written as u64,
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                return bytes;
            }
        }
    }
}

#[test]
fn a_volume_that_is_filled_and_emptied_takes_as_much_again() {
    let mounted = slow(64 * MIB);
    let mut first = None;
    for round in 0..ROUNDS {
        let file = create(&mounted.task, "/f");
        let written = fill(&file);
        let wanted = *first.get_or_insert(written);
        assert!(written.abs_diff(wanted) <= 64 * 4096, "round {round}: {written} of {wanted}");
        drop(file);
        mounted.unlink("/f", AtFlags::empty()).unwrap();
    }
    drop(mounted.again());
}

/// A write is short only if the volume is full, never because a removal is not durable yet.
///
/// Race: A call that lacks space against space that becomes free.
#[test]
fn a_write_after_a_removal_is_whole() {
    let mounted = slow(64 * MIB);
    let file = create(&mounted.task, "/f");
    let most = fill(&file) - MIB;
    drop(file);
    let bytes = vec![3; most as usize];
    for _ in 0..ROUNDS {
        mounted.unlink("/f", AtFlags::empty()).unwrap();
        let file = create(&mounted.task, "/f");
        assert_eq!(file.pwrite(&bytes, 0).unwrap(), bytes.len());
        file.truncate(0).unwrap();
        assert_eq!(file.write(&bytes).unwrap(), bytes.len());
    }
}

#[test]
fn a_range_is_allocated_after_a_removal() {
    let mounted = slow(64 * MIB);
    let most = mounted.task.posix().statfs(At::Cwd, "/").unwrap().blocks_available * 9 / 10 * 4096;
    for _ in 0..ROUNDS {
        let file = create(&mounted.task, "/f");
        file.fallocate(FallocateFlags::empty(), 0, most).unwrap();
        drop(file);
        mounted.unlink("/f", AtFlags::empty()).unwrap();
    }
    drop(mounted.again());
}

/// A request refused while space is being freed is retried, but not for ever.
#[test]
fn a_range_that_does_not_fit_is_refused() {
    let mounted = slow(64 * MIB);
    let file = create(&mounted.task, "/f");
    let error = file.fallocate(FallocateFlags::empty(), 0, 80 * MIB).unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC);
    assert_eq!(file.stat().unwrap().blocks, 0);
}

/// Removed data counts as free immediately, long before its space is available.
#[test]
fn statfs_counts_what_is_about_to_be_free() {
    // Blocks that a push under way may have reserved, of the 14,000 of a file.
    const RESERVED: u64 = 64;
    let mounted = slow(64 * MIB);
    let figures = || {
        let statfs = mounted.task.posix().statfs(At::Cwd, "/").unwrap();
        (statfs.blocks_free, statfs.blocks_available, statfs.files_free)
    };
    drop(create(&mounted.task, "/first"));
    mounted.fs.files.write_back_all().unwrap();
    mounted.fs.settle().unwrap();
    let before = figures();
    for _ in 0..ROUNDS {
        let file = create(&mounted.task, "/f");
        fill(&file);
        drop(file);
        assert_eq!(figures().1, 0);
        mounted.unlink("/f", AtFlags::empty()).unwrap();
        let after = figures();
        // A tree of extents is freed, too; no space may be lost or counted twice at the end.
        let is_free = |now: u64, then: u64| now + RESERVED >= then;
        assert!(
            is_free(after.0, before.0) && is_free(after.1, before.1),
            "{after:?} after {before:?}"
        );
        mounted.fs.inactivator.flush();
        let is_whole = || figures() == before;
        vfscale_harness::wait_until("as much space as before", is_whole);
    }
    mounted.fs.settle().unwrap();
    assert_eq!(figures(), before);
}

/// Small files wait for others that are freed with them, and their space counts as free meanwhile:
/// a full volume takes as much again at once.
///
/// Race: A call that lacks space against space that becomes free.
#[test]
fn the_space_of_a_few_small_files_is_there_at_once() {
    const FILES: usize = 20;
    let mounted = slow(64 * MIB);
    let bytes = vec![5; 4 * 4096];
    for round in 0..ROUNDS {
        (0..FILES).for_each(|n| mounted.write(&format!("/{n}"), &bytes));
        // With blocks, and with space that is only reserved for them.
        if round % 2 == 0 {
            mounted.fs.files.write_back_all().unwrap();
        }
        let file = create(&mounted.task, "/f");
        fill(&file);
        let available = || mounted.task.posix().statfs(At::Cwd, "/").unwrap().blocks_available;
        assert_eq!(available(), 0);
        (0..FILES).for_each(|n| mounted.unlink(&format!("/{n}"), AtFlags::empty()).unwrap());
        assert!(available() >= 4 * FILES as u64, "{} in round {round}", available());
        let again = vec![6; FILES * 4 * 4096];
        assert_eq!(file.write(&again).unwrap(), again.len(), "round {round}");
        drop(file);
        mounted.unlink("/f", AtFlags::empty()).unwrap();
    }
    drop(mounted.again());
}

/// A small file has a reserved block until write-back finds that it fits into its inode.
#[test]
fn small_files_give_back_reserved_blocks() {
    // There is enough memory, so nothing is written back for lack of it.
    let mounted = slow_with(16 * MIB, 1024 * MIB);
    let blocks = mounted.task.posix().statfs(At::Cwd, "/").unwrap().blocks_available;
    mounted.mkdir("/d");
    for n in 0..blocks + 100 {
        mounted.write(&format!("/d/{n}"), b"small");
    }
    drop(mounted.again());
}

/// Eight threads create and remove files, ranges, attributes, links and directories, each of them
/// slightly less than an eighth of the volume: the space that one thread lacks was just freed by
/// another.
///
/// Race: A call that lacks space against space that becomes free.
#[test]
fn eight_threads_get_what_they_remove() {
    const THREADS: u64 = 8;
    let mounted = slow(64 * MIB);
    let available = mounted.task.posix().statfs(At::Cwd, "/").unwrap().blocks_available;
    // The share is in blocks. Transactions reserve the maximum that they may need.
    let share = (available - THREADS * 200) / THREADS;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let task = mounted.vfs.task();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    take_and_give_back(&task, &format!("/{thread}.{round}"), share);
                }
            });
        }
    });
    drop(mounted.again());
}

/// Creates a directory with files that take `share` blocks, and removes it.
fn take_and_give_back(task: &Task, dir: &str, share: u64) {
    const SMALL: u64 = 16;
    let mode = Mode::from(0o755);
    let none = AtFlags::empty();
    let path = |name: &str, n: u64| format!("{dir}/{name}{n}");
    task.posix().mkdirat(At::Cwd, dir, mode).unwrap();
    // The rest of the share is for chunks of inodes, and two blocks for each target and for the
    // attributes of each directory.
    let half = (share - 8 * SMALL) / 2;
    let data = vec![9; (half * 4096) as usize];
    let file = create(task, &path("file", 0));
    assert_eq!(file.write(&data).unwrap(), data.len());
    let range = create(task, &path("file", 1));
    range.fallocate(FallocateFlags::empty(), 0, half * 4096).unwrap();
    for n in 0..SMALL {
        task.symlink("t".repeat(3000), path("link", n)).unwrap();
        task.posix().mkdirat(At::Cwd, path("dir", n), mode).unwrap();
        let value = [b'v'; 3000];
        task.posix()
            .setxattrat(At::Cwd, path("dir", n), "user.x", &value, XattrFlags::empty(), none)
            .unwrap();
    }
    for n in 0..SMALL {
        task.posix().unlinkat(At::Cwd, path("link", n), none).unwrap();
        task.remove_dir(path("dir", n)).unwrap();
    }
    for n in 0..2 {
        task.posix().unlinkat(At::Cwd, path("file", n), none).unwrap();
    }
    drop((file, range));
    task.remove_dir(dir).unwrap();
}
