//! Common parts of the comparison tests.

use vfscale_difftest::campaign::pairing::reason_to_skip;
use vfscale_difftest::campaign::{self, Pairing, Plan, Summary};

/// Returns the number in an environment variable, if it is set.
pub fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Returns whether the machine permits the kernel's side; prints why if not.
pub fn permitted() -> bool {
    match reason_to_skip() {
        None => true,
        Some(why) => {
            println!("######## SKIPPED: the comparison with tmpfs can't run here: {why}");
            false
        }
    }
}

/// Plays a plan; panics with the shrunk sequence if anything differs.
pub fn play<A: Pairing>(pairing: &A, plan: &Plan) -> Summary {
    println!("seed: VFSCALE_SEED={}", plan.seed);
    let summary = campaign::run(pairing, plan, |_| {}).expect("worlds");
    for (signature, found) in &summary.found {
        eprintln!("{signature}:\n{}", found.difference);
        let focus = format!("{:?}", plan.shape.focus).to_lowercase();
        let (seed, first) = (plan.seed, found.sequence);
        eprintln!("again: difftest --seed {seed} --first {first} --calls 1 --focus {focus}");
    }
    assert!(summary.found.is_empty(), "the two sides differ, see above");
    println!("{summary}");
    summary
}
