//! The long run of the differential test.
//!
//! Plays random call sequences on vfscale and on the kernel's tmpfs, continues after a difference,
//! and prints each kind of difference once, shrunk to the calls it needs. It stores nothing but the
//! summary; a run is determined by its seed and number of calls. Needs root, for tmpfs and for
//! acting as other users; without it, reports that and exits with status 2.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use vfscale_difftest::campaign::pairing::{
    TmpfsAndMount, TmpfsAndMountedVolume, TmpfsAndVfscale, TmpfsAndVolume, TmpfsTwice,
};
use vfscale_difftest::campaign::{self, Event, Pairing, Plan, Summary};
use vfscale_testkit::generate::{Focus, Shape};

/// Plays random call sequences on vfscale and on the kernel's tmpfs and prints the differences.
#[derive(Parser)]
struct Args {
    /// Number of calls.
    #[arg(long, default_value_t = 1_000_000)]
    calls: u64,
    /// Seed of all sequences. Random by default.
    #[arg(long, env = "VFSCALE_SEED")]
    seed: Option<u64>,
    /// Number of the first sequence.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Maximum number of calls in one sequence.
    #[arg(long, default_value_t = Shape::default().steps_max)]
    length: usize,
    /// Number of kinds of differences after which to stop.
    #[arg(long, default_value_t = 1000)]
    kinds: usize,
    /// Kind of files that the calls are about: files, pipes or locks.
    #[arg(long, default_value = "files")]
    focus: Focus,
    /// Plays tmpfs against tmpfs, which shows that the test itself is sound.
    #[arg(long, conflicts_with = "volume")]
    itself: bool,
    /// Plays on a volume, which is closed and reopened after each sequence.
    #[arg(long)]
    volume: bool,
    /// Plays on a volume in a branch of a pool, which was forked this many times.
    #[arg(long, requires = "volume", value_name = "DEPTH")]
    branch: Option<u32>,
    /// Plays through a mount, which is unmounted and remounted after each sequence.
    #[arg(long, conflicts_with = "itself")]
    mount: bool,
    /// Prints how often each call returned each result.
    #[arg(long)]
    coverage: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(vfscale_sync::random::fresh_seed);
    let shape = Shape { steps_max: args.length, focus: args.focus };
    let kinds_max = args.kinds;
    let plan = Plan { first: args.first, shape, kinds_max, ..Plan::new(seed, args.calls) };
    println!("seed {seed}");
    let outcome = match (args.mount, args.volume) {
        _ if args.itself => play(&TmpfsTwice::default(), &plan),
        (true, true) => play(&TmpfsAndMountedVolume::in_branch(args.branch), &plan),
        (true, false) => play(&TmpfsAndMount::default(), &plan),
        (false, true) => play(&TmpfsAndVolume::in_branch(args.branch), &plan),
        (false, false) => play(&TmpfsAndVfscale::default(), &plan),
    };
    match outcome {
        Ok(summary) => {
            finish(&summary, args.coverage);
            if summary.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("SKIPPED: the differential test can't run here: {why}");
            ExitCode::from(2)
        }
    }
}

fn play<A: Pairing>(pairing: &A, plan: &Plan) -> Result<Summary, String> {
    let start = Instant::now();
    let mut told = Instant::now();
    campaign::run(pairing, plan, |event| match event {
        Event::New(signature, found) => {
            println!("\n== {signature}  (sequence {})\n{}\n", found.sequence, found.difference);
        }
        Event::Progress(summary) if told.elapsed() > Duration::from_secs(10) => {
            told = Instant::now();
            let rate = summary.calls as f64 / start.elapsed().as_secs_f64();
            println!("{summary}, {rate:.0} calls/s");
        }
        Event::Progress(_) => {}
    })
}

fn finish(summary: &Summary, coverage: bool) {
    println!("{summary}");
    for (signature, found) in &summary.found {
        println!("{:6} x {signature} (sequence {})", found.count, found.sequence);
    }
    if coverage {
        for ((name, class), count) in &summary.coverage {
            println!("{name:16} {class:14} {count}");
        }
    }
}
