//! A driver that stores its directories against memory, whose directories are the dcache: the same
//! random calls have the same results, whatever the dcache has dropped.

use std::sync::Arc;

use vfscale_difftest::campaign::{Pairing, Plan};
use vfscale_testkit::calls::Calls;
use vfscale_testkit::calls::op::{Op, Seek};
use vfscale_testkit::calls::outcome::{Outcome, TimeClass, Value};
use vfscale_testkit::world::subject::Subject;
use vfscale_testkit::world::{Finished, World};
use vfscale_vfs::Vfs;

use crate::common::play;
use crate::tables::Tables;

/// Bytes of a write, of a seek and of an attribute.
const BYTES_MAX: u64 = 1_000;
/// Size that a call gives to a file.
const SIZE_MAX: u64 = 30_000;

struct MemoryAndTables;

impl Pairing for MemoryAndTables {
    type Oracle = Side;
    type Subject = Side;

    fn fresh(&self) -> Result<(Side, Side), String> {
        let fs = Tables::new();
        let vfs = Vfs::new(fs.clone()).map_err(|error| error.to_string())?;
        let backed = Side { subject: Subject::of(&vfs)?, tables: Some((fs, vfs)) };
        Ok((Side { subject: Subject::new()?, tables: None }, backed))
    }
}

/// A side, with the driver and its tree unless it is memory.
struct Side {
    subject: Subject,
    tables: Option<(Arc<Tables>, Vfs)>,
}

impl World for Side {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        let tables = self.tables.as_ref().map(|(fs, _)| fs.clone());
        self.subject.run(task, move |calls| f(&mut CommonCalls { calls, tables }))
    }

    fn fork(&mut self, from: usize, into: usize) {
        self.subject.fork(from, into);
    }

    fn shows_times_of(&self, _: &Op) -> bool {
        false
    }

    fn finish(&mut self) -> Result<Finished, String> {
        let finished = self.subject.finish()?;
        if let Some((fs, _)) = &self.tables {
            vfscale_sync::rcu::synchronize();
            fs.with_super(|sb| while sb.shrink(usize::MAX) > 0 {});
            if finished == Finished::Empty {
                let left = (fs.stored(), fs.with_super(|sb| sb.inodes_in_use()));
                assert_eq!(left, (1, 2), "the root, and the inode of negative dentries");
            }
        }
        Ok(finished)
    }
}

/// The calls that both drivers have, and the results that are theirs to agree on.
struct CommonCalls<'a> {
    calls: &'a mut dyn Calls,
    tables: Option<Arc<Tables>>,
}

impl Calls for CommonCalls<'_> {
    fn call(&mut self, op: &Op) -> Outcome {
        if !is_common(op) {
            return Outcome::Skip;
        }
        let mut outcome = self.calls.call(op);
        if let Outcome::Ok(Value::Stat(stat)) = &mut outcome {
            stat.blocks = 0;
            [stat.atime, stat.mtime, stat.ctime] = [TimeClass::Now; 3];
            if stat.mode & libc::S_IFMT == libc::S_IFDIR {
                stat.size = 0;
            }
        }
        let looks = matches!(op, Op::Stat { .. } | Op::Readlink { .. } | Op::Chmod { .. });
        let changes = matches!(op, Op::Rename { .. } | Op::Removexattr { .. } | Op::Link { .. });
        if let Some(fs) = self.tables.as_ref().filter(|_| looks || changes) {
            fs.check();
            fs.with_super(|sb| while sb.shrink(usize::MAX) > 0 {});
        }
        outcome
    }
}

/// Returns whether both drivers have the call, at sizes that no sequence adds up to the maximum.
fn is_common(op: &Op) -> bool {
    let is_small = op.to_write().is_none_or(|bytes| bytes <= BYTES_MAX);
    is_small
        && match op {
            Op::Open { flags, .. } => flags & (libc::O_DIRECT | libc::O_SYNC) as u32 == 0,
            Op::Openat2 { flags, .. } => flags & (libc::O_DIRECT | libc::O_SYNC) as u64 == 0,
            Op::Pwrite { off, .. } => *off <= SIZE_MAX,
            Op::Writev { off, .. } => off.is_none_or(|off| off <= SIZE_MAX),
            Op::Ftruncate { len, .. } | Op::Truncate { len, .. } => *len <= SIZE_MAX,
            Op::Lseek { whence, off, .. } => {
                !matches!(whence, Seek::Data | Seek::Hole) && off.unsigned_abs() <= BYTES_MAX
            }
            Op::Rename { flags, .. } => flags & libc::RENAME_WHITEOUT == 0,
            Op::Setxattr { value, .. } => value.len() as u64 <= BYTES_MAX,
            Op::Fallocate { .. } | Op::CopyRange { .. } | Op::Trim {} | Op::Statfs { .. } => false,
            Op::GetInodeFlags { .. } | Op::SetInodeFlags { .. } => false,
            Op::Mount { .. } | Op::Bind { .. } | Op::MoveMount { .. } | Op::Umount { .. } => false,
            Op::Remount { .. } | Op::RemountBind { .. } | Op::SetPropagation { .. } => false,
            _ => true,
        }
}

#[test]
fn a_driver_with_directories_does_what_memory_does() {
    let summary = play(&MemoryAndTables, &Plan::new(vfscale_sync::random::seed(), 150_000));
    assert!(summary.succeeded * 4 > summary.calls, "most calls fail: they show little");
    assert!(summary.emptied * 2 > summary.sequences, "few trees could be emptied");
}
