//! Tests that the scripts serve their purpose.

use std::collections::BTreeSet;

use super::*;
use crate::model::history::History;
use crate::model::tree::Times;
use crate::model::tree::Tree;

#[test]
fn every_kind_is_there_and_does_something_alone() {
    for &kind in KINDS {
        let op = kind.op(&Focus::first(), 1);
        let history = History::of(&setup(), std::slice::from_ref(&op)).unwrap();
        assert_eq!(history.steps[0].result, Ok(()), "{op}");
        let timeless = |tree: &Tree| {
            let mut nodes = tree.nodes.clone();
            nodes.values_mut().for_each(|node| node.times = Times::default());
            nodes
        };
        let changed = timeless(&history.trees[0]) != timeless(&history.trees[1]);
        let syncs = history.steps[0].synced.is_some() || op.syncs_all();
        // Neither allocation within a file nor a discard changes data.
        let quiet = matches!(kind, Kind::AllocateKeep | Kind::Times | Kind::Trim);
        assert_eq!(changed, !syncs && !quiet, "{op}");
    }
}

#[test]
fn there_are_all_pairs() {
    let pairs = pairs();
    assert_eq!(pairs.len(), KINDS.len() * KINDS.len() * 2);
    let names: BTreeSet<&str> = pairs.iter().map(|script| script.name.as_str()).collect();
    assert_eq!(names.len(), pairs.len());
}

/// Most second calls of a pair succeed.
#[test]
fn most_calls_succeed() {
    let (mut good, mut all) = (0, 0);
    for script in pairs().iter().step_by(37) {
        let history = History::of(&setup(), &script.ops).unwrap();
        all += history.steps.len();
        good += history.steps.iter().filter(|step| step.result.is_ok()).count();
    }
    assert!(good * 10 > all * 8, "{good} of {all}");
}

#[test]
fn scripts_follow_from_their_seed() {
    let names = |seed| random(&mut Random::new(seed), 20).name;
    assert_eq!(names(1), names(1));
    assert_ne!(names(1), names(2));
}
