//! Damages volumes for a given time and looks at what comes of it; see [`vfscale_crashtest::fuzz`].
//!
//! Prints each seed before its rounds, so that whatever happens can be repeated. A panic in any thread, a
//! round that does not end and a violation all end with a status other than 0: 1, or 3 for a hang.
//!
//! # Invariants
//!
//! * What a seed does depends on nothing but the seed and the number of its rounds.
//! * No failure is lost: a seed that fails is counted, and the next one begins with volumes of its own.
//!
//! Nothing is held but the volumes of one seed, in memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use vfscale_crashtest::fuzz::{Fuzzer, Tally};
use vfscale_crashtest::watch::Watch;

/// Damages volumes, in their logs and elsewhere, and looks at what comes of it.
#[derive(Parser)]
struct Args {
    /// For how many seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The first seed; the next ones follow it. A new one if it is not given.
    #[arg(long, env = "VFSCALE_SEED")]
    seed: Option<u64>,
    /// How many rounds each seed has.
    #[arg(long, default_value_t = 60)]
    rounds: u64,
    /// How many seeds at most.
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
}

/// How long a round may take; a thousand times as long as one does.
const ROUND_MAX: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let args = Args::parse();
    let watch = Watch::begin(ROUND_MAX, |_| "a round of the last seed".into());
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let first = args.seed.unwrap_or_else(vfscale_sync::random::fresh_seed);
    let (mut total, mut bad, mut seeds) = (Tally::default(), 0, 0);
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

/// The rounds of a seed, as far as there is time.
fn play(seed: u64, rounds: u64, end: Instant, watch: &Watch) -> Result<Tally, String> {
    let mut total = Tally::default();
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
