//! The library in this process: a tree, and the calls of a task in it.

use std::ffi::{CStr, OsStr};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use vfscale::posix::{
    At, AtFlags, FallocateFlags, FileHandle, MountFlags, OFlags, SetTime, SocketType, UmountFlags,
};
use vfscale::{File, FileType, Mode, Result, Task, Timestamp, Vfs};

use super::calls::{Calls, Meta};
use crate::base::error::Outcome;

/// The calls of one task.
#[derive(Debug)]
pub struct TaskCalls(Task);

impl TaskCalls {
    /// Returns the calls of a new task, at the root of the tree.
    pub(super) fn new(vfs: &Vfs) -> TaskCalls {
        TaskCalls(vfs.task())
    }
}

/// The handle of a file, and an open directory of its file system.
#[derive(Debug)]
pub struct TaskHandle {
    place: File,
    handle: FileHandle,
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
    type Handle = TaskHandle;

    fn chdir(&mut self, to: &CStr) -> Result<()> {
        self.0.posix().chdir(path(to))
    }

    #[inline]
    fn open(&self, name: &CStr, flags: OFlags) -> Result<File> {
        self.0.posix().open(path(name), flags, Mode::from(0o644))
    }

    fn mkdir(&self, name: &CStr) -> Result<()> {
        self.0.create_dir(path(name))
    }

    #[inline]
    fn unlink(&self, name: &CStr) -> Result<()> {
        self.0.remove_file(path(name))
    }

    fn rmdir(&self, name: &CStr) -> Result<()> {
        self.0.remove_dir(path(name))
    }

    #[inline]
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()> {
        self.0.rename(path(old), path(new))
    }

    #[inline]
    fn link(&self, old: &CStr, new: &CStr) -> Result<()> {
        self.0.hard_link(path(old), path(new))
    }

    #[inline]
    fn stat(&self, name: &CStr) -> Result<Meta> {
        Ok(meta(&self.0.posix().fstatat(At::Cwd, path(name), AtFlags::empty())?))
    }

    #[inline]
    fn lstat(&self, name: &CStr) -> Result<Meta> {
        Ok(meta(&self.0.posix().fstatat(At::Cwd, path(name), AtFlags::SYMLINK_NOFOLLOW)?))
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
        self.0.posix().utimensat(At::File(file), "", times, AtFlags::EMPTY_PATH)
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
        *buf = self.0.posix().path_of(file)?.into_os_string().into_vec();
        Ok(())
    }

    fn pipe(&self) -> Outcome<(File, File)> {
        Ok(self.0.posix().pipe2(OFlags::empty())?)
    }

    fn socket_pair(&self) -> Outcome<(File, File)> {
        Ok(self.0.posix().socketpair(SocketType::Stream, OFlags::empty())?)
    }

    fn handle(&self, name: &CStr) -> Outcome<TaskHandle> {
        let place = self.open(c".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let calls = self.0.posix();
        Ok(TaskHandle {
            place,
            handle: calls.name_to_handle_at(At::Cwd, path(name), AtFlags::empty())?,
        })
    }

    #[inline]
    fn open_handle(&self, of: &TaskHandle, flags: OFlags) -> Outcome<File> {
        Ok(self.0.posix().open_by_handle_at(&of.place, &of.handle, flags)?)
    }

    fn bind(&self, source: &CStr, target: &CStr) -> Outcome<()> {
        Ok(self.0.posix().bind(path(source), path(target), false)?)
    }

    fn umount(&self, target: &CStr) -> Outcome<()> {
        Ok(self.0.posix().umount(path(target), UmountFlags::empty())?)
    }

    fn remount(&self, read_only: bool) -> Outcome<()> {
        let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        Ok(self.0.posix().remount("/", flags)?)
    }

    fn drop_cached(&self, dir: &CStr) -> Outcome<u64> {
        Ok(self.0.posix().drop_cached(At::Cwd, path(dir))? as u64)
    }
}
