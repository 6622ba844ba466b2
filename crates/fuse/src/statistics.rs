//! Statistics of a mount: requests of each kind, their service times, and what is cached.
//!
//! Each worker counts on cache lines of its own, with plain loads and stores, since only it writes
//! them. Readers sum over the workers. A request is counted before its reply is sent, so a process
//! finds all its finished calls in the statistics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vfscale::pool::Usage;
use vfscale::{Counts, driver::StorageCounts};

use crate::base::polling::PollingChoice;
use crate::base::transport::Transport;
use crate::wire::opcode;

pub(crate) use codec::{decode, encode};

mod codec;

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
    /// How the kernel and the server exchange messages.
    pub transport: Transport,
    /// Number of queues of requests: one for all workers, or over io_uring one for each CPU.
    pub queues: usize,
    /// Number of threads that serve requests.
    pub workers: usize,
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
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(nanos(self.total).checked_div(self.count).unwrap_or(0))
    }

    /// Returns the bound below which the service times of a class lie; `None` for the last class,
    /// which has none.
    pub fn class_bound(class: usize) -> Option<Duration> {
        (class < CLASSES - 1).then(|| Duration::from_micros(1 << class))
    }
}

/// Statistics of a mount, as [`Mounted::statistics`](crate::Mounted::statistics) and
/// [`Connection::statistics`](crate::control::Connection::statistics) return them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Totals of the mount.
    pub mount: Stats,
    /// Objects of the tree that is mounted.
    pub counts: Counts,
    /// The log and the cache of the file system that is mounted, if it has them.
    pub storage: StorageCounts,
    /// The space of the image, if it has branches.
    pub pool: Option<Usage>,
    /// The operations that were requested at least once, in the order of their numbers.
    pub operations: Vec<OperationStats>,
}

impl Statistics {
    /// Returns the number of requests of the operation with this name.
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
    transport: Transport,
    queues: usize,
}

impl Counters {
    /// Creates the counters of a mount on the classic device; see [`over_uring`](Self::over_uring).
    pub(crate) fn new(workers: usize, polling: PollingChoice) -> Counters {
        let counters = || WorkerCounters {
            kinds: std::array::from_fn(|_| Kind::default()),
            polls: AtomicU64::new(0),
            polls_found: AtomicU64::new(0),
        };
        let workers = (0..workers).map(|_| counters()).collect();
        Counters { workers, polling, transport: Transport::Classic, queues: 1 }
    }

    /// Returns the counters of a mount over io_uring, with this number of queues.
    pub(crate) fn over_uring(self, queues: usize) -> Counters {
        Counters { transport: Transport::Uring, queues, ..self }
    }

    /// Returns the transport, and the number of its queues.
    pub(crate) fn transport(&self) -> (Transport, usize) {
        (self.transport, self.queues)
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
