//! An executable model of the calls: what each of them does and returns.
//!
//! # Purpose
//!
//! The scalable commutativity rule is about an interface, not an implementation: the results that
//! the interface allows decide whether two calls commute. So this module decides it, on a [`State`]
//! that is small, can be copied and compared, and has no locks, caches or CPUs. `COMMUTER`
//! (Clements, Kaashoek, Zeldovich, Morris, Kohler: The Scalable Commutativity Rule, SOSP 2013)
//! executes such a model symbolically and finds the states with a solver. This model is executed
//! concretely, on all states that [`generate`](crate::generate) makes.
//!
//! # Modules
//!
//! | module | contents |
//! | --- | --- |
//! | `state` | inodes, names, open files, working directories, mounts |
//! | `walk` | path lookup |
//! | `names` | calls on names: `link`, `unlink`, `rename`, ... |
//! | `files` | calls that open files, and calls on open files |
//! | `attributes` | calls on attributes |
//! | `observe` | calls that observe the whole state |
//! | `renaming` | a state under other names |
//! | `snapshot` | all that later calls can observe of a state |
//! | `verdict` | whether two calls commute |
//!
//! # What the model leaves open
//!
//! * **Inode numbers** of new inodes are arbitrary: an inode that the calls of a case made is
//!   identified by the names and slots that reach it. Numbers of older inodes are fixed.
//! * **Descriptors** are arbitrary free ones: a call names the slot that receives its descriptor.
//! * **Times**: the model stores whether the modification and the change time have changed since
//!   the two calls began. A call that reads a time can detect whether it runs before or after a
//!   change, but no call can detect which of two changes was the last. COMMUTER reaches the same
//!   result by a different rule: it may choose any time that is not before the old one. The access
//!   time is not modelled: after a change it is set once in a tick of the clock, and a case takes
//!   less than a tick.
//! * **A directory's size**, which POSIX leaves open.
//! * **Data are whole pages**, each filled with one byte. A range that begins or ends within a page
//!   fails with `EINVAL`. The library accepts it, so [`check`](crate::check) detects a case with
//!   such a range immediately.
//! * **Permissions**: both processes are privileged. Modes can be changed and read, and have no
//!   effect.
//!
//! # Invariants
//!
//! * The same calls from the same state give the same outcomes and the same state.
//! * A call that fails changes nothing.
//! * The model does what Linux does; the tests of `execute` compare it with the library, case by
//!   case.

mod attributes;
mod files;
mod names;
mod observe;
mod renaming;
mod snapshot;
mod state;
mod verdict;
mod walk;

pub use snapshot::Snapshot;
pub use state::{PAGE, State};
pub use verdict::{Results, commute, commute_three, outcomes};

use vfscale::Errno;

use crate::case::{Call, Op, Outcome};
use state::CallResult;

impl State {
    /// Returns the state after calls on an empty file system, or `None` if one of them fails.
    #[must_use]
    pub fn after(calls: &[Call]) -> Option<State> {
        let mut state = State::new();
        let done = calls.iter().all(|call| !matches!(state.call(call), Outcome::Error(_)));
        done.then_some(state)
    }

    /// Makes a call.
    pub fn call(&mut self, call: &Call) -> Outcome {
        let done = match call.op.slot() {
            Some(_) => self.by_slot(usize::from(call.process), &call.op),
            None => self.by_path(usize::from(call.process), &call.op),
        };
        done.unwrap_or_else(Outcome::Error)
    }

    fn by_path(&mut self, process: usize, op: &Op) -> CallResult {
        match op {
            Op::Open { path, flags, mode, slot } => self.open(process, path, *flags, *mode, *slot),
            Op::Stat { path, follow } => self.stat(process, path, *follow),
            Op::Statx { path, mask } => self.statx(process, path, *mask),
            Op::Lookup { path } => self.lookup_mount(process, path),
            Op::Link { old, new } => self.link(process, old, new),
            Op::Unlink { path } => self.unlink(process, path),
            Op::Rename { old, new, flags } => self.rename(process, old, new, *flags),
            Op::Mkdir { path, mode } => self.mkdir(process, path, *mode),
            Op::Rmdir { path } => self.rmdir(process, path),
            Op::Symlink { target, path } => self.symlink(process, target, path),
            Op::Readlink { path } => self.readlink(process, path),
            Op::Truncate { path, size } => self.truncate(process, path, *size),
            Op::Pipe { reader, writer } => self.pipe(process, *reader, *writer),
            Op::Setxattr { path, name, len, byte, how } => {
                self.setxattr(process, path, name, (*len, *byte), *how)
            }
            Op::Getxattr { path, name } => self.getxattr(process, path, name),
            Op::Chmod { path, mode } => self.chmod(process, path, *mode),
            Op::Getcwd {} => self.getcwd(process),
            Op::Chdir { path } => self.chdir(process, path),
            Op::Mount { path } => self.mount(process, path),
            _ => Err(Errno::BADF),
        }
    }

    fn by_slot(&mut self, process: usize, op: &Op) -> CallResult {
        let slot = op.slot().ok_or(Errno::BADF)?;
        let file = self.slot(process, slot).ok_or(Errno::BADF)?;
        match *op {
            Op::Dup { to, .. } => self.give(process, to, file),
            Op::Pass { .. } => self.give(1 - process % 2, slot, file),
            Op::Close { .. } => self.close(process, slot),
            Op::Fstat { .. } => Ok(self.attributes(self.file(file).inode)),
            Op::Ftruncate { size, .. } => self.ftruncate(file, size),
            Op::Read { len, .. } => self.read(file, len),
            Op::Write { len, byte, .. } => self.write(file, len, byte),
            Op::Pread { len, offset, .. } => self.pread(file, len, offset),
            Op::Pwrite { len, byte, offset, .. } => self.pwrite(file, len, byte, offset),
            Op::Lseek { to, .. } => self.lseek(file, to),
            Op::Readdir { .. } => self.readdir(file),
            Op::DPath { .. } => Ok(Outcome::Text(self.d_path(self.file(file).dentry))),
            Op::Fsync { .. } => self.fsync(file),
            _ => Err(Errno::BADF),
        }
    }
}

#[cfg(test)]
mod tests;
