//! Applying a layer.
//!
//! Whiteouts are about what was there before the layer, whatever their order. A file that is there
//! already and has one name stays the inode that it is, and only blocks that differ are written;
//! any other one makes way, so that no name changes that the layer does not tell.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use vfscale_vfs::{At, Escaped, File, FileType, Mode, OFlags, Stat, Task};

use super::report::Applied;
use super::stop::{Stop, path_of};
use super::tree::{Tree, clean, split};
use crate::diff::layer::flags_of;
use crate::error::pool::PoolError;
use crate::tar::reader::Reader;
use crate::tar::{Entry, Kind, OPAQUE, WHITEOUT};
use crate::transfer::side::Side;

/// The most bytes that are read at a time.
const STEP: u64 = 1 << 20;
/// The beginning of names that say something to aufs(5), and nothing here.
const OTHERS: &[u8] = b".wh..wh.";

/// A layer that is applied.
struct Layer<'t> {
    tree: Tree<'t>,
    /// The paths that the layer has, with the directories above them.
    made: HashSet<PathBuf>,
    done: Applied,
    buf: Vec<u8>,
    old: Vec<u8>,
}

/// Applies a layer in the tree of a task.
///
/// # Errors
/// [`PoolError::Apply`].
pub(super) fn apply(task: &Task, input: &mut dyn Read) -> Result<Applied, PoolError> {
    let named = |path: &Path| Escaped::new(path).to_string();
    let whole = |stop: Stop| stop.at("the layer".to_owned());
    let (made, done, buf, old) = Default::default();
    let mut layer = Layer { tree: Tree::new(task).map_err(whole)?, made, done, buf, old };
    let mut reader = Reader::new(input);
    while let Some(entry) = reader.next().map_err(|fault| whole(fault.into()))? {
        let applied = layer.entry(&entry, &mut reader);
        applied.map_err(|stop| stop.at(named(path_of(&entry.path))))?;
    }
    layer.tree.finish().map_err(|(stop, path)| stop.at(named(&path)))?;
    Ok(layer.done)
}

impl Layer<'_> {
    fn entry(&mut self, entry: &Entry, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let path = clean(&entry.path)?;
        let Some((dir_path, name)) = split(&path) else {
            return self.root(entry);
        };
        let bytes = name.as_bytes();
        if bytes == OPAQUE {
            let dir = self.tree.dir(dir_path)?;
            self.implied();
            return self.clear(&dir, dir_path);
        }
        if bytes.starts_with(OTHERS) {
            return Ok(());
        }
        if let Some(gone) = bytes.strip_prefix(WHITEOUT) {
            if matches!(gone, b"" | b"." | b"..") {
                return Err("it is the whiteout of no name".into());
            }
            let (gone, dir) = (OsStr::from_bytes(gone), self.tree.dir(dir_path)?);
            self.implied();
            let path = dir_path.join(gone);
            if !self.made.contains(&path) {
                self.done.removed += u64::from(self.tree.remove(&dir, gone, &path)?);
            }
            return Ok(());
        }
        let dir = self.tree.dir(dir_path)?;
        self.implied();
        self.make((&dir, name), &path, entry, reader)?;
        self.note(&path);
        self.done.written += 1;
        Ok(())
    }

    /// Notes a path of the layer.
    fn note(&mut self, path: &Path) {
        for path in path.ancestors() {
            if !self.made.insert(path.to_owned()) {
                break;
            }
        }
    }

    /// Notes the directories that were made for a file in them.
    fn implied(&mut self) {
        for path in std::mem::take(&mut self.tree.implied) {
            self.note(&path);
            self.done.written += 1;
        }
    }

    /// Gives the root its attributes.
    fn root(&mut self, entry: &Entry) -> Result<(), Stop> {
        if entry.kind != Kind::Directory {
            return Err("it has no name".into());
        }
        let root = self.tree.dir(Path::new(""))?;
        self.done.written += 1;
        self.directory(&root, Path::new(""), entry)
    }

    /// Removes what is in a directory and not of this layer.
    fn clear(&mut self, dir: &File, path: &Path) -> Result<(), Stop> {
        let mut dirs = vec![(dir.clone(), path.to_owned())];
        while let Some((dir, path)) = dirs.pop() {
            for name in self.tree.calls().names(&dir)? {
                let path = path.join(&name);
                if !self.made.contains(&path) {
                    self.done.removed += u64::from(self.tree.remove(&dir, &name, &path)?);
                } else if self.tree.calls().stat(Some(&dir), &name)?.is_dir() {
                    dirs.push((self.tree.dir(&path)?, path));
                }
            }
        }
        Ok(())
    }

    /// Makes a file, or changes the one that is there.
    fn make(
        &mut self,
        (dir, name): (&File, &OsStr),
        path: &Path,
        entry: &Entry,
        reader: &mut Reader<'_>,
    ) -> Result<(), Stop> {
        let there = self.tree.stat_in(dir, name)?;
        let at = (dir, name);
        match entry.kind {
            Kind::Directory => {
                if !there.is_some_and(|it| it.file_type() == FileType::Directory) {
                    self.tree.remove(dir, name, path)?;
                    self.tree.calls().create_dir(Some(dir), name)?;
                }
                let made = self.tree.calls().open_dir(Some(dir), name)?;
                self.directory(&made, path, entry)
            }
            Kind::Link => self.link(at, path, entry, there.as_ref()),
            Kind::File => self.file(at, path, entry, (there.as_ref(), reader)),
            Kind::Symlink => {
                let target = path_of(&entry.target);
                self.tree.remove(dir, name, path)?;
                self.tree.calls().symlink(target, Some(dir), name)?;
                self.node(at, entry)
            }
            Kind::Fifo | Kind::CharacterDevice | Kind::BlockDevice => {
                let kind = match entry.kind {
                    Kind::Fifo => FileType::Fifo,
                    Kind::CharacterDevice => FileType::CharacterDevice,
                    _ => FileType::BlockDevice,
                };
                let device = rustix::fs::makedev(entry.device.0, entry.device.1);
                let device = if kind == FileType::Fifo { 0 } else { device };
                self.tree.remove(dir, name, path)?;
                let calls = self.tree.task.posix();
                calls.mknodat(At::File(dir), name, kind, Mode::from(0o600), device)?;
                self.node(at, entry)
            }
        }
    }

    fn link(
        &mut self,
        (dir, name): (&File, &OsStr),
        path: &Path,
        entry: &Entry,
        there: Option<&Stat>,
    ) -> Result<(), Stop> {
        let target = clean(&entry.target)?;
        let found = self.tree.stat(&target)?;
        let found = found.ok_or("the file is not there of which it is another name")?;
        let Some((target_dir, target_name)) = split(&target).filter(|_| !found.is_dir()) else {
            return Err("it is another name of a directory".into());
        };
        if there.is_some_and(|there| there.ino == found.ino) {
            return Ok(());
        }
        self.tree.remove(dir, name, path)?;
        let target_dir = self.tree.dir(target_dir)?;
        let original = (Some(&target_dir), target_name);
        Ok(self.tree.calls().hard_link(original, Some(dir), name)?)
    }

    fn file(
        &mut self,
        (dir, name): (&File, &OsStr),
        path: &Path,
        entry: &Entry,
        (there, reader): (Option<&Stat>, &mut Reader<'_>),
    ) -> Result<(), Stop> {
        let is_own = !self.made.contains(path);
        let is_kept = there.filter(|it| it.is_file() && it.nlink == 1 && is_own).is_some();
        if is_kept {
            let guarded = self.tree.calls().open_file(Some(dir), name)?;
            self.tree.unguard(&guarded, path)?;
        } else {
            self.tree.remove(dir, name, path)?;
            self.tree.calls().create(Some(dir), name)?;
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME;
        let file = self.tree.task.posix().openat(At::File(dir), name, flags, 0)?;
        self.contents(&file, entry, reader, is_kept)?;
        self.attributes(&file, entry)?;
        self.flags(&file, path, entry)?;
        self.tree.set_mtime(&file, entry.mtime)
    }

    /// Gives a file its contents; `is_kept` says that it may have some.
    fn contents(
        &mut self,
        file: &File,
        entry: &Entry,
        reader: &mut Reader<'_>,
        is_kept: bool,
    ) -> Result<(), Stop> {
        let calls = self.tree.calls();
        if file.stat()?.size != entry.size {
            file.truncate(entry.size)?;
        }
        let mut at = 0;
        for range in &entry.data {
            if is_kept {
                calls.clear(file, at, range.start)?;
            }
            at = range.start;
            while at < range.end {
                self.buf.resize((range.end - at).min(STEP) as usize, 0);
                let read = reader.read(&mut self.buf)?;
                if read == 0 {
                    return Err("its contents are cut off".into());
                }
                self.old.resize(if is_kept { read } else { 0 }, 0);
                if is_kept {
                    calls.read_at(file, &mut self.old, at)?;
                }
                calls.write_changed(file, at, &self.buf[..read], &self.old)?;
                at += read as u64;
            }
        }
        if is_kept {
            calls.clear(file, at, entry.size)?;
        }
        Ok(())
    }

    /// Gives a directory its attributes.
    fn directory(&mut self, dir: &File, path: &Path, entry: &Entry) -> Result<(), Stop> {
        self.tree.unguard(dir, path)?;
        self.attributes(dir, entry)?;
        self.flags(dir, path, entry)?;
        self.tree.set_time(path, entry.mtime);
        Ok(())
    }

    /// Gives a file its attributes that is neither a regular one nor a directory.
    fn node(&mut self, (dir, name): (&File, &OsStr), entry: &Entry) -> Result<(), Stop> {
        let node = self.tree.calls().open_node(Some(dir), name)?;
        self.attributes(&node, entry)?;
        self.tree.set_mtime(&node, entry.mtime)
    }

    /// Sets the owner first, which ends set-id bits, and the permissions behind the access control
    /// list, which has some of them.
    fn attributes(&self, file: &File, entry: &Entry) -> Result<(), Stop> {
        let (calls, old) = (self.tree.calls(), file.stat()?);
        if (old.uid, old.gid) != (entry.uid, entry.gid) {
            calls.chown(file, entry.uid, entry.gid)?;
        }
        let xattrs = entry.xattrs.iter();
        let xattrs = xattrs.map(|(name, value)| (OsString::from_vec(name.clone()), value.clone()));
        self.tree.set_xattrs(file, &xattrs.collect::<Vec<_>>())?;
        if old.file_type() != FileType::Symlink {
            calls.chmod(file, entry.mode & 0o7777)?;
        }
        Ok(())
    }

    /// Has a file get its flags in the end, if it has others.
    fn flags(&mut self, file: &File, path: &Path, entry: &Entry) -> Result<(), Stop> {
        let wanted = flags_of(&entry.flags);
        let now = self.tree.unguard(file, path)?;
        if now != wanted || self.tree.has_flags(path) {
            self.tree.set_flags(path, wanted);
        }
        Ok(())
    }
}
