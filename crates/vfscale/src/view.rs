//! A view of a branch that does not change: its metadata as EROFS, which refers to contents in the
//! image.
//!
//! The tree is walked with a stack of its own, each directory in the order of its inodes' numbers:
//! inodes of a directory are side by side, those of the next one behind them. Nothing is believed:
//! a directory is met once, and every other inode as often as it has links. So a damaged or hostile
//! volume gives an error, and no file.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vfscale_diskfs::rescue::Name;
use vfscale_diskfs::{DataFork, FileKind, InodeCore, ROOT_INO};
use vfscale_erofs::{Attribute, Attributes, Content, Directory, Error, Run, Writer};

use crate::diff::side::Side;
use crate::error::pool::PoolError;

/// The beginnings of the names of attributes that overlays take for their own marks.
const MARKS: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// A view that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The number of its inodes.
    pub inodes: u64,
    /// The bytes of the file.
    pub bytes: u64,
    /// The path of the first file that an overlay above the view would not show as it is: a
    /// character device 0:0, which overlays take for a name that was removed, or one with
    /// attributes `trusted.overlay.*` or `user.overlay.*`, which they take for their own.
    pub marked: Option<PathBuf>,
}

/// Writes the view of a branch to a file, whole or not at all.
///
/// # Errors
/// [`PoolError::Damage`], [`PoolError::View`] and [`PoolError::Output`].
pub(crate) fn write(side: &Side, out: &Path) -> Result<View, PoolError> {
    let failed = |error| PoolError::Output { path: out.to_owned(), error };
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = out.with_file_name(name);
    let file =
        File::options().read(true).write(true).create_new(true).open(&new).map_err(failed)?;
    let written = Walk::new(side, &file, out).and_then(Walk::run).and_then(|(inodes, marked)| {
        let bytes = file.sync_all().and_then(|()| file.metadata()).map_err(failed)?.len();
        fs::rename(&new, out).map_err(failed)?;
        Ok(View { inodes, bytes, marked })
    });
    if written.is_err() {
        // An error of the removal says no more than the first one.
        let _ = fs::remove_file(&new);
    }
    written
}

/// A directory that is written: its names are before what is in it.
struct Frame {
    directory: Directory,
    path: PathBuf,
    /// Its names that are still to be written, the greatest number first.
    names: Vec<Name>,
    mode: u16,
}

/// A walk that is under way.
struct Walk<'w> {
    side: &'w Side,
    writer: Writer<'w>,
    out: &'w Path,
    /// A bit for each inode that was met, in words of 64.
    met: HashMap<u64, u64>,
    /// The files with names that are still to come: their numbers in the view, and how many.
    linked: HashMap<u64, (u64, u32)>,
    inodes: u64,
    marked: Option<PathBuf>,
}

impl<'w> Walk<'w> {
    fn new(side: &'w Side, file: &'w File, out: &'w Path) -> Result<Self, PoolError> {
        let branch = side.branch();
        let writer = Writer::new(file, branch.pool_places(), branch.state());
        let writer = writer.map_err(|error| side.unfit(Path::new("/"), error))?;
        let (met, linked) = (HashMap::new(), HashMap::new());
        Ok(Self { side, writer, out, met, linked, inodes: 0, marked: None })
    }

    /// Converts an error of the writer about a path.
    fn failed(&self, path: &Path, error: Error) -> PoolError {
        match error {
            Error::Io(error) => PoolError::Output { path: self.out.to_owned(), error },
            error => self.side.unfit(path, error),
        }
    }

    /// Writes the whole tree, and returns the number of inodes, and the first file with marks.
    fn run(mut self) -> Result<(u64, Option<PathBuf>), PoolError> {
        let path = PathBuf::from("/");
        let core = self.side.inode(ROOT_INO, &path)?;
        if !core.is_directory() {
            return Err(self.side.damaged(&path, "it is no directory"));
        }
        let mut stack = vec![self.begin(ROOT_INO, &core, path, None)?];
        while let Some(frame) = stack.last_mut() {
            if let Some(name) = frame.names.pop() {
                let path = frame.path.join(OsStr::from_bytes(&name.name));
                let core = self.side.inode(name.ino, &path)?;
                if core.is_directory() {
                    let parent = frame.directory.nid();
                    stack.push(self.begin(name.ino, &core, path, Some(parent))?);
                    continue;
                }
                let nid = self.file(name.ino, &core, &path)?;
                let set = frame.directory.set(&name.name, nid, core.mode as u16);
                set.map_err(|error| self.failed(&path, error))?;
                continue;
            }
            let Some(Frame { directory, path, mode, .. }) = stack.pop() else { break };
            self.writer.end(&directory).map_err(|error| self.failed(&path, error))?;
            let Some(parent) = stack.last_mut() else { return self.finish(&directory, &path) };
            let name = path.file_name().unwrap_or_default().as_bytes();
            let set = parent.directory.set(name, directory.nid(), mode);
            set.map_err(|error| self.failed(&path, error))?;
        }
        Err(self.side.damaged(Path::new("/"), "it has no root"))
    }

    fn finish(self, root: &Directory, path: &Path) -> Result<(u64, Option<PathBuf>), PoolError> {
        if let Some(ino) = self.linked.keys().min() {
            let what = format!("inode {ino} has fewer names than links");
            return Err(self.side.damaged(path, what));
        }
        let Self { side, writer, out, inodes, marked, .. } = self;
        let finished = writer.finish(root).map_err(|error| match error {
            Error::Io(error) => PoolError::Output { path: out.to_owned(), error },
            error => side.unfit(path, error),
        });
        finished.map(|()| (inodes, marked))
    }

    /// Notes that an inode was met, for the first time.
    fn meet(&mut self, ino: u64, path: &Path) -> Result<(), PoolError> {
        let (word, bit) = (self.met.entry(ino / 64).or_default(), 1 << (ino % 64));
        if *word & bit != 0 {
            return Err(self.side.damaged(path, "its inode has more names than links"));
        }
        *word |= bit;
        self.inodes += 1;
        Ok(())
    }

    fn begin(
        &mut self,
        ino: u64,
        core: &InodeCore,
        path: PathBuf,
        parent: Option<u64>,
    ) -> Result<Frame, PoolError> {
        self.meet(ino, &path)?;
        let mut names = self.side.names(ino, core, &path)?;
        names.sort_unstable_by_key(|name| std::cmp::Reverse(name.ino));
        let attributes = self.attributes(ino, core, &path)?;
        let all = names.iter().map(|name| name.name.clone()).collect();
        let directory = self.writer.begin(&attributes, parent, all);
        let directory = directory.map_err(|error| self.failed(&path, error))?;
        Ok(Frame { directory, path, names, mode: core.mode as u16 })
    }

    /// Writes an inode that is no directory, if it was not met before, and returns its number.
    fn file(&mut self, ino: u64, core: &InodeCore, path: &Path) -> Result<u64, PoolError> {
        if let Some((nid, left)) = self.linked.get_mut(&ino) {
            let nid = *nid;
            *left -= 1;
            if *left == 0 {
                self.linked.remove(&ino);
            }
            return Ok(nid);
        }
        self.meet(ino, path)?;
        let attributes = self.attributes(ino, core, path)?;
        let nid = self.write(ino, core, path, &attributes)?;
        match core.nlink {
            0 => return Err(self.side.damaged(path, "its inode has more names than links")),
            1 => {}
            links => _ = self.linked.insert(ino, (nid, links - 1)),
        }
        Ok(nid)
    }

    fn write(
        &mut self,
        ino: u64,
        core: &InodeCore,
        path: &Path,
        attributes: &Attributes,
    ) -> Result<u64, PoolError> {
        let (target, runs);
        let content = match core.kind() {
            Some(FileKind::Regular) => {
                runs = self.runs(ino, core, path)?;
                let bytes = match &core.data {
                    DataFork::Inline(bytes) => &bytes[..],
                    _ => &[],
                };
                Content::Data { size: core.size, bytes, runs: &runs }
            }
            Some(FileKind::Link) => {
                target = self.side.target(ino, core, path)?;
                Content::Target(&target)
            }
            Some(FileKind::Character | FileKind::Block) => {
                let (major, minor) = (rustix::fs::major(core.rdev), rustix::fs::minor(core.rdev));
                Content::Device { major, minor }
            }
            _ => Content::None,
        };
        let written = self.writer.inode(attributes, &content);
        written.map_err(|error| self.failed(path, error))
    }

    fn attributes(
        &mut self,
        ino: u64,
        core: &InodeCore,
        path: &Path,
    ) -> Result<Attributes, PoolError> {
        let xattrs = self.side.xattrs(ino, core, path)?;
        if self.marked.is_none() && is_marked(core, &xattrs) {
            self.marked = Some(path.to_owned());
        }
        let &InodeCore { uid, gid, nlink: links, mtime, .. } = core;
        Ok(Attributes { mode: core.mode as u16, uid, gid, links, mtime, xattrs })
    }

    /// Returns where the blocks of a file are in the image.
    fn runs(&self, ino: u64, core: &InodeCore, path: &Path) -> Result<Vec<Run>, PoolError> {
        let mut runs = Vec::new();
        for extent in self.side.extents(ino, core, path)? {
            if extent.is_unwritten {
                continue;
            }
            let rows = self.side.branch().places(extent.start..extent.place_end());
            let mut at = extent.file_block;
            for (blocks, place) in rows.map_err(|error| self.side.damaged(path, error))? {
                runs.extend(place.map(|place| Run { at, blocks, place }));
                at += blocks;
            }
        }
        Ok(runs)
    }
}

/// Returns whether an overlay takes a file for a mark, or attributes of it.
fn is_marked(core: &InodeCore, xattrs: &[Attribute]) -> bool {
    let is_mark = |name: &[u8]| MARKS.iter().any(|mark| name.starts_with(mark));
    core.kind() == Some(FileKind::Character) && core.rdev == 0
        || xattrs.iter().any(|(name, _)| is_mark(name))
}
