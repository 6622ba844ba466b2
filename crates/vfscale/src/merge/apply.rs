//! Doing to a fork of INTO what the rules have decided.
//!
//! What moves is put aside first, so that names can be exchanged, and objects are reached by their
//! inodes, so that no path has to stay right. Times come at the end, since all else changes them,
//! and then the flags, since an immutable file takes no time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vfscale_diskfs::InodeCore;
use vfscale_vfs::{
    At, AtFlags, Errno, FallocateFlags, File, FileHandle, FileType, InodeFlags, OFlags,
    RenameFlags, SetTime, Task, Timestamp,
};

use super::delta::{Delta, Id, Key};
use super::objects::{self, Content, Update};
use super::rules::Plan;
use crate::diff::compare::{Data, Part};
use crate::error::pool::PoolError;
use crate::transfer::side::Side;
use crate::transfer::tree::InTree;

/// The most bytes that are read at a time.
const STEP: u64 = 1 << 20;

/// A result of the tree.
type Done<T> = vfscale_vfs::Result<T>;

/// A plan that is carried out.
struct Applying<'a> {
    task: &'a Task,
    plan: &'a Plan,
    into: &'a Delta<'a>,
    from: &'a Delta<'a>,
    root: File,
    aside: File,
    /// The objects that were made.
    made: HashMap<Id, FileHandle>,
    dirs: HashMap<Id, File>,
    /// Names aside of objects that move, and of directories that go.
    moved: HashMap<Id, Vec<OsString>>,
    gone: Vec<OsString>,
    /// The flags that objects get in the end.
    flags: BTreeMap<u64, (FileHandle, InodeFlags)>,
    next: u64,
}

/// Carries a plan out in the volume of a task, which has what `into` has.
///
/// # Errors
/// [`PoolError::Merge`], and errors of reading.
pub(super) fn apply(
    task: &Task,
    plan: &Plan,
    (into, from): (&Delta<'_>, &Delta<'_>),
) -> Result<(), PoolError> {
    let names = plan.adds.keys().chain(plan.removes.keys()).chain(plan.copies.keys());
    let taken: BTreeSet<&[u8]> = names.map(|key| key.1.as_slice()).collect();
    let name = (0..).map(|number| format!(".vfscale-merge-{number}")).find(|name| {
        !taken.contains(name.as_bytes()) && task.symlink_metadata(format!("/{name}")).is_err()
    });
    let name = name.unwrap_or_default();
    let calls = task.posix();
    let opened = || -> Done<(File, File)> {
        let root = calls.open("/", OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let flags = calls.ioctl_getflags(&root)?;
        calls.ioctl_setflags(&root, flags.difference(InodeFlags::PRIVILEGED))?;
        calls.mkdirat(At::File(&root), &name, 0o700)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Ok((calls.openat(At::File(&root), &name, flags, 0)?, root))
    };
    let (aside, root) = opened().map_err(|error| failed(&error))?;
    let (made, dirs, moved, gone, flags) = Default::default();
    let mut applying =
        Applying { task, plan, into, from, root, aside, made, dirs, moved, gone, flags, next: 0 };
    applying.run(&name)
}

/// Returns the error of a merge that the tree has refused.
pub(super) fn failed(error: &vfscale_vfs::Error) -> PoolError {
    PoolError::Merge { what: error.to_string(), errno: error.errno() }
}

impl Applying<'_> {
    fn run(&mut self, aside: &str) -> Result<(), PoolError> {
        self.unguard()?;
        let added: BTreeSet<Id> = self.plan.adds.values().copied().collect();
        for id in &added {
            if self.into.version(*id)?.is_none() {
                let name = self.make(*id)?;
                self.moved.entry(*id).or_default().push(name);
            }
        }
        let mut copies = Vec::new();
        for (key, id) in &self.plan.copies {
            copies.push((key, self.make_copy(*id)?));
        }
        for (key, id) in &self.plan.removes {
            self.remove(key, *id, added.contains(id))?;
        }
        for (key, id) in &self.plan.adds {
            self.place(key, *id)?;
        }
        for (key, name) in copies {
            self.rename_to(&name, key)?;
        }
        for (id, update) in &self.plan.updates {
            self.update(*id, update)?;
        }
        self.clean(aside).map_err(|error| failed(&error))?;
        self.finish_dirs()?;
        let flags = std::mem::take(&mut self.flags);
        for (handle, flags) in flags.into_values() {
            let set = self.open_handle(&handle, OFlags::RDONLY).and_then(|file| {
                let calls = self.task.posix();
                if calls.ioctl_getflags(&file)? == flags {
                    return Ok(());
                }
                calls.ioctl_setflags(&file, flags)
            });
            set.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn open_handle(&self, handle: &FileHandle, flags: OFlags) -> Done<File> {
        let flags = if flags.contains(OFlags::PATH) { flags } else { flags | OFlags::NOATIME };
        self.task.posix().open_by_handle_at(&self.root, handle, flags)
    }

    fn handle_of(&self, file: &File) -> Done<FileHandle> {
        let stat = file.stat()?;
        Ok(FileHandle { dev: stat.dev, ino: stat.ino, generation: stat.generation })
    }

    /// Returns the handle of an object that INTO has, or that was made.
    fn handle(&self, id: Id) -> Result<FileHandle, PoolError> {
        if let Some(handle) = self.made.get(&id) {
            return Ok(*handle);
        }
        let dev = self.root.stat().map_err(|error| failed(&error))?.dev;
        let Some(ino) = self.into.version(id)? else {
            let lost = vfscale_vfs::Error::new("open_by_handle_at", Errno::STALE);
            return Err(failed(&lost));
        };
        let generation = self.into.side.inode(ino, Path::new("/"))?.generation;
        Ok(FileHandle { dev, ino, generation })
    }

    fn open(&self, id: Id, flags: OFlags) -> Result<File, PoolError> {
        let handle = self.handle(id)?;
        self.open_handle(&handle, flags).map_err(|error| failed(&error))
    }

    /// Returns an open directory.
    fn dir(&mut self, id: Id) -> Result<File, PoolError> {
        if let Some(dir) = self.dirs.get(&id) {
            return Ok(dir.clone());
        }
        let dir = self.open(id, OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.dirs.insert(id, dir.clone());
        Ok(dir)
    }

    fn new_name(&mut self) -> OsString {
        self.next += 1;
        OsString::from(self.next.to_string())
    }

    /// Lets all change that is to change, and notes the flags that it gets back.
    fn unguard(&mut self) -> Result<(), PoolError> {
        let plan = self.plan;
        let maps = [&plan.adds, &plan.removes, &plan.copies];
        let mut ids: BTreeSet<Id> = maps.iter().flat_map(|map| map.keys().map(|it| it.0)).collect();
        ids.extend(maps.iter().flat_map(|map| map.values()).chain(plan.updates.keys()));
        ids.insert(Id::Base(vfscale_diskfs::ROOT_INO));
        for id in ids {
            let Some(ino) = self.into.version(id)? else { continue };
            let core = self.into.side.inode(ino, Path::new("/"))?;
            let (old, update) = (core.inode_flags(), self.plan.updates.get(&id));
            let new = update.and_then(|update| update.flags).unwrap_or(old);
            if !old.intersects(InodeFlags::PRIVILEGED) && old == new {
                continue;
            }
            let handle = self.handle(id)?;
            self.flags.insert(handle.ino, (handle, new));
            let file = self.open(id, OFlags::RDONLY)?;
            let old = old.difference(InodeFlags::PRIVILEGED);
            self.task.posix().ioctl_setflags(&file, old).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// Makes an object that only FROM has, aside. Returns its name there.
    fn make(&mut self, id: Id) -> Result<OsString, PoolError> {
        let name = self.make_copy(id)?;
        let node = InTree(self.task).open_node(Some(&self.aside), &name);
        let handle = node.and_then(|node| self.handle_of(&node)).map_err(|error| failed(&error))?;
        self.made.insert(id, handle);
        Ok(name)
    }

    fn make_copy(&mut self, id: Id) -> Result<OsString, PoolError> {
        let (name, path, side) = (self.new_name(), Path::new("/"), self.from.side);
        let Some(ino) = self.from.version(id)? else { return Ok(name) };
        let core = side.inode(ino, path)?;
        let target = if core.is_link() { side.target(ino, &core, path)? } else { Vec::new() };
        let file = self.create(&name, &core, &target).map_err(|error| failed(&error))?;
        if core.is_regular() {
            let data = Data::of(side, ino, &core, path)?;
            write(self.task, &file, (&data, core.size), None)?;
        }
        let mut update = Update {
            mode: (!core.is_link()).then_some(core.mode & 0o7777),
            uid: Some(core.uid),
            gid: Some(core.gid),
            ..Update::default()
        };
        let theirs = objects::xattrs(side, ino, &core)?;
        // The directory may have passed some on.
        let own = InTree(self.task).xattrs(&file).unwrap_or_default();
        update.xattrs.extend(own.into_iter().map(|(name, _)| (name.as_bytes().to_vec(), None)));
        update.xattrs.extend(theirs.into_iter().map(|(name, value)| (name, Some(value))));
        let set = self.attributes(&file, &update).and_then(|()| {
            let has_flags = core.is_regular() || core.is_directory();
            if has_flags {
                let handle = self.handle_of(&file)?;
                self.flags.insert(handle.ino, (handle, core.inode_flags()));
            }
            self.set_mtime(&file, core.mtime)
        });
        set.map_err(|error| failed(&error))?;
        Ok(name)
    }

    fn create(&self, name: &OsStr, core: &InodeCore, target: &[u8]) -> Done<File> {
        let (calls, at) = (self.task.posix(), At::File(&self.aside));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        if core.is_regular() {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            return calls.openat(at, name, flags, 0o600);
        }
        if core.is_directory() {
            calls.mkdirat(at, name, 0o700)?;
            return calls.openat(at, name, flags | OFlags::DIRECTORY, 0);
        }
        if core.is_link() {
            calls.symlinkat(at, name, Path::new(OsStr::from_bytes(target)))?;
        } else {
            let kind = FileType::from_raw_mode(core.mode);
            calls.mknodat(at, name, kind, vfscale_vfs::Mode::from(0o600), core.rdev)?;
        }
        calls.openat(at, name, flags | OFlags::PATH, 0)
    }

    /// Removes a name, or puts it aside.
    fn remove(&mut self, key: &Key, id: Id, moves: bool) -> Result<(), PoolError> {
        let (dir, name) = (self.dir(key.0)?, OsStr::from_bytes(&key.1));
        let stat = InTree(self.task).stat(Some(&dir), name).map_err(|error| failed(&error))?;
        let is_dir = stat.file_type() == FileType::Directory;
        let calls = self.task.posix();
        if !moves && !is_dir {
            let removed = calls.unlinkat(At::File(&dir), name, AtFlags::empty());
            return removed.map_err(|error| failed(&error));
        }
        let new = self.new_name();
        let (at, to) = (At::File(&dir), At::File(&self.aside));
        let renamed = calls.renameat2(at, name, to, &new, RenameFlags::NOREPLACE);
        renamed.map_err(|error| failed(&error))?;
        match moves {
            true => self.moved.entry(id).or_default().push(new),
            false => self.gone.push(new),
        }
        Ok(())
    }

    /// Gives an object a name.
    fn place(&mut self, key: &Key, id: Id) -> Result<(), PoolError> {
        if let Some(name) = self.moved.get_mut(&id).and_then(Vec::pop) {
            return self.rename_to(&name, key);
        }
        let (dir, file) = (self.dir(key.0)?, self.open(id, OFlags::PATH)?);
        let (from, to) = (At::File(&file), At::File(&dir));
        let name = OsStr::from_bytes(&key.1);
        let linked = self.task.posix().linkat(from, "", to, name, AtFlags::EMPTY_PATH);
        linked.map_err(|error| failed(&error))
    }

    fn rename_to(&mut self, name: &OsStr, key: &Key) -> Result<(), PoolError> {
        let dir = self.dir(key.0)?;
        let (from, to) = (At::File(&self.aside), At::File(&dir));
        let new = OsStr::from_bytes(&key.1);
        let renamed = self.task.posix().renameat2(from, name, to, new, RenameFlags::NOREPLACE);
        renamed.map_err(|error| failed(&error))
    }

    /// Changes what is in an object.
    fn update(&self, id: Id, update: &Update) -> Result<(), PoolError> {
        let path = Path::new("/");
        let (Some(ino), side) = (self.into.version(id)?, self.into.side) else { return Ok(()) };
        let core = side.inode(ino, path)?;
        let flags = match update.content {
            Content::Kept => OFlags::PATH,
            _ => OFlags::RDWR,
        };
        let file = self.open(id, flags)?;
        match (&update.content, self.from.version(id)?) {
            (Content::Text(text), _) => {
                let written = file.truncate(0);
                let written = written.and_then(|()| InTree(self.task).write_all_at(&file, text, 0));
                written.map_err(|error| failed(&error))?;
            }
            (Content::Theirs, Some(other)) => {
                let (old, from) = (Data::of(side, ino, &core, path)?, self.from.side);
                let theirs = from.inode(other, path)?;
                let new = Data::of(from, other, &theirs, path)?;
                write(self.task, &file, (&new, theirs.size), Some((&old, core.size)))?;
            }
            _ => {}
        }
        // Some of these end with a change of the contents or of the owner.
        let mut whole = update.clone();
        whole.mode = whole.mode.or((!core.is_link()).then_some(core.mode & 0o7777));
        for (name, value) in objects::xattrs(side, ino, &core)? {
            whole.xattrs.entry(name).or_insert(Some(value));
        }
        let mtime = update.mtime.unwrap_or(core.mtime);
        let set = self.attributes(&file, &whole).and_then(|()| self.set_mtime(&file, mtime));
        set.map_err(|error| failed(&error))
    }

    /// Sets the owner first, which ends set-id bits, and the permissions behind the access control
    /// list, which has some of them.
    fn attributes(&self, file: &File, update: &Update) -> Done<()> {
        let (calls, tree, at) = (self.task.posix(), InTree(self.task), At::File(file));
        if update.uid.is_some() || update.gid.is_some() {
            calls.fchownat(at, "", update.uid, update.gid, AtFlags::EMPTY_PATH)?;
        }
        for (name, value) in &update.xattrs {
            let name = OsStr::from_bytes(name);
            match value {
                Some(value) => tree.set_xattr(file, name, value)?,
                None => match calls.removexattrat(At::File(file), "", name, AtFlags::EMPTY_PATH) {
                    Err(error) if error.errno() == Errno::NODATA => {}
                    removed => removed?,
                },
            }
        }
        update.mode.map_or(Ok(()), |mode| tree.chmod(file, mode))
    }

    fn set_mtime(&self, file: &File, mtime: i64) -> Done<()> {
        let times = [SetTime::Omit, SetTime::At(Timestamp(mtime))];
        self.task.posix().utimensat(At::File(file), "", times, AtFlags::EMPTY_PATH)
    }

    /// Removes what is left aside, and that directory.
    fn clean(&mut self, aside: &str) -> Done<()> {
        let calls = self.task.posix();
        for name in std::mem::take(&mut self.gone) {
            calls.unlinkat(At::File(&self.aside), &name, AtFlags::REMOVEDIR)?;
        }
        for name in std::mem::take(&mut self.moved).into_values().flatten() {
            calls.unlinkat(At::File(&self.aside), &name, AtFlags::empty())?;
        }
        calls.unlinkat(At::File(&self.root), aside, AtFlags::REMOVEDIR)
    }

    /// Gives directories their times back, which changes of their names have changed.
    fn finish_dirs(&mut self) -> Result<(), PoolError> {
        let plan = self.plan;
        let keys = plan.adds.keys().chain(plan.removes.keys()).chain(plan.copies.keys());
        let mut dirs: BTreeSet<Id> = keys.map(|key| key.0).collect();
        dirs.insert(Id::Base(vfscale_diskfs::ROOT_INO));
        dirs.extend(plan.updates.keys());
        for id in dirs {
            let path = Path::new("/");
            let core = match (self.into.version(id)?, self.from.version(id)?) {
                (Some(ino), _) => self.into.side.inode(ino, path)?,
                (None, Some(ino)) => self.from.side.inode(ino, path)?,
                (None, None) => continue,
            };
            let is_gone = plan.removes.values().any(|it| *it == id)
                && !plan.adds.values().any(|it| *it == id);
            if !core.is_directory() || is_gone {
                continue;
            }
            let mtime = plan.updates.get(&id).and_then(|update| update.mtime).unwrap_or(core.mtime);
            let dir = self.dir(id)?;
            self.set_mtime(&dir, mtime).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// Gives a file the contents that `new` has, and writes only what differs from `old`, which it has.
fn write(
    task: &Task,
    file: &File,
    (new, size): (&Data<'_>, u64),
    old: Option<(&Data<'_>, u64)>,
) -> Result<(), PoolError> {
    file.truncate(size).map_err(|error| failed(&error))?;
    let (mut bytes, mut before, mut at) = (Vec::new(), Vec::new(), 0);
    while at < size {
        let (part, end) = new.part(at);
        let (old_part, old_end) = match old {
            Some((old, old_size)) if at < old_size => {
                let (part, end) = old.part(at);
                (part, end.min(old_size))
            }
            _ => (Part::Zeros, u64::MAX),
        };
        let mut range = at..end.min(old_end).min(size);
        at = range.end;
        if (part, old_part) == (Part::Zeros, Part::Zeros) {
            continue;
        }
        range.end = range.end.min(range.start + STEP);
        at = range.end;
        let length = (range.end - range.start) as usize;
        if part == Part::Zeros {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punched = file.fallocate(hole, range.start, length as u64);
            punched.map_err(|error| failed(&error))?;
            continue;
        }
        if let Some((old, _)) = old.filter(|_| old_part != Part::Zeros) {
            if part == old_part && part != Part::Inline && new.shares(old, range.clone())? {
                continue;
            }
            before.resize(length, 0);
            old.read(range.start, &mut before)?;
        } else {
            before.clear();
        }
        bytes.resize(length, 0);
        new.read(range.start, &mut bytes)?;
        if bytes != before {
            let written = InTree(task).write_all_at(file, &bytes, range.start);
            written.map_err(|error| failed(&error))?;
        }
    }
    Ok(())
}
