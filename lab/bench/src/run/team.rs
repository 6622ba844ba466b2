//! Workers: threads or processes that work at a command, and reply with their measurements.
//!
//! A round has three steps, and all workers finish one before any begins the next:
//! [`Command::Begin`] prepares, [`Command::Go`] measures from a common moment on, [`Command::End`]
//! checks. So no worker's preparation or check disturbs another's measurement.
//!
//! The measured loop contains the operation and, about every twenty microseconds, a read of the
//! clock. The counts of a worker stay in its own registers and stack until the end of the round.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::clock;
use crate::base::error::{Fault, FaultKind, Outcome};
use crate::base::interrupt::Interrupt;
use crate::measure::player::{Act, Sample, Timing};
use crate::measure::seat::Seat;
use crate::targets::path::Directory;
use crate::workloads::{self, Scene};

/// Time from [`Command::Go`] to the start, in which every worker receives the command.
const LEAD_NANOS: u64 = 400_000;

/// A command to a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Prepare a round.
    Begin,
    /// Work.
    Go {
        /// Start, in nanoseconds of the common clock.
        start: u64,
        /// Duration in nanoseconds, unless the amount of work is fixed.
        slice: u64,
        /// The quantity to measure.
        timing: Timing,
    },
    /// Check the effects.
    End,
}

/// A worker's reply.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The command was carried out.
    Done,
    /// The measurements.
    Measured(Sample),
    /// The command failed.
    Failed(Failure),
}

/// The reason why a worker could not continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason, in words.
    pub reason: String,
    /// Whether the target lacks a feature that the workload needs.
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

/// Carries out commands until there are no more.
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

/// The first line that a worker process receives.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    workload: String,
    dir: PathBuf,
    scene: Scene,
    worker: usize,
    seat: Seat,
}

/// Runs a worker process: reads commands as lines of JSON from `input`, and writes replies to
/// `output`. Returns when there are no more commands, for example because the parent has exited.
///
/// # Errors
/// Returns an error if `input` is invalid or unreadable, or `output` can't be written.
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

/// A worker, as seen by the thread that sends commands.
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
                // If this fails, the receiver was dropped, and no thread waits for the reply.
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

    /// Waits for the reply. After an interruption a worker process, which does not see the flag, is
    /// killed.
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
                        // This fails if the process has already exited.
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
                    // A panic has already been printed.
                    let _ = thread.join();
                }
            }
            Member::Process { orders, child, .. } => {
                drop(orders.take());
                // The process exits at the end of its commands; its replies contained its status.
                let _ = child.wait();
            }
        }
    }
}

/// The workers of a case.
pub struct Team {
    members: Vec<Member>,
    stop: Interrupt,
}

impl Team {
    /// Starts a thread for each seat. `make` is called on the worker's own thread with its number.
    ///
    /// # Errors
    /// Returns a failure if a thread can't be started, or the fault of `make`.
    pub fn of_threads(
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

    /// Starts a process for each seat with `command`.
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

    /// Waits for the replies of all workers, even if one has failed.
    fn replies(&mut self) -> Result<Vec<Reply>, Failure> {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.replies_of(&all)
    }

    fn replies_of(&mut self, workers: &[usize]) -> Result<Vec<Reply>, Failure> {
        let stop = &self.stop;
        let replies = workers.iter().map(|worker| self.members[*worker].reply(stop));
        replies.collect::<Vec<_>>().into_iter().collect()
    }

    /// Sends a command to these workers, and waits for their replies.
    fn command(&mut self, workers: &[usize], command: Command) -> Result<Vec<Reply>, Failure> {
        let mut lost = false;
        for worker in workers {
            lost |= !self.members[*worker].order(command);
        }
        let replies = self.replies_of(workers)?;
        if lost { Err(Failure::died()) } else { Ok(replies) }
    }

    /// Runs a round of all workers; see [`round_of`](Self::round_of).
    pub(crate) fn round(&mut self, slice: u64, timing: Timing) -> Result<Vec<Sample>, Failure> {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.round_of(&all, slice, timing)
    }

    /// Runs a round of some workers, `slice` nanoseconds long: prepares, measures, checks. The
    /// other workers sleep.
    ///
    /// # Errors
    /// Returns the first failure of a worker.
    pub fn round_of(
        &mut self,
        workers: &[usize],
        slice: u64,
        timing: Timing,
    ) -> Result<Vec<Sample>, Failure> {
        self.command(workers, Command::Begin)?;
        let start = clock::now() + LEAD_NANOS;
        let measured = self.command(workers, Command::Go { start, slice, timing })?;
        self.command(workers, Command::End)?;
        let sample = |reply| match reply {
            Reply::Measured(sample) => Some(sample),
            _ => None,
        };
        Ok(measured.into_iter().filter_map(sample).collect())
    }
}

#[cfg(test)]
mod tests;
