//! Eviction: cached names are dropped and looked up again, with the lists of unused dentries and of
//! inodes that Piggin (2009) splits.

use std::ffi::CString;

use super::expect::{expect_equal, expect_names, write_file};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// Number of files in a worker's directory.
const FILES: usize = 64;

/// The workload that evicts names.
pub(super) struct Evict;

fn dir(worker: usize) -> CString {
    name(format!("w{worker}"))
}

impl Workload for Evict {
    type Work<C: Calls> = EvictWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            calls.mkdir(&dir(worker))?;
            for n in 0..FILES {
                write_file(calls, &name(format!("w{worker}/e{n}")), &vec![7; n])?;
            }
        }
        if calls.drop_cached(&dir(0))? == 0 {
            return Err(Fault::unsupported("the file system keeps all names in memory"));
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let files = (0..FILES).map(|n| name(format!("w{worker}/e{n}"))).collect();
        Ok(EvictWork { calls, dir: dir(worker), files })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        (0..scene.workers).try_for_each(|worker| expect_names(calls, &dir(worker), FILES))
    }
}

pub(super) struct EvictWork<C> {
    calls: C,
    dir: CString,
    files: Vec<CString>,
}

impl<C: Calls> Work for EvictWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        for file in &self.files {
            self.calls.stat(file)?;
        }
        match self.calls.drop_cached(&self.dir)? {
            0 => Err(Fault::wrong("none of the names that were looked up was dropped")),
            dropped => Ok(dropped),
        }
    }

    /// Checks that each file is found again, and is the right one.
    fn end(&mut self) -> Outcome<()> {
        for (n, file) in self.files.iter().enumerate() {
            expect_equal("the size of a file", self.calls.stat(file)?.size, n as u64)?;
        }
        Ok(())
    }
}
