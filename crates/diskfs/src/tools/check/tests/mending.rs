//! Repairs of wrong references: names, extents, masks; and proof that all else is unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::damage::{masks, name, no_name};
use super::repairs::{is_refused, repair};
use super::sample::{
    BELOW, EXTENTS, FIFO, FREE, GROUP, ID, LIST, MANY, MANY_ATTRIBUTES, ORPHAN, Sample, TREE_DIR,
};
use crate::Settings;
use crate::btree::Tree;
use crate::dir::{Directory, NameHash};
use crate::format::byte_of_block;
use crate::format::extent::Extent;
use crate::format::group::{CHUNK_ROOT_AT, InodeChunks, RawChunk};
use crate::format::inode::ROOT_INO;
use crate::inode::core::{AttrFork, DataFork, FileKind, InodeCore};
use crate::inode::extents::ExtentTree;
use crate::tools::check::{LogState, Remedy};
use crate::vfs_impl::DiskFs;
use crate::volume::Volume;

/// A case of damage, its findings, and the inodes that differ after the repair.
struct Case {
    name: &'static str,
    damage: fn(&Sample),
    found: &'static [u32],
    changed: &'static [u64],
}

/// Returns the stored extents of a file.
pub(super) fn extents(sample: &Sample, core: &InodeCore, ino: u64) -> Vec<Extent> {
    match &core.data {
        DataFork::Extents(list) => list.to_vec(),
        DataFork::Tree { root } if core.is_regular() => {
            let tree = Tree::<ExtentTree>::at(*root, ino);
            let media = sample.media();
            let records = tree.range(&media, ..).unwrap().map(Result::unwrap);
            records.map(|record| Extent::of(record.key.get(), &record.value)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the data of a file in each of its blocks.
pub(super) fn data(sample: &Sample, ino: u64) -> BTreeMap<u64, Vec<u8>> {
    let mut data = BTreeMap::new();
    for extent in extents(sample, &sample.core(ino), ino) {
        for at in 0..u64::from(extent.blocks) {
            let mut bytes = vec![0; 4096];
            sample.device.read_at(byte_of_block(extent.start + at), &mut bytes).unwrap();
            data.insert(extent.file_block + at, bytes);
        }
    }
    data
}

/// Returns the sample with files that contain the addresses of their blocks.
pub(super) fn filled() -> Sample {
    let sample = Sample::new();
    for ino in [LIST, EXTENTS] {
        for extent in extents(&sample, &sample.core(ino), ino) {
            for block in extent.start..extent.place_end() {
                let bytes = [&block.to_le_bytes()[..]; 512].concat();
                sample.device.write_at(byte_of_block(block), &bytes).unwrap();
            }
        }
    }
    sample
}

/// Changes the extents of the file with a list.
pub(super) fn list(sample: &Sample, change: impl FnOnce(&mut Vec<Extent>)) {
    sample.inode(LIST, |inode| {
        let DataFork::Extents(list) = &inode.data else { panic!("a list") };
        let mut list = list.to_vec();
        change(&mut list);
        inode.data = DataFork::Extents(list.into());
    });
}

/// Changes an extent of the file with a tree.
pub(super) fn in_tree(sample: &Sample, at: usize, change: impl FnOnce(&mut Extent)) {
    let core = sample.core(EXTENTS);
    let DataFork::Tree { root } = core.data else { panic!("a tree") };
    let mut extent = extents(sample, &core, EXTENTS)[at];
    change(&mut extent);
    sample.trees(|overlay| {
        let tree = Tree::<ExtentTree>::at(root, EXTENTS);
        tree.update(overlay, extent.file_block.into(), extent.place()).unwrap().unwrap();
    });
}

fn attribute_root(sample: &Sample) -> u64 {
    let AttrFork::Tree { root, .. } = sample.core(MANY_ATTRIBUTES).attr else { panic!("a tree") };
    root
}

fn in_itself(s: &Sample) {
    no_name(s, ROOT_INO, b"tree");
    s.inode(ROOT_INO, |i| i.nlink -= 1);
    name(s, BELOW, b"up", TREE_DIR, FileKind::Directory);
    s.inode(BELOW, |i| i.nlink += 1);
    s.inode(TREE_DIR, |i| i.parent = BELOW);
}

const FOUND: u64 = FREE;

const NAMES: &[Case] = &[
    Case {
        name: "names that lead nowhere",
        damage: |s| {
            name(s, ROOT_INO, b"ghost", FREE, FileKind::Regular);
            name(s, ROOT_INO, b"no chunk", 8 * 900, FileKind::Regular);
            name(s, TREE_DIR, b"no inode", FREE + 1, FileKind::Directory);
        },
        found: &[1023],
        changed: &[],
    },
    Case {
        name: "a name that leads out of the volume",
        damage: |s| name(s, ROOT_INO, b"far", u64::MAX - 8, FileKind::Regular),
        found: &[504, 1023],
        changed: &[],
    },
    Case {
        name: "a type",
        damage: |s| {
            no_name(s, ROOT_INO, b"fifo");
            name(s, ROOT_INO, b"fifo", FIFO, FileKind::Socket);
        },
        found: &[1024],
        changed: &[],
    },
    Case {
        name: "two names of a directory, and one of the root",
        damage: |s| {
            name(s, ROOT_INO, b"again", BELOW, FileKind::Directory);
            name(s, TREE_DIR, b"root", ROOT_INO, FileKind::Directory);
            s.inode(ROOT_INO, |i| i.nlink += 1);
            s.inode(TREE_DIR, |i| i.nlink += 1);
        },
        found: &[1025],
        // The first name stays, whichever it is.
        changed: &[BELOW, TREE_DIR, ROOT_INO],
    },
    Case {
        name: "a parent",
        damage: |s| s.inode(BELOW, |i| i.parent = ROOT_INO),
        found: &[1026],
        changed: &[],
    },
    Case {
        name: "a name is gone",
        damage: |s| no_name(s, ROOT_INO, b"fifo"),
        found: &[1021],
        changed: &[ROOT_INO, FOUND],
    },
    Case {
        name: "a directory without a name",
        damage: |s| no_name(s, TREE_DIR, b"below"),
        found: &[1021],
        changed: &[TREE_DIR, BELOW, ROOT_INO, FOUND],
    },
    Case {
        name: "an orphan that is in no list",
        damage: |s| masks(s, |free, _| (free, 0)),
        found: &[1020],
        changed: &[ROOT_INO, ORPHAN, FOUND],
    },
    Case {
        name: "a directory in itself",
        damage: in_itself,
        found: &[1027],
        changed: &[ROOT_INO, TREE_DIR, BELOW, FOUND],
    },
];

const CHUNKS: &[Case] = &[
    Case {
        name: "the tree of chunks",
        damage: |s| s.device.write_at(byte_of_block(CHUNK_ROOT_AT), &[0xA5; 4096]).unwrap(),
        found: &[1, 1014, 1028],
        changed: &[],
    },
    Case {
        name: "a chunk in no place",
        damage: |s| {
            s.trees(|overlay| {
                let value = RawChunk { free: u64::MAX.into(), orphan: 0.into() };
                let tree = Tree::<InodeChunks>::at(CHUNK_ROOT_AT, 0);
                tree.insert(overlay, 21.into(), value).unwrap();
            });
        },
        found: &[303],
        changed: &[],
    },
];

const FILES: &[Case] = &[
    Case {
        name: "masks",
        damage: |s| masks(s, |free, orphan| (free & (free - 1) | 4, orphan | 1 << 20)),
        found: &[1018, 1019],
        changed: &[],
    },
    Case {
        name: "an extent in the log",
        damage: |s| list(s, |list| list[1].start = 2 * GROUP + 20),
        found: &[702],
        changed: &[LIST],
    },
    Case {
        name: "extents in no order",
        damage: |s| list(s, |list| list.swap(0, 1)),
        found: &[700],
        changed: &[LIST],
    },
    Case {
        name: "extents in a tree that lie outside, and in two groups",
        damage: |s| {
            in_tree(s, 3, |extent| extent.start = 1 << 40);
            in_tree(s, 5, |extent| extent.start = GROUP - 1);
            in_tree(s, 39, |extent| extent.start = 0);
        },
        found: &[702],
        changed: &[EXTENTS],
    },
    Case {
        name: "data behind the end",
        damage: |s| {
            s.inode(LIST, |i| i.size = 4096);
            s.inode(EXTENTS, |i| i.size = 100 * 4096);
        },
        found: &[1029],
        changed: &[LIST, EXTENTS],
    },
    Case {
        name: "blocks that two files have",
        damage: |s| {
            let theirs = s.core(LIST).first_block();
            in_tree(s, 7, |extent| extent.start = theirs);
        },
        found: &[1010],
        changed: &[EXTENTS],
    },
    Case {
        name: "blocks that a file has twice",
        damage: |s| list(s, |list| list[0].start += 2),
        found: &[1010],
        changed: &[LIST],
    },
    Case {
        name: "data where a directory is, and where attributes are",
        damage: |s| {
            let DataFork::Tree { root } = s.core(TREE_DIR).data else { panic!("a tree") };
            let attributes = attribute_root(s);
            list(s, |list| (list[0].start, list[0].blocks) = (root, 1));
            in_tree(s, 0, |extent| (extent.start, extent.blocks) = (attributes, 1));
            s.inode(LIST, |i| i.blocks -= 1);
            s.inode(EXTENTS, |i| i.blocks -= 1);
        },
        found: &[1010],
        changed: &[LIST, EXTENTS],
    },
    Case {
        name: "set aside and in use",
        damage: |s| s.header(0, |h| h.set_aside[0] = s.core(LIST).first_block()),
        found: &[1010],
        changed: &[LIST],
    },
];

/// Checks that nothing is left to repair, and that everything undamaged is unchanged.
fn whole(repaired: &Sample, before: &Sample, case: &Case) {
    let after = repaired.check();
    assert_eq!((after.findings, after.log), (vec![], LogState::Clean), "{}", case.name);
    // Unless it had lost its mark: then it has a name now.
    let is_removed = !case.changed.contains(&ORPHAN);
    assert_eq!(repaired.core_of(ORPHAN).is_none(), is_removed, "{}", case.name);
    for ino in (ROOT_INO..FREE).filter(|ino| *ino != ORPHAN && !case.changed.contains(ino)) {
        let (is, was) = (repaired.core(ino), before.core(ino));
        assert_eq!(InodeCore { data: was.data.clone(), ..is.clone() }, was, "{}: {ino}", case.name);
        assert_eq!(data(repaired, ino), data(before, ino), "{}: {ino}", case.name);
    }
    let fs = DiskFs::open(repaired.device.clone(), Settings::default()).unwrap();
    fs.close().unwrap();
}

fn each(cases: &[Case]) {
    let sample = filled();
    for case in cases {
        let copy = sample.copied();
        (case.damage)(&copy);
        let found = copy.check();
        let numbers = copy.found();
        let named = case.found.iter().all(|number| numbers.contains(number));
        assert!(named, "{}: {numbers:?} {:#?}", case.name, found.findings);
        let about = |number: &u32| {
            let finding = found.findings.iter().find(|finding| finding.number() == *number);
            finding.unwrap().remedy
        };
        assert!(case.found.iter().any(|number| about(number) != Remedy::Nothing), "{}", case.name);
        let report = repair(&copy);
        assert_eq!(report.left, 0, "{}: {:#?}", case.name, copy.check().findings);
        whole(&copy, &sample, case);
    }
}

#[test]
fn names_lead_where_they_should() {
    each(NAMES);
}

#[test]
fn inodes_are_found_without_their_tree() {
    each(CHUNKS);
}

#[test]
fn files_have_what_they_can_have() {
    each(FILES);
}

/// Looks up a name in a directory.
pub(super) fn look_up(sample: &Sample, directory: u64, name: &str) -> Option<u64> {
    let core = sample.core(directory);
    let directory = Directory::new(directory, NameHash::of(ID));
    directory.lookup(&sample.media(), &core, name.as_bytes()).unwrap().map(|found| found.ino)
}

#[test]
fn repair_gives_nameless_inodes_a_name() {
    let copy = filled().copied();
    // Other inodes have the names of the directory and of an inode in it.
    name(&copy, ROOT_INO, b"lost+found", MANY, FileKind::Regular);
    copy.inode(MANY, |i| i.nlink += 1);
    no_name(&copy, ROOT_INO, b"fifo");
    no_name(&copy, TREE_DIR, b"below");
    assert_eq!(repair(&copy).left, 0);
    let found = look_up(&copy, ROOT_INO, "lost+found.1").unwrap();
    assert_eq!(look_up(&copy, found, &format!("#{FIFO}")), Some(FIFO));
    assert_eq!(look_up(&copy, found, &format!("#{BELOW}")), Some(BELOW));
    assert_eq!(copy.core(BELOW).parent, found);
    assert_eq!((copy.core(found).mode, copy.core(found).nlink), (0o040_700, 3));
    // At the second repair it exists already.
    no_name(&copy, ROOT_INO, b"list");
    assert_eq!(repair(&copy).left, 0);
    assert_eq!(look_up(&copy, found, &format!("#{LIST}")), Some(LIST));
    assert_eq!(look_up(&copy, ROOT_INO, "lost+found.2"), None);
}

#[test]
fn the_second_owner_has_a_copy() {
    let sample = filled();
    let copy = sample.copied();
    let theirs = copy.core(LIST).first_block();
    in_tree(&copy, 7, |extent| extent.start = theirs);
    assert_eq!(repair(&copy).left, 0);
    let (mine, other) = (data(&copy, EXTENTS), data(&copy, LIST));
    assert_eq!((&mine[&21], &mine[&22]), (&other[&0], &other[&1]));
    assert!(extents(&copy, &copy.core(EXTENTS), EXTENTS).iter().all(|e| e.start != theirs));
    assert_eq!(data(&copy, LIST), data(&sample, LIST));
    let rest = |data: &BTreeMap<u64, Vec<u8>>| {
        data.iter().filter(|(at, _)| !matches!(at, 21 | 22)).count()
    };
    assert!(
        mine.iter()
            .filter(|(at, _)| !matches!(at, 21 | 22))
            .all(|(at, bytes)| { data(&sample, EXTENTS).get(at) == Some(bytes) })
    );
    assert_eq!(rest(&mine), rest(&data(&sample, EXTENTS)));
}

/// The next repair completes one that a crash interrupted.
#[test]
fn an_interrupted_repair_is_finished_by_the_next() {
    let sample = filled();
    let damaged = sample.copied();
    for case in [&FILES[5], &NAMES[0], &NAMES[2], &NAMES[5], &NAMES[8], &FILES[0], &FILES[1]] {
        (case.damage)(&damaged);
    }
    let before = damaged.numbers();
    let device = Arc::new(RecordingDevice::new(damaged.device.clone()));
    let recorded = Sample { device: device.clone(), superblock: sample.superblock.clone() };
    assert_eq!(repair(&recorded).left, 0, "{:#?}", recorded.check().findings);
    let (mut states, mut refused) = (0, 0);
    for state in device.crash_states(CrashPlan::default().listed_max(4).samples(1)) {
        states += 1;
        let crashed = Sample { device: state.device(), superblock: sample.superblock.clone() };
        refused += usize::from(is_refused(&crashed, &before, &state));
        assert_eq!(repair(&crashed).left, 0, "{state}: {:#?}", crashed.check().findings);
        drop(Volume::open(crashed.copied().device, Settings::default()).unwrap());
        assert_eq!(crashed.core(MANY).data, sample.core(MANY).data, "{state}");
        let found = look_up(&crashed, ROOT_INO, "lost+found").unwrap();
        assert_eq!(look_up(&crashed, found, &format!("#{TREE_DIR}")), Some(TREE_DIR), "{state}");
    }
    assert!(states > 50 && refused > 50, "{refused} of {states} are not mounted");
}
