//! Processes that fork without executing another program: calls in the child fail, and none hangs.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::thread;

use vfscale::posix::{
    At, AtFlags, LockKind, LockRange, MemfdFlags, MountFlags, OFlags, UmountFlags, Whence,
    XattrFlags,
};
use vfscale::{Errno, MemFs, Mode, Result, Task, Vfs, Volume, VolumeError};

const MODE: Mode = Mode::from_bits_retain(0o755);
/// Time limit of a child, in seconds; after it, the child is killed as hung.
const SECONDS_MAX: u32 = 20;
const FORKS: usize = 40;

/// Serialises tests: a fork copies the whole process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Forks and runs `call` in the child; returns whether it ended there without a panic, in time.
fn in_child(call: impl FnOnce()) -> bool {
    // SAFETY: the child runs `call`, which takes no lock that a thread of the parent may hold
    // except those under test, and then exits without returning into the test.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: the call accesses no memory.
        unsafe { libc::alarm(SECONDS_MAX) };
        let ended = catch_unwind(AssertUnwindSafe(call)).is_ok();
        // SAFETY: the call does not return, and does not touch the parent's output.
        unsafe { libc::_exit(i32::from(!ended)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid during the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Checks that a call in a child of this process failed with the right error.
fn fails<T>(name: &str, result: Result<T>) {
    match result {
        Err(error) => assert_eq!(error.errno(), Errno::NOTRECOVERABLE, "{name}"),
        Ok(_) => panic!("{name} works in a child"),
    }
}

/// Threads that make every kind of call on the tree until they are stopped.
struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Crowd {
    fn start(vfs: &Vfs) -> Crowd {
        let stop = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(Barrier::new(5));
        let threads = (0..4).map(|n| {
            let (task, stop, begun) = (vfs.task(), stop.clone(), begun.clone());
            thread::spawn(move || {
                begun.wait();
                while !stop.load(Ordering::Relaxed) {
                    busy(&task, n);
                }
            })
        });
        let threads = threads.collect();
        begun.wait();
        Crowd { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn busy(task: &Task, n: usize) {
    let (own, new) = (format!("/own{n}"), format!("/new{n}"));
    let file = task.posix().open(&own, OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    file.write(&[1; 8192]).unwrap();
    file.seek(Whence::Set(0)).unwrap();
    file.read(&mut [0; 100]).unwrap();
    task.rename(&own, &new).unwrap();
    task.create_dir(&own).unwrap();
    task.remove_dir(&own).unwrap();
    task.remove_file(&new).unwrap();
    let shared = task.posix().open("/shared", OFlags::RDWR, MODE).unwrap();
    shared.pwrite(b"all", 0).unwrap();
    let _ = shared.flock(Some(LockKind::Shared), None);
}

fn calls_by_path(task: &Task) {
    let none = AtFlags::empty();
    fails("stat", task.posix().fstatat(At::Cwd, "/shared", none));
    fails("open", task.posix().open("/shared", OFlags::RDONLY, MODE));
    fails("create", task.posix().open("/more", OFlags::CREATE | OFlags::RDWR, MODE));
    fails("mkdir", task.create_dir("/dir"));
    fails("unlink", task.posix().unlinkat(At::Cwd, "/shared", none));
    fails("rename", task.rename("/shared", "/x"));
    fails("link", task.posix().linkat(At::Cwd, "/shared", At::Cwd, "/x", none));
    fails("symlink", task.symlink("/shared", "/x"));
    fails("chmod", task.posix().fchmodat(At::Cwd, "/shared", MODE, none));
    fails("truncate", task.posix().truncate("/shared", 0));
    fails("chdir", task.posix().chdir("/"));
    fails("getcwd", task.posix().getcwd());
    fails("read_dir", task.read_dir("/"));
    fails(
        "setxattr",
        task.posix().setxattrat(At::Cwd, "/shared", "user.a", b"x", XattrFlags::empty(), none),
    );
    fails("getxattr", task.posix().getxattrat(At::Cwd, "/shared", "user.a", none));
    let fs = MemFs::builder().size(1 << 20).build();
    fails("mount", task.posix().mount(fs, "/", MountFlags::empty()));
    fails("umount", task.posix().umount("/", UmountFlags::empty()));
    fails("remount", task.posix().remount("/", MountFlags::RDONLY));
    fails("unshare_mounts", task.posix().unshare_mounts());
    fails("statfs", task.posix().statfs(At::Cwd, "/"));
    fails("write", task.write("/more", b"x"));
    fails("remove_dir_all", task.remove_dir_all("/more"));
    fails("name_to_handle", task.posix().name_to_handle_at(At::Cwd, "/shared", none));
    fails("pipe2", task.posix().pipe2(OFlags::empty()));
    fails("memfd_create", task.posix().memfd_create("name", MemfdFlags::empty()));
    fails("install", task.posix().dup(vfscale::posix::Fd(0)));
    assert!(task.posix().mounts().is_empty() && task.posix().descriptor_list().is_empty());
    task.posix().sync();
    task.posix().exec();
    task.posix().close_all();
}

fn calls_on_a_file(task: &Task, file: &vfscale::File) {
    fails("read", file.read(&mut [0; 10]));
    fails("pread", file.pread(&mut [0; 10], 0));
    fails("write", file.write(b"x"));
    fails("pwrite", file.pwrite(b"x", 0));
    fails("seek", file.seek(Whence::End(0)));
    fails("fstat", file.stat());
    fails("ftruncate", file.truncate(0));
    fails("fsync", file.sync_all());
    fails("syncfs", file.sync_fs());
    fails("flock", file.flock(Some(LockKind::Exclusive), None));
    let range = LockRange::new(0, 0).unwrap();
    fails("posix_lock", task.posix().posix_lock(file, Some(LockKind::Exclusive), range, None));
    fails("reopen", task.posix().reopen(file, OFlags::RDONLY));
    fails("path_of", task.posix().path_of(file));
    fails("copy_range", file.copy_range(None, file, Some(&mut 0), 1));
    fails("stat at", task.posix().fstatat(At::File(file), "", AtFlags::EMPTY_PATH));
}

/// Calls and drops fail or do nothing in a child, although other threads were using the tree at the
/// fork.
///
/// Race: A fork against everything.
///
/// A child of a fork has one thread, and the locks of all threads: locks that the others held stay
/// taken, a thread in an RCU section never leaves it, and no thread writes the log. A handler of
/// the C library marks the child before it continues (`crates/sync/src/fork.rs`). Each call of the
/// library checks the mark before it takes a lock, and fails. Dropped objects are leaked. Deferred
/// work does not run, so entering an RCU section takes no lock. A call that can't fail and would
/// wait panics. The mark is one word that is never written in the parent. The child of the test was
/// made beside threads that make every kind of call. Without the mark, children of both hung until
/// they were ended.
///
/// Seam: all calls / a fork; parties: the child, four threads that held locks, the threads of a
/// volume.
#[test]
fn calls_fail_in_a_child_and_nothing_hangs() {
    let _turn = turn();
    let vfs = vfscale::memory().size(64 << 20).build().unwrap();
    vfs.task().write("/shared", b"shared").unwrap();
    let crowd = Crowd::start(&vfs);
    let mut all = Some((vfs.clone(), vfs.task()));
    let (reader, _writer) = vfs.task().posix().pipe2(OFlags::empty()).unwrap();
    let mut files = Some((vfs.task().posix().open("/shared", OFlags::RDWR, MODE).unwrap(), reader));
    for _ in 0..FORKS {
        let ended = in_child(|| {
            let (vfs, task) = all.take().unwrap();
            let (file, reader) = files.take().unwrap();
            calls_by_path(&task);
            calls_on_a_file(&task, &file);
            fails("read of a pipe", reader.read(&mut [0; 10]));
            fails("another tree", vfscale::memory().build());
            let ending = vfs.clone();
            assert!(ending.end().is_err());
            drop((file, reader));
            drop(task);
            drop(vfs);
            // Another thread of the child fails, too.
            let other = thread::spawn(|| vfscale::memory().build().is_err());
            assert!(other.join().unwrap());
        });
        assert!(ended);
    }
    crowd.end();
    let (vfs, task) = all.unwrap();
    assert_eq!(task.read("/shared").unwrap()[..3], *b"all");
    drop((vfs, task));
}

fn open(path: &Path) -> std::result::Result<Volume, VolumeError> {
    vfscale::volume(path).create(64 << 20).sync_interval(None).open()
}

/// A volume belongs to the parent: the child neither closes, writes nor unlocks it.
///
/// Race: A fork against everything.
///
/// Seam: all calls / a fork; parties: the child, four threads that held locks, the threads of a
/// volume.
///
/// Children hang without the mark.
#[test]
fn a_child_leaves_the_volume_alone() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    let volume = open(&path).unwrap();
    volume.task().write("/shared", b"shared").unwrap();
    let crowd = Crowd::start(volume.vfs());
    let mut volume = Some(volume);
    let forked = |error: &VolumeError| matches!(error, VolumeError::Forked { .. });
    for _ in 0..FORKS / 4 {
        assert!(in_child(|| drop(volume.take())), "dropped");
        assert!(in_child(|| {
            let volume = volume.take().unwrap();
            assert!(forked(&volume.sync().unwrap_err()));
            let error = volume.close().unwrap_err();
            assert!(forked(error.error()));
            drop(error.into_volume());
            assert!(forked(&open(&path).unwrap_err()));
        }));
    }
    crowd.end();
    // Threads of the parent still free what the crowd has removed, so the image may change during
    // the first attempts. The unsynced data is new in each attempt: a child that wrote it would
    // change the image.
    let mut is_left_alone = |attempt: u8| {
        let task = volume.as_ref().unwrap().task();
        task.write("/unsynced", vec![attempt; 100_000]).unwrap();
        drop(task);
        let before = std::fs::read(&path).unwrap();
        assert!(in_child(|| drop(volume.take())));
        std::fs::read(&path).unwrap() == before
    };
    let last = (1..50).find(|attempt| is_left_alone(*attempt));
    let last = last.expect("each child has written the image");
    assert!(matches!(open(&path), Err(VolumeError::Device(_))), "still the parent's");
    volume.unwrap().close().unwrap();
    let volume = open(&path).unwrap();
    assert_eq!(volume.task().read("/unsynced").unwrap(), vec![last; 100_000]);
    volume.close().unwrap();
}
