//! Cuts the power of volumes under load for a number of rounds or minutes, and checks the results;
//! see [`vfscale_crashtest::load::kills`].
//!
//! ```text
//! cargo run --release -p vfscale-crashtest --bin kills -- --rounds 10000  a number of power cuts
//! cargo run -p vfscale-crashtest --bin kills -- --minutes 60              a running time
//! ```
//!
//! The second one is a build with debug assertions: it checks every invariant that the code states,
//! including the lock order.
//!
//! # Invariants
//!
//! * The status is 0 only if nothing was wrong: a violation, a panic in any thread and a load that
//!   does not end are failures. With `--keep`, a state whose recovery failed is stored as an image.
//!
//! Only one volume at a time is in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use vfscale_block::Device;
use vfscale_crashtest::load::kills::{Kills, KillsPlan, KillsTally};
use vfscale_testkit::watch::Watch;

/// Cuts the power of volumes under load, again and again, and checks the results.
#[derive(Parser)]
struct Args {
    /// Number of power cuts after which the program ends.
    #[arg(long)]
    rounds: Option<u64>,
    /// Running time in minutes; 1 if neither limit is given.
    #[arg(long)]
    minutes: Option<u64>,
    /// Seed of all choices. Random by default.
    #[arg(long, env = "VFSCALE_SEED")]
    seed: Option<u64>,
    /// Number of threads that make orphans and reuse space that other threads freed.
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// Number of files that each of them makes in a load.
    #[arg(long, default_value_t = 8)]
    files: u64,
    /// Number of threads that make all kinds of calls in separate directories.
    #[arg(long, default_value_t = 2)]
    own: u64,
    /// Number of threads that make all kinds of calls in shared directories.
    #[arg(long, default_value_t = 2)]
    crowd: u64,
    /// Number of calls that each thread in a separate or shared directory makes in a load.
    #[arg(long, default_value_t = 60)]
    calls: usize,
    /// Number of power cuts of one load that are checked.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// File for the image of a state whose recovery failed.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Time limit of a load with its power cuts: a hundred times the usual duration.
const LOAD_MAX: Duration = Duration::from_secs(300);
/// Interval of progress reports.
const REPORT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args = Args::parse();
    let watch = Watch::begin(LOAD_MAX, |load| format!("load {load}")).for_panics();
    let seed = args.seed.unwrap_or_else(vfscale_sync::random::fresh_seed);
    println!("seed {seed}{}", if cfg!(debug_assertions) { ", with assertions" } else { "" });
    match run(&args, seed, &watch) {
        Ok(tally) => {
            println!("{tally}: nothing was wrong");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAILED: seed {seed}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, seed: u64, watch: &Watch) -> Result<KillsTally, String> {
    let Args { threads, files: rounds, own, crowd, calls, kills, .. } = *args;
    let plan = KillsPlan { threads, rounds, own, crowd, calls, kills };
    let minutes = args.minutes.or(args.rounds.is_none().then_some(1));
    let (begun, mut told) = (Instant::now(), Instant::now());
    let end = minutes.map(|minutes| begun + Duration::from_secs(60 * minutes));
    let mut subject = Kills::new(plan, seed)?;
    let mut total = KillsTally::default();
    while args.rounds.is_none_or(|rounds| total.kills < rounds)
        && end.is_none_or(|end| Instant::now() < end)
    {
        watch.next();
        total += subject.load().map_err(|why| keep(args.keep.as_deref(), &subject, why))?;
        if watch.has_panicked() {
            return Err("a panic, see above".into());
        }
        if told.elapsed() > REPORT {
            told = Instant::now();
            println!("{} s: {total}", begun.elapsed().as_secs());
        }
    }
    Ok(total)
}

/// Stores the image of a state whose recovery failed; returns the message with its path.
fn keep(to: Option<&Path>, subject: &Kills, why: String) -> String {
    let (Some(to), Some(device)) = (to, subject.broken()) else { return why };
    match write(to, device) {
        Ok(()) => format!("{why}; the image is {}", to.display()),
        Err(error) => format!("{why}; the image was not stored: {error}"),
    }
}

fn write(to: &Path, device: &Arc<dyn Device>) -> Result<(), String> {
    let file = File::create(to).map_err(|error| error.to_string())?;
    file.set_len(device.size()).map_err(|error| error.to_string())?;
    let mut piece = vec![0; 64 << 10];
    for at in (0..device.size()).step_by(piece.len()) {
        device.read_at(at, &mut piece).map_err(|error| error.to_string())?;
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece, at).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
