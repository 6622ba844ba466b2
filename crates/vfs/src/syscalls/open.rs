//! Opening files.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::types::{
    Access, Capabilities, FileType, Mode, MountFlags, OFlags, OpenHow, ResolveFlags,
};
use crate::file::fd_table::Fd;
use crate::file::open_file::File;
use crate::file::{stream, truncate};
use crate::ipc::pipe::Ends;
use crate::locks::WaitToken;
use crate::locks::wait_queue::Waiting;
use crate::namei::lookup::{DriverChange, WalkStop, run_changes};
use crate::namei::walk::{Fail, Last, Lookup, Walk};
use crate::objects::dcache::dentry::DentryRef;
use crate::objects::driver::Reclaimed;
use crate::objects::file_description::FileMode;
use crate::objects::inode::Inode;
use crate::objects::permission::permission;
use crate::objects::super_block::{again_for_space, is_for_space};
use crate::objects::vfsmount::{MountRef, Path, WriteAccess};
use crate::security::cred::Credentials;
use crate::syscalls::create::{self, make_backed, make_backed_unnamed};
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, DirFd, Task, bytes};

/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const TMPFILE_BIT: u32 = OFlags::TMPFILE.bits() & !OFlags::DIRECTORY.bits();

/// Every flag that `openat2` accepts.
const KNOWN: u32 = OFlags::ACCMODE.bits()
    | OFlags::CREATE.bits()
    | OFlags::EXCL.bits()
    | OFlags::NOCTTY.bits()
    | OFlags::TRUNC.bits()
    | OFlags::APPEND.bits()
    | OFlags::NONBLOCK.bits()
    | OFlags::SYNC.bits()
    | OFlags::DSYNC.bits()
    | FASYNC
    | OFlags::DIRECT.bits()
    | LARGEFILE
    | OFlags::DIRECTORY.bits()
    | OFlags::NOFOLLOW.bits()
    | OFlags::NOATIME.bits()
    | OFlags::CLOEXEC.bits()
    | OFlags::PATH.bits()
    | TMPFILE_BIT;

/// Every `RESOLVE_*` limit that `openat2` accepts.
const KNOWN_RESOLVE: ResolveFlags = ResolveFlags::NO_XDEV
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::BENEATH)
    .union(ResolveFlags::IN_ROOT)
    .union(ResolveFlags::CACHED);

const FASYNC: u32 = 0o20000;
const LARGEFILE: u32 = 0o100000;

/// The flags that count with `O_PATH`.
const PATH_FLAGS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The checked arguments of an open.
#[derive(Clone, Copy)]
struct Opening {
    flags: OFlags,
    mode: u32,
    want: Access,
    lookup: Lookup,
}

impl Opening {
    /// Checks the arguments of `open` and `openat`, which ignore meaningless flags.
    fn lenient(flags: OFlags, mode: Mode) -> Outcome<Opening> {
        let mut flags = OFlags::from_bits_retain(flags.bits() & KNOWN);
        if flags.contains(OFlags::PATH) {
            flags &= PATH_FLAGS;
        }
        let makes = flags.contains(OFlags::CREATE) || flags.bits() & TMPFILE_BIT != 0;
        let mode = if makes { mode & Mode::from_bits_retain(0o7777) } else { Mode::empty() };
        Opening::strict(&OpenHow { flags, mode, resolve: ResolveFlags::empty() })
    }

    /// Checks the arguments of `openat2`, which refuses unknown or contradictory flags.
    #[inline]
    fn strict(how: &OpenHow) -> Outcome<Opening> {
        let (flags, mode, resolve) = (how.flags, how.mode, how.resolve);
        let tmpfile = flags.bits() & TMPFILE_BIT != 0;
        let creates = flags.contains(OFlags::CREATE);
        if flags.bits() & !KNOWN != 0 || !KNOWN_RESOLVE.contains(resolve) {
            return Err(Errno::INVAL);
        }
        if resolve.contains(ResolveFlags::BENEATH | ResolveFlags::IN_ROOT) {
            return Err(Errno::INVAL);
        }
        if mode.bits() & !0o7777 != 0 || (!creates && !tmpfile && !mode.is_empty()) {
            return Err(Errno::INVAL);
        }
        if creates && flags.contains(OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        let write_mode = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if tmpfile && (!flags.contains(OFlags::DIRECTORY) || creates || !write_mode) {
            return Err(Errno::INVAL);
        }
        if flags.contains(OFlags::PATH) && !PATH_FLAGS.contains(flags) {
            return Err(Errno::INVAL);
        }
        let cached = resolve.contains(ResolveFlags::CACHED);
        if cached && (flags.intersects(OFlags::TRUNC | OFlags::CREATE) || tmpfile) {
            return Err(Errno::AGAIN);
        }
        let mut want = match flags.bits() & OFlags::ACCMODE.bits() {
            0 => Access::READ,
            1 => Access::WRITE,
            _ => Access::READ | Access::WRITE,
        };
        if flags.contains(OFlags::TRUNC) {
            want |= Access::WRITE;
        }
        if flags.contains(OFlags::PATH) {
            want = Access::empty();
        }
        let mut lookup = Lookup::resolve(resolve);
        let exclusive = creates && flags.contains(OFlags::EXCL);
        lookup.set(Lookup::FOLLOW, !flags.contains(OFlags::NOFOLLOW) && !exclusive);
        lookup.set(Lookup::DIRECTORY, flags.contains(OFlags::DIRECTORY));
        Ok(Opening { flags, mode: mode.bits(), want, lookup })
    }

    fn file_mode(&self, task: &Task, cred: &Credentials, inode: &Inode) -> FileMode {
        let rooted = if task.is_rooted() { FileMode::ROOTED } else { FileMode::empty() };
        if self.flags.contains(OFlags::PATH) {
            return FileMode::PATH | rooted;
        }
        let mode = match self.flags.bits() & OFlags::ACCMODE.bits() {
            0 => FileMode::READ,
            1 => FileMode::WRITE,
            2 => FileMode::READ | FileMode::WRITE,
            _ => FileMode::empty(),
        };
        mode | rooted | truncate::preserved_ids(cred, inode)
    }

    /// Returns the flags that the open file retains.
    fn kept(&self) -> OFlags {
        let once = OFlags::CREATE | OFlags::EXCL | OFlags::NOCTTY | OFlags::TRUNC | OFlags::CLOEXEC;
        // Every file may be large, so the flag has no meaning.
        let flags = self.flags.difference(once | OFlags::from_bits_retain(LARGEFILE));
        // `SYNC` consists of two bits. One is `DSYNC`; the other one alone means both.
        if flags.intersects(OFlags::SYNC) { flags | OFlags::DSYNC } else { flags }
    }
}

impl Calls<'_> {
    /// Opens `path`.
    ///
    /// # Errors
    /// As `open(2)`. Opening a fifo for reading or for writing waits until the other end is opened,
    /// unless `NONBLOCK`. Sockets and devices are nodes only: they open with `O_PATH`, and fail
    /// with `ENXIO` otherwise.
    #[inline]
    pub fn open(
        &self,
        path: impl AsRef<StdPath>,
        flags: OFlags,
        mode: impl Into<Mode>,
    ) -> Result<File> {
        self.openat(At::Cwd, path, flags, mode)
    }

    /// Opens `path`, relative to `at`; see [`open`](Self::open).
    ///
    /// # Errors
    /// As `openat(2)`.
    #[inline]
    pub fn openat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        flags: OFlags,
        mode: impl Into<Mode>,
    ) -> Result<File> {
        let path = path.as_ref();
        self.task.open_lenient(at, bytes(path), flags, mode.into()).on("openat", path)
    }

    /// Opens `path` under the limits of `how`.
    ///
    /// # Errors
    /// As `openat2(2)`.
    pub fn openat2(&self, at: At<'_>, path: impl AsRef<StdPath>, how: &OpenHow) -> Result<File> {
        let path = path.as_ref();
        Opening::strict(how)
            .and_then(|opening| self.task.open_with_space(at, bytes(path), opening))
            .on("openat2", path)
    }

    /// Opens the file of a handle again, as opening `/proc/self/fd/N` does. An `O_PATH` handle
    /// becomes one for reading or writing, if the permissions allow it.
    ///
    /// # Errors
    /// As `open(2)` of the file itself; `ELOOP` for a symbolic link.
    pub fn reopen(&self, file: &File, flags: OFlags) -> Result<File> {
        check_fork().named("open")?;
        self.task.open_place(file.path().clone(), flags, false).named("open")
    }

    /// Opens the file of a handle again, for a server whose client has checked that the file may be
    /// written, at a time when it may not have been immutable or append-only yet. So neither inode
    /// flags nor permissions prevent writing.
    ///
    /// # Errors
    /// As [`reopen`](Self::reopen); `EPERM` without `CAP_SYS_ADMIN`.
    pub fn reopen_permitted(&self, file: &File, flags: OFlags) -> Result<File> {
        let open = || {
            check_fork()?;
            if !self.task.cred(&rcu::pin()).has(Capabilities::SYS_ADMIN) {
                return Err(Errno::PERM);
            }
            let mut opening = Opening::lenient(flags.difference(OFlags::CREATE), Mode::empty())?;
            if file.inode().is_file() {
                opening.want.remove(Access::WRITE);
            }
            self.task.open_known(file.path().clone(), opening, false)
        };
        open().named("open")
    }

    /// Opens `path` and installs it at the lowest free descriptor.
    ///
    /// # Errors
    /// See [`openat2`](Self::openat2); `EMFILE`.
    pub fn open_fd(&self, at: At<'_>, path: impl AsRef<StdPath>, how: &OpenHow) -> Result<Fd> {
        let path = path.as_ref();
        let file = self.openat2(at, path, how)?;
        let close_on_exec = how.flags.contains(OFlags::CLOEXEC);
        self.task.descriptors().install(file, 0, close_on_exec).on("openat2", path)
    }

    /// Opens as [`openat2`](Self::openat2); `token` can interrupt a wait for the other end of a
    /// fifo.
    ///
    /// # Errors
    /// See [`openat2`](Self::openat2); `EINTR` if the token is cancelled.
    pub fn open_interruptible(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        how: &OpenHow,
        token: &WaitToken,
    ) -> Result<File> {
        let path = path.as_ref();
        let open = || {
            let opening = Opening::strict(how)?;
            match self.task.do_open(at, bytes(path), opening) {
                Err(errno) => self.task.open_again(errno, at, bytes(path), opening, Some(token)),
                opened => opened,
            }
        };
        open().on("openat2", path)
    }
}

impl Task {
    fn open_lenient(&self, at: At<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Outcome<File> {
        self.open_with_space(at, path, Opening::lenient(flags, mode)?)
    }

    /// Opens a known path. By handle, the error for a symbolic link precedes the one for a file
    /// that is no directory.
    pub(crate) fn open_place(&self, path: Path, flags: OFlags, by_handle: bool) -> Outcome<File> {
        let opening = Opening::lenient(flags.difference(OFlags::CREATE), Mode::empty())?;
        self.open_known(path, opening, by_handle)
    }

    fn open_known(&self, path: Path, opening: Opening, by_handle: bool) -> Outcome<File> {
        if path.dentry().inode().file_type() == FileType::Fifo
            && !opening.flags.contains(OFlags::PATH)
        {
            self.ns().room_for_file()?;
            return self.open_fifo(path, opening, None);
        }
        let open = || {
            let guard = rcu::pin();
            let path = path.clone();
            let is_link = path.dentry().inode().is_symlink();
            if by_handle && is_link && !opening.flags.contains(OFlags::PATH) {
                return Err(Errno::LOOP.into());
            }
            if opening.lookup.contains(Lookup::DIRECTORY) && !path.dentry().inode().is_dir() {
                return Err(Errno::NOTDIR.into());
            }
            if opening.flags.bits() & TMPFILE_BIT != 0 {
                return self.open_tmpfile(path, opening, self.cred(&guard), &guard);
            }
            self.finish_open(path, opening, self.cred(&guard), &guard)
        };
        let change = |change| self.open_backed(change, opening);
        self.ns().with_room_for_files(|| run_changes(open, change))
    }

    /// Opens, again if it fails for lack of space while freed space is about to become available.
    #[inline]
    fn open_with_space(&self, at: At<'_>, path: &[u8], opening: Opening) -> Outcome<File> {
        match self.do_open(at, path, opening) {
            Ok(file) => Ok(file),
            Err(errno) => self.open_again(errno, at, path, opening, None),
        }
    }

    /// Handles a failed open: repeats it after freeing space or a file slot, or opens a special
    /// file, according to the error. The caller holds nothing.
    #[cold]
    fn open_again(
        &self,
        errno: Errno,
        at: At<'_>,
        path: &[u8],
        opening: Opening,
        token: Option<&WaitToken>,
    ) -> Outcome<File> {
        match errno {
            errno if is_for_space(errno) => {
                let reclaim = || self.reclaim_for(at, path, opening);
                again_for_space(reclaim, || self.do_open(at, path, opening))
            }
            Errno::NXIO => self.open_special(at, path, opening, token),
            // An exclusive creation may have made the file before another thread took the last slot
            // for an open file; repeating it would fail.
            Errno::NFILE if !opening.flags.contains(OFlags::CREATE | OFlags::EXCL) => {
                self.ns().with_room_for_files(|| self.do_open(at, path, opening))
            }
            _ => Err(errno),
        }
    }

    /// Opens a fifo that the caller's walk has found; other special files cannot be opened. Looks
    /// it up again to take a reference, which it holds while it waits. The first walk did not wait.
    fn open_special(
        &self,
        at: At<'_>,
        path: &[u8],
        opening: Opening,
        token: Option<&WaitToken>,
    ) -> Outcome<File> {
        let found = match self.resolve(at, path, opening.lookup) {
            // Another thread removed it, so this open can create the file.
            Err(Errno::NOENT) if opening.flags.contains(OFlags::CREATE) => {
                return self.do_open(at, path, opening);
            }
            found => found?,
        };
        if found.dentry().inode().file_type() == FileType::Fifo {
            return self.open_fifo(found, opening, token);
        }
        drop(found);
        // Another file has the name now, or the special file is no fifo.
        self.do_open(at, path, opening)
    }

    /// Opens a fifo, or an existing pipe again. Waits for the other end, outside of all locks and
    /// sections; `token` interrupts the wait.
    fn open_fifo(&self, path: Path, opening: Opening, token: Option<&WaitToken>) -> Outcome<File> {
        let inode = path.dentry().inode();
        let mode = {
            let guard = rcu::pin();
            let cred = self.cred(&guard);
            if opening.lookup.contains(Lookup::DIRECTORY) {
                return Err(Errno::NOTDIR);
            }
            match may_open(&path, inode, opening, cred, &guard) {
                // `ENXIO` only indicates a special file.
                Ok(()) | Err(Errno::NXIO) => {}
                Err(errno) => return Err(errno),
            }
            opening.file_mode(self, cred, inode)
        };
        let pipe = stream::fifo(inode)?;
        let ends = Ends::of(mode);
        if path.dentry().is_pseudo() {
            pipe.add(ends)?;
        } else {
            let never = opening.flags.contains(OFlags::NONBLOCK);
            pipe.open(ends, Waiting { never, token, until: None })?;
        }
        let file = File::new_stream(path, mode, opening.kept())?;
        // Linux checks this last. A pipe is in packet mode only if it was created so, or switched
        // later.
        if opening.flags.contains(OFlags::DIRECT) { Err(Errno::INVAL) } else { Ok(file) }
    }

    #[cold]
    fn reclaim_for(&self, at: At<'_>, path: &[u8], opening: Opening) -> Reclaimed {
        if opening.flags.bits() & TMPFILE_BIT == 0 {
            return self.reclaim_at(at, path, opening.lookup);
        }
        // The path of a file without a name is that of its directory.
        let dir = self.resolve(at, path, opening.lookup);
        dir.map(|dir| dir.dentry().inode().sb().fs().reclaim()).unwrap_or_default()
    }

    #[inline]
    fn do_open(&self, at: At<'_>, path: &[u8], opening: Opening) -> Outcome<File> {
        if opening.flags.contains(OFlags::CREATE) {
            // Checked before the file is made.
            self.ns().room_for_file()?;
        }
        let base = self.base(at);
        run_changes(
            || self.open_from(&base, path, &opening),
            |change| self.open_backed(change, opening),
        )
    }

    /// Runs the part of an open that a backed driver performs; see [`crate::namei::dir_ops`].
    #[cold]
    fn open_backed(&self, change: DriverChange, opening: Opening) -> Outcome<Option<File>> {
        let mode = FileType::RegularFile.as_raw_mode() | opening.mode;
        let (mount, dentry, write) = match change {
            DriverChange::Name(at, write) => {
                let what = create::MknodArgs { mode, rdev: 0, target: None };
                let Some(dentry) = make_backed(self, &at, &what)? else { return Ok(None) };
                (at.into_dir().into_mount(), dentry, write)
            }
            DriverChange::Place(dir, write) => {
                let linkable = !opening.flags.contains(OFlags::EXCL);
                let dentry = make_backed_unnamed(self, &dir, mode, linkable)?;
                (dir.into_mount(), dentry, write)
            }
            DriverChange::Opened(file, _write) => {
                truncate::truncate_inode(file.inode(), 0, file.mode(), true)?;
                file.0.changed();
                return Ok(Some(file));
            }
            DriverChange::Names(..) => return Ok(None),
        };
        let mut opening = opening;
        opening.flags.remove(OFlags::TRUNC);
        open_made(self, mount, dentry, write, opening, self.cred(&rcu::pin())).map(Some)
    }

    /// Opens `path` from `base`. Reads `opening` by reference: a copy would stall on stores of
    /// other sizes that precede it.
    #[inline]
    fn open_from(
        &self,
        base: &DirFd,
        path: &[u8],
        opening: &Opening,
    ) -> std::result::Result<File, WalkStop> {
        let guard = rcu::pin();
        let cred = self.cred(&guard);
        if opening.flags.bits() & TMPFILE_BIT != 0 {
            let dir = self.walk(base, path, opening.lookup, &guard, |walk| {
                let pos = walk.lookup()?;
                walk.keep(pos)
            })?;
            return self.open_tmpfile(dir, *opening, cred, &guard);
        }
        if !opening.flags.contains(OFlags::CREATE) {
            let path = self.walk(base, path, opening.lookup, &guard, |walk| {
                let pos = walk.lookup()?;
                walk.keep(pos)
            })?;
            return self.finish_open(path, *opening, cred, &guard);
        }
        self.walk(base, path, opening.lookup, &guard, |walk| {
            match self.open_or_create(walk, *opening)? {
                OpenTarget::Made(mount, dentry, write) => {
                    let mut opening = *opening;
                    opening.flags.remove(OFlags::TRUNC);
                    Ok(open_made(self, mount, dentry, write, opening, cred)?)
                }
                OpenTarget::There(_) if opening.flags.contains(OFlags::EXCL) => {
                    Err(Errno::EXIST.into())
                }
                OpenTarget::There(path) if path.dentry().inode().is_dir() => {
                    Err(Errno::ISDIR.into())
                }
                OpenTarget::There(path) => Ok(self.finish_open(path, *opening, cred, &guard)?),
            }
        })
    }

    /// Finds or makes the last name of an open with `O_CREAT`. Inlined, so the result is not copied
    /// in parts.
    #[inline(always)]
    fn open_or_create<'g>(
        &self,
        walk: &mut Walk<'g>,
        opening: Opening,
    ) -> std::result::Result<OpenTarget<'g>, Fail> {
        loop {
            let slash = match walk.walk_to_last()? {
                Last::Name(slash) => slash,
                last => {
                    if last == Last::DotDot {
                        walk.up()?;
                    }
                    return Ok(OpenTarget::There(walk.keep(walk.cur())?));
                }
            };
            if slash {
                return Err(Errno::ISDIR.into());
            }
            let child = match walk.child(walk.name()) {
                Ok(child) => child,
                Err(missed) => {
                    let may_make = || create::may_create(walk, walk.cur());
                    return Err(create::defer_unknown(walk, missed, may_make));
                }
            };
            match child {
                Some(child) if child.inode().is_symlink() => {
                    if opening.lookup.contains(Lookup::FOLLOW) {
                        walk.follow_last(child, slash)?;
                        continue;
                    }
                    check_sticky_create(walk.cur().inode(), child.inode(), opening, walk.cred())?;
                    return Ok(OpenTarget::There(walk.keep(child)?));
                }
                Some(child) => {
                    check_sticky_create(walk.cur().inode(), child.inode(), opening, walk.cred())?;
                    return Ok(OpenTarget::There(walk.keep(child)?));
                }
                None => return self.create_open(walk, opening),
            }
        }
    }

    /// Makes the file of an open with `O_CREAT`. Inlined, as
    /// [`open_or_create`](Self::open_or_create).
    #[inline(always)]
    fn create_open<'g>(
        &self,
        walk: &Walk<'g>,
        opening: Opening,
    ) -> std::result::Result<OpenTarget<'g>, Fail> {
        let dir = walk.cur();
        let guard = walk.guard();
        if dir.inode().is_dead() {
            return Err(Errno::NOENT.into());
        }
        let mount = walk.hold_mount(dir.mount)?;
        let write = WriteAccess::in_section(dir.mount, guard)?;
        permission(dir.inode(), walk.cred(), Access::WRITE | Access::EXEC, guard)?;
        if dir.dentry.is_partial() {
            return Err(create::defer_new(walk, dir, write));
        }
        let what = create::MknodArgs {
            mode: FileType::RegularFile.as_raw_mode() | opening.mode,
            rdev: 0,
            target: None,
        };
        match create::make(dir.dentry, walk.name(), &what, walk.cred(), self.mask(), guard) {
            Ok(dentry) => Ok(OpenTarget::Made(mount, dentry, write)),
            // Another thread made the file first: the retry opens it.
            Err(Errno::EXIST) => Err(Fail::Retry),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes a file without a name in `dir`.
    fn open_tmpfile(
        &self,
        dir: Path,
        opening: Opening,
        cred: &Credentials,
        guard: &Guard,
    ) -> std::result::Result<File, WalkStop> {
        let write = WriteAccess::in_section(dir.mount(), guard)?;
        let inode = dir.dentry().inode();
        permission(inode, cred, Access::WRITE | Access::EXEC, guard)?;
        if inode.is_backed() {
            let write = write.keep(dir.mount_ref());
            return Err(DriverChange::Place(dir, write).into());
        }
        let linkable = !opening.flags.contains(OFlags::EXCL);
        let mode = FileType::RegularFile.as_raw_mode() | opening.mode;
        let dentry = create::make_unnamed(dir.dentry(), mode, cred, self.mask(), linkable, guard)?;
        let mut opening = opening;
        opening.flags.remove(OFlags::TRUNC);
        Ok(open_made(self, dir.mount_ref(), dentry, write, opening, cred)?)
    }

    /// Opens an existing path: checks type and permission, and truncates.
    fn finish_open(
        &self,
        path: Path,
        opening: Opening,
        cred: &Credentials,
        guard: &Guard,
    ) -> std::result::Result<File, WalkStop> {
        let mode = opening.file_mode(self, cred, path.dentry().inode());
        if mode.contains(FileMode::PATH) {
            return Ok(File::new(path, mode, opening.kept())?);
        }
        let inode = path.dentry().inode();
        let truncates = opening.flags.contains(OFlags::TRUNC) && inode.is_file();
        // The path, then the open file, holds the mount; or it stays for the RCU section.
        let mount = path.borrow(guard).mount;
        let truncating = truncates.then(|| WriteAccess::in_section(mount, guard)).transpose()?;
        may_open(&path, inode, opening, cred, guard)?;
        let writes = mode.contains(FileMode::WRITE);
        let opening_for_write =
            writes.then(|| WriteAccess::in_section(mount, guard)).transpose()?;
        let file = File::new(path, mode, opening.kept())?;
        // The list of open files has the file now, and shows that it is open for writing.
        drop(opening_for_write);
        if let Some(write) = truncating {
            // Truncation waits for other writers or for a disk, so it cannot run in this section.
            let write = write.keep(file.path().mount_ref());
            return Err(DriverChange::Opened(file, write).into());
        }
        Ok(file)
    }
}

/// The result of the last step of an open with `O_CREAT`.
enum OpenTarget<'g> {
    There(Path),
    Made(MountRef, DentryRef, WriteAccess<'g>),
}

/// Opens a file that was just made. Its creator gets the access that it requested, whatever the
/// mode.
fn open_made<W>(
    task: &Task,
    mount: MountRef,
    dentry: DentryRef,
    write: W,
    opening: Opening,
    cred: &Credentials,
) -> Outcome<File> {
    let mode = opening.file_mode(task, cred, dentry.inode());
    let file = File::new(Path::new(mount, dentry), mode, opening.kept())?;
    // The list of open files has the file now, and shows that it is open for writing.
    drop(write);
    Ok(file)
}

/// Refuses to open with `O_CREAT`, in a sticky directory that all may write, a link, socket or
/// device of another owner. (Linux extends this to files and fifos on request.)
fn check_sticky_create(
    dir: &Inode,
    found: &Inode,
    opening: Opening,
    cred: &Credentials,
) -> Outcome<()> {
    if dir.special_bits() & 0o1000 == 0 {
        return Ok(());
    }
    let open_to_all = dir.mode() & 0o0002 != 0;
    let plain =
        matches!(found.file_type(), FileType::RegularFile | FileType::Fifo | FileType::Directory);
    let trusted = found.uid() == dir.uid() || found.uid() == cred.uid;
    let refused = open_to_all && !plain && !trusted && !opening.flags.contains(OFlags::EXCL);
    if refused { Err(Errno::ACCESS) } else { Ok(()) }
}

/// Checks type and permission of an open, in the order of Linux.
fn may_open(
    path: &Path,
    inode: &Inode,
    opening: Opening,
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<()> {
    let writes = opening.want.contains(Access::WRITE);
    match inode.file_type() {
        FileType::Symlink => return Err(Errno::LOOP),
        FileType::Directory if writes => return Err(Errno::ISDIR),
        FileType::CharacterDevice | FileType::BlockDevice
            if path.mount().flags().contains(MountFlags::NODEV) =>
        {
            return Err(Errno::ACCESS);
        }
        _ => {}
    }
    let special = !matches!(inode.file_type(), FileType::RegularFile | FileType::Directory);
    if writes && !special && path.mount().sb().flags().contains(MountFlags::RDONLY) {
        return Err(Errno::ROFS);
    }
    permission(inode, cred, opening.want, guard)?;
    if writes && inode.is_append() {
        let overwrites =
            opening.flags.intersects(OFlags::ACCMODE) && !opening.flags.contains(OFlags::APPEND);
        if overwrites || opening.flags.contains(OFlags::TRUNC) {
            return Err(Errno::PERM);
        }
    }
    if opening.flags.contains(OFlags::NOATIME) && !cred.owns(inode) {
        return Err(Errno::PERM);
    }
    if inode.is_dir() && opening.flags.contains(OFlags::DIRECT) {
        return Err(Errno::INVAL);
    }
    if special { Err(Errno::NXIO) } else { Ok(()) }
}
