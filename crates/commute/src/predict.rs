//! What many cores would make of it: throughput of an operation from the lines it touches.
//!
//! # What it is
//!
//! A simulator of cores that all repeat one operation, as fast as they can. An operation is a [`Program`]:
//! instructions, and between them accesses of lines that other cores touch too, and locks. Each line is
//! with the core that wrote it last, or with those that read it since. To touch one that is elsewhere takes
//! as long as the [`Machine`] says, by how far away it is, and meanwhile nobody else gets it. Who wants a
//! lock that is held waits in a queue. That is all that is simulated, and it is what makes structures stop
//! scaling.
//!
//! # Where a program comes from
//!
//! From what two cores touched when they made the operation one after the other, each on objects of its own
//! as far as the [`workload`] gives it such ([`Program::new`]); `recorded` makes it from recordings of the
//! library, on systems where calls can be recorded. Lines that both touched and one wrote are shared;
//! all others stay where they are, and cost nothing but the instructions. So a program is as good as two
//! cores are like many.
//!
//! # Its constants
//!
//! [`Machine::eight_sockets`] has those of the machine of the seeds' tables as others measured them: eight
//! sockets of ten cores, Xeon E7-8867L at 2.13 GHz (David, Guerraoui, Trigonakis: Everything You Always
//! Wanted to Know About Synchronization but Were Afraid to Ask, SOSP 2013, table 2): a modified line takes
//! about 109 cycles from a core of the same socket, 289 from one a hop away and 400 from one two hops away,
//! and stores and exchanges take about a tenth more. The figures of stores are taken for all accesses. Which
//! sockets are a hop apart is simplified: three on each side; those beyond are two hops away.
//!
//! # Where it can't be trusted
//!
//! * **One instruction takes one cycle**, whichever. So a core alone is right within a factor of two or
//!   three, and where nothing is shared the shape is right and the height isn't.
//! * **Caches are endless** and memory has no limit to how much goes through it. What scales here may be
//!   limited by either in reality, as reading and writing of large files is.
//! * **Waiters sleep for nothing.** Waiting is as if by spinning in a fair queue, and a lock goes to the next
//!   one at the cost of its line; a thread that went to sleep takes microseconds more to come back.
//! * **A lock in the kernel before 3.10 is worse** than here: all its waiters read its line again whenever it
//!   changes hands. So the curves of what was before fall less steeply than the seeds' tables.
//! * **Chance.** Names that share a bucket of a table by their hashes, and lines that share a set of a
//!   cache, are as in the two traces or not there at all.
//!
//! # Invariants
//!
//! * The same program on the same machine gives the same figure. All that is drawn is the order in which
//!   cores begin, always from the same seed.
//! * At any time at most one core holds a lock, and waiters get it in the order in which they came.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod recorded;
pub mod workload;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use vfscale_sync::random::Random;

/// Operations of each core that are simulated, besides those that only warm up.
const OPERATIONS: u64 = 60;
/// Operations of each core before time is taken.
const WARM_UP: u64 = 10;
/// What the order in which cores begin is drawn from.
const SEED: u64 = 1;

/// Costs of a machine, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Cores of a socket.
    pub cores_per_socket: usize,
    /// Cycles in a second.
    pub hertz: f64,
    /// Until a line comes from another core: of the same socket, of a socket next to it, of one further away.
    pub transfer: [u64; 3],
    /// How many sockets are next to one.
    pub neighbours: usize,
}

impl Machine {
    /// The machine of the seeds' tables: ten cores to a socket, at 2.13 GHz.
    #[must_use]
    pub fn eight_sockets() -> Machine {
        Machine { cores_per_socket: 10, hertz: 2.13e9, transfer: [115, 320, 431], neighbours: 3 }
    }

    /// Cycles until a line comes from one core to another.
    fn distance(&self, from: usize, to: usize) -> u64 {
        let [from, to] = [from, to].map(|core| core / self.cores_per_socket.max(1));
        match from.abs_diff(to) {
            _ if from == to => self.transfer[0],
            apart if apart <= self.neighbours => self.transfer[1],
            _ => self.transfer[2],
        }
    }
}

/// What an access does besides touching its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    Plain,
    /// It takes the lock that is in the line.
    Acquire,
    /// It gives that lock back.
    Release,
}

/// An access of one of two cores, as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The line: any number, the same for both cores.
    pub line: u64,
    /// Whether it is written.
    pub write: bool,
    /// What that does.
    pub role: Role,
    /// Instructions since the access before.
    pub instructions: u64,
}

/// A step of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// So many cycles on its own.
    Compute(u64),
    Read(usize),
    Write(usize),
    Acquire(usize),
    Release(usize),
}

/// An operation, as each core makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    steps: Vec<Step>,
    lines: usize,
}

impl Program {
    /// The program of an operation from what two cores touched when each made it.
    ///
    /// A lock that isn't given back in it, or not taken, is a line like others.
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
                steps.push(Step::Compute(cycles));
                cycles = 0;
            }
            steps.push(match touch.role {
                Role::Acquire if locks.contains(&touch.line) => Step::Acquire(line),
                Role::Release if locks.contains(&touch.line) => Step::Release(line),
                _ if touch.write => Step::Write(line),
                _ => Step::Read(line),
            });
        }
        if cycles > 0 || steps.is_empty() {
            steps.push(Step::Compute(cycles.max(1)));
        }
        Program { steps, lines: shared.len() }
    }

    /// How often it takes a lock that is on such a line.
    #[must_use]
    pub fn locks_taken(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Acquire(_))).count()
    }

    /// How many lines it shares with other cores.
    #[must_use]
    pub fn shared_lines(&self) -> usize {
        self.lines
    }

    /// How often it touches such a line.
    #[must_use]
    pub fn shared_accesses(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step, Step::Compute(_))).count()
    }
}

/// The lines that both touched and at least one wrote, numbered.
fn shared_lines(first: &[Touch], second: &[Touch]) -> BTreeMap<u64, usize> {
    let lines = |of: &[Touch]| of.iter().map(|touch| touch.line).collect::<BTreeSet<_>>();
    let both = lines(first).intersection(&lines(second)).copied().collect::<BTreeSet<_>>();
    let written = first.iter().chain(second).filter(|touch| touch.write).map(|touch| touch.line);
    let shared: BTreeSet<_> = written.filter(|line| both.contains(line)).collect();
    shared.into_iter().enumerate().map(|(number, line)| (line, number)).collect()
}

/// The lines whose locks are taken and given back in turn.
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

/// How many operations `cores` cores make in a second, all together.
#[must_use]
pub fn throughput(machine: &Machine, program: &Program, cores: usize) -> f64 {
    let mut simulation = Simulation::new(machine, program, cores.max(1));
    let warm = simulation.run(WARM_UP * cores.max(1) as u64);
    let count = OPERATIONS * cores.max(1) as u64;
    let end = simulation.run(WARM_UP * cores.max(1) as u64 + count);
    count as f64 * machine.hertz / (end - warm).max(1) as f64
}

/// The cores that a prediction is made for.
pub const CORES: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// Throughput for each of [`CORES`].
#[must_use]
pub fn curve(machine: &Machine, program: &Program) -> Vec<(usize, f64)> {
    CORES.iter().map(|&cores| (cores, throughput(machine, program, cores))).collect()
}

/// Where a line is, and what is going on with it.
struct Line {
    /// Who wrote it last.
    owner: usize,
    /// Who has it, the owner with them.
    holders: BTreeSet<usize>,
    /// Until when it is on its way.
    busy: u64,
    /// Whether the lock in it is held.
    held: bool,
    /// Who waits for the lock.
    queue: VecDeque<usize>,
}

/// A core at a step of its program.
#[derive(Clone, Copy, Default)]
struct Core {
    step: usize,
}

struct Simulation<'a> {
    machine: &'a Machine,
    program: &'a Program,
    cores: Vec<Core>,
    lines: Vec<Line>,
    /// Cores that are to go on, by when.
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
        // They do not begin in step: each a cycle after another. A queue keeps their order ever after, so
        // that it must not be the order in which they sit in their sockets.
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

    /// Goes on until so many operations are done in all; gives the time of the last one.
    fn run(&mut self, operations: u64) -> u64 {
        while self.done < operations {
            let Some(Reverse((time, core))) = self.ready.pop() else { break };
            self.now = time;
            self.step(core);
        }
        self.now
    }

    /// One step of a core, which is at it now.
    fn step(&mut self, core: usize) {
        let step = self.program.steps[self.cores[core].step];
        let end = match step {
            Step::Compute(cycles) => self.now + cycles,
            Step::Read(line) => self.read(core, line),
            Step::Write(line) => self.write(core, line, self.now),
            Step::Acquire(line) if self.lines[line].held => {
                self.lines[line].queue.push_back(core);
                return;
            }
            Step::Acquire(line) => {
                self.lines[line].held = true;
                self.write(core, line, self.now)
            }
            Step::Release(line) => {
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

    /// The core has ended its step at a time.
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

    /// Brings a line to a core alone, from `time` on.
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
