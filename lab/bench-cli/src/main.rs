//! The `vfscale-bench` command: measures how file systems scale.
//!
//! It is a program of its own beside `vfscale`, which starts it for `vfscale bench`: a mount needs
//! neither plots nor a recorder of machine code.
//!
//! | module | contents |
//! | --- | --- |
//! | `args` | the command line |
//! | `bench` | workloads, and the set of published experiments |
//! | `branches`, `commute`, `fill` | the other measurements |
//! | `count` | shared lines, for the report of the published experiments |
//! | `output` | results on standard output and in files, and the interruption of a run |
//! | `error` | failures and exit statuses |

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use vfscale_command::manual::{self, Manual};

mod args;
mod bench;
mod branches;
mod commute;
mod count;
mod error;
mod fill;
mod output;

use args::{Cli, Set};
use error::Failure;

/// An allocator that adds no conflicts of its own to recorded calls; it forwards all other
/// allocations to the system's.
#[global_allocator]
static ALLOCATOR: vfscale_commute::arena::Arenas = vfscale_commute::arena::Arenas;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A recording drops its volumes without closing them, which they would tell.
    if !matches!(cli.set, Some(Set::Count)) {
        vfscale_command::logging::start(true);
    }
    let outcome = match cli.set {
        None => bench::workloads(&cli.run),
        Some(Set::Published(args)) => bench::published(&args),
        Some(Set::Commute(args)) => commute::commute(&args),
        Some(Set::Branches(args)) => branches::branches(&args),
        Some(Set::Fill(args)) => fill::fill(&args),
        Some(Set::Worker) => bench::worker(),
        Some(Set::Count) => count::serve(),
        Some(Set::Man { dir }) => man(&dir),
    };
    outcome.unwrap_or_else(|e| {
        eprintln!("vfscale-bench: {e}");
        e.exit_code()
    })
}

/// Writes the manual pages and completions.
fn man(dir: &Path) -> Result<ExitCode, Failure> {
    let command = Cli::command();
    let manuals = [Manual {
        command: &command,
        section: 1,
        without: &[],
        see_also: &["vfscale(1)"],
        options: &[],
    }];
    manual::write(dir, &manuals).map_err(|e| Failure::Write(e.path, e.error))?;
    Ok(ExitCode::SUCCESS)
}
