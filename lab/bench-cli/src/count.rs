//! Counts of the cache lines that two CPUs share, for the report of the published experiments.
//!
//! A process can record only if it has made no file system before, and it then hashes names in
//! another way. So a process of its own records, and writes a line of JSON for each case.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use vfscale_bench::results::SharedLines;

use crate::error::Failure;

/// The command of the process that records.
pub(crate) const COMMAND: &str = "count";

/// Starts a process that records the cases, and returns their shared lines; none on systems where
/// calls can't be recorded. Ends early, with those until then, if `is_over` says so. Blocks until
/// the process has ended.
///
/// # Errors
/// Returns an error if the process can't be started, or fails; it has then said why on standard
/// error.
pub(crate) fn shared_lines(is_over: &dyn Fn() -> bool) -> io::Result<Vec<SharedLines>> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(COMMAND).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut counts = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            if is_over() {
                // This fails if the process has already ended.
                let _ = child.kill();
                break;
            }
            counts.push(serde_json::from_str(&line?)?);
        }
    }
    let status = child.wait()?;
    if status.success() || is_over() {
        return Ok(counts);
    }
    Err(io::Error::other(format!("the process that counts ended with {status}")))
}

/// Records the cases, and writes a line for each to standard output.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) fn serve() -> Result<ExitCode, Failure> {
    Ok(ExitCode::SUCCESS)
}

/// Records the cases, and writes a line for each to standard output.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn serve() -> Result<ExitCode, Failure> {
    for (name, before) in vfscale_bench::cases_to_count() {
        let counted = on_x86_64::of_case(name, before).map_err(|e| Failure::System("count", e))?;
        let line = serde_json::to_string(&counted).unwrap_or_default();
        crate::output::print(&(line + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod on_x86_64 {
    use vfscale::Scaling;
    use vfscale_commute::predict::{recorded, workload};
    use vfscale_commute::runner::{Options, Target};

    use super::*;

    /// Number of CPUs that the structures are made for.
    const CPUS: usize = 4;
    /// Number of recordings of a case, which may differ.
    const RECORDINGS: usize = 3;

    /// Records a case, and returns its shared lines.
    pub(super) fn of_case(name: &str, before: &[&str]) -> io::Result<SharedLines> {
        let unknown = || io::Error::other(format!("{name} can't be recorded"));
        let workload = workload::find(name).ok_or_else(unknown)?;
        let all = Scaling::with_slots(CPUS);
        let scaling = before.iter().try_fold(all, |scaling, name| scaling.and_before(name));
        let scaling = scaling.map_err(io::Error::other)?;
        let options = Options { scaling, target: Target::Volume, ..Options::default() };
        let mut counted = SharedLines {
            workload: name.to_owned(),
            target: "volume".to_owned(),
            before: before.iter().map(ToString::to_string).collect(),
            operations: workload.operations.into(),
            lines: u64::MAX,
            touches_min: u64::MAX,
            touches_max: 0,
        };
        for _ in 0..RECORDINGS {
            let program = recorded::program(&workload, options)?;
            let touches = program.shared_accesses() as u64;
            counted.lines = counted.lines.min(program.shared_lines() as u64);
            counted.touches_min = counted.touches_min.min(touches);
            counted.touches_max = counted.touches_max.max(touches);
        }
        Ok(counted)
    }
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests;
