//! The library in this process: a tree, and the calls of a task in it.
//!
//! The mappings of a worker are read from a file of the introspection driver. That driver has a
//! tree of its own, so the tree of a case contains only the case's files.

use std::ffi::{CStr, OsStr};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::posix::{
    At, AtFlags, FallocateFlags, FileHandle, MountFlags, OFlags, SetTime, SocketType,
};
use vfscale::posix::{PAGE_BYTES, Protection, Sharing, Source, UmountFlags};
use vfscale::{Error, File, FileType, Mode, ProcFs, Result, Scaling, Task, Timestamp, Vfs};

use super::calls::{Calls, Meta};
use crate::base::error::Outcome;

/// Address of the first mapped file.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// A tree that cases work in.
#[derive(Clone)]
pub struct Tree {
    vfs: Vfs,
    /// The introspection driver of the tree.
    state: Arc<ProcFs>,
    /// The tree in which that driver is mounted.
    state_vfs: Vfs,
}

impl Tree {
    /// Wraps the tree of a file system with these scaling settings.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the introspection driver.
    pub fn new(vfs: Vfs, scaling: Scaling) -> Result<Tree> {
        let state = ProcFs::new(&vfs);
        let state_vfs = Vfs::with_scaling(state.clone(), scaling)
            .map_err(|errno| Error::new("mount", errno))?;
        Ok(Tree { vfs, state, state_vfs })
    }

    /// Returns the calls of a new task, at the root.
    #[must_use]
    pub fn enter(&self) -> TaskCalls {
        let task = Arc::new(self.vfs.task());
        self.state.show(&task);
        let (reader, next_address) = (self.state_vfs.task(), AtomicU64::new(FIRST_ADDRESS));
        TaskCalls { task, reader, next_address }
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").finish_non_exhaustive()
    }
}

/// The calls of one task.
#[derive(Debug)]
pub struct TaskCalls {
    task: Arc<Task>,
    /// A task that reads the introspection driver.
    reader: Task,
    /// Address of the next mapped file.
    next_address: AtomicU64,
}

/// A file that a task has mapped.
#[derive(Debug)]
pub struct TaskMap {
    task: Arc<Task>,
    address: u64,
}

/// The handle of a file, and an open directory of its file system.
#[derive(Debug)]
pub struct TaskHandle {
    place: File,
    handle: FileHandle,
}

impl Drop for TaskMap {
    fn drop(&mut self) {
        // Unmapping a mapped page can't fail.
        let _ = self.task.posix().munmap(self.address, PAGE_BYTES);
    }
}

#[inline]
fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

#[inline]
fn meta(stat: &vfscale::posix::Stat) -> Meta {
    Meta {
        ino: stat.ino,
        size: stat.size,
        nlink: stat.nlink.into(),
        mtime: stat.mtime.0,
        file_type: stat.file_type(),
    }
}

impl Calls for TaskCalls {
    type File = File;
    type Map = TaskMap;
    type Handle = TaskHandle;

    fn chdir(&mut self, to: &CStr) -> Result<()> {
        self.task.posix().chdir(path(to))
    }

    #[inline]
    fn open(&self, name: &CStr, flags: OFlags) -> Result<File> {
        self.task.posix().open(path(name), flags, Mode::from(0o644))
    }

    fn mkdir(&self, name: &CStr) -> Result<()> {
        self.task.create_dir(path(name))
    }

    #[inline]
    fn unlink(&self, name: &CStr) -> Result<()> {
        self.task.remove_file(path(name))
    }

    fn rmdir(&self, name: &CStr) -> Result<()> {
        self.task.remove_dir(path(name))
    }

    #[inline]
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()> {
        self.task.rename(path(old), path(new))
    }

    #[inline]
    fn link(&self, old: &CStr, new: &CStr) -> Result<()> {
        self.task.hard_link(path(old), path(new))
    }

    #[inline]
    fn stat(&self, name: &CStr) -> Result<Meta> {
        Ok(meta(&self.task.posix().fstatat(At::Cwd, path(name), AtFlags::empty())?))
    }

    #[inline]
    fn lstat(&self, name: &CStr) -> Result<Meta> {
        Ok(meta(&self.task.posix().fstatat(At::Cwd, path(name), AtFlags::SYMLINK_NOFOLLOW)?))
    }

    #[inline]
    fn fstat(&self, file: &File) -> Result<Meta> {
        Ok(meta(&file.stat()?))
    }

    #[inline]
    fn pread(&self, file: &File, buf: &mut [u8], offset: u64) -> Result<usize> {
        file.pread(buf, offset)
    }

    #[inline]
    fn pwrite(&self, file: &File, buf: &[u8], offset: u64) -> Result<usize> {
        file.pwrite(buf, offset)
    }

    #[inline]
    fn read(&self, file: &File, buf: &mut [u8]) -> Result<usize> {
        file.read(buf)
    }

    #[inline]
    fn write(&self, file: &File, buf: &[u8]) -> Result<usize> {
        file.write(buf)
    }

    #[inline]
    fn truncate(&self, file: &File, size: u64) -> Result<()> {
        file.truncate(size)
    }

    #[inline]
    fn punch(&self, file: &File, offset: u64, len: u64) -> Result<()> {
        file.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
    }

    #[inline]
    fn touch(&self, file: &File, mtime: i64) -> Result<()> {
        let times = [SetTime::Omit, SetTime::At(Timestamp(mtime))];
        self.task.posix().utimensat(At::File(file), "", times, AtFlags::EMPTY_PATH)
    }

    fn sync(&self, file: &File) -> Result<()> {
        file.sync_all()
    }

    fn sync_fs(&self, file: &File) -> Result<()> {
        file.sync_fs()
    }

    fn list(&self, name: &CStr, mut each: impl FnMut(&CStr, FileType)) -> Result<()> {
        let dir = self.open(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut text = Vec::with_capacity(256);
        dir.read_dir_at(0, |entry| {
            let bytes = entry.name.as_bytes();
            if bytes != b"." && bytes != b".." {
                text.clear();
                text.extend_from_slice(bytes);
                text.push(0);
                // A name contains no NUL, so this is the whole name.
                if let Ok(name) = CStr::from_bytes_until_nul(&text) {
                    each(name, entry.file_type);
                }
            }
            ControlFlow::Continue(())
        })
    }

    #[inline]
    fn path_of(&self, file: &File, buf: &mut Vec<u8>) -> Result<()> {
        *buf = self.task.posix().path_of(file)?.into_os_string().into_vec();
        Ok(())
    }

    fn pipe(&self) -> Outcome<(File, File)> {
        Ok(self.task.posix().pipe2(OFlags::empty())?)
    }

    fn socket_pair(&self) -> Outcome<(File, File)> {
        Ok(self.task.posix().socketpair(SocketType::Stream, OFlags::empty())?)
    }

    fn map(&self, file: &File) -> Outcome<TaskMap> {
        // Every other page: adjacent mappings of one file would show as one line.
        let address = self.next_address.fetch_add(2 * PAGE_BYTES, Ordering::Relaxed);
        let source = Source::File { file, offset: 0 };
        self.task.posix().mmap(address, PAGE_BYTES, Protection::READ, Sharing::Shared, source)?;
        Ok(TaskMap { task: self.task.clone(), address })
    }

    fn read_maps(&self, buf: &mut Vec<u8>) -> Outcome<()> {
        *buf = self.reader.read(format!("/tasks/{}/maps", self.task.id()))?;
        Ok(())
    }

    fn handle(&self, name: &CStr) -> Outcome<TaskHandle> {
        let place = self.open(c".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let calls = self.task.posix();
        Ok(TaskHandle {
            place,
            handle: calls.name_to_handle_at(At::Cwd, path(name), AtFlags::empty())?,
        })
    }

    #[inline]
    fn open_handle(&self, of: &TaskHandle, flags: OFlags) -> Outcome<File> {
        Ok(self.task.posix().open_by_handle_at(&of.place, &of.handle, flags)?)
    }

    fn bind(&self, source: &CStr, target: &CStr) -> Outcome<()> {
        Ok(self.task.posix().bind(path(source), path(target), false)?)
    }

    fn umount(&self, target: &CStr) -> Outcome<()> {
        Ok(self.task.posix().umount(path(target), UmountFlags::empty())?)
    }

    fn remount(&self, read_only: bool) -> Outcome<()> {
        let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        Ok(self.task.posix().remount("/", flags)?)
    }

    fn drop_cached(&self, dir: &CStr) -> Outcome<u64> {
        Ok(self.task.posix().drop_cached(At::Cwd, path(dir))? as u64)
    }
}
