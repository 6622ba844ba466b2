//! `vfscale bench`: the experiments of published work on scaling the kernel's file systems.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use vfscale_bench::plan::DISAGREEMENT_MAX;
use vfscale_bench::results::CaseName;

use vfscale_bench::{
    Pace, Plan, PublishedRun, Report, TMPFS, TargetSpec, Watch, html, markdown, run_published,
    table, workloads,
};

use crate::error::Failure;
use crate::output::{Form, INTERRUPTED, interrupted_by_signals, make_dir, output, print};

mod commute;
mod fill;

use commute::{CommuteArgs, commute};
use fill::{FillArgs, fill};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) set: Option<Set>,

    #[command(flatten)]
    pub(crate) run: WorkloadArgs,
}

/// Sets of experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Set {
    /// Run every published experiment, with and without its patches, and write a report with the
    /// published figures next to ours
    #[command(alias = "seeds")]
    Published(PublishedArgs),

    /// Count the cache lines on which calls that commute conflict
    ///
    /// Makes thousands of small cases of two calls whose order does not matter, records every load
    /// and store of both on two pretended CPUs, and prints for each two calls in how many cases
    /// neither writes a line that the other touches, and the owners of the other lines. Needs Linux
    /// on x86-64.
    ///
    /// Example: vfscale bench commute --sample 2000 --out report
    Commute(CommuteArgs),

    /// Create many empty files in a volume, and remove them, once: the rate over time, and the
    /// memory
    ///
    /// Makes the image for the run, prints a line for each sample, and a table at the end. Fails if
    /// the process takes more memory than --memory-max.
    ///
    /// Example: vfscale bench fill --files 2000000 --size 8G disk.vfs
    Fill(FillArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PublishedArgs {
    /// Short rounds and few files: for a preview, not for figures
    #[arg(long)]
    pub(crate) quick: bool,

    /// The directory to write report.html, report.md, results.json and plots/ to; made if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// The targets (default: `memory`; and at /dev/shm, if it is writable, the kernel's tmpfs to
    /// compare with, and a volume in an image there for the experiments on journals)
    #[arg(long = "target", value_name = "TARGET", num_args = 1..)]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// The workloads to run; --list describes them
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workloads: Vec<String>,

    /// The targets: `memory` or `volume:FILE` (the library in this process; an existing image, or
    /// one that is made for the run), or `path:DIR` (a directory of any mounted file system).
    /// Several are measured alternately; ratios are over the first. `memory` if none is named
    #[arg(long = "target", value_name = "TARGET", num_args = 1..)]
    pub(crate) targets: Vec<String>,

    /// Numbers of workers, such as 1,2,4; ratios are over the first
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<usize>,

    /// Use worker processes instead of threads
    #[arg(long)]
    pub(crate) processes: bool,

    /// Let workers run on any CPU, instead of each on one
    #[arg(long)]
    pub(crate) unpinned: bool,

    /// Also measure the library without this patch; --list-patches describes them, `all` is all of
    /// them. Several are disabled together
    #[arg(long, value_name = "PATCH", num_args = 1..)]
    pub(crate) before: Vec<String>,

    /// Pretend to the library that the machine has N CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cpus: Option<u16>,

    /// Rounds that count, at least 5
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) rounds: usize,

    /// How long a case works in a round
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200,
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(crate) slice: u64,

    /// How long a case works before anything counts
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub(crate) warm_up: u64,

    /// No verdict if rounds disagree by more than this (their range over their median)
    #[arg(long, value_name = "SHARE", default_value_t = DISAGREEMENT_MAX)]
    pub(crate) disagreement: f64,

    /// Also take the time of single operations
    #[arg(long)]
    pub(crate) latency: bool,

    /// As --latency, with this many operations begun per second at fixed times; a late one counts
    /// from when it should have begun
    #[arg(long, value_name = "OPS_PER_S")]
    pub(crate) rate: Option<f64>,

    /// Make one more round of each case in memory and on volumes, with lock statistics on: waiting
    /// and holding times of each lock class, in the columns of the kernel's lock_stat
    #[arg(long)]
    pub(crate) lockstat: bool,

    /// Numbers of users of aim-short, such as 10,100,1000
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,100")]
    pub(crate) users: Vec<usize>,

    /// Files that each worker makes in create-many and remove-many
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) files: u64,

    /// MiB of the database of slob
    #[arg(long, value_name = "MIB", default_value_t = 16,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) database: u64,

    /// A tree to copy for find-size, git-diff and readdir-stat (default: a generated one)
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: Option<PathBuf>,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) random_seed: u64,

    /// Write the results as JSON to FILE, or to standard output with `-` (the table is then printed
    /// to standard error)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the results as a Markdown document, as those in docs/results, to FILE, or to standard
    /// output with `-`
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// Write report.html, report.md, results.json and plots/ to this directory, which is made if
    /// missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Describe the workloads, and do nothing else
    #[arg(long)]
    pub(crate) list: bool,

    /// Describe the patches that can be disabled, and do nothing else
    #[arg(long)]
    pub(crate) list_patches: bool,
}

impl WorkloadArgs {
    fn plan(&self) -> Result<Plan, Failure> {
        // Both --target and --before take several values, and so also workloads after them.
        let is_workload = |word: &&String| workloads::find(word).is_ok();
        let strays = self.targets.iter().chain(&self.before).filter(is_workload);
        let all = self.workloads.iter().chain(strays).map(|name| workloads::find(name));
        let targets = self.targets.iter().filter(|word| !is_workload(word));
        let mut targets =
            targets.map(|text| TargetSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if targets.is_empty() {
            targets.push(TargetSpec::Memory);
        }
        let mut plan = Plan::new(all.collect::<Result<_, _>>()?, targets);
        plan.threads = self.threads.clone();
        plan.processes = self.processes;
        plan.worker_command =
            vec![OsString::from("/proc/self/exe"), OsString::from("bench-worker")];
        plan.pinned = !self.unpinned;
        let before: Vec<_> =
            self.before.iter().filter(|word| !is_workload(word)).cloned().collect();
        plan.before = if before.is_empty() { vec![] } else { vec![before] };
        plan.cpus = self.cpus.map(usize::from);
        plan.rounds = self.rounds;
        plan.slice = Duration::from_millis(self.slice);
        plan.warm_up = Duration::from_millis(self.warm_up);
        plan.disagreement_max = self.disagreement;
        plan.latency = match self.rate {
            Some(rate) if rate.is_nan() || rate <= 0.0 => {
                return Err(Failure::Usage(format!("--rate {rate}: must be above 0")));
            }
            Some(rate) => Some(Pace::Rate(rate)),
            None => self.latency.then_some(Pace::Closed),
        };
        plan.lockstat = self.lockstat;
        plan.users = self.users.clone();
        plan.files = self.files;
        plan.database = self.database << 20;
        plan.tree = self.tree.clone();
        plan.random_seed = self.random_seed;
        let is_stdout =
            |file: &Option<PathBuf>| file.as_ref().is_some_and(|f| f.as_os_str() == "-");
        if is_stdout(&self.json) && is_stdout(&self.markdown) {
            let text = "--json - and --markdown -: only one can be written to standard output";
            return Err(Failure::Usage(text.to_owned()));
        }
        plan.check()?;
        Ok(plan)
    }
}

pub(crate) fn bench(args: BenchArgs) -> Result<ExitCode, Failure> {
    let run = match args.set {
        Some(Set::Published(args)) => return published(&args),
        Some(Set::Commute(args)) => return commute(&args),
        Some(Set::Fill(args)) => return fill(&args),
        None => args.run,
    };
    if run.list || run.list_patches {
        return list(&run);
    }
    let plan = run.plan()?;
    if let Some(dir) = &run.out {
        make_dir(dir)?;
    }
    let interrupt = interrupted_by_signals()?;
    let report = vfscale_bench::run(&plan, &interrupt, &mut Progress::new())?;
    let forms: [Form<'_>; 2] = [
        (run.json.as_deref(), &|| report.to_json()),
        (run.markdown.as_deref(), &|| markdown::render(&report, false)),
    ];
    output(&forms, &table::render(&report))?;
    if let Some(dir) = &run.out {
        write_out(&report, false, dir)?;
    }
    Ok(status(&report))
}

/// Runs `vfscale bench published`.
fn published(args: &PublishedArgs) -> Result<ExitCode, Failure> {
    let targets = args.targets.iter().map(|text| TargetSpec::parse(text));
    let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
    if targets.is_empty() {
        targets.push(TargetSpec::Memory);
        let writable = rustix::fs::access(TMPFS, rustix::fs::Access::WRITE_OK).is_ok();
        if writable {
            targets.push(TargetSpec::Path(TMPFS.into()));
            let image = format!("vfscale-bench-{}.vfs", std::process::id());
            targets.push(TargetSpec::Volume(Path::new(TMPFS).join(image)));
        }
    }
    make_dir(&args.out)?;
    let all = PublishedRun { targets, quick: args.quick };
    let minutes = all.estimate()?.as_secs_f64() / 60.0;
    eprintln!("about {minutes:.0} minutes, on CPUs that have nothing else to do");
    let interrupt = interrupted_by_signals()?;
    let report = run_published(&all, &interrupt, &mut Progress::new())?;
    print(&table::render(&report))?;
    write_out(&report, true, &args.out)?;
    Ok(status(&report))
}

fn write_out(report: &Report, published: bool, dir: &Path) -> Result<(), Failure> {
    html::write_all(report, published, dir).map_err(Failure::Report)?;
    eprintln!("written: {}", dir.join("report.html").display());
    Ok(())
}

/// A progress bar on a terminal, hidden elsewhere.
struct Progress(ProgressBar);

/// Steps of the bar for a whole run.
const STEPS: u64 = 10_000;

impl Progress {
    fn new() -> Progress {
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3}%  {eta} left  {msg}");
        let bar = ProgressBar::new(STEPS);
        // Draws to standard error, and hides itself if that is no terminal.
        Progress(style.map_or(ProgressBar::hidden(), |style| bar.with_style(style)))
    }
}

impl Watch for Progress {
    fn at(&mut self, done: f64, next: &CaseName) {
        self.0.set_message(format!("{} on {}", next.workload, table::case_label(next)));
        self.0.set_position((done * STEPS as f64) as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Runs a worker process until its parent closes the pipe.
pub(crate) fn worker() -> Result<ExitCode, Failure> {
    vfscale_bench::serve_process(std::io::stdin().lock(), std::io::stdout().lock())
        .map_err(|e| Failure::System("bench-worker", e))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for each workload or patch.
fn list(args: &WorkloadArgs) -> Result<ExitCode, Failure> {
    let mut text = String::new();
    if args.list {
        for workload in workloads::ALL {
            let workloads::Description { name, source, unit, operation, .. } = workload;
            text += &format!("{name} ({source}, {unit}/s): {operation}\n");
        }
    }
    if args.list_patches {
        for patch in vfscale::PATCHES {
            text += &format!("{patch}\n");
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn status(report: &Report) -> ExitCode {
    if report.interrupted {
        return ExitCode::from(INTERRUPTED);
    }
    if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
