//! vfscale's side: tasks of the library on a memory file system or on a volume.
//!
//! A volume is closed at the end of a sequence and reopened: the tree must be unchanged.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::block::{Device, MemoryDevice};
use vfscale::posix::{
    Access, At, AtFlags, FallocateFlags, Fd, FileHandle, FstrimRange, InodeFlags, LockRange,
    MountFlags, OFlags, OpenHow, Owner, Propagation, RecordLock, RenameFlags, ResolveFlags,
    SetTime, Stat, StatFs, UmountFlags, Whence, XattrFlags,
};
use vfscale::{
    Capabilities, Credentials, Errno, Error, File, FileType, MemFs, Mode, Task, Timestamp, Vfs,
    Volume,
};
use vfscale_diskfs::{check, mkfs, mkfs::MkfsOptions};

use crate::calls::Calls;
use crate::calls::op::{CWD, LockKind, Op, PathArg, Seek, Time};
use crate::calls::outcome::{Outcome, SHOWN_FLAGS, StatView, TimeClass, Uncompared, Value};
use crate::calls::users::{Caps, USERS};
use crate::world::tree;
use crate::world::{BlocklessCalls, Finished, INSPECTOR, TASKS, World};

/// The library as a [`World`]. The calling thread makes the calls of all tasks.
pub struct Subject {
    tasks: Vec<LibraryTask>,
    /// Free space before the first call.
    fresh: StatFs,
    volume: Option<(Arc<dyn Device>, Volume)>,
}

/// A task and its saved handles.
pub(crate) struct LibraryTask {
    task: Task,
    handles: [Option<FileHandle>; 4],
}

/// Size of every file system: more than any sequence fills, like the oracle's.
const BYTES_MAX: u64 = 2 << 30;
const INODES_MAX: u64 = 1_000_000;

/// Makes an empty memory file system.
pub(crate) fn memory() -> Arc<MemFs> {
    MemFs::builder().size(BYTES_MAX).inodes(INODES_MAX).build()
}

/// Makes an empty volume on a device in memory.
pub(crate) fn new_volume() -> Result<(Arc<dyn Device>, Volume), String> {
    let device = MemoryDevice::new(BYTES_MAX).map_err(|e| e.to_string())?;
    let device: Arc<dyn Device> = Arc::new(device);
    mkfs::format(&*device, &MkfsOptions::default()).map_err(|e| e.to_string())?;
    let volume = vfscale::volume_on(device.clone()).open().map_err(|e| e.to_string())?;
    Ok((device, volume))
}

/// Makes an empty volume as [`new_volume`] does, in a branch that was forked `depth` times. Its
/// parents have had files, so the blocks of the volume are in several of them.
pub(crate) fn new_branch(depth: u32) -> Result<(Arc<dyn Device>, Volume), String> {
    let failed = |e: &dyn std::fmt::Display| format!("a branch: {e}");
    let (device, volume) = new_volume()?;
    volume.close().map_err(|e| failed(&e))?;
    let pool = vfscale::pool_on(device).convert(true).open().map_err(|e| failed(&e))?;
    let mut name = vfscale::pool::MAIN.to_owned();
    for number in 0..=depth {
        if number > 0 {
            let child = format!("branch {number}");
            pool.fork(&name, &child).map_err(|e| failed(&e))?;
            name = child;
        }
        let volume = pool.open(&name).map_err(|e| failed(&e))?;
        let task = volume.task();
        task.write("/old", vec![7; 100_000]).map_err(|e| failed(&e))?;
        volume.sync().map_err(|e| failed(&e))?;
        task.remove_file("/old").map_err(|e| failed(&e))?;
        drop(task);
        volume.close().map_err(|e| failed(&e))?;
    }
    // Holds the pool open.
    let device = pool.device(&name).map_err(|e| failed(&e))?;
    let volume = vfscale::volume_on(device.clone()).open().map_err(|e| failed(&e))?;
    Ok((device, volume))
}

/// Checks that a closed volume has no findings.
pub(crate) fn check_image(device: &Arc<dyn Device>) -> Result<(), String> {
    let report = check::check(device.clone(), &check::Options::default(), &mut ());
    let report = report.map_err(|e| e.to_string())?;
    match report.findings.first() {
        Some(finding) => Err(format!("{} findings, such as {finding:?}", report.count)),
        None => Ok(()),
    }
}

impl Subject {
    /// Makes an empty memory file system with its tasks.
    ///
    /// # Errors
    /// Describes the library's error.
    pub fn new() -> Result<Subject, String> {
        let vfs = Vfs::new(memory()).map_err(|e| format!("vfscale: {e}"))?;
        Subject::of(&vfs)
    }

    /// Makes an empty volume on a device in memory, with its tasks; in a branch of a depth, or not
    /// in a pool.
    ///
    /// # Errors
    /// Describes the library's error.
    pub fn on_volume(depth: Option<u32>) -> Result<Subject, String> {
        let (device, volume) = depth.map_or_else(new_volume, new_branch)?;
        let vfs = volume.vfs().clone();
        Subject::with_tasks(&vfs, Some((device, volume)))
    }

    /// Makes the tasks of a tree.
    ///
    /// # Errors
    /// Describes the library's error.
    pub fn of(vfs: &Vfs) -> Result<Subject, String> {
        Subject::with_tasks(vfs, None)
    }

    fn with_tasks(vfs: &Vfs, volume: Option<(Arc<dyn Device>, Volume)>) -> Result<Subject, String> {
        let tasks: Vec<_> = (0..=TASKS).map(|_| LibraryTask::new(vfs)).collect();
        let fresh =
            tasks[INSPECTOR].task.posix().statfs(At::Cwd, "/").map_err(|e| e.to_string())?;
        Ok(Subject { tasks, fresh, volume })
    }
}

impl LibraryTask {
    fn new(vfs: &Vfs) -> LibraryTask {
        let task = vfs.task();
        task.umask(Mode::empty());
        LibraryTask::of(task)
    }

    pub(crate) fn of(task: Task) -> LibraryTask {
        LibraryTask { task, handles: [None; 4] }
    }
}

/// Closes a volume after a sequence, reopens it, and compares the trees. Other file systems mounted
/// on it are unmounted before. If that fails, nothing can be compared.
fn reopened(
    inspector: LibraryTask,
    (device, volume): (Arc<dyn Device>, Volume),
) -> Result<Finished, String> {
    let mut inspector = inspector;
    if uncover(&inspector.task).is_err() {
        return Ok(Finished::Unknown);
    }
    // The first read of symbolic links updates their access times.
    tree::snapshot(&mut BlocklessCalls(&mut inspector));
    let before = tree::snapshot(&mut BlocklessCalls(&mut inspector));
    drop(inspector);
    volume.close().map_err(|e| e.to_string())?;
    check_image(&device)?;
    let volume = vfscale::volume_on(device).open().map_err(|e| format!("opened again: {e}"))?;
    let mut inspector = LibraryTask::new(volume.vfs());
    let after = tree::snapshot(&mut BlocklessCalls(&mut inspector));
    drop(inspector);
    volume.close().map_err(|e| format!("closed again: {e}"))?;
    match tree::compare(&before, &after) {
        Some((_, text)) => Err(format!("different when it was opened again:\n{text}")),
        None => Ok(Finished::Empty),
    }
}

/// Unmounts everything but the root.
fn uncover(task: &Task) -> Result<(), Error> {
    for mount in task.posix().mounts().iter().rev() {
        if mount.mount_point != Path::new("/") {
            task.posix().umount(&mount.mount_point, UmountFlags::DETACH | UmountFlags::NOFOLLOW)?;
        }
    }
    if task.posix().mounts().len() == 1 { Ok(()) } else { Err(Error::new("clean", Errno::BUSY)) }
}

impl World for Subject {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        f(&mut self.tasks[task])
    }

    fn fork(&mut self, from: usize, into: usize) {
        let parent = &self.tasks[from];
        self.tasks[into] = LibraryTask { task: parent.task.fork(), handles: parent.handles };
    }

    fn reuses_inode_numbers(&self) -> bool {
        self.volume.is_some()
    }

    fn finish(&mut self) -> Result<Finished, String> {
        let inspector = self.tasks.swap_remove(INSPECTOR);
        self.tasks.clear();
        if let Some(volume) = self.volume.take() {
            return reopened(inspector, volume);
        }
        match crate::world::clean::leaked_space(&inspector.task, &self.fresh, memory) {
            Ok(None) => Ok(Finished::Empty),
            Ok(Some(kept)) => Err(kept),
            // The sequence left files that can't be removed by names.
            Err(_) => Ok(Finished::Unknown),
        }
    }
}

pub(crate) type Done = Result<Value, Error>;

/// Fails on the library's behalf, where its types do not admit the arguments.
fn fail<T>(errno: Errno) -> Result<T, Error> {
    Err(Error::new("test", errno))
}

fn fd_value(fd: Result<Fd, Error>) -> Done {
    fd.map(|fd| Value::Number(fd.0.into()))
}

/// Installs a descriptor for a file that was opened with `flags`; returns what the opening call
/// returns in Linux.
fn installed(task: &Task, file: File, flags: OFlags) -> Done {
    let fd = task.posix().install(file)?;
    task.posix().set_close_on_exec(fd, flags.contains(OFlags::CLOEXEC))?;
    fd_value(Ok(fd))
}

fn unit(result: Result<(), Error>) -> Done {
    result.map(|()| Value::Unit)
}

fn count(result: Result<usize, Error>) -> Done {
    result.map(|n| Value::Number(n as i64))
}

fn path(arg: &PathArg) -> &Path {
    Path::new(OsStr::from_bytes(&arg.0))
}

fn name(arg: &PathArg) -> &OsStr {
    OsStr::from_bytes(&arg.0)
}

fn from_path(path: PathBuf) -> Value {
    Value::Path(PathArg(path.into_os_string().into_vec()))
}

fn at(fd: i32) -> At<'static> {
    if fd == CWD { At::Cwd } else { At::Fd(Fd(fd)) }
}

fn at_flags(flags: u32) -> AtFlags {
    AtFlags::from_bits_retain(flags)
}

fn open_flags(flags: u32) -> OFlags {
    OFlags::from_bits_retain(flags)
}

fn mode_bits(mode: u32) -> Mode {
    Mode::from_bits_retain(mode)
}

impl Calls for LibraryTask {
    fn call(&mut self, op: &Op) -> Outcome {
        match self.files(op) {
            Ok(value) => Outcome::Ok(value),
            Err(error) => Outcome::Err(error.errno().raw_os_error()),
        }
    }
}

impl LibraryTask {
    fn file(&self, fd: i32) -> Result<File, Error> {
        self.task.posix().file(Fd(fd))
    }

    /// Returns the file of `fd`. An invalid offset takes precedence over an invalid descriptor.
    fn file_at(&self, fd: i32, off: Option<u64>) -> Result<File, Error> {
        if off.is_some_and(|off| off > i64::MAX as u64) {
            fail(Errno::INVAL)
        } else {
            self.file(fd)
        }
    }

    /// Makes a call.
    pub(crate) fn files(&mut self, op: &Op) -> Done {
        let task = &self.task;
        match op {
            Op::Open { at: dir, path: p, flags, mode } => {
                let flags = open_flags(*flags);
                let file = task.posix().openat(at(*dir), path(p), flags, mode_bits(*mode))?;
                installed(task, file, flags)
            }
            Op::Openat2 { at: dir, path: p, flags, mode, resolve } => {
                // The library's flags have 32 bits. The kernel's have 64, of which the upper ones
                // are invalid.
                let (Ok(flags), Ok(mode), Ok(resolve)) =
                    (u32::try_from(*flags), u32::try_from(*mode), u32::try_from(*resolve))
                else {
                    return fail(Errno::INVAL);
                };
                let resolve = ResolveFlags::from_bits_retain(resolve.into());
                let how = OpenHow { flags: open_flags(flags), mode: mode_bits(mode), resolve };
                fd_value(task.posix().open_fd(at(*dir), path(p), &how))
            }
            Op::Reopen { fd, flags } => {
                let flags = open_flags(*flags);
                installed(task, task.posix().reopen(&self.file(*fd)?, flags)?, flags)
            }
            Op::Close { fd } => unit(task.posix().close(Fd(*fd))),
            Op::Dup { fd } => fd_value(task.posix().dup(Fd(*fd))),
            Op::Dup2 { fd, to } => fd_value(task.posix().dup2(Fd(*fd), Fd(*to))),
            Op::Dup3 { fd, to, flags } => {
                fd_value(task.posix().dup3(Fd(*fd), Fd(*to), open_flags(*flags)))
            }
            Op::DupFrom { fd, min, cloexec } => {
                fd_value(task.posix().dup_from(Fd(*fd), Fd(*min), *cloexec))
            }
            Op::GetCloexec { fd } => Ok(Value::Number(task.posix().close_on_exec(Fd(*fd))?.into())),
            Op::SetCloexec { fd, on } => unit(task.posix().set_close_on_exec(Fd(*fd), *on)),
            Op::GetFlags { fd } => Ok(Value::Number(self.file(*fd)?.flags().bits().into())),
            Op::SetFlags { fd, flags } => {
                let file = self.file(*fd)?;
                unit(file.set_flags(open_flags(*flags), &task.credentials()))
            }
            Op::GetInodeFlags { fd } => {
                let flags = task.posix().ioctl_getflags(&self.file(*fd)?)?;
                Ok(Value::Number(flags.bits().into()))
            }
            Op::SetInodeFlags { fd, flags } => {
                let flags = InodeFlags::from_bits_retain(*flags);
                unit(task.posix().ioctl_setflags(&self.file(*fd)?, flags))
            }
            Op::Chdir { path: p } => unit(task.posix().chdir(path(p))),
            Op::Fchdir { fd } => unit(task.posix().fchdir(&self.file(*fd)?)),
            Op::Chroot { path: p } => unit(task.posix().chroot(path(p))),
            Op::Getcwd {} => task.posix().getcwd().map(from_path),
            Op::PathOf { fd } => {
                let path = task.posix().path_of(&self.file(*fd)?)?.into_os_string().into_vec();
                Ok(Value::Path(PathArg(path).without_numbers()))
            }
            Op::Umask { mode } => Ok(Value::Number(task.umask(mode_bits(*mode)).bits().into())),
            Op::SetUser { user } => {
                task.set_credentials(credentials(*user));
                Ok(Value::Unit)
            }
            _ => self.data(op),
        }
    }

    fn data(&mut self, op: &Op) -> Done {
        let task = &self.task;
        match op {
            Op::Read { fd, len } => filled(*len, |buf| task.posix().read(Fd(*fd), buf)),
            Op::Pread { fd, len, off } => {
                filled(*len, |buf| task.posix().pread(Fd(*fd), buf, *off))
            }
            Op::Write { fd, data } => count(task.posix().write(Fd(*fd), &data.bytes())),
            Op::Pwrite { fd, data, off } => {
                count(task.posix().pwrite(Fd(*fd), &data.bytes(), *off))
            }
            Op::Readv { fd, lens, off } => {
                let mut bufs: Vec<_> = lens.iter().map(|len| vec![0; *len as usize]).collect();
                let mut slices: Vec<_> = bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
                let file = self.file_at(*fd, *off)?;
                let len = match off {
                    Some(off) => file.preadv(&mut slices, *off)?,
                    None => file.readv(&mut slices)?,
                };
                let mut all = bufs.concat();
                all.truncate(len);
                Ok(Value::Bytes(all))
            }
            Op::Writev { fd, parts, off } => {
                let bufs: Vec<_> = parts.iter().map(|data| data.bytes()).collect();
                let slices: Vec<_> = bufs.iter().map(|b| IoSlice::new(b)).collect();
                let file = self.file_at(*fd, *off)?;
                count(match off {
                    Some(off) => file.pwritev(&slices, *off),
                    None => file.writev(&slices),
                })
            }
            Op::Lseek { fd, whence, off } => {
                let to = match whence {
                    Seek::Set => Whence::Set(*off as u64),
                    Seek::Cur => Whence::Current(*off),
                    Seek::End => Whence::End(*off),
                    Seek::Data => Whence::Data(*off as u64),
                    Seek::Hole => Whence::Hole(*off as u64),
                };
                task.posix().lseek(Fd(*fd), to).map(|pos| Value::Number(pos as i64))
            }
            Op::Ftruncate { fd, len } => unit(task.posix().ftruncate(Fd(*fd), *len)),
            Op::Truncate { path: p, len } => unit(task.posix().truncate(path(p), *len)),
            Op::Fallocate { fd, mode, off, len } => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                unit(task.posix().fallocate(Fd(*fd), mode, *off, *len))
            }
            Op::CopyRange { from, off_in, to, off_out, len } => {
                let (mut off_in, mut off_out) = (*off_in, *off_out);
                let (from, to) = (self.file(*from)?, self.file(*to)?);
                let copied = from.copy_range(off_in.as_mut(), &to, off_out.as_mut(), *len)?;
                Ok(Value::Number(copied as i64))
            }
            Op::Fsync { fd, data_only } => {
                let file = self.file(*fd)?;
                unit(if *data_only { file.sync_data() } else { file.sync_all() })
            }
            Op::Syncfs { fd } => unit(self.file(*fd)?.sync_fs()),
            Op::ReadDir { fd } => read_dir(&self.file(*fd)?),
            Op::Flock { fd, kind } => unit(self.file(*fd)?.flock(lock_kind(*kind), None)),
            _ => self.pipes(op),
        }
    }

    fn pipes(&mut self, op: &Op) -> Done {
        match op {
            Op::Pipe { flags } => {
                let (reader, writer) = self.task.posix().pipe2_fd(open_flags(*flags))?;
                Ok(Value::Ends([reader.0, writer.0]))
            }
            Op::PipeSize { fd } => count(self.file(*fd)?.pipe_size()),
            Op::SetPipeSize { fd, bytes } => {
                count(self.file(*fd)?.set_pipe_size(*bytes, &self.task.credentials()))
            }
            _ => self.locks(op),
        }
    }

    fn locks(&mut self, op: &Op) -> Done {
        let task = &self.task;
        match op {
            Op::Lock { fd, ofd, kind, range } => {
                let (file, range) = (self.lockable(*fd)?, lock_range(*range)?);
                let kind = lock_kind(*kind);
                unit(if *ofd {
                    file.ofd_lock(kind, range, None)
                } else {
                    task.posix().posix_lock(&file, kind, range, None)
                })
            }
            Op::GetLock { fd, ofd, kind, range } => {
                let (file, range) = (self.lockable(*fd)?, lock_range(*range)?);
                let Some(kind) = lock_kind(*kind) else { return fail(Errno::INVAL) };
                let found = if *ofd {
                    let owner = Owner::File(file.id());
                    file.test_lock(&RecordLock { owner, pid: -1, kind, range })?
                } else {
                    task.posix().posix_lock_test(&file, kind, range)?
                };
                Ok(Value::Conflict(found.map(|lock| {
                    let kind = u8::from(lock.kind == vfscale::posix::LockKind::Exclusive);
                    (kind, lock.range.start() as i64, lock.range.flock_len() as i64)
                })))
            }
            _ => self.names(op),
        }
    }

    /// Returns the file of `fd`, unless it was opened with `O_PATH`, which `fcntl` checks before
    /// the range.
    fn lockable(&self, fd: i32) -> Result<File, Error> {
        let file = self.file(fd)?;
        if file.is_path() { fail(Errno::BADF) } else { Ok(file) }
    }

    fn names(&mut self, op: &Op) -> Done {
        let task = &self.task;
        match op {
            Op::Mkdir { at: dir, path: p, mode } => {
                unit(task.posix().mkdirat(at(*dir), path(p), mode_bits(*mode)))
            }
            Op::Mknod { at: dir, path: p, mode, rdev } => {
                let kind = match mode & libc::S_IFMT {
                    0 => FileType::RegularFile,
                    bits => FileType::from_raw_mode(bits),
                };
                let mode = mode_bits(mode & 0o7777);
                unit(task.posix().mknodat(at(*dir), path(p), kind, mode, *rdev))
            }
            Op::Unlink { at: dir, path: p, flags } => {
                unit(task.posix().unlinkat(at(*dir), path(p), at_flags(*flags)))
            }
            Op::Link { at: dir, path: p, to_at, to, flags } => {
                unit(task.posix().linkat(at(*dir), path(p), at(*to_at), path(to), at_flags(*flags)))
            }
            Op::Symlink { target, at: dir, path: p } => {
                unit(task.posix().symlinkat(at(*dir), path(p), path(target)))
            }
            Op::Readlink { at: dir, path: p } => {
                task.posix().readlinkat(at(*dir), path(p)).map(from_path)
            }
            Op::Rename { at: dir, path: p, to_at, to, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                unit(task.posix().renameat2(at(*dir), path(p), at(*to_at), path(to), flags))
            }
            _ => self.attributes(op),
        }
    }

    fn attributes(&mut self, op: &Op) -> Done {
        let task = &self.task;
        match op {
            Op::Stat { at: dir, path: p, flags } => task
                .posix()
                .fstatat(at(*dir), path(p), at_flags(*flags))
                .map(|stat| Value::Stat(Box::new(view(&stat)))),
            Op::Access { at: dir, path: p, mode, flags } => {
                if *mode > 7 {
                    return fail(Errno::INVAL);
                }
                let want = Access::from_bits_truncate(*mode as u8);
                unit(task.posix().faccessat(at(*dir), path(p), want, at_flags(*flags)))
            }
            Op::Chmod { at: dir, path: p, mode, flags } => {
                unit(task.posix().fchmodat(at(*dir), path(p), mode_bits(*mode), at_flags(*flags)))
            }
            Op::Chown { at: dir, path: p, uid, gid, flags } => {
                unit(task.posix().fchownat(at(*dir), path(p), *uid, *gid, at_flags(*flags)))
            }
            Op::Utimens { at: dir, path: p, atime, mtime, flags } => {
                let times = [set_time(*atime), set_time(*mtime)];
                unit(task.posix().utimensat(at(*dir), path(p), times, at_flags(*flags)))
            }
            Op::Getxattr { at: dir, path: p, name: n, flags } => task
                .posix()
                .getxattrat(at(*dir), path(p), name(n), at_flags(*flags))
                .map(Value::Bytes),
            Op::Setxattr { at: dir, path: p, name: n, value, how, flags } => {
                let how = XattrFlags::from_bits_retain(*how);
                unit(task.posix().setxattrat(
                    at(*dir),
                    path(p),
                    name(n),
                    value,
                    how,
                    at_flags(*flags),
                ))
            }
            Op::Listxattr { at: dir, path: p, flags } => {
                let names = task.posix().listxattrat(at(*dir), path(p), at_flags(*flags))?;
                let names = names.into_iter().map(|name| PathArg(name.into_vec()));
                Ok(Value::Names(names.collect()))
            }
            Op::Removexattr { at: dir, path: p, name: n, flags } => {
                unit(task.posix().removexattrat(at(*dir), path(p), name(n), at_flags(*flags)))
            }
            _ => self.mounts(op),
        }
    }

    fn mounts(&mut self, op: &Op) -> Done {
        let task = &self.task;
        match op {
            Op::Trim {} => {
                let all = FstrimRange { start: 0, len: u64::MAX, minlen: 0 };
                unit(task.posix().trim_fs(At::Cwd, "/", all).map(drop))
            }
            Op::Statfs { at: dir, path: p } => {
                task.posix().statfs(at(*dir), path(p)).map(|stat| statfs(&stat))
            }
            Op::Mount { path: p, flags } => {
                unit(task.posix().mount(memory(), path(p), MountFlags::from_bits_retain(*flags)))
            }
            Op::Bind { source, target, recursive } => {
                unit(task.posix().bind(path(source), path(target), *recursive))
            }
            Op::MoveMount { source, target } => {
                unit(task.posix().move_mount(path(source), path(target)))
            }
            Op::Umount { path: p, flags } => {
                unit(task.posix().umount(path(p), UmountFlags::from_bits_retain(*flags)))
            }
            Op::Remount { path: p, flags } => {
                unit(task.posix().remount(path(p), MountFlags::from_bits_retain(*flags)))
            }
            Op::RemountBind { path: p, flags } => {
                unit(task.posix().remount_bind(path(p), MountFlags::from_bits_retain(*flags)))
            }
            Op::SetPropagation { path: p, flags } => {
                let kind = match u64::from(*flags) & !libc::MS_REC {
                    libc::MS_SHARED => Propagation::Shared,
                    libc::MS_PRIVATE => Propagation::Private,
                    libc::MS_SLAVE => Propagation::Slave,
                    _ => Propagation::Unbindable,
                };
                let recursive = u64::from(*flags) & libc::MS_REC != 0;
                unit(task.posix().set_propagation(path(p), kind, recursive))
            }
            Op::Unshare { .. } => {
                self.task = task.posix().unshare_mounts()?;
                Ok(Value::Unit)
            }
            Op::Mounts {} => {
                let lines = task.posix().mounts();
                let lines: Vec<_> = lines.iter().map(|m| m.mountinfo().to_string()).collect();
                let mounts = crate::world::mountinfo::normal(&lines.join("\n"));
                mounts.map(Value::Mounts).or_else(|_| fail(Errno::INVAL))
            }
            Op::SaveHandle { at: dir, path: p, flags, slot } => {
                let handle = task.posix().name_to_handle_at(at(*dir), path(p), at_flags(*flags))?;
                self.handles[*slot] = Some(handle);
                Ok(Value::Unit)
            }
            Op::OpenHandle { mount, slot, flags } => {
                let Some(handle) = self.handles[*slot] else { return fail(Errno::NOSYS) };
                let mount = self.file(*mount)?;
                let flags = open_flags(*flags);
                installed(task, task.posix().open_by_handle_at(&mount, &handle, flags)?, flags)
            }
            _ => fail(Errno::NOSYS),
        }
    }
}

fn filled(len: u32, read: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Done {
    let mut buf = vec![0; len as usize];
    let len = read(&mut buf)?;
    buf.truncate(len);
    Ok(Value::Bytes(buf))
}

/// Reads all entries from the start, like `lseek` to 0 and `getdents` to the end.
fn read_dir(file: &File) -> Done {
    file.seek(Whence::Set(0))?;
    let mut entries = BTreeSet::new();
    let list: Vec<_> = file.read_dir().collect();
    file.seek(Whence::Set(0))?;
    let mut add = |name: &OsStr, kind: FileType| {
        if !entries.insert((PathArg(name.as_bytes().to_vec()), kind_number(kind))) {
            entries.insert((PathArg([name.as_bytes(), b" (twice)"].concat()), kind_number(kind)));
        }
    };
    for entry in list {
        let entry = entry?;
        add(&entry.name, entry.file_type);
    }
    // The other method of reading must return the same entries.
    let mut again = 0;
    file.read_dir_at(0, |_| {
        again += 1;
        ControlFlow::Continue(())
    })?;
    if again != entries.len() {
        entries.insert((PathArg::from("(read_dir_at shows another number)"), 0));
    }
    Ok(Value::Entries(entries))
}

/// Returns the `DT_*` number of a type: the bits of `S_IFMT`, shifted.
fn kind_number(kind: FileType) -> u8 {
    (kind.as_raw_mode() >> 12) as u8
}

fn set_time(time: Time) -> SetTime {
    match time {
        Time::Omit => SetTime::Omit,
        Time::Now => SetTime::Now,
        Time::At(secs, nanos) => SetTime::At(Timestamp::new(secs, nanos)),
    }
}

fn lock_kind(kind: LockKind) -> Option<vfscale::posix::LockKind> {
    match kind {
        LockKind::Read => Some(vfscale::posix::LockKind::Shared),
        LockKind::Write => Some(vfscale::posix::LockKind::Exclusive),
        LockKind::Unlock => None,
    }
}

fn lock_range(range: crate::calls::op::LockRange) -> Result<LockRange, Error> {
    LockRange::from_flock(0, range.start, range.len).map_err(|e| Error::new("fcntl", e))
}

fn credentials(user: usize) -> Credentials {
    let user = &USERS[user];
    let caps = match user.caps {
        Caps::All => Capabilities::all(),
        Caps::Only(bits) => Capabilities::from_bits_truncate(bits),
    };
    Credentials {
        uid: user.uid,
        gid: user.gid,
        groups: user.groups.to_vec(),
        caps,
        real_uid: user.real_uid,
        real_gid: user.real_gid,
    }
}

fn view(stat: &Stat) -> StatView {
    let time = |t: Timestamp| TimeClass::new(t.secs(), t.nanos());
    StatView {
        mode: stat.mode,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev,
        size: stat.size,
        blocks: stat.blocks,
        blksize: stat.blksize,
        mount_root: stat.mount_root,
        flags: stat.flags.bits() & SHOWN_FLAGS,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        ino: Uncompared(stat.ino),
        dev: Uncompared(stat.dev),
        ctime_exact: Uncompared((stat.ctime.secs(), stat.ctime.nanos())),
    }
}

fn statfs(stat: &StatFs) -> Value {
    let shown = MountFlags::RDONLY
        | MountFlags::NOSUID
        | MountFlags::NODEV
        | MountFlags::NOEXEC
        | MountFlags::NOATIME
        | MountFlags::NODIRATIME
        | MountFlags::RELATIME
        | MountFlags::NOSYMFOLLOW;
    let flags = stat.flags & shown;
    Value::Statfs(stat.block_size.into(), stat.name_max.into(), flags.bits().into())
}
