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
//! Some patches removed no lock, but a word that all CPUs wrote. Threads do not wait for it, so
//! other tests check whether there is one for all CPUs, or one for each: `mount-count`
//! (`mount_count_before_has_one_counter` in `crates/vfs/src/objects/vfsmount/tests.rs`),
//! `ino-alloc`, `lockref-spread` and `cil-context` (`scaling.rs`, `scaling_volumes.rs`),
//! `dentry-count` and `inode-count` (`counts_before_are_lines_that_two_creators_share` in
//! `lab/commute/src/predict/recorded/tests.rs`),
//! `active-trans`, `cil-counters` and `log-space` (`commits_of_different_inodes_share_no_line` in
//! `lab/commute/src/predict/recorded/tests.rs`), and `read-mostly`
//! (`read_mostly_fields_are_apart` in `crates/journal/src/journal/tests.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{alone, of_class};
use vfscale::block::MemoryDevice;
use vfscale::posix::{At, AtFlags, FileHandle, MountFlags, OFlags, Whence};
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

/// Checks that threads wait at locks of `class` before `patch` (one, or several with spaces between
/// them), and by default, after as many calls, wait neither there nor at locks of the class
/// `instead`.
fn waits<T: Sync>(
    patch: &str,
    class: &str,
    instead: &str,
    prepare: impl Fn(Scaling) -> T,
    call: impl Fn(&T, u32) + Sync,
) {
    let _alone = alone();
    let default = Scaling::with_slots(CPUS as usize);
    let mut without = patch.split_whitespace();
    let scaling = without.try_fold(default, |scaling, name| scaling.and_before(name));
    let made = prepare(scaling.unwrap());
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

/// Paths that are read without retries share the lock with each other, and wait for the move of a
/// directory elsewhere.
#[test]
fn path_retry_before_makes_paths_wait_for_moves_elsewhere() {
    let open = |scaling| -> (Task, Vec<File>) {
        let task = tree(scaling);
        task.create_dir("/0/a").unwrap();
        task.create_dir("/0/b").unwrap();
        task.create_dir("/0/a/moves").unwrap();
        let open = |cpu| task.posix().open(format!("/{cpu}/file"), OFlags::RDONLY, MODE).unwrap();
        let files = (0..CPUS).map(open).collect();
        (task, files)
    };
    let read = |(task, files): &(Task, Vec<File>), cpu: u32| {
        let path = task.posix().path_of(&files[cpu as usize]).unwrap();
        assert_eq!(path.to_str().unwrap(), format!("/{cpu}/file"));
    };
    waits("path-retry", "rename_lock", "s_vfs_rename_mutex", open, |made, cpu| {
        if cpu == 0 {
            made.0.rename("/0/a/moves", "/0/b/moves").unwrap();
            made.0.rename("/0/b/moves", "/0/a/moves").unwrap();
        } else {
            read(made, cpu);
        }
    });
    let _alone = alone();
    let made = open(Scaling::with_slots(CPUS as usize).and_before("path-retry").unwrap());
    let (rows, calls) = run(CALLS_MIN, None, |cpu| read(&made, cpu));
    let row = of_class(&rows, "rename_lock");
    assert_eq!((row.contentions, row.acquisitions), (0, u64::from(CPUS) * calls), "{row:?}");
}

/// Each thread moves a directory of its own between two parents.
#[test]
fn dir_moves_before_makes_moves_of_directories_wait() {
    let dirs = |scaling| {
        let task = tree(scaling);
        for cpu in 0..CPUS {
            for dir in ["a", "b", "a/moves"] {
                task.create_dir(format!("/{cpu}/{dir}")).unwrap();
            }
        }
        task
    };
    waits("dir-moves", "s_vfs_rename_mutex", "rename_lock", dirs, |task, cpu| {
        let [a, b] = ["a", "b"].map(|parent| format!("/{cpu}/{parent}/moves"));
        task.rename(&a, &b).unwrap();
        task.rename(&b, &a).unwrap();
    });
}

/// A walk across a mount takes the one lock shared with other walks, and waits for a thread that
/// mounts elsewhere.
#[test]
fn brlock_before_makes_walks_wait_for_mounts_elsewhere() {
    mounting("brlock");
}

/// With the lock as it was published, a walk takes its CPU's part, of which a thread that mounts
/// takes all.
#[test]
fn mount_rcu_before_makes_walks_wait_for_mounts_elsewhere() {
    mounting("mount-rcu");
}

fn mounting(patch: &str) {
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
    waits(patch, "vfsmount_lock", "mount_hash", mounted, |task, cpu| {
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

/// A volume that is written to only by calls, with a directory for each CPU and an open file in
/// each.
struct OnVolume {
    files: Vec<File>,
    task: Task,
    _volume: Volume,
}

fn on_volume(scaling: Scaling) -> OnVolume {
    let device = MemoryDevice::new(64 << 20).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    let volume = vfscale::volume_on(Arc::new(device)).scaling(scaling).sync_interval(None);
    let volume = volume.open().unwrap();
    let task = volume.task();
    let file = |cpu| {
        task.create_dir(format!("/{cpu}")).unwrap();
        let flags = OFlags::CREATE | OFlags::RDWR;
        let file = task.posix().open(format!("/{cpu}/file"), flags, MODE).unwrap();
        file.pwrite(&[1; 4096], 0).unwrap();
        file
    };
    let files = (0..CPUS).map(file).collect();
    volume.sync().unwrap();
    OnVolume { files, task, _volume: volume }
}

/// Changes the mode of a thread's file: a transaction, which logs the same item again.
fn change_mode(on: &OnVolume, cpu: u32) {
    for mode in [0o600_u32, 0o644] {
        on.task.set_permissions(format!("/{cpu}/file"), mode).unwrap();
    }
}

#[test]
fn cil_lists_before_makes_threads_wait_that_commit() {
    waits("cil-lists", "xc_cil", "xc_ctx_lock", on_volume, change_mode);
}

#[test]
fn busy_extents_before_makes_threads_wait_that_commit() {
    waits("busy-extents", "xc_cil_lock", "xc_cil", on_volume, change_mode);
}

/// A file that is cut by a byte is asked for among the orphans.
#[test]
fn orphan_before_makes_threads_wait_that_cut_files() {
    waits("orphan", "s_orphan_lock", "group_lock", on_volume, |on, cpu| {
        on.files[cpu as usize].truncate(4095).unwrap();
        on.files[cpu as usize].truncate(4096).unwrap();
    });
}

/// A new file becomes dirty once.
#[test]
fn dirty_list_before_makes_threads_wait_that_write_new_files() {
    waits("dirty-list", "b_dirty", "b_dirty", on_volume, |OnVolume { task, .. }, cpu| {
        let (new, flags) = (format!("/{cpu}/new"), OFlags::CREATE | OFlags::WRONLY);
        task.posix().open(&new, flags, MODE).unwrap().pwrite(&[2; 4096], 0).unwrap();
        task.remove_file(&new).unwrap();
    });
}

/// Names of a volume that are looked up, do not exist, and are dropped again: each was on a list.
/// They are too few to trigger a check of the cache's size.
#[test]
fn lru_before_makes_threads_wait_that_cache_and_drop_names() {
    waits("lru", "dcache_lru_lock", "dcache_lru_lock", on_volume, |OnVolume { task, .. }, cpu| {
        for name in 0..4 {
            let missing = task.metadata(format!("/{cpu}/{name}"));
            assert_eq!(missing.unwrap_err().errno(), Errno::NOENT);
        }
        assert!(task.posix().drop_cached(At::Cwd, format!("/{cpu}")).unwrap() >= 4);
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
fn inode_lock_before_makes_threads_wait_that_create_and_remove_files() {
    let all = "inode-hash inode-list ino-alloc";
    waits(all, "inode_lock", "inode_sb_list_lock", tree, make_and_remove);
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

/// Threads overwrite different pages of one file.
#[test]
fn file_lock_before_makes_threads_wait_that_overwrite_one_file() {
    let file = |scaling| {
        let task = tree(scaling);
        let file = task.posix().open("/0/file", OFlags::RDWR, MODE).unwrap();
        file.pwrite(&vec![1; 4096 * CPUS as usize], 0).unwrap();
        // By default this makes it a file that several CPUs use.
        for turn in 0..100 {
            let _there = cpu::pretend(turn % CPUS);
            file.seek(Whence::Hole(0)).unwrap();
        }
        file
    };
    waits("file-lock", "i_rwsem", "i_rwsem", file, |file, cpu| {
        file.pwrite(&[2; 4096], u64::from(cpu) * 4096).unwrap();
    });
}
