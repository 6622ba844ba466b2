//! Tests of the published experiments, and of our figures next to them.

use super::*;
use crate::base::results::SharedLines;
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
            let all = published(vec![target], quick);
            for table in TABLES {
                let is_slots = matches!(table.figures, OurFigures::Slots(_));
                let is_library = all.targets[0].is_library();
                let wanted = only_volumes.is_none_or(|only| only == table.on_volumes)
                    && (is_library || !is_slots);
                let mut plans = all.plans_of(table).unwrap();
                let due = if wanted { slots_of(table).len() } else { 0 };
                assert_eq!(plans.len(), due, "{}", table.title);
                plans.iter_mut().for_each(|plan| plan.check().unwrap());
            }
        }
    }
}

/// The bound is for two CPUs: more CPUs have more cases.
#[test]
fn the_whole_set_is_to_end_within_twenty_minutes_on_two_cpus() {
    let targets = vec![
        TargetSpec::Memory,
        TargetSpec::Path(TMPFS.into()),
        TargetSpec::Volume("image".into()),
    ];
    let counts = worker_counts(Machine::this().cpus).len() as u32;
    let on_two = |quick| published(targets.clone(), quick).estimate().unwrap() * 2 / counts;
    assert!(on_two(false) < Duration::from_secs(1_000), "{:?}", on_two(false));
    assert!(on_two(true) < Duration::from_secs(150), "{:?}", on_two(true));
}

#[test]
fn a_row_has_before_and_after_in_the_documents_unit() {
    let table = TABLES.iter().find(|table| table.workloads == ["slob"]).unwrap();
    let mut plan = quick_plan(table, TargetSpec::Memory, None);
    plan.slice = Duration::from_millis(1);
    plan.mixes = vec![(1, 2), (3, 0)];
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let rows = ours(&report, table);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].len(), OUR_COLUMNS.len());
    assert_eq!(rows[0][..2], ["slob, MB/s of redo", "memory 1 readers 2 writers"]);
    assert_eq!(rows[1][..2], ["slob, query/s", "memory 3 readers 0 writers"]);
    assert!(rows.iter().all(|row| row[2] != "-" && row[4].ends_with('%')), "{rows:?}");
    let load = TABLES.iter().find(|table| table.figures == OurFigures::Load).unwrap();
    let rows = ours(&report, load);
    assert_eq!((rows[0][..2].concat(), rows[1][..2].concat()), ("12".into(), "30".into()));
    let share = |cell: &String| cell.strip_suffix('%').and_then(|cell| cell.parse::<f64>().ok());
    let shares = |row: &[String]| row[2..].iter().map(share).collect::<Option<Vec<f64>>>();
    for row in &rows {
        assert_eq!(row.len(), load.our_columns().len());
        assert!(shares(row).is_some_and(|all| all.iter().all(|x| (0.0..=101.0).contains(x))));
    }
    // Three busy workers of the process take its time, and nearly none of the kernel's.
    assert!(shares(&rows[0]).unwrap()[3] > 1.0, "{rows:?}");
}

fn published(targets: Vec<TargetSpec>, quick: bool) -> PublishedRun {
    PublishedRun { targets, quick, worker_command: vec!["worker".into()] }
}

/// Returns the plan of the run for a table, with short rounds.
fn quick_plan(table: &PublishedTable, target: TargetSpec, cpus: Option<usize>) -> Plan {
    published(vec![target.clone()], true).plan(table, vec![target], cpus).unwrap().unwrap()
}

/// Directories are measured by processes where the document does that, and in a run of their own:
/// the library works in one process.
#[test]
fn documents_of_processes_have_runs_of_processes() {
    let targets = vec![
        TargetSpec::Memory,
        TargetSpec::Volume("image".into()),
        TargetSpec::Path(TMPFS.into()),
        TargetSpec::Path("/".into()),
    ];
    let mut all = published(targets, true);
    let plans = all.plans().unwrap();
    let by_processes = |name: &str| -> Vec<(bool, usize)> {
        let of = |plan: &&Plan| plan.workloads.iter().any(|workload| workload.name == name);
        plans.iter().filter(of).map(|plan| (plan.processes, plan.targets.len())).collect()
    };
    assert_eq!(by_processes("close-sockets"), [(false, 1), (true, 2)]);
    assert_eq!(by_processes("orphan-truncate"), [(false, 1), (true, 1)]);
    assert_eq!(by_processes("stat-deep"), [(false, 3)]);
    for mut plan in plans.clone() {
        plan.check().unwrap();
    }
    // Without a command for workers all are threads.
    all.worker_command.clear();
    assert!(all.plans().unwrap().iter().all(|plan| !plan.processes));
}

#[test]
fn shares_of_time_in_locks_have_rows() {
    let table = TABLES.iter().find(|table| table.figures == OurFigures::Waiting).unwrap();
    let mut plan = quick_plan(table, TargetSpec::Memory, None);
    (plan.slice, plan.threads) = (Duration::from_millis(1), vec![2]);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    assert!(report.results.iter().all(|r| r.lockstat_round.is_some_and(|r| r.operations > 0)));
    let rows = ours(&report, table);
    assert_eq!((rows.len(), &rows[0][0][..], &rows[0][1][..]), (1, "path-jobs", "memory x2"));
    assert!(rows[0][2..].iter().all(|cell| cell.ends_with('%')), "{rows:?}");
}

#[test]
fn the_slow_side_has_a_row_for_each_number_of_slots() {
    let dir = tempfile::tempdir().unwrap();
    for target in [TargetSpec::Memory, TargetSpec::Volume(dir.path().join("image.vfs"))] {
        let is_of = |table: &&PublishedTable| {
            matches!(table.figures, OurFigures::Slots(_)) && table.is_on(&target)
        };
        let table = TABLES.iter().find(is_of).unwrap();
        let mut whole = Report::empty(0);
        for cpus in [2, 64] {
            let mut plan = quick_plan(table, target.clone(), Some(cpus));
            assert!(plan.before.is_empty() && plan.threads == [1] && !plan.lockstat);
            plan.slice = Duration::from_millis(1);
            whole = whole.and(run(&plan, &Interrupt::new(), &mut ()).unwrap());
        }
        assert!(whole.is_complete(), "{whole:?}");
        let rows = ours(&whole, table);
        let seen: Vec<_> = rows.iter().map(|row| [&row[0][..], &row[1]]).collect();
        let [one, other] = [table.workloads[0], table.workloads[1]];
        assert_eq!(seen, [[one, "2"], [other, "2"], [one, "64"], [other, "64"]]);
        assert!(rows[..2].iter().all(|row| row[3] == "1.00" && row[2].ends_with(" ns")));
        // These figures are in no other table.
        let others = TABLES.iter().filter(|other| !std::ptr::eq(*other, table));
        assert!(others.into_iter().all(|other| ours(&whole, other).is_empty()));
    }
}

#[test]
fn a_journals_tables_share_a_run_and_have_rows_of_their_own() {
    let of = |title: &str| TABLES.iter().find(|table| table.title.contains(title)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let target = TargetSpec::Volume(dir.path().join("image.vfs"));
    let mut plan = quick_plan(of("truncating"), target.clone(), None);
    (plan.slice, plan.threads) = (Duration::from_millis(100), vec![10]);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let rows = ours(&report, of("truncating"));
    assert_eq!((rows.len(), rows[0][1].as_str()), (1, "volume x10"));
    // Seconds are those of 100,000 operations of each worker, at the rate of each round.
    let after = report.results.iter().find(|result| result.case.before.is_empty()).unwrap();
    let runs: Vec<f64> = after.rounds.iter().map(|rate| 1e6 / rate).collect();
    let (mean, deviation) = crate::base::stats::mean_and_deviation(&runs);
    assert_eq!(rows[0][4..6], [number(mean), number(deviation)]);
    assert!(rows[0][2] != "-" && rows[0][6].ends_with('%') && rows[0][8] != "-", "{rows:?}");
    let locks = ours(&report, of("orphan list's lock, 10"));
    assert_eq!([locks[0][0].as_str(), &locks[1][0]], ["after x10", "before x10"]);
    let columns = of("orphan list's lock").our_columns().len();
    assert!(locks.iter().all(|row| row.len() == columns));
    let acquisitions = |row: &[String]| row[8].parse::<u64>().ok();
    assert_eq!(acquisitions(&locks[0]), None, "there is no such lock");
    assert!(acquisitions(&locks[1]).unwrap() > 0, "{locks:?}");

    let mut plan = quick_plan(of("active transactions"), target, None);
    (plan.files, plan.threads) = (100, vec![1]);
    assert_eq!(plan.before.len(), 6);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let patches = ["only read", "active transactions", "CIL's counters", "CIL's lists", "busy"];
    for table in patches.iter().chain(&["all of these"]).map(|title| of(title)) {
        let rows = ours(&report, table);
        let work: Vec<_> = rows.iter().map(|row| &row[0][..]).collect();
        assert_eq!(work, ["create-many, inode/s", "remove-many, inode/s"]);
        let ratio = report.ratios.iter().find(|ratio| table.is_about(&ratio.over.before)).unwrap();
        let before = report.results.iter().find(|result| result.case == ratio.over).unwrap();
        assert_eq!(rows[0][2], number(before.ops_per_s.median));
    }
    let rows = ours(&report, of("transactions in a second"));
    let lines: Vec<_> = rows.iter().map(|row| [&row[0][..], &row[1], &row[2]]).collect();
    assert_eq!(lines.len(), 2 * 6);
    assert_eq!(lines[0], ["create-many", "volume x1", "read-mostly"]);
    assert!(rows.iter().all(|row| row[3] != "-" && row[5].ends_with('%')), "{rows:?}");
    let journal = report.results[0].journal.as_ref().unwrap();
    assert!(journal.transactions_per_op >= 1.0 && journal.transactions_per_s.min > 0.0);
    expect_counts(report, of("counted"));
}

/// Checks the rows of the shared lines that were counted after a run.
fn expect_counts(mut report: Report, table: &PublishedTable) {
    assert!(ours(&report, table).is_empty(), "nothing was counted");
    for (at, (workload, before)) in crate::published::cases_to_count().into_iter().enumerate() {
        // The first case has no patches disabled.
        let touches_max = if before.is_empty() { 105 } else { 100 + at as u64 };
        report.counts.push(SharedLines {
            workload: workload.to_owned(),
            target: "volume".to_owned(),
            before: before.iter().map(ToString::to_string).collect(),
            operations: 16,
            lines: at as u64,
            touches_min: touches_max - u64::from(before.is_empty()) * 5,
            touches_max,
        });
    }
    let rows = ours(&report, table);
    assert_eq!(rows.len(), 2 * 6);
    assert!(rows.iter().all(|row| row.len() == table.our_columns().len()));
    assert_eq!(rows[0][..6], ["create-many", "read-mostly", "1", "0", "101", "100 to 105"]);
    assert!(rows[0][10].starts_with("no difference"), "{rows:?}");
    assert_eq!((&rows[5][4][..], &rows[5][10][..]), ("106", "fewer touches of shared lines"));
    assert!(rows.iter().all(|row| (6..10).all(|at| row[at].parse::<f64>().is_ok())), "{rows:?}");
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
        readers: None,
        before: vec![],
    };
    let mut progress = Progress(vec![]);
    let mut part = PartWatch { watch: &mut progress, done: 0.25, share: 0.5 };
    part.at(0.0, &name);
    part.at(1.0, &name);
    assert_eq!(progress.0, [0.25, 0.75]);
}
