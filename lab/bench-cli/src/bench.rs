//! The experiments of published work on scaling the kernel's file systems.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use vfscale_bench::results::CaseName;

use vfscale_bench::{
    Pace, Plan, PublishedRun, Report, TMPFS, TargetSpec, Watch, html, markdown, run_published,
    table, workloads,
};

use crate::args::{PublishedArgs, WorkloadArgs};
use crate::count;
use crate::error::Failure;
use crate::output::{Form, INTERRUPTED, interrupted_by_signals, make_dir, output, print};

/// Returns the command that starts a worker process.
fn worker_command() -> Vec<OsString> {
    ["/proc/self/exe", "worker"].map(OsString::from).to_vec()
}

impl WorkloadArgs {
    fn plan(&self) -> Result<Plan, Failure> {
        // Both --target and --before take several values, and so also workloads after them.
        let is_workload = |word: &&String| workloads::find_all(word).is_ok();
        let strays = self.targets.iter().chain(&self.before).filter(is_workload);
        let all = self.workloads.iter().chain(strays).map(|name| workloads::find_all(name));
        let targets = self.targets.iter().filter(|word| !is_workload(word));
        let mut targets =
            targets.map(|text| TargetSpec::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if targets.is_empty() {
            targets.push(TargetSpec::Memory);
        }
        let all = all.collect::<Result<Vec<_>, _>>()?.concat();
        let mut plan = Plan::new(all, targets);
        plan.threads = self.threads.clone();
        plan.processes = self.processes;
        plan.worker_command = worker_command();
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
        plan.mixes = self.mixes.clone();
        plan.files = self.files;
        plan.database = self.database << 20;
        plan.io_size = (self.io_size as usize) << 10;
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

/// Runs workloads, or lists them.
pub(crate) fn workloads(run: &WorkloadArgs) -> Result<ExitCode, Failure> {
    if run.list || run.list_patches {
        return list(run);
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

/// Runs `vfscale-bench published`.
pub(crate) fn published(args: &PublishedArgs) -> Result<ExitCode, Failure> {
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
    let all = PublishedRun { targets, quick: args.quick, worker_command: worker_command() };
    let minutes = all.estimate()?.as_secs_f64() / 60.0;
    eprintln!("about {minutes:.0} minutes, on CPUs that have nothing else to do");
    let interrupt = interrupted_by_signals()?;
    let mut report = run_published(&all, &interrupt, &mut Progress::new())?;
    if all.targets.iter().any(|target| matches!(target, TargetSpec::Volume(_))) {
        // Without counts the report has everything else.
        match count::shared_lines(&|| interrupt.is_raised()) {
            Ok(counts) => report.counts = counts,
            Err(e) => eprintln!("no shared lines were counted: {e}"),
        }
    }
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
        .map_err(|e| Failure::System("worker", e))?;
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
