//! Making the tree of a state.
//!
//! Names that change are put aside first, so that they can be exchanged, and objects are reached by
//! their inodes, so that no path has to stay right.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;

use vfscale::posix::{
    At, AtFlags, Calls, FallocateFlags, FileHandle, OFlags, RenameFlags, SetTime, XattrFlags,
};
use vfscale::{Errno, File, FileType, Mode, Task};
use vfscale_fuse::recording::{Attributes, Change, Object};

use crate::event::Event;
use crate::log::Log;
use crate::tree::{Step, Tree};

/// A state that can't be made.
#[derive(Debug)]
pub struct BuildError {
    /// The file that was being made.
    what: String,
    /// The error of the call.
    source: vfscale::Error,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot make a state after a power cut: {}: {}", self.what, self.source)
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A result of the tree.
type Done<T> = vfscale::Result<T>;

const ITSELF: AtFlags = AtFlags::EMPTY_PATH;

/// A tree that is being made.
struct Building<'a> {
    calls: Calls<'a>,
    log: &'a Log,
    root: File,
    aside: File,
    /// The new objects.
    made: BTreeMap<Object, FileHandle>,
    /// The names aside of objects.
    moved: BTreeMap<u64, Vec<OsString>>,
    next: u64,
}

/// Makes a tree of that of a task, with which the log begins.
pub(crate) fn build(tree: &Tree, log: &Log, task: &Task) -> Result<(), BuildError> {
    task.umask(Mode::empty());
    let names: BTreeSet<&OsStr> = tree.names.keys().map(|(_, name)| name.as_os_str()).collect();
    let free = (0..).map(|number| format!(".crashlab-{number}")).find(|name| {
        !names.contains(OsStr::new(name)) && task.symlink_metadata(format!("/{name}")).is_err()
    });
    let name = free.unwrap_or_default();
    let calls = task.posix();
    let opened = || -> Done<(File, File)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = calls.open("/", flags, 0)?;
        calls.mkdirat(At::File(&root), &name, 0o700)?;
        Ok((calls.openat(At::File(&root), &name, flags, 0)?, root))
    };
    let at = |what: &str| {
        let what = what.to_owned();
        move |source| BuildError { what, source }
    };
    let (aside, root) = opened().map_err(at("/"))?;
    let (made, moved) = Default::default();
    let mut building = Building { calls, log, root, aside, made, moved, next: 0 };
    for (object, index) in &tree.made {
        building.make(*object, *index).map_err(at(&building.label(*index)))?;
    }
    for (dir, name) in tree.names.keys() {
        building.put_aside(*dir, name).map_err(at(&name.to_string_lossy()))?;
    }
    for ((dir, name), object) in &tree.names {
        if let Some(object) = object {
            building.place(*dir, name, *object).map_err(at(&name.to_string_lossy()))?;
        }
    }
    for (object, steps) in &tree.steps {
        let label = steps.first().map_or_else(String::new, |(index, _)| building.label(*index));
        building.change(*object, steps).map_err(at(&label))?;
    }
    drop(building);
    task.remove_dir_all(format!("/{name}")).map_err(at(&name))
}

impl Building<'_> {
    /// Returns the path that a step is about.
    fn label(&self, index: usize) -> String {
        let path = self.log.events[index].path();
        path.map_or_else(String::new, |path| path.display().to_string())
    }

    fn new_name(&mut self) -> OsString {
        self.next += 1;
        OsString::from(self.next.to_string())
    }

    fn handle(&self, object: Object) -> Done<FileHandle> {
        if let Some(handle) = self.made.get(&object) {
            return Ok(*handle);
        }
        let dev = self.root.stat()?.dev;
        Ok(FileHandle { dev, ino: object.ino, generation: object.generation })
    }

    fn open(&self, object: Object, flags: OFlags) -> Done<File> {
        self.calls.open_by_handle_at(&self.root, &self.handle(object)?, flags)
    }

    fn dir(&self, object: Object) -> Done<File> {
        self.open(object, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Makes an object aside, empty.
    fn make(&mut self, object: Object, index: usize) -> Done<()> {
        let Event::Change(Change::Made { attributes, rdev, target, .. }) = &self.log.events[index]
        else {
            return Ok(());
        };
        let name = self.new_name();
        let (calls, at) = (self.calls, At::File(&self.aside));
        let kind = FileType::from_raw_mode(attributes.mode);
        match kind {
            FileType::Directory => calls.mkdirat(at, &name, 0o700)?,
            FileType::Symlink => calls.symlinkat(at, &name, target)?,
            _ => calls.mknodat(at, &name, kind, Mode::from(0o600), *rdev)?,
        }
        let stat = calls.openat(at, &name, OFlags::PATH | OFlags::NOFOLLOW, 0)?.stat()?;
        let handle = FileHandle { dev: stat.dev, ino: stat.ino, generation: stat.generation };
        self.made.insert(object, handle);
        self.moved.entry(stat.ino).or_default().push(name);
        Ok(())
    }

    /// Puts what a name leads to aside.
    fn put_aside(&mut self, dir: Object, name: &OsStr) -> Done<()> {
        if self.made.contains_key(&dir) {
            return Ok(());
        }
        let dir = self.dir(dir)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let ino = match self.calls.openat(At::File(&dir), name, flags, 0) {
            Err(error) if error.errno() == Errno::NOENT => return Ok(()),
            opened => opened?.stat()?.ino,
        };
        let new = self.new_name();
        let (from, to) = (At::File(&dir), At::File(&self.aside));
        self.calls.renameat2(from, name, to, &new, RenameFlags::NOREPLACE)?;
        self.moved.entry(ino).or_default().push(new);
        Ok(())
    }

    /// Gives an object a name. A directory has one only: of several that were not lost, the first.
    fn place(&mut self, dir: Object, name: &OsStr, object: Object) -> Done<()> {
        let (dir, ino) = (self.dir(dir)?, self.handle(object)?.ino);
        if let Some(aside) = self.moved.get_mut(&ino).and_then(Vec::pop) {
            let (from, to) = (At::File(&self.aside), At::File(&dir));
            return self.calls.renameat2(from, &aside, to, name, RenameFlags::NOREPLACE);
        }
        let file = self.open(object, OFlags::PATH)?;
        if file.file_type() == FileType::Directory {
            return Ok(());
        }
        self.calls.linkat(At::File(&file), "", At::File(&dir), name, ITSELF)
    }

    /// Does to an object what was done to it, and sets its times in the end.
    fn change(&self, object: Object, steps: &[Step]) -> Done<()> {
        let file = self.open(object, OFlags::PATH | OFlags::NOFOLLOW)?;
        let writes = steps.iter().any(|(index, _)| self.log.events[*index].is_about_data());
        let data = match writes && file.file_type() == FileType::RegularFile {
            true => Some(self.open(object, OFlags::RDWR)?),
            false => None,
        };
        let mut time = None;
        for (index, part) in steps {
            let Event::Change(change) = &self.log.events[*index] else { continue };
            if let Some(mtime) = self.step(&file, data.as_ref(), (change, *part))? {
                time = Some(mtime);
            }
        }
        let Some(mtime) = time else { return Ok(()) };
        let times = [SetTime::Omit, SetTime::At(mtime)];
        self.calls.utimensat(At::File(&file), "", times, ITSELF)
    }

    /// Does one step. Returns the time that the file has then.
    fn step(
        &self,
        file: &File,
        data: Option<&File>,
        (change, part): (&Change, Option<(usize, usize)>),
    ) -> Done<Option<vfscale::Timestamp>> {
        match (change, data) {
            (Change::Made { attributes, xattrs, .. }, _) => {
                for (name, value) in xattrs {
                    self.set_xattr(file, name, value)?;
                }
                self.attributes(file, attributes)?;
                Ok(Some(attributes.mtime))
            }
            (Change::Attributes { attributes, .. }, _) => {
                self.attributes(file, attributes)?;
                Ok(Some(attributes.mtime))
            }
            (Change::Xattr { name, value, attributes, .. }, _) => {
                match value {
                    Some(value) => self.set_xattr(file, name, value)?,
                    None => match self.calls.removexattrat(At::File(file), "", name, ITSELF) {
                        Err(error) if error.errno() == Errno::NODATA => {}
                        removed => removed?,
                    },
                }
                self.attributes(file, attributes)?;
                Ok(None)
            }
            (Change::Written { offset, data: bytes, mtime, .. }, Some(data)) => {
                let (from, to) = part.unwrap_or((0, bytes.len()));
                let (mut at, mut rest) = (offset + from as u64, &bytes[from..to]);
                while !rest.is_empty() {
                    let written = data.pwrite(rest, at)?;
                    (at, rest) = (at + written as u64, &rest[written..]);
                }
                Ok(Some(*mtime))
            }
            (Change::Resized { size, mtime, .. }, Some(data)) => {
                data.truncate(*size)?;
                Ok(Some(*mtime))
            }
            (Change::Allocated { mode, offset, length, mtime, .. }, Some(data)) => {
                // The blocks that it shifted or gave back may be lost.
                match data.fallocate(FallocateFlags::from_bits_retain(*mode), *offset, *length) {
                    Err(error) if error.errno() == Errno::INVAL => {}
                    done => done?,
                }
                Ok(Some(*mtime))
            }
            _ => Ok(None),
        }
    }

    fn set_xattr(&self, file: &File, name: &OsStr, value: &[u8]) -> Done<()> {
        let flags = XattrFlags::empty();
        self.calls.setxattrat(At::File(file), "", name, value, flags, ITSELF)
    }

    fn attributes(&self, file: &File, new: &Attributes) -> Done<()> {
        let at = At::File(file);
        self.calls.fchownat(at, "", Some(new.uid), Some(new.gid), ITSELF)?;
        if FileType::from_raw_mode(new.mode) == FileType::Symlink {
            return Ok(());
        }
        self.calls.fchmodat(at, "", Mode::from_bits_truncate(new.mode & 0o7777), ITSELF)
    }
}
