//! The measured loop.

use serde::{Deserialize, Serialize};

use super::work::Work;
use crate::base::clock;
use crate::base::error::Outcome;
use crate::base::interrupt::Interrupt;

/// Range of the time between two reads of the clock, once a worker has adapted its batch.
const BATCH_NANOS: std::ops::Range<u64> = 10_000..40_000;

/// Interval at which a fixed amount of work records its progress.
const MARK_NANOS: u64 = 50_000_000;

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timing {
    /// The number of operations, and the time of all together.
    Throughput,
    /// The time of each operation, one after the other.
    Closed,
    /// The time of each operation at a fixed rate: operations should start at intervals of this
    /// many nanoseconds. The time counts from that moment, so an operation that waited for a slow
    /// one before it took longer.
    Every(u64),
}

/// Measurements of one worker in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Number of operations.
    pub ops: u64,
    /// Start, in nanoseconds of the common clock.
    pub begin: u64,
    /// Duration, in nanoseconds.
    pub elapsed: u64,
    /// Whether the amount of work was fixed, and not the time.
    pub fixed: bool,
    /// CPU time, in nanoseconds.
    pub cpu: u64,
    /// The part of it that the kernel took.
    pub system: u64,
    /// Nanoseconds for which the worker was ready to run and waited for a CPU.
    pub waited: u64,
    /// Progress of a fixed amount of work: moments since `begin`, and the operations until then.
    pub marks: Vec<(u64, u64)>,
    /// Nanoseconds of each operation, if requested.
    pub latencies: Vec<u64>,
}

impl Sample {
    /// Returns the operations per second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / (self.elapsed as f64 / 1e9)
    }

    /// Returns the share of its CPU that the worker got while it was ready to run.
    pub fn share(&self) -> f64 {
        1.0 - self.waited as f64 / self.elapsed as f64
    }
}

/// The steps of a round for one worker, with the type of its work erased.
pub trait Act {
    /// Prepares a round.
    ///
    /// # Errors
    /// Returns the fault of the work.
    fn begin(&mut self) -> Outcome<()>;

    /// Measures from `start` on for `slice` nanoseconds, or until `stop` is raised.
    ///
    /// # Errors
    /// Returns the fault of the work.
    fn go(&mut self, start: u64, slice: u64, timing: Timing, stop: &Interrupt) -> Outcome<Sample>;

    /// Checks the effects of a round.
    ///
    /// # Errors
    /// Returns the fault of the work.
    fn end(&mut self) -> Outcome<()>;
}

/// The measured loop around some work.
pub struct Player<W> {
    work: W,
    /// Number of operations between two reads of the clock.
    batch: u64,
}

impl<W: Work> Player<W> {
    /// Creates the loop around `work`.
    pub fn new(work: W) -> Player<W> {
        Player { work, batch: 1 }
    }

    /// Returns the work, to run it without measuring.
    pub fn work_mut(&mut self) -> &mut W {
        &mut self.work
    }

    /// Runs the measured loop from `begin` on. Returns the number of operations.
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

    /// Runs the loop that takes the time of each operation.
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
        let system = clock::cpu_in_kernel();
        let begin = clock::now();
        let (ops, latencies) = if timing == Timing::Throughput {
            (self.work(begin, slice, stop, &mut marks)?, Vec::new())
        } else {
            self.time_each(begin, slice, timing, stop)?
        };
        let elapsed = (clock::now() - begin).max(1);
        let waited = clock::cpu_waited().saturating_sub(waited);
        let cpu = clock::cpu_used() - cpu;
        let system = clock::cpu_in_kernel().saturating_sub(system);
        Ok(Sample {
            ops,
            begin,
            elapsed,
            fixed: self.work.is_fixed(),
            cpu,
            system,
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
