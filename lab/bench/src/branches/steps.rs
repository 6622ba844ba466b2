//! The measurements.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vfscale::{OpenOptions, Pool, Task, Volume};

use super::plan::{BranchRow, Branching, said};
use crate::base::error::{Fault, Outcome};
use crate::base::interrupt::Interrupt;
use crate::workloads::expect::expect_equal;

const FILES_PER_DIR: u64 = 1_000;

/// Number of threads that write into a parent.
pub(super) const WRITERS: usize = 8;

/// Size of the file of which a branch changes a block.
pub(super) const LARGE: u64 = 50 << 20;

/// The path of a file of the volume.
fn path(file: u64) -> String {
    format!("/d{}/f{file}", file / FILES_PER_DIR)
}

/// Makes the files of the volume: small ones, and a large one.
pub(super) fn fill(volume: &Volume, files: u64) -> Outcome<()> {
    let task = volume.task();
    for dir in 0..files.div_ceil(FILES_PER_DIR) {
        task.create_dir(format!("/d{dir}"))?;
    }
    for file in 0..files {
        task.write(path(file), file.to_string())?;
    }
    write_zeros(&task, "/large", LARGE)
}

pub(super) fn write_zeros(task: &Task, path: &str, bytes: u64) -> Outcome<()> {
    let file = task.create(path)?;
    let piece = vec![7; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(piece.len() as u64);
        file.write_all(&piece[..now as usize])?;
        left -= now;
    }
    Ok(())
}

/// Returns the duration of a call in microseconds, and its result.
pub(super) fn timed<T>(call: impl FnOnce() -> T) -> (f64, T) {
    let begun = Instant::now();
    let result = call();
    (begun.elapsed().as_secs_f64() * 1e6, result)
}

/// A run of all measurements on a pool.
pub(super) struct Steps<'r> {
    pub(super) pool: &'r Pool,
    pub(super) plan: &'r Branching,
    pub(super) interrupt: &'r Interrupt,
}

impl Steps<'_> {
    /// Takes all measurements.
    pub(super) fn all(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        self.fork_closed(note)?;
        for dirty in [0, 1 << 20, 64 << 20] {
            self.fork_open(dirty, note)?;
        }
        self.fork_and_open(note)?;
        self.pause(note)?;
        self.checkpoints(note)?;
        self.roll_backs(note)?;
        self.change_one_block(note)?;
        self.change_many(note)?;
        self.deepen(note)?;
        self.open_many(note)
    }

    pub(super) fn is_over(&self) -> Outcome<()> {
        let over = self.interrupt.is_raised();
        if over { Err(Fault::wrong("the run was interrupted")) } else { Ok(()) }
    }

    pub(super) fn used(&self) -> u64 {
        let usage = self.pool.usage();
        usage.size - usage.free
    }

    /// Returns how many times a measurement that takes milliseconds is repeated.
    pub(super) fn some(&self) -> u64 {
        self.plan.forks.div_ceil(10).clamp(1, 100)
    }

    fn first_call(&self, volume: &Volume) -> Outcome<()> {
        let len = volume.task().metadata(path(0))?.len();
        expect_equal("the size of a file of the parent", len, 1)
    }

    /// Forks the parent while nobody has it open, and takes the space of the branches.
    fn fork_closed(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let (before, mut times) = (self.used(), Vec::new());
        for n in 0..self.plan.forks {
            self.is_over()?;
            let (time, forked) = timed(|| self.pool.fork("main", &format!("closed{n}")));
            forked.map_err(said)?;
            times.push(time);
        }
        note(BranchRow::of("fork of a closed parent", "us", &times));
        let space = self.used().saturating_sub(before) as f64 / self.plan.forks as f64;
        note(BranchRow::of("space of a branch that nobody opened", "B", &[space]));
        Ok(())
    }

    /// Forks the parent while it is open and has dirty data.
    fn fork_open(&self, dirty: u64, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let parent = self.pool.open("main").map_err(said)?;
        let (task, mut times) = (parent.task(), Vec::new());
        for n in 0..self.some() {
            self.is_over()?;
            write_zeros(&task, "/dirty", dirty)?;
            let name = format!("open{n}");
            let (time, forked) = timed(|| self.pool.fork("main", &name));
            forked.map_err(said)?;
            times.push(time);
            // All of them together would not fit.
            self.pool.delete(&name).map_err(said)?;
            self.pool.reap().map_err(said)?;
        }
        note(BranchRow::of(
            format!("fork of an open parent, {} MiB dirty", dirty >> 20),
            "us",
            &times,
        ));
        drop(task);
        parent.close().map_err(said)
    }

    fn fork_and_open(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let (mut times, mut again) = (Vec::new(), Vec::new());
        for n in 0..self.some() {
            self.is_over()?;
            let name = format!("call{n}");
            let (time, volume) = timed(|| -> Outcome<Volume> {
                self.pool.fork("main", &name).map_err(said)?;
                let volume = self.pool.open(&name).map_err(said)?;
                self.first_call(&volume)?;
                Ok(volume)
            });
            times.push(time);
            volume?.close().map_err(said)?;
            let (time, volume) = timed(|| -> Outcome<Volume> {
                let volume = self.pool.open(&name).map_err(said)?;
                self.first_call(&volume)?;
                Ok(volume)
            });
            again.push(time);
            volume?.close().map_err(said)?;
        }
        note(BranchRow::of("fork, open and first call", "us", &times));
        note(BranchRow::of("later open and first call", "us", &again));
        Ok(())
    }

    /// Forks the parent while threads write into it, and takes the longest call of each during each
    /// fork, and in the 20 ms before: there are more threads than most machines have CPUs.
    fn pause(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let parent = self.pool.open("main").map_err(said)?;
        let over = AtomicBool::new(false);
        let longest: [AtomicU64; WRITERS] = Default::default();
        let longest_now = || longest.iter().map(|one| one.swap(0, Ordering::Relaxed) as f64 / 1e3);
        let (mut forks, mut pauses, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        std::thread::scope(|scope| -> Outcome<()> {
            let writer = |n: usize| {
                let (task, longest, over) = (parent.task(), &longest[n], &over);
                scope.spawn(move || write_until(&task, n, longest, over))
            };
            let writers: Vec<_> = (0..WRITERS).map(writer).collect();
            for n in 0..self.some().min(30) {
                longest_now().for_each(drop);
                std::thread::sleep(Duration::from_millis(20));
                alone.extend(longest_now());
                let (time, forked) = timed(|| self.pool.fork("main", &format!("busy{n}")));
                // The call that a writer waits in ends after the fork.
                std::thread::sleep(Duration::from_millis(2));
                forks.push((time, forked.is_ok()));
                pauses.extend(longest_now());
            }
            over.store(true, Ordering::Relaxed);
            let ended = writers.into_iter().map(|writer| {
                writer.join().unwrap_or_else(|_| Err(Fault::wrong("a writer has panicked")))
            });
            ended.collect::<Vec<_>>().into_iter().collect()
        })?;
        self.is_over()?;
        if forks.iter().any(|(_, done)| !done) {
            return Err(Fault::wrong("a fork beside writers failed"));
        }
        let forks: Vec<f64> = forks.into_iter().map(|(time, _)| time).collect();
        for (beside, times) in [("beside a fork", &pauses), ("in 20 ms without", &alone)] {
            let name = format!("longest write of each of {WRITERS} {beside}");
            note(BranchRow::of(name, "us", times));
        }
        note(BranchRow::of(format!("fork beside {WRITERS} writers"), "us", &forks));
        parent.close().map_err(said)
    }

    /// Changes a block of a large file, in an open branch and with its opening and closing.
    fn change_one_block(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let (mut whole, mut open) = (Vec::new(), Vec::new());
        for n in 0..self.some().min(20) {
            self.is_over()?;
            let name = format!("block{n}");
            self.pool.fork("main", &name).map_err(said)?;
            let before = self.used();
            let volume = self.pool.open(&name).map_err(said)?;
            let file = volume.task().open_with("/large", &OpenOptions::new().write(true))?;
            for (round, offset) in [(0, LARGE / 2), (1, LARGE / 4)] {
                let start = self.used();
                let written = file.write_at(&[n as u8; 4096], offset)?;
                expect_equal("the bytes written", written as u64, 4096)?;
                file.sync_all()?;
                if round == 1 {
                    open.push(self.used().saturating_sub(start) as f64);
                }
            }
            drop(file);
            volume.close().map_err(said)?;
            whole.push(self.used().saturating_sub(before) as f64);
        }
        note(BranchRow::of("space of a synced change of 4 KiB in 50 MiB", "B", &open));
        note(BranchRow::of("space of two, with open and close", "B", &whole));
        Ok(())
    }

    /// Looks files up in the parent and in a deep branch, cold and warm.
    fn deepen(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let mut parent = "main".to_owned();
        for n in 0..self.plan.depth {
            self.is_over()?;
            let name = format!("deep{n}");
            self.pool.fork(&parent, &name).map_err(said)?;
            let volume = self.pool.open(&name).map_err(said)?;
            volume.task().write(format!("/of{n}"), "1")?;
            volume.close().map_err(said)?;
            parent = name;
        }
        let shallow = "shallow";
        self.pool.fork("main", shallow).map_err(said)?;
        let depth = format!("depth {}", self.plan.depth + 1);
        let (mut cold, mut warm) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
        for _ in 0..self.some().min(11) {
            for (i, name) in [shallow, &parent].into_iter().enumerate() {
                let volume = self.pool.open(name).map_err(said)?;
                cold[i].push(self.look_up(&volume)?);
                self.look_up(&volume)?;
                warm[i].push(self.look_up(&volume)?);
                volume.close().map_err(said)?;
            }
        }
        for (kind, times) in [("cold", &cold), ("warm", &warm)] {
            note(BranchRow::of(format!("{kind} lookup at depth 2"), "us", &times[0]));
            note(BranchRow::of(format!("{kind} lookup at {depth}"), "us", &times[1]));
        }
        Ok(())
    }

    /// Returns the time of the lookup of a file, over up to 10,000 files.
    fn look_up(&self, volume: &Volume) -> Outcome<f64> {
        let (task, files) = (volume.task(), self.plan.files.min(10_000));
        let (time, looked) =
            timed(|| (0..files).try_for_each(|n| task.metadata(path(n)).map(drop)));
        looked?;
        Ok(time / files as f64)
    }
}

/// Writes into a file of the writer's own until told to end, and notes the longest call in
/// nanoseconds.
pub(super) fn write_until(
    task: &Task,
    n: usize,
    longest: &AtomicU64,
    over: &AtomicBool,
) -> Outcome<()> {
    let file = task.create(format!("/writer{n}"))?;
    let mut offset = 0;
    while !over.load(Ordering::Relaxed) {
        let (time, written) = timed(|| file.write_at(&[7; 4096], offset));
        written?;
        longest.fetch_max((time * 1e3) as u64, Ordering::Relaxed);
        offset = (offset + 4096) % (4 << 20);
    }
    Ok(())
}
