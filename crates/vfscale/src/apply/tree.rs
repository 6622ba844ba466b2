//! The tree that a layer or a patch changes, by names that are not trusted.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale_vfs::{
    At, AtFlags, Errno, File, FileType, InodeFlags, OFlags, SetTime, Stat, Task, Timestamp,
};

use super::stop::Stop;
use crate::transfer::side::Side;
use crate::transfer::tree::InTree;

/// The longest path, in bytes.
const PATH_MAX: usize = 4095;
/// The longest name, in bytes.
const NAME_MAX: usize = 255;

/// Returns a name of the input as a path from the root, without a slash at the beginning.
///
/// # Errors
/// A reason for names that lead elsewhere, or that no file can have.
pub(super) fn clean(name: &[u8]) -> Result<PathBuf, Stop> {
    if name.starts_with(b"/") {
        return Err("its name is absolute".into());
    }
    if name.len() > PATH_MAX {
        return Err("its name is longer than 4095 bytes".into());
    }
    let mut path = PathBuf::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err("its name has ..".into()),
            part if part.contains(&0) => return Err("its name has a zero byte".into()),
            part if part.len() > NAME_MAX => {
                return Err("its name has a part longer than 255 bytes".into());
            }
            part => path.push(OsStr::from_bytes(part)),
        }
    }
    Ok(path)
}

/// Returns the directory of a path, and the name in it; `None` for the root.
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    path.parent().zip(path.file_name())
}

/// The tree of a fork.
pub(super) struct Tree<'t> {
    pub(super) task: &'t Task,
    root: File,
    /// The directory that was used last.
    last: (PathBuf, File),
    /// The directories that were made because a file in them came first.
    pub(super) implied: Vec<PathBuf>,
    /// The flags that files get in the end.
    flags: BTreeMap<PathBuf, InodeFlags>,
    /// The times that directories get in the end.
    times: BTreeMap<PathBuf, i64>,
}

impl<'t> Tree<'t> {
    pub(super) fn new(task: &'t Task) -> Result<Self, Stop> {
        let root = task.posix().open("/", OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let (flags, times, implied) = Default::default();
        let last = (PathBuf::new(), root.clone());
        let mut tree = Self { task, root: root.clone(), last, implied, flags, times };
        tree.unguard(&root, Path::new(""))?;
        Ok(tree)
    }

    pub(super) fn calls(&self) -> InTree<'t> {
        InTree(self.task)
    }

    /// Opens a directory, and makes it if it is missing.
    pub(super) fn dir(&mut self, path: &Path) -> Result<File, Stop> {
        if self.last.0 == path {
            return Ok(self.last.1.clone());
        }
        let (mut at, mut above) = (self.root.clone(), PathBuf::new());
        for name in path {
            above.push(name);
            at = match self.calls().open_dir(Some(&at), name) {
                Err(error) if error.errno() == Errno::NOENT => {
                    self.calls().create_dir(Some(&at), name)?;
                    let made = self.calls().open_dir(Some(&at), name)?;
                    self.calls().chmod(&made, 0o755)?;
                    self.implied.push(above.clone());
                    made
                }
                Err(error) if matches!(error.errno(), Errno::LOOP | Errno::NOTDIR) => {
                    let what = "a directory on its way is a symbolic link or another file".into();
                    return Err(Stop { what, errno: error.errno() });
                }
                opened => opened?,
            };
            self.unguard(&at, &above)?;
        }
        self.last = (path.to_owned(), at.clone());
        Ok(at)
    }

    /// Returns what has a path; `None` if nothing has, or something on the way is no directory.
    pub(super) fn stat(&self, path: &Path) -> Result<Option<Stat>, Stop> {
        let Some((dir, name)) = split(path) else { return Ok(Some(self.root.stat()?)) };
        let is_none = |errno| matches!(errno, Errno::NOENT | Errno::LOOP | Errno::NOTDIR);
        match self.there(dir) {
            Err(stop) if is_none(stop.errno) => Ok(None),
            dir => self.stat_in(&dir?, name),
        }
    }

    /// Opens a directory that is there.
    pub(super) fn there(&self, path: &Path) -> Result<File, Stop> {
        let mut at = self.root.clone();
        for name in path {
            at = self.calls().open_dir(Some(&at), name)?;
        }
        Ok(at)
    }

    /// Returns what has a name in a directory, if something has.
    pub(super) fn stat_in(&self, dir: &File, name: &OsStr) -> Result<Option<Stat>, Stop> {
        match self.calls().stat(Some(dir), name) {
            Err(error) if error.errno() == Errno::NOENT => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Lets a file be changed whose flags forbid that, and notes that it gets these back.
    pub(super) fn unguard(&mut self, file: &File, path: &Path) -> Result<InodeFlags, Stop> {
        let flags = self.task.posix().ioctl_getflags(file)?;
        if flags.intersects(InodeFlags::PRIVILEGED) {
            let open = flags.difference(InodeFlags::PRIVILEGED);
            self.task.posix().ioctl_setflags(file, open)?;
            self.flags.entry(path.to_owned()).or_insert(flags);
        }
        Ok(flags)
    }

    /// Sets the flags that a file gets in the end, which has others now.
    pub(super) fn set_flags(&mut self, path: &Path, flags: InodeFlags) {
        self.flags.insert(path.to_owned(), flags);
    }

    /// Returns whether a file gets other flags in the end than it has.
    pub(super) fn has_flags(&self, path: &Path) -> bool {
        self.flags.contains_key(path)
    }

    /// Sets the time that a directory gets in the end.
    pub(super) fn set_time(&mut self, path: &Path, mtime: i64) {
        self.times.insert(path.to_owned(), mtime);
    }

    /// Removes whatever has a name in a directory, with all that is below it. Returns whether
    /// something had.
    pub(super) fn remove(&mut self, dir: &File, name: &OsStr, path: &Path) -> Result<bool, Stop> {
        let Some(stat) = self.stat_in(dir, name)? else { return Ok(false) };
        self.forget(path);
        if stat.file_type() != FileType::Directory {
            self.unlink(dir, name, &stat)?;
            return Ok(true);
        }
        let mut line: Vec<(File, OsString, File, Vec<OsString>)> = Vec::new();
        line.push(self.level(dir, name)?);
        while let Some((above, name, dir, names)) = line.last_mut() {
            let Some(below) = names.pop() else {
                let calls = self.task.posix();
                calls.unlinkat(At::File(above), &*name, AtFlags::REMOVEDIR)?;
                line.pop();
                continue;
            };
            let stat = self.calls().stat(Some(dir), &below)?;
            if stat.file_type() == FileType::Directory {
                let level = self.level(dir, &below)?;
                line.push(level);
            } else {
                self.unlink(dir, &below, &stat)?;
            }
        }
        Ok(true)
    }

    /// Forgets what is to be done at and below a path, which is gone.
    pub(super) fn forget(&mut self, path: &Path) {
        self.flags.retain(|known, _| !known.starts_with(path));
        self.times.retain(|known, _| !known.starts_with(path));
        if self.last.0.starts_with(path) {
            self.last = (PathBuf::new(), self.root.clone());
        }
    }

    /// Opens a directory that goes, with its names.
    fn level(
        &self,
        above: &File,
        name: &OsStr,
    ) -> Result<(File, OsString, File, Vec<OsString>), Stop> {
        let dir = self.calls().open_dir(Some(above), name)?;
        self.release(&dir)?;
        let names = self.calls().names(&dir)?;
        Ok((above.clone(), name.to_owned(), dir, names))
    }

    /// Lets a file be removed.
    fn release(&self, file: &File) -> Result<(), Stop> {
        let flags = self.task.posix().ioctl_getflags(file)?;
        if flags.intersects(InodeFlags::PRIVILEGED) {
            let open = flags.difference(InodeFlags::PRIVILEGED);
            self.task.posix().ioctl_setflags(file, open)?;
        }
        Ok(())
    }

    fn unlink(&self, dir: &File, name: &OsStr, stat: &Stat) -> Result<(), Stop> {
        if stat.file_type() == FileType::RegularFile {
            self.release(&self.calls().open_file(Some(dir), name)?)?;
        }
        Ok(self.calls().unlink(Some(dir), name)?)
    }

    /// Gives directories their times, the deepest ones first, and then files their flags.
    pub(super) fn finish(mut self) -> Result<(), (Stop, PathBuf)> {
        for (path, mtime) in std::mem::take(&mut self.times).into_iter().rev() {
            let set = self.dir(&path).and_then(|dir| self.set_mtime(&dir, mtime));
            set.map_err(|stop| (stop, path))?;
        }
        for (path, flags) in std::mem::take(&mut self.flags).into_iter().rev() {
            let set = self.give_flags(&path, flags);
            set.map_err(|stop| (stop, path))?;
        }
        Ok(())
    }

    fn give_flags(&self, path: &Path, flags: InodeFlags) -> Result<(), Stop> {
        let Some((dir, name)) = split(path) else {
            return Ok(self.task.posix().ioctl_setflags(&self.root, flags)?);
        };
        let file = self.calls().open_file(Some(&self.there(dir)?), name)?;
        Ok(self.task.posix().ioctl_setflags(&file, flags)?)
    }

    /// Sets the time of the last change of the contents.
    pub(super) fn set_mtime(&self, file: &File, mtime: i64) -> Result<(), Stop> {
        let times = [SetTime::Omit, SetTime::At(Timestamp(mtime))];
        let calls = self.task.posix();
        Ok(calls.utimensat(At::File(file), "", times, AtFlags::EMPTY_PATH)?)
    }

    /// Gives a file these extended attributes and no others.
    pub(super) fn set_xattrs(
        &self,
        file: &File,
        xattrs: &[(OsString, Vec<u8>)],
    ) -> Result<(), Stop> {
        let old = self.calls().xattrs(file)?;
        for (name, _) in old.iter().filter(|(name, _)| xattrs.iter().all(|it| it.0 != *name)) {
            let calls = self.task.posix();
            calls.removexattrat(At::File(file), "", name, AtFlags::EMPTY_PATH)?;
        }
        for (name, value) in xattrs.iter().filter(|it| !old.contains(it)) {
            self.calls().set_xattr(file, name, value)?;
        }
        Ok(())
    }
}
