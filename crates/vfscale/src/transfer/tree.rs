//! The side of a copy that is a task's tree.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vfscale_vfs::{
    At, AtFlags, Errno, Error, File, FileType, Mode, OFlags, Result, SetTime, Stat, Task, Whence,
    XattrFlags,
};

use crate::transfer::side::Side;

const NOFOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

/// The tree of a task.
pub(super) struct InTree<'t>(pub(super) &'t Task);

/// Replaces what an error says about the place by the path.
fn at(path: &Path) -> impl Fn(Error) -> Error {
    move |error| Error::at(error.call(), error.errno(), path)
}

impl Side for InTree<'_> {
    type File = File;

    fn stat(&self, path: &Path) -> Result<Stat> {
        self.0.symlink_metadata(path).map(Stat::from)
    }

    fn names(&self, path: &Path) -> Result<Vec<OsString>> {
        self.0.read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.0.read_link(path)
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
        let names = self.0.posix().listxattrat(At::Cwd, path, NOFOLLOW)?.into_iter();
        names
            .map(|name| {
                let value = self.0.posix().getxattrat(At::Cwd, path, &name, NOFOLLOW)?;
                Ok((name, value))
            })
            .collect()
    }

    fn open(&self, path: &Path) -> Result<File> {
        self.0.posix().open(path, OFlags::RDONLY | OFlags::NOFOLLOW, 0)
    }

    fn data(&self, file: &File, path: &Path, from: u64) -> Result<Option<(u64, u64)>> {
        let start = match file.seek(Whence::Data(from)) {
            Err(error) if error.errno() == Errno::NXIO => return Ok(None),
            start => start.map_err(at(path))?,
        };
        Ok(Some((start, file.seek(Whence::Hole(start)).map_err(at(path))?)))
    }

    fn read_at(&self, file: &File, path: &Path, buf: &mut [u8], offset: u64) -> Result<usize> {
        file.pread(buf, offset).map_err(at(path))
    }

    fn create(&self, path: &Path) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        self.0.posix().open(path, flags, 0o600)
    }

    fn write_all_at(&self, file: &File, path: &Path, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match file.pwrite(&buf[done..], offset + done as u64).map_err(at(path))? {
                0 => return Err(Error::at("pwrite", Errno::NOSPC, path)),
                n => done += n,
            }
        }
        Ok(())
    }

    fn set_len(&self, file: &File, path: &Path, bytes: u64) -> Result<()> {
        file.truncate(bytes).map_err(at(path))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.0.posix().mkdirat(At::Cwd, path, 0o700)
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        self.0.symlink(target, path)
    }

    fn hard_link(&self, original: &Path, path: &Path) -> Result<()> {
        self.0.hard_link(original, path)
    }

    fn mknod(&self, path: &Path, stat: &Stat) -> Result<()> {
        let kind = FileType::from_raw_mode(stat.mode);
        self.0.posix().mknodat(At::Cwd, path, kind, Mode::from(0o600), stat.rdev)
    }

    fn chown(&self, path: &Path, uid: u32, gid: u32) -> Result<()> {
        self.0.posix().fchownat(At::Cwd, path, Some(uid), Some(gid), NOFOLLOW)
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        self.0.set_permissions(path, mode)
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8]) -> Result<()> {
        self.0.posix().setxattrat(At::Cwd, path, name, value, XattrFlags::empty(), NOFOLLOW)
    }

    fn set_times(&self, path: &Path, stat: &Stat) -> Result<()> {
        let times = [SetTime::At(stat.atime), SetTime::At(stat.mtime)];
        self.0.posix().utimensat(At::Cwd, path, times, NOFOLLOW)
    }
}
