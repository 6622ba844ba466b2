//! Tests of the sections: valid tables, and their contents.

use std::time::Duration;

use super::*;
use crate::base::interrupt::Interrupt;
use crate::targets::TargetSpec;
use crate::{Plan, run};

/// Measures memory and a directory, with one worker and with two, and memory without a patch.
fn report() -> Report {
    let names = ["stat-deep", "aim-short"].map(|name| workloads::find(name).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = TargetSpec::Path(dir.path().to_owned());
    let mut plan = Plan::new(names.into(), vec![TargetSpec::Memory, path]);
    plan.threads = vec![1, 2];
    plan.before = vec![vec!["lockref".into()]];
    plan.users = vec![3];
    plan.slice = Duration::from_millis(1);
    plan.warm_up = Duration::from_millis(1);
    run(&plan, &Interrupt::new(), &mut ()).unwrap()
}

/// Returns the cells of each line of the tables below a heading.
fn tables(page: &str, heading: &str) -> Vec<Vec<String>> {
    let below = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let below = below.split("\n## ").next().unwrap();
    let lines = below.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    lines.map(|line| line.split(" | ").map(str::to_owned).collect()).collect()
}

fn expect_rectangular(page: &str) {
    let mut width = None;
    for line in page.lines() {
        if !line.starts_with('|') {
            width = None;
            continue;
        }
        let cells = line.replace("\\|", "").matches('|').count();
        assert_eq!(*width.get_or_insert(cells), cells, "{line}");
    }
}

#[test]
fn targets_stand_beside_each_other() {
    let report = report();
    let page = render(&report, false);
    expect_rectangular(&page);
    let directory = report.results.iter().find_map(|result| result.mount.as_ref()).unwrap();
    for heading in ["1 worker, in a second", "2 workers, in a second"] {
        let table = tables(&page, heading);
        assert_eq!(table[0], ["workload", "of", "memory", &directory.fs_type]);
        assert_eq!(table[1], ["---", "---", "---:", "---:"]);
        assert_eq!(
            [&table[2][..2], &table[3][..2]].concat(),
            ["stat-deep", "stat/s", "aim-short, 3 users", "jobs/min"]
        );
        assert!(table[2..].iter().flatten().all(|cell| cell != "-"), "{table:?}");
    }
    let threads = tables(&page, "2 workers over 1");
    assert_eq!((threads.len(), threads[2][0].as_str()), (4, "stat-deep"));
    assert!(threads[2][2].contains(".."), "{threads:?}");
    let over = tables(&page, "1 worker, over memory");
    assert_eq!(over[0], ["workload", &directory.fs_type]);
    assert_eq!((over.len(), over[2][0].as_str()), (4, "stat-deep"));
    assert!(over[2][1].contains(".."), "{over:?}");
    let patches = tables(&page, "With patches over without");
    assert_eq!(patches[2][..3], ["stat-deep", "memory x1", "lockref"]);
    let mount = format!("\n* {}: {}\n", directory.fs_type, directory.options);
    assert!(page.contains(&mount), "{page}");
}

/// A reader of a file in `docs/results` can repeat the run.
#[test]
fn the_head_tells_command_commit_and_machine() {
    let report = report();
    let page = render(&report, false);
    let first = &report.results[0];
    assert!(report.command.starts_with("vfscale_bench-"), "{}", report.command);
    let head = page.split("\n## ").next().unwrap();
    let command = format!("# `vfscale bench`\n\n```sh\n{}\n```\n", report.command);
    assert!(head.starts_with(&command), "{head}");
    for part in [&first.commit, &first.kernel, &first.machine.cpu, &table::date(report.started)] {
        assert!(head.contains(part.as_str()), "{part}: {head}");
    }
}

#[test]
fn published_tables_stand_above_ours() {
    let page = render(&report(), true);
    expect_rectangular(&page);
    let aim = "Long 2013, lockref: AIM7's short mix before and after lockref, jobs per minute";
    let rows = tables(&page, aim);
    let ours = rows.iter().position(|row| row[0] == "workload").unwrap();
    assert_eq!(rows[2], ["8", "10-100", "1,546,813", "5,080,126", "+228.4%"]);
    assert_eq!(rows[ours + 2][..2], ["aim-short, jobs/min", "memory x1, 3 users"]);
    assert!(page.starts_with("# `vfscale bench published`\n"));
    assert!(!page.contains("Chinner 2020"), "its workloads were not measured");
}

/// Sets the verdict of each ratio of patches.
fn decide(report: &mut Report, verdict: Verdict) {
    for ratio in report.ratios.iter_mut().filter(|ratio| ratio.compared == Compared::Patches) {
        (ratio.ratio.median, ratio.ratio.verdict) = (0.95, verdict);
    }
}

#[test]
fn rows_that_are_slower_stand_together_with_the_price_that_is_known() {
    let mut report = report();
    decide(&mut report, Verdict::Unsteady);
    assert!(!render(&report, true).contains("Rows that are slower"));
    decide(&mut report, Verdict::NoDifference);
    let page = render(&report, true);
    // `stat-deep` is in the table of all patches only.
    assert!(page.contains("Of 2 rows with a verdict 0 are slower; about 0 would"), "{page}");
    decide(&mut report, Verdict::Slower);
    let slower = |report: &Report| {
        let page = render(report, true);
        expect_rectangular(&page);
        tables(&page, "Rows that are slower")
    };
    let rows = slower(&report);
    assert_eq!(rows.len(), 4);
    let lockref = ["aim-short", "memory x1, 3 users", "lockref", "-5.0%", "none is known"];
    assert_eq!(rows[2], lockref);
    let of_trees = vfscale::PATCHES.iter().filter(|patch| !patch.is_of_volumes());
    let all: Vec<String> = of_trees.map(|patch| patch.name().to_owned()).collect();
    for ratio in &mut report.ratios {
        ratio.over.before.clone_from(&all);
    }
    let rows = slower(&report);
    let aim = rows.iter().find(|row| row[0] == "aim-short").unwrap();
    assert_eq!(aim[2], "all");
    assert!(aim[4].contains("16 lines"), "{aim:?}");
    let deep = rows.iter().find(|row| row[0] == "stat-deep").unwrap();
    assert_eq!(deep[4], "none is known");
}

#[test]
fn markdown_reports_failures_and_escapes_bars() {
    let mut report = report();
    let case = CaseName { target: "path:/a|b".into(), ..report.results[0].case.clone() };
    report.results[0].case.target = case.target.clone();
    report.skipped.push(crate::base::results::Failed { case, reason: "no reason".into() });
    let page = render(&report, false);
    expect_rectangular(&page);
    assert!(page.contains("path:/a\\|b"), "{page}");
    assert!(page.ends_with("\n* Left out: stat-deep on path:/a|b x1: no reason\n"), "{page}");
}

#[test]
fn two_directories_of_one_type_are_told_apart_by_their_names() {
    let mut report = report();
    let is_path = |result: &&CaseResult| result.mount.is_some();
    let mut second = report.results.iter().find(is_path).unwrap().clone();
    let (first, fs_type) = (second.case.target.clone(), second.mount.clone().unwrap().fs_type);
    assert_eq!(report.target_name(&first), fs_type);
    second.case.target = "path:/somewhere/else".to_owned();
    report.results.push(second);
    assert_eq!(report.target_name("path:/somewhere/else"), "else");
    assert_eq!(report.target_name(&first), first.rsplit('/').next().unwrap());
}

#[test]
fn small_ratios_have_significant_figures() {
    let mut comparison = report().ratios.remove(0);
    let ratio = &mut comparison.ratio;
    (ratio.median, ratio.low, ratio.high) = (0.0123, 0.0119, 0.1);
    ratio.verdict = Verdict::Slower;
    assert_eq!(ratio_cell(Some(&comparison)), "0.0123 [0.0119..0.1000]");
    comparison.ratio.median = 0.123;
    assert_eq!(ratio_cell(Some(&comparison)), "0.12 [0.01..0.10]");
    assert_eq!(ratio_cell(None), "-");
}
