//! Compounds, made by a task of the library.

use vfscale::{Errno, Task};

use crate::calls::compound::Compound;
use crate::calls::op::Op;
use crate::calls::outcome::Value;
use crate::world::subject::LibraryTask;

impl Compound {
    /// Makes the calls as a fork of `task`. A short write is continued until all is written.
    ///
    /// # Errors
    /// Returns the error of the call that failed; `NOSPC` if a write writes nothing.
    pub fn run(&self, task: &Task) -> Result<(), Errno> {
        let mut task = LibraryTask::of(task.fork());
        self.0.iter().try_for_each(|op| match task.files(op).map_err(Errno::from) {
            Ok(Value::Number(done)) => go_on(&mut task, op, done as u64),
            // A file system that has nothing to discard.
            Err(Errno::OPNOTSUPP) if *op == Op::Trim {} => Ok(()),
            made => made.map(drop),
        })
    }
}

/// Makes the rest of a call that has written `done` bytes. The source of a copy may end early.
fn go_on(task: &mut LibraryTask, op: &Op, done: u64) -> Result<(), Errno> {
    let (mut op, mut done) = (op.clone(), done);
    while op.to_write().is_some_and(|wanted| done < wanted) {
        if done == 0 {
            return if matches!(op, Op::CopyRange { .. }) { Ok(()) } else { Err(Errno::NOSPC) };
        }
        op = op.rest(done);
        match task.files(&op)? {
            Value::Number(more) => done = more as u64,
            _ => return Ok(()),
        }
    }
    Ok(())
}
