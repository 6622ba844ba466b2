//! Tests of the published experiments, and of our figures next to them.

use super::*;
use crate::report::beside::{OUR_COLUMNS, ours};
use crate::report::table::number;
use crate::targets::MountSpec;

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
        for (target, only_volumes) in [
            (TargetSpec::Memory, Some(false)),
            (TargetSpec::Volume("image".into()), Some(true)),
            (TargetSpec::Mount(MountSpec::default()), Some(false)),
            (TargetSpec::parse("mount:image").unwrap(), Some(true)),
            (TargetSpec::Path("/".into()), None),
        ] {
            let all = PublishedRun { targets: vec![target], quick };
            for table in TABLES {
                let wanted =
                    only_volumes.is_none_or(|only| only == (table.figures != OurFigures::Memory));
                let mut plan = all.plan(table).unwrap();
                assert_eq!(plan.is_some(), wanted, "{}", table.title);
                plan.iter_mut().for_each(|plan| plan.check().unwrap());
            }
        }
    }
}

/// The bound is for two CPUs: more CPUs have more cases.
#[test]
fn the_whole_set_is_to_end_within_ten_minutes_on_two_cpus() {
    let targets = vec![
        TargetSpec::Memory,
        TargetSpec::Path(TMPFS.into()),
        TargetSpec::Volume("image".into()),
    ];
    let counts = worker_counts(Machine::this().cpus).len() as u32;
    let on_two =
        |quick| PublishedRun { targets: targets.clone(), quick }.estimate().unwrap() * 2 / counts;
    assert!(on_two(false) < Duration::from_secs(480), "{:?}", on_two(false));
    assert!(on_two(true) < on_two(false) / 4, "{:?}", on_two(true));
}

#[test]
fn a_row_has_before_and_after_in_the_documents_unit() {
    let table = TABLES.iter().find(|table| table.workloads == ["slob"]).unwrap();
    let mut plan = PublishedRun { targets: vec![TargetSpec::Memory], quick: true }
        .plan(table)
        .unwrap()
        .unwrap();
    plan.slice = Duration::from_millis(1);
    plan.threads = vec![2];
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let rows = ours(&report, table);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].len(), OUR_COLUMNS.len());
    assert_eq!(rows[0][..2], ["slob, MB/s of redo".to_owned(), "memory x2".to_owned()]);
    assert!(rows[0][2] != "-" && rows[0][4].ends_with('%'), "{rows:?}");
}

#[test]
fn a_journals_tables_share_a_run_and_have_rows_of_their_own() {
    let of = |title: &str| TABLES.iter().find(|table| table.title.contains(title)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let targets = vec![TargetSpec::Volume(dir.path().join("image.vfs"))];
    let all = PublishedRun { targets, quick: true };
    let mut plan = all.plan(of("truncating")).unwrap().unwrap();
    (plan.slice, plan.threads) = (Duration::from_millis(1), vec![10]);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let rows = ours(&report, of("truncating"));
    assert_eq!((rows.len(), rows[0][1].as_str()), (1, "volume x10"));
    let locks = ours(&report, of("orphan list's lock"));
    assert_eq!([locks[0][0].as_str(), &locks[1][0]], ["after x10", "before x10"]);
    let columns = of("orphan list's lock").our_columns().len();
    assert!(locks.iter().all(|row| row.len() == columns));
    let acquisitions = |row: &[String]| row[8].parse::<u64>().ok();
    assert_eq!(acquisitions(&locks[0]), None, "there is no such lock");
    assert!(acquisitions(&locks[1]).unwrap() > 0, "{locks:?}");

    let mut plan = all.plan(of("active transactions")).unwrap().unwrap();
    (plan.files, plan.threads) = (100, vec![1]);
    assert_eq!(plan.before.len(), 4);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    for table in ["active transactions", "CIL's counters", "CIL's lists", "all of these"].map(of) {
        let rows = ours(&report, table);
        let work: Vec<_> = rows.iter().map(|row| &row[0][..]).collect();
        assert_eq!(work, ["create-many, inode/s", "remove-many, inode/s"]);
        let ratio = report.ratios.iter().find(|ratio| table.is_about(&ratio.over.before)).unwrap();
        let before = report.results.iter().find(|result| result.case == ratio.over).unwrap();
        assert_eq!(rows[0][2], number(before.ops_per_s.median));
    }
    let rows = ours(&report, of("transactions in a second"));
    let lines: Vec<_> = rows.iter().map(|row| [&row[0][..], &row[1], &row[2]]).collect();
    assert_eq!(lines.len(), 2 * 4);
    assert_eq!(lines[0], ["create-many", "volume x1", "active-trans"]);
    assert!(rows.iter().all(|row| row[3] != "-" && row[5].ends_with('%')), "{rows:?}");
    let journal = report.results[0].journal.as_ref().unwrap();
    assert!(journal.transactions_per_op >= 1.0 && journal.transactions_per_s.min > 0.0);
}

/// A watch that records the progress.
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
    let mut part = PartWatch { watch: &mut progress, done: 0.25, share: 0.5 };
    part.at(0.0, &name);
    part.at(1.0, &name);
    assert_eq!(progress.0, [0.25, 0.75]);
}
