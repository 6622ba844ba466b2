use super::*;
use crate::Uuid;
use crate::btree::memory::Memory;
use crate::dir::{Directory, Insertion, NameHash};
use crate::inode::core::{TYPE_DIRECTORY, TYPE_LINK, TYPE_REGULAR};
use crate::inode::{attr, blob};

const INO: u64 = 800;

/// Number of records that one transaction removes.
const RECORDS_AT_ONCE: usize = 8;

/// Returns the number of transactions that remove all records.
fn stripped(nodes: &mut Memory, core: &mut InodeCore) -> usize {
    for count in 1.. {
        let before = nodes.blocks.len();
        let is_done = strip(nodes, INO, core, RECORDS_AT_ONCE).unwrap();
        nodes.commit();
        assert!(before - nodes.blocks.len() <= 6, "{before} blocks, {} left", nodes.blocks.len());
        assert_eq!(core.blocks, nodes.blocks.len() as u64);
        if is_done {
            assert!(nodes.blocks.is_empty());
            return count;
        }
    }
    unreachable!("numbers end later");
}

fn with_attributes(nodes: &mut Memory, core: &mut InodeCore, bytes: usize) {
    let list = vec![(Box::from(&b"user.large"[..]), vec![7; bytes].into())];
    attr::store(nodes, INO, 10, core, &attr::encode(&list).unwrap()).unwrap();
    nodes.commit();
}

#[test]
fn an_inactive_inode_without_blocks_needs_no_transaction() {
    for kind in [TYPE_REGULAR, TYPE_DIRECTORY, TYPE_LINK] {
        let mut nodes = Memory::new();
        let mut core = InodeCore::new(kind, 1, 0);
        with_attributes(&mut nodes, &mut core, 100);
        core.data = DataFork::Inline([1; 100].into());
        assert_eq!(stripped(&mut nodes, &mut core), 1);
    }
}

#[test]
fn attributes_go_in_pieces() {
    let mut nodes = Memory::new();
    let mut core = InodeCore::new(TYPE_REGULAR, 1, 0);
    with_attributes(&mut nodes, &mut core, 2000);
    assert_eq!((core.blocks, stripped(&mut nodes, &mut core)), (1, 1));
    with_attributes(&mut nodes, &mut core, 60_000);
    assert!(core.blocks > 10);
    // 126 records, and the root.
    assert_eq!(stripped(&mut nodes, &mut core), 16);
    assert_eq!(core.attr, AttrFork::None);
}

#[test]
fn the_target_of_a_link_goes() {
    let mut nodes = Memory::new();
    let mut core = InodeCore { size: 4000, ..InodeCore::new(TYPE_LINK, 1, 0) };
    let tree = blob::create::<LinkTree, _>(&mut nodes, INO, 10, &[b'x'; 4000]).unwrap();
    nodes.commit();
    core.data = DataFork::Tree { root: tree.root() };
    core.blocks = nodes.blocks.len() as u64;
    with_attributes(&mut nodes, &mut core, 3000);
    assert_eq!(stripped(&mut nodes, &mut core), 3);
}

#[test]
fn a_directory_goes_with_whatever_is_left_in_it() {
    let dir = Directory::new(INO, NameHash::of(Uuid::from_bytes(*b"volume of a test")));
    for (names, expected) in [(30, 1), (3000, 1)] {
        let mut nodes = Memory::new();
        let mut core = InodeCore::new(TYPE_DIRECTORY, 1, 0);
        let name = |number| format!("name {number}").into_bytes();
        for number in 0..names {
            let to = (100, FileKind::Regular);
            let inserted = dir.insert(&mut nodes, &mut core, &name(number), to).unwrap();
            assert!(matches!(inserted, Insertion::At(_)));
        }
        nodes.commit();
        for number in 0..names {
            dir.remove(&mut nodes, &mut core, &name(number)).unwrap().unwrap();
            nodes.commit();
        }
        assert_eq!(stripped(&mut nodes, &mut core), expected);
    }
    let (mut nodes, mut core) = (Memory::new(), InodeCore::new(TYPE_DIRECTORY, 1, 0));
    for number in 0..100 {
        let to = (100, FileKind::Regular);
        let name = format!("name {number}");
        let _ = dir.insert(&mut nodes, &mut core, name.as_bytes(), to).unwrap();
    }
    nodes.commit();
    assert_eq!(stripped(&mut nodes, &mut core), 13);
}

#[test]
fn data_of_a_file_are_left_to_who_knows_them() {
    let mut nodes = Memory::new();
    let mut core = InodeCore::new(TYPE_REGULAR, 1, 0);
    core.data = DataFork::Tree { root: 77 };
    assert_eq!(strip(&mut nodes, INO, &mut core, 8), Ok(false));
    assert_eq!(core.data, DataFork::Tree { root: 77 });
}
