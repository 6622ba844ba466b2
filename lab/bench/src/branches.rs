//! The cost of branches: forks, openings, the pause of writers, space, and depth.
//!
//! A volume is filled with files and becomes a pool. Then each measurement forks branches of it,
//! one after the other, and takes the time of each call. Branches of the closed volume remain until
//! the end, so later forks are of a pool with many.
//!
//! # Invariants
//!
//! * The image was made for the run, and is removed at its end, as is that of a plain volume to
//!   compare with. In memory there is none.
//! * A measurement checks what it reads: a branch has the files of its parent.
//!
//! # Ownership
//!
//! The run owns the pool and all volumes in it. Only the writers of a parent are threads of their
//! own; each has a task and a file of its own. There are no locks.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vfscale::block::{Device, MemoryDevice};
use vfscale::{PoolBuilder, Volume};
use vfscale_diskfs::mkfs::{self, MkfsOptions};

use crate::base::error::{Error, Fault, Outcome, Result};
use crate::base::interrupt::Interrupt;
use crate::base::machine::{self, Machine};
use crate::report::table::{Columns, number};

mod live;
mod many;
mod plan;
mod rates;
mod steps;

use plan::said;
pub use plan::{BranchRow, Branching};

/// The results of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BranchReport {
    /// The schema, `vfscale-branches/1`.
    pub schema: String,
    /// The commit that the program was built from, or its version.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
    /// The kernel's name and version.
    pub kernel: String,
    /// The image, or `memory`.
    pub place: String,
    /// Number of files in the volume.
    pub files: u64,
    /// The measurements.
    pub rows: Vec<BranchRow>,
}

impl BranchReport {
    /// Renders the report as JSON.
    pub fn to_json(&self) -> String {
        // Numbers and strings only, which JSON can always represent.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Renders the report as a table for a terminal.
    pub fn table(&self) -> String {
        let head = [&self.place, "unit", "count", "median", "99 %", "most"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for row in &self.rows {
            let mut line = vec![row.name.clone(), row.unit.clone(), row.count.to_string()];
            line.extend([row.median, row.p99, row.max].map(number));
            lines.push(line);
        }
        Columns(lines).render()
    }
}

/// Makes a volume with files, and measures branches of it. Calls `watch` with each measurement.
///
/// # Errors
/// Returns an error if the image exists or can't be made, if a call fails or has the wrong effect,
/// and if the run is interrupted.
pub fn branches(
    plan: &Branching,
    interrupt: &Interrupt,
    watch: &mut dyn FnMut(&BranchRow),
) -> Result<BranchReport> {
    plan.check()?;
    let place = plan.image.as_ref().map_or("memory".to_owned(), |path| path.display().to_string());
    let failed = |fault: Fault| Error::Workload {
        workload: "branches",
        target: place.clone(),
        reason: fault.to_string(),
    };
    let mut report = BranchReport {
        schema: "vfscale-branches/1".to_owned(),
        commit: machine::commit(),
        machine: Machine::this(),
        kernel: machine::kernel(),
        place: place.clone(),
        files: plan.files,
        rows: Vec::new(),
    };
    let outcome = measure(plan, interrupt, &mut |row| {
        watch(&row);
        report.rows.push(row);
    });
    for image in plan.image.iter().chain(&plan.plain()) {
        match std::fs::remove_file(image) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::System("unlink", e));
            }
            _ => {}
        }
    }
    outcome.map_err(failed).map(|()| report)
}

/// Makes the pool and a plain volume with the same files, and takes all measurements.
fn measure(
    plan: &Branching,
    interrupt: &Interrupt,
    note: &mut dyn FnMut(BranchRow),
) -> Outcome<()> {
    let (volume, pool) = make(plan, plan.image.as_deref())?;
    volume.close().map_err(said)?;
    let pool = pool.convert(true).open().map_err(said)?;
    let run = steps::Steps { pool: &pool, plan, interrupt };
    run.all(note)?;
    run.rates(make(plan, plan.plain().as_deref())?.0, note)?;
    pool.close().map_err(said)
}

/// Makes a volume with files; returns it, and the pool that it can become.
fn make(plan: &Branching, image: Option<&Path>) -> Outcome<(Volume, PoolBuilder)> {
    let (volume, pool) = match image {
        Some(path) => (vfscale::volume(path).create(plan.size), vfscale::pool(path)),
        None => {
            let device = MemoryDevice::new(plan.size).map_err(said)?;
            mkfs::format(&device, &MkfsOptions::default()).map_err(said)?;
            let device: Arc<dyn Device> = Arc::new(device);
            (vfscale::volume_on(device.clone()), vfscale::pool_on(device))
        }
    };
    let volume = volume.open().map_err(said)?;
    steps::fill(&volume, plan.files)?;
    Ok((volume, pool))
}

#[cfg(test)]
mod tests;
