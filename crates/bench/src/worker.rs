//! Workers: threads or processes that do their work when told, and say what they did.
//!
//! A round has three steps, and all workers finish one before any begins the next: [`Command::Begin`]
//! prepares, [`Command::Go`] measures from a common moment on, [`Command::End`] checks. So nobody's
//! preparation or check disturbs another's measurement.
//!
//! Inside the measured loop there is the operation and, once in some twenty microseconds, a look at the
//! clock. What a worker counts stays in its own registers and stack until the round is over.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use vfscale::cpu;

use crate::clock;
use crate::fault::{Fault, FaultKind, Outcome};
use crate::targets::path::Directory;
use crate::workloads::{self, Scene, Work};

/// The time between two looks at the clock lies between these, once a worker has found its pace.
const BATCH_NANOS: std::ops::Range<u64> = 10_000..40_000;

/// Work of a fixed amount notes how far it is this often.
const MARK_NANOS: u64 = 50_000_000;

/// From the order to go to the start, so that every worker is there.
const LEAD_NANOS: u64 = 400_000;

/// Asks a run to stop early: whoever asks, from whatever thread.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Nobody has asked yet.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Asks. The round under way is given up, everything that was made is removed, and the rounds
    /// before are reported.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An order to a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Prepare a round.
    Begin,
    /// Work.
    Go {
        /// When to start, in nanoseconds of the common clock.
        start: u64,
        /// For how long, unless the amount of work is fixed.
        slice: u64,
        /// Whether the clock is read around each operation.
        timing: Timing,
    },
    /// Check what was done.
    End,
}

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

/// A worker's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The order is carried out.
    Done,
    /// What was measured.
    Measured(Sample),
    /// It could not be done.
    Failed(Failure),
}

/// Why a worker could not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In words.
    pub reason: String,
    /// Whether the target does not have what the workload is about.
    pub unsupported: bool,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        let unsupported = matches!(fault.kind(), FaultKind::Unsupported(_));
        Failure { reason: fault.to_string(), unsupported }
    }
}

impl Failure {
    fn died() -> Failure {
        Failure { reason: "a worker has died".to_owned(), unsupported: false }
    }
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

/// The CPUs that this process may use, in order.
pub(crate) fn usable_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![],
    }
}

/// Where a worker runs.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// The CPU it is kept on, if it is.
    pub(crate) cpu: Option<usize>,
    /// The CPU it claims to be on, if it claims anything.
    pub(crate) pretended: Option<u32>,
}

impl Seat {
    /// Takes the seat for as long as the result lives.
    fn take(self) -> Option<cpu::Pretend> {
        if let Some(cpu) = self.cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            // A CPU that went away since is no reason to fail: the thread runs elsewhere.
            let _ = sched_setaffinity(None, &set);
        }
        self.pretended.map(cpu::pretend)
    }
}

/// Carries orders out until there are no more.
fn serve(
    mut act: Box<dyn Act>,
    stop: &Interrupt,
    orders: impl Iterator<Item = Command>,
    mut answer: impl FnMut(Reply) -> bool,
) {
    for order in orders {
        let outcome = match order {
            Command::Begin => act.begin().map(|()| Reply::Done),
            Command::Go { start, slice, timing } => {
                act.go(start, slice, timing, stop).map(Reply::Measured)
            }
            Command::End => act.end().map(|()| Reply::Done),
        };
        if !answer(outcome.unwrap_or_else(|fault| Reply::Failed(fault.into()))) {
            return;
        }
    }
}

/// What a worker process is told first.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    workload: String,
    dir: PathBuf,
    scene: Scene,
    worker: usize,
    seat: Seat,
}

/// The whole of a worker process: orders come as lines of JSON from `input`, answers go the same way to
/// `output`. Ends when there are no more orders, such as when its parent is gone.
///
/// # Errors
/// If what comes is no order, or nobody takes the answers.
pub fn serve_process(input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut lines = input.lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let setup: Setup = serde_json::from_str(&first?)?;
    let workload = workloads::find(&setup.workload).map_err(std::io::Error::other)?;
    let _pretence = setup.seat.take();
    let target = Directory::of_parent(setup.dir);
    let made = workloads::actor(workload.kind, &target, &setup.scene, setup.worker);
    let mut answer = |reply: &Reply| -> std::io::Result<()> {
        serde_json::to_writer(&mut output, reply)?;
        output.write_all(b"\n")?;
        output.flush()
    };
    let act = match made {
        Ok(act) => act,
        Err(fault) => return answer(&Reply::Failed(fault.into())),
    };
    answer(&Reply::Done)?;
    let orders = lines.map_while(|line| serde_json::from_str(&line.ok()?).ok());
    let mut outcome = Ok(());
    serve(act, &Interrupt::new(), orders, |reply| {
        outcome = answer(&reply);
        outcome.is_ok()
    });
    outcome
}

/// One worker, as the one who gives the orders sees it.
enum Member {
    Thread {
        orders: Option<Sender<Command>>,
        replies: Receiver<Reply>,
        thread: Option<JoinHandle<()>>,
    },
    Process {
        orders: Option<ChildStdin>,
        replies: Receiver<Reply>,
        child: Child,
    },
}

impl Member {
    fn thread(
        seat: Seat,
        stop: &Interrupt,
        make: impl FnOnce() -> Outcome<Box<dyn Act>> + Send + 'static,
    ) -> std::io::Result<Member> {
        let (orders, inbox) = channel();
        let (outbox, replies) = channel();
        let stop = stop.clone();
        let body = move || {
            let _pretence = seat.take();
            match make() {
                Ok(act) => {
                    if outbox.send(Reply::Done).is_ok() {
                        serve(act, &stop, inbox.into_iter(), |reply| outbox.send(reply).is_ok());
                    }
                }
                // Nobody is left to be told if this fails.
                Err(fault) => drop(outbox.send(Reply::Failed(fault.into()))),
            }
        };
        let thread = std::thread::Builder::new().name("bench-worker".to_owned()).spawn(body)?;
        Ok(Member::Thread { orders: Some(orders), replies, thread: Some(thread) })
    }

    fn process(command: &mut std::process::Command, setup: &Setup) -> std::io::Result<Member> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut orders = child.stdin.take();
        if let Some(orders) = &mut orders {
            serde_json::to_writer(&mut *orders, setup)?;
            orders.write_all(b"\n")?;
        }
        let (outbox, replies) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    let reply = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                    let Some(reply) = reply else { return };
                    if outbox.send(reply).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Member::Process { orders, replies, child })
    }

    fn order(&mut self, command: Command) -> bool {
        match self {
            Member::Thread { orders, .. } => {
                orders.as_ref().is_some_and(|orders| orders.send(command).is_ok())
            }
            Member::Process { orders, .. } => orders.as_mut().is_some_and(|orders| {
                let line = serde_json::to_string(&command).unwrap_or_default() + "\n";
                orders.write_all(line.as_bytes()).is_ok()
            }),
        }
    }

    /// Waits for the answer. A process, which does not hear of an interruption, is ended by it.
    fn reply(&mut self, stop: &Interrupt) -> Result<Reply, Failure> {
        loop {
            let replies = match self {
                Member::Thread { replies, .. } | Member::Process { replies, .. } => replies,
            };
            match replies.recv_timeout(Duration::from_millis(100)) {
                Ok(Reply::Failed(failure)) => return Err(failure),
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::died()),
                Err(RecvTimeoutError::Timeout) => {
                    if let (true, Member::Process { child, .. }) = (stop.is_raised(), &mut *self) {
                        // If it has ended already, that is as well.
                        let _ = child.kill();
                    }
                }
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        match self {
            Member::Thread { orders, thread, .. } => {
                drop(orders.take());
                if let Some(thread) = thread.take() {
                    // It has told of its panic itself.
                    let _ = thread.join();
                }
            }
            Member::Process { orders, child, .. } => {
                drop(orders.take());
                // Without orders it ends; what it ended with, it has told before.
                let _ = child.wait();
            }
        }
    }
}

/// The workers of a case.
pub(crate) struct Team {
    members: Vec<Member>,
    stop: Interrupt,
}

impl Team {
    /// A thread for each seat; `make` is called on the worker's own thread with its number.
    pub(crate) fn of_threads(
        seats: &[Seat],
        stop: &Interrupt,
        make: impl Fn(usize) -> Outcome<Box<dyn Act>> + Clone + Send + 'static,
    ) -> Result<Team, Failure> {
        let members = seats.iter().enumerate().map(|(worker, seat)| {
            let make = make.clone();
            Member::thread(*seat, stop, move || make(worker))
        });
        Team::gather(members, stop)
    }

    /// A process for each seat, started by `command`.
    pub(crate) fn of_processes(
        seats: &[Seat],
        stop: &Interrupt,
        command: &dyn Fn() -> std::process::Command,
        workload: &str,
        dir: &std::path::Path,
        scene: &Scene,
    ) -> Result<Team, Failure> {
        let members = seats.iter().enumerate().map(|(worker, seat)| {
            let setup = Setup {
                workload: workload.to_owned(),
                dir: dir.to_owned(),
                scene: scene.clone(),
                worker,
                seat: *seat,
            };
            Member::process(&mut command(), &setup)
        });
        Team::gather(members, stop)
    }

    fn gather(
        members: impl Iterator<Item = std::io::Result<Member>>,
        stop: &Interrupt,
    ) -> Result<Team, Failure> {
        let members: std::io::Result<Vec<Member>> = members.collect();
        let members = members.map_err(|e| Failure {
            reason: format!("cannot start a worker: {e}; use fewer threads"),
            unsupported: false,
        })?;
        let mut team = Team { members, stop: stop.clone() };
        team.replies()?;
        Ok(team)
    }

    /// Everybody's answers. All are waited for, even if one has failed.
    fn replies(&mut self) -> Result<Vec<Reply>, Failure> {
        let stop = &self.stop;
        let replies: Vec<_> = self.members.iter_mut().map(|member| member.reply(stop)).collect();
        replies.into_iter().collect()
    }

    fn all(&mut self, command: Command) -> Result<Vec<Reply>, Failure> {
        let mut lost = false;
        for member in &mut self.members {
            lost |= !member.order(command);
        }
        let replies = self.replies()?;
        if lost { Err(Failure::died()) } else { Ok(replies) }
    }

    /// One round: prepare, measure, check.
    pub(crate) fn round(&mut self, slice: u64, timing: Timing) -> Result<Vec<Sample>, Failure> {
        self.all(Command::Begin)?;
        let start = clock::now() + LEAD_NANOS;
        let measured = self.all(Command::Go { start, slice, timing })?;
        self.all(Command::End)?;
        let sample = |reply| match reply {
            Reply::Measured(sample) => Some(sample),
            _ => None,
        };
        Ok(measured.into_iter().filter_map(sample).collect())
    }
}

#[cfg(test)]
mod tests;
