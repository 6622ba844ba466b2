//! File locks through a mount: between processes, and between processes and the library.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{self, Kid, SHARED, TestMount};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use vfscale::Mode;
use vfscale::posix::{LockKind, LockRange, OFlags};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Calls `fcntl` with a lock of `kind` on `len` bytes from `start`; returns the lock as filled in.
fn fcntl(file: &File, call: i32, kind: i32, start: i64, len: i64) -> std::io::Result<libc::flock> {
    use std::os::fd::AsRawFd;
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_start = start;
    lock.l_len = len;
    // SAFETY: these calls read and fill in the structure.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), call, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn posix(file: &File, kind: i32, start: i64, len: i64) -> Result<(), Errno> {
    fcntl(file, libc::F_SETLK, kind, start, len)
        .map(drop)
        .map_err(|e| Errno::from_io_error(&e).unwrap())
}

fn ofd(file: &File, kind: i32, start: i64, len: i64) -> Result<(), Errno> {
    fcntl(file, libc::F_OFD_SETLK, kind, start, len)
        .map(drop)
        .map_err(|e| Errno::from_io_error(&e).unwrap())
}

/// Returns a command that runs this test binary as a helper of these tests.
fn kid(role: &str, path: impl AsRef<OsStr>) -> Command {
    common::helper("locks", role, path)
}

/// The part of the helper processes of these tests.
#[test]
fn helper() {
    let Some((role, path)) = common::role() else { return };
    let file = open(Path::new(&path));
    let done = format!("{path}.done.{}", std::process::id());
    match role.as_str() {
        // Holds a lock until killed.
        "hold" => posix(&file, libc::F_WRLCK, 0, 10).unwrap(),
        "hold-flock" => flock(&file, FlockOperation::LockExclusive).unwrap(),
        // Waits for a lock, creates a file while it holds the lock, and ends.
        "wait" => {
            fcntl(&file, libc::F_SETLKW, libc::F_WRLCK, 0, 10).unwrap();
            File::create(done).unwrap();
            return;
        }
        "wait-flock" => {
            flock(&file, FlockOperation::LockExclusive).unwrap();
            File::create(done).unwrap();
            return;
        }
        "inspect" => {
            let held = fcntl(&file, libc::F_GETLK, libc::F_RDLCK, 0, 0).unwrap();
            assert_eq!(i32::from(held.l_type), libc::F_WRLCK);
            assert_eq!((held.l_start, held.l_len), (5, 7));
            assert_eq!(held.l_pid as u32, std::os::unix::process::parent_id());
            assert_eq!(posix(&file, libc::F_RDLCK, 11, 1), Err(Errno::AGAIN));
            posix(&file, libc::F_WRLCK, 12, 1).unwrap();
            posix(&file, libc::F_WRLCK, 0, 5).unwrap();
            return;
        }
        "interrupted" => {
            interrupt_wait(&file);
            return;
        }
        other => panic!("{other}"),
    }
    File::create(done).unwrap();
    vfscale_harness::pause(Duration::from_secs(60));
}

/// Waits for a lock until a signal with a handler ends the wait with `EINTR`.
fn interrupt_wait(file: &File) {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: zeros are a valid value; the handler does nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: installs the handler, without SA_RESTART.
    unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    // SAFETY: returns a number.
    let waiter = unsafe { libc::pthread_self() };
    std::thread::spawn(move || {
        vfscale_harness::pause(Duration::from_millis(300));
        // SAFETY: the thread waits below until it gets the signal.
        unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
    });
    let interrupted = fcntl(file, libc::F_SETLKW, libc::F_WRLCK, 0, 10).unwrap_err();
    assert_eq!(interrupted.raw_os_error(), Some(libc::EINTR));
}

/// Returns whether a helper has finished its work.
fn done(m: &TestMount, kid: &Kid) -> bool {
    m.path(&format!("f.done.{}", kid.0.id())).exists()
}

#[test]
fn record_locks_are_seen_by_other_processes() {
    for m in TestMount::both() {
        let file = open(&m.path("f"));
        posix(&file, libc::F_WRLCK, 5, 7).unwrap();
        common::run(kid("inspect", m.path("f")));
        posix(&file, libc::F_UNLCK, 0, 0).unwrap();
    }
}

#[test]
fn waiting_ends_when_the_holder_dies() {
    for (hold, wait) in [("hold", "wait"), ("hold-flock", "wait-flock")] {
        for m in TestMount::both() {
            let holder = Kid::start(kid(hold, m.path("f")));
            vfscale_harness::wait_until("the lock", || done(&m, &holder));
            let mut waiter = Kid::start(kid(wait, m.path("f")));
            vfscale_harness::stays("the waiter waits", Duration::from_millis(200), || {
                waiter.is_running()
            });
            assert!(!done(&m, &waiter));
            drop(holder);
            vfscale_harness::wait_until("the lock after its holder", || done(&m, &waiter));
            waiter.finish();
            let file = open(&m.path("f"));
            posix(&file, libc::F_WRLCK, 0, 0).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
    }
}

#[test]
fn waiting_requests_occupy_no_worker() {
    let Some(m) = TestMount::new(SHARED) else { return };
    let file = open(&m.path("f"));
    posix(&file, libc::F_WRLCK, 0, 10).unwrap();
    let waiters: Vec<_> = (0..8).map(|_| Kid::start(kid("wait", m.path("f")))).collect();
    vfscale_harness::wait_until("eight waiting requests", || m.mounted().stats().waiting == 8);
    // There are two workers, fewer than waiting requests.
    std::fs::write(m.path("g"), "free").unwrap();
    assert_eq!(std::fs::read_to_string(m.path("g")).unwrap(), "free");
    posix(&file, libc::F_UNLCK, 0, 0).unwrap();
    waiters.into_iter().for_each(Kid::finish);
    assert_eq!(m.mounted().stats().waiting, 0);
}

#[test]
fn a_waiting_process_can_be_killed() {
    for wait in ["wait", "wait-flock"] {
        let Some(m) = TestMount::new(SHARED) else { return };
        let file = open(&m.path("f"));
        posix(&file, libc::F_WRLCK, 0, 0).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let waiter = Kid::start(kid(wait, m.path("f")));
        vfscale_harness::wait_until("one waiting request", || m.mounted().stats().waiting == 1);
        // Kills the waiter. Would hang here if the request could not be interrupted.
        drop(waiter);
        vfscale_harness::wait_until("no waiting request", || m.mounted().stats().waiting == 0);
        posix(&file, libc::F_UNLCK, 0, 0).unwrap();
        flock(&file, FlockOperation::Unlock).unwrap();
        let other = open(&m.path("f"));
        ofd(&other, libc::F_WRLCK, 0, 0).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}

#[test]
fn signals_interrupt_the_wait() {
    for m in TestMount::both() {
        let file = open(&m.path("f"));
        posix(&file, libc::F_WRLCK, 0, 0).unwrap();
        common::run(kid("interrupted", m.path("f")));
    }
}

#[test]
fn closing_any_descriptor_ends_record_locks() {
    for m in TestMount::both() {
        let (file, other) = (open(&m.path("f")), open(&m.path("f")));
        posix(&file, libc::F_WRLCK, 0, 0).unwrap();
        assert_eq!(ofd(&other, libc::F_WRLCK, 0, 0), Err(Errno::AGAIN));
        drop(open(&m.path("f")));
        ofd(&other, libc::F_WRLCK, 0, 0).unwrap();
    }
}

#[test]
fn locks_of_open_files_end_with_them() {
    for m in TestMount::both() {
        let (file, other) = (open(&m.path("f")), open(&m.path("f")));
        ofd(&file, libc::F_WRLCK, 0, 5).unwrap();
        assert_eq!(ofd(&other, libc::F_WRLCK, 4, 2), Err(Errno::AGAIN));
        ofd(&other, libc::F_WRLCK, 5, 2).unwrap();
        let duplicate = file.try_clone().unwrap();
        drop(file);
        assert_eq!(ofd(&other, libc::F_WRLCK, 4, 1), Err(Errno::AGAIN));
        drop(open(&m.path("f")));
        assert_eq!(ofd(&other, libc::F_WRLCK, 4, 1), Err(Errno::AGAIN));
        drop(duplicate);
        // The kernel does not wait for the release.
        vfscale_harness::wait_until("the released lock", || {
            ofd(&other, libc::F_WRLCK, 4, 1).is_ok()
        });
    }
}

#[test]
fn flock_is_of_the_open_file_and_another_world() {
    for m in TestMount::both() {
        let (file, other) = (open(&m.path("f")), open(&m.path("f")));
        flock(&file, FlockOperation::LockShared).unwrap();
        flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        assert_eq!(flock(&file, exclusive), Err(Errno::AGAIN));
        flock(&other, FlockOperation::Unlock).unwrap();
        flock(&file, exclusive).unwrap();
        posix(&other, libc::F_WRLCK, 0, 0).unwrap();
        let duplicate = file.try_clone().unwrap();
        drop(file);
        assert_eq!(flock(&other, exclusive), Err(Errno::AGAIN));
        drop(duplicate);
        vfscale_harness::wait_until("the released lock", || flock(&other, exclusive).is_ok());
    }
}

#[test]
fn the_library_and_the_mount_share_locks() {
    let Some(mut m) = TestMount::new(SHARED) else { return };
    let ours = open(&m.path("f"));
    let task = m.vfs.task();
    let theirs = task.posix().open("/f", OFlags::RDWR, Mode::empty()).unwrap();
    posix(&ours, libc::F_WRLCK, 0, 10).unwrap();
    let range = LockRange::new(9, 9).unwrap();
    let refused =
        task.posix().posix_lock(&theirs, Some(LockKind::Shared), range, None).unwrap_err();
    assert_eq!(refused.errno(), Errno::AGAIN);
    let held = task.posix().posix_lock_test(&theirs, LockKind::Shared, range).unwrap().unwrap();
    assert_eq!(held.pid as u32, std::process::id());
    task.posix()
        .posix_lock(&theirs, Some(LockKind::Exclusive), LockRange::new(10, 10).unwrap(), None)
        .unwrap();
    assert_eq!(posix(&ours, libc::F_RDLCK, 10, 1), Err(Errno::AGAIN));
    flock(&ours, FlockOperation::LockExclusive).unwrap();
    assert_eq!(theirs.flock(Some(LockKind::Shared), None).unwrap_err().errno(), Errno::AGAIN);
    // The unmount ends all locks of the mount.
    let mounted = m.take();
    if rustix::process::geteuid().is_root() {
        mounted.unmounter().force().unwrap();
        mounted.wait();
        task.posix()
            .posix_lock(&theirs, Some(LockKind::Exclusive), LockRange::WHOLE, None)
            .unwrap();
        theirs.flock(Some(LockKind::Exclusive), None).unwrap();
    }
}

#[test]
fn deadlocks_are_refused() {
    let Some(m) = TestMount::new(SHARED) else { return };
    // A process of the mount and a task of the library wait for each other.
    let task = std::sync::Arc::new(m.vfs.task());
    let theirs = task.posix().open("/f", OFlags::RDWR | OFlags::CREATE, Mode::from(0o600));
    let theirs = theirs.unwrap();
    let (uid, gid) = common::owner();
    task.chown("/f", Some(uid), Some(gid)).unwrap();
    let ours = open(&m.path("f"));
    posix(&ours, libc::F_WRLCK, 20, 1).unwrap();
    task.posix()
        .posix_lock(&theirs, Some(LockKind::Exclusive), LockRange::new(0, 9).unwrap(), None)
        .unwrap();
    let token = vfscale::posix::WaitToken::new();
    let waiting = std::thread::spawn({
        let (task, theirs, token) = (task.clone(), theirs.clone(), token.clone());
        let range = LockRange::new(20, 20).unwrap();
        move || task.posix().posix_lock(&theirs, Some(LockKind::Exclusive), range, Some(&token))
    });
    vfscale_harness::pause(Duration::from_millis(200));
    let refused = fcntl(&ours, libc::F_SETLKW, libc::F_WRLCK, 0, 1).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EDEADLK));
    posix(&ours, libc::F_UNLCK, 0, 0).unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn tools_that_lock_work() {
    if Command::new("flock").arg("--version").output().is_err() {
        common::skipped("there is no flock(1)");
        return;
    }
    for m in TestMount::both() {
        let mut holder = Command::new("flock");
        holder.arg(m.path("f")).args(["sleep", "30"]);
        let holder = Kid::start(holder);
        vfscale_harness::wait_until("the lock", || {
            let mut probe = Command::new("flock");
            let status = probe.arg("-n").arg(m.path("f")).arg("true").status().unwrap();
            !status.success()
        });
        drop(holder);
    }
}
