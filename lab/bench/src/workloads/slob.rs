//! Readers and writers of a database with redo, after Oracle's SLOB, as measured by Long (2013).
//!
//! Workers with even numbers write and the others read, so of two workers each does one; or else as
//! many read as the case says, and the others write. The database is one file of 8 KiB blocks. A
//! writer's transaction gets the path of the database, as Oracle does all the time, reads a block,
//! changes it, writes a record of the change to its redo log, and writes the block. A reader gets
//! the path and reads eight blocks, a query. The workload counts transactions, and queries if no
//! worker writes; Long counts redo, in MB/s.

use vfscale::posix::OFlags;

use super::expect::{expect_equal, write_at};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::base::stats::Rng;
use crate::measure::work::Work;
use crate::targets::{Calls, name};

const BLOCK: u64 = 8 << 10;
/// Bytes of redo for a transaction.
pub(super) const REDO: u64 = 2 << 10;
/// A redo log starts over at this size.
const LOG: u64 = 4 << 20;
const BLOCKS_PER_READ: u64 = 8;

pub(super) struct Slob;

/// Returns the number of blocks of the database.
fn blocks(scene: &Scene) -> u64 {
    (scene.database / BLOCK).max(scene.workers as u64)
}

/// Returns whether a worker writes.
fn is_writer(scene: &Scene, worker: usize) -> bool {
    match scene.readers {
        Some(readers) => worker + readers < scene.workers,
        None => worker.is_multiple_of(2),
    }
}

impl Workload for Slob {
    type Work<C: Calls> = SlobWork<C>;

    /// Creates the database. Each block begins with its number and its count of changes.
    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        calls.mkdir(c"oradata")?;
        let file = calls.open(c"oradata/db", OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
        let mut block = vec![0xa5; BLOCK as usize];
        for n in 0..blocks(scene) {
            block[..8].copy_from_slice(&n.to_le_bytes());
            block[8..16].fill(0);
            write_at(calls, &file, &block, n * BLOCK)?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<SlobWork<C>> {
        let db = calls.open(c"oradata/db", OFlags::RDWR)?;
        let log = if is_writer(scene, worker) {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
            Some(calls.open(&name(format!("oradata/redo{worker}")), flags)?)
        } else {
            None
        };
        Ok(SlobWork {
            calls,
            db,
            log,
            path: Vec::new(),
            block: vec![0; BLOCK as usize],
            rng: Rng::new(scene.random_seed ^ (worker as u64) << 32),
            blocks: blocks(scene),
            worker: worker as u64,
            workers: scene.workers as u64,
            transactions: 0,
            query: u64::from(scene.readers == Some(scene.workers)),
        })
    }

    /// Checks the size of the database, and the number of each block.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        let db = calls.open(c"oradata/db", OFlags::RDONLY)?;
        let size = blocks(scene) * BLOCK;
        expect_equal("the size of the database", calls.fstat(&db)?.size, size)?;
        let mut block = vec![0; BLOCK as usize];
        for n in 0..blocks(scene) {
            let seen = calls.pread(&db, &mut block, n * BLOCK)?;
            expect_equal("the size of a block", seen as u64, BLOCK)?;
            expect_equal("the number in a block", number(&block, 0), n)?;
        }
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

pub(super) struct SlobWork<C: Calls> {
    calls: C,
    db: C::File,
    /// Redo log of a writer.
    log: Option<C::File>,
    path: Vec<u8>,
    block: Vec<u8>,
    rng: Rng,
    blocks: u64,
    worker: u64,
    workers: u64,
    /// Number of transactions so far.
    transactions: u64,
    /// Units that a query counts for: 1 if nobody writes.
    query: u64,
}

impl<C: Calls> SlobWork<C> {
    fn read_block(&mut self, n: u64) -> Outcome<()> {
        let seen = self.calls.pread(&self.db, &mut self.block, n * BLOCK)?;
        if seen as u64 != BLOCK || number(&self.block, 0) != n {
            return Err(Fault::wrong(format!("block {n} is missing")));
        }
        Ok(())
    }

    /// Draws a block that only this worker changes; its counts of changes add up to the
    /// transactions.
    fn own_block(&mut self) -> u64 {
        let own = (self.blocks - self.worker).div_ceil(self.workers);
        self.worker + self.rng.below(own) * self.workers
    }
}

impl<C: Calls> Work for SlobWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.calls.path_of(&self.db, &mut self.path)?;
        if self.log.is_none() {
            for _ in 0..BLOCKS_PER_READ {
                let n = self.rng.below(self.blocks);
                self.read_block(n)?;
            }
            return Ok(self.query);
        }
        let n = self.own_block();
        self.read_block(n)?;
        let changes = number(&self.block, 8) + 1;
        self.block[8..16].copy_from_slice(&changes.to_le_bytes());
        if let Some(log) = &self.log {
            let at = self.transactions * REDO % LOG;
            write_at(&self.calls, log, &self.block[..REDO as usize], at)?;
        }
        write_at(&self.calls, &self.db, &self.block, n * BLOCK)?;
        self.transactions += 1;
        Ok(1)
    }

    /// Checks that the changes of the worker's blocks, and its redo, match its transactions.
    fn end(&mut self) -> Outcome<()> {
        let mut path = Vec::new();
        self.calls.path_of(&self.db, &mut path)?;
        if !path.ends_with(b"/oradata/db") {
            return Err(Fault::wrong(format!("path {}", String::from_utf8_lossy(&path))));
        }
        let Some(log) = &self.log else { return Ok(()) };
        let redo = (self.transactions * REDO).min(LOG);
        expect_equal("the size of the redo log", self.calls.fstat(log)?.size, redo)?;
        let mut changes = 0;
        for n in (self.worker..self.blocks).step_by(self.workers as usize) {
            self.read_block(n)?;
            changes += number(&self.block, 8);
        }
        expect_equal("the number of changes in blocks", changes, self.transactions)
    }
}
