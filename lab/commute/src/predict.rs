//! Predicts the throughput of an operation on many cores from the lines it touches.
//!
//! # The simulator
//!
//! It simulates cores that all repeat one operation as fast as they can. An operation is a
//! [`Program`]: instructions, accesses to lines that other cores touch too, and locks. Each line is
//! in the cache of the core that wrote it last, or of the cores that read it since. Fetching a line
//! from another core takes the time that the [`Machine`] defines for their distance, and during
//! that time no other core gets the line. A core that requests a held lock waits in a queue.
//! Nothing else is simulated; these effects are the ones that prevent structures from scaling.
//!
//! # Origin of a program
//!
//! A program is made from the accesses of two cores that made the operation one after the other,
//! each on its own objects as far as the [`workload`] provides them ([`Program::new`]). `recorded`
//! makes it from recordings of the library, on systems where calls can be recorded. Lines that both
//! cores touched and one wrote are shared. All other lines stay in their core's cache and cost
//! nothing but the instructions. So a program is accurate as far as two cores represent many.
//!
//! # Constants
//!
//! [`Machine::eight_sockets`] has the published latencies of a machine like the one on which Waiman
//! Long measured his lockref (2013) and seqrwlock (2013) patches: eight sockets of ten cores, Xeon
//! E7-8867L at 2.13 GHz (David, Guerraoui, Trigonakis: Everything You Always Wanted to Know About
//! Synchronization but Were Afraid to Ask, SOSP 2013, table 2). A modified line takes about 109
//! cycles from a core of the same socket, 289 from one a hop away and 400 from one two hops away;
//! stores and exchanges take about a tenth more. The simulator uses the figures of stores for all
//! accesses. The topology is simplified: the three nearest sockets on each side are one hop away,
//! all others two.
//!
//! # Limits
//!
//! * **Each instruction takes one cycle.** So the throughput of a single core is right within a
//!   factor of two or three. Where nothing is shared, the shape of a curve is right, but its height
//!   is not.
//! * **Caches and memory bandwidth are unlimited.** An operation that scales here may be limited by
//!   either in reality, as reading and writing of large files is.
//! * **Sleeping is free.** Waiting costs as much as spinning in a fair queue, and a lock is handed
//!   over at the cost of its line. A thread that really slept takes microseconds more to wake up.
//! * **A lock of a kernel before 3.10 is worse**: all its waiters read its line again whenever it
//!   changes hands. So the curves of the old structures fall less steeply than in Long's
//!   measurements.
//! * **Recordings are not complete.** They leave out what [`LEFT_OUT`] names, which programs print
//!   in front of their tables: the [`runner`](crate::runner) arranges that it does not happen in a
//!   recording. The `grace` example counts the lines of grace periods.
//! * **Chance.** Names that share a hash bucket, and lines that share a set of a cache, appear only
//!   if they did in the two traces.
//!
//! # Invariants
//!
//! * The same program on the same machine gives the same result. The only random choice is the
//!   order in which cores begin, with a fixed seed.
//! * At any time at most one core holds a lock, and waiters get it in first-come order.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod recorded;
pub mod workload;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use vfscale_sync::random::Random;

/// The first line of a table of predictions: the costs that are not in them.
pub const LEFT_OUT: &str = "Left out: the allocator's lines, refills of batches and magazines, and \
    the ends of grace periods: in 128 sections a thread reads two lines of every other one.";

/// Number of measured operations per core.
const OPERATIONS: u64 = 60;
/// Number of operations per core before the measurement.
const WARM_UP: u64 = 10;
/// Seed of the order in which cores begin.
const SEED: u64 = 1;

/// Costs of a machine, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Number of cores of a socket.
    pub cores_per_socket: usize,
    /// Clock frequency in cycles per second.
    pub hertz: f64,
    /// Latency of a line from another core: of the same socket, of an adjacent socket, of a more
    /// distant one.
    pub transfer: [u64; 3],
    /// Number of adjacent sockets on each side.
    pub neighbours: usize,
}

impl Machine {
    /// Returns the machine of the [module page](self): ten cores per socket, at 2.13 GHz.
    #[must_use]
    pub fn eight_sockets() -> Machine {
        Machine { cores_per_socket: 10, hertz: 2.13e9, transfer: [115, 320, 431], neighbours: 3 }
    }

    /// Returns the latency of a line from one core to another.
    fn distance(&self, from: usize, to: usize) -> u64 {
        let [from, to] = [from, to].map(|core| core / self.cores_per_socket.max(1));
        match from.abs_diff(to) {
            _ if from == to => self.transfer[0],
            apart if apart <= self.neighbours => self.transfer[1],
            _ => self.transfer[2],
        }
    }
}

/// Effect of an access on a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No effect.
    Plain,
    /// Takes the lock that is in the line.
    Acquire,
    /// Releases the lock that is in the line.
    Release,
}

/// A recorded access of one of two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Number of the line, the same for both cores.
    pub line: u64,
    /// Whether the access writes.
    pub write: bool,
    /// Effect on a lock.
    pub role: Role,
    /// Number of instructions since the previous access.
    pub instructions: u64,
}

/// A step of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramStep {
    /// Computation for a number of cycles.
    Compute(u64),
    Read(usize),
    Write(usize),
    Acquire(usize),
    Release(usize),
}

/// An operation as each core makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    steps: Vec<ProgramStep>,
    lines: usize,
}

impl Program {
    /// Makes the program of an operation from the accesses of two cores that each made it.
    ///
    /// A lock that is only taken or only released in it counts as an ordinary line.
    #[must_use]
    pub fn new(first: &[Touch], second: &[Touch]) -> Program {
        let shared = shared_lines(first, second);
        let locks = locks(first);
        let mut steps = Vec::new();
        let mut cycles = 0;
        for touch in first {
            cycles += touch.instructions;
            let Some(&line) = shared.get(&touch.line) else { continue };
            if cycles > 0 {
                steps.push(ProgramStep::Compute(cycles));
                cycles = 0;
            }
            steps.push(match touch.role {
                Role::Acquire if locks.contains(&touch.line) => ProgramStep::Acquire(line),
                Role::Release if locks.contains(&touch.line) => ProgramStep::Release(line),
                _ if touch.write => ProgramStep::Write(line),
                _ => ProgramStep::Read(line),
            });
        }
        if cycles > 0 || steps.is_empty() {
            steps.push(ProgramStep::Compute(cycles.max(1)));
        }
        Program { steps, lines: shared.len() }
    }

    /// Returns how often the operation takes a lock in a shared line.
    #[must_use]
    pub fn locks_taken(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, ProgramStep::Acquire(_))).count()
    }

    /// Returns the number of shared lines.
    #[must_use]
    pub fn shared_lines(&self) -> usize {
        self.lines
    }

    /// Returns the number of accesses to shared lines.
    #[must_use]
    pub fn shared_accesses(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step, ProgramStep::Compute(_))).count()
    }
}

/// Returns the lines that both cores touched and at least one wrote, with new numbers.
fn shared_lines(first: &[Touch], second: &[Touch]) -> BTreeMap<u64, usize> {
    let lines = |of: &[Touch]| of.iter().map(|touch| touch.line).collect::<BTreeSet<_>>();
    let both = lines(first).intersection(&lines(second)).copied().collect::<BTreeSet<_>>();
    let written = first.iter().chain(second).filter(|touch| touch.write).map(|touch| touch.line);
    let shared: BTreeSet<_> = written.filter(|line| both.contains(line)).collect();
    shared.into_iter().enumerate().map(|(number, line)| (line, number)).collect()
}

/// Returns the lines whose locks are alternately taken and released.
fn locks(touches: &[Touch]) -> BTreeSet<u64> {
    let mut balance = BTreeMap::<u64, Option<bool>>::new();
    for touch in touches {
        let held = balance.entry(touch.line).or_insert(Some(false));
        *held = match (touch.role, *held) {
            (Role::Plain, held) => held,
            (Role::Acquire, Some(false)) => Some(true),
            (Role::Release, Some(true)) => Some(false),
            _ => None,
        };
    }
    let taken = |line: &u64| touches.iter().any(|t| t.line == *line && t.role == Role::Acquire);
    let kept = balance.into_iter().filter(|(_, held)| *held == Some(false)).map(|(line, _)| line);
    kept.filter(taken).collect()
}

/// Returns the operations per second of `cores` cores together.
#[must_use]
pub fn throughput(machine: &Machine, program: &Program, cores: usize) -> f64 {
    let mut simulation = Simulation::new(machine, program, cores.max(1));
    let warm = simulation.run(WARM_UP * cores.max(1) as u64);
    let count = OPERATIONS * cores.max(1) as u64;
    let end = simulation.run(WARM_UP * cores.max(1) as u64 + count);
    count as f64 * machine.hertz / (end - warm).max(1) as f64
}

/// Numbers of cores for which predictions are made.
pub const CORES: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Returns the throughput for each of [`CORES`].
#[must_use]
pub fn curve(machine: &Machine, program: &Program) -> Vec<(usize, f64)> {
    CORES.iter().map(|&cores| (cores, throughput(machine, program, cores))).collect()
}

/// State of a line.
struct Line {
    /// Core that wrote the line last.
    owner: usize,
    /// Cores that cache the line, including the owner.
    holders: BTreeSet<usize>,
    /// Time until which the line is in transfer.
    busy: u64,
    /// Whether the lock in the line is held.
    held: bool,
    /// Cores that wait for the lock.
    queue: VecDeque<usize>,
}

/// Position of a core in its program.
#[derive(Clone, Copy, Default)]
struct Core {
    step: usize,
}

struct Simulation<'a> {
    machine: &'a Machine,
    program: &'a Program,
    cores: Vec<Core>,
    lines: Vec<Line>,
    /// Runnable cores by their next time.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    done: u64,
    now: u64,
}

impl<'a> Simulation<'a> {
    fn new(machine: &'a Machine, program: &'a Program, cores: usize) -> Simulation<'a> {
        let line = || Line {
            owner: 0,
            holders: BTreeSet::from([0]),
            busy: 0,
            held: false,
            queue: VecDeque::new(),
        };
        // The cores begin one cycle after the other. A queue preserves this order forever, so it
        // must differ from the order of their sockets.
        let mut order: Vec<_> = (0..cores).collect();
        Random::new(SEED).shuffle(&mut order);
        let ready =
            order.into_iter().enumerate().map(|(at, core)| Reverse((at as u64, core))).collect();
        Simulation {
            machine,
            program,
            cores: vec![Core::default(); cores],
            lines: (0..program.lines).map(|_| line()).collect(),
            ready,
            done: 0,
            now: 0,
        }
    }

    /// Runs until the total number of operations is reached; returns the time of the last one.
    fn run(&mut self, operations: u64) -> u64 {
        while self.done < operations {
            let Some(Reverse((time, core))) = self.ready.pop() else { break };
            self.now = time;
            self.step(core);
        }
        self.now
    }

    /// Executes the current step of a core.
    fn step(&mut self, core: usize) {
        let step = self.program.steps[self.cores[core].step];
        let end = match step {
            ProgramStep::Compute(cycles) => self.now + cycles,
            ProgramStep::Read(line) => self.read(core, line),
            ProgramStep::Write(line) => self.write(core, line, self.now),
            ProgramStep::Acquire(line) if self.lines[line].held => {
                self.lines[line].queue.push_back(core);
                return;
            }
            ProgramStep::Acquire(line) => {
                self.lines[line].held = true;
                self.write(core, line, self.now)
            }
            ProgramStep::Release(line) => {
                let end = self.write(core, line, self.now);
                match self.lines[line].queue.pop_front() {
                    Some(next) => {
                        let taken = self.write(next, line, end);
                        self.advance(next, taken);
                    }
                    None => self.lines[line].held = false,
                }
                end
            }
        };
        self.advance(core, end);
    }

    /// Completes the current step of a core at a time.
    fn advance(&mut self, core: usize, at: u64) {
        let next = self.cores[core].step + 1;
        let is_end = next == self.program.steps.len();
        self.cores[core].step = if is_end { 0 } else { next };
        self.done += u64::from(is_end);
        self.ready.push(Reverse((at, core)));
    }

    fn read(&mut self, core: usize, line: usize) -> u64 {
        let line = &mut self.lines[line];
        if !line.holders.insert(core) {
            return self.now;
        }
        let end = self.now.max(line.busy) + self.machine.distance(line.owner, core);
        line.busy = end;
        end
    }

    /// Transfers a line exclusively to a core, from `time` on. Returns the end of the transfer.
    fn write(&mut self, core: usize, line: usize, time: u64) -> u64 {
        let line = &mut self.lines[line];
        let others = line.holders.iter().filter(|holder| **holder != core);
        let Some(furthest) = others.map(|&holder| self.machine.distance(holder, core)).max() else {
            line.owner = core;
            return time.max(line.busy);
        };
        let end = time.max(line.busy) + furthest;
        line.busy = end;
        line.owner = core;
        line.holders.clear();
        line.holders.insert(core);
        end
    }
}

#[cfg(test)]
mod tests;
