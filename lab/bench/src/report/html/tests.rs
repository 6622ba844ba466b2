//! Tests of the page: balanced tags, escaped text, and no external resources.

use std::time::Duration;

use super::*;
use crate::base::interrupt::Interrupt;
use crate::published::{FXMARK, OWN, TABLES};
use crate::targets::TargetSpec;
use crate::{Plan, run};

fn report() -> Report {
    let workloads = ["stat-deep", "create-many"].map(|name| workloads::find(name).unwrap());
    let mut plan = Plan::new(workloads.into(), vec![TargetSpec::Memory]);
    plan.threads = vec![1, 2];
    plan.before = vec![vec!["lockref".into()]];
    plan.files = 100;
    plan.slice = Duration::from_millis(1);
    plan.warm_up = Duration::from_millis(1);
    run(&plan, &Interrupt::new(), &mut ()).unwrap()
}

/// Checks that every opened tag is closed, in order.
fn expect_balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let inside = tag.split('>').next().unwrap();
        let name = inside.trim_start_matches('/').split_whitespace().next().unwrap();
        if inside.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{inside}");
        } else if !inside.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_is_whole_and_needs_nothing_else() {
    let report = report();
    let page = render(&report, true).unwrap();
    expect_balanced(&page);
    for word in ["viewport", "<h2>Piggin 2009", "create-many", "stat-deep", "<svg", "verdict"] {
        assert!(page.contains(word), "{word}");
    }
    // Each plot is there once, beside the published table if there is one.
    assert_eq!(page.matches("<svg").count(), 2);
    let at = |word: &str| page.find(word).unwrap();
    assert!(at("<svg") < at("<h2 id=") && page.rfind("<svg").unwrap() > at("<h2 id="));
    let elsewhere = ["src=", "href=", "<script", "url(", "@import"];
    assert!(elsewhere.iter().all(|word| !page.contains(word)));
}

#[test]
fn html_escapes_names_of_users() {
    let mut report = report();
    report.results[0].case.target = "path:/<b>&\"".into();
    let page = render(&report, false).unwrap();
    expect_balanced(&page);
    assert!(page.contains("path:/&lt;b&gt;&amp;&quot;"));
    assert!(!page.contains("<h2>Piggin 2009"));
}

#[test]
fn everything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/out");
    write_all(&report(), true, &out).unwrap();
    for name in ["report.html", "results.json", "plots/stat-deep.svg", "plots/create-many.svg"] {
        assert!(std::fs::metadata(out.join(name)).unwrap().len() > 1_000, "{name}");
    }
    let error = write_all(&report(), true, &out.join("report.html")).unwrap_err().to_string();
    assert!(error.contains("report.html"), "{error}");
}

#[test]
fn every_published_workload_has_a_table_and_every_table_is_rectangular() {
    for workload in
        workloads::ALL.iter().filter(|workload| ![OWN, FXMARK].contains(&workload.source))
    {
        let tables = || TABLES.iter().filter(|t| t.workloads.contains(&workload.name));
        assert!(tables().next().is_some(), "{}", workload.name);
        // The workload is measured once in memory, and once on volumes.
        for on_volumes in [false, true] {
            let mut tables = tables().filter(|table| table.on_volumes == on_volumes);
            let first = tables.next();
            let same = |table: &PublishedTable| table.workloads == first.unwrap().workloads;
            assert!(tables.all(same), "{}", workload.name);
        }
    }
    for table in TABLES {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
    }
}
