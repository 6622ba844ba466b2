//! The library in this process: each case a new memory file system, each worker a task.

use std::convert::Infallible;
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use vfscale::{At, AtFlags, File, FileType, Mode, OFlags, RenameFlags, Result, Scaling, Task, Vfs};

use super::{Calls, Meta, Target};
use crate::fault::{Fault, Outcome};

/// A memory file system.
#[derive(Clone)]
pub struct Memory {
    vfs: Vfs,
}

impl Memory {
    /// A new one, whose structures are spread as `scaling` says.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(scaling: Scaling) -> Result<Memory> {
        Ok(Memory { vfs: vfscale::memory().scaling(scaling).build()? })
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// The calls of one task.
#[derive(Debug)]
pub struct MemoryCalls {
    task: Task,
}

impl Target for Memory {
    type Calls = MemoryCalls;

    fn enter(&self) -> Outcome<MemoryCalls> {
        Ok(MemoryCalls { task: self.vfs.task() })
    }
}

#[inline]
fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

#[inline]
fn meta(stat: &vfscale::Stat) -> Meta {
    Meta {
        ino: stat.ino,
        size: stat.size,
        nlink: stat.nlink.into(),
        mtime: stat.mtime.0,
        file_type: stat.file_type(),
    }
}

impl Calls for MemoryCalls {
    type File = File;
    type Map = Infallible;

    fn chdir(&mut self, to: &CStr) -> Result<()> {
        self.task.chdir(path(to))
    }

    #[inline]
    fn open(&self, name: &CStr, flags: OFlags) -> Result<File> {
        self.task.open(path(name), flags, Mode::from_bits_retain(0o644))
    }

    fn mkdir(&self, name: &CStr) -> Result<()> {
        self.task.mkdir(At::Cwd, path(name), Mode::from_bits_retain(0o755))
    }

    #[inline]
    fn unlink(&self, name: &CStr) -> Result<()> {
        self.task.unlink(At::Cwd, path(name), AtFlags::empty())
    }

    fn rmdir(&self, name: &CStr) -> Result<()> {
        self.task.rmdir(At::Cwd, path(name))
    }

    #[inline]
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()> {
        self.task.rename(At::Cwd, path(old), At::Cwd, path(new), RenameFlags::empty())
    }

    #[inline]
    fn link(&self, old: &CStr, new: &CStr) -> Result<()> {
        self.task.link(At::Cwd, path(old), At::Cwd, path(new), AtFlags::empty())
    }

    #[inline]
    fn stat(&self, name: &CStr) -> Result<Meta> {
        Ok(meta(&self.task.stat(At::Cwd, path(name), AtFlags::empty())?))
    }

    #[inline]
    fn lstat(&self, name: &CStr) -> Result<Meta> {
        Ok(meta(&self.task.stat(At::Cwd, path(name), AtFlags::SYMLINK_NOFOLLOW)?))
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
    fn truncate(&self, file: &File, size: u64) -> Result<()> {
        file.truncate(size)
    }

    fn sync(&self, file: &File) -> Result<()> {
        file.sync_all()
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
                // A name has no NUL in it, so this is the whole of it.
                if let Ok(name) = CStr::from_bytes_until_nul(&text) {
                    each(name, entry.file_type);
                }
            }
            ControlFlow::Continue(())
        })
    }

    #[inline]
    fn path_of(&self, file: &File, buf: &mut Vec<u8>) -> Result<()> {
        *buf = self.task.path_of(file)?.into_os_string().into_vec();
        Ok(())
    }

    fn pipe(&self) -> Outcome<(File, File)> {
        Ok(self.task.pipe2(OFlags::empty())?)
    }

    fn socket_pair(&self) -> Outcome<(File, File)> {
        Ok(self.task.socketpair(OFlags::empty())?)
    }

    fn map(&self, _: &File) -> Outcome<Infallible> {
        Err(Fault::unsupported(
            "only a kernel maps files and lists what is mapped; use a `path:` target",
        ))
    }
}
