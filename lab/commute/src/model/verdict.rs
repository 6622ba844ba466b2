//! Decides whether calls commute.
//!
//! Calls commute in a state if each returns the same outcome in every order, and no later call can
//! distinguish the resulting states. For three calls the rule requires more (*SIM* commutativity):
//! every prefix of every order must commute too, because an implementation must not delay any of
//! the calls.

use super::snapshot::Snapshot;
use super::state::State;
use crate::case::{Call, Case, Outcome};

/// Outcomes of two calls, equal in both orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// Outcome of the first call.
    pub first: Outcome,
    /// Outcome of the second call.
    pub second: Outcome,
}

/// Returns the outcomes of two calls in a state, or `None` if the calls do not commute there.
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

/// Returns whether three calls commute in a state: every two of them commute, before and after the
/// third, with the same outcomes.
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

/// Makes calls one after the other; returns their outcomes and the observable state they leave.
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

/// Returns the outcome of each call of a case: of the set-up, then of the first, then of the
/// second.
#[must_use]
pub fn outcomes(case: &Case) -> Vec<Outcome> {
    let mut state = State::new();
    let mut outcomes: Vec<_> = case.setup.iter().map(|call| state.call(call)).collect();
    state.note_times();
    outcomes.extend([&case.first, &case.second].map(|call| state.call(call)));
    outcomes
}
