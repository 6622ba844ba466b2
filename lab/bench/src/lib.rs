//! The experiments of published work on scaling file systems, on vfscale or any mounted directory.
//!
//! The published work on making the kernel's file systems scale supports each patch by an
//! experiment. This crate runs those experiments: on the library in this process, with and without
//! each patch, and by system calls on any mounted directory. `vfscale bench` is its command.
//!
//! ```
//! use std::time::Duration;
//! use vfscale_bench::{Interrupt, Plan, TargetSpec, find, run};
//!
//! # fn main() -> Result<(), vfscale_bench::Error> {
//! let mut plan = Plan::new(vec![find("stat-deep")?], vec![TargetSpec::Memory]);
//! plan.slice = Duration::from_millis(2);
//! plan.warm_up = Duration::from_millis(1);
//! let report = run(&plan, &Interrupt::new(), &mut ())?;
//! assert!(report.results[0].ops_per_s.median > 0.0);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! A module imports only from those below it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`branches`] | forks of a volume, with times and space |
//! | [`fill`] | many files created and removed once, with rates and memory |
//! | `report` | results as a [`table`] on a terminal, a [`plot`], a page in [`html`], a section in [`markdown`]; [our figures next to published ones](TABLES) |
//! | `run` | [`plan`], teams of worker threads and processes, rounds of cases, a run of all published experiments |
//! | [`workloads`] | the experiments: their names, operations and checks |
//! | [`targets`] | the library, or system calls on a directory |
//! | [`measure`] | the work of one worker, the measured loop, the CPU |
//! | `published` | published tables, and the workloads that repeat them |
//! | `base` | [`results`] as they are written to JSON, [`stats`], [`machine`], errors, clocks |
//!
//! # Invariants
//!
//! * A run changes only a directory of its own below each named directory, and removes it.
//! * While time is taken, the harness makes no call through a pointer, allocates no memory and
//!   shares no cache line between workers.
//! * A case whose checks fail has no result.
//!
//! # Ownership
//!
//! A run owns the directories it made; a case its file system and its workers; a worker, on its own
//! thread, its working directory and open files. There are no locks: commands to workers and their
//! replies pass through channels or pipes.

mod base;
pub mod branches;
pub mod fill;
pub mod measure;
mod published;
mod report;
mod run;
pub mod targets;
pub mod workloads;

pub use base::error::{Error, Fault, FaultKind, Outcome, Result};
pub use base::interrupt::Interrupt;
pub use base::results::Report;
pub use base::{machine, results, stats};
pub use published::{
    CHINNER, FXMARK, KARA, LOCKREF, OWN, OurFigures, PIGGIN, PublishedTable, SEQRWLOCK, TABLES,
    cases_to_count,
};
pub use report::{html, markdown, plot, table};
pub use run::plan::{self, Pace, Plan};
pub use run::{Failure, PublishedRun, TMPFS, Team, Watch, run, run_published, serve_process};
pub use targets::TargetSpec;
pub use workloads::find;
