use std::collections::BTreeSet;

use super::*;
use crate::model::history::History;

/// Counts the workloads of one call, and of two that change metadata: a change of the table, or of
/// what counts as alike, shows in them.
#[test]
fn workloads_are_the_bounded_ones_each_once() {
    let counts = [(Table::All, 1), (Table::Metadata, 1), (Table::Metadata, 2)];
    let counts = counts.map(|(table, length)| {
        let names: Vec<String> = workloads(table, length).map(|script| script.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        names.len()
    });
    assert_eq!(counts, [110, 46, 8_846]);
}

#[test]
fn calls_of_workloads_succeed() {
    let all = workloads(Table::All, 1).chain(workloads(Table::Metadata, 2).step_by(20));
    for script in all.chain(historic()) {
        let history = History::of(&setup(), &script.ops).unwrap();
        for step in &history.steps {
            assert_eq!(step.result, Ok(()), "{}: {}", script.name, step.op);
        }
    }
}
