//! Statistics of a mount: requests of each kind, their service times, and what is cached.
//!
//! Each worker counts on cache lines of its own, with plain loads and stores, since only it writes
//! them. Readers sum over the workers. A request is counted before its reply is sent, so a process
//! finds all its finished calls in the statistics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vfscale::{Counts, Errno};

use crate::polling::PollingChoice;
use crate::wire::opcode;

/// Number of classes of service times: below 1, 2, 4, ... microseconds, and one for the rest.
const CLASSES: usize = 20;

/// Number of kinds of requests. Number 0, which no operation has, stands for unknown ones.
const KINDS: usize = 64;

/// Statistics of a mount. They are read one after the other, so they may not match exactly while
/// the mount is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of inodes that the kernel caches, without the root.
    pub nodes: usize,
    /// Number of lookups of these inodes that the kernel was sent and has not forgotten.
    pub lookups: u64,
    /// Number of files and directories opened through the mount (0 in exclusive use, where opening
    /// needs no message).
    pub open_files: usize,
    /// Number of requests that wait for a file lock.
    pub waiting: usize,
    /// Number of requests served since the mount.
    pub requests: u64,
    /// Whether workers look for the next request for a moment before they sleep.
    pub polling: PollingChoice,
    /// Number of times that they did so.
    pub polls: u64,
    /// Number of times that they found a request.
    pub polls_found: u64,
}

/// Requests of one kind that a mount has served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationStats {
    /// The kernel's name of the operation, such as `LOOKUP`; `OTHER` stands for all unknown ones.
    pub name: &'static str,
    /// Number of requests.
    pub count: u64,
    /// Sum of their service times: from the arrival of a request to the moment when its reply is
    /// ready, without the time that it waits for a worker or a file lock.
    pub total: Duration,
    /// The longest service time.
    pub longest: Duration,
    /// Number of requests in each class of service times; see [`class_bound`](Self::class_bound).
    pub classes: [u64; CLASSES],
}

impl OperationStats {
    /// Returns the mean service time; zero without a request.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(nanos(self.total).checked_div(self.count).unwrap_or(0))
    }

    /// Returns the bound below which the service times of a class lie; `None` for the last class,
    /// which has none.
    #[must_use]
    pub fn class_bound(class: usize) -> Option<Duration> {
        (class < CLASSES - 1).then(|| Duration::from_micros(1 << class))
    }
}

/// Statistics of a mount, as [`Mounted::statistics`](crate::Mounted::statistics) and
/// [`control::statistics`](crate::control::statistics) return them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Totals of the mount.
    pub mount: Stats,
    /// Objects of the tree that is mounted.
    pub counts: Counts,
    /// The operations that were requested at least once, in the order of their numbers.
    pub operations: Vec<OperationStats>,
}

impl Statistics {
    /// Returns the number of requests of the operation with this name.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.operations.iter().find(|stats| stats.name == name).map_or(0, |stats| stats.count)
    }
}

/// The counters of one kind of request.
#[derive(Debug, Default)]
struct Kind {
    count: AtomicU64,
    /// In nanoseconds, as the next.
    total: AtomicU64,
    longest: AtomicU64,
    classes: [AtomicU64; CLASSES],
}

/// The counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    kinds: [Kind; KINDS],
    polls: AtomicU64,
    polls_found: AtomicU64,
}

/// Adds to a counter that only this thread writes.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl WorkerCounters {
    /// Counts a request. Only one thread may call it.
    pub(crate) fn add(&self, code: u32, time: Duration) {
        let kind = &self.kinds[if opcode::name(code).is_some() { code as usize } else { 0 }];
        let time = nanos(time);
        add(&kind.total, time);
        if time > kind.longest.load(Ordering::Relaxed) {
            kind.longest.store(time, Ordering::Relaxed);
        }
        add(&kind.classes[class_of(time)], 1);
        add(&kind.count, 1);
    }

    /// Counts a poll. Only one thread may call it.
    pub(crate) fn add_poll(&self, found: bool) {
        add(&self.polls, 1);
        add(&self.polls_found, u64::from(found));
    }
}

/// The counters of all workers of a mount.
#[derive(Debug)]
pub(crate) struct Counters {
    workers: Box<[WorkerCounters]>,
    polling: PollingChoice,
}

impl Counters {
    pub(crate) fn new(workers: usize, polling: PollingChoice) -> Counters {
        let counters = || WorkerCounters {
            kinds: std::array::from_fn(|_| Kind::default()),
            polls: AtomicU64::new(0),
            polls_found: AtomicU64::new(0),
        };
        Counters { workers: (0..workers).map(|_| counters()).collect(), polling }
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn polling(&self) -> PollingChoice {
        self.polling
    }

    pub(crate) fn of_worker(&self, index: usize) -> &WorkerCounters {
        &self.workers[index]
    }

    /// Returns the number of polls so far, and of those that found a request.
    pub(crate) fn polls(&self) -> (u64, u64) {
        let sum = |counter: fn(&WorkerCounters) -> &AtomicU64| {
            self.workers.iter().map(|worker| counter(worker).load(Ordering::Relaxed)).sum()
        };
        (sum(|worker| &worker.polls), sum(|worker| &worker.polls_found))
    }

    /// Returns the number of requests served so far.
    pub(crate) fn served(&self) -> u64 {
        let kinds = self.workers.iter().flat_map(|worker| &worker.kinds);
        kinds.map(|kind| kind.count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sums over all workers for the kinds that were requested.
    pub(crate) fn operations(&self) -> Vec<OperationStats> {
        let sums = (0..KINDS).map(|code| self.operation(code));
        sums.filter(|stats| stats.count > 0).collect()
    }

    fn operation(&self, code: usize) -> OperationStats {
        let mut sum = OperationStats { name: name_of(code as u64), ..OperationStats::default() };
        for kind in self.workers.iter().map(|worker| &worker.kinds[code]) {
            sum.count += kind.count.load(Ordering::Relaxed);
            sum.total += Duration::from_nanos(kind.total.load(Ordering::Relaxed));
            let longest = Duration::from_nanos(kind.longest.load(Ordering::Relaxed));
            sum.longest = sum.longest.max(longest);
            for (class, counter) in sum.classes.iter_mut().zip(&kind.classes) {
                *class += counter.load(Ordering::Relaxed);
            }
        }
        sum
    }
}

/// Numbers in front of the operations in encoded statistics.
const HEAD: usize = 14;

/// Numbers of one operation in encoded statistics.
const OPERATION: usize = 4 + CLASSES;

/// Bytes of encoded statistics at most; the rest of a shorter answer is zero.
pub(crate) const BYTES_MAX: usize = (HEAD + KINDS * OPERATION) * size_of::<u64>();

/// Encodes statistics as the numbers that a mount replies.
pub(crate) fn encode(statistics: &Statistics) -> Vec<u64> {
    let (mount, counts) = (&statistics.mount, &statistics.counts);
    let mut numbers = vec![
        mount.nodes as u64,
        mount.lookups,
        mount.open_files as u64,
        mount.waiting as u64,
        mount.requests,
        counts.dentries as u64,
        counts.unused_dentries as u64,
        counts.negative_dentries as u64,
        counts.inodes as u64,
        counts.unused_inodes as u64,
        counts.open_files as u64,
        mount.polling.number(),
        mount.polls,
        mount.polls_found,
    ];
    for stats in &statistics.operations {
        let code = opcode::number(stats.name).unwrap_or(0);
        let times = [nanos(stats.total), nanos(stats.longest)];
        numbers.extend([u64::from(code), stats.count, times[0], times[1]]);
        numbers.extend(stats.classes);
    }
    numbers
}

/// Decodes what [`encode`] made, and zeros after it.
///
/// # Errors
/// Returns `EPROTO` if the numbers are too few.
pub(crate) fn decode(numbers: &[u64]) -> Result<Statistics, Errno> {
    let (head, rest) = numbers.split_first_chunk::<HEAD>().ok_or(Errno::PROTO)?;
    let mut statistics = Statistics::default();
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    statistics.mount = Stats {
        nodes: size(head[0]),
        lookups: head[1],
        open_files: size(head[2]),
        waiting: size(head[3]),
        requests: head[4],
        polling: PollingChoice::from_number(head[11]),
        polls: head[12],
        polls_found: head[13],
    };
    let counts = &mut statistics.counts;
    let places = [
        &mut counts.dentries,
        &mut counts.unused_dentries,
        &mut counts.negative_dentries,
        &mut counts.inodes,
        &mut counts.unused_inodes,
        &mut counts.open_files,
    ];
    for (place, number) in places.into_iter().zip(&head[5..]) {
        *place = size(*number);
    }
    for numbers in rest.as_chunks::<OPERATION>().0 {
        let [code, count, total, longest, classes @ ..] = *numbers;
        if count > 0 {
            let (total, longest) = (Duration::from_nanos(total), Duration::from_nanos(longest));
            let name = name_of(code);
            let stats = OperationStats { name, count, total, longest, classes };
            statistics.operations.push(stats);
        }
    }
    Ok(statistics)
}

fn name_of(code: u64) -> &'static str {
    u32::try_from(code).ok().and_then(opcode::name).unwrap_or("OTHER")
}

fn class_of(nanos: u64) -> usize {
    let micros = nanos / 1000;
    ((u64::BITS - micros.leading_zeros()) as usize).min(CLASSES - 1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
