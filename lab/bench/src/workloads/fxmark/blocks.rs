//! FxMark's microbenchmarks of blocks.

use vfscale::posix::OFlags;

use super::{PAGE, Sharing, is_background, own_dir};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};
use crate::workloads::expect::{expect_equal, expect_names, mark, write_at};
use crate::workloads::workload::{Scene, Workload};

/// Bytes of a worker's part of a file that all share.
const REGION: u64 = 8 << 20;
/// Bytes of a write that fills a file, while no time is taken.
const PIECE: usize = 1 << 20;

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockCall {
    /// Reads a page, always the same.
    Read,
    /// Overwrites a page, always the same.
    Overwrite,
    /// Overwrites it, and makes that durable.
    Sync,
    /// Appends a page.
    Append,
    /// Cuts a page off.
    Truncate,
}

/// Calls on pages of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) call: BlockCall,
    sharing: Sharing,
    /// Whether the last worker overwrites what the others read.
    has_writer: bool,
}

impl Blocks {
    /// Names a microbenchmark without a background worker.
    pub(crate) const fn new(call: BlockCall, sharing: Sharing) -> Blocks {
        Blocks { call, sharing, has_writer: false }
    }

    /// Names the one with a background worker.
    pub(crate) const fn with_writer(self) -> Blocks {
        Blocks { has_writer: true, ..self }
    }

    fn path(self, worker: usize) -> String {
        match self.sharing {
            Sharing::Low => format!("{}/data", own_dir(worker)),
            Sharing::Medium | Sharing::High => "data".to_owned(),
        }
    }

    /// Returns the number of parts of a file.
    fn parts(self, scene: &Scene) -> u64 {
        if self.sharing == Sharing::Medium { scene.workers as u64 } else { 1 }
    }

    /// Returns the number of pages of a worker's own file at its fullest.
    fn pages(self, scene: &Scene) -> u64 {
        match self.call {
            BlockCall::Append | BlockCall::Truncate => (scene.database / PAGE as u64).max(1),
            BlockCall::Read | BlockCall::Overwrite | BlockCall::Sync => 1,
        }
    }

    /// Creates a file: its parts begin with their numbers and a count of changes, 0.
    fn create<C: Calls>(self, calls: &C, scene: &Scene, worker: usize) -> Outcome<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = calls.open(&name(self.path(worker)), flags)?;
        match (self.call, self.sharing) {
            (BlockCall::Append | BlockCall::Truncate, _) => {}
            (_, Sharing::Medium) => {
                let mut piece = vec![0; PIECE];
                for at in (0..self.parts(scene) * REGION).step_by(PIECE) {
                    mark(&mut piece, at / REGION);
                    write_at(calls, &file, &piece, at)?;
                }
            }
            _ => write_at(calls, &file, &[0; PAGE], 0)?,
        }
        Ok(calls.sync(&file)?)
    }
}

impl Workload for Blocks {
    type Work<C: Calls> = BlocksWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        if self.sharing != Sharing::Low {
            return self.create(calls, scene, 0);
        }
        for worker in 0..scene.workers {
            calls.mkdir(&name(own_dir(worker)))?;
            self.create(calls, scene, worker)?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<BlocksWork<C>> {
        let file = calls.open(&name(self.path(worker)), OFlags::RDWR)?;
        let is_writer = is_background(self.has_writer, scene, worker);
        let parts = self.parts(scene);
        Ok(BlocksWork {
            calls,
            file,
            call: if is_writer { BlockCall::Overwrite } else { self.call },
            part: worker as u64 % parts,
            turns: if is_writer { parts } else { 1 },
            units: u64::from(!is_writer),
            page: vec![0; PAGE],
            pages: self.pages(scene),
            done: 0,
        })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", if self.sharing == Sharing::Low { scene.workers } else { 1 })
    }
}

pub(crate) struct BlocksWork<C: Calls> {
    calls: C,
    file: C::File,
    call: BlockCall,
    /// Number of the part of the file that the next call uses.
    part: u64,
    /// Number of parts that a background worker overwrites in turn; 1 for others.
    turns: u64,
    /// Units that an operation counts for.
    units: u64,
    page: Vec<u8>,
    /// Pages of a round of fixed work.
    pages: u64,
    /// Operations: all of them, or those of a round of fixed work.
    done: u64,
}

impl<C: Calls> BlocksWork<C> {
    fn offset(&self) -> u64 {
        self.part * REGION
    }

    fn read(&mut self) -> Outcome<()> {
        let offset = self.offset();
        let n = self.calls.pread(&self.file, &mut self.page, offset)?;
        if n < PAGE || self.page[..8] != self.part.to_le_bytes() {
            return Err(Fault::wrong(format!("part {} is missing", self.part)));
        }
        Ok(())
    }

    fn overwrite(&mut self) -> Outcome<()> {
        if self.turns > 1 {
            self.part = self.done % self.turns;
        }
        mark(&mut self.page, self.part);
        mark(&mut self.page[8..], self.done + 1);
        write_at(&self.calls, &self.file, &self.page, self.offset())
    }

    fn append(&mut self) -> Outcome<()> {
        mark(&mut self.page, self.done);
        write_at(&self.calls, &self.file, &self.page, self.done * PAGE as u64)
    }

    fn expect_size(&self, pages: u64) -> Outcome<()> {
        expect_equal("the size", self.calls.fstat(&self.file)?.size, pages * PAGE as u64)
    }

    /// Checks the number in a page of a file that grows or shrinks.
    fn expect_page(&mut self, number: u64) -> Outcome<()> {
        let n = self.calls.pread(&self.file, &mut self.page, number * PAGE as u64)?;
        expect_equal("the bytes read of a page", n as u64, PAGE as u64)?;
        if self.page[..8] != number.to_le_bytes() {
            return Err(Fault::wrong(format!("page {number} is not what was written")));
        }
        Ok(())
    }
}

impl<C: Calls> Work for BlocksWork<C> {
    fn is_fixed(&self) -> bool {
        matches!(self.call, BlockCall::Append | BlockCall::Truncate)
    }

    fn begin(&mut self) -> Outcome<()> {
        if !self.is_fixed() {
            return Ok(());
        }
        self.done = 0;
        self.calls.truncate(&self.file, 0)?;
        if self.call == BlockCall::Truncate {
            for _ in 0..self.pages {
                self.append()?;
                self.done += 1;
            }
            self.done = 0;
            self.expect_size(self.pages)?;
        }
        Ok(self.calls.sync(&self.file)?)
    }

    #[inline]
    fn left(&self) -> u64 {
        if self.is_fixed() { self.pages - self.done } else { u64::MAX }
    }

    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        match self.call {
            BlockCall::Read => self.read()?,
            BlockCall::Overwrite => self.overwrite()?,
            BlockCall::Sync => {
                self.overwrite()?;
                self.calls.sync(&self.file)?;
            }
            BlockCall::Append => self.append()?,
            BlockCall::Truncate => {
                let size = (self.pages - self.done - 1) * PAGE as u64;
                self.calls.truncate(&self.file, size)?;
            }
        }
        self.done += 1;
        Ok(self.units)
    }

    fn end(&mut self) -> Outcome<()> {
        match self.call {
            BlockCall::Read => self.read(),
            BlockCall::Append => {
                self.expect_size(self.done)?;
                (0..self.done).try_for_each(|page| self.expect_page(page))
            }
            BlockCall::Truncate => {
                let left = self.left();
                self.expect_size(left)?;
                (0..left).try_for_each(|page| self.expect_page(page))
            }
            BlockCall::Overwrite | BlockCall::Sync if self.done == 0 => Ok(()),
            BlockCall::Overwrite | BlockCall::Sync => {
                self.read()?;
                if self.page[8..16] != self.done.to_le_bytes() {
                    return Err(Fault::wrong(format!("part {} is old", self.part)));
                }
                Ok(())
            }
        }
    }
}
