//! `vfscale-bench commute`: calls that commute, and the cache lines on which they conflict.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::error::Failure;

#[derive(Debug, Args)]
pub(crate) struct CommuteArgs {
    /// Run at most N cases, drawn evenly from all pairs of calls (default: all)
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<usize>,

    /// Seed of the draw of cases
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Disable this patch; `vfscale-bench --list-patches` describes them, `all` is all of them.
    /// Several are disabled together
    #[arg(long, value_name = "PATCH", num_args = 1..)]
    pub(crate) before: Vec<String>,

    /// Do not promote shared objects to sharded counts first, as in a program that has just begun
    #[arg(long)]
    pub(crate) cold: bool,

    /// The target: `memory`; `volume`, for each case a volume of its own on a device in memory,
    /// with fsync among the calls; or `branches`, two branches of such a volume, one for each call
    #[arg(long, value_name = "TARGET", default_value = "memory", value_parser = ["memory", "volume", "branches"])]
    pub(crate) target: String,

    /// Write the results as JSON to FILE, or to standard output with `-` (the table is then printed
    /// to standard error)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write commute.html, commute.svg and commute.json to this directory, which is made if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Compare with the cases that FILE names, one in a line, and fail if others conflict, or if
    /// one of them does not conflict or was not run
    #[arg(long, value_name = "FILE")]
    pub(crate) exceptions: Option<PathBuf>,

    /// Write the names of the cases that conflict to FILE, for --exceptions
    #[arg(long, value_name = "FILE")]
    pub(crate) write_exceptions: Option<PathBuf>,
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) fn commute(_: &CommuteArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Usage("commute: calls can be recorded on x86-64 Linux only".into()))
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use on_x86_64::commute;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod on_x86_64 {
    use indicatif::{ProgressBar, ProgressStyle};
    use vfscale::Scaling;
    use vfscale_commute::case::Case;
    use vfscale_commute::exceptions::Exceptions;
    use vfscale_commute::report::{self, Plan, Report};
    use vfscale_commute::runner::{self, Target};
    use vfscale_commute::{generate, page};

    use super::*;
    use crate::output::{INTERRUPTED, interrupted_by_signals, make_dir, output};

    impl CommuteArgs {
        fn plan(&self) -> Result<Plan, Failure> {
            let target = self.target();
            // Each branch is opened for one CPU, since there may be many.
            let scaling = match target {
                Target::Branches => Scaling::with_slots(1),
                Target::Memory | Target::Volume => Scaling::default(),
            };
            let scaling = match self.before.as_slice() {
                [all] if all == "all" => Ok(Scaling::kernel_2_6()),
                names => names.iter().try_fold(scaling, |s, name| s.and_before(name)),
            };
            let scaling = scaling.map_err(|e| Failure::Usage(e.to_string()))?;
            let options = runner::Options { scaling, promoted: !self.cold, target };
            Ok(Plan { before: self.before.clone(), seed: self.seed, options })
        }

        fn target(&self) -> Target {
            match self.target.as_str() {
                "volume" => Target::Volume,
                "branches" => Target::Branches,
                _ => Target::Memory,
            }
        }

        /// Makes the cases of the target.
        fn cases(&self) -> Vec<Case> {
            let (seed, volume) = (self.seed, self.target() == Target::Volume);
            let made = generate::Options { seed, volume, ..generate::Options::default() };
            match (self.target(), self.sample) {
                (Target::Branches, Some(count)) => generate::branches::sample(count),
                (Target::Branches, None) => generate::branches::all(),
                (_, Some(count)) => generate::sample(count, &made),
                (_, None) => generate::all(&made),
            }
        }

        /// Reads the cases that may conflict, if a file of them is given.
        fn known(&self) -> Result<Option<Exceptions>, Failure> {
            let read = |file: &PathBuf| {
                let text = std::fs::read_to_string(file);
                text.map(|text| Exceptions::parse(&text))
                    .map_err(|e| Failure::Read(file.clone(), e))
            };
            self.exceptions.as_ref().map(read).transpose()
        }
    }

    pub(crate) fn commute(args: &CommuteArgs) -> Result<ExitCode, Failure> {
        let plan = args.plan()?;
        let known = args.known()?;
        if let Some(dir) = &args.out {
            make_dir(dir)?;
        }
        let interrupt = interrupted_by_signals()?;
        let cases = args.cases();
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} cases  {eta} left");
        let bar = ProgressBar::new(cases.len() as u64);
        let bar = style.map_or(ProgressBar::hidden(), |style| bar.with_style(style));
        let report = report::run(&cases, &plan, |done| {
            bar.set_position(done as u64);
            !interrupt.is_raised()
        });
        bar.finish_and_clear();
        let report = report.map_err(|e| Failure::System("threads that record calls", e))?;
        output(&[(args.json.as_deref(), &|| report.to_json())], &report.render())?;
        if let Some(dir) = &args.out {
            page::write_all(&report, dir).map_err(|e| Failure::Write(dir.clone(), e))?;
            eprintln!("written: {}", dir.join("commute.html").display());
        }
        if interrupt.is_raised() {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if let Some(file) = &args.write_exceptions {
            let text = Exceptions::of(&report).to_string();
            std::fs::write(file, text).map_err(|e| Failure::Write(file.clone(), e))?;
        }
        let as_known = known.is_none_or(|known| is_as_known(&known, &report, &cases));
        let complete = report.failed.is_empty();
        Ok(if complete && as_known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns whether exactly the known cases conflict, and prints the differences.
    fn is_as_known(known: &Exceptions, report: &Report, cases: &[Case]) -> bool {
        let differences = known.differences(report, cases);
        eprint!("{differences}");
        eprintln!(
            "{} known exceptions; {} more, {} free now, {} not run",
            known.len(),
            differences.new.len(),
            differences.mended.len(),
            differences.missing.len()
        );
        differences.is_empty()
    }
}
