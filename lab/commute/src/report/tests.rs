use vfscale::{Mode, Scaling};

use super::*;
use crate::case::{Call, Op};
use crate::{report::page, report::picture};

fn cases() -> Vec<Case> {
    let call = |process, op| Call { process, op };
    let mkdir = |path: &str| Op::Mkdir { path: path.into(), mode: Mode::RWXU };
    let stat = |path: &str| Op::Stat { path: path.into(), follow: true };
    let setup = vec![call(0, mkdir("d")), call(0, mkdir("d/a")), call(0, mkdir("d/b"))];
    let case =
        |name: &str, a: Op, b: Op| Case::new(name.into(), setup.clone(), call(0, a), call(1, b));
    vec![
        case("stat(d/a) || stat(d/b) <two>", stat("d/a"), stat("d/b")),
        case("mkdir(d/x) || mkdir(d/y) <two>", mkdir("d/x"), mkdir("d/y")),
        case("stat(d/a) || mkdir(d/y) <two>", stat("d/a"), mkdir("d/y")),
    ]
}

#[test]
fn a_report_counts_and_names_what_conflicts() {
    // Before the per-bucket locks, a directory had a single link count.
    let scaling = Scaling::before("dcache-hash").unwrap();
    let options = runner::Options { scaling, ..runner::Options::default() };
    let plan = Plan { seed: 3, options, ..Plan::default() };
    let report = run(&cases(), &plan, |_| true).unwrap();
    assert_eq!((report.cases, report.failed.len(), report.not_understood), (3, 0, 0));
    assert_eq!(report.pair("stat", "stat").map(|p| (p.cases, p.free)), Some((1, 1)));
    assert_eq!(report.calls(), ["stat", "mkdir"]);
    assert_eq!(report.free + report.conflicting.len(), 3);
    // The source text of the line tells type and field of the directory's link count.
    let link_count = report.owners.iter().find(|of| of.owner.field.starts_with("Inode"));
    let link_count = link_count.unwrap_or_else(|| panic!("{}", report.render()));
    assert!(link_count.example.first.write && link_count.example.first.at.line > 0);
    let text = report.render();
    assert!(text.contains("crates/vfs/src/") && text.contains("seed 3"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["cases"], 3);
    let (html, svg) = (page::render(&report), picture::svg(&report));
    assert!(html.contains(&svg) && html.contains("&lt;two&gt;") && !html.contains("<two>"));
    assert_eq!(svg.matches("<rect x").count(), report.pairs.len());
}

#[test]
fn a_run_can_be_ended() {
    let report = run(&cases(), &Plan::default(), |done| done < 1).unwrap();
    assert_eq!(report.cases, 1);
}

#[test]
fn the_kernel_of_2_6_conflicts_in_more_cases() {
    let scaling = Scaling::kernel_2_6();
    let options = runner::Options { scaling, promoted: false, ..runner::Options::default() };
    let cases = crate::runner::tests::by_hand();
    let before = run(&cases, &Plan { options, ..Plan::default() }, |_| true).unwrap();
    let after = run(&cases, &Plan::default(), |_| true).unwrap();
    assert!(after.free >= before.free + 5, "{}\n{}", before.render(), after.render());
}
