//! Threads that change names, links, attributes and space, each in a separate directory with a
//! known result, and some in a shared one ([`crowd`]).
//!
//! # Purpose
//!
//! [`crate::load::churn`] covers create, write, fsync, truncate and unlink. Here threads make every
//! call of scripts ([`crate::script`]): renames to a new name, over a file, of directories and with
//! exchange, links, symbolic links, extended attributes, `mkdir` and `rmdir`, `fallocate`, `fsync`
//! of files and directories, `syncfs`. All their transactions share one log.
//!
//! # Guarantees under test
//!
//! Each thread has the guarantees of a script ([`crate`]) as if it were alone: the recovered
//! content of its directory is that after some prefix of its calls, with everything that it synced.
//! A sync by another thread makes more durable, never less.
//!
//! # Invariants
//!
//! * A thread's directory is its root, and no other thread enters it.
//! * A thread marks the device after a call has returned and before it makes the next one.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use vfscale::posix::{At, RenameFlags};
use vfscale::{Errno, Mode, Task, Vfs};
use vfscale_block::Device;
use vfscale_sync::random::Random;
use vfscale_testkit::RecordingDevice;
use vfscale_testkit::calls::compound::{Compound, Space};
use vfscale_testkit::calls::op::Op;

use crate::model::history::History;
use crate::model::tree::Tree;
use crate::model::verdict;
use crate::script::{self, setup};

pub mod crowd;

/// First tag of the threads' writes.
const TAGS: u32 = 1 << 28;
/// Number of tags of each thread.
const TAGS_OF_THREAD: u32 = 1 << 20;

/// A kind of call in which a fault can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the call of its name")]
pub enum Class {
    Rename,
    RenameOver,
    RenameDir,
    Exchange,
    Link,
    Symlink,
    SetXattr,
    RemoveXattr,
    Mkdir,
    Rmdir,
    Allocate,
    Punch,
    Fsync,
    FsyncDir,
    Sync,
}

/// An injected fault that the test must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// Calls of this kind report success without effect.
    Forgets(Class),
    /// Calls of this kind are made in steps that can become durable separately: for renames over a
    /// file, and for exchanges.
    InSteps(Class),
    /// A link becomes a separate file with equal bytes.
    CopiesLinks,
}

/// A thread's calls, and their effects on an empty directory.
#[derive(Debug)]
struct ThreadScript {
    dir: String,
    history: History,
}

/// Threads with separate directories, on a device that records their promises.
#[derive(Debug)]
pub struct Tangle<D> {
    device: Arc<RecordingDevice<D>>,
    own: Vec<ThreadScript>,
    /// The thread of each mark.
    said: Mutex<Vec<(usize, usize)>>,
    /// Number of marks when the directories are durable.
    ready: Mutex<Option<usize>>,
    planted: Option<CallFault>,
}

impl<D: Device + 'static> Tangle<D> {
    /// Makes threads, each with a script of `calls` calls on the initial tree of all scripts.
    ///
    /// # Errors
    /// If the model fails.
    pub fn new(
        device: Arc<RecordingDevice<D>>,
        (threads, calls): (u64, usize),
        random: &mut Random,
    ) -> Result<Self, String> {
        let own = |thread| {
            let mut ops = setup();
            ops.extend(script::random(random, calls).ops);
            let base = TAGS + thread as u32 * TAGS_OF_THREAD;
            let ops: Vec<_> = ops.into_iter().map(|op| op.tagged(|tag| base + tag)).collect();
            Ok(ThreadScript { dir: format!("/own{thread}"), history: History::of(&[], &ops)? })
        };
        let own = (0..threads).map(own).collect::<Result<_, String>>()?;
        let (said, ready) = (Mutex::default(), Mutex::default());
        Ok(Self { device, own, said, ready, planted: None })
    }

    /// Injects a fault.
    #[must_use]
    pub fn with(self, planted: Option<CallFault>) -> Self {
        Self { planted, ..self }
    }

    /// Makes the directories durable.
    ///
    /// # Errors
    /// Returns the error of a call that failed.
    pub fn prepare(&self, task: &Task) -> Result<(), Errno> {
        for ThreadScript { dir, history } in &self.own {
            let mode = history.trees.first().and_then(|tree| tree.nodes.get(&tree.root));
            let mode = mode.map_or(0o755, |node| node.mode & 0o7777);
            task.posix().mkdirat(At::Cwd, dir, Mode::from_bits_retain(mode))?;
            task.set_permissions(dir, Mode::from_bits_retain(mode))?;
        }
        Compound::sync().run(task)?;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        *ready = Some(self.device.mark("threads have their directories"));
        Ok(())
    }

    /// Makes the calls of one thread.
    ///
    /// # Errors
    /// Describes a call with a wrong result.
    pub fn run(&self, vfs: &Vfs, thread: usize) -> Result<(), String> {
        let Some(ThreadScript { dir, history }) = self.own.get(thread) else { return Ok(()) };
        let task = vfs.task();
        task.posix().chroot(dir).map_err(|error| error.to_string())?;
        for (number, step) in history.steps.iter().enumerate() {
            let result = self.make(&task, step.op.clone(), history.trees.get(number));
            if self.planted.is_none() && result != step.result {
                let (op, wanted) = (&step.op, step.result);
                return Err(format!("{dir}: {number}: {op}: {result:?}, not {wanted:?}"));
            }
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            said.push((self.device.mark(format!("{dir}: {}", step.op)), thread));
        }
        Ok(())
    }

    /// Makes a call or its faulty variant. `before` is the expected tree before the call.
    fn make(&self, task: &Task, op: Compound, before: Option<&Tree>) -> Result<(), Errno> {
        let class = before.and_then(|tree| class(&op, tree));
        match self.planted {
            Some(CallFault::Forgets(forgotten)) if class == Some(forgotten) => Ok(()),
            Some(CallFault::InSteps(broken)) if class == Some(broken) => in_steps(task, &op),
            Some(CallFault::CopiesLinks) if class == Some(Class::Link) => match *op.paths() {
                [old, new] => Ok(task.write(new, task.read(old)?)?),
                _ => op.run(task),
            },
            _ => op.run(task),
        }
    }

    /// Judges the state recovered from a crash after `marks` marks.
    ///
    /// # Errors
    /// Describes the mismatch, with its directory.
    pub fn judge(&self, task: &Task, marks: usize) -> Result<(), String> {
        let ready = *self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.is_none_or(|ready| marks < ready) {
            return Ok(());
        }
        for (thread, ThreadScript { dir, history }) in self.own.iter().enumerate() {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let done = said.iter().filter(|(mark, who)| *mark <= marks && *who == thread).count();
            drop(said);
            let inside = task.fork();
            inside.posix().chroot(dir).map_err(|error| error.to_string())?;
            let tree = Tree::read(&inside).map_err(|why| format!("{dir}: {why}"))?;
            verdict::judge(history, None, done, &tree)
                .map_err(|why| format!("{dir}, after {done} calls: {why}"))?;
        }
        Ok(())
    }

    /// Returns the number of judged calls.
    pub fn calls(&self) -> usize {
        self.own.iter().map(|own| own.history.steps.len()).sum()
    }
}

/// Returns the kind of a call on this tree.
fn class(op: &Compound, tree: &Tree) -> Option<Class> {
    let is_dir = |path: &str| {
        let node = tree.find(path).and_then(|ino| tree.nodes.get(&ino));
        node.is_some_and(|node| matches!(node.body, crate::model::tree::Body::Dir(_)))
    };
    if let Some((old, new, flags)) = op.renamed() {
        let (one, other) = (tree.find(old)?, tree.find(new));
        let flags = RenameFlags::from_bits_retain(flags);
        return match other {
            _ if old == new => None,
            _ if flags.contains(RenameFlags::EXCHANGE) => other.map(|_| Class::Exchange),
            _ if is_dir(old) => Some(Class::RenameDir),
            None if flags.is_empty() => Some(Class::Rename),
            Some(other) if flags.is_empty() && one != other && !is_dir(new) => {
                Some(Class::RenameOver)
            }
            _ => None,
        };
    }
    match op.synced() {
        _ if op.syncs_all() => return Some(Class::Sync),
        Some(_) if op.is_fsync_of_dir() => return Some(Class::FsyncDir),
        Some((_, data_only)) => return (!data_only).then_some(Class::Fsync),
        None => {}
    }
    match (&*op.0, op.allocated()) {
        ([Op::Link { .. }], _) => Some(Class::Link),
        ([Op::Symlink { .. }], _) => Some(Class::Symlink),
        ([Op::Setxattr { .. }], _) => Some(Class::SetXattr),
        ([Op::Removexattr { .. }], _) => Some(Class::RemoveXattr),
        ([Op::Mkdir { .. }], _) => Some(Class::Mkdir),
        ([Op::Unlink { flags: 1.., .. }], _) => Some(Class::Rmdir),
        (_, Some(Space::Take)) => Some(Class::Allocate),
        (_, Some(Space::Punch)) => Some(Class::Punch),
        _ => None,
    }
}

/// Makes a rename in more than one transaction.
fn in_steps(task: &Task, op: &Compound) -> Result<(), Errno> {
    let Some((old, new, flags)) = op.renamed() else { return op.run(task) };
    let rename = |from: &str, to: &str| {
        task.rename(from, to)?;
        Compound::sync().run(task)
    };
    if RenameFlags::from_bits_retain(flags).contains(RenameFlags::EXCHANGE) {
        let aside = "/aside";
        rename(old, aside)?;
        rename(new, old)?;
        return rename(aside, new);
    }
    task.remove_file(Path::new(new))?;
    Compound::sync().run(task)?;
    rename(old, new)
}

#[cfg(test)]
mod tests;
