//! Threads that change one small tree at random, and the invariants that must hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use vfscale::posix::{At, OFlags, RenameFlags};
use vfscale::{Errno, Mode, Scaling, Task, Vfs};
use vfscale_sync::random::{Random, seed};

const MODE: Mode = Mode::from_bits_retain(0o755);

fn memory() -> Vfs {
    vfscale::memory().size(256 << 20).build().unwrap()
}

fn path(random: &mut Random) -> String {
    let depth = random.below(3) + 1;
    (0..depth).map(|_| format!("/{}", ["a", "b", "c", "d"][random.below(4) as usize])).collect()
}

fn step(task: &Task, random: &mut Random) -> Result<(), Errno> {
    let (a, b) = (path(random), path(random));
    let done = match random.below(12) {
        0 => task.create_dir(&a),
        1 => task.remove_dir(&a),
        2 | 3 => task.posix().open(&a, OFlags::CREATE | OFlags::RDWR, MODE).map(|file| {
            file.write_all(a.as_bytes()).unwrap();
            assert!(file.stat().unwrap().size >= a.len() as u64);
        }),
        4 => task.remove_file(&a),
        5 | 6 => task.rename(&a, &b),
        7 => task.posix().renameat2(At::Cwd, &a, At::Cwd, &b, RenameFlags::EXCHANGE),
        8 => task.hard_link(&a, &b),
        9 => task.metadata(&a).map(drop),
        10 => task.posix().open(&a, OFlags::RDONLY, MODE).map(|file| {
            let _ = task.posix().path_of(&file).unwrap();
            if file.stat().unwrap().is_dir() {
                let _ = file.read_dir().count();
            }
        }),
        _ => task.posix().chdir(&a).and_then(|()| task.posix().getcwd().map(drop)),
    };
    done.map_err(|error| error.errno())
}

/// Race: The last close against unlink.
#[test]
fn random_changes_leave_a_sound_tree() {
    random_changes(&memory(), 40_000);
}

/// The order of locks, which debug builds check, must hold also without the patches, and with a
/// slot for each of many CPUs.
#[test]
fn random_changes_leave_a_sound_tree_however_it_is_sharded() {
    let many = Scaling::with_slots(80).with_vfsmount_lock(80);
    for scaling in [Scaling::kernel_2_6(), many] {
        random_changes(
            &vfscale::memory().size(256 << 20).scaling(scaling).build().unwrap(),
            40_000,
        );
    }
}

/// Lets threads make `steps` random changes each; then checks the tree and removes it.
fn random_changes(vfs: &Vfs, steps: u64) {
    const THREADS: u64 = 6;
    let seed = seed();
    let task = vfs.task();
    let before = task.posix().statfs(At::Cwd, "/").unwrap();
    let known = [
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::NOTEMPTY,
        Errno::INVAL,
        Errno::PERM,
    ];
    thread::scope(|scope| {
        for n in 0..THREADS {
            let task = vfs.task();
            scope.spawn(move || {
                let _cpu = vfscale_sync::cpu::pretend(n as u32 * 13);
                let mut random = Random::new(seed ^ n << 32);
                for _ in 0..steps {
                    if let Err(errno) = step(&task, &mut random) {
                        assert!(known.contains(&errno), "unexpected {errno}");
                    }
                }
            });
        }
    });
    let mut links = std::collections::HashMap::new();
    for entry in task.walk_dir("/") {
        let entry = entry.unwrap();
        if entry.metadata.is_dir() {
            let dirs = task.read_dir(&entry.path).unwrap().map(Result::unwrap);
            let subdirs = dirs.filter(|e| e.file_type() == vfscale::FileType::Directory).count();
            assert_eq!(entry.metadata.nlink as usize, 2 + subdirs, "links of {:?}", entry.path);
        } else {
            let (seen, said) = links.entry(entry.metadata.ino).or_insert((0, entry.metadata.nlink));
            *seen += 1;
            assert_eq!(*said, entry.metadata.nlink);
        }
    }
    for (ino, (seen, said)) in links {
        assert_eq!(seen, said, "names of inode {ino}");
    }
    for entry in task.read_dir("/").unwrap().map(Result::unwrap) {
        task.remove_dir_all(entry.path()).unwrap();
    }
    vfscale_sync::rcu::synchronize();
    let after = task.posix().statfs(At::Cwd, "/").unwrap();
    assert_eq!(before.blocks_free, after.blocks_free, "something was not freed");
    assert_eq!(task.posix().open_files("/").unwrap(), [], "a file was left open");
}

/// Directories that are moved into each other at random remain one tree of all of them.
///
/// Race: Two directories that move into each other.
#[test]
fn directories_that_move_remain_a_tree() {
    const DIRS: u64 = 4;
    const THREADS: u64 = 6;
    const MOVES: u64 = 50_000;
    let seed = seed();
    let vfs = memory();
    let task = vfs.task();
    let open = |n| {
        task.create_dir(format!("/{n}")).unwrap();
        task.posix().open(format!("/{n}"), OFlags::RDONLY, MODE).unwrap()
    };
    let dirs = Vec::from_iter((0..DIRS).map(open));
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (task, dirs, made) = (vfs.task(), &dirs, &made);
            scope.spawn(move || {
                let _cpu = vfscale_sync::cpu::pretend(n as u32);
                let mut random = Random::new(seed ^ n << 32);
                let mut path = || task.posix().path_of(&dirs[random.below(DIRS) as usize]).unwrap();
                for call in 0..MOVES {
                    let (from, to) = (path(), path());
                    let renamed = if call % 4 == 0 {
                        task.posix().renameat2(At::Cwd, from, At::Cwd, to, RenameFlags::EXCHANGE)
                    } else {
                        let to = to.join(from.file_name().unwrap());
                        task.posix().renameat2(At::Cwd, from, At::Cwd, to, RenameFlags::NOREPLACE)
                    };
                    match renamed.map_err(|error| error.errno()) {
                        Ok(()) => drop(made.fetch_add(1, Ordering::Relaxed)),
                        Err(Errno::NOENT | Errno::INVAL | Errno::EXIST) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert!(made.load(Ordering::Relaxed) > MOVES, "{made:?} moves were made");
    assert_eq!(task.walk_dir("/").count() as u64, DIRS + 1, "with the root");
}

/// A file that many threads open gets a sharded reference count. Removing the name collapses it,
/// and the last handle frees the inode.
///
/// Race: A hot count against the removal of the name.
#[test]
fn a_hot_file_is_freed_in_the_end() {
    let vfs = memory();
    let task = vfs.task();
    let before = task.posix().statfs(At::Cwd, "/").unwrap();
    for _ in 0..20 {
        task.write("/hot", vec![1; 10_000]).unwrap();
        let held = task.posix().open("/hot", OFlags::RDONLY, MODE).unwrap();
        thread::scope(|scope| {
            for n in 0..4 {
                let vfs = &vfs;
                scope.spawn(move || {
                    let _cpu = vfscale_sync::cpu::pretend(n);
                    let task = vfs.task();
                    for _ in 0..2_000 {
                        task.posix().open("/hot", OFlags::RDONLY, MODE).unwrap();
                    }
                });
            }
        });
        task.remove_file("/hot").unwrap();
        let mut byte = [0];
        assert_eq!(held.pread(&mut byte, 9_999).unwrap(), 1);
        assert!(task.posix().path_of(&held).unwrap().ends_with("hot (deleted)"));
    }
    vfscale_sync::rcu::synchronize();
    vfscale_sync::rcu::synchronize();
    let after = task.posix().statfs(At::Cwd, "/").unwrap();
    assert_eq!(before.blocks_free, after.blocks_free, "something was not freed");
}
