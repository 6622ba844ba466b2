//! Creation and removal of many empty files, once.
//!
//! Short rounds can't show whether the rate and the memory remain constant while a volume fills.
//! Here each worker creates its share of the files, with a fixed number in each directory. All
//! files are then made durable and counted. Then they are removed in the same order, and the
//! removal is made durable and counted as well. Throughout the run another thread samples the
//! progress of the workers, the memory of the process, and the space that the image takes.
//!
//! # Invariants
//!
//! * The image was made for the run. It is removed at the end, unless the caller retains it.
//! * The time of a phase ends when its changes are durable.
//! * Memory is that of the whole process, as the kernel reports it. Images are read and written
//!   with direct I/O if possible, so the kernel caches nothing of them.
//!
//! # Ownership
//!
//! The run owns the volume, and each worker a task of its tree. Workers only count, each on a cache
//! line of its own; there are no locks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vfscale::posix::{At, OFlags};
use vfscale::{Mode, Scaling, Task, Volume};

use crate::base::error::{Error, Fault, Outcome, Result};
use crate::base::interrupt::Interrupt;
use crate::base::machine::{self, Machine};
use crate::report::table::{Columns, number};
use crate::workloads::expect::expect_equal;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The image, which must not exist yet.
    pub image: PathBuf,
    /// Size of the image in bytes; it is sparse.
    pub size: u64,
    /// Whether the image remains after the run.
    pub keep: bool,
    /// Number of files of all workers together.
    pub files: u64,
    /// Number of files in a directory.
    pub per_directory: u64,
    /// Number of workers.
    pub workers: u64,
    /// Disabled patches; `all` for all of them.
    pub before: Vec<String>,
    /// Size of the log in bytes; the default follows the size of the image.
    pub log_size: Option<u64>,
    /// Size of the volume's caches in bytes.
    pub cache: u64,
    /// Maximum memory of the process in bytes; with more the run fails.
    pub memory_max: Option<u64>,
    /// Interval between samples.
    pub every: Duration,
}

impl Fill {
    /// Checks that the fields are valid.
    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::Usage(what.to_owned()));
        match self {
            Self { files: 0, .. } => wrong("--files 0: must be at least 1"),
            Self { per_directory: 0, .. } => wrong("--per-directory 0: must be at least 1"),
            Self { workers: 0, .. } => wrong("--threads 0: must be at least 1"),
            Self { image, .. } if image.exists() => Err(Error::Usage(format!(
                "{} exists already; name a new image, which is made for the run",
                image.display()
            ))),
            _ => self.scaling().map(drop),
        }
    }

    /// Returns the scaling settings without the disabled patches.
    fn scaling(&self) -> Result<Scaling> {
        if self.before == ["all"] {
            return Ok(Scaling::kernel_2_6());
        }
        let all = Scaling::default();
        let scaling = self.before.iter().try_fold(all, |scaling, name| scaling.and_before(name));
        scaling.map_err(|e| Error::Usage(format!("--before: {e}; `all` disables all of them")))
    }

    /// Returns the number of files of a worker.
    fn share(&self, worker: u64) -> u64 {
        self.files / self.workers + u64::from(worker < self.files % self.workers)
    }

    /// Returns the number of directories, including the workers' own.
    fn directories(&self) -> u64 {
        let of = |worker| 1 + self.share(worker).div_ceil(self.per_directory);
        (0..self.workers).map(of).sum()
    }
}

/// A phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Files are created.
    Create,
    /// Files are removed.
    Remove,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Self::Create { "create" } else { "remove" })
    }
}

/// A sample of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FillSample {
    /// The phase.
    pub phase: Phase,
    /// Seconds since the start of the phase.
    pub seconds: f64,
    /// Files completed in this phase.
    pub done: u64,
    /// Files completed per second since the previous sample.
    pub rate: f64,
    /// Resident memory of the process in bytes.
    pub resident: u64,
    /// Disk space of the image in bytes.
    pub image: u64,
}

impl fmt::Display for FillSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { phase, seconds, done, rate, resident, image } = self;
        write!(
            f,
            "{phase} {seconds:>7.1} s {:>12} files {:>9}/s {:>6} MiB of memory {:>7} MiB of image",
            number(*done as f64),
            number(*rate),
            resident >> 20,
            image >> 20
        )
    }
}

/// Totals of a phase.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Total {
    /// The phase.
    pub phase: Phase,
    /// Duration in seconds, until all changes were durable.
    pub seconds: f64,
    /// Duration of the final sync in seconds, a part of `seconds`.
    pub sync_seconds: f64,
    /// Files per second over the whole phase.
    pub rate: f64,
    /// Files per second in the first tenth.
    pub rate_first: f64,
    /// Files per second in the last tenth, without the final sync.
    pub rate_last: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FillReport {
    /// The schema, `vfscale-fill/1`.
    pub schema: String,
    /// The commit that the program was built from, or its version.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
    /// The kernel's name and version.
    pub kernel: String,
    /// Number of files.
    pub files: u64,
    /// Number of files in a directory.
    pub per_directory: u64,
    /// Number of workers.
    pub workers: u64,
    /// Disabled patches.
    #[serde(default)]
    pub before: Vec<String>,
    /// Size of the volume's caches in bytes.
    pub cache: u64,
    /// Maximum resident memory of the process in bytes.
    pub resident_max: u64,
    /// All samples, in their order.
    pub samples: Vec<FillSample>,
    /// Totals of the phases.
    pub totals: Vec<Total>,
}

impl FillReport {
    /// Renders the report as JSON.
    pub fn to_json(&self) -> String {
        // Numbers and strings only, which JSON can always represent.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Renders the report as a table for a terminal.
    pub fn table(&self) -> String {
        let head = ["", "files", "seconds", "sync", "files/s", "first tenth", "last tenth"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for total in &self.totals {
            let figures = [
                self.files as f64,
                total.seconds,
                total.sync_seconds,
                total.rate,
                total.rate_first,
                total.rate_last,
            ];
            let mut line = vec![total.phase.to_string()];
            line.extend(figures.map(number));
            lines.push(line);
        }
        let memory = self.resident_max >> 20;
        let mut table = Columns(lines).render() + &format!("most memory: {memory} MiB\n");
        if !self.before.is_empty() {
            table += &format!("without {}\n", self.before.join(", "));
        }
        table
    }
}

/// Makes an image, fills it and empties it again. Calls `watch` with each sample.
///
/// # Errors
/// Returns an error if the image exists or can't be made, if a call fails or has the wrong effect,
/// if the process takes more than its maximum memory, and if the run is interrupted.
pub fn fill(
    plan: &Fill,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(&FillSample),
) -> Result<FillReport> {
    plan.check()?;
    let volume = vfscale::volume(&plan.image).create(plan.size).cache_size(plan.cache);
    let volume = plan.log_size.into_iter().fold(volume, vfscale::VolumeBuilder::log_size);
    let volume = volume.scaling(plan.scaling()?).open().map_err(Error::Volume)?;
    let mut report = FillReport {
        schema: "vfscale-fill/1".to_owned(),
        commit: machine::commit(),
        machine: Machine::this(),
        kernel: machine::kernel(),
        files: plan.files,
        per_directory: plan.per_directory,
        workers: plan.workers,
        before: plan.before.clone(),
        cache: plan.cache,
        resident_max: 0,
        samples: Vec::new(),
        totals: Vec::new(),
    };
    let done = FillRun { plan, volume: &volume, interrupt, stopped: AtomicBool::new(false) }
        .both(&mut report, watch)
        .map_err(|fault| Error::Workload {
            workload: "fill",
            target: plan.image.display().to_string(),
            reason: fault.to_string(),
        });
    let closed = volume.close().map_err(|error| Error::Volume(error.into()));
    if !plan.keep {
        std::fs::remove_file(&plan.image).map_err(|e| Error::System("unlink", e))?;
    }
    // The kernel counts the maximum (`VmHWM`) less exactly than the current value.
    let seen = report.samples.iter().map(|sample| sample.resident);
    report.resident_max = seen.fold(memory().most, u64::max);
    done.and(closed).map(|()| report)
}

/// A counter on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

struct FillRun<'r> {
    plan: &'r Fill,
    volume: &'r Volume,
    interrupt: &'r Interrupt,
    /// Whether a worker has failed, which stops the others.
    stopped: AtomicBool,
}

impl FillRun<'_> {
    fn both(&self, report: &mut FillReport, watch: &mut dyn FnMut(&FillSample)) -> Outcome<()> {
        let before = self.inodes()?;
        for worker in 0..self.plan.workers {
            self.volume.task().posix().mkdirat(At::Cwd, worker_dir(worker), mode())?;
        }
        self.phase(Phase::Create, report, watch)?;
        self.expect_inodes(before + self.plan.files + self.plan.directories())?;
        self.phase(Phase::Remove, report, watch)?;
        for worker in 0..self.plan.workers {
            self.volume.task().remove_dir(worker_dir(worker))?;
        }
        self.expect_inodes(before)
    }

    /// Runs the workers of a phase, and samples them.
    fn phase(
        &self,
        phase: Phase,
        report: &mut FillReport,
        watch: &mut dyn FnMut(&FillSample),
    ) -> Outcome<()> {
        let counts: Vec<Count> = (0..self.plan.workers).map(|_| Count::default()).collect();
        let first = report.samples.len();
        let begun = Instant::now();
        let look = |last: Option<&FillSample>| {
            let seconds = begun.elapsed().as_secs_f64();
            let done = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum::<u64>();
            let (at, before) = last.map_or((0.0, 0), |sample| (sample.seconds, sample.done));
            let rate = (done - before) as f64 / (seconds - at).max(1e-9);
            let image = image_bytes(&self.plan.image);
            FillSample { phase, seconds, done, rate, resident: memory().now, image }
        };
        std::thread::scope(|scope| {
            let work = |(count, worker)| scope.spawn(move || self.worker(phase, worker, count));
            let workers: Vec<_> = counts.iter().zip(0..).map(work).collect();
            let mut next = begun + self.plan.every;
            while workers.iter().any(|worker| !worker.is_finished()) {
                std::thread::sleep(Duration::from_millis(5));
                if Instant::now() >= next {
                    next += self.plan.every;
                    let sample = look(report.samples.get(first..).and_then(<[_]>::last));
                    watch(&sample);
                    report.samples.push(sample);
                    self.stop_if_too_large();
                }
            }
            let ended = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|_| Err(Fault::wrong("a worker has panicked")))
            });
            // All threads are joined; the first error counts.
            ended.collect::<Vec<_>>().into_iter().collect::<Outcome<()>>()
        })?;
        if self.is_over() {
            return Err(self.why());
        }
        let sample = look(report.samples.get(first..).and_then(<[_]>::last));
        report.samples.push(sample);
        let synced = Instant::now();
        self.volume.sync().map_err(|error| Fault::wrong(error.to_string()))?;
        let sync_seconds = synced.elapsed().as_secs_f64();
        let seconds = begun.elapsed().as_secs_f64();
        let samples = &report.samples[first..];
        let (rate_first, rate_last) = tenths(samples, self.plan.files);
        report.totals.push(Total {
            phase,
            seconds,
            sync_seconds,
            rate: self.plan.files as f64 / seconds,
            rate_first,
            rate_last,
        });
        Ok(())
    }

    /// Runs one worker, and stops the others if it fails.
    fn worker(&self, phase: Phase, worker: u64, count: &Count) -> Outcome<()> {
        let task = self.volume.task();
        let outcome = self.share(&task, phase, worker, count);
        if outcome.is_err() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn share(&self, task: &Task, phase: Phase, worker: u64, count: &Count) -> Outcome<()> {
        let (files, per_directory) = (self.plan.share(worker), self.plan.per_directory);
        for number in 0..files.div_ceil(per_directory) {
            let dir = format!("{}/d{number}", worker_dir(worker));
            if phase == Phase::Create {
                task.posix().mkdirat(At::Cwd, &dir, mode())?;
            }
            task.posix().chdir(&dir)?;
            for file in number * per_directory..files.min((number + 1) * per_directory) {
                if self.is_over() {
                    return Ok(());
                }
                let name = format!("f{file}");
                match phase {
                    Phase::Create => {
                        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                        drop(task.posix().open(name, flags, Mode::from(0o644))?);
                    }
                    Phase::Remove => task.remove_file(name)?,
                }
                count.0.fetch_add(1, Ordering::Relaxed);
            }
            task.posix().chdir("/")?;
            if phase == Phase::Remove {
                // Fails if a name is left.
                task.remove_dir(&dir)?;
            }
        }
        Ok(())
    }

    fn stop_if_too_large(&self) {
        if self.plan.memory_max.is_some_and(|most| memory().most > most) {
            self.stopped.store(true, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.interrupt.is_raised()
    }

    /// Returns the reason why the run ended early although no worker has failed.
    fn why(&self) -> Fault {
        if self.interrupt.is_raised() {
            return Fault::wrong("the run was interrupted");
        }
        Fault::wrong(format!("the process has taken {} MiB of memory", memory().most >> 20))
    }

    /// Returns the number of inodes in use.
    fn inodes(&self) -> Outcome<u64> {
        let figures = self.volume.task().posix().statfs(At::Cwd, "/")?;
        Ok(figures.files - figures.files_free)
    }

    /// Waits until `due` inodes are in use: inodes without links are freed in the background.
    fn expect_inodes(&self, due: u64) -> Outcome<()> {
        let end = Instant::now() + Duration::from_secs(600);
        while self.inodes()? > due && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        expect_equal("the number of inodes in use", self.inodes()?, due)
    }
}

fn worker_dir(worker: u64) -> String {
    format!("/w{worker}")
}

fn mode() -> Mode {
    Mode::from(0o755)
}

/// Returns the rates of the first and of the last tenth of `files`, from a phase's samples.
fn tenths(samples: &[FillSample], files: u64) -> (f64, f64) {
    let start = FillSample { seconds: 0.0, done: 0, ..samples[0] };
    let all: Vec<_> = [start].iter().chain(samples).copied().collect();
    let rate = |from: &FillSample, to: &FillSample| {
        (to.done - from.done) as f64 / (to.seconds - from.seconds).max(1e-9)
    };
    let last = &all[all.len() - 1];
    let first = all.iter().find(|sample| sample.done * 10 >= files).unwrap_or(last);
    let before = all.iter().rev().find(|sample| sample.done * 10 <= files * 9).unwrap_or(&all[0]);
    (rate(&all[0], first), rate(before, last))
}

/// Returns the disk space of a file in bytes.
fn image_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or(0, |meta| meta.blocks() * 512)
}

/// Resident memory of this process in bytes: current and maximum.
struct ProcessMemory {
    now: u64,
    most: u64,
}

fn memory() -> ProcessMemory {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let bytes = |name: &str| field(name).unwrap_or(0) << 10;
    ProcessMemory { now: bytes("VmRSS:"), most: bytes("VmHWM:") }
}

#[cfg(test)]
mod tests;
