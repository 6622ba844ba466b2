//! Every experiment of the seeds, on vfscale in the process or on any mounted directory.
//!
//! The published work on making the kernel's file systems scale proves each patch by an experiment. This
//! crate runs those experiments: on the library in this process, with and without each patch, and by
//! system calls on any directory that can be mounted. `vfscale bench` is its face.
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
//! # The pieces
//!
//! | module | what |
//! | --- | --- |
//! | [`workloads`] | the experiments: their names, what they do and how each checks what was done |
//! | [`targets`] | what they run on: the library, or system calls on a directory |
//! | [`plan`] | which of them, how many workers, how long |
//! | `worker` | threads and processes that do the work and are measured |
//! | `run` | cases in turn, round after round |
//! | [`stats`] | medians, intervals, and what may be said of a ratio |
//! | [`machine`] | what the figures depend on, and how much of the machine was really to be had |
//! | [`report`] | the results, as they are written to JSON |
//! | [`table`] | the results, as a terminal shows them |
//! | [`plot`], [`html`] | the results as pictures, and all of them in one page |
//! | [`markdown`] | the results as a section of a document |
//! | [`fill`] | so many files created and removed once, with the memory that it takes |
//! | [`seeds`] | the seeds' own tables, and a run that sets ours beside them |
//!
//! # Invariants
//!
//! * A run keeps to a directory of its own below each one that was named, and removes it.
//! * Nothing that belongs to the harness is called through a pointer, allocated or shared between workers
//!   while time is taken.
//! * A case whose checks fail has no result.
//!
//! # Who holds what
//!
//! A run holds the directories it made; a case its file system and its workers; a worker, on its own
//! thread, its working directory and open files. There are no locks: workers are told what to do by
//! channels or pipes, and answer the same way.

mod base;
pub mod fill;
mod measure;
mod published;
mod report;
mod run;
pub mod targets;
pub mod workloads;

pub use base::error::{Error, Fault, FaultKind, Outcome, Result};
pub use base::interrupt::Interrupt;
pub use base::results::Report;
pub use base::{machine, results, stats};
pub use published::{Beside, SeedTable, TABLES};
pub use report::{html, markdown, plot, table};
pub use run::plan::{self, Pace, Plan};
pub use run::{Failure, Seeds, TMPFS, Watch, run, run_seeds, serve_process};
pub use targets::TargetSpec;
pub use workloads::find;
