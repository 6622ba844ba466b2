//! A task of the oracle: a thread of this process that makes system calls.
//!
//! The thread has its own working directory, root, umask and descriptor table: it was started as a
//! thread and then unshared them, which has the effect of `fork`. It also has its own credentials,
//! set by raw system calls that affect one thread. The saved user id stays 0, so the thread can
//! switch to any user again; no file call checks that id.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};
use std::time::Duration;

use crate::calls::Calls;
use crate::calls::op::{CWD, LockKind, LockRange, Op, PathArg, Seek, Time};
use crate::calls::outcome::{Outcome, SHOWN_FLAGS, StatView, TimeClass, Uncompared, Value};
use crate::calls::users::{Caps, USERS};
use crate::world::sys::{self, Handle, Result};

/// Lowest descriptor that belongs to the oracle instead of the sequence.
pub(crate) const RESERVED_FD: i32 = 1000;

/// A descriptor of procfs, through which the thread inspects its own descriptors.
pub(crate) const PROC_FD: i32 = RESERVED_FD;

/// `O_LARGEFILE`, which the kernel sets itself on 64-bit systems.
const O_LARGEFILE: i64 = 0o100_000;

const FOWNER: u64 = 1 << 3;

/// Unit in which tmpfs stores data.
const PAGE: u64 = 4096;

/// The mount option that libc does not define.
const MS_NOSYMFOLLOW: u64 = 256;

/// Options of every tmpfs: root attributes as in vfscale, and more space than any sequence fills.
pub(crate) const TMPFS_OPTIONS: &std::ffi::CStr = c"mode=755,size=2g,nr_inodes=1000000";

/// The calling thread as a task.
#[derive(Clone)]
pub(crate) struct KernelTask {
    user: usize,
    /// For each descriptor, the user that opened it, and whether that user was in the file's group
    /// then.
    openers: HashMap<i32, (usize, bool)>,
    handles: [Option<Handle>; 4],
    /// The mount at the root of the namespace. It is never unmounted, because nothing would remain.
    pub(crate) root_mount: u64,
}

fn number(result: Result<i64>) -> Result<Value> {
    result.map(Value::Number)
}

fn unit(result: Result<i64>) -> Result<Value> {
    result.map(|_| Value::Unit)
}

fn c(path: &PathArg) -> CString {
    // The generator makes no zero bytes. Otherwise a path would end there, as in C.
    let end = path.0.iter().position(|&b| b == 0).unwrap_or(path.0.len());
    CString::new(&path.0[..end]).unwrap_or_default()
}

impl Calls for KernelTask {
    fn call(&mut self, op: &Op) -> Outcome {
        let result = match changed_by(op) {
            Some(fd) if self.openers.contains_key(&fd) && has_set_id(fd) => self.as_opener(fd, op),
            _ => self.files(op),
        };
        match result {
            Ok(value) => Outcome::Ok(value),
            Err(libc::ENOSYS) => Outcome::Skip,
            Err(errno) => Outcome::Err(errno),
        }
    }
}

impl KernelTask {
    pub(crate) fn new() -> KernelTask {
        KernelTask { user: 0, openers: HashMap::new(), handles: [const { None }; 4], root_mount: 0 }
    }

    pub(crate) fn forget_handles(&mut self) {
        self.handles = [const { None }; 4];
    }

    /// Returns whether the task's user has a capability.
    fn has(&self, cap: u64) -> bool {
        match USERS[self.user].caps {
            Caps::All => true,
            Caps::Only(caps) => caps & cap != 0,
        }
    }

    /// Registers the descriptor of a file that was just opened.
    fn opened(&mut self, result: Result<i64>) -> Result<Value> {
        let fd = result?;
        let stat = sys::statx(fd as i32, c"", libc::AT_EMPTY_PATH as u32)?;
        let user = &USERS[self.user];
        let in_group = user.gid == stat.stx_gid || user.groups.contains(&stat.stx_gid);
        self.openers.insert(fd as i32, (self.user, in_group));
        Ok(Value::Number(fd))
    }

    /// Registers another descriptor for the open file of `from`.
    fn copied(&mut self, from: i32, result: Result<i64>) -> Result<Value> {
        let fd = result?;
        if let Some(opener) = self.openers.get(&from) {
            self.openers.insert(fd as i32, *opener);
        }
        Ok(Value::Number(fd))
    }

    /// Makes a writing call with the credentials of the file's opener.
    fn as_opener(&mut self, fd: i32, op: &Op) -> Result<Value> {
        const NOBODY: u32 = 65_000;
        let (opener, in_group) = self.openers[&fd];
        set_user(opener)?;
        let stat = sys::statx(fd, c"", libc::AT_EMPTY_PATH as u32)?;
        let group = if in_group { stat.stx_gid } else { NOBODY };
        sys::set_groups_of_thread(group)?;
        let result = self.files(op);
        set_user(self.user)?;
        result
    }

    /// Makes a link of another user's file only if the kernel enforces the rule that vfscale always
    /// enforces: the sysctl `protected_hardlinks`, which is off on some machines.
    fn link(&self, op: &Op) -> Result<Value> {
        let Op::Link { at, path, to_at, to, flags } = op else { return Err(libc::ENOSYS) };
        let (at, path, to_at, to, mut flags) = (*at, c(path), *to_at, c(to), *flags);
        // The rule applies to the flag, whether the path is empty or not (see `link_open`).
        if !path.is_empty() {
            flags &= !(libc::AT_EMPTY_PATH as u32);
        }
        if !sys::sysctl("protected_hardlinks") && !self.has(FOWNER) {
            let nofollow = if flags & libc::AT_SYMLINK_FOLLOW as u32 == 0 {
                libc::AT_SYMLINK_NOFOLLOW as u32
            } else {
                0
            };
            let look = flags & libc::AT_EMPTY_PATH as u32 | nofollow;
            let own = |stat: libc::statx| stat.stx_uid == USERS[self.user].uid;
            if !sys::statx(at, &path, look).is_ok_and(own) {
                return Err(libc::ENOSYS);
            }
        }
        if path.is_empty() && at >= 0 && flags == libc::AT_EMPTY_PATH as u32 {
            return link_open(at, to_at, &to);
        }
        unit(sys::linkat(at, &path, to_at, &to, flags))
    }

    fn files(&mut self, op: &Op) -> Result<Value> {
        match op {
            Op::Open { at, path, flags, mode } => {
                let open = |flags| sys::openat(*at, &c(path), flags as u32, *mode);
                self.opened(open_sticky((*flags).into(), open))
            }
            Op::Openat2 { at, path, flags, mode, resolve } => {
                let creates = |flags: u64| flags & libc::O_CREAT as u64 != 0;
                let asked = *flags;
                let mode = |flags: u64| if creates(asked) && !creates(flags) { 0 } else { *mode };
                let open = |flags| {
                    let how = || sys::openat2(*at, &c(path), flags, mode(flags), *resolve);
                    again(*resolve & libc::RESOLVE_CACHED == 0, how)
                };
                self.opened(open_sticky(*flags, open))
            }
            Op::Reopen { fd, flags } => {
                sys::fcntl(*fd, libc::F_GETFD, 0)?;
                self.opened(sys::openat(PROC_FD, &proc_link(*fd), *flags, 0))
            }
            Op::Close { fd } => unit(sys::close(*fd)),
            Op::Dup { fd } => self.copied(*fd, sys::dup(*fd)),
            // `dup2` is `dup3`, except that with equal numbers it only checks the descriptor.
            Op::Dup2 { fd, to } if fd == to => {
                sys::fcntl(*fd, libc::F_GETFD, 0).map(|_| Value::Number((*fd).into()))
            }
            Op::Dup2 { fd, to } => self.copied(*fd, sys::dup3(*fd, *to, 0)),
            Op::Dup3 { fd, to, flags } => self.copied(*fd, sys::dup3(*fd, *to, *flags)),
            Op::DupFrom { fd, min, cloexec } => {
                let cmd = if *cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
                self.copied(*fd, sys::fcntl(*fd, cmd, i64::from(*min) as u64))
            }
            Op::GetCloexec { fd } => number(sys::fcntl(*fd, libc::F_GETFD, 0)),
            Op::SetCloexec { fd, on } => unit(sys::fcntl(*fd, libc::F_SETFD, u64::from(*on))),
            Op::GetFlags { fd } => {
                number(sys::fcntl(*fd, libc::F_GETFL, 0).map(|flags| flags & !O_LARGEFILE))
            }
            Op::SetFlags { fd, flags } => unit(sys::fcntl(*fd, libc::F_SETFL, (*flags).into())),
            Op::GetInodeFlags { fd } => number(sys::getflags(*fd)),
            Op::SetInodeFlags { fd, flags } => unit(sys::setflags(*fd, *flags)),
            Op::Chdir { path } => unit(sys::chdir(&c(path))),
            Op::Fchdir { fd } => unit(sys::fchdir(*fd)),
            Op::Chroot { path } => unit(sys::chroot(&c(path))),
            Op::Getcwd {} => sys::getcwd().map(|path| Value::Path(PathArg(path))),
            Op::PathOf { fd } => {
                sys::fcntl(*fd, libc::F_GETFD, 0)?;
                let path = sys::readlinkat(PROC_FD, &proc_link(*fd))?;
                Ok(Value::Path(PathArg(path).without_numbers()))
            }
            Op::Umask { mode } => number(sys::umask(*mode)),
            Op::SetUser { user } => {
                set_user(*user)?;
                self.user = *user;
                Ok(Value::Unit)
            }
            _ => self.data(op),
        }
    }

    fn data(&mut self, op: &Op) -> Result<Value> {
        match op {
            Op::Pipe { flags } => sys::pipe2(*flags).map(Value::Ends),
            Op::PipeSize { fd } => number(sys::fcntl(*fd, libc::F_GETPIPE_SZ, 0)),
            Op::SetPipeSize { fd, bytes } => {
                number(sys::fcntl(*fd, libc::F_SETPIPE_SZ, (*bytes).into()))
            }
            Op::Read { fd, len } => filled(*len, |buf| sys::read(*fd, buf)),
            Op::Pread { fd, len, off } => filled(*len, |buf| sys::pread(*fd, buf, *off)),
            Op::Write { fd, data } => number(sys::write(*fd, &data.bytes())),
            Op::Pwrite { fd, data, off } => number(sys::pwrite(*fd, &data.bytes(), *off)),
            Op::Readv { fd, lens, off } => {
                let mut bufs: Vec<_> = lens.iter().map(|len| vec![0; *len as usize]).collect();
                let len = sys::readv(*fd, &mut bufs, *off)? as usize;
                let mut all = bufs.concat();
                all.truncate(len);
                Ok(Value::Bytes(all))
            }
            Op::Writev { fd, parts, off } => {
                let bufs: Vec<_> = parts.iter().map(|data| data.bytes()).collect();
                number(sys::writev(*fd, &bufs, *off))
            }
            Op::Lseek { fd, whence, off } => number(sys::lseek(*fd, *off, whence_number(*whence))),
            Op::Ftruncate { fd, len } => unit(sys::ftruncate(*fd, *len)),
            Op::Truncate { path, len } => unit(sys::truncate(&c(path), *len)),
            Op::Fallocate { fd, mode, off, len } => unit(fallocate(*fd, *mode, *off, *len)),
            Op::CopyRange { from, off_in, to, off_out, len } => {
                let (mut off_in, mut off_out) = (*off_in, *off_out);
                number(sys::copy_file_range(*from, &mut off_in, *to, &mut off_out, *len))
            }
            Op::Fsync { fd, data_only } => unit(sys::fsync(*fd, *data_only)),
            Op::Syncfs { fd } => unit(sys::syncfs(*fd)),
            Op::ReadDir { fd } => read_dir(*fd),
            Op::Flock { fd, kind } => {
                let operation = match kind {
                    LockKind::Read => libc::LOCK_SH,
                    LockKind::Write => libc::LOCK_EX,
                    LockKind::Unlock => libc::LOCK_UN,
                };
                unit(sys::flock(*fd, operation | libc::LOCK_NB))
            }
            Op::Lock { fd, ofd, kind, range } => {
                let cmd = if *ofd { libc::F_OFD_SETLK } else { libc::F_SETLK };
                unit(sys::fcntl_lock(*fd, cmd, &mut flock(*kind, *range)))
            }
            Op::GetLock { fd, ofd, kind, range } => get_lock(*fd, *ofd, *kind, *range),
            _ => self.names(op),
        }
    }

    fn names(&mut self, op: &Op) -> Result<Value> {
        match op {
            Op::Stat { at, path, flags } => {
                sys::statx(*at, &c(path), *flags).map(|stat| Value::Stat(Box::new(view(&stat))))
            }
            Op::Access { at, path, mode, flags } => {
                unit(sys::faccessat2(*at, &c(path), *mode, *flags))
            }
            Op::Mkdir { at, path, mode } => unit(sys::mkdirat(*at, &c(path), *mode)),
            Op::Mknod { at, path, mode, rdev } => unit(sys::mknodat(*at, &c(path), *mode, *rdev)),
            Op::Unlink { at, path, flags } => unit(sys::unlinkat(*at, &c(path), *flags)),
            Op::Link { .. } => self.link(op),
            Op::Symlink { target, at, path } => unit(sys::symlinkat(&c(target), *at, &c(path))),
            Op::Readlink { at, path } => {
                sys::readlinkat(*at, &c(path)).map(|target| Value::Path(PathArg(target)))
            }
            Op::Rename { at, path, to_at, to, flags } => {
                unit(sys::renameat2(*at, &c(path), *to_at, &c(to), *flags))
            }
            Op::Chmod { at, path, mode, flags } => {
                unit(sys::fchmodat2(*at, &c(path), *mode, *flags))
            }
            Op::Chown { at, path, uid, gid, flags } => {
                let id = |id: &Option<u32>| id.unwrap_or(u32::MAX);
                unit(sys::fchownat(*at, &c(path), id(uid), id(gid), *flags))
            }
            Op::Utimens { at, path, atime, mtime, flags } => {
                let times = [timespec(*atime), timespec(*mtime)];
                unit(sys::utimensat(*at, &c(path), &times, *flags))
            }
            Op::Getxattr { at, path, name, flags } => {
                sys::getxattrat(*at, &c(path), &c(name), *flags).map(Value::Bytes)
            }
            // Linux lets any user set an empty file capability, which it then refuses to report.
            Op::Setxattr { name, value, .. }
                if value.is_empty() && name.0 == b"security.capability" =>
            {
                Err(libc::ENOSYS)
            }
            Op::Setxattr { at, path, name, value, how, flags } => {
                unit(sys::setxattrat(*at, &c(path), &c(name), value, *how, *flags))
            }
            // Linux 6.13 to 6.18 treat the empty path as the working directory in two of the four
            // calls.
            Op::Listxattr { at: CWD, path, .. } | Op::Removexattr { at: CWD, path, .. }
                if path.0.is_empty() =>
            {
                Err(libc::ENOSYS)
            }
            Op::Listxattr { at, path, flags } => {
                let list = sys::listxattrat(*at, &c(path), *flags)?;
                let names = list.split(|&b| b == 0).filter(|name| !name.is_empty());
                Ok(Value::Names(names.map(|name| PathArg(name.to_vec())).collect()))
            }
            Op::Removexattr { at, path, name, flags } => {
                unit(sys::removexattrat(*at, &c(path), &c(name), *flags))
            }
            _ => self.mounts(op),
        }
    }

    fn mounts(&mut self, op: &Op) -> Result<Value> {
        let ms = |flags: u32, more: u64| u64::from(flags) | more;
        let none = c"none";
        match op {
            Op::Statfs { at, path } if *at == CWD => sys::statfs(Ok(&c(path))).map(|s| statfs(&s)),
            Op::Statfs { at, .. } => sys::statfs(Err(*at)).map(|s| statfs(&s)),
            Op::Mount { path, flags } => {
                let flags = ms(*flags, 0);
                unit(sys::mount(c"tmpfs", &c(path), Some(c"tmpfs"), flags, Some(TMPFS_OPTIONS)))
            }
            Op::Bind { source, target, recursive } => {
                let rec = if *recursive { libc::MS_REC } else { 0 };
                unit(sys::mount(&c(source), &c(target), None, libc::MS_BIND | rec, None))
            }
            Op::MoveMount { source, target } => {
                unit(sys::mount(&c(source), &c(target), None, libc::MS_MOVE, None))
            }
            Op::Umount { path, flags } => {
                if self.is_some_root(path, *flags)? {
                    return Err(libc::ENOSYS);
                }
                unit(sys::umount2(&c(path), *flags))
            }
            Op::Remount { path, flags } => {
                unit(sys::mount(none, &c(path), None, ms(*flags, libc::MS_REMOUNT), None))
            }
            Op::RemountBind { path, flags } => {
                let flags = ms(*flags, libc::MS_REMOUNT | libc::MS_BIND);
                unit(sys::mount(none, &c(path), None, flags, None))
            }
            Op::SetPropagation { path, flags } => {
                unit(sys::mount(none, &c(path), None, (*flags).into(), None))
            }
            Op::Unshare { .. } => self.unshare_mounts(),
            Op::Mounts {} => {
                let text = crate::world::mountinfo::text(&mountinfo()?);
                crate::world::mountinfo::normal(&text).map(Value::Mounts).map_err(|_| libc::EINVAL)
            }
            Op::SaveHandle { at, path, flags, slot } => {
                self.handles[*slot] = Some(sys::name_to_handle(*at, &c(path), *flags)?);
                Ok(Value::Unit)
            }
            Op::OpenHandle { mount, slot, flags } => {
                let handle = &self.handles[*slot].clone().ok_or(libc::ENOSYS)?;
                self.opened(sys::open_by_handle(*mount, handle, *flags))
            }
            _ => Err(libc::ENOSYS),
        }
    }

    /// Moves the thread to a copy of its namespace, unless the root of that would be unknown.
    fn unshare_mounts(&mut self) -> Result<Value> {
        if sys::statx(CWD, c"/", 0)?.stx_mnt_id != self.root_mount {
            return Err(libc::ENOSYS);
        }
        sys::unshare(libc::CLONE_NEWNS)?;
        self.root_mount = sys::statx(CWD, c"/", 0)?.stx_mnt_id;
        Ok(Value::Unit)
    }

    /// Returns whether `path` is the task's root or the namespace's root mount. Unmounting these
    /// has another meaning: the first remounts the file system read-only, the second leaves a
    /// namespace without files.
    fn is_some_root(&self, path: &PathArg, flags: u32) -> Result<bool> {
        let follow = flags & libc::UMOUNT_NOFOLLOW as u32 == 0;
        let look = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW as u32 };
        let Ok(stat) = sys::statx(CWD, &c(path), look) else { return Ok(false) };
        let own_root = sys::statx(CWD, c"/", 0)?;
        let is_root = stat.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0;
        Ok(is_root && [self.root_mount, own_root.stx_mnt_id].contains(&stat.stx_mnt_id))
    }
}

/// Reads the mounts of the calling thread's namespace, as far as its root shows them.
pub(crate) fn mountinfo() -> Result<Vec<u8>> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u32;
    let fd = sys::openat(PROC_FD, c"thread-self/mountinfo", flags, 0)? as i32;
    let mut text = Vec::new();
    let mut buf = vec![0; 65536];
    loop {
        match sys::read(fd, &mut buf)? {
            0 => break,
            n => text.extend_from_slice(&buf[..n as usize]),
        }
    }
    sys::close(fd)?;
    Ok(text)
}

/// Repeats a call that failed only because a concurrent rename or mount on this machine interrupted
/// a walk, which the kernel reports for walks that must not leave their start.
fn again(is_retried: bool, call: impl Fn() -> Result<i64>) -> Result<i64> {
    let mut result = call();
    for attempt in 0..200 {
        if !is_retried || result != Err(libc::EAGAIN) {
            break;
        }
        std::thread::sleep(Duration::from_micros(10 * attempt));
        result = call();
    }
    result
}

/// Returns whether a descriptor's file has set-id bits.
fn has_set_id(fd: i32) -> bool {
    sys::statx(fd, c"", libc::AT_EMPTY_PATH as u32)
        .is_ok_and(|stat| u32::from(stat.stx_mode) & 0o6000 != 0)
}

/// Returns the descriptor through which a call changes a file's data. In vfscale, the rights at
/// open time decide whether the change clears set-id bits, since a `File` works without a task. In
/// the kernel, the rights of the writing task decide. So the oracle writes with the opener's
/// rights.
fn changed_by(op: &Op) -> Option<i32> {
    match op {
        Op::Write { fd, .. }
        | Op::Pwrite { fd, .. }
        | Op::Writev { fd, .. }
        | Op::CopyRange { to: fd, .. }
        | Op::Ftruncate { fd, .. }
        | Op::Fallocate { fd, .. } => Some(*fd),
        _ => None,
    }
}

/// Makes a link of an open file by its descriptor. Linux requires a capability or the opener's very
/// credentials, as it would not for the file's name in procfs. vfscale has no procfs, and lets
/// every task link its open files.
fn link_open(fd: i32, to_at: i32, to: &CStr) -> Result<Value> {
    match sys::linkat(fd, c"", to_at, to, libc::AT_EMPTY_PATH as u32) {
        Err(libc::ENOENT) => {
            let follow = libc::AT_SYMLINK_FOLLOW as u32;
            unit(sys::linkat(PROC_FD, &proc_link(fd), to_at, to, follow))
        }
        other => unit(other),
    }
}

/// Opens a file without the restrictions of the sysctls `protected_regular` and `protected_fifos`,
/// if they are on: they forbid opening with `O_CREAT` another user's file in a sticky directory.
/// vfscale has no sysctls.
fn open_sticky(flags: u64, open: impl Fn(u64) -> Result<i64>) -> Result<i64> {
    let first = open(flags);
    let create = libc::O_CREAT as u64;
    let maybe = first == Err(libc::EACCES) && flags & create != 0;
    if maybe && (sys::sysctl("protected_regular") || sys::sysctl("protected_fifos")) {
        return open(flags & !create).or(first);
    }
    first
}

fn proc_link(fd: i32) -> CString {
    CString::new(format!("thread-self/fd/{fd}")).unwrap_or_default()
}

fn filled(len: u32, read: impl FnOnce(&mut [u8]) -> Result<i64>) -> Result<Value> {
    let mut buf = vec![0; len as usize];
    let len = read(&mut buf)?;
    buf.truncate(len as usize);
    Ok(Value::Bytes(buf))
}

/// Performs `fallocate`. It emulates `ZERO_RANGE`, which tmpfs lacks: it allocates first, so a
/// failure changes nothing, then punches a hole, then allocates again.
fn fallocate(fd: i32, mode: u32, off: u64, len: u64) -> Result<i64> {
    let keep = libc::FALLOC_FL_KEEP_SIZE as u32;
    let plain = sys::fallocate(fd, mode, off, len);
    if mode & !keep != libc::FALLOC_FL_ZERO_RANGE as u32 || plain != Err(libc::EOPNOTSUPP) {
        return plain;
    }
    sys::fallocate(fd, mode & keep, off, len)?;
    let end = off + len;
    let (first, last) = (off.next_multiple_of(PAGE), end / PAGE * PAGE);
    if first < last {
        sys::fallocate(fd, keep | libc::FALLOC_FL_PUNCH_HOLE as u32, first, last - first)?;
        sys::fallocate(fd, mode & keep, first, last - first)?;
    }
    // A hole in a part of a page would leave the rest of it as data, so zeros are written to
    // partial pages that contain data.
    for (from, to) in [(off, first.min(end)), (last.max(off), end)] {
        let size = sys::statx(fd, c"", libc::AT_EMPTY_PATH as u32)?.stx_size;
        let page = (from / PAGE * PAGE) as i64;
        let pos = sys::lseek(fd, 0, libc::SEEK_CUR)?;
        let is_data = sys::lseek(fd, page, libc::SEEK_DATA).is_ok_and(|data| data == page);
        sys::lseek(fd, pos, libc::SEEK_SET)?;
        if is_data && from < to.min(size) {
            zero(fd, from, to.min(size))?;
        }
    }
    Ok(0)
}

/// Writes zeros at an offset, even if the file is open with `O_APPEND`.
fn zero(fd: i32, from: u64, to: u64) -> Result<()> {
    let flags = sys::fcntl(fd, libc::F_GETFL, 0)? as u64;
    sys::fcntl(fd, libc::F_SETFL, flags & !(libc::O_APPEND as u64))?;
    let written = sys::pwrite(fd, &vec![0; (to - from) as usize], from);
    sys::fcntl(fd, libc::F_SETFL, flags)?;
    written.map(|_| ())
}

fn whence_number(whence: Seek) -> i32 {
    match whence {
        Seek::Set => libc::SEEK_SET,
        Seek::Cur => libc::SEEK_CUR,
        Seek::End => libc::SEEK_END,
        Seek::Data => libc::SEEK_DATA,
        Seek::Hole => libc::SEEK_HOLE,
    }
}

fn timespec(time: Time) -> libc::timespec {
    let (tv_sec, tv_nsec) = match time {
        Time::Omit => (0, libc::UTIME_OMIT),
        Time::Now => (0, libc::UTIME_NOW),
        Time::At(secs, nanos) => (secs, nanos.into()),
    };
    libc::timespec { tv_sec, tv_nsec }
}

fn flock(kind: LockKind, range: LockRange) -> libc::flock {
    let l_type = match kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    libc::flock {
        l_type: l_type as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: range.start,
        l_len: range.len,
        l_pid: 0,
    }
}

fn get_lock(fd: i32, ofd: bool, kind: LockKind, range: LockRange) -> Result<Value> {
    let mut lock = flock(kind, range);
    let cmd = if ofd { libc::F_OFD_GETLK } else { libc::F_GETLK };
    sys::fcntl_lock(fd, cmd, &mut lock)?;
    Ok(Value::Conflict(match i32::from(lock.l_type) {
        libc::F_UNLCK => None,
        kind => Some((u8::from(kind == libc::F_WRLCK), lock.l_start, lock.l_len)),
    }))
}

/// Reads all entries from the start as a set.
fn read_dir(fd: i32) -> Result<Value> {
    sys::lseek(fd, 0, libc::SEEK_SET)?;
    let mut set = BTreeSet::new();
    let found = entries(fd)?;
    // Directory positions differ between file systems, so none remains.
    sys::lseek(fd, 0, libc::SEEK_SET)?;
    for (name, kind) in found {
        if !set.insert((name.clone(), kind)) {
            // Cannot happen; makes a duplicate visible as a difference.
            set.insert((PathArg([&name.0, &b" (twice)"[..]].concat()), kind));
        }
    }
    Ok(Value::Entries(set))
}

/// Reads the entries of a directory from the position of `fd` on, with their types.
#[expect(clippy::host_endian_bytes, reason = "the kernel writes records in the machine's order")]
pub(crate) fn entries(fd: i32) -> Result<Vec<(PathArg, u8)>> {
    let mut entries = Vec::new();
    let mut buf = vec![0u8; 8192];
    loop {
        let len = sys::getdents(fd, &mut buf)? as usize;
        if len == 0 {
            return Ok(entries);
        }
        // Each record has an inode (8 bytes), position (8), record length (2), type (1), name,
        // zero.
        let mut rest = &buf[..len];
        while rest.len() > 19 {
            let record = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
            let name = rest[19..record].split(|&b| b == 0).next().unwrap_or_default();
            entries.push((PathArg(name.to_vec()), rest[18]));
            rest = &rest[record..];
        }
    }
}

fn view(stat: &libc::statx) -> StatView {
    let time = |t: &libc::statx_timestamp| TimeClass::new(t.tv_sec, t.tv_nsec);
    let kind = u32::from(stat.stx_mode) & libc::S_IFMT;
    let (is_link, is_dir) = (kind == libc::S_IFLNK, kind == libc::S_IFDIR);
    StatView {
        mode: stat.stx_mode.into(),
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: libc::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        // vfscale does not count the entries of a directory in its size.
        size: if is_dir { 4096 } else { stat.stx_size },
        // vfscale stores a link's target in memory next to the inode, tmpfs a long one in a page.
        blocks: if is_link { 0 } else { stat.stx_blocks },
        blksize: stat.stx_blksize,
        mount_root: stat.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
        flags: stat.stx_attributes as u32 & SHOWN_FLAGS,
        atime: time(&stat.stx_atime),
        mtime: time(&stat.stx_mtime),
        ctime: time(&stat.stx_ctime),
        ino: Uncompared(stat.stx_ino),
        dev: Uncompared(libc::makedev(stat.stx_dev_major, stat.stx_dev_minor)),
        ctime_exact: Uncompared((stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec)),
    }
}

/// Converts the flags of `statfs` to flags of `mount(2)`.
fn statfs(buf: &sys::StatFs) -> Value {
    let [_, block_size, .., name_max, _, st_flags, _, _, _, _] = *buf;
    let mut flags = st_flags as u64 & (1 | 2 | 4 | 8 | 1024 | 2048);
    if st_flags & 0x1000 != 0 {
        flags |= libc::MS_RELATIME;
    }
    if st_flags & 0x2000 != 0 {
        flags |= MS_NOSYMFOLLOW;
    }
    Value::Statfs(block_size as u64, name_max as u64, flags)
}

/// Switches to another user, through root with every capability, which the saved id 0 permits.
fn set_user(user: usize) -> Result<()> {
    let user = &USERS[user];
    sys::setresuid(0, 0, 0)?;
    sys::set_effective(u64::MAX)?;
    sys::setgroups(user.groups)?;
    sys::setresgid(user.real_gid, user.gid, 0)?;
    sys::setresuid(user.real_uid, user.uid, 0)?;
    match user.caps {
        Caps::All => sys::set_effective(u64::MAX)?,
        Caps::Only(caps) => sys::set_effective(caps)?,
    };
    Ok(())
}
