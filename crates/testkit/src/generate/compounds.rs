//! Random compounds: the random calls, each made whole in itself.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::calls::compound::Compound;
use crate::calls::op::{CWD, Data, FS_GUARDS, Op, PathArg};
use crate::generate::op;
use crate::generate::pools::{Kind, path};

/// Largest offset and size: what is read after each call must fit into memory.
const SIZE_MAX: u64 = 1 << 20;

/// A generator of compounds that may change a file system. They are determined by its seed.
pub struct Compounds {
    calls: BoxedStrategy<(Op, PathArg)>,
    runner: TestRunner,
}

impl Compounds {
    /// Creates a generator.
    pub fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config { failure_persistence: None, ..Config::default() };
        let calls = (op(), path(Kind::File)).boxed();
        Self { calls, runner: TestRunner::new_with_rng(config, rng) }
    }

    /// Generates the next compound. What it writes has the tag.
    pub fn next(&mut self, tag: u32) -> Compound {
        loop {
            let Ok(tree) = self.calls.new_tree(&mut self.runner) else { continue };
            let (op, file) = tree.current();
            if let Some(whole) = whole(op, file, tag) {
                return whole;
            }
        }
    }
}

/// Makes a call whole: with absolute paths, or on `file`, if it is one on a descriptor. Returns
/// `None` if it only reads, concerns nothing but its task or mounts, or uses a range that is too
/// large.
fn whole(mut op: Op, file: PathArg, tag: u32) -> Option<Compound> {
    let empty_path = libc::AT_EMPTY_PATH as u32;
    let on_file = match &mut op {
        Op::Write { data, .. } => retag(data, tag, 0),
        Op::Pwrite { data, off, .. } => *off < SIZE_MAX && retag(data, tag, *off),
        Op::CopyRange { off_in, off_out, .. } => {
            let is_near = |off: &Option<u64>| off.is_some_and(|off| off < SIZE_MAX);
            is_near(off_in) && is_near(off_out)
        }
        Op::Ftruncate { len, .. } => *len < SIZE_MAX,
        Op::Fallocate { off, len, .. } => *off < SIZE_MAX && *len < SIZE_MAX,
        Op::Fsync { .. } => true,
        Op::SetInodeFlags { flags, .. } => {
            // Nothing could remove a file that is immutable.
            *flags &= !FS_GUARDS;
            true
        }
        _ => false,
    };
    let by_path = match &op {
        Op::Truncate { len, .. } => *len < SIZE_MAX,
        Op::Link { flags, .. }
        | Op::Chmod { flags, .. }
        | Op::Chown { flags, .. }
        | Op::Utimens { flags, .. }
        | Op::Setxattr { flags, .. }
        | Op::Removexattr { flags, .. } => flags & empty_path == 0,
        Op::Open { .. }
        | Op::Openat2 { .. }
        | Op::Mkdir { .. }
        | Op::Mknod { .. }
        | Op::Unlink { .. }
        | Op::Symlink { .. }
        | Op::Rename { .. } => true,
        _ => false,
    };
    let descriptor = if on_file { 0 } else { CWD };
    op.descriptors_mut().into_iter().for_each(|fd| *fd = descriptor);
    let mut ops = vec![op];
    if on_file {
        let flags = (libc::O_RDWR | libc::O_NONBLOCK) as u32;
        ops.insert(0, Op::Open { at: CWD, path: file, flags, mode: 0 });
    }
    for path in ops.iter_mut().flat_map(Op::paths_mut) {
        if !path.0.is_empty() && !path.0.starts_with(b"/") {
            path.0.insert(0, b'/');
        }
        if path.text().is_empty() {
            return None;
        }
    }
    (on_file || by_path).then_some(Compound(ops))
}

/// Replaces data by as many bytes of the pattern of a tag, at an offset.
fn retag(data: &mut Data, tag: u32, at: u64) -> bool {
    *data = Data::Tagged { tag, at, len: data.len() as u32 };
    true
}

#[cfg(test)]
mod tests;
