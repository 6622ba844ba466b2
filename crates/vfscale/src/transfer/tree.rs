//! The side of a copy that is a task's tree.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vfscale_vfs::{
    At, AtFlags, Errno, Error, FallocateFlags, File, FileType, Mode, OFlags, RenameFlags, Result,
    SetTime, Stat, Task, Whence, XattrFlags,
};

use crate::transfer::side::Side;

/// The unit in which contents are compared and written.
const BLOCK: usize = 4096;

/// The tree of a task.
pub(crate) struct InTree<'t>(pub(crate) &'t Task);

/// Returns the directory from which a name starts.
fn dir(at: Option<&File>) -> At<'_> {
    at.map_or(At::Cwd, At::File)
}

impl InTree<'_> {
    fn open(&self, at: Option<&File>, name: &OsStr, flags: OFlags) -> Result<File> {
        self.0.posix().openat(dir(at), name, flags | OFlags::NOFOLLOW, 0o600)
    }

    /// Writes the blocks of `new` that differ from `old`, which a file has at a position; all of
    /// them if `old` is empty. Returns the number of bytes.
    pub(crate) fn write_changed(&self, to: &File, at: u64, new: &[u8], old: &[u8]) -> Result<u64> {
        if old.is_empty() {
            self.write_all_at(to, new, at)?;
            return Ok(new.len() as u64);
        }
        let mut bytes = 0;
        let mut blocks = new.chunks(BLOCK).zip(old.chunks(BLOCK)).enumerate().peekable();
        while let Some((first, (one, _))) = blocks.find(|(_, (one, other))| one != other) {
            let mut end = first * BLOCK + one.len();
            while let Some((_, (one, _))) = blocks.next_if(|(_, (one, other))| one != other) {
                end += one.len();
            }
            self.write_all_at(to, &new[first * BLOCK..end], at + (first * BLOCK) as u64)?;
            bytes += (end - first * BLOCK) as u64;
        }
        Ok(bytes)
    }

    /// Makes a hole of a range of a file, if that has data there.
    pub(crate) fn clear(&self, file: &File, start: u64, end: u64) -> Result<()> {
        let mut at = start;
        while at < end
            && let Some((first, last)) = self.data(file, at)?.filter(|it| it.0 < end)
        {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            file.fallocate(hole, first, last.min(end) - first)?;
            at = last;
        }
        Ok(())
    }
}

impl Side for InTree<'_> {
    type Node = File;

    fn stat(&self, at: Option<&File>, name: &OsStr) -> Result<Stat> {
        self.0.posix().fstatat(dir(at), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn open_dir(&self, at: Option<&File>, name: &OsStr) -> Result<File> {
        self.open(at, name, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn open_file(&self, at: Option<&File>, name: &OsStr) -> Result<File> {
        self.open(at, name, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    fn open_node(&self, at: Option<&File>, name: &OsStr) -> Result<File> {
        self.open(at, name, OFlags::PATH)
    }

    fn stat_of(&self, node: &File) -> Result<Stat> {
        node.stat()
    }

    fn names(&self, dir: &File) -> Result<Vec<OsString>> {
        let names = dir.read_dir().map(|entry| entry.map(|entry| entry.name));
        names.filter(|name| !name.as_ref().is_ok_and(|name| name == "." || name == "..")).collect()
    }

    fn read_link(&self, link: &File) -> Result<PathBuf> {
        self.0.posix().readlinkat(At::File(link), "")
    }

    fn xattrs(&self, node: &File) -> Result<Vec<(OsString, Vec<u8>)>> {
        let (calls, flags) = (self.0.posix(), AtFlags::EMPTY_PATH);
        let names = calls.listxattrat(At::File(node), "", flags)?.into_iter();
        names
            .map(|name| {
                let value = calls.getxattrat(At::File(node), "", &name, flags)?;
                Ok((name, value))
            })
            .collect()
    }

    fn data(&self, file: &File, from: u64) -> Result<Option<(u64, u64)>> {
        let start = match file.seek(Whence::Data(from)) {
            Err(error) if error.errno() == Errno::NXIO => return Ok(None),
            start => start?,
        };
        Ok(Some((start, file.seek(Whence::Hole(start))?)))
    }

    fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> Result<usize> {
        file.pread(buf, offset)
    }

    fn write_all_at(&self, file: &File, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match file.pwrite(&buf[done..], offset + done as u64)? {
                0 => return Err(Error::new("pwrite", Errno::NOSPC)),
                n => done += n,
            }
        }
        Ok(())
    }

    fn set_len(&self, file: &File, bytes: u64) -> Result<()> {
        file.truncate(bytes)
    }

    fn create(&self, at: Option<&File>, name: &OsStr) -> Result<File> {
        self.open(at, name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    fn create_dir(&self, at: Option<&File>, name: &OsStr) -> Result<()> {
        self.0.posix().mkdirat(dir(at), name, 0o700)
    }

    fn symlink(&self, target: &Path, at: Option<&File>, name: &OsStr) -> Result<()> {
        self.0.posix().symlinkat(dir(at), name, target)
    }

    fn hard_link(
        &self,
        (original_at, original): (Option<&File>, &OsStr),
        at: Option<&File>,
        name: &OsStr,
    ) -> Result<()> {
        let calls = self.0.posix();
        calls.linkat(dir(original_at), original, dir(at), name, AtFlags::empty())
    }

    fn rename(&self, at: Option<&File>, name: &OsStr, to: &OsStr) -> Result<()> {
        self.0.posix().renameat2(dir(at), name, dir(at), to, RenameFlags::empty())
    }

    fn unlink(&self, at: Option<&File>, name: &OsStr) -> Result<()> {
        self.0.posix().unlinkat(dir(at), name, AtFlags::empty())
    }

    fn mknod(&self, at: Option<&File>, name: &OsStr, stat: &Stat) -> Result<()> {
        let kind = FileType::from_raw_mode(stat.mode);
        self.0.posix().mknodat(dir(at), name, kind, Mode::from(0o600), stat.rdev)
    }

    fn chown(&self, node: &File, uid: u32, gid: u32) -> Result<()> {
        let flags = AtFlags::EMPTY_PATH;
        self.0.posix().fchownat(At::File(node), "", Some(uid), Some(gid), flags)
    }

    fn chmod(&self, node: &File, mode: u32) -> Result<()> {
        self.0.posix().fchmodat(At::File(node), "", mode, AtFlags::EMPTY_PATH)
    }

    fn set_xattr(&self, node: &File, name: &OsStr, value: &[u8]) -> Result<()> {
        let (how, flags) = (XattrFlags::empty(), AtFlags::EMPTY_PATH);
        self.0.posix().setxattrat(At::File(node), "", name, value, how, flags)
    }

    fn set_times(&self, node: &File, stat: &Stat) -> Result<()> {
        let times = [SetTime::At(stat.atime), SetTime::At(stat.mtime)];
        self.0.posix().utimensat(At::File(node), "", times, AtFlags::EMPTY_PATH)
    }
}
