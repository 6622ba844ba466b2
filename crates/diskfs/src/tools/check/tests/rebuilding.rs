//! Directories, extents, attributes and links with an unreadable block: a repair preserves the
//! readable part, names the lost one, and changes nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_block::{Device, Operation};
use vfscale_testkit::{CrashPlan, Fault, FaultyDevice, RecordingDevice};

use super::damage::name;
use super::repairs::repair;
use super::sample::{
    BELOW, EXTENTS, FREE, GROUP, LONG_LINK, MANY, MANY_ATTRIBUTES, Sample, TREE_DIR,
};
use crate::Settings;
use crate::btree::{Entry, Kind, Tree};
use crate::dir::{DirTree, Directory, NameHash};
use crate::format::btree::raw;
use crate::format::byte_of_block;
use crate::format::extent::Extent;
use crate::format::inode::ROOT_INO;
use crate::inode::attr;
use crate::inode::blob::{AttrTree, LinkTree};
use crate::inode::core::{AttrFork, DataFork, FileKind, InodeCore};
use crate::inode::extents::ExtentTree;
use crate::tools::check::{LogState, Remedy};
use crate::vfs_impl::DiskFs;

/// Returns the blocks of a tree by level, each from left to right.
fn levels<K: Kind>(sample: &Sample, root: u64, ino: u64) -> Vec<Vec<u64>> {
    let (media, mut levels) = (sample.media(), Vec::new());
    let visit = |address| {
        let level = usize::from(raw(&media.raw(address).unwrap()).level.get());
        levels.resize(levels.len().max(level + 1), Vec::new());
        levels[level].push(address);
    };
    Tree::<K>::at(root, ino).check(&media, |damage| panic!("{damage}"), visit).unwrap();
    levels
}

fn root_of(core: &InodeCore) -> u64 {
    let DataFork::Tree { root } = core.data else { panic!("a tree") };
    root
}

fn spoil(sample: &Sample, address: u64) {
    sample.device.write_at(byte_of_block(address) + 512, &[0xA5; 512]).unwrap();
}

/// Returns the names in a directory.
fn names(sample: &Sample, ino: u64) -> BTreeMap<Vec<u8>, u64> {
    let mut names = BTreeMap::new();
    let directory = Directory::new(ino, NameHash::of(super::sample::ID));
    directory
        .read(&sample.media(), &sample.core(ino), 0, |entry| {
            names.insert(entry.name.to_vec(), entry.ino);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    names
}

/// Returns the inodes in `/lost+found`, if it exists.
fn found(sample: &Sample) -> Vec<u64> {
    let place = names(sample, ROOT_INO).get(&b"lost+found"[..]).copied();
    place.map_or_else(Vec::new, |place| names(sample, place).into_values().collect())
}

fn extents(sample: &Sample, ino: u64) -> Vec<Extent> {
    match sample.core(ino).data {
        DataFork::None => Vec::new(),
        DataFork::Extents(list) => list.to_vec(),
        DataFork::Tree { root } => {
            let media = sample.media();
            let records = Tree::<ExtentTree>::at(root, ino).range(&media, ..).unwrap();
            let records = records.map(Result::unwrap);
            records.map(|record| Extent::of(record.key.get(), &record.value)).collect()
        }
        DataFork::Inline(_) => panic!("extents"),
    }
}

fn attributes(sample: &Sample, ino: u64) -> Vec<Vec<u8>> {
    let list = attr::load(&sample.media(), ino, &sample.core(ino).attr).unwrap();
    list.into_iter().map(|(name, _)| name.into()).collect()
}

/// Checks that a repair fixes all findings, and that nothing is left to repair.
fn mended(sample: &Sample, remedy: Remedy) {
    let report = sample.check();
    let broken: Vec<_> = report.findings.iter().filter(|found| found.number() == 1031).collect();
    assert_eq!(broken.len(), 1, "{:#?}", report.findings);
    assert_eq!(broken[0].remedy, remedy);
    let repaired = repair(sample);
    assert_eq!(repaired.left, 0, "{:#?}", sample.check().findings);
    sound(sample);
}

fn sound(sample: &Sample) {
    let after = sample.check();
    assert_eq!((after.findings, after.log), (vec![], LogState::Clean));
    assert_eq!(repair(sample).count, 0);
    DiskFs::open(sample.device.clone(), Settings::default()).unwrap().close().unwrap();
    assert_eq!(sample.check().findings, []);
}

#[test]
fn a_directory_keeps_the_names_that_can_be_read() {
    let sample = Sample::new();
    let before = names(&sample, TREE_DIR);
    let levels = levels::<DirTree>(&sample, root_of(&sample.core(TREE_DIR)), TREE_DIR);
    assert!(levels[0].len() > 3 && levels.len() == 2, "{levels:?}");
    for leaf in &levels[0] {
        let copy = sample.copied();
        spoil(&copy, *leaf);
        mended(&copy, Remedy::Rebuild);
        let after = names(&copy, TREE_DIR);
        let most = before.len() / levels[0].len() * 2 + 2;
        assert!(after.len() < before.len() && before.len() - after.len() <= most);
        assert!(after.iter().all(|(name, ino)| before.get(name) == Some(ino)));
        let to_many = after.values().filter(|ino| **ino == MANY).count() as u32;
        assert_eq!(copy.core(MANY).nlink, to_many + 1);
        // Inodes that lost their only name are found again, and no others.
        let lost =
            before.values().filter(|ino| **ino != MANY && !after.values().any(|i| i == *ino));
        let lost: Vec<_> = lost.copied().collect();
        let found = found(&copy);
        assert!(found.len() == lost.len() && lost.iter().all(|ino| found.contains(ino)));
    }
}

/// A directory whose leaves are readable loses nothing, whatever happened to the blocks above them.
#[test]
fn a_directory_without_its_root_has_its_names() {
    let sample = Sample::new();
    let copy = sample.copied();
    spoil(&copy, root_of(&sample.core(TREE_DIR)));
    mended(&copy, Remedy::Rebuild);
    assert_eq!(names(&copy, TREE_DIR), names(&sample, TREE_DIR));
    assert_eq!(copy.core(TREE_DIR).size, sample.core(TREE_DIR).size);
    assert!(found(&copy).is_empty());
    // If a leaf is lost too, it is unknown which of the other leaves belong to the directory.
    let copy = sample.copied();
    let levels = levels::<DirTree>(&sample, root_of(&sample.core(TREE_DIR)), TREE_DIR);
    spoil(&copy, levels[1][0]);
    spoil(&copy, levels[0][1]);
    mended(&copy, Remedy::Rebuild);
    assert_eq!(names(&copy, TREE_DIR), BTreeMap::new());
    assert_eq!(found(&copy).len(), 4);
}

/// A directory in its inode, with one name of an impossible type.
#[test]
fn a_directory_in_its_inode_keeps_the_names_that_can_be_read() {
    let copy = Sample::new().copied();
    let before = names(&copy, ROOT_INO);
    copy.inode(ROOT_INO, |inode| {
        let DataFork::Inline(bytes) = &inode.data else { panic!("inline") };
        let mut bytes = bytes.to_vec();
        let at = bytes.windows(4).position(|window| window == b"fifo").unwrap();
        bytes[at - 2] = 0x77;
        inode.data = DataFork::Inline(bytes.into());
    });
    mended(&copy, Remedy::Rebuild);
    let after = names(&copy, ROOT_INO);
    let kept: Vec<_> = before.iter().filter(|(name, _)| after.contains_key(*name)).collect();
    assert!(!kept.is_empty() && kept.len() < before.len(), "{after:?}");
    assert!(found(&copy).contains(&super::sample::FIFO));
}

/// Returns a sample with a file that has extents in several leaves: unwritten ones, which need no
/// data, in the last group.
fn fragmented(sample: &Sample) -> Sample {
    let copy = sample.copied();
    let run = 3 * GROUP + 16;
    let records: Vec<_> = (0..400)
        .map(|n| Extent { file_block: n * 2, start: run + n, blocks: 1, is_unwritten: true })
        .map(|extent| Entry { key: extent.file_block.into(), value: extent.place() })
        .collect();
    copy.trees(|overlay| {
        overlay.pool = (run + 400..run + 420).rev().collect();
        let tree = Tree::<ExtentTree>::build(overlay, EXTENTS, 0, &records, 80).unwrap();
        let mut core = overlay.core(EXTENTS).unwrap();
        core.data = DataFork::Tree { root: tree.root() };
        overlay.set_core(EXTENTS, &core);
    });
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
    copy
}

#[test]
fn a_file_keeps_the_extents_that_can_be_read() {
    let sample = fragmented(&Sample::new());
    let before = extents(&sample, EXTENTS);
    let levels = levels::<ExtentTree>(&sample, root_of(&sample.core(EXTENTS)), EXTENTS);
    assert!(levels.len() == 2 && levels[0].len() > 2, "{levels:?}");
    for leaf in &levels[0] {
        let copy = sample.copied();
        spoil(&copy, *leaf);
        mended(&copy, Remedy::Rebuild);
        let after = extents(&copy, EXTENTS);
        assert!(after.len() < before.len() && after.len() >= before.len() / 3);
        assert!(after.iter().all(|extent| before.contains(extent)));
        assert_eq!(copy.core(EXTENTS).size, sample.core(EXTENTS).size);
    }
    let copy = sample.copied();
    spoil(&copy, levels[1][0]);
    mended(&copy, Remedy::Rebuild);
    assert_eq!(extents(&copy, EXTENTS), before);
}

/// A file becomes a hole when no extent of it is left.
#[test]
fn a_file_whose_only_leaf_is_lost_is_a_hole() {
    let copy = Sample::new().copied();
    let size = copy.core(EXTENTS).size;
    spoil(&copy, root_of(&copy.core(EXTENTS)));
    mended(&copy, Remedy::Rebuild);
    let core = copy.core(EXTENTS);
    assert_eq!((core.data, core.size, core.blocks), (DataFork::None, size, 0));
}

#[test]
fn attributes_are_kept_up_to_what_is_lost() {
    let sample = Sample::new();
    let AttrFork::Tree { root, .. } = sample.core(MANY_ATTRIBUTES).attr else { panic!("a tree") };
    let levels = levels::<AttrTree>(&sample, root, MANY_ATTRIBUTES);
    assert!(levels.len() == 2 && levels[0].len() == 2, "{levels:?}");
    for (lost, kept) in [(levels[0][0], 0), (levels[0][1], 1), (levels[1][0], 2)] {
        let copy = sample.copied();
        spoil(&copy, lost);
        mended(&copy, Remedy::Rebuild);
        let before = attributes(&sample, MANY_ATTRIBUTES);
        assert_eq!(attributes(&copy, MANY_ATTRIBUTES), before[..kept]);
    }
}

/// A link whose target is lost is removed.
#[test]
fn a_link_without_a_target_is_removed() {
    let copy = Sample::new().copied();
    let before = names(&copy, TREE_DIR);
    let levels = levels::<LinkTree>(&copy, root_of(&copy.core(LONG_LINK)), LONG_LINK);
    spoil(&copy, levels[0][0]);
    mended(&copy, Remedy::Clear);
    let after = names(&copy, TREE_DIR);
    assert_eq!(after.len() + 1, before.len());
    assert!(!after.contains_key(&b"long"[..]) && copy.core_of(LONG_LINK).is_none());
}

/// A block that the device cannot read is not freed.
#[test]
fn a_block_that_can_be_read_another_day_is_left() {
    let sample = Sample::new();
    let levels = levels::<DirTree>(&sample, root_of(&sample.core(TREE_DIR)), TREE_DIR);
    let inner = sample.copied();
    let device = Arc::new(FaultyDevice::new(inner.device.clone()));
    let start = byte_of_block(levels[0][1]);
    device.arm(Fault::on(Operation::Read).from(1).within(start..start + 4096));
    let copy = Sample { device, superblock: sample.superblock.clone() };
    let report = repair(&copy);
    assert!(report.left > 0 && report.findings.iter().all(|found| found.number() != 1031));
    assert_eq!(names(&inner, TREE_DIR), names(&sample, TREE_DIR));
    assert_eq!(inner.check().findings, []);
}

/// Returns a sample with a directory that is larger than its log.
fn with_large_directory(sample: &Sample) -> Sample {
    let copy = sample.copied();
    let run = GROUP + 16;
    let mut core = copy.core(BELOW);
    copy.trees(|overlay| {
        overlay.pool = (run..run + 900).rev().collect();
        let directory = Directory::new(BELOW, NameHash::of(super::sample::ID));
        for n in 0..3000 {
            let name = format!("{n:0>250}");
            let to = (MANY, FileKind::Regular);
            let _ = directory.insert(overlay, &mut core, name.as_bytes(), to).unwrap();
        }
        overlay.set_core(BELOW, &core);
    });
    assert_eq!(repair(&copy).left, 0, "{:#?}", copy.check().findings);
    copy
}

#[test]
fn a_directory_larger_than_the_log_is_rebuilt() {
    let sample = with_large_directory(&Sample::new());
    let before = names(&sample, BELOW);
    let levels = levels::<DirTree>(&sample, root_of(&sample.core(BELOW)), BELOW);
    assert!(levels[0].len() > 256, "{}", levels[0].len());
    let (copy, other) = (sample.copied(), levels[0][levels[0].len() / 2]);
    spoil(&copy, other);
    mended(&copy, Remedy::Rebuild);
    let after = names(&copy, BELOW);
    assert!(after.len() < before.len() && after.len() + 30 > before.len(), "{}", after.len());
    assert!(after.iter().all(|(name, ino)| before.get(name) == Some(ino)));
    assert_eq!(
        copy.core(MANY).nlink,
        sample.core(MANY).nlink - (before.len() - after.len()) as u32
    );
    // Without its root it has all names.
    let copy = sample.copied();
    spoil(&copy, root_of(&sample.core(BELOW)));
    mended(&copy, Remedy::Rebuild);
    assert_eq!(names(&copy, BELOW), before);
}

/// A crash leaves the old part or the new one, and the next repair gets the same result.
#[test]
fn an_interrupted_rebuilding_is_finished_by_the_next() {
    let sample = Sample::new();
    let damaged = sample.copied();
    let levels = levels::<DirTree>(&sample, root_of(&sample.core(TREE_DIR)), TREE_DIR);
    let AttrFork::Tree { root, .. } = sample.core(MANY_ATTRIBUTES).attr else { panic!("a tree") };
    for block in [levels[0][1], root, root_of(&sample.core(EXTENTS))] {
        spoil(&damaged, block);
    }
    name(&damaged, ROOT_INO, b"ghost", FREE, FileKind::Regular);
    let done = damaged.copied();
    assert_eq!(repair(&done).left, 0);
    let device = Arc::new(RecordingDevice::new(damaged.device.clone()));
    let recorded = Sample { device: device.clone(), superblock: sample.superblock.clone() };
    assert_eq!(repair(&recorded).left, 0);
    let mut states = 0;
    for state in device.crash_states(CrashPlan::default().listed_max(4).samples(1)) {
        states += 1;
        let crashed = Sample { device: state.device(), superblock: sample.superblock.clone() };
        assert_eq!(repair(&crashed).left, 0, "{state}: {:#?}", crashed.check().findings);
        for directory in [TREE_DIR, BELOW] {
            let names = |sample: &Sample| match sample.core_of(directory) {
                Some(_) => names(sample, directory),
                None => BTreeMap::new(),
            };
            assert_eq!(names(&crashed), names(&done), "{state}");
        }
        assert_eq!(attributes(&crashed, MANY_ATTRIBUTES), attributes(&done, MANY_ATTRIBUTES));
    }
    assert!(states > 20, "{states}");
}
