//! Threads that free blocks, immediately reuse blocks, and make orphans, and power cuts that test
//! the result.
//!
//! # Purpose
//!
//! One thread makes the calls of a script ([`crate::script`]), so the tree after each call is
//! known. Here many threads work, each in a separate directory, on a volume so small that blocks
//! freed by one thread are soon allocated by another. If blocks are reused before their release is
//! durable, a file that a crash has restored shows it. Files are removed while they are open, and
//! truncated in several transactions.
//!
//! # Guarantees under test
//!
//! A thread states which contents of a file are possible: before a call that adds possible
//! contents, and after a call that excludes some ([`Promise`]). It syncs each write before it
//! continues, and never overwrites a byte. So the bytes of a recovered file are the written ones,
//! up to its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use vfscale::posix::OFlags;
use vfscale::{Errno, File, Mode, Task, Vfs};
use vfscale_block::Device;
use vfscale_sync::cpu;
use vfscale_sync::random::Random;
use vfscale_testkit::RecordingDevice;
use vfscale_testkit::calls::pattern;

/// Number of names that a thread uses at a time.
const NAMES: u64 = 3;
/// Number of open files without names.
const OPEN: usize = 2;
/// Maximum number of bytes of a file.
const BYTES_MAX: u64 = 90_000;
/// Distance of the pages of a sparse file.
const STRIDE: u64 = 8192;
const PAGE: usize = 4096;

/// The possible states of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// At least this many bytes of the write with this tag.
    Holds(u32, u64),
    /// At least this many bytes of the write with this tag, or no file.
    MayBeGone(u32, u64),
    /// No file.
    Gone,
}

/// Promises in order, each with a mark on the device, so the promises before a crash are known.
#[derive(Debug)]
pub struct Promises<D> {
    device: Arc<RecordingDevice<D>>,
    said: Mutex<Vec<(usize, String, Promise)>>,
}

impl<D: Device + 'static> Promises<D> {
    /// Creates the promises of threads on this device.
    pub fn new(device: Arc<RecordingDevice<D>>) -> Self {
        Self { device, said: Mutex::default() }
    }

    /// States the possible states of a file from now on.
    pub fn say(&self, path: &str, promise: Promise) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = self.device.mark(format!("{path}: {promise:?}"));
        said.push((mark, path.to_owned(), promise));
    }

    /// Returns the possible states after `marks` marks.
    pub fn after(&self, marks: usize) -> BTreeMap<String, Promise> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let before = said.iter().filter(|(mark, ..)| *mark <= marks);
        before.map(|(_, path, promise)| (path.clone(), *promise)).collect()
    }

    /// Judges a tree recovered from a crash after `marks` marks.
    ///
    /// # Errors
    /// Describes the mismatch.
    pub fn judge(&self, task: &Task, marks: usize) -> Result<(), String> {
        for (path, promise) in self.after(marks) {
            let found = match task.read(&path) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.errno() == Errno::NOENT => None,
                Err(error) => return Err(format!("{path}: {error}")),
            };
            match (promise, found) {
                (Promise::Gone | Promise::MayBeGone(..), None) => {}
                (Promise::Holds(tag, least) | Promise::MayBeGone(tag, least), Some(bytes)) => {
                    compare(tag, least, &bytes).map_err(|why| format!("{path}: {why}"))?;
                }
                (Promise::Holds(..), None) => return Err(format!("{path}: is missing")),
                (Promise::Gone, Some(_)) => return Err(format!("{path}: is back")),
            }
        }
        Ok(())
    }
}

fn compare(tag: u32, least: u64, bytes: &[u8]) -> Result<(), String> {
    if (bytes.len() as u64) < least {
        return Err(format!("has {} bytes instead of {least} or more", bytes.len()));
    }
    let wanted = pattern::bytes(tag, 0, bytes.len());
    match bytes.chunks(16).zip(wanted.chunks(16)).position(|(found, wanted)| found != wanted) {
        None => Ok(()),
        Some(at) => {
            let found = pattern::explain(&bytes[at * 16..(at * 16 + 16).min(bytes.len())]);
            Err(format!("{found} at {} instead of bytes of write {tag}", at * 16))
        }
    }
}

/// Runs `threads` threads for a number of rounds, each pretending to run on a separate CPU.
///
/// # Errors
/// Returns the error of a call that failed.
pub fn run<D: Device + 'static>(
    vfs: &Vfs,
    promises: &Promises<D>,
    (threads, rounds): (u64, u64),
    seed: u64,
) -> Result<(), Errno> {
    thread::scope(|scope| {
        let start = |thread| {
            let task = vfs.task();
            scope.spawn(move || {
                let _cpu = cpu::pretend(thread as u32);
                let mut churn = Churn::new(task, promises, thread, seed)?;
                (0..rounds).try_for_each(|round| churn.round(round))
            })
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        // A panicking thread has printed its message already.
        started.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(Errno::IO)))
    })
}

/// State of a thread.
struct Churn<'p, D> {
    task: Task,
    promises: &'p Promises<D>,
    dir: String,
    thread: u64,
    random: Random,
    /// Open files without names.
    open: Vec<File>,
    /// Tag and length of the file at each name, by the number of the name.
    there: BTreeMap<u64, (u32, u64)>,
}

impl<'p, D: Device + 'static> Churn<'p, D> {
    fn new(task: Task, promises: &'p Promises<D>, thread: u64, seed: u64) -> Result<Self, Errno> {
        let dir = format!("/thread{thread}");
        task.create_dir(&dir)?;
        let random = Random::new(seed ^ thread.wrapping_mul(0x9e37_79b9));
        Ok(Self { task, promises, dir, thread, random, open: Vec::new(), there: BTreeMap::new() })
    }

    fn round(&mut self, round: u64) -> Result<(), Errno> {
        let name = round % NAMES;
        let old = self.path(name, round.saturating_sub(NAMES));
        let gone = self.there.remove(&name);
        if let Some((tag, len)) = gone {
            self.remove(&old, tag, len)?;
        }
        self.orphan()?;
        let (path, tag) = (self.path(name, round), (self.thread << 16 | round) as u32);
        let len = 1 + self.random.below(BYTES_MAX);
        let file = self.create(&path)?;
        file.pwrite(&pattern::bytes(tag, 0, len as usize), 0)?;
        file.sync_all()?;
        // All earlier calls of this thread are durable, too.
        self.promises.say(&path, Promise::Holds(tag, len));
        if gone.is_some() {
            self.promises.say(&old, Promise::Gone);
        }
        let len = if self.random.below(2) == 0 { self.cut(&file, &path, tag, len)? } else { len };
        self.there.insert(name, (tag, len));
        Ok(())
    }

    fn path(&self, name: u64, round: u64) -> String {
        format!("{}/{name}.{round}", self.dir)
    }

    fn create(&self, path: &str) -> Result<File, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        Ok(self.task.posix().open(path, flags, Mode::from(0o644))?)
    }

    /// Removes a file, possibly while another process has it open.
    fn remove(&mut self, path: &str, tag: u32, len: u64) -> Result<(), Errno> {
        let is_open = self.random.below(2) == 0;
        let file = self.task.posix().open(path, OFlags::RDWR, Mode::empty())?;
        self.promises.say(path, Promise::MayBeGone(tag, len));
        self.task.remove_file(path)?;
        if is_open {
            self.keep(file);
        }
        Ok(())
    }

    /// Makes a file with many extents and removes its name while it is open.
    fn orphan(&mut self) -> Result<(), Errno> {
        let path = format!("{}/orphan", self.dir);
        let file = self.create(&path)?;
        let pieces = self.random.below(40);
        for piece in 0..pieces {
            file.pwrite(&[7; PAGE], piece * STRIDE)?;
        }
        if self.random.below(2) == 0 {
            file.sync_all()?;
            file.truncate(self.random.below(pieces * STRIDE + 1))?;
        }
        self.task.remove_file(&path)?;
        self.keep(file);
        Ok(())
    }

    fn keep(&mut self, file: File) {
        self.open.push(file);
        if self.open.len() > OPEN {
            self.open.remove(0);
        }
    }

    /// Truncates a file. Returns its new length.
    fn cut(&mut self, file: &File, path: &str, tag: u32, len: u64) -> Result<u64, Errno> {
        let size = self.random.below(len);
        self.promises.say(path, Promise::Holds(tag, size));
        file.truncate(size)?;
        Ok(size)
    }
}

#[cfg(test)]
mod tests;
