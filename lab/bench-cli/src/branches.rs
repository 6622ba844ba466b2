//! `vfscale-bench branches`: forks a volume many times.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use vfscale::options::Size;
use vfscale_bench::branches::{BranchRow, Branching};

use crate::error::Failure;
use crate::output::{INTERRUPTED, interrupted_by_signals, output};

#[derive(Debug, Args)]
pub(crate) struct BranchesArgs {
    /// Files in the volume, a thousand in each directory
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) files: u64,

    /// Forks of the closed volume; other measurements make at most a hundred
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) forks: u64,

    /// Generations of the deepest branch
    #[arg(long, value_name = "N", default_value_t = 127)]
    pub(crate) depth: u64,

    /// Branches that are opened, changed and closed, for their space; 0 for none
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) changed: u64,

    /// Branches that are open at once, for their memory; 0 for none. Each has 4 MiB of the pool, of
    /// twice the volume's size, reserved for its log
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) open: u64,

    /// The size of the volume
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub(crate) size: Size,

    /// Write the results as JSON to FILE, or to standard output with `-` (the table is then printed
    /// to standard error)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// The image file to make (default: a device in memory)
    #[arg(value_name = "IMAGE")]
    pub(crate) image: Option<PathBuf>,
}

/// Runs `vfscale-bench branches`.
pub(crate) fn branches(args: &BranchesArgs) -> Result<ExitCode, Failure> {
    let plan = Branching {
        image: args.image.clone(),
        size: args.size.on_this_machine(),
        files: args.files,
        forks: args.forks,
        depth: args.depth,
        changed: args.changed,
        open: args.open,
    };
    let interrupt = interrupted_by_signals()?;
    let mut watch = |row: &BranchRow| eprintln!("{}: {:.1} {}", row.name, row.median, row.unit);
    match vfscale_bench::branches::branches(&plan, &interrupt, &mut watch) {
        Err(_) if interrupt.is_raised() => Ok(ExitCode::from(INTERRUPTED)),
        outcome => {
            let report = outcome?;
            output(&[(args.json.as_deref(), &|| report.to_json())], &report.table())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
