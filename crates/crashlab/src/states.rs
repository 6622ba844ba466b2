//! The states that are tried.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::event::{Event, Kind};
use crate::log::Log;
use crate::promise::History;
use crate::state::State;
use crate::tree::Tree;

/// The steps that all candidates for a state may have together.
const WORK: usize = 8_000_000;

/// Returns the states with different trees.
pub(crate) fn all(log: &Log, history: &History) -> Vec<State> {
    let (mut seen, mut states) = (HashSet::new(), Vec::new());
    let step = step(log.events.len());
    for cut in cuts(log, step) {
        let mut candidates = at(log, history, (cut, step));
        // Of those with the same tree the one stays that has lost least.
        candidates.sort_by_key(|state| state.lost.len());
        let said = log.events[..cut].iter().filter(|it| matches!(it, Event::Said(_))).count();
        candidates.retain(|state| {
            let mut hasher = DefaultHasher::new();
            (Tree::of(log, state), said).hash(&mut hasher);
            seen.insert(hasher.finish())
        });
        states.append(&mut candidates);
    }
    states
}

/// Returns of how many moments of the power cut one is tried, and of how many steps that are lost
/// then. Of a long log not all are.
fn step(steps: usize) -> usize {
    // For each moment there are four candidates for each step before it.
    let work = steps.saturating_mul(steps).saturating_mul(2 * steps);
    (work / WORK).isqrt().max(1)
}

/// Returns the moments of the power cut, behind steps.
fn cuts(log: &Log, step: usize) -> Vec<usize> {
    let is_sync = |cut: &usize| {
        log.events[cut - 1].kind() == Kind::Mark && log.events[cut - 1].object().is_some()
    };
    let cuts: Vec<usize> = (1..=log.events.len()).filter(|cut| !is_sync(cut)).collect();
    let last = cuts.len().wrapping_sub(1);
    let taken = cuts.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    taken.map(|(_, cut)| *cut).collect()
}

/// Returns the states that are tried for one moment.
fn at(log: &Log, history: &History, (cut, step): (usize, usize)) -> Vec<State> {
    let is_change = |index: &usize| log.events[*index].kind() != Kind::Mark;
    let free: Vec<usize> =
        (0..cut).filter(is_change).filter(|index| history.is_free(*index, cut)).collect();
    let mut states = Vec::new();
    let mut add = |lost: BTreeSet<usize>, torn| {
        states.extend(history.close(lost, cut).map(|lost| State { cut, lost, torn }));
    };
    add(BTreeSet::new(), None);
    // Others for each moment.
    for (at, index) in free.iter().enumerate().skip(cut % step).step_by(step) {
        add([*index].into(), None);
        for part in history.parts(*index, &log.events[*index]) {
            add([*index].into(), Some((*index, part)));
        }
        add(free[at..].iter().copied().collect(), None);
        let others = free.iter().copied().filter(|other| other != index).collect();
        add(others, None);
    }
    states
}
