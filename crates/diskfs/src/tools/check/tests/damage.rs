//! Every kind of damage, made on purpose.

use vfscale_block::Device;

use super::sample::{
    BELOW, CHUNK, EXTENTS, FEW_ATTRIBUTES, FIFO, FREE, GROUP, LIST, LONG_LINK, MANY,
    MANY_ATTRIBUTES, ORPHAN, SHORT_LINK, Sample, TREE_DIR,
};
use crate::btree::{Kind, Tree};
use crate::dir::{Directory, NameHash};
use crate::format::btree::raw_mut;
use crate::format::byte_of_block;
use crate::format::group::{CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, InodeChunks, RawChunk};
use crate::format::inode::{ROOT_INO, records_mut};
use crate::inode::core::{AttrFork, DataFork, FileKind};

type Damages = (&'static str, fn(&Sample), &'static [u32]);

/// Damages a copy of the sample in each of these ways, and compares the findings.
fn each(damages: &[Damages]) {
    let sample = Sample::new();
    for (name, damage, expected) in damages {
        let copy = sample.copied();
        damage(&copy);
        let report = copy.check();
        assert_eq!(copy.found(), *expected, "{name}: {:#?}", report.findings);
        for finding in &report.findings {
            let shown = finding.to_string();
            assert!(shown.starts_with(&format!("V{:03}: ", finding.number())), "{shown}");
        }
    }
}

fn free_space(group: u32) -> Tree<FreeSpace> {
    Tree::at(u64::from(group) * GROUP + FREE_ROOT_AT, group.into())
}

/// Changes the masks of the only chunk: of free inodes and of orphans.
pub(super) fn masks(sample: &Sample, change: impl Fn(u64, u64) -> (u64, u64)) {
    sample.trees(|overlay| {
        let tree = Tree::<InodeChunks>::at(CHUNK_ROOT_AT, 0);
        let before = tree.get(overlay, CHUNK.into()).unwrap().unwrap();
        let (free, orphan) = change(before.free.get(), before.orphan.get());
        let value = RawChunk { free: free.into(), orphan: orphan.into() };
        tree.update(overlay, CHUNK.into(), value).unwrap();
        sample.header(0, |header| {
            header.free_inodes = free.count_ones().into();
            header.orphans = orphan.count_ones().into();
        });
    });
}

/// Adds a name to a directory.
pub(super) fn name(sample: &Sample, directory: u64, name: &[u8], to: u64, kind: FileKind) {
    let mut core = sample.core(directory);
    let names = Directory::new(directory, NameHash::of(super::sample::ID));
    sample.trees(|overlay| {
        let _ = names.insert(overlay, &mut core, name, (to, kind)).unwrap();
    });
    sample.inode(directory, |inode| *inode = core);
}

pub(super) fn no_name(sample: &Sample, directory: u64, name: &[u8]) {
    let mut core = sample.core(directory);
    let names = Directory::new(directory, NameHash::of(super::sample::ID));
    sample.trees(|overlay| {
        names.remove(overlay, &mut core, name).unwrap().unwrap();
    });
    sample.inode(directory, |inode| *inode = core);
}

/// Flips a bit, so the checksum becomes wrong.
pub(super) fn flip(sample: &Sample, address: u64, at: u64) {
    let mut block = [0; 4096];
    sample.device.read_at(byte_of_block(address), &mut block).unwrap();
    block[at as usize] ^= 1;
    sample.device.write_at(byte_of_block(address), &block).unwrap();
}

#[test]
fn superblocks_and_groups() {
    each(&[
        ("nothing", |_| {}, &[]),
        ("the superblock", |s| flip(s, 0, 300), &[1000]),
        ("a copy", |s| flip(s, GROUP, 300), &[1000]),
        ("free blocks", |s| s.header(1, |h| h.free += 1), &[1013]),
        ("free inodes", |s| s.header(0, |h| h.free_inodes -= 1), &[1014]),
        ("inodes", |s| s.header(0, |h| h.inodes += 64), &[1015]),
        ("orphans", |s| s.header(0, |h| h.orphans += 1), &[1016]),
        ("tree blocks", |s| s.header(3, |h| h.tree_blocks += 1), &[1030]),
        ("a header", |s| flip(s, GROUP + 1, 100), &[2]),
        ("the size of a group", |s| s.header(1, |h| h.blocks += 1), &[308]),
        (
            "a group that has not grown yet",
            |s| {
                s.header(1, |h| (h.blocks, h.free) = (h.blocks - 24, h.free - 24));
                s.trees(|overlay| {
                    let first = (GROUP + 8).into();
                    let count = free_space(1).get(overlay, first).unwrap().unwrap().get();
                    free_space(1).update(overlay, first, (count - 24).into()).unwrap();
                });
            },
            &[],
        ),
        ("set aside and free", |s| s.header(1, |h| h.set_aside.push(GROUP + 50)), &[1011]),
        (
            "set aside and in use",
            |s| s.header(0, |h| h.set_aside[0] = s.core(LIST).first_block()),
            &[1010],
        ),
        ("set aside elsewhere", |s| s.header(0, |h| h.set_aside[0] = GROUP + 50), &[301]),
        ("the root of free space", |s| flip(s, GROUP + FREE_ROOT_AT, 80), &[2, 1013]),
        ("the root of chunks", |s| flip(s, CHUNK_ROOT_AT, 80), &[2, 1014, 1015, 1016, 1028]),
        ("a link of a root", |s| s.block(CHUNK_ROOT_AT, |b| raw_mut(b).left = 5.into()), &[204]),
    ]);
}

#[test]
fn free_space_and_chunks() {
    each(&[
        (
            "one block less",
            |s| {
                s.trees(|overlay| {
                    let first = (GROUP + 8).into();
                    let count = free_space(1).get(overlay, first).unwrap().unwrap().get();
                    free_space(1).update(overlay, first, (count - 1).into()).unwrap();
                });
                s.header(1, |h| h.free -= 1);
            },
            &[1012],
        ),
        (
            "one block more",
            |s| {
                s.trees(|overlay| {
                    let free = free_space(0).first(overlay).unwrap().unwrap();
                    free_space(0).remove(overlay, free.key).unwrap();
                    let (start, count) = (free.key.get() - 1, free.value.get() + 1);
                    free_space(0).insert(overlay, start.into(), count.into()).unwrap();
                });
                s.header(0, |h| h.free += 1);
            },
            &[1011],
        ),
        (
            "a run in another group",
            |s| {
                s.trees(|overlay| {
                    free_space(1).insert(overlay, 5.into(), 2.into()).unwrap();
                });
            },
            &[302],
        ),
        (
            "a run over another",
            |s| {
                s.trees(|overlay| {
                    free_space(1).insert(overlay, (GROUP + 20).into(), 2.into()).unwrap();
                });
                s.header(1, |h| h.free += 2);
            },
            &[302],
        ),
        (
            "a run without end",
            |s| {
                s.trees(|overlay| {
                    free_space(1).insert(overlay, (GROUP + 20).into(), u64::MAX.into()).unwrap();
                });
            },
            &[302],
        ),
        (
            "a chunk in no place",
            |s| {
                s.trees(|overlay| {
                    let value = RawChunk { free: u64::MAX.into(), orphan: 0.into() };
                    let tree = Tree::<InodeChunks>::at(CHUNK_ROOT_AT, 0);
                    tree.insert(overlay, 21.into(), value).unwrap();
                });
            },
            &[303],
        ),
        ("used and free", |s| masks(s, |free, orphan| (free & (free - 1), orphan)), &[1018]),
        ("free and used", |s| masks(s, |free, orphan| (free | 4, orphan)), &[1018]),
        ("free and an orphan", |s| masks(s, |free, orphan| (free, orphan | 1 << 20)), &[1019]),
        ("no orphan any more", |s| masks(s, |free, _| (free, 0)), &[1020]),
    ]);
}

#[test]
fn inodes() {
    each(&[
        ("a block of inodes", |s| flip(s, CHUNK, 1000), &[2, 412]),
        (
            "the checksum of a record",
            |s| s.block(CHUNK, |block| records_mut(block)[2].0[20] ^= 1),
            &[412],
        ),
        ("a type", |s| s.inode(FIFO, |i| i.mode = 0o030_644), &[401]),
        ("links", |s| s.inode(MANY, |i| i.nlink += 1), &[1021]),
        ("links of a directory", |s| s.inode(TREE_DIR, |i| i.nlink = 2), &[1021]),
        ("blocks", |s| s.inode(EXTENTS, |i| i.blocks -= 1), &[1022]),
        ("blocks of a link", |s| s.inode(SHORT_LINK, |i| i.blocks = 1), &[1022]),
        ("size of a link", |s| s.inode(LONG_LINK, |i| i.size = 2000), &[1036]),
        ("size of a file", |s| s.inode(LIST, |i| i.size = 4096), &[1029]),
        (
            "an extent in the log",
            |s| {
                s.inode(LIST, |inode| {
                    let DataFork::Extents(list) = &inode.data else { panic!("extents") };
                    let mut list = list.to_vec();
                    list[0].start = 2 * GROUP + 20;
                    inode.data = DataFork::Extents(list.into());
                });
            },
            &[702],
        ),
        (
            "blocks of another file",
            |s| {
                s.inode(LIST, |inode| {
                    let DataFork::Extents(list) = &inode.data else { panic!("extents") };
                    let mut list = list.to_vec();
                    list[0].start += 2;
                    inode.data = DataFork::Extents(list.into());
                });
            },
            &[1010],
        ),
        (
            "the length of attributes",
            |s| {
                s.inode(MANY_ATTRIBUTES, |inode| {
                    let AttrFork::Tree { bytes, .. } = &mut inode.attr else { panic!("a tree") };
                    *bytes += 480;
                });
            },
            &[600, 1031],
        ),
        (
            "attributes",
            |s| s.inode(FEW_ATTRIBUTES, |i| i.attr = AttrFork::Inline([1; 3][..].into())),
            &[604, 1031],
        ),
        (
            "a tree of another",
            |s| {
                let root = s.core(LONG_LINK).data;
                s.inode(LIST, |inode| (inode.data, inode.blocks) = (root, 1));
            },
            &[1, 1010, 1031],
        ),
    ]);
}

#[test]
fn names() {
    each(&[
        ("no such inode", |s| name(s, ROOT_INO, b"ghost", FREE, FileKind::Regular), &[1023]),
        ("no such chunk", |s| name(s, ROOT_INO, b"ghost", 8 * 900, FileKind::Regular), &[1023]),
        (
            "another type",
            |s| {
                no_name(s, ROOT_INO, b"fifo");
                name(s, ROOT_INO, b"fifo", FIFO, FileKind::Socket);
            },
            &[1024],
        ),
        ("a name is gone", |s| no_name(s, ROOT_INO, b"fifo"), &[1021]),
        ("an orphan has a name", |s| name(s, ROOT_INO, b"o", ORPHAN, FileKind::Regular), &[1021]),
        (
            "two names of a directory",
            |s| {
                name(s, ROOT_INO, b"again", BELOW, FileKind::Directory);
                s.inode(ROOT_INO, |i| i.nlink += 1);
            },
            &[1025],
        ),
        (
            "a name of the root",
            |s| {
                name(s, TREE_DIR, b"root", ROOT_INO, FileKind::Directory);
                s.inode(TREE_DIR, |i| i.nlink += 1);
            },
            &[1025],
        ),
        ("another parent", |s| s.inode(BELOW, |i| i.parent = ROOT_INO), &[1026]),
        (
            "a directory in itself",
            |s| {
                no_name(s, ROOT_INO, b"tree");
                s.inode(ROOT_INO, |i| i.nlink -= 1);
                name(s, BELOW, b"up", TREE_DIR, FileKind::Directory);
                s.inode(BELOW, |i| i.nlink += 1);
                s.inode(TREE_DIR, |i| i.parent = BELOW);
            },
            &[1027],
        ),
        ("the size of a directory", |s| s.inode(TREE_DIR, |i| i.size += 1), &[508, 1031]),
        ("a file as the root", |s| s.inode(ROOT_INO, |i| i.mode = 0o100_644), &[410]),
        ("no root", |s| s.inode(ROOT_INO, |i| (i.mode, i.parent) = (0o100_644, 0)), &[1028]),
    ]);
}

/// A tree refers to a block that is reserved for its group.
#[test]
fn a_way_out_of_place() {
    let sample = Sample::new().copied();
    let DataFork::Tree { root } = sample.core(TREE_DIR).data else { panic!("a tree") };
    sample.block(root, |block| {
        let node = raw_mut(block);
        assert!(node.level.get() > 0);
        let key = size_of::<<crate::dir::DirTree as Kind>::Key>();
        node.area[key..key + 8].copy_from_slice(&FREE_ROOT_AT.to_le_bytes());
    });
    let found = sample.found();
    assert!(found.contains(&1017) && found.contains(&1), "{found:?}");
}
