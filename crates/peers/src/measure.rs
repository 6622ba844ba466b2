//! Rounds and ratios of two subjects, measured by the bench's teams.
//!
//! A [`Harness`] gives the works of each side to a [`Team`] of threads, one on each of the first
//! CPUs. In a round first one side works and then the other, for some milliseconds each, while the
//! other one sleeps. The rate of a side is the sum of its threads' rates.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vfscale_bench::machine::usable_cpus;
use vfscale_bench::measure::{Act, Sample, Seat, Timing};
use vfscale_bench::stats::{Spread, median, quantile};
use vfscale_bench::{Failure, Fault, Interrupt, Team};

use crate::subject::Work;

/// Length and number of rounds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time of one side in a round.
    pub slice: Duration,
    /// Number of rounds that count.
    pub rounds: usize,
    /// The share of its CPU that each thread must get for the round to count, from 0 to 1.
    pub share_min: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { slice: Duration::from_millis(20), rounds: 25, share_min: 0.97 }
    }
}

/// Time of the warm-up, which does not count.
const WARM_UP: Duration = Duration::from_millis(60);

/// Requests more time on this thread's CPU than other threads get.
fn raise_thread_priority() {
    // Only the superuser may. Without it more rounds are discarded.
    let _ = rustix::process::setpriority_process(None, -20);
}

/// The niceness of this session among others (`autogroup` of `sched(7)`), restored when dropped.
struct Priority {
    before: Option<String>,
}

const AUTOGROUP: &str = "/proc/self/autogroup";

impl Priority {
    /// Requests more time than other sessions get. Only the superuser may; without it more rounds
    /// are discarded.
    fn raise() -> Priority {
        let text = std::fs::read_to_string(AUTOGROUP).unwrap_or_default();
        let before = text.split_whitespace().last().map(str::to_owned);
        let raised = std::fs::write(AUTOGROUP, "-20");
        Priority { before: before.filter(|_| raised.is_ok()) }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Raising it succeeded before; if this fails, the session remains favoured.
            let _ = std::fs::write(AUTOGROUP, before);
        }
    }
}

/// Measures works against each other on the first CPUs.
pub struct Harness {
    cpus: Vec<usize>,
    plan: Plan,
    _priority: Priority,
}

/// Ratios of all rounds, with the rates behind them.
#[derive(Clone, Debug)]
pub struct Ratios {
    ratios: Vec<f64>,
    /// Median time of an operation of the first and the second side, in nanoseconds.
    pub nanos: [f64; 2],
    /// The smallest share of a CPU in a round that counted.
    pub share: f64,
    /// Number of discarded rounds.
    pub disturbed: usize,
}

impl Ratios {
    /// Returns the median.
    pub fn median(&self) -> f64 {
        median(&self.ratios)
    }

    /// Returns the smallest and the largest ratio.
    pub fn range(&self) -> (f64, f64) {
        let spread = Spread::of(&self.ratios);
        (spread.min, spread.max)
    }

    /// Returns the first and the third quartile.
    pub fn quartiles(&self) -> (f64, f64) {
        (quantile(&self.ratios, 0.25), quantile(&self.ratios, 0.75))
    }
}

/// Collects rounds until there are enough.
struct Rounds {
    plan: Plan,
    ratios: Vec<f64>,
    nanos: [Vec<f64>; 2],
    share: f64,
    disturbed: usize,
}

impl Rounds {
    fn new(plan: Plan) -> Rounds {
        let nanos = [Vec::new(), Vec::new()];
        Rounds { plan, ratios: Vec::new(), nanos, share: 1.0, disturbed: 0 }
    }

    /// Returns whether a round may still be discarded; after many, the machine is too busy to wait
    /// for better ones.
    fn is_patient(&self) -> bool {
        self.disturbed < 6 * self.plan.rounds
    }

    fn is_done(&self) -> bool {
        self.ratios.len() >= self.plan.rounds
    }

    fn add(&mut self, ratio: f64, nanos: [f64; 2], share: f64) {
        if share < self.plan.share_min && self.is_patient() {
            self.disturbed += 1;
            return;
        }
        self.share = self.share.min(share);
        self.ratios.push(ratio);
        for (all, one) in self.nanos.iter_mut().zip(nanos) {
            all.push(one);
        }
    }

    fn finish(self) -> Ratios {
        Ratios {
            nanos: self.nanos.map(|all| median(&all)),
            ratios: self.ratios,
            share: self.share,
            disturbed: self.disturbed,
        }
    }
}

/// The threads of one side, warmed up.
struct Side(Team);

/// Rates of some threads in one slice.
struct Slice {
    /// Operations per second of all threads together.
    rate: f64,
    /// The smallest share of a CPU.
    share: f64,
}

impl Side {
    fn run(&mut self, workers: &[usize], time: Duration) -> Slice {
        let nanos = time.as_nanos() as u64;
        let samples = expected(self.0.round_of(workers, nanos, Timing::Throughput));
        Slice {
            rate: samples.iter().map(Sample::rate).sum(),
            share: samples.iter().map(Sample::share).fold(1.0, f64::min),
        }
    }
}

fn expected<T>(result: Result<T, Failure>) -> T {
    match result {
        Ok(value) => value,
        Err(failure) => panic!("{}", failure.reason),
    }
}

impl Harness {
    /// Plans measurements with up to `threads` threads, one on each of the first CPUs.
    ///
    /// # Errors
    /// Returns an error if this process may not use that many CPUs.
    pub fn new(threads: usize, plan: Plan) -> io::Result<Harness> {
        let mut cpus = usable_cpus();
        if cpus.len() < threads {
            let (has, needs) = (cpus.len(), threads);
            return Err(io::Error::other(format!("{has} CPUs, and {needs} are needed")));
        }
        cpus.truncate(threads);
        Ok(Harness { cpus, plan, _priority: Priority::raise() })
    }

    /// Starts a thread for each work, and warms each up alone, then all together.
    fn side(&self, works: Vec<Work>) -> Side {
        let seat = |cpu: &usize| Seat { cpu: Some(*cpu), pretended: None };
        let seats: Vec<_> = self.cpus.iter().take(works.len()).map(seat).collect();
        let all: Vec<usize> = (0..seats.len()).collect();
        let works: Vec<_> = works.into_iter().map(Some).collect();
        let works = Arc::new(Mutex::new(works));
        let make = move |worker: usize| {
            raise_thread_priority();
            let work = works.lock().unwrap_or_else(PoisonError::into_inner)[worker].take();
            match work {
                Some(work) => Ok(work as Box<dyn Act>),
                None => Err(Fault::wrong("two threads have the same work")),
            }
        };
        let mut side = Side(expected(Team::of_threads(&seats, &Interrupt::new(), make)));
        for worker in &all {
            side.run(&[*worker], WARM_UP);
        }
        if all.len() > 1 {
            side.run(&all, WARM_UP);
        }
        side
    }

    /// Returns how many times faster `ours` is than `theirs`, on one thread. The order changes from
    /// round to round.
    pub fn faster(&self, ours: Work, theirs: Work) -> Ratios {
        let (mut ours, mut theirs) = (self.side(vec![ours]), self.side(vec![theirs]));
        let mut rounds = Rounds::new(self.plan);
        let mut theirs_first = false;
        while !rounds.is_done() {
            let one = |side: &mut Side| side.run(&[0], self.plan.slice);
            let (a, b) = if theirs_first {
                let b = one(&mut theirs);
                (one(&mut ours), b)
            } else {
                (one(&mut ours), one(&mut theirs))
            };
            theirs_first = !theirs_first;
            rounds.add(a.rate / b.rate, [1e9 / a.rate, 1e9 / b.rate], a.share.min(b.share));
        }
        rounds.finish()
    }

    /// Returns the throughput of all works together over the mean of one, which works alone in each
    /// round, too.
    pub fn scaling(&self, works: Vec<Work>) -> Ratios {
        let count = works.len();
        let all: Vec<usize> = (0..count).collect();
        let mut side = self.side(works);
        let mut rounds = Rounds::new(self.plan);
        while !rounds.is_done() {
            let (mut alone, mut together, mut share) = (0.0, 0.0, 1.0_f64);
            for &worker in &all {
                let one = side.run(&[worker], self.plan.slice);
                alone += one.rate / count as f64;
                share = share.min(one.share);
                if worker == 0 {
                    let both = side.run(&all, self.plan.slice);
                    together = both.rate;
                    share = share.min(both.share);
                }
            }
            let nanos = [1e9 / alone, 1e9 * count as f64 / together];
            rounds.add(together / alone, nanos, share);
        }
        rounds.finish()
    }

    /// Returns the throughput of `ours` over that of `theirs`, with all threads of a side running.
    pub fn faster_together(&self, ours: Vec<Work>, theirs: Vec<Work>) -> Ratios {
        let all: Vec<usize> = (0..ours.len()).collect();
        let threads = all.len() as f64;
        let (mut ours, mut theirs) = (self.side(ours), self.side(theirs));
        let mut rounds = Rounds::new(self.plan);
        while !rounds.is_done() {
            let a = ours.run(&all, self.plan.slice);
            let b = theirs.run(&all, self.plan.slice);
            let nanos = [1e9 * threads / a.rate, 1e9 * threads / b.rate];
            rounds.add(a.rate / b.rate, nanos, a.share.min(b.share));
        }
        rounds.finish()
    }
}

#[cfg(test)]
mod tests;
