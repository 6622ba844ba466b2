//! Many sequences from one seed: play, shrink what differs, count what was covered.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::generate::{Sequences, Shape};
use crate::lockstep::{Difference, Played, Tally, play};
use crate::op::Step;
use crate::outcome::Outcome;
use crate::shrink::shrink;
use crate::world::World;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// All sequences follow from it.
    pub seed: u64,
    /// The number of the first sequence.
    pub first: u64,
    /// How many calls to make, at least.
    pub calls: u64,
    /// How long sequences are.
    pub shape: Shape,
    /// How many kinds of differences to collect before giving up.
    pub kinds_max: usize,
    /// How often to play a sequence while shrinking it.
    pub shrink_max: u32,
}

impl Plan {
    /// `calls` calls from `seed`, up to the first difference.
    pub fn new(seed: u64, calls: u64) -> Plan {
        Plan { seed, first: 0, calls, shape: Shape::default(), kinds_max: 1, shrink_max: 4000 }
    }
}

/// A kind of difference, with the shortest sequence for it.
pub struct Found {
    /// How often it was met.
    pub count: u64,
    /// The number of the first sequence that met it.
    pub sequence: u64,
    /// The shrunken difference.
    pub difference: Box<Difference>,
    /// The shrunken sequence.
    pub steps: Vec<Step>,
}

/// What a campaign saw.
#[derive(Default)]
pub struct Summary {
    /// Sequences played.
    pub sequences: u64,
    /// Calls made on each side.
    pub calls: u64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Whole trees compared.
    pub snapshots: u64,
    /// Sequences after which all space was free again, as it must be where that can be told.
    pub emptied: u64,
    /// Differences by kind.
    pub found: BTreeMap<String, Found>,
    /// How often each call gave each kind of result.
    pub coverage: BTreeMap<(&'static str, String), u64>,
}

/// Makes the two worlds of a sequence.
pub trait Arena {
    /// The side that is right.
    type Oracle: World;
    /// The side under test.
    type Subject: World;
    /// Fresh worlds.
    ///
    /// # Errors
    /// Says why the machine does not permit them.
    fn fresh(&self) -> Result<(Self::Oracle, Self::Subject), String>;
}

/// Something to tell while a campaign runs.
pub enum Event<'a> {
    /// A new kind of difference, shrunken.
    New(&'a str, &'a Found),
    /// Another sequence is done.
    Progress(&'a Summary),
}

/// Plays sequences until the plan is fulfilled.
///
/// # Errors
/// Says why, when the machine does not permit it.
pub fn run<A: Arena>(
    arena: &A,
    plan: &Plan,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Summary, String> {
    let sequences = Sequences::new(plan.shape);
    let mut summary = Summary::default();
    let mut number = plan.first;
    let watchdog = Watchdog::start(plan.seed);
    while summary.calls < plan.calls && summary.found.len() < plan.kinds_max {
        let candidate = sequences.get(plan.seed, number);
        let steps = Arc::new(candidate.steps.clone());
        watchdog.begin(number, &steps);
        match play_once(arena, &steps)? {
            Ok((tally, log)) => summary.add(tally, &log),
            Err(difference) => {
                summary.calls += difference.at as u64;
                summary.sequences += 1;
                summary.cover(&difference.log);
                match summary.found.get_mut(&difference.signature) {
                    Some(found) => found.count += 1,
                    None => {
                        let play = |steps: &Arc<Vec<Step>>| {
                            watchdog.begin(number, steps);
                            Ok(play_once(arena, steps)?.err())
                        };
                        let (steps, difference) =
                            shrink(candidate, difference, plan.shrink_max, play)?;
                        let found = Found { count: 1, sequence: number, difference, steps };
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

/// Plays once on fresh worlds. A panic of the subject is a difference too.
fn play_once<A: Arena>(
    arena: &A,
    steps: &Arc<Vec<Step>>,
) -> Result<Result<Played, Box<Difference>>, String> {
    let (mut oracle, mut subject) = arena.fresh()?;
    let played = catch_unwind(AssertUnwindSafe(|| play(&mut oracle, &mut subject, steps)));
    Ok(played.unwrap_or_else(|panic| {
        // The subject's locks may be held for ever by what panicked.
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

/// Prints the sequence and ends the process when one takes far too long: a deadlock otherwise says
/// nothing.
struct Watchdog {
    state: Arc<WatchdogState>,
}

struct WatchdogState {
    current: Mutex<(u64, Arc<Vec<Step>>)>,
    began_ms: AtomicU64,
    start: Instant,
}

/// How long one sequence may take.
const SEQUENCE_MAX: Duration = Duration::from_secs(120);

impl Watchdog {
    fn start(seed: u64) -> Watchdog {
        let state = Arc::new(WatchdogState {
            current: Mutex::new((0, Arc::default())),
            began_ms: AtomicU64::new(0),
            start: Instant::now(),
        });
        let weak = Arc::downgrade(&state);
        std::thread::spawn(move || {
            while let Some(state) = weak.upgrade() {
                state.check(seed);
                drop(state);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Watchdog { state }
    }

    fn begin(&self, number: u64, steps: &Arc<Vec<Step>>) {
        if let Ok(mut current) = self.state.current.lock() {
            *current = (number, Arc::clone(steps));
        }
        let now = self.state.start.elapsed().as_millis() as u64;
        self.state.began_ms.store(now, Ordering::Relaxed);
    }
}

impl WatchdogState {
    fn check(&self, seed: u64) {
        let began = Duration::from_millis(self.began_ms.load(Ordering::Relaxed));
        if self.start.elapsed().saturating_sub(began) < SEQUENCE_MAX {
            return;
        }
        if let Ok(current) = self.current.lock() {
            eprintln!("HANG: seed {seed}, sequence {} has not ended:", current.0);
            for step in current.1.iter() {
                eprintln!("    {step}");
            }
        }
        std::process::exit(3);
    }
}
