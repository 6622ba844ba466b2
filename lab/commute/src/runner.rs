//! Runs cases on two simulated CPUs and finds the cache lines they conflict on.
//!
//! # A case
//!
//! The runner makes a new tree, warms it up and makes the starting state. Then one thread makes the
//! first call as CPU 0 and is recorded. After that, another thread makes the second call as CPU 1
//! and is recorded. They never run simultaneously: the recorded lines are compared, not the times.
//!
//! # What the comparison leaves out, and why
//!
//! This is the complete list. No address is ignored; instead, the runner arranges that the
//! following does not happen within a recording.
//!
//! * *The allocator's lines, and objects that share a line only because of the allocator*: see
//!   [`arena`]. Allocators for many threads exist; they are not under test.
//! * *Initialization of a thread or CPU*: thread-locals, the registration with RCU, the first
//!   magazine of a slab, the first batch of inode numbers and of space, and the page locks for
//!   overwrites that a file system creates on first use. Each CPU first makes every kind of call on
//!   objects that are removed before the starting state is made.
//! * *The end of a grace period*. A thread whose deferred work waits drives the grace period in one
//!   of 64 sections. This reads what all threads write and, if it succeeds, runs that work. The
//!   cost is shared by many calls and would hit one of them at random. Before each recording, the
//!   thread enters sections until no work waits.
//! * *The first read of times* after they were written: it marks them as seen, and later reads
//!   write nothing until the times are written again. The starting state includes each read of
//!   times that a recorded call makes.
//! * *The first read of data* after a change, on volumes: it sets the time of the last access, and
//!   later reads do not, for a day. The starting state includes a read of each file that a recorded
//!   call reads. (In memory the file is made within the tick of the clock that the read would set.)
//! * *A tick of the clock*. Times are stamped with the time of the last tick, and only written if
//!   they differ. Of all changes of a directory within a tick (1 to 10 ms), only the first writes
//!   its times. All of a case happens within one tick: recorded calls see a stopped clock, and a
//!   starting state that was not finished within its tick is made again. For some milliseconds
//!   after a change of an inode whose times were read, all changes write exact times
//!   ([`clock`]); recorded calls don't.
//! * *Names that collide by chance*. Two names of a large directory share a line if their hashes
//!   begin alike, which holds for one pair in as many as the directory has lines. Normally, each
//!   process has a different hash key. Here the key is fixed (`KEY`), so the results are repeatable
//!   and the few names of the cases do not collide.
//! * *Rare events*: once in tens of thousands of cases on a busy machine. A report
//!   ([`report`](crate::report)) runs a conflicting case once more; if that run is free, a third
//!   run counts.
//! * *The kernel's accesses*: see [`record`](crate::trace::record).

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use vfscale::block::{Device, MemoryDevice};
use vfscale::posix::{At, AtFlags, OFlags, OpenHow, Whence, XattrFlags};
use vfscale::{File, FileType, Mode, Scaling, Task, Vfs};
use vfscale_diskfs::{mkfs, mkfs::MkfsOptions};
use vfscale_sync::{clock, cpu, random, rcu, reclaim};

use crate::case::{Call, Case, Op, Outcome, PROCESSES};
use crate::execute::{KEY, World};
use crate::trace::arena::{self, Arena};
use crate::trace::conflict::{Conflict, conflicts};
use crate::trace::owner::{NamedConflict, describe};
use crate::trace::record::{CodeCache, Recorder, Trace};
use crate::trace::symbols::Symbols;

mod branches;

/// Memory limit of a tree.
const TREE_BYTES: u64 = 64 << 20;
/// Size of a volume for each CPU that it is sharded over. The log is a part of the volume, and a
/// CPU's share of the log a part of the log. With this size, the share exceeds the worst case of a
/// transaction that creates a file. With a smaller one, every such transaction would use the space
/// that the CPUs share.
const SLOT_BYTES: u64 = 256 << 20;
/// Enough directories for one in each group of such a volume.
const DIRS_FOR_GROUPS: u32 = 16;
/// Time limit for making a starting state within a tick. On a busy machine, the first attempts
/// fail.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often two CPUs alternately reference a dentry, or take a file's lock shared, until its count
/// is certainly sharded.
const TURNS: usize = 40;
/// How often two CPUs alternately make a name in a directory until it has 64 lines: 24 times to
/// grow from one to 4 lines, 24 times to grow to 16, which is where new directories begin, and 24
/// times more, rounded up. They alternate after eight names, of which the table samples one
/// ([`table`](vfscale_sync::table)).
const NAMES_IN_TURN: u32 = 80;

/// Options of a runner.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Degree of sharding of the structures.
    pub scaling: Scaling,
    /// Whether all structures that are sharded under contention are sharded beforehand.
    pub promoted: bool,
    /// Target of the calls.
    pub target: Target,
}

/// Kind of the file system that cases run on. Each case gets a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// A memory file system.
    #[default]
    Memory,
    /// A volume on a device in memory.
    Volume,
    /// Two branches of a volume on such a device, one for each process.
    Branches,
}

impl Default for Options {
    fn default() -> Options {
        Options { scaling: Scaling::default(), promoted: true, target: Target::Memory }
    }
}

impl Options {
    /// Returns whether structures that both CPUs use are sharded beforehand. Branches have none.
    fn are_shared(self) -> bool {
        self.promoted && self.target != Target::Branches
    }
}

/// Result of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Name of the case.
    pub name: String,
    /// Kinds of its calls.
    pub calls: [String; 2],
    /// Lines that the calls conflict on.
    pub conflicts: Vec<NamedConflict>,
    /// Number of instructions of each call.
    pub instructions: [u64; 2],
    /// Number of system calls of both.
    pub system_calls: u64,
    /// Number of instructions of both whose accesses are missing.
    pub not_understood: u64,
    /// Outcomes of the calls.
    #[serde(skip)]
    pub outcomes: [Outcome; 2],
}

/// Runs cases. Its threads end when it is dropped. A process has one runner at a time, because the
/// threads of another one would run work that is deferred here.
pub struct Runner {
    workers: [Worker; 2],
    /// Cached copies of code. They travel with the recordings, of which only one runs at a time.
    code: Option<CodeCache>,
    symbols: Symbols,
    options: Options,
    /// Dropped last.
    _alone: MutexGuard<'static, ()>,
}

/// Held by the only runner.
static ALONE: Mutex<()> = Mutex::new(());

/// A thread that acts as a CPU.
struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

type Job = Box<dyn FnOnce(&mut Recorder) + Send>;

thread_local! {
    /// Time in nanoseconds that every clock shows to recorded calls of this thread.
    static CLOCK: Cell<i64> = const { Cell::new(0) };
}

/// Replaces the C library's `clock_gettime` in a recording.
extern "C" fn clock_that_stands(_: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let nanos = CLOCK.get();
    // SAFETY: callers pass a pointer that is valid for `clock_gettime`.
    unsafe {
        (*time).tv_sec = nanos.div_euclid(1_000_000_000);
        (*time).tv_nsec = nanos.rem_euclid(1_000_000_000);
    }
    0
}

/// Returns the time of the last tick in nanoseconds.
fn tick() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

impl Worker {
    fn new(number: u32) -> io::Result<Worker> {
        let (jobs, inbox): (Sender<Job>, Receiver<Job>) = channel();
        let (started, answer) = channel();
        let body = move || {
            let _cpu = cpu::pretend(number);
            let made = Arena::new().and_then(|arena| Ok((Recorder::new(&arena)?, arena)));
            let (mut recorder, _arena) = match made {
                Ok(made) => made,
                Err(e) => return drop(started.send(Err(e))),
            };
            let _ = started.send(Ok(()));
            while let Ok(job) = inbox.recv() {
                job(&mut recorder);
            }
        };
        let thread = std::thread::Builder::new().name(format!("cpu {number}")).spawn(body)?;
        match answer.recv() {
            Ok(Ok(())) => Ok(Worker { jobs: Some(jobs), thread: Some(thread) }),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::Error::other("a thread ended before it began")),
        }
    }

    /// Runs a job on the thread and waits for its result.
    fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Recorder) -> R + Send + 'static,
    ) -> io::Result<R> {
        let (done, answer) = channel();
        let job: Job = Box::new(move |recorder| drop(done.send(job(recorder))));
        let gone = || io::Error::other("a thread that runs cases has ended");
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(gone)?;
        answer.recv().map_err(|_| gone())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Runner {
    /// Starts the two threads. Waits until no other runner exists.
    ///
    /// # Errors
    /// If the system has no memory or threads, or if the process has hashed names with another key.
    pub fn new(options: Options) -> io::Result<Runner> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if !random::fix_hash_keys(KEY) {
            return Err(io::Error::other("this process has hashed names before"));
        }
        let mut code = CodeCache::new();
        let clock = libc::clock_gettime as *const () as u64;
        code.replace(clock, clock_that_stands as *const () as u64);
        let workers = [Worker::new(0)?, Worker::new(1)?];
        for (number, worker) in workers.iter().enumerate() {
            worker.run(move |_| warm_up(&trees(options)?[number], "warm-up", options))??;
        }
        let symbols = Symbols::new();
        Ok(Runner { workers, code: Some(code), symbols, options, _alone: alone })
    }

    /// Runs a case.
    ///
    /// # Errors
    /// If no tree can be made, if no starting state could be made within a tick, or if a thread has
    /// died.
    pub fn run(&mut self, case: &Case) -> io::Result<CaseResult> {
        let options = self.options;
        let code = self.code.take().unwrap_or_default();
        let first = case.first.clone();
        let (setup, looks) = (case.setup.clone(), looks([&case.first, &case.second], options));
        let (world, now) =
            self.workers[0].run(move |_| starting_state(&setup, &looks, options))??;
        // Done before either call is recorded: otherwise this thread could get memory that the
        // first call frees.
        self.workers[1].run(|_| right_after_a_collection())?;
        let (world, code, a) = self.workers[0].run(move |recorder| {
            right_after_a_collection();
            record(world, &first, now, recorder, code)
        })?;
        let second = case.second.clone();
        let (world, code, b) =
            self.workers[1].run(move |recorder| record(world, &second, now, recorder, code))?;
        self.code = Some(code);
        let found = conflicts(&a.1, &b.1);
        let result = self.result(case, &found, &a, &b);
        self.free((world, a, b))?;
        Ok(result)
    }

    /// Makes and records the calls of both CPUs from one starting state, one CPU after the other
    /// and each call separately. `warm_up` is called before, after the promotion. `look` gets the
    /// traces of both CPUs and the symbols to resolve them. On a volume, the clock ticks after the
    /// state was begun, because making it takes longer than a tick.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Self::run).
    pub fn record_all<R>(
        &mut self,
        setup: Vec<Call>,
        warm_up: Vec<Call>,
        calls: [Vec<Call>; 2],
        look: impl FnOnce(&[Vec<(Outcome, Trace)>; 2], &mut Symbols) -> R,
    ) -> io::Result<R> {
        let options = self.options;
        let (mut world, now) = self.workers[0].run(move |_| match options.target {
            Target::Memory => warm_state(&setup, &warm_up, options),
            Target::Volume | Target::Branches => {
                let warm_up: Vec<_> =
                    warm_up.into_iter().map(|call| (call.process.into(), call)).collect();
                Ok((made_state(&setup, &warm_up, options)?.0, next_tick()))
            }
        })??;
        let mut recorded = [Vec::new(), Vec::new()];
        for (cpu, calls) in calls.into_iter().enumerate() {
            for call in calls {
                let code = self.code.take().unwrap_or_default();
                let done = self.workers[cpu].run(move |recorder| {
                    right_after_a_collection();
                    let done = record(world, &call, now, recorder, code);
                    // Otherwise the other thread could get memory that this call has freed.
                    right_after_a_collection();
                    done
                })?;
                self.code = Some(done.1);
                world = done.0;
                recorded[cpu].push(done.2);
            }
        }
        let looked = look(&recorded, &mut self.symbols);
        self.free((world, recorded))?;
        Ok(looked)
    }

    /// Frees what a case has made, on the thread that makes the next one. What is deferred runs
    /// there too: on another thread it would feed the free lists of that one, and each case would
    /// take new memory here.
    fn free(&self, made: impl Send + 'static) -> io::Result<()> {
        self.workers[0].run(move |_| {
            drop(made);
            right_after_a_collection();
        })
    }

    fn result(
        &mut self,
        case: &Case,
        found: &[Conflict],
        a: &(Outcome, Trace),
        b: &(Outcome, Trace),
    ) -> CaseResult {
        let words = found.iter().filter_map(|c| describe(c, &a.1, &b.1, &mut self.symbols));
        CaseResult {
            name: case.name.clone(),
            calls: [case.first.op.kind().name(), case.second.op.kind().name()],
            conflicts: words.collect(),
            instructions: [a.1.instructions, b.1.instructions],
            system_calls: a.1.system_calls + b.1.system_calls,
            not_understood: a.1.not_understood + b.1.not_understood,
            outcomes: [a.0.clone(), b.0.clone()],
        }
    }
}

/// Waits for the next tick of the clock, and returns it. No time that was stamped before is later.
fn next_tick() -> i64 {
    let last = tick();
    loop {
        thread::sleep(Duration::from_micros(100));
        let next = tick();
        if next > last {
            return next;
        }
    }
}

/// Makes a call and records it, with the clock stopped at `now`.
fn record(
    mut world: World,
    call: &Call,
    now: i64,
    recorder: &mut Recorder,
    mut code: CodeCache,
) -> (World, CodeCache, (Outcome, Trace)) {
    CLOCK.set(now);
    let mut prepared = world.prepare(call);
    clock::of_process().forget();
    let ((), trace) = recorder.record(&mut code, || prepared.run());
    let outcome = world.finish(prepared);
    (world, code, (outcome, trace))
}

/// Enters RCU sections until no work is deferred, so the next sections look after none.
fn right_after_a_collection() {
    reclaim::settle();
    let passed = Arc::new(AtomicBool::new(false));
    let marker = passed.clone();
    let guard = rcu::pin();
    guard.defer(move || marker.store(true, Ordering::Release));
    guard.flush();
    drop(guard);
    while !passed.load(Ordering::Acquire) {
        drop(rcu::pin());
    }
}

/// Makes the trees of both processes, which are one unless they are branches.
fn trees(options: Options) -> io::Result<[Vfs; PROCESSES]> {
    let vfs = match options.target {
        Target::Memory => vfscale::memory().size(TREE_BYTES).scaling(options.scaling).build()?,
        Target::Volume => volume(options)?,
        Target::Branches => {
            return branches::siblings(formatted(branches::BYTES)?, options.scaling);
        }
    };
    Ok([vfs.clone(), vfs])
}

/// Returns a device in memory with a new volume.
fn formatted(bytes: u64) -> io::Result<Arc<dyn Device>> {
    let device = MemoryDevice::new(bytes).map_err(io::Error::other)?;
    mkfs::format(&device, &MkfsOptions::default()).map_err(io::Error::other)?;
    Ok(Arc::new(device))
}

/// Makes a volume on a device in memory.
fn volume(options: Options) -> io::Result<Vfs> {
    let device = formatted(SLOT_BYTES * options.scaling.slots().max(2) as u64)?;
    // Disables background write-back. Names are delayed as where threads wait for a directory.
    let mut volume = vfscale::volume_on(device).sync_interval(None).scaling(options.scaling);
    if options.promoted {
        volume = volume.dir_heat(0);
    }
    let volume = volume.open().map_err(io::Error::other)?;
    Ok(volume.vfs().clone())
}

/// Returns the calls that read times, behind a lookup of each path on a promoted volume and a read
/// of each file that is read there, and the CPU for each. The first lookup of a name that does not
/// exist stores that in the cache, and the first read after a change the time of the access.
fn looks(calls: [&Call; 2], options: Options) -> Vec<(u32, Call)> {
    let are_cached = options.promoted && options.target != Target::Memory;
    let cpus = || (0..).zip(calls);
    let paths = cpus().filter(|_| are_cached).flat_map(|(cpu, call)| {
        let lookup = move |path: &str| {
            (cpu, Call { process: call.process, op: Op::Lookup { path: path.into() } })
        };
        call.op.paths().into_iter().map(lookup)
    });
    let reads = cpus().filter(|_| are_cached).filter_map(|(cpu, call)| match call.op {
        Op::Read { slot, .. } | Op::Pread { slot, .. } => {
            let op = Op::Pread { slot, len: 1, offset: 0 };
            Some((cpu, Call { process: call.process, op }))
        }
        _ => None,
    });
    let looks = calls.into_iter().filter(|c| matches!(c.op, Op::Stat { .. } | Op::Fstat { .. }));
    let looks = looks.map(|call| (call.process.into(), call.clone()));
    paths.chain(reads).chain(looks).collect()
}

/// Makes a tree in the starting state of a case within a tick of the clock. Returns that tick too.
fn starting_state(
    setup: &[Call],
    last: &[(u32, Call)],
    options: Options,
) -> io::Result<(World, i64)> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let (world, before) = made_state(setup, last, options)?;
        if tick() == before {
            return Ok((world, before));
        }
    }
    Err(io::Error::other("no starting state was made within a tick of the clock"))
}

/// Makes a tree in the starting state of a case. Returns the tick in which it began too.
fn made_state(setup: &[Call], last: &[(u32, Call)], options: Options) -> io::Result<(World, i64)> {
    arena::collect_returned();
    let trees = trees(options)?;
    for (number, vfs) in (0..).zip(&trees) {
        let _cpu = cpu::pretend(number);
        warm_up(vfs, &format!("warm-up-{number}"), options)?;
    }
    let mut world = World::in_trees(trees);
    // Times of the warm-up are earlier, also exact ones.
    let before = next_tick();
    clock::of_process().forget();
    // Some calls of a set-up fail on purpose.
    call_all(&mut world, setup);
    if options.are_shared() {
        promote(world.vfs())?;
        world.files().for_each(share_in_turn);
    }
    for (cpu, call) in last {
        let _cpu = cpu::pretend(*cpu);
        world.call(call);
    }
    Ok((world, before))
}

/// Makes the starting state of a workload, with its calls made once within a tick. Returns that
/// tick too.
fn warm_state(setup: &[Call], calls: &[Call], options: Options) -> io::Result<(World, i64)> {
    let (mut world, _) = made_state(setup, &[], options)?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let before = tick();
        clock::of_process().forget();
        call_all(&mut world, calls);
        if tick() == before {
            return Ok((world, before));
        }
    }
    Err(io::Error::other("the calls of a workload were never made within a tick of the clock"))
}

fn call_all(world: &mut World, calls: &[Call]) {
    for call in calls {
        let _cpu = cpu::pretend(u32::from(call.process));
        world.call(call);
    }
}

/// Makes every kind of call on objects that are removed afterwards.
fn warm_up(vfs: &Vfs, name: &str, options: Options) -> io::Result<()> {
    let task = vfs.task();
    let path = |file: &str| format!("/{name}/{file}");
    let (cwd, none) = (At::Cwd, AtFlags::empty());
    task.posix().mkdirat(cwd, path(""), Mode::RWXU)?;
    task.posix().chdir(path(""))?;
    let mut buffer = [1; 64];
    for file in ["a", "b"] {
        let flags = OFlags::CREATE | OFlags::RDWR;
        let file = task.posix().open(file, flags, Mode::RWXU)?;
        file.pwrite(&buffer, 0)?;
        file.pwrite(&buffer, 4096)?;
        if options.target != Target::Branches {
            share_in_turn(&file);
        }
        file.pwrite(&buffer, 0)?;
        file.pread(&mut buffer, 0)?;
        file.stat()?;
        task.posix().path_of(&file)?;
        file.truncate(10)?;
        file.read_dir().for_each(drop);
    }
    task.posix().setxattrat(cwd, "a", "user.a", &buffer, XattrFlags::empty(), none)?;
    task.posix().getxattrat(cwd, "a", "user.a", none)?;
    task.posix().fchmodat(cwd, "a", Mode::RUSR, none)?;
    task.posix().linkat(cwd, "a", cwd, "c", none)?;
    task.posix().renameat2(cwd, "c", cwd, "b", vfscale::posix::RenameFlags::empty())?;
    task.posix().symlinkat(cwd, "s", "a")?;
    task.posix().readlinkat(cwd, "s")?;
    task.posix().fstatat(cwd, "s", none)?;
    task.posix().getcwd()?;
    task.posix().open(".", OFlags::TMPFILE | OFlags::RDWR, Mode::RWXU)?.pwrite(&buffer, 0)?;
    let (reader, writer) = task.posix().pipe2(OFlags::NONBLOCK)?;
    writer.write(&buffer)?;
    reader.read(&mut buffer)?;
    for file in ["a", "b", "s"] {
        task.posix().unlinkat(cwd, file, none)?;
    }
    // A volume distributes directories over its groups, whose headers it reads at their first use.
    let dirs = || (0..DIRS_FOR_GROUPS).map(|number| format!("d{number}"));
    dirs().try_for_each(|dir| task.posix().mkdirat(cwd, dir, Mode::RWXU))?;
    dirs().try_for_each(|dir| task.remove_dir(dir))?;
    task.posix().chdir("/")?;
    task.posix().unlinkat(cwd, path(""), AtFlags::REMOVEDIR)?;
    Ok(())
}

/// Makes both CPUs alternately use every name of the tree until its count is sharded, and make
/// names in every directory until it has lines for each CPU. Nothing reads the times here.
fn promote(vfs: &Vfs) -> io::Result<()> {
    let task = vfs.task();
    let mut dirs = vec![PathBuf::from("/")];
    while let Some(dir) = dirs.pop() {
        use_in_turn(&task, &dir)?;
        for entry in task.posix().open(&dir, OFlags::DIRECTORY, Mode::empty())?.read_dir() {
            let entry = entry?;
            let path = dir.join(&entry.name);
            match entry.file_type {
                _ if entry.name == "." || entry.name == ".." => {}
                FileType::Directory => dirs.push(path),
                _ => use_in_turn(&task, &path)?,
            }
        }
        make_in_turn(&task, &dir)?;
    }
    Ok(())
}

fn make_in_turn(task: &Task, dir: &Path) -> io::Result<()> {
    let path = dir.join("promotion");
    for turn in 0..NAMES_IN_TURN {
        let _cpu = cpu::pretend(turn / 8 % 2);
        task.symlink("nowhere", &path)?;
        task.remove_file(&path)?;
    }
    // From now on, the subdirectories are counted per CPU.
    task.posix().mkdirat(At::Cwd, &path, Mode::RWXU)?;
    task.remove_dir(&path)?;
    // These locked the node of a volume exclusively; the CPUs share it again.
    for turn in 0..TURNS as u32 {
        let _cpu = cpu::pretend(turn % 2);
        task.symlink("nowhere", &path)?;
        task.remove_file(&path)?;
    }
    Ok(())
}

/// Makes both CPUs alternately take the lock of an open file until it is sharded. Restores the file
/// position, if it has one.
fn share_in_turn(file: &File) {
    for turn in 0..TURNS {
        let _cpu = cpu::pretend(turn as u32 % 2);
        let Ok(position) = file.seek(Whence::Current(0)) else { return };
        let _ = file.seek(Whence::Hole(0));
        let _ = file.seek(Whence::Set(position));
    }
}

fn use_in_turn(task: &Task, path: &Path) -> io::Result<()> {
    let how = OpenHow::new(OFlags::PATH | OFlags::NOFOLLOW);
    for turn in 0..TURNS {
        let _cpu = cpu::pretend(turn as u32 % 2);
        drop(task.posix().openat2(At::Cwd, path, &how)?);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
