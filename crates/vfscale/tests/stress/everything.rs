//! All kinds of calls concurrently: 64 threads that pretend to run on 80 CPUs, one small tree, and
//! the invariants of its final state.
//!
//! `VFSCALE_STRESS_SECONDS` sets the duration (10 by default), `VFSCALE_SEED` the seed of the
//! random calls.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use vfscale::posix::{
    At, AtFlags, FallocateFlags, Fd, FileHandle, FileList, LockKind, LockRange, MountFlags, OFlags,
    OpenHow, Propagation, RenameFlags, SetTime, UmountFlags, Whence, XattrFlags,
};
use vfscale::{Credentials, Errno, File, MemFs, Mode, Result, Scaling, Task, Timestamp, Vfs};
use vfscale_sync::random::{self, Random};
use vfscale_sync::{cpu, reclaim};

const THREADS: usize = 64;
const CPUS: u32 = 80;
const MODE: Mode = Mode::from_bits_retain(0o755);

/// Number of visible mounts from which on a task adds none: binds of binds would double them.
const MOUNTS_ENOUGH: usize = 24;

/// Time limit of a call, however busy the machine is.
const STUCK: Duration = Duration::from_secs(120);

/// Errors that calls may return while other threads change everything.
const EXPECTED: &[Errno] = &[
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTDIR,
    Errno::ISDIR,
    Errno::NOTEMPTY,
    Errno::INVAL,
    Errno::PERM,
    Errno::ACCESS,
    Errno::BUSY,
    Errno::XDEV,
    Errno::ROFS,
    Errno::LOOP,
    Errno::AGAIN,
    Errno::NODATA,
    Errno::STALE,
    Errno::NOSPC,
    Errno::MLINK,
    Errno::NAMETOOLONG,
    Errno::BADF,
    Errno::NXIO,
];

fn random_path(random: &mut Random) -> String {
    let depth = random.below(3) + 1;
    let start = random.one(&["/", "/", "/", ""]);
    let names: Vec<&str> = (0..depth).map(|_| random.one(&["a", "b", "c", "d"])).collect();
    format!("{start}{}", names.join("/"))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// State shared by the threads.
struct Shared {
    vfs: Vfs,
    stop: AtomicBool,
    /// Every file system that was mounted; in the end none may be left.
    mounted: Mutex<Vec<Weak<MemFs>>>,
    /// A private list of files, such as a terminal's.
    terminal: FileList,
    /// For each thread the start of its last call, in milliseconds, and the call's index.
    began: Vec<(AtomicU64, AtomicUsize)>,
    start: Instant,
    done: AtomicU64,
    succeeded: AtomicU64,
}

/// State of one thread.
struct Actor {
    shared: Arc<Shared>,
    task: Task,
    random: Random,
    fds: Vec<Fd>,
    handle: Option<(FileHandle, String)>,
}

type Call = fn(&mut Actor) -> Result<()>;

/// Every kind of call; those that create objects occur more often.
const CALLS: &[Call] = &[
    Actor::create,
    Actor::create,
    Actor::create,
    Actor::mkdir,
    Actor::mkdir,
    Actor::unlink,
    Actor::rmdir,
    Actor::rename,
    Actor::rename,
    Actor::exchange,
    Actor::link,
    Actor::symlink,
    Actor::read_write,
    Actor::read_write,
    Actor::size,
    Actor::stat,
    Actor::stat,
    Actor::attributes,
    Actor::chdir,
    Actor::getcwd,
    Actor::path_of,
    Actor::read_dir,
    Actor::xattrs,
    Actor::locks,
    Actor::descriptors,
    Actor::descriptors,
    Actor::handles,
    Actor::mount,
    Actor::bind,
    Actor::move_mount,
    Actor::umount,
    Actor::umount,
    Actor::remount,
    Actor::share,
    Actor::mounts,
    Actor::new_task,
    Actor::terminal,
    Actor::remove_tree,
    Actor::sync,
];

impl Actor {
    fn path(&mut self) -> String {
        random_path(&mut self.random)
    }

    fn create(&mut self) -> Result<()> {
        let path = self.path();
        let file = self.task.posix().open(&path, OFlags::CREATE | OFlags::RDWR, MODE)?;
        file.pwrite(path.as_bytes(), self.random.below(9000))?;
        let stat = file.stat()?;
        assert!(stat.size >= path.len() as u64 || stat.nlink == 0 || stat.size < 9000);
        Ok(())
    }

    fn mkdir(&mut self) -> Result<()> {
        let path = self.path();
        self.task.create_dir(path)
    }

    fn unlink(&mut self) -> Result<()> {
        let path = self.path();
        self.task.remove_file(path)
    }

    fn rmdir(&mut self) -> Result<()> {
        let path = self.path();
        self.task.remove_dir(path)
    }

    fn rename(&mut self) -> Result<()> {
        let (from, to) = (self.path(), self.path());
        let flags = self.random.one(&[RenameFlags::empty(), RenameFlags::NOREPLACE]);
        self.task.posix().renameat2(At::Cwd, from, At::Cwd, to, flags)
    }

    fn exchange(&mut self) -> Result<()> {
        let (from, to) = (self.path(), self.path());
        self.task.posix().renameat2(At::Cwd, from, At::Cwd, to, RenameFlags::EXCHANGE)
    }

    fn link(&mut self) -> Result<()> {
        let (from, to) = (self.path(), self.path());
        self.task.hard_link(from, to)
    }

    fn symlink(&mut self) -> Result<()> {
        let (target, path) = (self.path(), self.path());
        self.task.symlink(target, path)
    }

    fn read_write(&mut self) -> Result<()> {
        let path = self.path();
        let flags = self.random.one(&[OFlags::RDONLY, OFlags::RDWR, OFlags::RDWR | OFlags::APPEND]);
        let file = self.task.posix().open(path, flags, MODE)?;
        let mut buf = [0; 600];
        file.read(&mut buf)?;
        file.write(&buf[..self.random.below(600) as usize])?;
        Ok(())
    }

    fn size(&mut self) -> Result<()> {
        let path = self.path();
        self.task.posix().truncate(&path, self.random.below(20_000))?;
        let file = self.task.posix().open(path, OFlags::RDWR, MODE)?;
        let mode = self.random.one(&[
            FallocateFlags::empty(),
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        ]);
        file.fallocate(mode, self.random.below(9000), 5000)
    }

    fn stat(&mut self) -> Result<()> {
        let path = self.path();
        let flags = self.random.one(&[AtFlags::empty(), AtFlags::SYMLINK_NOFOLLOW]);
        let stat = self.task.posix().fstatat(At::Cwd, &path, flags)?;
        assert_ne!(stat.mnt_id, 0);
        self.task.posix().statfs(At::Cwd, path).map(drop)
    }

    fn attributes(&mut self) -> Result<()> {
        let path = self.path();
        let flags = AtFlags::empty();
        self.task.posix().fchmodat(At::Cwd, &path, MODE, flags)?;
        self.task.posix().fchownat(At::Cwd, &path, Some(0), None, flags)?;
        let now = SetTime::At(Timestamp::new(1, 2));
        self.task.posix().utimensat(At::Cwd, &path, [SetTime::Now, now], flags)
    }

    fn chdir(&mut self) -> Result<()> {
        let path = self.random.one(&["/", "/a", "/b/c", "..", "/d/a"]);
        self.task.posix().chdir(path)
    }

    fn getcwd(&mut self) -> Result<()> {
        let cwd = self.task.posix().getcwd()?;
        assert!(cwd.is_absolute() || cwd.starts_with("(unreachable)"), "{cwd:?}");
        Ok(())
    }

    fn path_of(&mut self) -> Result<()> {
        let path = self.path();
        let file = self.task.posix().open(path, OFlags::PATH, MODE)?;
        assert!(self.task.posix().path_of(&file)?.is_absolute());
        Ok(())
    }

    fn read_dir(&mut self) -> Result<()> {
        let path = self.path();
        let dir = self.task.posix().open(path, OFlags::RDONLY | OFlags::DIRECTORY, MODE)?;
        let names: Vec<_> =
            dir.read_dir().map(|entry| entry.map(|e| e.name)).collect::<Result<_>>()?;
        // Other names may be removed and created during the read, and so be seen twice.
        for dots in [".", ".."] {
            assert_eq!(names.iter().filter(|name| *name == dots).count(), 1, "{names:?}");
        }
        Ok(())
    }

    fn xattrs(&mut self) -> Result<()> {
        let path = self.path();
        let (none, name) = (AtFlags::empty(), self.random.one(&["user.x", "trusted.y"]));
        self.task.posix().setxattrat(
            At::Cwd,
            &path,
            name,
            path.as_bytes(),
            XattrFlags::empty(),
            none,
        )?;
        self.task.posix().listxattrat(At::Cwd, &path, none)?;
        self.task.posix().getxattrat(At::Cwd, &path, name, none)?;
        if self.random.below(2) == 0 {
            self.task.posix().removexattrat(At::Cwd, &path, name, none)?;
        }
        Ok(())
    }

    fn locks(&mut self) -> Result<()> {
        let path = self.path();
        let how = OpenHow::new(OFlags::RDWR);
        let fd = self.task.posix().open_fd(At::Cwd, path, &how)?;
        self.fds.push(fd);
        let file = self.task.posix().file(fd)?;
        let first = self.random.below(50);
        let range = LockRange::new(first, first + 9).unwrap();
        match self.random.below(3) {
            0 => file.flock(Some(LockKind::Shared), None)?,
            1 => file.ofd_lock(Some(LockKind::Exclusive), range, None)?,
            _ => self.task.posix().posix_lock(&file, Some(LockKind::Exclusive), range, None)?,
        }
        self.task.posix().posix_lock_test(&file, LockKind::Shared, range).map(drop)
    }

    fn descriptors(&mut self) -> Result<()> {
        while self.fds.len() > 6 {
            let fd = self.fds.swap_remove(self.random.below(6) as usize);
            self.task.posix().close(fd)?;
        }
        let path = self.path();
        let flags = self.random.one(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::PATH]);
        let fd = self.task.posix().open_fd(At::Cwd, path, &OpenHow::new(flags))?;
        self.fds.push(fd);
        let other = self.task.posix().dup(fd)?;
        self.task.posix().close(other)
    }

    fn handles(&mut self) -> Result<()> {
        if let Some((handle, path)) = self.handle.take() {
            let root = self.task.posix().open(&path, OFlags::RDONLY | OFlags::DIRECTORY, MODE)?;
            let file = self.task.posix().open_by_handle_at(&root, &handle, OFlags::PATH)?;
            self.task.posix().path_of(&file)?;
        }
        let path = self.path();
        let handle = self.task.posix().name_to_handle_at(At::Cwd, &path, AtFlags::empty())?;
        self.handle = Some((handle, "/".to_owned()));
        Ok(())
    }

    fn has_enough(&self) -> bool {
        self.task.posix().mounts().len() >= MOUNTS_ENOUGH
    }

    fn mount(&mut self) -> Result<()> {
        if self.has_enough() {
            return Ok(());
        }
        let fs = MemFs::builder().size(1 << 20).build();
        self.shared.mounted.lock().unwrap().push(Arc::downgrade(&fs));
        let path = self.path();
        self.task.posix().mount(fs, path, MountFlags::empty())
    }

    fn bind(&mut self) -> Result<()> {
        if self.has_enough() {
            return Ok(());
        }
        let (source, target) = (self.path(), self.path());
        let recursive = self.random.below(2) == 0;
        self.task.posix().bind(source, target, recursive)
    }

    fn move_mount(&mut self) -> Result<()> {
        let (source, target) = (self.path(), self.path());
        self.task.posix().move_mount(source, target)
    }

    fn umount(&mut self) -> Result<()> {
        let flags = self.random.one(&[
            UmountFlags::empty(),
            UmountFlags::DETACH,
            UmountFlags::DETACH,
            UmountFlags::FORCE,
            UmountFlags::EXPIRE,
        ]);
        let mounts = self.task.posix().mounts();
        let at = self.random.below(mounts.len() as u64 + 1) as usize;
        let Some(mount) = mounts.get(at) else { return Ok(()) };
        self.task.posix().umount(&mount.mount_point, flags)
    }

    fn remount(&mut self) -> Result<()> {
        let mounts = self.task.posix().mounts();
        let at = self.random.below(mounts.len() as u64 + 1) as usize;
        let Some(mount) = mounts.get(at) else { return Ok(()) };
        let path = &mount.mount_point;
        let flags = self.random.one(&[MountFlags::RDONLY, MountFlags::NOATIME]);
        if self.random.below(2) == 0 {
            self.task.posix().remount_bind(path, flags)?;
            return self.task.posix().remount_bind(path, MountFlags::empty());
        }
        let done = self.task.posix().remount(path, flags);
        self.task.posix().remount(path, MountFlags::empty())?;
        done
    }

    fn share(&mut self) -> Result<()> {
        let kind = self.random.one(&[
            Propagation::Shared,
            Propagation::Slave,
            Propagation::Private,
            Propagation::Unbindable,
        ]);
        let path = self.random.one(&["/", "/a", "/b", "/c", "/d", "/a/b"]);
        let recursive = self.random.below(2) == 0;
        self.task.posix().set_propagation(path, kind, recursive)
    }

    fn mounts(&mut self) -> Result<()> {
        for mount in self.task.posix().mounts() {
            let line = mount.mountinfo().to_string();
            assert!(line.split(' ').count() >= 10, "{line}");
        }
        Ok(())
    }

    /// Replaces the task by another: forked, in a tree of its own, or from the first tree.
    fn new_task(&mut self) -> Result<()> {
        self.fds.clear();
        self.task = match self.random.below(6) {
            0 => self.task.posix().unshare_mounts()?,
            1 => self.task.with_credentials(Credentials::root()),
            2 => {
                let forked = self.task.fork();
                forked.posix().close_all();
                forked
            }
            _ => self.shared.vfs.task(),
        };
        Ok(())
    }

    fn terminal(&mut self) -> Result<()> {
        let path = self.path();
        let file = self.task.posix().open(path, OFlags::WRONLY, MODE)?;
        self.shared.terminal.adopt(&file);
        thread::yield_now();
        drop(file);
        Ok(())
    }

    /// Directories move into each other, deeper and deeper; sometimes a whole tree is removed.
    fn remove_tree(&mut self) -> Result<()> {
        if self.random.below(8) != 0 {
            return Ok(());
        }
        let path = self.path();
        let top = open_dir(&self.task, At::Cwd, path)?;
        remove_below(&self.task, top, 500)
    }

    fn sync(&mut self) -> Result<()> {
        self.task.posix().sync();
        let path = self.path();
        self.task.posix().open_files(path).map(drop)
    }
}

/// Runs one thread: random calls, on a CPU that changes from time to time.
fn act(shared: &Arc<Shared>, number: usize, seed: u64) {
    let random = Random::new(seed ^ (number as u64) << 32);
    let mut actor = Actor {
        shared: shared.clone(),
        task: shared.vfs.task(),
        random,
        fds: Vec::new(),
        handle: None,
    };
    while !shared.stop.load(Ordering::Relaxed) {
        let _cpu = cpu::pretend(actor.random.below(u64::from(CPUS)) as u32);
        for _ in 0..50 {
            let call = actor.random.below(CALLS.len() as u64) as usize;
            let now = shared.start.elapsed().as_millis() as u64;
            shared.began[number].0.store(now, Ordering::Relaxed);
            shared.began[number].1.store(call, Ordering::Relaxed);
            match CALLS[call](&mut actor) {
                Ok(()) => drop(shared.succeeded.fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    assert!(EXPECTED.contains(&error.errno()), "call {call}: unexpected {error}");
                }
            }
            shared.done.fetch_add(1, Ordering::Relaxed);
        }
    }
    shared.began[number].0.store(u64::MAX, Ordering::Relaxed);
}

/// Ends the process if calls hang, and prints which.
fn watch(shared: &Shared, until: Instant) {
    loop {
        vfscale_harness::pause(Duration::from_millis(200));
        let now = shared.start.elapsed().as_millis() as u64;
        let (mut running, mut stuck) = (0, Vec::new());
        for (number, (began, call)) in shared.began.iter().enumerate() {
            let began = began.load(Ordering::Relaxed);
            running += usize::from(began != u64::MAX);
            if began != u64::MAX && now.saturating_sub(began) > STUCK.as_millis() as u64 {
                stuck.push((number, call.load(Ordering::Relaxed)));
            }
        }
        if !stuck.is_empty() {
            eprintln!("HANG: (thread, call) {stuck:?}");
            std::process::abort();
        }
        if Instant::now() >= until {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if running == 0 {
            return;
        }
    }
}

fn memory() -> Vfs {
    let scaling = Scaling::with_slots(CPUS as usize);
    vfscale::memory().size(256 << 20).scaling(scaling).build().unwrap()
}

/// Race: All calls together.
///
/// Sixty-four threads on eighty pretended CPUs make every kind of call on one small tree, changes
/// of the mount trees, remounts, handles, locks and descriptors among them. At the end nothing may
/// be open, mounted or charged, and link counts are the numbers of names. A call that does not
/// return ends the run. The run lasts `VFSCALE_STRESS_SECONDS`: a minute in `scripts/test`. Ten
/// minutes on 22 November 2026 made 23.9 million calls.
#[test]
fn everything_at_once() {
    let seconds = number("VFSCALE_STRESS_SECONDS").unwrap_or(10);
    let seed = random::seed();
    let vfs = memory();
    let free = |task: &Task| {
        let stat = task.posix().statfs(At::Cwd, "/").unwrap();
        (stat.blocks_free, stat.files_free)
    };
    let counted = |vfs: &Vfs| {
        let counts = vfs.counts();
        (counts.dentries, counts.inodes, counts.open_files)
    };
    let before = (free(&vfs.task()), counted(&vfs));
    let began = || (AtomicU64::new(0), AtomicUsize::new(0));
    let shared = Arc::new(Shared {
        vfs,
        stop: AtomicBool::new(false),
        mounted: Mutex::new(Vec::new()),
        terminal: FileList::new(),
        began: (0..THREADS).map(|_| began()).collect(),
        start: Instant::now(),
        done: AtomicU64::new(0),
        succeeded: AtomicU64::new(0),
    });
    thread::scope(|scope| {
        for number in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                // A thread that fails ends the others.
                let guard = StopOnPanic(shared, number);
                act(shared, number, seed);
                drop(guard);
            });
        }
        watch(&shared, shared.start + Duration::from_secs(seconds));
    });
    let shared = Arc::into_inner(shared).unwrap();
    let (done, succeeded) = (shared.done.into_inner(), shared.succeeded.into_inner());
    println!("{done} calls, {succeeded} succeeded");
    assert!(succeeded * 6 > done, "most calls fail: they show little");
    let task = shared.vfs.task();
    end_all_mounts(&task);
    assert_eq!(shared.terminal.files().len(), 0, "a file was left on a private list");
    assert_eq!(task.posix().open_files("/").unwrap(), [], "a file was left open");
    check_links(&task);
    remove_below(&task, open_dir(&task, At::Cwd, "/").unwrap(), usize::MAX).unwrap();
    let mounted = shared.mounted.into_inner().unwrap();
    let left = || mounted.iter().filter(|fs| fs.strong_count() > 0).count();
    // Freeing completes a few grace periods after the last use.
    for _ in 0..50 {
        reclaim::settle();
        if left() == 0 && (free(&task), counted(&shared.vfs)) == before {
            break;
        }
    }
    assert_eq!(left(), 0, "of {} file systems some are still mounted somewhere", mounted.len());
    let after = (free(&task), counted(&shared.vfs));
    assert_eq!(after, before, "something was not freed: space, dentries, inodes, files");
}

struct StopOnPanic<'a>(&'a Shared, usize);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
            self.0.began[self.1].0.store(u64::MAX, Ordering::Relaxed);
        }
    }
}

/// Ends all mounts of the first tree; the others have ended with their tasks.
fn end_all_mounts(task: &Task) {
    task.posix().set_propagation("/", Propagation::Private, true).unwrap();
    loop {
        let mounts = task.posix().mounts();
        if mounts.len() == 1 {
            break;
        }
        // Some are covered by others, and become visible when those have ended.
        let flags = UmountFlags::DETACH | UmountFlags::NOFOLLOW;
        let ended =
            mounts[1..].iter().filter(|m| task.posix().umount(&m.mount_point, flags).is_ok());
        assert_ne!(ended.count(), 0, "can't reach {mounts:?}");
    }
    task.posix().remount("/", MountFlags::empty()).unwrap();
}

/// Opens a directory by its name in another, since its path may be too long.
fn open_dir(task: &Task, at: At<'_>, name: impl AsRef<Path>) -> Result<File> {
    task.posix().openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, MODE)
}

fn names(dir: &File) -> Result<Vec<OsString>> {
    dir.seek(Whence::Set(0))?;
    let names = dir.read_dir().map(|entry| entry.map(|entry| entry.name));
    let names: Vec<OsString> = names.collect::<Result<_>>()?;
    Ok(names.into_iter().filter(|name| name != "." && name != "..").collect())
}

/// Checks that link counts equal the numbers of names.
fn check_links(task: &Task) {
    let mut links = HashMap::new();
    let mut dirs = vec![open_dir(task, At::Cwd, "/").unwrap()];
    while let Some(dir) = dirs.pop() {
        for name in names(&dir).unwrap() {
            let at = At::File(&dir);
            let stat = task.posix().fstatat(at, &name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            if stat.is_dir() {
                dirs.push(open_dir(task, at, &name).unwrap());
            } else {
                let (seen, said) = links.entry(stat.ino).or_insert((0, stat.nlink));
                *seen += 1;
                assert_eq!(*said, stat.nlink);
            }
        }
    }
    for (ino, (seen, said)) in links {
        assert_eq!(seen, said, "names of inode {ino}");
    }
}

/// Removes everything in a directory, in at most `steps_max` steps.
fn remove_below(task: &Task, top: File, steps_max: usize) -> Result<()> {
    let mut inside = vec![top];
    for _ in 0..steps_max {
        let Some(dir) = inside.last() else { break };
        let mut deeper = None;
        for name in names(dir)? {
            match task.posix().unlinkat(At::File(dir), &name, AtFlags::empty()) {
                Err(error) if error.errno() == Errno::ISDIR => {}
                other => {
                    other?;
                    continue;
                }
            }
            match task.posix().unlinkat(At::File(dir), &name, AtFlags::REMOVEDIR) {
                Err(error) if error.errno() == Errno::NOTEMPTY => {
                    deeper = Some(open_dir(task, At::File(dir), &name)?);
                    break;
                }
                other => other?,
            }
        }
        match deeper {
            Some(dir) => inside.push(dir),
            None => drop(inside.pop()),
        }
    }
    Ok(())
}
