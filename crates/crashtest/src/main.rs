//! Damages volumes for a given time and checks the results; see [`vfscale_crashtest::fuzz`].
//!
//! Prints each seed before its rounds, so every failure can be repeated. A panic in any thread, a
//! round that does not end and a violation all exit with a status other than 0: 1, or 3 for a hang.
//!
//! # Invariants
//!
//! * A seed's rounds depend only on the seed and their number.
//! * No failure is lost: a failed seed is counted, and the next one begins with new volumes.
//!
//! Only the volumes of one seed are in memory at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use vfscale_crashtest::fuzz::{FuzzTally, Fuzzer};
use vfscale_testkit::watch::Watch;

/// Damages volumes, in their logs and elsewhere, and checks the results.
#[derive(Parser)]
struct Args {
    /// Running time in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// First seed; the next ones follow it. Random by default.
    #[arg(long, env = "VFSCALE_SEED")]
    seed: Option<u64>,
    /// Number of rounds of each seed.
    #[arg(long, default_value_t = 60)]
    rounds: u64,
    /// Maximum number of seeds.
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
}

/// Time limit of a round: a thousand times the usual duration.
const ROUND_MAX: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let args = Args::parse();
    let watch = Watch::begin(ROUND_MAX, |_| "a round of the last seed".into()).for_panics();
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let first = args.seed.unwrap_or_else(vfscale_sync::random::fresh_seed);
    let (mut total, mut bad, mut seeds) = (FuzzTally::default(), 0, 0);
    while Instant::now() < end && seeds < args.seeds {
        let seed = first.wrapping_add(seeds);
        println!("seed {seed}");
        match play(seed, args.rounds, end, &watch) {
            Ok(tally) => total += tally,
            Err(why) => {
                println!("FAILED: {why}\n  again: fuzz --seed {seed} --seeds 1");
                bad += 1;
            }
        }
        seeds += 1;
    }
    println!("{total}; of {seeds} seeds {bad} failed");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the rounds of a seed until the time is over.
fn play(seed: u64, rounds: u64, end: Instant, watch: &Watch) -> Result<FuzzTally, String> {
    let mut total = FuzzTally::default();
    watch.next();
    let mut fuzzer = Fuzzer::new(seed)?;
    for number in 0..rounds {
        if Instant::now() > end {
            break;
        }
        watch.next();
        let round = catch_unwind(AssertUnwindSafe(|| fuzzer.round(number)));
        let panicked = watch.has_panicked();
        let did = || format!("round {number} ({})", fuzzer.did().join("; "));
        match round {
            Ok(Ok(tally)) if !panicked => total += tally,
            Ok(Err(why)) => return Err(format!("{}: {why}", did())),
            _ => return Err(format!("{}: a panic, see above", did())),
        }
    }
    Ok(total)
}
