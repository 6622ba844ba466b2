use vfscale::Scaling;

use crate::case::{CallKind, Case};
use crate::generate::branches;
use crate::report::{self, Plan};
use crate::runner::{Options, Target};

/// The owners of lines that two branches share; docs/COMMUTATIVITY.md has the reasons.
const KNOWN: [&str; 6] = [
    "Queue.item",
    "Log::queue_push",
    "Volume::settle_without",
    "PageCache.room",
    "MemoryDevice",
    "SharedLimit.count",
];

/// Calls that share no line with the same one in the other branch.
const FREE: [&str; 8] = [
    "open(d/new, RDWR|CREAT)",
    "tmpfile(d,",
    "symlink(",
    "rename(d/c, e/c)",
    "stat(",
    "write(",
    "read(",
    "fsync(#0)",
];

/// Returns each call beside itself, and creations and removals beside each call; not the first
/// flush of a branch, for which the pool makes a commit: meanwhile threads in the background free
/// what an `unlink` left, and the flush takes that memory.
fn chosen() -> Vec<Case> {
    let is_chosen = |case: &Case| {
        let (first, second) = (&case.first.op, &case.second.op);
        let of_each = [CallKind::Open, CallKind::Mkdir, CallKind::Unlink];
        let is_first_flush = second.kind() == CallKind::Fsync && second.slot() != Some(0);
        !is_first_flush && (first == second || of_each.contains(&first.kind()))
    };
    branches::all().into_iter().filter(is_chosen).collect()
}

#[test]
fn calls_in_two_branches_share_no_line_but_the_known_ones() {
    let cases = chosen();
    let scaling = Scaling::with_slots(1);
    let options = Options { scaling, target: Target::Branches, ..Options::default() };
    let report = report::run(&cases, &Plan { options, ..Plan::default() }, |_| true).unwrap();
    assert_eq!((&report.failed, report.not_understood), (&Vec::new(), 0));
    assert_eq!(report.cases, cases.len());
    let conflicting = |name: &str| report.conflicting.iter().any(|result| result.name == name);
    for call in FREE {
        let is_of_it = |case: &&Case| {
            case.first.op == case.second.op && case.first.op.to_string().starts_with(call)
        };
        let case = cases.iter().find(is_of_it).unwrap();
        assert!(!conflicting(&case.name), "{}\n{}", case.name, report.render());
    }
    let owners = report.conflicting.iter().flat_map(|result| &result.conflicts);
    for owner in owners.map(|found| found.owner.to_string()) {
        let is_known = KNOWN.iter().any(|known| owner.contains(known));
        assert!(is_known, "{owner}\n{}", report.render());
    }
}
