//! Writes, reads, truncations and punched holes of `--io-size` bytes, in files of the workers.
//!
//! `pwrite`, `pread` and `punch` go over a file of `--database` bytes, one piece after the other.
//! `truncate` and `punch` need bytes that they can free, so their operations write a piece too: the
//! difference to `pwrite` is theirs.

use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_names, mark, write_at};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceCall {
    /// Overwrites a piece.
    Write,
    /// Reads a piece.
    Read,
    /// Writes a piece to an empty file, and truncates that.
    Truncate,
    /// Punches a piece out, and writes it anew.
    Punch,
}

pub(super) struct Pieces(pub(super) PieceCall);

impl Workload for Pieces {
    type Work<C: Calls> = PiecesWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
            let file = calls.open(&name(format!("p{worker}")), flags)?;
            let mut buffer = vec![7; scene.io_size];
            for n in 0..self.pieces(scene) {
                mark(&mut buffer, n);
                write_at(calls, &file, &buffer, n * scene.io_size as u64)?;
            }
            calls.sync(&file)?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<PiecesWork<C>> {
        let file = calls.open(&name(format!("p{worker}")), OFlags::RDWR)?;
        let pieces = self.pieces(scene);
        let buffer = vec![7; scene.io_size];
        Ok(PiecesWork { calls, file, call: self.0, buffer, pieces, done: pieces })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", scene.workers)
    }
}

impl Pieces {
    /// Returns the number of pieces of a file between operations.
    fn pieces(&self, scene: &Scene) -> u64 {
        match self.0 {
            PieceCall::Truncate => 0,
            _ => (scene.database / scene.io_size as u64).max(1),
        }
    }
}

pub(super) struct PiecesWork<C: Calls> {
    calls: C,
    file: C::File,
    call: PieceCall,
    buffer: Vec<u8>,
    pieces: u64,
    /// Number of pieces that were written or read, those of the preparation included.
    done: u64,
}

impl<C: Calls> PiecesWork<C> {
    fn size(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Returns the offset of the piece that a call uses.
    fn offset(&self, number: u64) -> u64 {
        number.checked_rem(self.pieces).unwrap_or(0) * self.size()
    }

    fn write(&mut self) -> Outcome<()> {
        mark(&mut self.buffer, self.done);
        write_at(&self.calls, &self.file, &self.buffer, self.offset(self.done))
    }

    /// Reads the piece of a call, and checks that it begins with a number.
    fn read(&mut self, of: u64, expected: u64) -> Outcome<()> {
        let offset = self.offset(of);
        let n = self.calls.pread(&self.file, &mut self.buffer, offset)?;
        if n < self.buffer.len() || self.buffer[..8] != expected.to_le_bytes() {
            return Err(Fault::wrong(format!("piece {of} is not what was written")));
        }
        Ok(())
    }

    /// Checks that a truncated file has no bytes, and that one of a piece has that.
    fn check_truncated(&mut self) -> Outcome<()> {
        expect_equal("the size", self.calls.fstat(&self.file)?.size, 0)?;
        self.write()?;
        expect_equal("the size", self.calls.fstat(&self.file)?.size, self.size())?;
        self.read(self.done, self.done)?;
        Ok(self.calls.truncate(&self.file, 0)?)
    }

    /// Checks that the piece of the last call reads as zeros once it is punched out, and writes it
    /// anew.
    fn check_punched(&mut self) -> Outcome<()> {
        self.done -= 1;
        let (last, offset) = (self.done, self.offset(self.done));
        self.calls.punch(&self.file, offset, self.size())?;
        let n = self.calls.pread(&self.file, &mut self.buffer, offset)?;
        if n < self.buffer.len() || self.buffer.iter().any(|byte| *byte != 0) {
            return Err(Fault::wrong(format!("piece {last} was punched out and has bytes")));
        }
        self.buffer.fill(7);
        self.write()?;
        self.done += 1;
        Ok(())
    }
}

impl<C: Calls> Work for PiecesWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        match self.call {
            PieceCall::Write => self.write()?,
            PieceCall::Read => self.read(self.done, self.done % self.pieces)?,
            PieceCall::Truncate => {
                self.write()?;
                self.calls.truncate(&self.file, 0)?;
            }
            PieceCall::Punch => {
                self.calls.punch(&self.file, self.offset(self.done), self.size())?;
                self.write()?;
            }
        }
        self.done += 1;
        Ok(1)
    }

    /// Checks the size of the file, and the number in each piece.
    fn end(&mut self) -> Outcome<()> {
        match self.call {
            PieceCall::Read => return Ok(()),
            PieceCall::Truncate => return self.check_truncated(),
            PieceCall::Punch => self.check_punched()?,
            PieceCall::Write => {}
        }
        expect_equal("the size", self.calls.fstat(&self.file)?.size, self.pieces * self.size())?;
        (self.done - self.pieces..self.done).try_for_each(|number| self.read(number, number))
    }
}
