//! Less of a state that fails.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
//! IEEE TSE 28, 2002) of the steps that are lost: parts of them are given back, as long as the rest
//! can be lost without them, and fails.

use std::collections::BTreeSet;

use crate::promise::History;
use crate::state::State;

/// The states that are tried for one.
const TRIES: usize = 64;

/// Shrinks a state. `fails` tells whether one still fails.
pub(crate) fn shrink<E>(
    history: &History,
    state: &State,
    mut fails: impl FnMut(&State) -> Result<bool, E>,
) -> Result<State, E> {
    let mut tries = 0..TRIES;
    let mut best = state.clone();
    let mut part = best.lost.len().div_ceil(2);
    while part > 0 {
        let (before, mut at) = (best.lost.len(), 0);
        while at < best.lost.len() {
            let Some(smaller) = without(history, &best, (at, part)) else {
                at += part;
                continue;
            };
            if tries.next().is_none() {
                return Ok(best);
            }
            match fails(&smaller)? {
                true => best = smaller,
                false => at += part,
            }
        }
        part = if part > 1 || best.lost.len() == before { part / 2 } else { 1 };
    }
    // The first moment at which it fails.
    let (mut low, mut high) = (best.lost.last().map_or(best.cut, |last| last + 1), best.cut);
    while low < high && tries.next().is_some() {
        let cut = low.midpoint(high);
        let earlier = State { cut, ..best.clone() };
        match fails(&earlier)? {
            true => (best, high) = (earlier, cut),
            false => low = cut + 1,
        }
    }
    Ok(best)
}

/// Gives a part of what a state has lost back, with what can't be lost alone then. `None` if that
/// leaves nothing of a torn write to tell.
fn without(history: &History, state: &State, (at, part): (usize, usize)) -> Option<State> {
    let kept =
        state.lost.iter().enumerate().filter(|(number, _)| !(at..at + part).contains(number));
    let mut lost: BTreeSet<usize> = kept.map(|(_, index)| *index).collect();
    loop {
        let is_whole =
            |index: &usize| history.implied(*index, state.cut).all(|other| lost.contains(&other));
        let closed: BTreeSet<usize> = lost.iter().copied().filter(is_whole).collect();
        if closed.len() == lost.len() {
            break;
        }
        lost = closed;
    }
    let has_torn = state.torn.is_none_or(|(torn, _)| lost.contains(&torn));
    has_torn.then(|| State { lost, ..state.clone() })
}
