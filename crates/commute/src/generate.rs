//! Cases that commute, as many as one likes.
//!
//! # How
//!
//! For every two kinds of calls there is a *space* of cases (`space`): which call of each kind, which of
//! their paths, directories and slots are the same, what is at each name and open at each slot, whether
//! both calls are made by one process, where the processes are, and what is mounted. A point of the space
//! is a number. Points are tried, all of them if there are not too many, or else as many as
//! [`Options::tries`] says, drawn by the seed. A point that contradicts itself is passed over; of the others
//! the [model](crate::model) tells whether the two calls commute there.
//!
//! Cases that differ in names only are one case: directories, names and slots are numbered in the order in
//! which the calls mention them, and cases of two calls of one kind that differ in which comes first are
//! found by writing both down in that order (`key`). This is what COMMUTER's isomorphism groups are for
//! (the page of [`model`](crate::model) has the source).
//!
//! Of what commutes, at most [`Options::per_pair`] are kept for each two kinds: two thirds of them cases in
//! which both calls succeed, as far as there are such. They are chosen in turn from *classes*: the same
//! arguments, the same outcomes as far as they are errors, one process or two, the same things in common. So
//! what is rare is kept as what is common.
//!
//! Triples are made from pairs, by a third call before them (`three`).
//!
//! # Invariants
//!
//! * The same options make the same cases in the same order, on every machine.
//! * Every case has a name that no other has, which says what the calls are and where they start.
//! * No call of a set-up fails, but for the third one of a triple.

mod fixture;
mod key;
mod space;
mod spot;
mod template;
mod three;

use std::collections::{BTreeMap, BTreeSet};

use vfscale_sync::random::Random;

use crate::case::{Call, CallKind, Case, Outcome};
use crate::model::{State, commute};
use space::{Alias, Candidate, Space};

/// The calls of which every two are tried, on any file system.
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

/// Which cases are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What chance begins with.
    pub seed: u64,
    /// The most cases for two kinds.
    pub per_pair: usize,
    /// The most points of a space that are tried, if it has more.
    pub tries: usize,
    /// The most cases with a third call before them.
    pub triples: usize,
    /// Whether `fsync` is among the calls, which makes sense on a volume.
    pub volume: bool,
}

impl Default for Options {
    /// What the report is made from: more than 10,000 cases.
    fn default() -> Options {
        Options { seed: 1, per_pair: 36, tries: 1200, triples: 500, volume: false }
    }
}

/// All cases, two kinds after the other.
#[must_use]
pub fn all(options: &Options) -> Vec<Case> {
    let mut cases: Vec<_> = pairs(options).into_iter().flat_map(|pair| of(pair, options)).collect();
    let triples = three::triples(&cases, options);
    cases.extend(triples);
    cases
}

/// So many of all cases, spread over the kinds as evenly as they allow.
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

/// Every two kinds, in the order of their names in [`CallKind`].
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

/// The cases of two kinds.
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

/// The points that are tried. Of a large space more are drawn than are wanted, since many points of it
/// contradict themselves.
fn points(space: &Space, tries: usize, random: &mut Random) -> Vec<u64> {
    let mut points: Vec<u64> = if space.len() <= tries as u64 {
        (0..space.len()).collect()
    } else {
        (0..tries).map(|_| random.below(space.len())).collect()
    };
    random.shuffle(&mut points);
    points
}

/// What cases are chosen in turn by: the arguments, one process or two, what both calls have in common, and
/// what fails how.
type Class = ((usize, usize), bool, Alias, [Option<i32>; 2]);

/// The case of a candidate, if the two calls commute there and it was not seen before.
fn judged(candidate: &Candidate, known: &mut BTreeSet<String>) -> Option<(Class, Case)> {
    let Candidate { first, second, setup, .. } = candidate;
    let start = started(setup)?;
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

/// The state after a set-up, if none of its calls fails.
fn started(setup: &[Call]) -> Option<State> {
    let mut state = State::new();
    let done = setup.iter().all(|call| !matches!(state.call(call), Outcome::Error(_)));
    done.then_some(state)
}

fn failure(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Error(errno) => Some(errno.raw_os_error()),
        _ => None,
    }
}

/// One of each group in turn, until there are `count` or none is left.
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
