//! The states that are tried.

use std::collections::{BTreeSet, HashSet};

use crate::event::Kind;
use crate::log::Log;
use crate::promise::History;
use crate::state::State;
use crate::tree::Tree;

/// The states that are looked at before those with the same tree are left out: of a log with more,
/// some moments of the power cut are left out.
const CANDIDATES: usize = 200_000;

/// Returns the states with different trees.
pub(crate) fn all(log: &Log, history: &History) -> Vec<State> {
    let mut seen = HashSet::new();
    let mut states = Vec::new();
    for cut in cuts(log) {
        let mut candidates = at(log, history, cut);
        // Of those with the same tree the one stays that has lost least.
        candidates.sort_by_key(|state| state.lost.len());
        let said = log.said(cut).len();
        candidates.retain(|state| seen.insert((Tree::of(log, state), said)));
        states.append(&mut candidates);
    }
    states
}

/// Returns the moments of the power cut: behind each step that is none, or all of a long log.
fn cuts(log: &Log) -> Vec<usize> {
    let is_sync = |cut: &usize| {
        log.events[cut - 1].kind() == Kind::Mark && log.events[cut - 1].object().is_some()
    };
    let cuts: Vec<usize> = (1..=log.events.len()).filter(|cut| !is_sync(cut)).collect();
    // Each has four candidates for each step before it.
    let candidates = 2 * cuts.len() * log.events.len();
    let step = candidates.div_ceil(CANDIDATES).max(1);
    let last = cuts.len().wrapping_sub(1);
    let taken = cuts.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    taken.map(|(_, cut)| *cut).collect()
}

/// Returns the states that are tried for one moment.
fn at(log: &Log, history: &History, cut: usize) -> Vec<State> {
    let is_change = |index: &usize| log.events[*index].kind() != Kind::Mark;
    let free: Vec<usize> =
        (0..cut).filter(is_change).filter(|index| history.is_free(*index, cut)).collect();
    let mut states = Vec::new();
    let mut add = |lost: BTreeSet<usize>, torn| {
        states.extend(history.close(lost, cut).map(|lost| State { cut, lost, torn }));
    };
    add(BTreeSet::new(), None);
    for (at, index) in free.iter().enumerate() {
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
