//! Reads and writes of one large file, and durability.
//!
//! Each worker has a file of its own. `write-seq` writes `--database` bytes to an empty file in
//! each round, and its last operation includes `fsync`: so a round ends when all data is durable.
//! `read-seq` reads data that is in memory, as far as the file system caches it. `append-sync`
//! makes each of its appends durable.

use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_names, mark, write_at};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

const MIB: usize = 1 << 20;
/// Size of a file at which it is truncated, instead of being appended to.
const APPENDED_MAX: u64 = 16 << 20;

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Write,
    Read,
    Append,
}

pub(super) struct Bytes(pub(super) Transfer);

impl Workload for Bytes {
    type Work<C: Calls> = BytesWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
            let file = calls.open(&name(format!("b{worker}")), flags)?;
            if self.0 == Transfer::Read {
                let mut buffer = vec![0; MIB];
                for n in 0..parts(scene) {
                    mark(&mut buffer, n);
                    write_at(calls, &file, &buffer, n * MIB as u64)?;
                }
                calls.sync(&file)?;
            }
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<BytesWork<C>> {
        let file = calls.open(&name(format!("b{worker}")), OFlags::RDWR)?;
        let (len, parts) = match self.0 {
            Transfer::Append => (scene.io_size, (APPENDED_MAX / scene.io_size as u64).max(1)),
            Transfer::Write | Transfer::Read => (MIB, parts(scene)),
        };
        Ok(BytesWork { calls, file, part: self.0, buffer: vec![7; len], parts, done: 0 })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", scene.workers)
    }
}

/// Returns the size of a file in MiB.
fn parts(scene: &Scene) -> u64 {
    (scene.database / MIB as u64).max(1)
}

pub(super) struct BytesWork<C: Calls> {
    calls: C,
    file: C::File,
    part: Transfer,
    buffer: Vec<u8>,
    parts: u64,
    done: u64,
}

impl<C: Calls> BytesWork<C> {
    fn offset(&self) -> u64 {
        self.done * self.buffer.len() as u64
    }

    fn write(&mut self) -> Outcome<()> {
        mark(&mut self.buffer, self.done);
        let offset = self.offset();
        write_at(&self.calls, &self.file, &self.buffer, offset)
    }

    fn read(&mut self) -> Outcome<()> {
        let offset = self.offset();
        let n = self.calls.pread(&self.file, &mut self.buffer, offset)?;
        if n < self.buffer.len() || self.buffer[..8] != self.done.to_le_bytes() {
            return Err(Fault::wrong(format!("part {} is not what was written", self.done)));
        }
        Ok(())
    }
}

impl<C: Calls> Work for BytesWork<C> {
    fn is_fixed(&self) -> bool {
        self.part == Transfer::Write
    }

    fn begin(&mut self) -> Outcome<()> {
        if self.part == Transfer::Write {
            self.done = 0;
            self.calls.truncate(&self.file, 0)?;
            self.calls.sync(&self.file)?;
        }
        Ok(())
    }

    #[inline]
    fn left(&self) -> u64 {
        if self.part == Transfer::Write { self.parts - self.done } else { u64::MAX }
    }

    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        match self.part {
            Transfer::Write => {
                self.write()?;
                if self.done + 1 == self.parts {
                    self.calls.sync(&self.file)?;
                }
            }
            Transfer::Read => {
                self.done %= self.parts;
                self.read()?;
            }
            Transfer::Append => {
                if self.done == self.parts {
                    self.done = 0;
                    self.calls.truncate(&self.file, 0)?;
                }
                self.write()?;
                self.calls.sync(&self.file)?;
            }
        }
        self.done += 1;
        Ok(1)
    }

    /// Checks the size of the file, and the number in each part.
    fn end(&mut self) -> Outcome<()> {
        if self.part == Transfer::Read {
            return Ok(());
        }
        expect_equal("the size", self.calls.fstat(&self.file)?.size, self.offset())?;
        let done = self.done;
        for n in 0..done {
            self.done = n;
            self.read()?;
        }
        self.done = done;
        Ok(())
    }
}
