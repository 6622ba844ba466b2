//! Generates any number of cases that commute.
//!
//! # Method
//!
//! Each pair of call kinds has a *space* of cases (`space`). Its dimensions are the call of each
//! kind, the paths, directories and slots that the calls share, the file at each name and slot, one
//! process or two, the working directories, and the mount. A point of the space is a number. A
//! small space is tried completely, a large one at [`Options::tries`] random points. Contradictory
//! points are skipped; for all others the [model](crate::model) decides whether the two calls
//! commute.
//!
//! Cases that differ in names only are one case. Directories, names and slots are numbered in the
//! order in which the calls mention them. For two calls of one kind, both orders are written down
//! in this way, and the lesser text is the key (`key`). COMMUTER's isomorphism groups have the same
//! purpose (the page of [`model`](crate::model) has the reference).
//!
//! At most [`Options::per_pair`] cases are selected for each pair of kinds. Both calls succeed in
//! two thirds of them, if there are as many. The cases are taken round-robin from *classes*: equal
//! arguments, equal errors, one process or two, and equal sharing. So rare cases are selected as
//! often as common ones.
//!
//! Triples are made from pairs by a third call before the two (`three`).
//!
//! # Invariants
//!
//! * The same options make the same cases in the same order, on every machine.
//! * Every case has a unique name, which describes the calls and the starting state.
//! * No call of a set-up fails, except the third call of a triple.

pub mod branches;
mod fixture;
mod key;
mod space;
mod symbolic_path;
mod template;
mod three;

use std::collections::{BTreeMap, BTreeSet};

use vfscale_sync::random::Random;

use crate::case::{CallKind, Case, Outcome};
use crate::model::{State, commute};
use space::{Alias, Candidate, Space};

/// Kinds of calls that are combined in pairs, on any file system.
pub const KINDS: [CallKind; 28] = [
    CallKind::Open,
    CallKind::Tmpfile,
    CallKind::Close,
    CallKind::Stat,
    CallKind::Statx,
    CallKind::Lookup,
    CallKind::Fstat,
    CallKind::Link,
    CallKind::Unlink,
    CallKind::Rename,
    CallKind::Mkdir,
    CallKind::Rmdir,
    CallKind::Symlink,
    CallKind::Readlink,
    CallKind::Truncate,
    CallKind::Read,
    CallKind::Write,
    CallKind::Pread,
    CallKind::Pwrite,
    CallKind::Lseek,
    CallKind::Pipe,
    CallKind::Readdir,
    CallKind::Setxattr,
    CallKind::Getxattr,
    CallKind::Chmod,
    CallKind::Getcwd,
    CallKind::DPath,
    CallKind::Chdir,
];

/// Selection of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of the random choices.
    pub seed: u64,
    /// Maximum number of cases for a pair of kinds.
    pub per_pair: usize,
    /// Maximum number of points that are tried in a space.
    pub tries: usize,
    /// Maximum number of cases with a third call before the two.
    pub triples: usize,
    /// Whether to include `fsync`, which is useful on a volume.
    pub volume: bool,
}

impl Default for Options {
    /// Returns the options of the report, which give more than 10,000 cases.
    fn default() -> Options {
        Options { seed: 1, per_pair: 36, tries: 1200, triples: 500, volume: false }
    }
}

/// Generates all cases, pair by pair.
#[must_use]
pub fn all(options: &Options) -> Vec<Case> {
    let mut cases: Vec<_> = pairs(options).into_iter().flat_map(|pair| of(pair, options)).collect();
    let triples = three::triples(&cases, options.seed, options.triples);
    cases.extend(triples);
    cases
}

/// Selects `count` of all cases, distributed over the pairs of kinds as evenly as possible.
#[must_use]
pub fn sample(count: usize, options: &Options) -> Vec<Case> {
    let mut random = Random::new(options.seed ^ 0x7361_6d70_6c65);
    let mut groups = BTreeMap::<_, Vec<Case>>::new();
    for case in all(options) {
        groups.entry(case.pair).or_default().push(case);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    for group in &mut groups {
        random.shuffle(group);
    }
    in_turn(groups, count)
}

/// Returns all pairs of kinds, ordered as in [`CallKind`].
#[must_use]
pub fn pairs(options: &Options) -> Vec<(CallKind, CallKind)> {
    let mut kinds = KINDS.to_vec();
    if options.volume {
        kinds.push(CallKind::Fsync);
    }
    kinds.sort();
    let with_later = |(at, &first): (usize, &CallKind)| -> Vec<_> {
        kinds[at..].iter().map(|&second| (first, second)).collect()
    };
    kinds.iter().enumerate().flat_map(with_later).collect()
}

/// Generates the cases of a pair of kinds.
#[must_use]
pub fn of(pair: (CallKind, CallKind), options: &Options) -> Vec<Case> {
    let space = Space::new([pair.0, pair.1]);
    let number = pair.0 as u64 * 64 + pair.1 as u64;
    let mut random = Random::new(options.seed << 16 ^ number);
    let mut known = BTreeSet::new();
    let mut classes = BTreeMap::<Class, Vec<Case>>::new();
    for point in points(&space, options.tries, &mut random) {
        let Some(candidate) = space.candidate(point) else { continue };
        let Some((class, case)) = judged(&candidate, &mut known) else { continue };
        classes.entry(class).or_default().push(case);
    }
    let (succeed, fail): (Vec<_>, Vec<_>) =
        classes.into_iter().partition(|(class, _)| class.3 == [None, None]);
    let [mut succeed, mut fail] =
        [succeed, fail].map(|of| of.into_iter().map(|(_, cases)| cases).collect::<Vec<_>>());
    random.shuffle(&mut succeed);
    random.shuffle(&mut fail);
    let count = |groups: &[Vec<Case>]| groups.iter().map(Vec::len).sum::<usize>();
    let failing = count(&fail)
        .min((options.per_pair / 3).max(options.per_pair.saturating_sub(count(&succeed))));
    let mut chosen = in_turn(succeed, options.per_pair - failing);
    chosen.extend(in_turn(fail, failing));
    chosen
}

/// Returns the points to try, in random order. Many points of a large space contradict themselves,
/// so `tries` exceeds the number of wanted cases.
fn points(space: &Space, tries: usize, random: &mut Random) -> Vec<u64> {
    let mut points: Vec<u64> = if space.len() <= tries as u64 {
        (0..space.len()).collect()
    } else {
        (0..tries).map(|_| random.below(space.len())).collect()
    };
    random.shuffle(&mut points);
    points
}

/// Class of similar cases: the arguments, one process or two, what the calls share, and their
/// errors.
type Class = ((usize, usize), bool, Alias, [Option<i32>; 2]);

/// Returns the case of a candidate, if its calls commute and its key is new.
fn judged(candidate: &Candidate, known: &mut BTreeSet<String>) -> Option<(Class, Case)> {
    let Candidate { first, second, setup, .. } = candidate;
    let start = State::after(setup)?;
    let results = commute(&start, first, second)?;
    if !known.insert(key::of(&start, first, second)) {
        return None;
    }
    let class = (
        candidate.templates,
        first.process == second.process,
        candidate.alias,
        [&results.first, &results.second].map(failure),
    );
    let case = Case::new(candidate.name(), setup.clone(), first.clone(), second.clone());
    Some((class, case))
}

fn failure(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Error(errno) => Some(errno.raw_os_error()),
        _ => None,
    }
}

/// Takes one case of each group after the other, repeatedly, until `count` are taken or none is
/// left.
fn in_turn(groups: Vec<Vec<Case>>, count: usize) -> Vec<Case> {
    let mut groups: Vec<_> = groups.into_iter().map(Vec::into_iter).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let before = chosen.len();
        for group in &mut groups {
            if chosen.len() < count {
                chosen.extend(group.next());
            }
        }
        if chosen.len() == before {
            break;
        }
    }
    chosen
}

#[cfg(test)]
pub(crate) mod tests;
