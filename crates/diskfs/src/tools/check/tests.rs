//! Tests of checks: an undamaged volume has no finding, and a damaged one has the finding for its
//! damage.

mod chunks;
mod damage;
mod flags;
mod golden;
mod log;
mod lost_log;
mod mending;
mod rebuilding;
mod repairs;
pub(crate) mod sample;
mod shown;
mod sweep;
mod targets;
mod torn;

use sample::Sample;

use super::{Figure, Owner, Part, Problem, Remedy};

#[test]
fn a_whole_volume_has_no_finding() {
    let report = Sample::new().check();
    assert_eq!(report.findings, []);
    assert_eq!((report.count, report.left), (0, 0));
    assert_eq!((report.figures.inodes, report.figures.directories), (12, 3));
}

/// `docs/FORMAT.md` lists every number, and says for each whether a repair does anything.
#[test]
fn every_number_is_documented() {
    use crate::format::superblock::GroupSums;
    let page = include_str!("../../../../../docs/FORMAT.md");
    let rows = page.split("### What a check finds").nth(1).unwrap().lines();
    let row = |number: u32| {
        let begin = format!("| V{number} |");
        rows.clone().find(|row| row.starts_with(&begin)).map(str::to_owned)
    };
    let (ino, directory, group, name) = (64, 65, 0, String::new());
    let (blocks, found, counted) = (0..1, 1, 2);
    let figure = |figure| Problem::Figure { group, figure, found: 1, counted: 2 };
    let problems = [
        Problem::Copy { address: 0, state: String::new() },
        Problem::Log { why: String::new() },
        Problem::Interrupted,
        Problem::LogPart { why: String::new() },
        Problem::Shared { blocks: blocks.clone(), owner: Owner::Inode(64) },
        Problem::FreeInUse { blocks: blocks.clone(), group },
        Problem::Leaked { blocks: blocks.clone() },
        figure(Figure::FreeBlocks),
        figure(Figure::FreeInodes),
        figure(Figure::Inodes),
        figure(Figure::Orphans),
        Problem::Outside { blocks, owner: Owner::Inode(64) },
        Problem::InUse { ino, is_free: true },
        Problem::NotAnOrphan { ino },
        Problem::Nameless { ino },
        Problem::Links { ino, found, counted },
        Problem::BlockCount { ino, found: 1, counted: 2 },
        Problem::Dangling { directory, name: name.clone(), ino },
        Problem::NameType { directory, name: name.clone(), ino, found: 1, expected: 2 },
        Problem::TwoNames { ino, first: 64, second: 65, name },
        Problem::Parent { ino, found: 64, expected: 65 },
        Problem::Unconnected { ino },
        Problem::NoRoot,
        Problem::BehindEnd { ino, file_block: 1, size: 0 },
        figure(Figure::TreeBlocks),
        Problem::Broken { ino, part: Part::Names },
        Problem::Unguarded { ino },
        Problem::UnknownFlags { ino, flags: 1 << 15 },
        Problem::Sums { found: GroupSums::default(), counted: GroupSums::default() },
        Problem::Unread { ino, file_block: 1 },
        Problem::TargetSize { ino, found: 2, counted: 1 },
    ];
    let numbers = (1000..=1003).chain(1010..=1036);
    for (number, problem) in numbers.zip(&problems) {
        assert_eq!(problem.number(), number);
        let row = row(number).unwrap_or_else(|| panic!("V{number} is not documented"));
        let does_nothing = row.ends_with("| nothing |");
        assert_eq!(does_nothing, problem.remedy() == Remedy::Nothing, "{row}");
    }
    assert_eq!(problems.len(), 31);
    assert_eq!(row(1037), None);
}

/// New volumes of several sizes.
#[test]
fn a_new_volume_has_no_finding() {
    for bytes in [16 << 20, 100 << 20, 1 << 30, 1 << 40] {
        let device = std::sync::Arc::new(vfscale_block::MemoryDevice::new(bytes).unwrap());
        crate::tools::mkfs::format(&*device, &crate::tools::mkfs::MkfsOptions::default()).unwrap();
        let report = super::check(device, &super::Options::default(), &mut ()).unwrap();
        assert_eq!(report.findings, [], "{bytes}");
        assert_eq!((report.figures.inodes, report.figures.directories), (1, 1));
    }
}
