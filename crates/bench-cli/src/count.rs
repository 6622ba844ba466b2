//! Counts of the cache lines that two CPUs share, for the report of the published experiments.

use vfscale_bench::results::SharedLines;

/// Records the cases that are counted, and returns their shared lines; none on systems where calls
/// can't be recorded. Ends early if `is_over` says so.
///
/// # Errors
/// Returns the error of a recording.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) fn shared_lines(_: &dyn Fn() -> bool) -> std::io::Result<Vec<SharedLines>> {
    Ok(Vec::new())
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use on_x86_64::shared_lines;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod on_x86_64 {
    use std::io;

    use vfscale::Scaling;
    use vfscale_bench::cases_to_count;
    use vfscale_commute::predict::{recorded, workload};
    use vfscale_commute::runner::{Options, Target};

    use super::*;

    /// Number of CPUs that the structures are made for.
    const CPUS: usize = 4;
    /// Number of recordings of a case, which may differ.
    const RECORDINGS: usize = 3;

    /// Records the cases that are counted, and returns their shared lines. Ends early if `is_over`
    /// says so.
    ///
    /// # Errors
    /// Returns the error of a recording.
    pub(crate) fn shared_lines(is_over: &dyn Fn() -> bool) -> io::Result<Vec<SharedLines>> {
        let cases = cases_to_count().into_iter().take_while(|_| !is_over());
        cases.map(|(name, before)| of_case(name, before)).collect()
    }

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

#[cfg(test)]
mod tests;
