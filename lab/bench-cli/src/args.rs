//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use vfscale_bench::plan::DISAGREEMENT_MAX;

use crate::branches::BranchesArgs;
use crate::commute::CommuteArgs;
use crate::fill::FillArgs;

/// Measure how file systems scale: vfscale in memory, or any mounted directory
///
/// Runs experiments of the published work on making the kernel's file systems scale, in rounds,
/// alternately on all targets, and prints medians, ranges, and ratios with their confidence
/// intervals. Files made below a directory are removed at the end, also on Ctrl-C.
///
/// Example: vfscale-bench open-close-same-dir stat-deep --target memory --target path:/mnt/disk
/// --threads 1,2 --before lockref
#[derive(Debug, Parser)]
#[command(name = "vfscale-bench", version, propagate_version = true)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) set: Option<Set>,

    #[command(flatten)]
    pub(crate) run: WorkloadArgs,
}

/// Sets of experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Set {
    /// Run every published experiment, with and without its patches, and write a report with the
    /// published figures next to ours
    #[command(alias = "seeds")]
    Published(PublishedArgs),

    /// Count the cache lines on which calls that commute conflict
    ///
    /// Makes thousands of small cases of two calls whose order does not matter, records every load
    /// and store of both on two pretended CPUs, and prints for each two calls in how many cases
    /// neither writes a line that the other touches, and the owners of the other lines. Needs Linux
    /// on x86-64.
    ///
    /// Example: vfscale-bench commute --sample 2000 --out report
    Commute(CommuteArgs),

    /// Create many empty files in a volume, and remove them, once: the rate over time, and the
    /// memory
    ///
    /// Makes the image for the run, prints a line for each sample, and a table at the end. Fails if
    /// the process takes more memory than --memory-max.
    ///
    /// Example: vfscale-bench fill --files 2000000 --size 8G disk.vfs
    Fill(FillArgs),

    /// Fork a volume many times: the times of forks and openings, the pause of writers, and the
    /// space
    ///
    /// Makes a volume for the run, in memory unless an image is named, and prints a line for each
    /// measurement.
    ///
    /// Example: vfscale-bench branches --files 100000 disk.vfs
    Branches(BranchesArgs),

    /// A worker process of --processes; takes its orders from standard input
    #[command(hide = true)]
    Worker,

    /// Count the cache lines that two CPUs share in some experiments; prints a line for each
    #[command(hide = true)]
    Count,

    /// Write the manual pages and completions to a directory that is laid out as /usr/share
    #[command(hide = true)]
    Man {
        /// The directory; made if missing
        dir: PathBuf,
    },
}

/// Parses numbers of readers and writers.
fn mix(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once(':');
    let numbers = parts.and_then(|(read, write)| Some((read.parse().ok()?, write.parse().ok()?)));
    numbers.ok_or_else(|| "two numbers with a colon between them, such as 8:64".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct PublishedArgs {
    /// Short rounds and few files: for a preview, not for figures
    #[arg(long)]
    pub(crate) quick: bool,

    /// The directory to write report.html, report.md, results.json and plots/ to; made if missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// The targets (default: `memory`; and at /dev/shm, if it is writable, the kernel's tmpfs to
    /// compare with, and a volume in an image there for the experiments on journals)
    #[arg(long = "target", value_name = "TARGET", num_args = 1..)]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// The workloads to run; --list describes them, `fxmark` is all of FxMark's
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workloads: Vec<String>,

    /// The targets: `memory` or `volume:FILE` (the library in this process; an existing image, or
    /// one that is made for the run), `mount:memory` or `mount:FILE` (a mount that is made for the
    /// run, by the program `vfscale`; `mount+noxattr,writeback:memory` with options of its `-o`),
    /// or `path:DIR` (a directory of any mounted file system).
    /// Several are measured alternately; ratios are over the first. `memory` if none is named
    #[arg(long = "target", value_name = "TARGET", num_args = 1..)]
    pub(crate) targets: Vec<String>,

    /// Numbers of workers, such as 1,2,4; ratios are over the first
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<usize>,

    /// Use worker processes instead of threads
    #[arg(long)]
    pub(crate) processes: bool,

    /// Let workers run on any CPU, instead of each on one
    #[arg(long)]
    pub(crate) unpinned: bool,

    /// Also measure the library without this patch; --list-patches describes them, `all` is all of
    /// them. Several are disabled together
    #[arg(long, value_name = "PATCH", num_args = 1..)]
    pub(crate) before: Vec<String>,

    /// Pretend to the library that the machine has N CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cpus: Option<u16>,

    /// Rounds that count, at least 5
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) rounds: usize,

    /// How long a case works in a round; longer with more than six workers for each CPU
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200,
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(crate) slice: u64,

    /// How long a case works before anything counts
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub(crate) warm_up: u64,

    /// No verdict if rounds disagree by more than this (their range over their median)
    #[arg(long, value_name = "SHARE", default_value_t = DISAGREEMENT_MAX)]
    pub(crate) disagreement: f64,

    /// Also take the time of single operations
    #[arg(long)]
    pub(crate) latency: bool,

    /// As --latency, with this many operations begun per second at fixed times; a late one counts
    /// from when it should have begun
    #[arg(long, value_name = "OPS_PER_S")]
    pub(crate) rate: Option<f64>,

    /// Make one more round of each case in memory and on volumes, with lock statistics on: waiting
    /// and holding times of each lock class, in the columns of the kernel's lock_stat
    #[arg(long)]
    pub(crate) lockstat: bool,

    /// Numbers of users of the mixes of AIM7, such as 10,100,1000
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "10,100")]
    pub(crate) users: Vec<usize>,

    /// Readers and writers of slob, such as 8:64,32:64,32:0, each a case, instead of --threads of
    /// which every other one reads
    #[arg(long = "mix", value_name = "READERS:WRITERS", value_delimiter = ',', value_parser = mix)]
    pub(crate) mixes: Vec<(usize, usize)>,

    /// Files that each worker makes in create-many and remove-many, and its keys in kv-put, kv-get
    /// and kv-put-sync
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) files: u64,

    /// MiB of the database of slob, and of the files of write-seq, read-seq, pwrite, pread and
    /// punch-write
    #[arg(long, value_name = "MIB", default_value_t = 16,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) database: u64,

    /// KiB of each call of pwrite, pread, append-sync, write-truncate and punch-write
    #[arg(long, value_name = "KIB", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) io_size: u32,

    /// A tree to copy for find-size, git-diff and readdir-stat (default: a generated one)
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: Option<PathBuf>,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) random_seed: u64,

    /// Write the results as JSON to FILE, or to standard output with `-` (the table is then printed
    /// to standard error)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the results as a Markdown document, as those in docs/results, to FILE, or to standard
    /// output with `-`
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,

    /// Write report.html, report.md, results.json and plots/ to this directory, which is made if
    /// missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Describe the workloads, and do nothing else
    #[arg(long)]
    pub(crate) list: bool,

    /// Describe the patches that can be disabled, and do nothing else
    #[arg(long)]
    pub(crate) list_patches: bool,
}

#[cfg(test)]
mod tests;
