//! Reads all of a tree that may be inconsistent, and changes something.

use std::path::{Path, PathBuf};
use std::{panic, thread};

use vfscale::posix::{At, AtFlags, InodeFlags, OFlags, Whence};
use vfscale::{Errno, Error, File, FileType, Mode, Task, Volume};
use vfscale_testkit::calls::compound::Compound;

/// Limit on the depth: an inconsistent tree may have loops, or too many names.
const DEPTH_MAX: usize = 12;
/// Maximum number of inodes that are read.
const FILES_MAX: usize = 3_000;
/// Bytes of one read. The number of reads is limited because sizes may be wrong too.
const PIECE: usize = 64 << 10;
/// Maximum number of reads of a file.
const PIECES_MAX: u64 = 64;
/// Threads that change names side by side, in so many directories, and the names of each there.
const THREADS: usize = 3;
const DIRS_MAX: usize = 4;
const NAMES: usize = 30;

/// Reads names, attributes and data. Continues after errors, and returns them.
pub(super) fn everything(task: &Task) -> Vec<String> {
    let mut walk = Walk { task, seen: 0, errors: Vec::new() };
    walk.visit(Path::new("/"), 0);
    walk.note(Path::new("/"), task.posix().statfs(At::Cwd, "/").map(drop));
    walk.errors
}

struct Walk<'t> {
    task: &'t Task,
    seen: usize,
    errors: Vec<String>,
}

impl Walk<'_> {
    fn note<T>(&mut self, path: &Path, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(format!("{}: {error}", path.display()));
                None
            }
        }
    }

    fn visit(&mut self, path: &Path, depth: usize) {
        self.seen += 1;
        if depth > DEPTH_MAX || self.seen > FILES_MAX {
            return;
        }
        let Some(stat) = self.note(path, self.task.symlink_metadata(path)) else { return };
        self.attributes(path);
        match stat.file_type() {
            FileType::Directory => {
                let Some(names) = self.names(path) else { return };
                names.iter().for_each(|name| self.visit(name, depth + 1));
            }
            FileType::RegularFile => {
                let file = self.task.posix().open(path, OFlags::RDONLY, Mode::empty());
                if let Some(file) = self.note(path, file) {
                    let read = data(&file, stat.size);
                    self.note(path, read);
                }
            }
            FileType::Symlink => drop(self.note(path, self.task.read_link(path))),
            _ => {}
        }
    }

    fn names(&mut self, path: &Path) -> Option<Vec<PathBuf>> {
        let listed =
            self.task.read_dir(path).and_then(Iterator::collect::<vfscale::Result<Vec<_>>>);
        let entries = self.note(path, listed)?;
        Some(entries.into_iter().map(|entry| entry.path()).collect())
    }

    fn attributes(&mut self, path: &Path) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let names = self.task.posix().listxattrat(At::Cwd, path, flags);
        for name in self.note(path, names).unwrap_or_default() {
            let value = self.task.posix().getxattrat(At::Cwd, path, name, flags);
            self.note(path, value);
        }
    }
}

/// Reads a file from its start and at its end, and searches it for holes.
fn data(file: &File, size: u64) -> Result<(), Error> {
    let mut piece = vec![0; PIECE];
    let starts = (0..size).step_by(PIECE).take(PIECES_MAX as usize);
    for offset in starts.chain([size.saturating_sub(PIECE as u64), size]) {
        file.pread(&mut piece, offset)?;
    }
    let mut at = 0;
    for _ in 0..PIECES_MAX {
        let Ok(start) = file.seek(Whence::Data(at)) else { break };
        let Ok(end) = file.seek(Whence::Hole(start)) else { break };
        at = end;
    }
    Ok(())
}

/// Makes, renames and removes files in the directories of the volume, as several threads, each with
/// names of its own, and syncs meanwhile: so delayed names are folded into what is damaged. Returns
/// the errors.
pub(super) fn side_by_side(volume: &Volume) -> Vec<String> {
    let dirs = directories(&volume.task());
    let work = &|thread: usize| {
        let (task, mut errors) = (volume.task(), Vec::new());
        let path = |dir: &str, at: usize| format!("{dir}/side-{thread}-{at}");
        for dir in &dirs {
            let ops = (0..NAMES).flat_map(|at| {
                let made = Compound::create(path(dir, at));
                let other = (at % 3 == 1)
                    .then(|| Compound::rename(path(dir, at), path(dir, NAMES + at), 0));
                std::iter::once(made).chain(other)
            });
            let left = (0..NAMES).map(|at| if at % 3 == 1 { NAMES + at } else { at });
            let ops =
                ops.chain([Compound::sync()]).chain(left.map(|at| Compound::unlink(path(dir, at))));
            for op in ops.chain([Compound::sync()]) {
                errors.extend(op.run(&task).err().map(|errno| format!("{op}: {errno}")));
            }
        }
        errors
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|at| scope.spawn(move || work(at))).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.flat_map(|errors| errors.unwrap_or_else(|why| panic::resume_unwind(why))).collect()
    })
}

/// Returns the paths of some directories in the root that nothing guards.
fn directories(task: &Task) -> Vec<String> {
    let entries = task.read_dir("/").into_iter().flatten().flatten();
    let is_dir = |path: &PathBuf| {
        let found = task.symlink_metadata(path);
        found.is_ok_and(|it| it.is_dir() && !it.flags.intersects(InodeFlags::PRIVILEGED))
    };
    let paths = entries.map(|entry| entry.path()).filter(is_dir);
    paths.filter_map(|path| path.to_str().map(str::to_owned)).take(DIRS_MAX).collect()
}

/// Makes, writes, renames and removes files. Returns the errors.
pub(super) fn work(task: &Task) -> Vec<String> {
    let mut errors = Vec::new();
    let ops = [
        Compound::mkdir("/made"),
        Compound::create("/made/file"),
        Compound::append("/made/file", 50_000, 9_999),
        Compound::fsync("/made/file"),
        Compound::truncate("/made/file", 10_000),
        Compound::setxattr("/made/file", "user.made", vec![b'x'; 3_000]),
        Compound::sync(),
    ];
    for op in ops {
        errors.extend(op.run(task).err().map(|errno| format!("{op}: {errno}")));
    }
    match task.read_dir("/") {
        Ok(entries) => {
            for entry in entries {
                let removed = entry.and_then(|entry| remove(task, &entry.path()));
                errors.extend(removed.err().map(|e| format!("removing all: {e}")));
            }
        }
        Err(error) => errors.push(error.to_string()),
    }
    errors.extend(Compound::sync().run(task).err().map(|errno| format!("sync: {errno}")));
    errors
}

/// Removes a tree. Damage may have made its files immutable.
fn remove(task: &Task, path: &Path) -> Result<(), Error> {
    match task.remove_dir_all(path) {
        Err(error) if error.errno() == Errno::PERM => {
            unguard(task, path, 0)?;
            task.remove_dir_all(path)
        }
        removed => removed,
    }
}

/// Clears the flags of all files and directories in a tree.
fn unguard(task: &Task, path: &Path, depth: usize) -> Result<(), Error> {
    let stat = task.symlink_metadata(path)?;
    if depth > DEPTH_MAX || !(stat.is_dir() || stat.is_file()) {
        return Ok(());
    }
    if stat.flags.intersects(InodeFlags::PRIVILEGED) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        let file = task.posix().open(path, flags, Mode::empty())?;
        task.posix().ioctl_setflags(&file, InodeFlags::empty())?;
    }
    if stat.is_dir() {
        for entry in task.read_dir(path)? {
            unguard(task, &entry?.path(), depth + 1)?;
        }
    }
    Ok(())
}
