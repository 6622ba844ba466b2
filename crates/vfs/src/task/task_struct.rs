//! Tasks: the counterpart of `struct task_struct`, as far as it concerns files. A task is a
//! process, in the terms of POSIX.
//!
//! A task has a root and a working directory, a umask, credentials and descriptors. Any number of
//! threads may use one task. Path walks read root, working directory and credentials; a
//! change replaces each of them as a whole under RCU, so walks share them without a write.
//!
//! A call with an absolute path does not touch the cache line of the working directory. A call that
//! needs both paths reads the root before and after, so both were valid at one moment.

use std::fmt;
use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vfscale_sync::fork::{self, Owned};
use vfscale_sync::lock::Mutex;
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::rcu::{self, Guard, Rcu};

use crate::base::error::{IN_CHILD, Outcome};
use crate::base::lock_classes::TaskLocks;
use crate::base::types::{AtFlags, Capabilities, Mode};
use crate::file::fd_table::{Descriptors, Fd};
use crate::file::open_file::File;
use crate::mount::fs_struct::{FsRef, FsStruct};
use crate::mount::namespace::Vfs;
use crate::mount::vfs_shared::VfsShared;
use crate::namei::lookup::{WalkStop, run_lookups};
use crate::namei::walk::{self, Fail, Lookup, Start, Walk};
use crate::objects::inode::Inode;
use crate::objects::vfsmount::{Path, PathRef, RcuPath};
use crate::security::cred::Credentials;

/// The directory that a relative path starts from.
///
/// ```
/// # use vfscale_vfs::At;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let dir = task.open("/srv")?;
/// task.posix().mkdirat(At::File(&dir), "www", 0o755)?;
/// task.posix().mkdirat(At::Cwd, "relative", 0o755)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// The working directory (`AT_FDCWD`).
    Cwd,
    /// A descriptor of the task.
    Fd(Fd),
    /// An open file or directory.
    File(&'a File),
}

impl From<Fd> for At<'_> {
    fn from(fd: Fd) -> Self {
        At::Fd(fd)
    }
}

impl<'a> From<&'a File> for At<'a> {
    fn from(file: &'a File) -> Self {
        At::File(file)
    }
}

/// A task: root and working directory, credentials, descriptors. `Send` and `Sync`.
///
/// Its own methods have the names of `std::fs`; [`posix`](Task::posix) has Linux's calls.
///
/// ```
/// # mod vfscale { pub use vfscale_vfs::*; pub mod posix { pub use vfscale_vfs::*; } }
/// use vfscale::{FileType, Result, Vfs, posix::At};
/// fn configure(vfs: &Vfs) -> Result<()> {
///     let task = vfs.task();
///     task.create_dir_all("/etc/init.d")?;
///     task.write("/etc/hostname", "vfscale\n")?;
///     task.posix().mknodat(At::Cwd, "/etc/queue", FileType::Fifo, 0o600, 0)
/// }
/// ```
pub struct Task {
    root: Owned<RcuPath>,
    cred: Owned<Rcu<Credentials>>,
    umask: AtomicU32,
    /// Whether the root is, or was, another directory than that of the tree.
    is_rooted: AtomicBool,
    id: u64,
    descriptors: Owned<Descriptors>,
    /// Paths of files on which the task may hold record locks.
    locked: Owned<Mutex<Vec<Path>, TaskLocks>>,
    /// The working directory, on a cache line that a call with an absolute path does not touch.
    cwd: Owned<CachePadded<RcuPath>>,
    /// Dropped last, because it owns the objects that the fields above refer to.
    vfs: Vfs,
}

impl Task {
    pub(crate) fn new(vfs: Vfs, credentials: Credentials) -> Task {
        let root = vfs.tree().root_path();
        let max = vfs.ns().quotas().limits().descriptors_max();
        Task::make(vfs, FsStruct { cwd: root.clone(), root }, credentials, (0o022, max, false))
    }

    /// Makes a task with a umask, a limit of descriptors, and whether it has a root of its own.
    fn make(
        vfs: Vfs,
        fs: FsStruct,
        credentials: Credentials,
        (umask, descriptors_max, is_rooted): (u32, usize, bool),
    ) -> Task {
        Task {
            root: Owned::new(RcuPath::new(fs.root)),
            cred: Owned::new(Rcu::new(credentials)),
            umask: AtomicU32::new(umask),
            is_rooted: AtomicBool::new(is_rooted),
            id: vfs.ns().next_task(),
            descriptors: Owned::new(Descriptors::new(descriptors_max)),
            locked: Owned::new(Mutex::new(Vec::new())),
            cwd: Owned::new(CachePadded::new(RcuPath::new(fs.cwd))),
            vfs,
        }
    }

    /// Makes a task with the same root, working directory, umask and credentials, the same open
    /// files under the same descriptors, as `fork(2)`. It does not inherit record locks.
    pub fn fork(&self) -> Task {
        self.with_files(self.with_credentials(self.credentials()))
    }

    /// Copies open files to a new child.
    fn with_files(&self, child: Task) -> Task {
        child.descriptors.copy_from(&self.descriptors);
        child
    }

    /// Makes a task with the same root, working directory, umask and limit of descriptors, other
    /// credentials, and no descriptors.
    pub fn with_credentials(&self, credentials: Credentials) -> Task {
        Task::make(self.vfs.clone(), self.fs_struct(), credentials, self.inherited())
    }

    /// Forks, as [`fork`](Self::fork), into a copy of the mount tree.
    pub(crate) fn fork_unshared(&self) -> Task {
        let (vfs, fs) = self.vfs.tree().copy(&self.fs_struct());
        self.with_files(Task::make(vfs, fs, self.credentials(), self.inherited()))
    }

    /// Returns the umask, the limit of descriptors, and whether the root is an own one, which a
    /// child inherits.
    fn inherited(&self) -> (u32, usize, bool) {
        (self.mask(), self.descriptors.max(), self.is_rooted())
    }

    /// Returns whether the root is, or was, another directory than that of the tree.
    #[inline]
    pub(crate) fn is_rooted(&self) -> bool {
        self.is_rooted.load(Ordering::Relaxed)
    }

    /// Returns the number that identifies the task as the owner of record locks.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the process id that `F_GETLK` reports for a record lock of this task.
    pub(crate) fn pid(&self) -> i32 {
        (self.id & 0x7fff_ffff) as i32
    }

    /// Notes that the task may hold record locks on a file.
    pub(crate) fn note_locked(&self, file: &File) {
        let path = file.path().clone();
        let mut locked = self.locked.lock();
        if !locked.iter().any(|path| std::ptr::eq(path.dentry().inode(), file.inode())) {
            locked.push(path);
        }
    }

    /// Drops the note, and with it the reference to file and mount, if the task no longer holds a
    /// record lock on the file.
    pub(crate) fn note_unlocked(&self, inode: &Inode) {
        let guard = rcu::pin();
        let path = {
            let mut locked = self.locked.lock();
            let is_it = |path: &Path| std::ptr::eq(path.dentry().inode(), inode);
            let at = locked.iter().position(is_it);
            // Checked under the lock: a thread that locks the file after this check notes it again.
            at.filter(|_| !crate::file::inode_locks::has_records(inode, self.id, &guard))
                .map(|at| locked.swap_remove(at))
        };
        drop(path);
    }

    /// Releases the task's record locks on a file of which it closes a descriptor, unless the
    /// descriptor is `O_PATH`.
    pub(crate) fn end_record_locks(&self, file: &File) {
        if file.is_path() || !file.inode().has_extra() {
            return;
        }
        crate::file::inode_locks::release_inode(file.inode(), self.id);
        self.note_unlocked(file.inode());
    }

    /// Returns the mount tree of the task.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    pub(crate) fn ns(&self) -> &VfsShared {
        self.vfs.ns()
    }

    pub(crate) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Returns the credentials with which the task acts.
    pub fn credentials(&self) -> Credentials {
        self.cred.read(&rcu::pin()).clone()
    }

    /// Changes the credentials. Running calls continue with the old ones.
    pub fn set_credentials(&self, credentials: Credentials) {
        let guard = rcu::pin();
        self.cred.replace(credentials, &guard);
    }

    #[inline]
    pub(crate) fn cred<'g>(&'g self, guard: &'g Guard) -> &'g Credentials {
        self.cred.read(guard)
    }

    #[inline]
    pub(crate) fn root<'g>(&'g self, guard: &'g Guard) -> PathRef<'g> {
        self.root.spot(guard)
    }

    /// Returns a consistent snapshot of root and working directory.
    #[inline]
    pub(crate) fn fs<'g>(&'g self, guard: &'g Guard) -> FsRef<'g> {
        loop {
            let before = self.root.version(guard);
            let fs = FsRef { root: self.root.spot(guard), cwd: self.cwd.spot(guard) };
            if before == self.root.version(guard) {
                return fs;
            }
        }
    }

    /// Returns new references to root and working directory.
    fn fs_struct(&self) -> FsStruct {
        let guard = rcu::pin();
        loop {
            let before = self.root.version(&guard);
            let fs = FsStruct { root: self.root.get(), cwd: self.cwd.get() };
            if before == self.root.version(&guard) {
                return fs;
            }
        }
    }

    /// Sets the permission bits that new files do not get, and returns the previous ones.
    pub fn umask(&self, mask: Mode) -> Mode {
        Mode::from_bits_truncate(self.umask.swap(mask.bits() & 0o777, Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn mask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Runs `body` on a walk over `path`; see [`walk::walk`].
    #[inline]
    pub(crate) fn walk<'g, T>(
        &'g self,
        base: &'g DirFd,
        path: &'g [u8],
        flags: Lookup,
        guard: &'g Guard,
        body: impl FnMut(&mut Walk<'g>) -> std::result::Result<T, Fail>,
    ) -> std::result::Result<T, WalkStop> {
        self.walk_as(self.cred(guard), base, path, flags, guard, body)
    }

    /// Walks as [`walk`](Self::walk) does, with other credentials.
    #[inline]
    pub(crate) fn walk_as<'g, T>(
        &'g self,
        cred: &'g Credentials,
        base: &'g DirFd,
        path: &'g [u8],
        flags: Lookup,
        guard: &'g Guard,
        body: impl FnMut(&mut Walk<'g>) -> std::result::Result<T, Fail>,
    ) -> std::result::Result<T, WalkStop> {
        let file = match base {
            DirFd::Invalid
                if path.first() != Some(&b'/')
                    || flags.contains(Lookup::IN_ROOT)
                    || fork::is_child() =>
            {
                return Err(dirfd_error(path, flags).into());
            }
            DirFd::Invalid | DirFd::Cwd => None,
            DirFd::File(file) => Some(file),
        };
        let from_root = path.first() == Some(&b'/') && !flags.intersects(Lookup::SCOPED);
        let start = || {
            let (root, base) = match file {
                Some(file) => (self.root(guard), file.path().borrow(guard)),
                None if from_root => {
                    let root = self.root(guard);
                    (root, root)
                }
                None => {
                    let FsRef { root, cwd } = self.fs(guard);
                    (root, cwd)
                }
            };
            Start { ns: self.ns(), cred, root, base, flags }
        };
        walk::walk(start, path, guard, body)
    }

    /// Resolves `at`. An unknown descriptor is an error only for paths that need it.
    #[inline]
    pub(crate) fn base(&self, at: At<'_>) -> DirFd {
        if fork::is_child() {
            return DirFd::Invalid;
        }
        match at {
            At::Cwd => DirFd::Cwd,
            At::File(file) => DirFd::File(file.clone()),
            At::Fd(fd) => match self.descriptors.get(fd) {
                Ok(file) => DirFd::File(file),
                Err(_) => DirFd::Invalid,
            },
        }
    }

    /// Walks to a path and takes a reference to it.
    pub(crate) fn resolve(&self, at: At<'_>, path: &[u8], flags: Lookup) -> Outcome<Path> {
        let base = self.base(at);
        run_lookups(|| {
            let guard = rcu::pin();
            self.walk(&base, path, flags, &guard, |walk| {
                let pos = walk.lookup()?;
                walk.keep(pos)
            })
        })
    }

    /// Makes a directory that the task may search its working directory.
    pub(crate) fn change_dir(&self, at: At<'_>, path: &[u8], flags: Lookup) -> Outcome<()> {
        let cwd = self.resolve_searchable(at, path, flags)?;
        self.cwd.replace(cwd);
        Ok(())
    }

    /// Makes a directory that the task may search its root. Needs `CAP_SYS_CHROOT`.
    pub(crate) fn change_root(&self, path: &[u8]) -> Outcome<()> {
        let root = self.resolve_searchable(At::Cwd, path, Lookup::empty())?;
        if !self.cred(&rcu::pin()).has(Capabilities::SYS_CHROOT) {
            return Err(Errno::PERM);
        }
        self.is_rooted.store(true, Ordering::Relaxed);
        self.root.replace(root);
        Ok(())
    }

    fn resolve_searchable(&self, at: At<'_>, path: &[u8], flags: Lookup) -> Outcome<Path> {
        let path = self.resolve(at, path, flags | Lookup::FOLLOW | Lookup::DIRECTORY)?;
        let guard = rcu::pin();
        let inode = path.dentry().inode();
        crate::objects::permission::permission(
            inode,
            self.cred(&guard),
            crate::base::types::Access::EXEC,
            &guard,
        )?;
        Ok(path)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        self.posix().close_all();
        for path in std::mem::take(self.locked.get_mut()) {
            crate::file::inode_locks::release_inode(path.dentry().inode(), self.id);
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The resolved [`At`], held for the duration of a call.
pub(crate) enum DirFd {
    Cwd,
    File(File),
    /// A descriptor that is not open; in the child of a fork, any.
    Invalid,
}

/// Returns the error of a bad descriptor, after the errors of the path itself. In the child of a
/// fork every descriptor is bad.
#[cold]
fn dirfd_error(path: &[u8], flags: Lookup) -> Errno {
    if fork::is_child() {
        IN_CHILD
    } else if path.is_empty() && !flags.contains(Lookup::EMPTY) {
        Errno::NOENT
    } else if path.len() >= walk::PATH_MAX {
        Errno::NAMETOOLONG
    } else {
        Errno::BADF
    }
}

/// Returns the bytes of a path.
#[inline]
pub(crate) fn bytes(path: &StdPath) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// Converts the `AT_*` flags of a call to flags of a walk.
pub(crate) fn lookup_flags(
    flags: AtFlags,
    follow_default: bool,
    allowed: AtFlags,
) -> Outcome<Lookup> {
    let known = allowed | AtFlags::EMPTY_PATH;
    if !known.contains(flags) {
        return Err(Errno::INVAL);
    }
    let mut lookup = Lookup::empty();
    let follow = if follow_default {
        !flags.contains(AtFlags::SYMLINK_NOFOLLOW)
    } else {
        flags.contains(AtFlags::SYMLINK_FOLLOW)
    };
    lookup.set(Lookup::FOLLOW, follow);
    lookup.set(Lookup::EMPTY, flags.contains(AtFlags::EMPTY_PATH));
    Ok(lookup)
}

impl Vfs {
    /// Makes a task at the root of the tree, with all privileges.
    pub fn task(&self) -> Task {
        self.task_as(Credentials::root())
    }

    /// Makes a task at the root of the tree, with these credentials.
    pub fn task_as(&self, credentials: Credentials) -> Task {
        Task::new(self.clone(), credentials)
    }
}
