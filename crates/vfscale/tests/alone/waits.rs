//! Threads wait for each other at the lock that a patch removed, as long as the patch is reverted.
//! By default they wait neither there nor at the locks that replace it.
//!
//! `scaling.rs` counts how often these locks are taken, which needs no concurrent threads. Here
//! threads run concurrently and call until lockstat has recorded a wait, however long that takes;
//! then they make as many calls with the default settings. This ends even if all threads share one
//! CPU, since some are preempted while they hold the lock. With the default settings no wait can
//! occur by chance: each thread is on a CPU of its own, pretended or real, and no two of them take
//! the same lock.
//!
//! Two patches removed no lock, but a counter that all CPUs wrote: `mount-count`
//! (`mount_count_before_has_one_counter` in `crates/vfs/src/objects/vfsmount/tests.rs`) and
//! `ino-alloc` (`ino_alloc_before_has_one_counter` in `scaling.rs`). Threads do not wait for a
//! counter, so these tests check whether there is one counter for all CPUs, or one for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{alone, of_class};
use vfscale::block::MemoryDevice;
use vfscale::posix::{At, AtFlags, FileHandle, MountFlags, OFlags};
use vfscale::{Errno, File, MemFs, Mode, Scaling, Task, Volume};
use vfscale_diskfs::{mkfs, mkfs::MkfsOptions};
use vfscale_sync::lock::{LockStatRow, lockstat, lockstat_record, lockstat_reset};
use vfscale_sync::{cpu, reclaim};

const MODE: Mode = Mode::from_bits_retain(0o755);
/// Number of threads, each on a pretended CPU of its own.
const CPUS: u32 = 4;
/// Number of calls of a thread between two reads of lockstat.
const BURST: u64 = 64;
/// Minimum number of calls of each thread that must not wait, even if a wait was recorded sooner
/// before the patch.
const CALLS_MIN: u64 = 20 * BURST;
/// Time limit for a wait to be recorded.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs `call` in a thread for each CPU, at least `calls` times, and if `class` is given, until a
/// thread has waited for a lock of the class. Returns the statistics of all locks, and the highest
/// number of calls of a thread.
fn run(calls: u64, class: Option<&str>, call: impl Fn(u32) + Sync) -> (Vec<LockStatRow>, u64) {
    // One-time allocations are made before: memory for each CPU, and sharded counts.
    for n in 0..BURST as u32 * CPUS {
        let _there = cpu::pretend(n % CPUS);
        call(n % CPUS);
    }
    reclaim::settle();
    lockstat_reset();
    lockstat_record(true);
    let waited = || class.is_none_or(|class| of_class(&lockstat(), class).contentions > 0);
    let (start, most) = (Instant::now(), AtomicU64::new(0));
    thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (call, waited, most) = (&call, &waited, &most);
            scope.spawn(move || {
                let _there = cpu::pretend(cpu);
                let mut made = 0;
                while made < calls || !waited() && start.elapsed() < PATIENCE {
                    (0..BURST).for_each(|_| call(cpu));
                    made += BURST;
                }
                most.fetch_max(made, Ordering::Relaxed);
            });
        }
    });
    lockstat_record(false);
    (lockstat(), most.into_inner())
}

/// Checks that threads wait at locks of `class` before `patch`, and by default, after as many
/// calls, wait neither there nor at locks of the class `instead`.
fn waits<T: Sync>(
    patch: &str,
    class: &str,
    instead: &str,
    prepare: impl Fn(Scaling) -> T,
    call: impl Fn(&T, u32) + Sync,
) {
    let _alone = alone();
    let default = Scaling::with_slots(CPUS as usize);
    let made = prepare(default.and_before(patch).unwrap());
    let (rows, calls) = run(0, Some(class), |cpu| call(&made, cpu));
    let before = of_class(&rows, class);
    assert!(before.contentions > 0, "{patch}: no thread waited in {calls} calls: {before:?}");
    let made = prepare(default);
    let (rows, _) = run(calls.max(CALLS_MIN), None, |cpu| call(&made, cpu));
    for class in [class, instead] {
        let after = of_class(&rows, class);
        assert_eq!(after.contentions, 0, "{class} without {patch} reverted: {after:?}");
    }
}

/// Returns a tree with a directory for each CPU, and a file in each.
fn tree(scaling: Scaling) -> Task {
    let task = vfscale::memory().size(64 << 20).scaling(scaling).build().unwrap().task();
    for cpu in 0..CPUS {
        task.create_dir(format!("/{cpu}")).unwrap();
        task.write(format!("/{cpu}/file"), "x").unwrap();
    }
    task
}

fn make_and_remove(task: &Task, cpu: u32) {
    let new = format!("/{cpu}/new");
    drop(task.posix().open(&new, OFlags::CREATE | OFlags::WRONLY, MODE).unwrap());
    task.remove_file(&new).unwrap();
}

/// By default the reference count of a file that all threads open is sharded over CPUs, and its
/// lock is not taken.
#[test]
fn lockref_before_makes_threads_wait_for_the_lock_of_a_file_that_all_open() {
    waits("lockref", "lockref", "lockref", tree, |task, _| {
        drop(task.posix().open("/0/file", OFlags::RDONLY, MODE).unwrap());
    });
}

#[test]
fn seqrwlock_before_makes_threads_wait_for_paths() {
    let open = |scaling| -> (Task, Vec<File>) {
        let task = tree(scaling);
        let open = |cpu| task.posix().open(format!("/{cpu}/file"), OFlags::RDONLY, MODE).unwrap();
        let files = (0..CPUS).map(open).collect();
        (task, files)
    };
    waits("seqrwlock", "rename_lock", "rename_lock", open, |(task, files), cpu| {
        let path = task.posix().path_of(&files[cpu as usize]).unwrap();
        assert_eq!(path.to_str().unwrap(), format!("/{cpu}/file"));
    });
}

/// A walk across a mount takes the one lock shared with other walks, and waits for a thread that
/// mounts elsewhere.
#[test]
fn brlock_before_makes_walks_wait_for_mounts_elsewhere() {
    let mounted = |scaling| {
        let task = tree(scaling);
        let mount = |at: &str| {
            let fs = MemFs::builder().size(1 << 20).build();
            task.posix().mount(fs, at, MountFlags::empty()).unwrap();
        };
        mount("/1");
        task.write("/1/below", "x").unwrap();
        mount("/0");
        task.create_dir("/0/a").unwrap();
        task.create_dir("/0/b").unwrap();
        mount("/0/a");
        task
    };
    waits("brlock", "vfsmount_lock", "mount_hash", mounted, |task, cpu| {
        if cpu == 0 {
            task.posix().move_mount("/0/a", "/0/b").unwrap();
            task.posix().move_mount("/0/b", "/0/a").unwrap();
        } else {
            assert_eq!(task.metadata("/1/below").unwrap().size, 1);
        }
    });
}

#[test]
fn files_lock_before_makes_threads_wait_that_open_and_close() {
    waits("files-lock", "files_lock", "files_lock", tree, |task, cpu| {
        drop(task.posix().open(format!("/{cpu}/file"), OFlags::RDONLY, MODE).unwrap());
    });
}

#[test]
fn dcache_hash_before_makes_threads_wait_that_change_different_directories() {
    waits("dcache-hash", "dcache_lock", "d_children", tree, make_and_remove);
}

/// Names of a volume that are looked up, do not exist, and are dropped again: each was on a list.
/// They are too few to trigger a check of the cache's size.
#[test]
fn lru_before_makes_threads_wait_that_cache_and_drop_names() {
    let volume = |scaling| -> (Task, Volume) {
        let device = MemoryDevice::new(64 << 20).unwrap();
        mkfs::format(&device, &MkfsOptions::default()).unwrap();
        let volume = vfscale::volume_on(Arc::new(device)).scaling(scaling).sync_interval(None);
        let volume = volume.open().unwrap();
        let task = volume.task();
        for cpu in 0..CPUS {
            task.create_dir(format!("/{cpu}")).unwrap();
        }
        (task, volume)
    };
    waits("lru", "dcache_lru_lock", "dcache_lru_lock", volume, |(task, _), cpu| {
        for name in 0..4 {
            let missing = task.metadata(format!("/{cpu}/{name}"));
            assert_eq!(missing.unwrap_err().errno(), Errno::NOENT);
        }
        assert_eq!(task.posix().drop_cached(At::Cwd, format!("/{cpu}")).unwrap(), 4);
    });
}

#[test]
fn inode_hash_before_makes_threads_wait_that_open_by_handle() {
    let handles = |scaling| -> (Task, File, Vec<FileHandle>) {
        let task = tree(scaling);
        let mount = task.posix().open("/", OFlags::RDONLY, MODE).unwrap();
        let handle = |cpu| {
            task.posix()
                .name_to_handle_at(At::Cwd, format!("/{cpu}/file"), AtFlags::empty())
                .unwrap()
        };
        let handles = (0..CPUS).map(handle).collect();
        (task, mount, handles)
    };
    waits("inode-hash", "inode_lock", "inode_hash", handles, |(task, mount, handles), cpu| {
        let handle = &handles[cpu as usize];
        drop(task.posix().open_by_handle_at(mount, handle, OFlags::RDONLY).unwrap());
    });
}

#[test]
fn inode_list_before_makes_threads_wait_that_create_and_remove_files() {
    waits("inode-list", "inode_sb_list_lock", "inode_sb_list_lock", tree, make_and_remove);
}

#[test]
fn pseudo_before_makes_threads_wait_that_create_and_close_pipes() {
    let tasks = |scaling| {
        let vfs = tree(scaling).vfs().clone();
        let task = |cpu| {
            let _there = cpu::pretend(cpu);
            vfs.task()
        };
        Vec::from_iter((0..CPUS).map(task))
    };
    waits("pseudo", "dcache_lock", "files_lock", tasks, |tasks, cpu| {
        drop(tasks[cpu as usize].posix().pipe2(OFlags::empty()).unwrap());
    });
}
