//! Closing of many pipes and sockets, as measured by Piggin (2009).
//!
//! Pipes and sockets belong to pseudo file systems. Linux nevertheless used to insert each one into
//! the global lists of dentries and inodes, and to remove it at its close.

use super::expect::expect_names;
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::Calls;

/// Pairs that a worker has open at the same time, which are 256 descriptors.
const PAIRS: usize = 128;

/// The kinds of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// As many pipes as pairs of sockets.
    Both,
    /// Sockets alone.
    Sockets,
}

pub(super) struct CloseMany(pub(super) Ends);

impl Workload for CloseMany {
    type Work<C: Calls> = CloseManyWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        if self.0 == Ends::Both {
            drop(calls.pipe()?);
        }
        drop(calls.socket_pair()?);
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, _: usize) -> Outcome<CloseManyWork<C>> {
        Ok(CloseManyWork { calls, ends: self.0, open: Vec::with_capacity(PAIRS) })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        expect_names(calls, c".", 0)
    }
}

pub(super) struct CloseManyWork<C: Calls> {
    calls: C,
    ends: Ends,
    open: Vec<(C::File, C::File)>,
}

impl<C: Calls> CloseManyWork<C> {
    /// Checks that no two pairs share an inode. The two ends of one pair may.
    fn expect_apart(&self) -> Outcome<()> {
        let mut inodes = Vec::new();
        for (one, other) in &self.open {
            let (one, other) = (self.calls.fstat(one)?.ino, self.calls.fstat(other)?.ino);
            inodes.push(one);
            if other != one {
                inodes.push(other);
            }
        }
        inodes.sort_unstable();
        if inodes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Fault::wrong("two pipes or sockets are the same"));
        }
        Ok(())
    }

    fn open_all(&mut self) -> Outcome<()> {
        for n in 0..PAIRS {
            let is_pipe = self.ends == Ends::Both && n.is_multiple_of(2);
            self.open.push(if is_pipe { self.calls.pipe()? } else { self.calls.socket_pair()? });
        }
        Ok(())
    }
}

impl<C: Calls> Work for CloseManyWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.open_all()?;
        self.open.clear();
        Ok(2 * PAIRS as u64)
    }

    fn end(&mut self) -> Outcome<()> {
        self.open_all()?;
        self.expect_apart()?;
        self.open.clear();
        Ok(())
    }
}
