//! The requirements of the patches of Piggin (2009, 2010) and Long (2013), checked from outside:
//! many concurrent threads, and the rare call that the structure must handle correctly.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use vfscale::posix::{MountFlags, OFlags, UmountFlags};
use vfscale::{Errno, MemFs, Mode, Scaling, Task, Vfs};
use vfscale_sync::{cpu, reclaim};

const MODE: Mode = Mode::from_bits_retain(0o755);
/// Number of threads, each on a pretended CPU of its own.
const CROWD: u32 = 64;
/// Number of calls that a thread makes before it lets other threads run.
const BURST: u32 = 8;

fn memory() -> Vfs {
    memory_with(Scaling::with_slots(CROWD as usize))
}

fn memory_with(scaling: Scaling) -> Vfs {
    vfscale::memory().size(64 << 20).scaling(scaling).build().unwrap()
}

/// Runs `call` in many threads, each with a task, until `meantime` has ended; returns the result of
/// `meantime`.
fn crowd<T>(vfs: &Vfs, call: impl Fn(u32, &Task) + Sync, meantime: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // The threads are joined: at its end a thread hands over its deferred work, but the end of
        // the scope does not wait for that.
        let threads = Vec::from_iter((0..CROWD).map(|n| {
            let (call, stop) = (&call, &stop);
            scope.spawn(move || {
                let _there = cpu::pretend(n);
                let task = vfs.task();
                while !stop.load(Ordering::Relaxed) {
                    (0..BURST).for_each(|_| call(n, &task));
                    // A thread that is preempted in the middle of a call blocks all grace periods.
                    vfscale_harness::pause(Duration::from_millis(1));
                }
            })
        }));
        let done = meantime();
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        done
    })
}

/// Waits until a counter is `more` above its present value.
fn wait_for(counter: &AtomicU64, more: u64) {
    let goal = counter.load(Ordering::Relaxed) + more;
    vfscale_harness::wait_until("calls go on", || counter.load(Ordering::Relaxed) >= goal);
}

/// A mount is created and ended during thousands of lookups, some of which open the file they find.
/// They find the file in the mount or the one below it, and the mounted file system is freed when
/// no file in it is open.
fn umount_against_thousands(vfs: &Vfs, flags: UmountFlags) {
    const ROUNDS: u64 = 6;
    const LOOKUPS: u64 = 1000;
    let task = vfs.task();
    task.create_dir("/m").unwrap();
    task.create_dir("/aside").unwrap();
    task.write("/m/f", "below").unwrap();
    let looked = AtomicU64::new(0);
    let look = |n: u32, task: &Task| {
        let len = if n.is_multiple_of(16) {
            let file = task.posix().open("/m/f", OFlags::RDONLY, MODE).unwrap();
            let mut bytes = [0; 8];
            let len = file.pread(&mut bytes, 0).unwrap() as u64;
            assert_eq!(len, file.stat().unwrap().size, "a file of two file systems");
            len
        } else {
            task.metadata("/m/f").unwrap().size
        };
        assert!(len == 5 || len == 7, "{len}");
        looked.fetch_add(1, Ordering::Relaxed);
    };
    let ended: Vec<Arc<MemFs>> = crowd(vfs, look, || {
        let round = |_| {
            let fs = MemFs::builder().size(1 << 20).build();
            task.posix().mount(fs.clone(), "/aside", MountFlags::empty()).unwrap();
            task.write("/aside/f", "mounted").unwrap();
            task.posix().move_mount("/aside", "/m").unwrap();
            wait_for(&looked, LOOKUPS);
            while let Err(error) = task.posix().umount("/m", flags) {
                assert_eq!(error.errno(), Errno::BUSY, "{flags:?}");
            }
            assert_eq!(task.metadata("/m/f").unwrap().size, 5);
            fs
        };
        (0..ROUNDS).map(round).collect()
    });
    assert!(looked.load(Ordering::Relaxed) >= ROUNDS * LOOKUPS);
    for _ in 0..4 {
        reclaim::settle();
    }
    for fs in ended {
        assert_eq!(Arc::strong_count(&fs), 1, "{flags:?}: still in use");
    }
}

/// Crossing a mount takes no lock, or one of all CPUs, or that of the CPU.
///
/// Race: Unmounting against walks.
#[test]
fn plain_umount_against_thousands_of_lookups() {
    let published = Scaling::with_slots(3).with_vfsmount_lock(3);
    for scaling in [Scaling::with_slots(CROWD as usize), Scaling::kernel_2_6(), published] {
        umount_against_thousands(&memory_with(scaling), UmountFlags::empty());
    }
}

/// Race: A lazy unmount against an open.
#[test]
fn lazy_umount_against_thousands_of_lookups() {
    umount_against_thousands(&memory(), UmountFlags::DETACH);
}

/// There is no server to wait for, so a forced unmount equals a plain one, as with Linux's tmpfs:
/// open files hold the mount.
///
/// Race: A lazy unmount against an open.
#[test]
fn forced_umount_against_thousands_of_lookups() {
    umount_against_thousands(&memory(), UmountFlags::FORCE);
    let task = memory().task();
    task.create_dir("/m").unwrap();
    task.posix().mount(MemFs::builder().size(1 << 20).build(), "/m", MountFlags::empty()).unwrap();
    task.write("/m/f", "x").unwrap();
    let held = task.posix().open("/m/f", OFlags::RDONLY, MODE).unwrap();
    assert_eq!(task.posix().umount("/m", UmountFlags::FORCE).unwrap_err().errno(), Errno::BUSY);
    task.posix().umount("/m", UmountFlags::FORCE | UmountFlags::DETACH).unwrap();
    assert_eq!(held.stat().unwrap().size, 1);
}

/// Returns the positions of the two directories after `moves` moves.
fn place(moves: u64) -> (u64, u64) {
    (moves.div_ceil(2), moves / 2)
}

/// Thousands of paths are determined while directories above them are renamed. Each was valid at
/// some moment between the beginning and the end of the call.
///
/// Race: A path that is built while names on it change.
#[test]
fn thousands_of_paths_beside_renames_of_their_ancestors() {
    const PATHS: u64 = 10_000;
    let vfs = memory();
    let task = vfs.task();
    task.create_dir_all("/a0/b0").unwrap();
    task.write("/a0/b0/f", "x").unwrap();
    let file = task.posix().open("/a0/b0/f", OFlags::RDONLY, MODE).unwrap();
    let dir = task.posix().open("/a0/b0", OFlags::RDONLY, MODE).unwrap();
    let [begun, done, told] = [const { AtomicU64::new(0) }; 3];
    let tell = |n: u32, task: &Task| {
        let from = done.load(Ordering::SeqCst);
        let path = if n.is_multiple_of(2) {
            task.posix().path_of(&file).unwrap()
        } else {
            task.posix().fchdir(&dir).unwrap();
            task.posix().getcwd().unwrap().join("f")
        };
        let to = begun.load(Ordering::SeqCst);
        let expected = |moves| {
            let (a, b) = place(moves);
            format!("/a{a}/b{b}/f")
        };
        let is_true = (from..=to).any(|moves| path.to_str() == Some(&*expected(moves)));
        assert!(is_true, "{path:?} between {} and {}", expected(from), expected(to));
        told.fetch_add(1, Ordering::Relaxed);
    };
    let moves = crowd(&vfs, tell, || {
        let mut moves = 0;
        while told.load(Ordering::Relaxed) < PATHS || moves < 100 {
            let ((a, b), (to_a, to_b)) = (place(moves), place(moves + 1));
            begun.store(moves + 1, Ordering::SeqCst);
            let (old, new) = if a == to_a {
                (format!("/a{a}/b{b}"), format!("/a{a}/b{to_b}"))
            } else {
                (format!("/a{a}"), format!("/a{to_a}"))
            };
            task.rename(old, new).unwrap();
            moves += 1;
            done.store(moves, Ordering::SeqCst);
        }
        moves
    });
    assert!(moves >= 100);
}

/// The end of a whole tree: a tree of thousands of names that can't be reached any more ends when
/// its last user leaves, with walks in it until then. Everything is freed.
///
/// Race: The end of a tree against the last walk in it.
#[test]
fn genocide_of_a_subtree_beside_walks_in_it() {
    const DIRS: u32 = 64;
    const FILES: u32 = 50;
    let vfs = memory();
    let task = vfs.task();
    task.create_dir("/m").unwrap();
    let fs = MemFs::builder().size(32 << 20).build();
    task.posix().mount(fs.clone(), "/m", MountFlags::empty()).unwrap();
    for dir in 0..DIRS {
        task.create_dir_all(format!("/m/top/{dir}/sub")).unwrap();
        for file in 0..FILES {
            let path = format!("/m/top/{dir}/{file}");
            task.write(&path, "x").unwrap();
            let second = format!("/m/top/{dir}/sub/{file}");
            task.hard_link(&path, second).unwrap();
        }
    }
    let (inside, left) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let threads = Vec::from_iter((0..CROWD).map(|n| {
            let (vfs, inside, left) = (&vfs, &inside, &left);
            scope.spawn(move || {
                let _there = cpu::pretend(n);
                let task = vfs.task();
                task.posix().chdir("/m/top").unwrap();
                inside.fetch_add(1, Ordering::SeqCst);
                vfscale_harness::wait_until("the mount is left", || {
                    left.load(Ordering::SeqCst) > 0
                });
                // The mount has been detached from the tree, and all threads are still in it.
                for file in 0..FILES {
                    let path = format!("{}/sub/../sub/{file}", (n + file) % DIRS);
                    assert_eq!(task.metadata(path).unwrap().nlink, 2);
                }
                task.posix().chdir("/").unwrap();
                let error = task.metadata("/m/top").unwrap_err();
                assert_eq!(error.errno(), Errno::NOENT);
            })
        }));
        while inside.load(Ordering::SeqCst) < u64::from(CROWD) {
            thread::yield_now();
        }
        task.posix().umount("/m", UmountFlags::DETACH).unwrap();
        assert!(Arc::strong_count(&fs) > 1, "no thread is in it");
        left.store(1, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    // A superblock that ends with inodes left ends the process.
    for _ in 0..100 {
        reclaim::settle();
        if Arc::strong_count(&fs) == 1 {
            return;
        }
    }
    panic!("the tree has not been freed");
}

/// No inode number is used twice, whichever CPU allocates it, whether or not the file still exists.
#[test]
fn no_inode_number_is_used_twice_across_64_threads() {
    const FILES: u64 = 300;
    for scaling in [Scaling::with_slots(CROWD as usize), Scaling::before("ino-alloc").unwrap()] {
        let vfs = vfscale::memory().size(64 << 20).scaling(scaling).build().unwrap();
        let all = Mutex::new(HashSet::new());
        thread::scope(|scope| {
            for n in 0..CROWD {
                let (vfs, all) = (&vfs, &all);
                scope.spawn(move || {
                    // Several threads share each of some CPUs, and all change CPUs.
                    let task = vfs.task();
                    let mut own = Vec::new();
                    for file in 0..FILES {
                        let _there = cpu::pretend(n / 2 + (file / 100) as u32);
                        let path = format!("/{n}-{file}");
                        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                        let made = task.posix().open(&path, flags, MODE).unwrap();
                        own.push(made.stat().unwrap().ino);
                        if file % 3 > 0 {
                            task.remove_file(&path).unwrap();
                        }
                    }
                    all.lock().unwrap().extend(own);
                });
            }
        });
        assert_eq!(all.into_inner().unwrap().len() as u64, u64::from(CROWD) * FILES);
    }
}
