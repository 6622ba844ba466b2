//! FUSE over io_uring: a queue and a thread for each CPU.
//!
//! The kernel puts a request on the queue of the CPU on which it arises. A queue has an io_uring of
//! its own and a few entries, each with memory for a request and its reply ([`slot`]). The queue's
//! thread, pinned to the CPU, registers the entries; a completion is a request, and one system call
//! commits the replies and waits for the next requests ([`queue`]).
//!
//! * Each possible CPU needs a queue, also one that is offline, or that this process may not use.
//!   The thread of such a CPU runs wherever it may.
//! * The kernel uses the queues from the moment when each has an entry, and until then it stops all
//!   requests. So everything that can fail is prepared before `INIT` is answered, and only the
//!   registration comes afterwards. There is no way back: if that fails, the mount does.
//! * `FORGET`, `INTERRUPT` and notifications use the device, which one classic worker reads.
//! * A request that may take long ([`Service::is_long`]) is served by a helper ([`helpers`]), which
//!   passes the reply back to the queue's thread ([`inbox`]). Otherwise it would delay all others
//!   of its CPU.
//! * At the end of the connection the kernel completes all entries with an error, and the threads
//!   end when they have no entry left. The kernel takes a reply that comes later for an error of
//!   the ring, not of the request; so a reply that is not delivered is not noticed, which matters
//!   to nobody after the end.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::helpers::{Hand, Jobs, help};
use self::queue::Queue;
use self::slot::Serving;
use crate::base::device::Device;
use crate::base::error::MountError;
use crate::base::polling::{Clients, Poller};
use crate::base::uring_switches::UringObstacle;
use crate::session::{self, Service, Shared, Workers};
use crate::statistics::Counters;
use crate::wire::InitFlags;
use crate::wire::reply::Reply;
use crate::wire::request::Dialect;

mod helpers;
mod inbox;
mod queue;
mod slot;

/// The file with the numbers of all CPUs that the kernel may ever have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The threads of a mount: one that reads the device, one for each queue, and helpers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    queues: u16,
    helpers: usize,
}

impl Crew {
    /// Returns the threads that a mount with `helpers` helpers needs on this machine.
    pub(crate) fn new(helpers: usize) -> Crew {
        let list = std::fs::read_to_string(POSSIBLE).ok();
        let counted = list.as_deref().and_then(count_cpus);
        let usable = || thread::available_parallelism().map_or(1, usize::from) as u16;
        Crew { queues: counted.unwrap_or_else(usable), helpers }
    }

    /// Returns the number of queues: one for each CPU that the kernel may ever have.
    pub(crate) fn queues(self) -> usize {
        usize::from(self.queues)
    }

    /// Returns the number of threads that serve requests.
    pub(crate) fn workers(self) -> usize {
        1 + usize::from(self.queues) + self.helpers
    }
}

/// Returns the number of CPUs in a list such as `0-3,8`, as the kernel writes it.
fn count_cpus(list: &str) -> Option<u16> {
    let mut count: u16 = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (count > 0).then_some(count)
}

/// Connects with the kernel over io_uring, and starts all threads.
///
/// # Errors
/// [`MountError::Uring`] says what prevents it; the errors of [`session::handshake`]. The caller
/// ends the connection then.
pub(crate) fn start<S: Service>(
    device: &Arc<Device>,
    service: &Arc<S>,
    counters: &Arc<Counters>,
    crew: Crew,
) -> Result<Workers, MountError> {
    let connection = Connection {
        device: Arc::clone(device),
        shared: Shared::new(service),
        counters: Arc::clone(counters),
    };
    let queues = Queues::prepare(&connection, crew)?;
    let dialect = session::handshake(device, &**service, InitFlags::OVER_IO_URING)?;
    queues.start(connection, dialect, crew)
}

/// The parts of a connection that its threads share.
struct Connection<S: Service> {
    device: Arc<Device>,
    shared: Arc<Shared<S>>,
    counters: Arc<Counters>,
}

impl<S: Service> Clone for Connection<S> {
    fn clone(&self) -> Self {
        Connection {
            device: Arc::clone(&self.device),
            shared: Arc::clone(&self.shared),
            counters: Arc::clone(&self.counters),
        }
    }
}

impl<S: Service> Connection<S> {
    /// Returns the state of the thread whose counters have this index.
    fn serving(&self, index: usize, dialect: Dialect) -> Serving<'_, S> {
        Serving {
            service: self.shared.service(),
            counters: self.counters.of_worker(index),
            dialect,
            worker: S::Worker::default(),
            reply: Reply::new(),
        }
    }
}

/// The threads of all queues, with their rings.
struct Queues {
    threads: Vec<JoinHandle<()>>,
    /// Tells each thread to register its entries.
    go: Vec<Sender<Dialect>>,
    /// The outcome of each step, from each thread.
    reports: Receiver<io::Result<()>>,
    jobs: Arc<Jobs>,
}

impl Queues {
    /// Starts the threads of the queues, each of which makes its ring.
    fn prepare<S: Service>(connection: &Connection<S>, crew: Crew) -> Result<Queues, MountError> {
        let jobs = Arc::new(Jobs::default());
        let hand = Arc::new(Hand(Arc::clone(&jobs)));
        let (report, reports) = channel();
        let mut queues = Queues { threads: Vec::new(), go: Vec::new(), reports, jobs };
        for id in 0..crew.queues {
            let (go, started) = channel();
            let (connection, hand, report) =
                (connection.clone(), Arc::clone(&hand), report.clone());
            let run = move || serve_queue(id, &connection, &hand, &started, &report);
            let name = format!("vfscale-ring-{id}");
            queues.threads.push(spawn(name, run)?);
            queues.go.push(go);
        }
        queues.wait_for_all(UringObstacle::of_setup)?;
        Ok(queues)
    }

    /// Waits until all threads have completed a step.
    fn wait_for_all(
        &self,
        obstacle: impl Fn(io::Error) -> UringObstacle,
    ) -> Result<(), MountError> {
        for _ in &self.threads {
            let ended = |_| Err(io::Error::other("a thread has ended"));
            let step = self.reports.recv().unwrap_or_else(ended);
            step.map_err(|e| MountError::Uring(obstacle(e)))?;
        }
        Ok(())
    }

    /// Has the entries registered, and starts the other threads.
    fn start<S: Service>(
        mut self,
        connection: Connection<S>,
        dialect: Dialect,
        crew: Crew,
    ) -> Result<Workers, MountError> {
        for go in &self.go {
            // A thread that has ended is missed below.
            let _ = go.send(dialect);
        }
        self.wait_for_all(UringObstacle::of_registration)?;
        let queues = usize::from(crew.queues);
        for i in 0..crew.helpers {
            let (connection, jobs) = (connection.clone(), Arc::clone(&self.jobs));
            let run = move || help(&jobs, connection.serving(1 + queues + i, dialect));
            self.threads.push(spawn(format!("vfscale-help-{i}"), run)?);
        }
        let read = move || {
            let Connection { device, shared, counters } = connection;
            let poller = Poller::new(Clients::new(counters.polling()));
            session::work(&device, shared.service(), dialect, poller, counters.of_worker(0));
        };
        self.threads.push(spawn("vfscale-fuse-0".into(), read)?);
        Ok(Workers::of(self.threads))
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, MountError> {
    vfscale_sync::thread::spawn(name, run).map_err(MountError::Threads)
}

/// The thread of a queue. Waits between the two steps for the kernel's first message.
fn serve_queue<S: Service>(
    id: u16,
    connection: &Connection<S>,
    hand: &Hand,
    started: &Receiver<Dialect>,
    report: &Sender<io::Result<()>>,
) {
    pin(id);
    let made = Queue::new(id, &connection.device);
    let (queue, made) = match made {
        Ok(queue) => (Some(queue), Ok(())),
        Err(e) => (None, Err(e)),
    };
    // If another queue has failed, the other ends of both channels are gone.
    let _ = report.send(made);
    let (Ok(dialect), Some(mut queue)) = (started.recv(), queue) else { return };
    let registered = queue.register();
    let is_registered = registered.is_ok();
    let _ = report.send(registered);
    if is_registered {
        queue.run(connection.serving(1 + usize::from(id), dialect), hand);
    }
}

/// Pins the running thread to a CPU, if it may run there.
fn pin(cpu: u16) {
    let cpu = usize::from(cpu);
    // A limit of the CPUs of this process is meant for this thread as well.
    let is_usable =
        cpu < CpuSet::MAX_CPU && sched_getaffinity(None).is_ok_and(|set| set.is_set(cpu));
    if !is_usable {
        return tracing::debug!(cpu, "the thread of a FUSE queue is not pinned");
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(errno) = sched_setaffinity(None, &set) {
        tracing::debug!(cpu, "the thread of a FUSE queue is not pinned: {errno}");
    }
}

#[cfg(test)]
mod tests;
