//! Plays many sequences from one seed, shrinks those that differ, and counts the coverage.

pub mod known;
pub mod lockstep;
pub mod pairing;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vfscale_testkit::calls::op::Step;
use vfscale_testkit::calls::outcome::Outcome;
use vfscale_testkit::generate::{Sequences, Shape};
use vfscale_testkit::shrink::shrink;
use vfscale_testkit::watch::Watch;
use vfscale_testkit::world::World;

use crate::campaign::lockstep::{Difference, Played, Tally, play};

/// Options of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of all sequences.
    pub seed: u64,
    /// Number of the first sequence.
    pub first: u64,
    /// Minimum number of calls.
    pub calls: u64,
    /// Shape of the sequences.
    pub shape: Shape,
    /// Number of kinds of differences after which to stop.
    pub kinds_max: usize,
    /// Maximum number of plays while a sequence is shrunk.
    pub shrink_max: u32,
}

impl Plan {
    /// Returns the plan for `calls` calls from `seed`, up to the first difference.
    pub fn new(seed: u64, calls: u64) -> Plan {
        Plan { seed, first: 0, calls, shape: Shape::default(), kinds_max: 1, shrink_max: 4000 }
    }
}

/// A kind of difference, with the shortest sequence that shows it.
pub struct FoundDifference {
    /// Number of occurrences.
    pub count: u64,
    /// Number of the first sequence that showed it.
    pub sequence: u64,
    /// The difference of the shrunk sequence.
    pub difference: Box<Difference>,
    /// The shrunk sequence.
    pub steps: Vec<Step>,
}

/// Result of a campaign.
#[derive(Default)]
pub struct Summary {
    /// Number of sequences.
    pub sequences: u64,
    /// Number of calls on each side.
    pub calls: u64,
    /// Number of successful calls among them.
    pub succeeded: u64,
    /// Number of compared trees.
    pub snapshots: u64,
    /// Number of sequences after which all space was free again. It must be wherever this can be
    /// determined.
    pub emptied: u64,
    /// Differences by kind.
    pub found: BTreeMap<String, FoundDifference>,
    /// Number of occurrences of each result of each call.
    pub coverage: BTreeMap<(&'static str, String), u64>,
}

/// Makes the two worlds of a sequence.
pub trait Pairing {
    /// The reference side.
    type Oracle: World;
    /// The side under test.
    type Subject: World;
    /// Makes new worlds.
    ///
    /// # Errors
    /// Describes why the machine does not permit them.
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String>;
}

/// Progress of a running campaign.
pub enum Event<'a> {
    /// A new kind of difference, shrunk.
    New(&'a str, &'a FoundDifference),
    /// Another sequence is done.
    Progress(&'a Summary),
}

/// Plays sequences until the plan is fulfilled.
///
/// # Errors
/// Describes what the machine does not permit.
pub fn run<A: Pairing>(
    pairing: &A,
    plan: &Plan,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Summary, String> {
    let sequences = Sequences::new(plan.shape);
    let mut summary = Summary::default();
    let mut number = plan.first;
    let current = Current::default();
    let (watched, seed) = (Arc::clone(&current), plan.seed);
    let watch = Watch::begin(SEQUENCE_MAX, move |_| describe(seed, &watched));
    let begin = |number, steps: &Arc<Vec<Step>>| {
        *current.lock().unwrap_or_else(PoisonError::into_inner) = (number, Arc::clone(steps));
        watch.next();
    };
    while summary.calls < plan.calls && summary.found.len() < plan.kinds_max {
        let candidate = sequences.get(plan.seed, number);
        let steps = Arc::new(candidate.steps.clone());
        begin(number, &steps);
        match play_once(pairing, &steps)? {
            Ok((tally, log)) => summary.add(tally, &log),
            Err(difference) => {
                summary.calls += difference.at as u64;
                summary.sequences += 1;
                summary.cover(&difference.log);
                match summary.found.get_mut(&difference.signature) {
                    Some(found) => found.count += 1,
                    None => {
                        let play = |steps: &Arc<Vec<Step>>| {
                            begin(number, steps);
                            Ok(play_once(pairing, steps)?.err())
                        };
                        let (steps, difference) =
                            shrink(candidate, difference, plan.shrink_max, play)?;
                        let found =
                            FoundDifference { count: 1, sequence: number, difference, steps };
                        let signature = found.difference.signature.clone();
                        tell(Event::New(&signature, &found));
                        summary.found.insert(signature, found);
                    }
                }
            }
        }
        tell(Event::Progress(&summary));
        number += 1;
    }
    Ok(summary)
}

/// Plays a sequence on new worlds. A panic of the subject is a difference too.
fn play_once<A: Pairing>(
    pairing: &A,
    steps: &Arc<Vec<Step>>,
) -> Result<Result<Played, Box<Difference>>, String> {
    let (mut oracle, mut subject) = pairing.fresh()?;
    let played = catch_unwind(AssertUnwindSafe(|| play(&mut oracle, &mut subject, steps)));
    Ok(played.unwrap_or_else(|panic| {
        // The panic may have left locks of the subject locked forever.
        std::mem::forget(subject);
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic");
        Err(Box::new(Difference {
            at: steps.len(),
            signature: format!("panic: {}", text.chars().take(80).collect::<String>()),
            text: format!("panic: {text}"),
            log: steps.iter().map(|step| (step.clone(), Outcome::Skip)).collect(),
        }))
    }))
}

impl Summary {
    fn add(&mut self, tally: Tally, log: &[(Step, Outcome)]) {
        self.sequences += 1;
        self.calls += tally.calls;
        self.succeeded += tally.succeeded;
        self.snapshots += tally.snapshots;
        self.emptied += tally.emptied;
        self.cover(log);
    }

    fn cover(&mut self, log: &[(Step, Outcome)]) {
        for (step, outcome) in log {
            *self.coverage.entry((step.op.name(), outcome.class())).or_default() += 1;
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls in {} sequences, {} succeeded, {} trees compared, {} left empty, \
             {} kinds of differences",
            self.calls,
            self.sequences,
            self.succeeded,
            self.snapshots,
            self.emptied,
            self.found.len()
        )
    }
}

/// Time limit of one sequence.
const SEQUENCE_MAX: Duration = Duration::from_secs(120);

/// The sequence that is being played, with its number.
type Current = Arc<Mutex<(u64, Arc<Vec<Step>>)>>;

/// Describes the sequence that does not end, because a deadlock would report nothing.
fn describe(seed: u64, current: &Current) -> String {
    let current = current.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = current.1.iter().map(|step| format!("    {step}\n"));
    format!("seed {seed}, sequence {}:\n{}", current.0, steps.collect::<String>())
}
