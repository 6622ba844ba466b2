//! Tests of the contents of plots.

use std::time::Duration;

use super::*;
use crate::base::interrupt::Interrupt;
use crate::targets::TargetSpec;
use crate::{Plan, run};

fn measured(name: &str) -> Report {
    let mut plan = Plan::new(vec![workloads::find(name).unwrap()], vec![TargetSpec::Memory]);
    plan.threads = vec![2, 1];
    plan.before = vec![vec!["all".into()]];
    plan.users = vec![1, 3];
    plan.slice = Duration::from_millis(1);
    plan.warm_up = Duration::from_millis(1);
    run(&plan, &Interrupt::new(), &mut ()).unwrap()
}

#[test]
fn before_and_after_are_in_one_picture_against_cpus() {
    let report = measured("stat-deep");
    let workload = workloads::find("stat-deep").unwrap();
    let picture = Picture::of(&report, workload).unwrap();
    let names: Vec<&str> = picture.lines.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["memory", "memory, before all patches"]);
    // Points are sorted, whatever the order of measurement.
    assert_eq!(picture.lines[0].1.iter().map(|(x, _)| *x).collect::<Vec<_>>(), [1.0, 2.0]);
    // The time of an operation, since the document plots time.
    let two = report.results.iter().find(|r| r.case.threads == 2 && r.case.before.is_empty());
    let due = 2e9 / two.unwrap().ops_per_s.median;
    assert!((picture.lines[0].1[1].1.median - due).abs() < 1e-6);
    let text = svg(&report, workload).unwrap().unwrap();
    for word in ["CPUs used", "lower is better", "before all patches"] {
        assert!(text.contains(word), "{word}");
    }
    assert!(svg(&report, workloads::find("slob").unwrap()).unwrap().is_none());
}

#[test]
fn aim_is_drawn_against_users_in_jobs_per_minute() {
    let report = measured("aim-short");
    let picture = Picture::of(&report, workloads::find("aim-short").unwrap()).unwrap();
    assert_eq!((picture.x, picture.lines.len()), ("users", 4));
    assert!(picture.y.starts_with("jobs/min"));
    let users = &report.results[0];
    let drawn = value(workloads::find("aim-short").unwrap(), users).median;
    assert!((drawn - users.ops_per_s.median * 60.0).abs() < 1e-6);
}
