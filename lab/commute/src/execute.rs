//! The calls of a case, made in the library.
//!
//! A call has three steps, which isolate the call itself: [`World::prepare`] collects everything
//! that it needs, [`PreparedCall::run`] makes it, and [`World::finish`] stores its result.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use vfscale::posix::{At, AtFlags, DirEntryBuf, MountFlags, OFlags, SetTime, Stat, StatMask};
use vfscale::{Errno, Error, File, FileType, Task, Timestamp, Vfs};

use vfscale_sync::random;

use crate::case::{Attributes, Call, Entry, Op, Outcome, PROCESSES, SLOTS};

/// Key of the hash of names: the first one for which the hashes of `a` to `d` differ in their first
/// four bits, and so do the hashes of the names in the root.
pub(crate) const KEY: u64 = 3;

/// One or two file system trees, and two processes in them.
pub struct World {
    /// The tree of each process.
    trees: [Vfs; PROCESSES],
    processes: [Process; PROCESSES],
    /// Times of inodes as of [`note_times`](Self::note_times); `None` before.
    times: Option<BTreeMap<InodeKey, [Timestamp; 2]>>,
}

/// Device number, inode number and generation.
type InodeKey = (u64, u64, u32);

struct Process {
    task: Arc<Task>,
    slots: [Option<File>; SLOTS],
}

/// A call with everything that it needs.
pub struct PreparedCall {
    call: Call,
    task: Arc<Task>,
    /// The open file of the call's slot.
    file: Option<File>,
    /// Data to write, or a buffer for data to read.
    buffer: Vec<u8>,
    result: vfscale::Result<RawResult>,
}

/// Unprocessed result of a call.
enum RawResult {
    Nothing,
    Number(u64),
    Read(usize),
    Bytes(Vec<u8>),
    Text(std::path::PathBuf),
    Entries(Vec<DirEntryBuf>),
    Stat(Stat),
    Mount(Stat),
    Opened(File),
    Piped(File, File),
}

impl World {
    /// Creates two processes in a tree.
    #[must_use]
    pub fn new(vfs: Vfs) -> World {
        World::in_trees([vfs.clone(), vfs])
    }

    /// Creates two processes, each in a tree.
    #[must_use]
    pub fn in_trees(trees: [Vfs; PROCESSES]) -> World {
        // This fails if the process has hashed names before; only `runner` depends on it and
        // checks it.
        random::fix_hash_keys(KEY);
        let process = |vfs: &Vfs| Process { task: Arc::new(vfs.task()), slots: Default::default() };
        let processes = trees.each_ref().map(process);
        World { trees, processes, times: None }
    }

    /// Returns the tree of process 0.
    #[must_use]
    pub fn vfs(&self) -> &Vfs {
        &self.trees[0]
    }

    /// Iterates over the open files of both processes.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.processes.iter().flat_map(|process| process.slots.iter().flatten())
    }

    fn process(&mut self, process: u8) -> &mut Process {
        &mut self.processes[usize::from(process) % PROCESSES]
    }

    fn slot(&mut self, process: u8, slot: u8) -> &mut Option<File> {
        &mut self.process(process).slots[usize::from(slot) % SLOTS]
    }

    /// Takes what the call needs out of the world. An empty slot makes the call fail with `EBADF`.
    pub fn prepare(&mut self, call: &Call) -> PreparedCall {
        let file = call.op.slot().and_then(|slot| self.slot(call.process, slot).take());
        let buffer = match call.op {
            Op::Read { len, .. } | Op::Pread { len, .. } => vec![0; len],
            Op::Write { len, byte, .. }
            | Op::Pwrite { len, byte, .. }
            | Op::Setxattr { len, byte, .. } => vec![byte; len],
            _ => Vec::new(),
        };
        let task = self.process(call.process).task.clone();
        PreparedCall { call: call.clone(), task, file, buffer, result: Ok(RawResult::Nothing) }
    }

    /// Stores the result of a call in the world and returns its outcome.
    pub fn finish(&mut self, prepared: PreparedCall) -> Outcome {
        let PreparedCall { call, task: _, file, mut buffer, result } = prepared;
        if let (Some(slot), Some(file)) = (call.op.slot(), file) {
            *self.slot(call.process, slot) = Some(file);
        }
        match result {
            Err(error) => Outcome::Error(error.errno()),
            Ok(RawResult::Nothing) => Outcome::Done,
            Ok(RawResult::Number(number)) => Outcome::Number(number),
            Ok(RawResult::Read(len)) => {
                buffer.truncate(len);
                Outcome::Bytes(buffer)
            }
            Ok(RawResult::Bytes(bytes)) => Outcome::Bytes(bytes),
            Ok(RawResult::Text(path)) => Outcome::Text(without_numbers(&path.to_string_lossy())),
            Ok(RawResult::Entries(entries)) => Outcome::Entries(sorted(entries)),
            Ok(RawResult::Stat(stat)) => {
                let all = self.attributes(&stat);
                Outcome::Attributes(match call.op {
                    Op::Statx { mask, .. } => all.masked(mask),
                    _ => all,
                })
            }
            Ok(RawResult::Mount(stat)) => {
                Outcome::Mount { device: stat.dev, is_root: stat.mount_root }
            }
            Ok(RawResult::Opened(file)) => {
                match call.op {
                    Op::Open { slot, .. } | Op::Dup { to: slot, .. } => {
                        *self.slot(call.process, slot) = Some(file);
                    }
                    Op::Pass { slot } => *self.slot(call.process ^ 1, slot) = Some(file),
                    _ => {}
                }
                Outcome::Done
            }
            Ok(RawResult::Piped(read, write)) => {
                if let Op::Pipe { reader, writer } = call.op {
                    *self.slot(call.process, reader) = Some(read);
                    *self.slot(call.process, writer) = Some(write);
                }
                Outcome::Done
            }
        }
    }

    /// Reads the times of all inodes that `looks` read by `stat` and `fstat`. Later outcomes report
    /// whether they have changed.
    pub fn note_times(&mut self, looks: &[Call]) {
        let mut times = BTreeMap::new();
        for call in looks.iter().filter(|c| matches!(c.op, Op::Stat { .. } | Op::Fstat { .. })) {
            let mut prepared = self.prepare(call);
            prepared.run();
            if let Ok(RawResult::Stat(stat)) = &prepared.result {
                times.insert(key(stat), [stat.mtime, stat.ctime]);
            }
            self.finish(prepared);
        }
        self.times = Some(times);
    }

    fn attributes(&self, stat: &Stat) -> Attributes {
        let file_type = stat.file_type();
        let is_file = file_type == FileType::RegularFile;
        let changed = self.times.as_ref().map_or([false; 2], |times| match times.get(&key(stat)) {
            Some(before) => [before[0] != stat.mtime, before[1] != stat.ctime],
            None => [true; 2],
        });
        Attributes {
            file_type,
            mode: stat.permissions().bits(),
            nlink: stat.nlink,
            size: if file_type == FileType::Directory { 0 } else { stat.size },
            blocks: if is_file { stat.blocks } else { 0 },
            mtime_changed: changed[0],
            ctime_changed: changed[1],
            device: stat.dev,
            ino: stat.ino,
        }
    }

    /// Prepares and makes a call, and stores its result.
    pub fn call(&mut self, call: &Call) -> Outcome {
        let mut prepared = self.prepare(call);
        prepared.run();
        self.finish(prepared)
    }
}

impl PreparedCall {
    /// Makes the call.
    pub fn run(&mut self) {
        self.result = match self.call.op.slot() {
            None => by_path(&self.task, &self.call.op, &self.buffer),
            Some(_) if matches!(self.call.op, Op::Close { .. }) => match self.file.take() {
                Some(file) => {
                    drop(file);
                    Ok(RawResult::Nothing)
                }
                None => Err(Error::new("close", Errno::BADF)),
            },
            Some(_) => match &self.file {
                Some(file) => by_file(&self.task, file, &self.call.op, &mut self.buffer),
                None => Err(Error::new("fd", Errno::BADF)),
            },
        };
    }
}

fn by_path(task: &Task, op: &Op, buffer: &[u8]) -> vfscale::Result<RawResult> {
    let done = |()| RawResult::Nothing;
    let cwd = At::Cwd;
    let follow = AtFlags::empty();
    match op {
        Op::Open { path, flags, mode, .. } => {
            task.posix().open(path, *flags, *mode).map(RawResult::Opened)
        }
        Op::Stat { path, follow } => {
            let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            task.posix().fstatat(cwd, path, flags).map(RawResult::Stat)
        }
        Op::Statx { path, mask } => {
            task.posix().statx(cwd, path, follow, *mask).map(RawResult::Stat)
        }
        Op::Lookup { path } => {
            task.posix().statx(cwd, path, follow, StatMask::empty()).map(RawResult::Mount)
        }
        Op::Link { old, new } => task.posix().linkat(cwd, old, cwd, new, follow).map(done),
        Op::Unlink { path } => task.posix().unlinkat(cwd, path, follow).map(done),
        Op::Rename { old, new, flags } => {
            task.posix().renameat2(cwd, old, cwd, new, *flags).map(done)
        }
        Op::Mkdir { path, mode } => task.posix().mkdirat(cwd, path, *mode).map(done),
        Op::Rmdir { path } => task.posix().unlinkat(cwd, path, AtFlags::REMOVEDIR).map(done),
        Op::Symlink { target, path } => task.posix().symlinkat(cwd, path, target).map(done),
        Op::Readlink { path } => task.posix().readlinkat(cwd, path).map(RawResult::Text),
        Op::Truncate { path, size } => task.posix().truncate(path, *size).map(done),
        Op::Pipe { .. } => {
            task.posix().pipe2(OFlags::NONBLOCK).map(|(r, w)| RawResult::Piped(r, w))
        }
        Op::Setxattr { path, name, how, .. } => {
            task.posix().setxattrat(cwd, path, name, buffer, *how, follow).map(done)
        }
        Op::Getxattr { path, name } => {
            task.posix().getxattrat(cwd, path, name, follow).map(RawResult::Bytes)
        }
        Op::Chmod { path, mode } => task.posix().fchmodat(cwd, path, *mode, follow).map(done),
        Op::Getcwd {} => task.posix().getcwd().map(RawResult::Text),
        Op::Chdir { path } => task.posix().chdir(path).map(done),
        Op::Mount { path } => {
            let fs: Arc<dyn vfscale::driver::FileSystem> = vfscale::MemFs::builder().build();
            task.posix().mount(fs, path, MountFlags::empty()).map(done)
        }
        _ => Err(Error::new("fd", Errno::BADF)),
    }
}

fn by_file(task: &Task, file: &File, op: &Op, buffer: &mut [u8]) -> vfscale::Result<RawResult> {
    match *op {
        Op::Dup { .. } | Op::Pass { .. } => Ok(RawResult::Opened(file.clone())),
        Op::Fstat { .. } => file.stat().map(RawResult::Stat),
        Op::Ftruncate { size, .. } => file.truncate(size).map(|()| RawResult::Nothing),
        Op::Read { .. } => file.read(buffer).map(RawResult::Read),
        Op::Write { .. } => file.write(buffer).map(|n| RawResult::Number(n as u64)),
        Op::Pread { offset, .. } => file.pread(buffer, offset).map(RawResult::Read),
        Op::Pwrite { offset, .. } => {
            file.pwrite(buffer, offset).map(|n| RawResult::Number(n as u64))
        }
        Op::Lseek { to, .. } => file.seek(to).map(RawResult::Number),
        Op::Readdir { .. } => {
            let mut entries = Vec::new();
            let collect = |entry: vfscale::driver::DirEntry<'_>| {
                entries.push(entry.into());
                ControlFlow::Continue(())
            };
            file.read_dir_at(0, collect)?;
            Ok(RawResult::Entries(entries))
        }
        Op::DPath { .. } => task.posix().path_of(file).map(RawResult::Text),
        Op::Fsync { .. } => file.sync_all().map(|()| RawResult::Nothing),
        Op::Futimens { mtime, .. } => {
            let times = [SetTime::Omit, SetTime::At(Timestamp::new(mtime, 0))];
            task.posix()
                .utimensat(At::File(file), "", times, AtFlags::EMPTY_PATH)
                .map(|()| RawResult::Nothing)
        }
        _ => Err(Error::new("fd", Errno::BADF)),
    }
}

fn key(stat: &Stat) -> InodeKey {
    (stat.dev, stat.ino, stat.generation)
}

/// Returns the entries in alphabetical order, without `.` and `..`.
fn sorted(entries: Vec<DirEntryBuf>) -> Vec<Entry> {
    let entry = |entry: DirEntryBuf| Entry {
        name: entry.name.to_string_lossy().into_owned(),
        file_type: entry.file_type,
        ino: entry.ino,
    };
    let mut entries: Vec<_> =
        entries.into_iter().map(entry).filter(|e| e.name != "." && e.name != "..").collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

/// Removes the number from the path of a nameless file: `pipe:[7]` or `/d/#7 (deleted)`.
fn without_numbers(path: &str) -> String {
    let Some((before, rest)) = path.split_once("pipe:[").or_else(|| path.split_once('#')) else {
        return path.into();
    };
    let mark = &path[before.len()..path.len() - rest.len()];
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    [before, mark, after].concat()
}

#[cfg(test)]
mod tests;
