//! An executable model of the calls: what each of them does, and what it gives.
//!
//! # Purpose
//!
//! The scalable commutativity rule speaks of an interface, not of code: whether two calls commute is
//! decided by what they may give. So the decision is made here, on a [`State`] that is small and can be
//! copied and compared, and which knows of no lock, cache or CPU. `COMMUTER` (Clements, Kaashoek,
//! Zeldovich, Morris, Kohler: The Scalable Commutativity Rule, SOSP 2013) executes such a model with
//! symbols and has a solver find the states; this one is executed as it is, on all states that
//! [`generate`](crate::generate) makes.
//!
//! # What is in it
//!
//! | module | what |
//! | --- | --- |
//! | `state` | inodes, names, open files, working directories, mounts |
//! | `walk` | from a path to a name |
//! | `names` | calls on names: `link`, `unlink`, `rename`, ... |
//! | `files` | calls that open files, and calls on open files |
//! | `attributes` | calls on attributes |
//! | `observe` | calls that see all there is |
//! | `renaming` | the same state under other names |
//! | `snapshot` | all that later calls can see of a state |
//! | `verdict` | do two calls commute? |
//!
//! # What it leaves open, and how
//!
//! * **Inode numbers** are any fresh ones: what was made by the calls of a case is known by how it can be
//!   reached. Numbers that exist before are what they are.
//! * **Descriptors** are any free ones: a call names the slot that its descriptor goes to.
//! * **Times** of the last change are in it as whether they have changed since the two calls began: who looks
//!   at them can tell whether it is before or after a change, but nobody can tell which of two changes
//!   was the last. COMMUTER comes to the same by another way, since it may choose any time that is not before
//!   the old one. The time of the last access is not in it: after a change it is set once, in a tick of the
//!   clock, and a case takes less than one.
//! * **A directory's size**, of which POSIX says nothing.
//! * **Data are whole pages**, each filled with one byte. What begins or ends within a page is refused with
//!   `EINVAL`, which the library does not do, so that a case of that kind is found out at once.
//! * **Permissions**: both processes are privileged. Modes are there to be changed and seen.
//!
//! # Invariants
//!
//! * The same calls from the same state give the same outcomes and the same state.
//! * A call that fails changes nothing.
//! * It says what Linux does; `execute`'s tests hold the library to it, case by case.

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

/// What a call of the model comes to.
type Done = Result<Outcome, Errno>;

impl State {
    /// Makes a call.
    pub fn call(&mut self, call: &Call) -> Outcome {
        let done = match call.op.slot() {
            Some(_) => self.by_slot(usize::from(call.process), &call.op),
            None => self.by_path(usize::from(call.process), &call.op),
        };
        done.unwrap_or_else(Outcome::Error)
    }

    fn by_path(&mut self, process: usize, op: &Op) -> Done {
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
            Op::Getcwd => self.getcwd(process),
            Op::Chdir { path } => self.chdir(process, path),
            Op::Mount { path } => self.mount(process, path),
            _ => Err(Errno::BADF),
        }
    }

    fn by_slot(&mut self, process: usize, op: &Op) -> Done {
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
