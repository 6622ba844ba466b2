//! Setting of times: the smallest change to log, of the same inode again and again.
//!
//! `push` makes each of them durable: then the log is pushed, with the commits of all CPUs.

use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_names};
use super::workload::{Scene, Workload};
use crate::base::error::Outcome;
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// The first time to set, in nanoseconds since 1970: so early that only the worker can have set it.
const FIRST: i64 = 1_000_000_000;

pub(super) struct Touch {
    /// Whether each change is made durable.
    pub(super) is_pushed: bool,
}

impl Workload for Touch {
    type Work<C: Calls> = TouchWork<C>;

    fn prepare<C: Calls>(&self, _: &mut C, _: &Scene) -> Outcome<()> {
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = calls.open(&name(format!("t{worker}")), flags)?;
        Ok(TouchWork { calls, file, time: FIRST, is_pushed: self.is_pushed })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", scene.workers)
    }
}

pub(super) struct TouchWork<C: Calls> {
    calls: C,
    file: C::File,
    time: i64,
    is_pushed: bool,
}

impl<C: Calls> Work for TouchWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        // A file system may store times more coarsely than in nanoseconds, but not than in seconds.
        self.time += 1_000_000_000;
        self.calls.touch(&self.file, self.time)?;
        if self.is_pushed {
            self.calls.sync_fs(&self.file)?;
        }
        Ok(1)
    }

    /// Checks that the file has the last time.
    fn end(&mut self) -> Outcome<()> {
        let mtime = self.calls.fstat(&self.file)?.mtime;
        if self.time > FIRST {
            expect_equal("the time", mtime.cast_unsigned(), self.time.cast_unsigned())?;
        }
        // In many rounds the time would exceed the range of some file systems.
        self.time = FIRST;
        Ok(())
    }
}
