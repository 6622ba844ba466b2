//! Each setting of [`Scaling`] reverts its patch: the one lock or counter that the patch removed is
//! used again, and by default it is not. The calls alternate between two CPUs, so the counts are
//! exact.

use crate::common::{CALLS, all_recorded, in_turn, recorded};
use vfscale::posix::{At, AtFlags, MemfdFlags, OFlags, RenameFlags, SocketType, UmountFlags};
use vfscale::{Limits, Mode, PATCHES, Scaling, Task, Vfs};
use vfscale_harness::alone;
use vfscale_sync::lock::{LockStatRow, lockstat, lockstat_record, lockstat_reset};
use vfscale_sync::{cpu, reclaim};

const MODE: Mode = Mode::from_bits_retain(0o755);

fn memory(scaling: Scaling) -> Vfs {
    vfscale::memory().size(64 << 20).scaling(scaling).build().unwrap()
}

/// Returns a tree with a directory for each of two CPUs, and a file in each.
fn tree(scaling: Scaling) -> Task {
    let task = memory(scaling).task();
    for cpu in 0..2 {
        task.create_dir(format!("/{cpu}")).unwrap();
        task.write(format!("/{cpu}/file"), "x").unwrap();
    }
    task
}

#[test]
fn lockref_before_takes_d_lock_for_every_reference() {
    let _alone = alone();
    let taken = |scaling| {
        let task = tree(scaling);
        recorded("lockref", || {
            in_turn(|cpu| {
                drop(task.posix().open(format!("/{cpu}/file"), OFlags::RDONLY, MODE).unwrap())
            });
        })
    };
    assert_eq!(taken(Scaling::default()).acquisitions, 0);
    // One to open, one to close.
    assert!(taken(Scaling::before("lockref").unwrap()).acquisitions >= 2 * CALLS);
}

/// A file that all CPUs open: without the patch its lock moves between CPUs, and its count is never
/// sharded.
#[test]
fn lockref_before_bounces_for_a_file_that_everybody_opens() {
    let _alone = alone();
    let bounces = |scaling| {
        let task = tree(scaling);
        recorded("lockref", || {
            in_turn(|_| drop(task.posix().open("/0/file", OFlags::RDONLY, MODE).unwrap()));
        })
        .acq_bounces
    };
    let default = bounces(Scaling::with_slots(2));
    assert!(default <= 4, "{default} bounces, where promotion takes one lock");
    assert!(bounces(Scaling::with_slots(2).and_before("lockref").unwrap()) >= CALLS / 2);
}

/// Lockref as it was published: the count of a file that all CPUs open changes by cmpxchg, and
/// stays in its word. No call takes the lock, as sharding the count does.
#[test]
fn lockref_spread_before_keeps_the_count_in_its_word() {
    let _alone = alone();
    let taken = |scaling| {
        let task = tree(scaling);
        recorded("lockref", || {
            in_turn(|_| drop(task.posix().open("/0/file", OFlags::RDONLY, MODE).unwrap()));
        })
        .acquisitions
    };
    let default = Scaling::with_slots(2);
    assert!((1..=4).contains(&taken(default)));
    assert_eq!(taken(default.and_before("lockref-spread").unwrap()), 0);
}

/// By default no lock is taken; without retries its reader's side, before the seqrwlock the
/// writer's.
#[test]
fn seqrwlock_before_takes_the_writers_side_for_a_path() {
    let _alone = alone();
    let paths = |scaling| {
        let task = tree(scaling);
        task.posix().chdir("/0").unwrap();
        let file = task.posix().open("/1/file", OFlags::RDONLY, MODE).unwrap();
        recorded("rename_lock", || {
            in_turn(|_| {
                assert_eq!(task.posix().getcwd().unwrap().to_str(), Some("/0"));
                assert_eq!(task.posix().path_of(&file).unwrap().to_str(), Some("/1/file"));
            });
        })
    };
    assert_eq!(paths(Scaling::default()).acquisitions, 0);
    for patch in ["path-retry", "seqrwlock"] {
        let before = paths(Scaling::before(patch).unwrap());
        assert_eq!(before.acquisitions, 2 * CALLS);
        assert!(before.acq_bounces >= CALLS - 1, "{before:?}");
    }
}

#[test]
fn brlock_before_takes_one_lock_to_cross_a_mount() {
    let _alone = alone();
    let crossings = |scaling| {
        let task = tree(scaling);
        task.posix()
            .mount(
                vfscale::MemFs::builder().size(1 << 20).build(),
                "/0",
                vfscale::posix::MountFlags::empty(),
            )
            .unwrap();
        task.write("/0/below", "x").unwrap();
        let row = recorded("vfsmount_lock", || {
            in_turn(|_| assert_eq!(task.metadata("/0/below").unwrap().size, 1));
        });
        task.posix().umount("/0", UmountFlags::empty()).unwrap();
        assert!(task.metadata("/0/below").is_err());
        row
    };
    assert_eq!(crossings(Scaling::default()).acquisitions, 0);
    let brlock = crossings(Scaling::with_slots(2).and_before("mount-rcu").unwrap());
    assert_eq!(brlock.acq_bounces, 0, "each CPU has a lock of its own");
    assert!(brlock.acquisitions >= CALLS);
    let before = crossings(Scaling::before("brlock").unwrap());
    assert!(before.acquisitions >= CALLS && before.acq_bounces >= CALLS - 1, "{before:?}");
}

/// Files are opened and closed on one CPU: each CPU takes its own lock, or all take one.
#[test]
fn files_lock_before_takes_one_lock_to_open_and_close() {
    let _alone = alone();
    let opens = |scaling| {
        let task = tree(scaling);
        let open =
            |cpu| drop(task.posix().open(format!("/{cpu}/file"), OFlags::RDONLY, MODE).unwrap());
        // The first open on each CPU allocates memory, which takes the lock twice.
        in_turn(open);
        recorded("files_lock", || in_turn(open))
    };
    let default = opens(Scaling::with_slots(2));
    assert_eq!((default.acquisitions, default.acq_bounces), (2 * CALLS, 0));
    let before = opens(Scaling::with_slots(2).and_before("files-lock").unwrap());
    assert_eq!((before.acquisitions, before.acq_bounces), (2 * CALLS, CALLS - 1));
}

#[test]
fn dcache_hash_before_takes_one_lock_for_names_in_different_directories() {
    let _alone = alone();
    let changes = |scaling, class| {
        let task = tree(scaling);
        recorded(class, || {
            in_turn(|cpu| {
                let [new, moved] = ["new", "moved"].map(|name| format!("/{cpu}/{name}"));
                drop(task.posix().open(&new, OFlags::CREATE | OFlags::WRONLY, MODE).unwrap());
                task.rename(&new, &moved).unwrap();
                task.remove_file(&moved).unwrap();
            });
        })
    };
    assert_eq!(changes(Scaling::default(), "dcache_lock").acquisitions, 0);
    // A growing table may get memory that held a bucket of another CPU before.
    let after = changes(Scaling::default(), "d_children");
    assert!(after.acq_bounces < CALLS / 4, "{after:?}");
    let before = changes(Scaling::before("dcache-hash").unwrap(), "dcache_lock");
    assert!(before.acquisitions >= 3 * CALLS, "{before:?}");
    assert!(before.acq_bounces >= CALLS - 1, "{before:?}");
}

/// A rename takes only the locks of its two names' buckets, whatever else happens in the tree. A
/// move of a directory to another directory also takes the lock of such moves, on its own CPU.
/// Without `dir-moves`, as in the kernel, these take one lock, and every move of a directory
/// `rename_lock`.
#[test]
fn a_rename_takes_the_locks_of_its_names_only() {
    let _alone = alone();
    let taken = |scaling, what: &str, to: &str| -> Vec<(&'static str, u64, u64)> {
        let task = tree(scaling);
        for cpu in 0..2 {
            task.create_dir(format!("/{cpu}/dir")).unwrap();
            task.create_dir(format!("/{cpu}/to")).unwrap();
        }
        let rows = all_recorded(|| {
            in_turn(|cpu| {
                let [old, new] = [what, to].map(|name| format!("/{cpu}/{name}"));
                task.rename(&old, &new).unwrap();
                task.rename(&new, &old).unwrap();
            });
        });
        // The reclaim thread may still return the free memory of earlier tests.
        let taken = rows.into_iter().filter(|row| row.acquisitions > 0 && row.name != "shrinker");
        let row = |row: LockStatRow| (row.name, row.acquisitions / CALLS, row.acq_bounces);
        let mut taken: Vec<_> = taken.map(row).collect();
        taken.sort_unstable();
        let (class, buckets, _) = taken.remove(0);
        // Names of one directory may share a bucket.
        assert!(class == "d_children" && (2..=4).contains(&buckets), "{buckets} of {class}");
        taken
    };
    let default = Scaling::with_slots(2);
    assert_eq!(taken(default, "file", "to/file"), []);
    assert_eq!(taken(default, "dir", "new"), []);
    assert_eq!(taken(default, "dir", "to/dir"), [("s_vfs_rename_mutex", 2, 0)]);
    let before = default.and_before("dir-moves").unwrap();
    let all = CALLS - 1;
    assert_eq!(taken(before, "dir", "new"), [("rename_lock", 2, all)]);
    let both = [("rename_lock", 2, all), ("s_vfs_rename_mutex", 2, all)];
    assert_eq!(taken(before, "dir", "to/dir"), both);
}

#[test]
fn inode_hash_before_takes_one_lock_for_a_lookup() {
    let _alone = alone();
    let lookups = |scaling| {
        let task = tree(scaling);
        let mount = task.posix().open("/", OFlags::RDONLY, MODE).unwrap();
        let handles = [0, 1].map(|cpu| {
            task.posix()
                .name_to_handle_at(At::Cwd, format!("/{cpu}/file"), AtFlags::empty())
                .unwrap()
        });
        recorded("inode_lock", || {
            in_turn(|cpu| {
                let handle = &handles[cpu as usize];
                drop(task.posix().open_by_handle_at(&mount, handle, OFlags::RDONLY).unwrap());
            });
        })
    };
    assert_eq!(lookups(Scaling::default()).acquisitions, 0);
    let before = lookups(Scaling::before("inode-hash").unwrap());
    assert!(before.acquisitions >= CALLS && before.acq_bounces >= CALLS - 1, "{before:?}");
}

/// By default, files in memory are not on a list of inodes, since no code searches for them there.
#[test]
fn inode_list_before_takes_one_lock_to_create_and_unlink() {
    let _alone = alone();
    let creates = |scaling| {
        let task = tree(scaling);
        recorded("inode_sb_list_lock", || {
            in_turn(|cpu| {
                let new = format!("/{cpu}/new");
                drop(task.posix().open(&new, OFlags::CREATE | OFlags::WRONLY, MODE).unwrap());
                task.remove_file(&new).unwrap();
            });
        })
    };
    assert_eq!(creates(Scaling::default()).acquisitions, 0);
    let before = creates(Scaling::before("inode-list").unwrap());
    assert_eq!((before.acquisitions, before.acq_bounces), (2 * CALLS, CALLS - 1), "{before:?}");
}

/// In Linux 2.6 one lock held the inode hash, the lists of inodes and the counter of their numbers,
/// and so does `inode_lock` if the patches of all three are disabled.
#[test]
fn inode_lock_before_all_three_holds_hash_list_and_numbers() {
    let _alone = alone();
    let creates = |patches: &[&str]| {
        let default = Scaling::with_slots(2);
        let scaling = patches.iter().try_fold(default, |scaling, name| scaling.and_before(name));
        let task = tree(scaling.unwrap());
        recorded("inode_lock", || {
            in_turn(|cpu| {
                let new = format!("/{cpu}/new");
                drop(task.posix().open(&new, OFlags::CREATE | OFlags::WRONLY, MODE).unwrap());
                task.remove_file(&new).unwrap();
            });
        })
    };
    let all = ["inode-hash", "inode-list", "ino-alloc"];
    for left in 0..all.len() {
        let some: Vec<_> = all.into_iter().filter(|name| *name != all[left]).collect();
        assert_eq!(creates(&some).acquisitions, 0, "{some:?}");
    }
    let before = creates(&all);
    assert_eq!((before.acquisitions, before.acq_bounces), (2 * CALLS, CALLS - 1), "{before:?}");
}

/// This patch removed no lock, and threads do not wait for a counter. But the inode numbers of
/// files created alternately on two CPUs show whether the CPUs share a counter.
#[test]
fn ino_alloc_before_has_one_counter() {
    let _alone = alone();
    let numbers = |scaling| {
        let task = tree(scaling);
        let mut numbers = Vec::new();
        in_turn(|cpu| {
            let name = format!("/{cpu}/{}", numbers.len());
            let file = task.posix().open(name, OFlags::CREATE | OFlags::WRONLY, MODE).unwrap();
            numbers.push(file.stat().unwrap().ino);
        });
        numbers
    };
    let before = numbers(Scaling::with_slots(2).and_before("ino-alloc").unwrap());
    assert!(before.windows(2).all(|pair| pair[1] == pair[0] + 1), "{before:?}");
    let default = numbers(Scaling::with_slots(2));
    let far = |pair: &[u64]| pair[0].abs_diff(pair[1]) > CALLS;
    assert!(default.windows(2).all(far), "{default:?}");
    let unique: std::collections::BTreeSet<_> = default.iter().collect();
    assert_eq!(unique.len(), default.len());
}

/// The results do not depend on the setting: a mixture of calls produces the same tree.
#[test]
fn results_are_the_same_before_and_after() {
    let _alone = alone();
    let seen = |scaling: Scaling| {
        let task = tree(scaling);
        assert_eq!(*task_scaling(&task), scaling);
        task.hard_link("/0/file", "/1/link").unwrap();
        task.create_dir("/0/dir").unwrap();
        task.rename("/0/dir", "/1/dir").unwrap();
        task.posix()
            .renameat2(At::Cwd, "/1/link", At::Cwd, "/0/file", RenameFlags::EXCHANGE)
            .unwrap();
        task.remove_dir("/1/dir").unwrap();
        let stat = |path| {
            let stat = task.metadata(path).unwrap();
            (stat.nlink, stat.size, stat.mode)
        };
        ["/", "/0", "/1", "/0/file", "/1/link"].map(stat)
    };
    let default = seen(Scaling::default());
    for patch in PATCHES {
        assert_eq!(seen(Scaling::before(patch.name()).unwrap()), default, "{}", patch.name());
    }
    assert_eq!(seen(Scaling::kernel_2_6()), default);
}

fn task_scaling(task: &Task) -> &Scaling {
    task.vfs().scaling()
}

/// Pipes, sockets and memory files are created and closed on two CPUs: no lock and no counter moves
/// between them. Before the patch all of them are below one root.
#[test]
fn pseudo_before_hangs_every_pipe_below_one_root() {
    const FILES: usize = 64;
    let _alone = alone();
    let run = |scaling: Scaling| {
        // Far from the limit of pipes, near which the CPUs share the rest.
        let builder = vfscale::memory().size(64 << 20).scaling(scaling);
        let vfs = builder.limits(Limits::default()).build().unwrap();
        let tasks = [0, 1].map(|cpu| {
            let _there = cpu::pretend(cpu);
            vfs.task()
        });
        // Creates and closes the same number on each CPU, alternately; returns their inode numbers.
        let round = || {
            let mut numbers = [const { Vec::new() }; 2];
            let mut files = [const { Vec::new() }; 2];
            for n in 0..2 * FILES {
                let cpu = n % 2;
                let _there = cpu::pretend(cpu as u32);
                let (reader, writer) = tasks[cpu].posix().pipe2(OFlags::empty()).unwrap();
                let (socket, peer) =
                    tasks[cpu].posix().socketpair(SocketType::Stream, OFlags::empty()).unwrap();
                let memory = tasks[cpu].posix().memfd_create("m", MemfdFlags::empty()).unwrap();
                numbers[cpu].push(reader.stat().unwrap().ino);
                files[cpu].push([reader, writer, socket, peer, memory]);
            }
            while let [Some(first), Some(second)] = [files[0].pop(), files[1].pop()] {
                for (cpu, file) in [(0, first), (1, second)] {
                    let _there = cpu::pretend(cpu);
                    drop(file);
                }
            }
            numbers
        };
        // The first of each kind creates its file system, and each CPU allocates memory.
        round();
        reclaim::settle();
        lockstat_reset();
        lockstat_record(true);
        let numbers = round();
        lockstat_record(false);
        (lockstat(), numbers)
    };
    let (rows, numbers) = run(Scaling::with_slots(2));
    let shared: Vec<_> = rows.iter().filter(|row| row.acq_bounces > 0).collect();
    assert!(shared.is_empty(), "{shared:?}");
    let files = rows.iter().find(|row| row.name == "files_lock").unwrap();
    assert!(files.acquisitions >= (2 * 5 * 2 * FILES) as u64, "{files:?}");
    assert!(numbers[0].iter().all(|a| numbers[1].iter().all(|b| a.abs_diff(*b) >= FILES as u64)));
    let (rows, numbers) = run(Scaling::with_slots(2).and_before("pseudo").unwrap());
    let dcache = rows.iter().find(|row| row.name == "dcache_lock").unwrap();
    assert!(dcache.acquisitions >= (2 * 4 * 2 * FILES) as u64, "{dcache:?}");
    assert!(dcache.acq_bounces >= (2 * 2 * FILES - 2) as u64, "{dcache:?}");
    assert!(numbers[0].iter().zip(&numbers[1]).all(|(a, b)| a + 1 == *b), "{numbers:?}");
}
