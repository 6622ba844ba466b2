//! What stands beside the seeds' tables.

use super::*;
use crate::report::CaseName;

#[test]
fn workers_are_counted_up_to_the_cpus() {
    assert_eq!(worker_counts(1), [1, 2]);
    assert_eq!(worker_counts(2), [1, 2]);
    assert_eq!(worker_counts(6), [1, 2, 4, 6]);
    assert_eq!(worker_counts(8), [1, 2, 4, 8]);
}

#[test]
fn every_plan_makes_sense() {
    for quick in [false, true] {
        let seeds = Seeds { targets: vec![TargetSpec::Memory], quick };
        for table in TABLES {
            seeds.plan(table).unwrap().check().unwrap();
        }
        let seeds = Seeds { targets: vec![TargetSpec::Path("/".into())], quick };
        for table in TABLES {
            seeds.plan(table).unwrap().check().unwrap();
        }
    }
}

#[test]
fn a_row_has_before_and_after_in_the_seeds_unit() {
    let table = TABLES.iter().find(|table| table.workloads == ["slob"]).unwrap();
    let mut plan = Seeds { targets: vec![TargetSpec::Memory], quick: true }.plan(table).unwrap();
    plan.slice = Duration::from_millis(1);
    plan.threads = vec![2];
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let rows = ours(&report, table);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].len(), OUR_COLUMNS.len());
    assert_eq!(rows[0][..2], ["slob, MB/s of redo".to_owned(), "memory x2".to_owned()]);
    assert!(rows[0][2] != "-" && rows[0][4].ends_with('%'), "{rows:?}");
}

/// Notes how far it is said to be.
struct Progress(Vec<f64>);

impl Watch for Progress {
    fn at(&mut self, done: f64, _: &CaseName) {
        self.0.push(done);
    }
}

#[test]
fn parts_add_up() {
    let name = CaseName {
        workload: String::new(),
        target: String::new(),
        threads: 1,
        users: None,
        before: vec![],
    };
    let mut progress = Progress(vec![]);
    let mut part = Part { watch: &mut progress, done: 0.25, share: 0.5 };
    part.at(0.0, &name);
    part.at(1.0, &name);
    assert_eq!(progress.0, [0.25, 0.75]);
}
