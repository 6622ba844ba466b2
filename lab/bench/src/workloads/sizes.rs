//! Truncation by one byte: the stress test of orphan lists by Kara (2014).

use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_names, write_at};
use super::workload::{Scene, Workload};
use crate::base::error::Outcome;
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// Size at which truncation starts.
const FULL: u64 = 4096;

pub(super) struct OrphanTruncate;

impl Workload for OrphanTruncate {
    type Work<C: Calls> = OrphanTruncateWork<C>;

    fn prepare<C: Calls>(&self, _: &mut C, _: &Scene) -> Outcome<()> {
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = calls.open(&name(format!("t{worker}")), flags)?;
        write_at(&calls, &file, &[1; FULL as usize], 0)?;
        Ok(OrphanTruncateWork { calls, file, size: FULL })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", scene.workers)
    }
}

pub(super) struct OrphanTruncateWork<C: Calls> {
    calls: C,
    file: C::File,
    size: u64,
}

impl<C: Calls> Work for OrphanTruncateWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        self.size = if self.size > 1 { self.size - 1 } else { FULL };
        self.calls.truncate(&self.file, self.size)?;
        Ok(1)
    }

    /// Checks the size, and that no byte can be read beyond it.
    fn end(&mut self) -> Outcome<()> {
        expect_equal("the size", self.calls.fstat(&self.file)?.size, self.size)?;
        let mut rest = [0; 16];
        let n = self.calls.pread(&self.file, &mut rest, self.size - 1)?;
        expect_equal("the number of bytes read at the end", n as u64, 1)
    }
}
