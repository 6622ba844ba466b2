//! The measured loop.

use serde::{Deserialize, Serialize};

use super::work::Work;
use crate::base::clock;
use crate::base::error::Outcome;
use crate::base::interrupt::Interrupt;

/// The time between two looks at the clock lies between these, once a worker has found its pace.
const BATCH_NANOS: std::ops::Range<u64> = 10_000..40_000;

/// Work of a fixed amount notes how far it is this often.
const MARK_NANOS: u64 = 50_000_000;

/// What is taken note of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Timing {
    /// Operations and the time they took together.
    Throughput,
    /// The time of each operation, one after the other.
    Closed,
    /// Operations start at fixed intervals of so many nanoseconds, and take from when they should
    /// have started: one that had to wait for a slow one before it took that much longer.
    Every(u64),
}

/// What one worker did in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Operations.
    pub(crate) ops: u64,
    /// When it began, in nanoseconds of the common clock.
    pub(crate) begin: u64,
    /// How long it worked, in nanoseconds.
    pub(crate) elapsed: u64,
    /// Whether the amount of work was fixed, and not the time.
    pub(crate) fixed: bool,
    /// Nanoseconds of CPU.
    pub(crate) cpu: u64,
    /// Nanoseconds that it could have run and was not let.
    pub(crate) waited: u64,
    /// Moments since `begin` and the operations done by then, if the amount of work is fixed.
    pub(crate) marks: Vec<(u64, u64)>,
    /// Nanoseconds of each operation, if they were asked for.
    pub(crate) latencies: Vec<u64>,
}

/// A worker's part, whatever it is.
pub(crate) trait Act {
    fn begin(&mut self) -> Outcome<()>;
    fn go(&mut self, start: u64, slice: u64, timing: Timing, stop: &Interrupt) -> Outcome<Sample>;
    fn end(&mut self) -> Outcome<()>;
}

/// Measures work.
pub(crate) struct Player<W> {
    work: W,
    /// Operations between two looks at the clock.
    batch: u64,
}

impl<W: Work> Player<W> {
    pub(crate) fn new(work: W) -> Player<W> {
        Player { work, batch: 1 }
    }

    /// The measured loop. Returns the operations; the time runs from `begin`.
    fn work(
        &mut self,
        begin: u64,
        slice: u64,
        stop: &Interrupt,
        marks: &mut Vec<(u64, u64)>,
    ) -> Outcome<u64> {
        let mut ops = 0;
        let mut before = begin;
        let mut next_mark = if self.work.is_fixed() { begin + MARK_NANOS } else { u64::MAX };
        loop {
            let batch = self.batch.min(self.work.left());
            for _ in 0..batch {
                ops += self.work.op()?;
            }
            let now = clock::now();
            if now >= next_mark {
                marks.push((now - begin, ops));
                next_mark = now + MARK_NANOS;
            }
            if now - begin >= slice || self.work.left() == 0 || stop.is_raised() {
                return Ok(ops);
            }
            if now - before < BATCH_NANOS.start {
                self.batch *= 2;
            } else if now - before > BATCH_NANOS.end && self.batch > 1 {
                self.batch /= 2;
            }
            before = now;
        }
    }

    /// The loop that takes the time of each operation.
    fn time_each(
        &mut self,
        begin: u64,
        slice: u64,
        timing: Timing,
        stop: &Interrupt,
    ) -> Outcome<(u64, Vec<u64>)> {
        let mut latencies = Vec::with_capacity(1 << 16);
        let mut ops = 0;
        let mut due = begin;
        loop {
            if let Timing::Every(_) = timing {
                clock::wait_until(due);
            } else {
                due = clock::now();
            }
            ops += self.work.op()?;
            let now = clock::now();
            latencies.push(now - due);
            if let Timing::Every(interval) = timing {
                due += interval;
            }
            if now - begin >= slice || self.work.left() == 0 || stop.is_raised() {
                return Ok((ops, latencies));
            }
        }
    }
}

impl<W: Work> Act for Player<W> {
    fn begin(&mut self) -> Outcome<()> {
        self.work.begin()
    }

    fn go(&mut self, start: u64, slice: u64, timing: Timing, stop: &Interrupt) -> Outcome<Sample> {
        let slice = if self.work.is_fixed() { u64::MAX } else { slice };
        let mut marks = Vec::with_capacity(256);
        clock::wait_until(start);
        let (cpu, waited) = (clock::cpu_used(), clock::cpu_waited());
        let begin = clock::now();
        let (ops, latencies) = if timing == Timing::Throughput {
            (self.work(begin, slice, stop, &mut marks)?, Vec::new())
        } else {
            self.time_each(begin, slice, timing, stop)?
        };
        let elapsed = (clock::now() - begin).max(1);
        let waited = clock::cpu_waited().saturating_sub(waited);
        let cpu = clock::cpu_used() - cpu;
        Ok(Sample {
            ops,
            begin,
            elapsed,
            fixed: self.work.is_fixed(),
            cpu,
            waited,
            marks,
            latencies,
        })
    }

    fn end(&mut self) -> Outcome<()> {
        self.work.end()
    }
}

#[cfg(test)]
pub(crate) mod tests;
