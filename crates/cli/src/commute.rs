//! `vfscale bench commute`: calls that commute, and the cache lines they conflict on.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::error::Failure;

/// So that what is recorded adds no conflicts of the allocator's; elsewhere it is the system's.
#[global_allocator]
static ALLOCATOR: vfscale_commute::arena::Arenas = vfscale_commute::arena::Arenas;

#[derive(Debug, Args)]
pub(crate) struct CommuteArgs {
    /// At most so many cases, spread over all pairs of calls (default: all there are)
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<usize>,

    /// What cases are drawn by
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Without this patch; `vfscale bench --list-patches` describes them, `all` is all of them. Several are
    /// taken back together
    #[arg(long, value_name = "PATCH", num_args = 1..)]
    pub(crate) before: Vec<String>,

    /// Before what several CPUs want has been spread over them, as when a program has just begun
    #[arg(long)]
    pub(crate) cold: bool,

    /// Where: `memory`, which is all there is
    #[arg(long, value_name = "TARGET", default_value = "memory", value_parser = ["memory"])]
    pub(crate) target: String,

    /// Write the results as JSON to FILE, or to standard output with `-` (the table then goes to standard
    /// error)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write commute.html, commute.svg and commute.json to this directory, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) fn commute(_: &CommuteArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Usage("bench commute: calls can be recorded on x86-64 Linux only".into()))
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use on_x86_64::commute;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod on_x86_64 {
    use indicatif::{ProgressBar, ProgressStyle};
    use vfscale::Scaling;
    use vfscale_commute::report::{self, Plan};
    use vfscale_commute::{generate, page, runner};

    use super::*;
    use crate::bench::{INTERRUPTED, interrupted_by_signals, make_dir, output};

    impl CommuteArgs {
        fn plan(&self) -> Result<Plan, Failure> {
            let scaling = match self.before.as_slice() {
                [all] if all == "all" => Ok(Scaling::kernel_2_6()),
                names => names.iter().try_fold(Scaling::default(), |s, name| s.and_before(name)),
            };
            let scaling = scaling.map_err(|e| Failure::Usage(e.to_string()))?;
            let options = runner::Options { scaling, promoted: !self.cold };
            Ok(Plan { before: self.before.clone(), seed: self.seed, options })
        }
    }

    pub(crate) fn commute(args: &CommuteArgs) -> Result<ExitCode, Failure> {
        let plan = args.plan()?;
        if let Some(dir) = &args.out {
            make_dir(dir)?;
        }
        let interrupt = interrupted_by_signals()?;
        let made = generate::Options { seed: args.seed, ..generate::Options::default() };
        let cases = match args.sample {
            Some(count) => generate::sample(count, &made),
            None => generate::all(&made),
        };
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} cases  {eta} left");
        let bar = ProgressBar::new(cases.len() as u64);
        let bar = style.map_or(ProgressBar::hidden(), |style| bar.with_style(style));
        let report = report::run(&cases, &plan, |done| {
            bar.set_position(done as u64);
            !interrupt.is_raised()
        });
        bar.finish_and_clear();
        let report = report.map_err(|e| Failure::System("threads that record calls", e))?;
        output(args.json.as_deref(), &report.render(), || report.to_json())?;
        if let Some(dir) = &args.out {
            page::write_all(&report, dir).map_err(|e| Failure::Write(dir.clone(), e))?;
            eprintln!("written: {}", dir.join("commute.html").display());
        }
        match (interrupt.is_raised(), report.failed.is_empty()) {
            (true, _) => Ok(ExitCode::from(INTERRUPTED)),
            (false, complete) => Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        }
    }
}
