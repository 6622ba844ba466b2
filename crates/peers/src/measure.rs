//! Pinned threads, rounds, ratios.
//!
//! A [`Team`] is a thread on each CPU that waits for jobs. A round gives one or all of them
//! [`Work`] to do at the same time, from a common start for a common time. What counts are the
//! operations done in that time.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::subject::Work;

/// How long the parts of a round last, and how many rounds there are.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The time of one work in one round.
    pub slice: Duration,
    /// Rounds that count.
    pub rounds: usize,
    /// The share of its CPU that each thread must get for the round to count, from 0 to 1.
    pub share_min: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { slice: Duration::from_millis(20), rounds: 25, share_min: 0.97 }
    }
}

/// The time that works run for before anything counts.
const WARM_UP: Duration = Duration::from_millis(60);

/// The time between two looks at the clock, about.
const BATCH: Duration = Duration::from_micros(20);

/// From giving out a job to its start, so that every thread is there.
const LEAD: Duration = Duration::from_micros(300);

struct Job {
    work: Work,
    batch: u32,
    start: Instant,
    slice: Duration,
}

struct Done {
    work: Work,
    sample: Sample,
}

/// What one thread did in one slice.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Operations in a second.
    rate: f64,
    /// The share of the CPU that the thread got while it could have run.
    share: f64,
}

struct Worker {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn new(cpu: usize) -> io::Result<Worker> {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, done) = channel();
        let (ready, readiness) = channel();
        let thread = std::thread::Builder::new().name(format!("cpu{cpu}")).spawn(move || {
            let pinned = pin(cpu);
            let failed = pinned.is_err();
            if ready.send(pinned).is_err() || failed {
                return;
            }
            for job in inbox {
                if outbox.send(run(job)).is_err() {
                    return;
                }
            }
        })?;
        readiness.recv().map_err(io::Error::other)??;
        Ok(Worker { jobs: Some(jobs), done, thread: Some(thread) })
    }

    fn start(&self, job: Job) {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        assert!(matches!(sent, Some(Ok(()))), "a worker has died");
    }

    fn finish(&self) -> Done {
        match self.done.recv() {
            Ok(done) => done,
            Err(_) => panic!("a worker has died"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It has told of its panic itself.
            let _ = thread.join();
        }
    }
}

/// Keeps this thread on one CPU, and asks for more time than others there.
fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    // Only the superuser may. Without it more rounds are thrown away.
    let _ = rustix::process::setpriority_process(None, -20);
    Ok(())
}

/// Nanoseconds that this thread was ready to run and had to wait (`schedstat` of `proc(5)`).
/// Sleeping for a lock is not waiting.
fn waited_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn run(job: Job) -> Done {
    let Job { mut work, batch, start, slice } = job;
    while Instant::now() < start {
        std::hint::spin_loop();
    }
    let waited = waited_nanos();
    let begin = Instant::now();
    let mut operations = 0_u64;
    let elapsed = loop {
        work(batch);
        operations += u64::from(batch);
        let elapsed = begin.elapsed();
        if elapsed >= slice {
            break elapsed;
        }
    };
    let waited = Duration::from_nanos(waited_nanos().saturating_sub(waited));
    let sample = Sample {
        rate: operations as f64 / elapsed.as_secs_f64(),
        share: 1.0 - waited.as_secs_f64() / elapsed.as_secs_f64(),
    };
    Done { work, sample }
}

/// Work and how often it is run between two looks at the clock.
struct Ready {
    /// With a worker while it runs.
    work: Option<Work>,
    batch: u32,
}

/// The niceness of this session among others (`autogroup` of `sched(7)`), put back when dropped.
struct Priority {
    before: Option<String>,
}

const AUTOGROUP: &str = "/proc/self/autogroup";

impl Priority {
    /// Asks for more time than other sessions get. Only the superuser may; without it more rounds
    /// are thrown away.
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
            // It was allowed a moment ago; and if not, there is nothing to be done.
            let _ = std::fs::write(AUTOGROUP, before);
        }
    }
}

/// Threads on CPUs 0, 1, ...
pub struct Team {
    workers: Vec<Worker>,
    plan: Plan,
    _priority: Priority,
}

/// Ratios of all rounds, and what went with them.
#[derive(Clone, Debug)]
pub struct Ratios {
    sorted: Vec<f64>,
    /// The median time of an operation of the first and the second thing, in nanoseconds.
    pub nanos: [f64; 2],
    /// The smallest share of a CPU in a round that counted.
    pub share: f64,
    /// Rounds that were thrown away.
    pub disturbed: usize,
}

impl Ratios {
    /// The median.
    pub fn median(&self) -> f64 {
        median(&self.sorted)
    }

    /// The smallest and the largest.
    pub fn range(&self) -> (f64, f64) {
        let first = self.sorted.first().copied().unwrap_or(f64::NAN);
        (first, self.sorted.last().copied().unwrap_or(f64::NAN))
    }

    /// The first and the third quartile.
    pub fn quartiles(&self) -> (f64, f64) {
        let at = |part: usize| {
            let index = (self.sorted.len() * part / 4).min(self.sorted.len().saturating_sub(1));
            self.sorted.get(index).copied().unwrap_or(f64::NAN)
        };
        (at(1), at(3))
    }
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (sorted.get(half), sorted.len() % 2) {
        (Some(upper), 0) => f64::midpoint(sorted[half - 1], *upper),
        (Some(middle), _) => *middle,
        (None, _) => f64::NAN,
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
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

    /// How often a round may be thrown away: after that the machine is too busy to wait for better.
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
        let [first, second] = self.nanos;
        Ratios {
            sorted: sorted(self.ratios),
            nanos: [median(&sorted(first)), median(&sorted(second))],
            share: self.share,
            disturbed: self.disturbed,
        }
    }
}

impl Team {
    /// Starts `threads` threads, one on each of the first CPUs.
    ///
    /// # Errors
    /// If there are not that many CPUs for this process.
    pub fn new(threads: usize, plan: Plan) -> io::Result<Team> {
        let workers = (0..threads).map(Worker::new).collect::<io::Result<_>>()?;
        Ok(Team { workers, plan, _priority: Priority::raise() })
    }

    /// Runs the works `who` at the same time, each on the thread of its index.
    fn slice(&self, works: &mut [Ready], who: &[usize], slice: Duration) -> Vec<Sample> {
        let start = Instant::now() + LEAD;
        for &i in who {
            let Some(work) = works[i].work.take() else { continue };
            self.workers[i].start(Job { work, batch: works[i].batch, start, slice });
        }
        let finish = |&i: &usize| {
            let done = self.workers[i].finish();
            works[i].work = Some(done.work);
            done.sample
        };
        who.iter().map(finish).collect()
    }

    /// Runs each work alone until it is warm, and chooses its batch.
    fn warm_up(&self, works: Vec<Work>) -> Vec<Ready> {
        let mut ready: Vec<_> =
            works.into_iter().map(|work| Ready { work: Some(work), batch: 1 }).collect();
        for i in 0..ready.len() {
            let rate = self.slice(&mut ready, &[i], WARM_UP)[0].rate;
            ready[i].batch = ((rate * BATCH.as_secs_f64()) as u32).max(1);
        }
        ready
    }

    /// How many times faster `ours` is than `theirs`, on one thread. The CPU changes from round to
    /// round, and so does the order.
    pub fn faster(&self, ours: Work, theirs: Work) -> Ratios {
        let mut ours = self.warm_up(vec![ours]);
        let mut theirs = self.warm_up(vec![theirs]);
        let mut rounds = Rounds::new(self.plan);
        let mut theirs_first = false;
        while !rounds.is_done() {
            let one = |works: &mut Vec<Ready>| self.slice(works, &[0], self.plan.slice)[0];
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

    /// The throughput of all works together over that of one: each works alone in a round, too.
    pub fn scaling(&self, works: Vec<Work>) -> Ratios {
        let mut works = self.warm_up(works);
        let all: Vec<usize> = (0..works.len()).collect();
        self.slice(&mut works, &all, WARM_UP);
        let mut rounds = Rounds::new(self.plan);
        while !rounds.is_done() {
            let mut samples = Vec::new();
            let mut alone = 0.0;
            let mut together = 0.0;
            for &i in &all {
                let sample = self.slice(&mut works, &[i], self.plan.slice)[0];
                alone += sample.rate / all.len() as f64;
                samples.push(sample);
                if i == 0 {
                    let both = self.slice(&mut works, &all, self.plan.slice);
                    together = both.iter().map(|sample| sample.rate).sum();
                    samples.extend(both);
                }
            }
            let share = samples.iter().map(|sample| sample.share).fold(1.0, f64::min);
            let nanos = [1e9 / alone, 1e9 * all.len() as f64 / together];
            rounds.add(together / alone, nanos, share);
        }
        rounds.finish()
    }

    /// How many times the throughput of `theirs` that of `ours` is, all threads of each running.
    pub fn faster_together(&self, ours: Vec<Work>, theirs: Vec<Work>) -> Ratios {
        let mut ours = self.warm_up(ours);
        let mut theirs = self.warm_up(theirs);
        let all: Vec<usize> = (0..ours.len()).collect();
        self.slice(&mut ours, &all, WARM_UP);
        self.slice(&mut theirs, &all, WARM_UP);
        let mut rounds = Rounds::new(self.plan);
        while !rounds.is_done() {
            let mut share = 1.0_f64;
            let mut rate = |works: &mut Vec<Ready>| {
                let samples = self.slice(works, &all, self.plan.slice);
                share = samples.iter().map(|sample| sample.share).fold(share, f64::min);
                samples.iter().map(|sample| sample.rate).sum::<f64>()
            };
            let (a, b) = (rate(&mut ours), rate(&mut theirs));
            let threads = all.len() as f64;
            rounds.add(a / b, [1e9 * threads / a, 1e9 * threads / b], share);
        }
        rounds.finish()
    }
}

#[cfg(test)]
mod tests;
