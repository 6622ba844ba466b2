//! Files that the next mount would have to process: the stress of orphan lists after Kara (2014).
//!
//! Kara's program truncates by a byte ([`sizes`](super::sizes)). ext4 puts every file that is being
//! truncated on its list, also for one byte. vfscale does so only for a truncation that takes
//! several transactions. So two more workloads use the list with each operation: one unlinks open
//! files, and one truncates files of many extents.

use std::ffi::CString;

use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_gone, expect_names, write_at};
use super::workload::{Scene, Workload};
use crate::base::error::Outcome;
use crate::measure::work::Work;
use crate::targets::{Calls, name};

const CREATE: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::RDWR);

/// The workload that unlinks open files.
pub(super) struct OrphanUnlink;

impl Workload for OrphanUnlink {
    type Work<C: Calls> = OrphanUnlinkWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        (0..scene.workers).try_for_each(|worker| Ok(calls.mkdir(&name(format!("w{worker}")))?))
    }

    fn work<C: Calls>(&self, mut calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        calls.chdir(&name(format!("w{worker}")))?;
        Ok(OrphanUnlinkWork { calls, file: name("o") })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            expect_names(calls, &name(format!("w{worker}")), 0)?;
        }
        expect_names(calls, c".", scene.workers)
    }
}

pub(super) struct OrphanUnlinkWork<C: Calls> {
    calls: C,
    file: CString,
}

impl<C: Calls> OrphanUnlinkWork<C> {
    /// Creates a file and unlinks it. It is an orphan until it is closed.
    #[inline]
    fn orphan(&self) -> Outcome<C::File> {
        let file = self.calls.open(&self.file, CREATE)?;
        self.calls.unlink(&self.file)?;
        Ok(file)
    }
}

impl<C: Calls> Work for OrphanUnlinkWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        drop(self.orphan()?);
        Ok(1)
    }

    /// Checks that an orphan has no name, and that its bytes are there.
    fn end(&mut self) -> Outcome<()> {
        let file = self.orphan()?;
        expect_gone(&self.calls, &self.file)?;
        write_at(&self.calls, &file, b"orphan", 0)?;
        let seen = self.calls.fstat(&file)?;
        expect_equal("the number of names of an orphan", seen.nlink, 0)?;
        expect_equal("the size of an orphan", seen.size, 6)?;
        let mut bytes = [0; 16];
        let n = self.calls.pread(&file, &mut bytes, 0)?;
        expect_equal("the number of bytes of an orphan", n as u64, 6)
    }
}

const BLOCK: u64 = 4096;
/// Number of extents that are cut off: more than vfscale frees in one transaction.
const EXTENTS: u64 = 32;

/// The workload that truncates a file of many extents.
pub(super) struct OrphanCut;

impl Workload for OrphanCut {
    type Work<C: Calls> = OrphanCutWork<C>;

    fn prepare<C: Calls>(&self, _: &mut C, _: &Scene) -> Outcome<()> {
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let file = calls.open(&name(format!("c{worker}")), CREATE)?;
        write_at(&calls, &file, b"c", 0)?;
        Ok(OrphanCutWork { calls, file, block: vec![0xc5; BLOCK as usize] })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", scene.workers)
    }
}

pub(super) struct OrphanCutWork<C: Calls> {
    calls: C,
    file: C::File,
    block: Vec<u8>,
}

impl<C: Calls> OrphanCutWork<C> {
    /// Writes every other block, and makes them durable, so each is an extent of its own.
    fn write(&self) -> Outcome<()> {
        for n in 1..=EXTENTS {
            write_at(&self.calls, &self.file, &self.block, 2 * n * BLOCK)?;
        }
        Ok(self.calls.sync(&self.file)?)
    }
}

impl<C: Calls> Work for OrphanCutWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.write()?;
        self.calls.truncate(&self.file, 1)?;
        Ok(1)
    }

    /// Checks the size before and after another truncation, and that no byte is left behind it.
    fn end(&mut self) -> Outcome<()> {
        expect_equal("the size after a cut", self.calls.fstat(&self.file)?.size, 1)?;
        self.write()?;
        let full = (2 * EXTENTS + 1) * BLOCK;
        expect_equal("the size before a cut", self.calls.fstat(&self.file)?.size, full)?;
        self.calls.truncate(&self.file, 1)?;
        self.calls.truncate(&self.file, full)?;
        let mut bytes = vec![0xff; BLOCK as usize];
        let n = self.calls.pread(&self.file, &mut bytes, 2 * BLOCK)?;
        expect_equal("the number of bytes read in a hole", n as u64, BLOCK)?;
        let left = bytes.iter().filter(|byte| **byte != 0).count();
        expect_equal("the number of bytes that were cut off and are back", left as u64, 0)?;
        Ok(self.calls.truncate(&self.file, 1)?)
    }
}
