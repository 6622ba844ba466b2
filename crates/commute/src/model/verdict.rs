//! Do calls commute?
//!
//! Calls commute in a state if they give the same outcomes in every order, and if what is left can't be told
//! apart by any later call. The rule asks more of three calls than of two (*SIM* commutativity): all that
//! holds for each part of them that some order makes first. For then an implementation may hold back none
//! of them.

use super::{Snapshot, State};
use crate::case::{Call, Case, Outcome};

/// What two calls give, in whichever order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// What the first gives.
    pub first: Outcome,
    /// What the second gives.
    pub second: Outcome,
}

/// What two calls give in a state, if they commute there.
#[must_use]
pub fn commute(start: &State, first: &Call, second: &Call) -> Option<Results> {
    let fresh = start.inodes_ever();
    let (one, snapshot) = in_order(start, [first, second], fresh);
    let (other, other_snapshot) = in_order(start, [second, first], fresh);
    let [second_then, first_then] = other;
    let same = one == [first_then, second_then] && snapshot.text() == other_snapshot.text();
    let [first, second] = one;
    same.then_some(Results { first, second })
}

/// Whether three calls commute in a state: every two of them, also after the third, and none of them
/// gives something else there.
#[must_use]
pub fn commute_three(start: &State, calls: [&Call; 3]) -> bool {
    (0..3).all(|third| {
        let [a, b] = [calls[(third + 1) % 3], calls[(third + 2) % 3]];
        let mut after = start.clone();
        let _ = after.call(calls[third]);
        let before = commute(start, a, b);
        before.is_some() && before == commute(&after, a, b)
    })
}

/// The outcomes of calls that are made one after the other, and what is left.
fn in_order<const N: usize>(
    start: &State,
    calls: [&Call; N],
    fresh: usize,
) -> ([Outcome; N], Snapshot) {
    let mut state = start.clone();
    state.note_times();
    let outcomes = calls.map(|call| state.call(call));
    let snapshot = state.snapshot(fresh);
    (outcomes.map(|outcome| snapshot.renumber(outcome, fresh)), snapshot)
}

/// What each call of a case gives: those of the set-up, then the first, then the second.
#[must_use]
pub fn outcomes(case: &Case) -> Vec<Outcome> {
    let mut state = State::new();
    let mut outcomes: Vec<_> = case.setup.iter().map(|call| state.call(call)).collect();
    state.note_times();
    outcomes.extend([&case.first, &case.second].map(|call| state.call(call)));
    outcomes
}
