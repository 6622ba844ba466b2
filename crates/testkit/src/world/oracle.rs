//! The kernel's side: a tmpfs as the root of a mount namespace, and a thread for each task.
//!
//! The tasks can't reach any file outside, not even through `..` of a changed root: the namespace
//! contains the tmpfs and the mounts of a sequence on it, and nothing else. The kernel frees all of
//! it when the threads have ended.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::thread;

use crate::calls::Calls;
use crate::calls::op::CWD;
use crate::world::kernel::{KernelTask, PROC_FD, RESERVED_FD, TMPFS_OPTIONS};
use crate::world::sys;
use crate::world::{INSPECTOR, TASKS, World};

type Job = Box<dyn FnOnce(&mut KernelTask) + Send>;

/// A thread that acts as a task.
struct Worker {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
    tid: i32,
}

impl Worker {
    /// Starts a thread and waits until `setup` has run on it.
    fn start(
        setup: impl FnOnce() -> Result<KernelTask, String> + Send + 'static,
    ) -> Result<Worker, String> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("oracle".into())
            .spawn(move || {
                let mut task = match setup() {
                    Ok(task) => task,
                    Err(why) => {
                        let _ = ready.send(Err(why));
                        return;
                    }
                };
                let _ = ready.send(Ok(sys::gettid()));
                for job in queue {
                    job(&mut task);
                }
                // The descriptors are closed here, in this thread, so their locks are released too.
                let _ = sys::close_range(0, u32::MAX);
            })
            .map_err(|e| format!("no thread: {e}"))?;
        let tid = is_ready.recv().map_err(|_| "the oracle's thread died".to_owned())??;
        Ok(Worker { jobs: Some(jobs), thread: Some(thread), tid })
    }

    /// Returns a worker without a thread.
    fn none() -> Worker {
        Worker { jobs: None, thread: None, tid: 0 }
    }

    fn run<R: Send + 'static>(&self, f: impl FnOnce(&mut KernelTask) -> R + Send + 'static) -> R {
        let (reply, answer) = mpsc::channel();
        if let Some(jobs) = &self.jobs {
            let job: Job = Box::new(move |task| {
                let _ = reply.send(f(task));
            });
            let _ = jobs.send(job);
        }
        answer.recv().expect("a thread of the oracle died")
    }

    /// Starts a thread with copies of the state of `self`, as after `fork`.
    fn fork(&self) -> Result<Worker, String> {
        self.run(|task| {
            let task = task.clone();
            Worker::start(move || {
                sys::unshare(libc::CLONE_FS | libc::CLONE_FILES)
                    .map_err(|e| format!("unshare: errno {e}"))?;
                Ok(task)
            })
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // A joined thread still holds its directories for a moment, and a mount would be busy.
        while self.tid != 0 && sys::thread_exists(self.tid) {
            thread::yield_now();
        }
    }
}

/// The kernel as a [`World`].
pub struct Oracle {
    workers: Vec<Worker>,
}

impl Oracle {
    /// Creates a namespace with an empty tmpfs.
    ///
    /// # Errors
    /// Describes what this process may not do.
    pub fn new() -> Result<Oracle, String> {
        Oracle::in_namespace(|dir| {
            sys::mount(c"tmpfs", dir, Some(c"tmpfs"), 0, Some(TMPFS_OPTIONS))
                .map_err(|errno| ("mount tmpfs", errno))?;
            Ok(())
        })
    }

    /// Creates a namespace that consists of the mount at the directory for temporary files, as the
    /// calling thread sees it.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new).
    pub(crate) fn on_what_is_mounted() -> Result<Oracle, String> {
        Oracle::in_namespace(|_| Ok(()))
    }

    fn in_namespace(
        mount: impl FnOnce(&CStr) -> Result<(), (&'static str, i32)> + Send + 'static,
    ) -> Result<Oracle, String> {
        // Read while procfs is reachable.
        crate::world::sys::sysctl("protected_hardlinks");
        let inspector = Worker::start(|| {
            enter_namespace(mount).map_err(|(what, errno)| {
                format!("{what}: {}", crate::calls::outcome::errno_name(errno))
            })
        })?;
        let mut workers = Vec::new();
        for _ in 0..TASKS {
            workers.push(inspector.fork()?);
        }
        workers.push(inspector);
        Ok(Oracle { workers })
    }
}

/// Moves the calling thread to a new namespace that consists of what `mount` mounts at a directory,
/// or finds there.
fn enter_namespace(
    mount: impl FnOnce(&CStr) -> Result<(), (&'static str, i32)>,
) -> Result<KernelTask, (&'static str, i32)> {
    let on = |what| move |errno| (what, errno);
    let flags = libc::CLONE_NEWNS | libc::CLONE_FS | libc::CLONE_FILES;
    sys::unshare(flags).map_err(on("unshare (needs root)"))?;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    sys::mount(c"none", c"/", None, private, None).map_err(on("making mounts private"))?;
    // This descriptor of procfs stays usable after the root has changed.
    let proc = sys::openat(CWD, c"/proc", libc::O_PATH as u32, 0).map_err(on("open /proc"))?;
    sys::dup3(proc as i32, PROC_FD, 0).map_err(on("dup3"))?;
    sys::close_range(0, RESERVED_FD as u32 - 1).map_err(on("close_range"))?;
    let dir = CString::new(std::env::temp_dir().as_os_str().as_bytes()).unwrap_or_default();
    mount(&dir)?;
    sys::chdir(&dir).map_err(on("chdir"))?;
    sys::pivot_root(c".", c".").map_err(on("pivot_root"))?;
    sys::umount2(c".", libc::MNT_DETACH as u32).map_err(on("umount the old root"))?;
    sys::chdir(c"/").map_err(on("chdir /"))?;
    sys::umask(0).map_err(on("umask"))?;
    sys::setgroups(&[]).map_err(on("setgroups"))?;
    sys::setresgid(0, 0, 0).map_err(on("setresgid"))?;
    let mut task = KernelTask::new();
    task.root_mount = sys::statx(CWD, c"/", 0).map_err(on("statx"))?.stx_mnt_id;
    Ok(task)
}

impl World for Oracle {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        self.workers[task].run(move |task| f(task))
    }

    fn fork(&mut self, from: usize, into: usize) {
        let worker = self.workers[from].fork().expect("a thread could not take its copies");
        self.workers[into] = worker;
    }
}

const _: () = assert!(INSPECTOR == TASKS);

impl Oracle {
    /// Resets the oracle, unless that is impossible: removes tasks, mounts and files of the last
    /// sequence. The kernel takes longer to create and free a namespace than a sequence takes to
    /// play.
    fn recycle(mut self) -> Option<Oracle> {
        let inspector = self.workers.pop()?;
        self.workers.clear();
        let clean = inspector.run(|task| clean_namespace(task).is_ok());
        if !clean {
            return None;
        }
        for _ in 0..TASKS {
            self.workers.push(inspector.fork().ok()?);
        }
        self.workers.push(inspector);
        Some(self)
    }
}

impl Oracle {
    /// Ends all tasks but the inspector.
    pub(crate) fn end_tasks(&mut self) {
        self.workers.drain(..INSPECTOR);
        // The inspector retains its index.
        self.workers.splice(..0, (0..INSPECTOR).map(|_| Worker::none()));
    }

    /// Unmounts all but the root. Returns whether it succeeded.
    pub(crate) fn uncover(&mut self) -> bool {
        self.workers[INSPECTOR].run(|_| uncover().is_ok())
    }
}

/// Removes all mounts and files, and resets the attributes of the root.
fn clean_namespace(task: &mut KernelTask) -> sys::Result<()> {
    sys::close_range(0, RESERVED_FD as u32 - 1)?;
    uncover()?;
    clear_flags(CWD, c"/")?;
    remove_all(CWD, c".", 0)?;
    for name in sys::listxattrat(CWD, c"/", 0)?.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let name = CString::new(name).map_err(|_| libc::EINVAL)?;
        sys::removexattrat(CWD, c"/", &name, 0)?;
    }
    sys::fchownat(CWD, c"/", 0, 0, 0)?;
    sys::fchmodat2(CWD, c"/", 0o755, 0)?;
    let now = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    sys::utimensat(CWD, c"/", &[now, now], 0)?;
    task.forget_handles();
    Ok(())
}

/// Unmounts all but the root, which is writable then.
fn uncover() -> sys::Result<()> {
    sys::mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)?;
    let points = mount_points()?;
    // A mount on the root itself can't be named.
    if points.iter().filter(|point| point.as_slice() == b"/").count() != 1 {
        return Err(libc::EBUSY);
    }
    for point in points.iter().rev().filter(|point| point.as_slice() != b"/") {
        let point = CString::new(point.as_slice()).map_err(|_| libc::EINVAL)?;
        sys::umount2(&point, (libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) as u32)?;
    }
    if mount_points()?.len() != 1 {
        return Err(libc::EBUSY);
    }
    sys::mount(c"none", c"/", None, libc::MS_REMOUNT | libc::MS_RELATIME, None)?;
    Ok(())
}

/// Returns the mount points of the namespace in mount order, as far as the calling thread's root
/// shows them.
fn mount_points() -> sys::Result<Vec<Vec<u8>>> {
    let text = crate::world::kernel::mountinfo()?;
    let lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    // The fields are id, parent, device, root, mount point. No name in the pools needs an escape.
    let point = |line: &[u8]| line.split(|&b| b == b' ').nth(4).map(<[u8]>::to_vec);
    lines.map(|line| point(line).ok_or(libc::EINVAL)).collect()
}

/// Clears the flags of a file or directory if they forbid to remove it.
fn unguard(at: i32, name: &CStr) -> sys::Result<()> {
    let guards = (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64;
    let stat = sys::statx(at, name, libc::AT_SYMLINK_NOFOLLOW as u32)?;
    if stat.stx_attributes & guards == 0 { Ok(()) } else { clear_flags(at, name) }
}

/// Clears the flags of a file or directory.
fn clear_flags(at: i32, name: &CStr) -> sys::Result<()> {
    let flags = (libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW) as u32;
    let fd = sys::openat(at, name, flags, 0)? as i32;
    sys::setflags(fd, 0)?;
    sys::close(fd)?;
    Ok(())
}

/// Removes all files of a directory.
fn remove_all(at: i32, dir: &CStr, depth: usize) -> sys::Result<()> {
    if depth > 200 {
        return Err(libc::ELOOP);
    }
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW) as u32;
    let fd = sys::openat(at, dir, flags, 0)? as i32;
    for (name, kind) in crate::world::kernel::entries(fd)? {
        let name = CString::new(name.0).map_err(|_| libc::EINVAL)?;
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        if matches!(kind, libc::DT_DIR | libc::DT_REG) {
            unguard(fd, &name)?;
        }
        if kind == libc::DT_DIR {
            remove_all(fd, &name, depth + 1)?;
            sys::unlinkat(fd, &name, libc::AT_REMOVEDIR as u32)?;
        } else {
            sys::unlinkat(fd, &name, 0)?;
        }
    }
    sys::close(fd)?;
    Ok(())
}

/// Creates oracles ahead of their use, and resets them after it.
pub struct OraclePool {
    ready: mpsc::Receiver<Oracle>,
    done: mpsc::Sender<Oracle>,
}

impl OraclePool {
    /// Starts the thread, which ends when the pool and all its oracles are dropped. The oracles'
    /// threads and the calling thread stay on one CPU: the two sides alternate, and the switch is
    /// faster on one CPU than between two.
    pub fn new() -> OraclePool {
        let _ = sys::pin_to_this_cpu();
        let (again, ready) = mpsc::channel();
        let (done, used) = mpsc::channel::<Oracle>();
        thread::spawn(move || {
            for oracle in used {
                if let Some(oracle) = oracle.recycle()
                    && again.send(oracle).is_err()
                {
                    break;
                }
            }
        });
        OraclePool { ready, done }
    }

    /// Returns a fresh oracle.
    ///
    /// # Errors
    /// Returns the errors of [`Oracle::new`].
    pub fn get(&self) -> Result<PooledOracle, String> {
        let oracle = match self.ready.try_recv() {
            Ok(oracle) => oracle,
            Err(_) => Oracle::new()?,
        };
        Ok(PooledOracle { oracle: Some(oracle), done: self.done.clone() })
    }
}

impl Default for OraclePool {
    fn default() -> OraclePool {
        OraclePool::new()
    }
}

/// An oracle of a [`OraclePool`].
pub struct PooledOracle {
    oracle: Option<Oracle>,
    done: mpsc::Sender<Oracle>,
}

impl PooledOracle {
    fn oracle(&mut self) -> &mut Oracle {
        self.oracle.as_mut().expect("held until dropped")
    }
}

impl World for PooledOracle {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        self.oracle().run(task, f)
    }

    fn fork(&mut self, from: usize, into: usize) {
        self.oracle().fork(from, into);
    }
}

impl Drop for PooledOracle {
    fn drop(&mut self) {
        if let Some(oracle) = self.oracle.take() {
            // If that thread has ended, the oracle is dropped here.
            let _ = self.done.send(oracle);
        }
    }
}
