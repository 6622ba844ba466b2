//! Damaged directories.

use zerocopy::IntoBytes;

use super::*;
use crate::format::dir::{DirKey, DirPart};

/// Returns a directory in the inode with these bytes.
fn inline(bytes: &[u8]) -> Fixture {
    let mut fix = Fixture::new(hash());
    fix.core.data = DataFork::Inline(bytes.into());
    fix.core.size = bytes.len() as u64;
    fix
}

fn three() -> Fixture {
    let mut fix = Fixture::new(hash());
    for name in [&b"first"[..], b"second", b"third"] {
        let _ = fix.insert(name, 100);
    }
    fix
}

/// Returns the damage found by reading, the first one found by the check, and the entries found.
fn told(fix: &Fixture) -> (Option<u32>, Option<u32>, usize) {
    let read = fix.dir.read(&fix.nodes, &fix.core, 0, |_| ControlFlow::Continue(()));
    let (wrong, names, _) = fix.checked();
    (read.err().and_then(|error| number(&error)), wrong.first().copied(), names.len())
}

#[test]
fn damage_of_a_directory_in_its_inode() {
    let fix = three();
    let DataFork::Inline(bytes) = &fix.core.data else { panic!("a tree") };
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = byte;
        told(&inline(&bytes))
    };
    assert_eq!(told(&inline(bytes)), (None, None, 3));
    assert_eq!(told(&inline(&bytes[..bytes.len() - 1])), (Some(500), Some(500), 2));
    assert_eq!(told(&inline(&bytes[..7])), (Some(500), Some(500), 0));
    assert_eq!(with(7, 0x80), (Some(501), Some(501), 0));
    assert_eq!(with(7, 0x7F), (Some(501), Some(506), 1));
    assert_eq!(with(17, 0), (Some(502), Some(502), 0));
    assert_eq!(with(18, b'/'), (Some(502), Some(502), 0));
    assert_eq!(with(16, 3), (Some(503), Some(503), 0));
    assert_eq!(with(8, 1), (Some(504), Some(504), 3));
    assert_eq!(with(18, b'F').1, Some(506));
    let mut other = fix.core.clone();
    other.size += 1;
    let fix = Fixture { core: other, ..fix };
    assert_eq!(told(&fix), (None, Some(508), 3));
}

/// Returns a tree with the records of three names, one of them in several parts, after a change.
fn tree_with(
    change: impl FnOnce(&mut BTreeMap<(u64, u8), [u8; 31]>),
) -> (Option<u32>, Option<u32>, usize) {
    let mut fix =
        Fixture::new(NameHash::planted(|name| 16 + u64::from(name[0].wrapping_sub(b'a')) * 16));
    let mut map = BTreeMap::new();
    for (name, position) in [(&b"a"[..], 16), (&[b'b'; 60][..], 32), (b"b", 33), (b"c", 48)] {
        let entry = DirEntry { position, ino: 100, kind: FileKind::Regular, name };
        fix.core.size += entry_bytes(name);
        for record in tree::records(&entry) {
            map.insert((record.key.position.get(), record.key.part), record.value.0);
        }
    }
    change(&mut map);
    let records: Vec<_> = map
        .into_iter()
        .map(|((position, part), value)| Entry {
            key: DirKey::new(position, part),
            value: DirPart(value),
        })
        .collect();
    let tree = Tree::<DirTree>::build(&mut fix.nodes, INO, 10, &records, 100).unwrap();
    fix.nodes.commit();
    (fix.core.data, fix.core.blocks) = (DataFork::Tree { root: tree.root() }, 1);
    told(&fix)
}

#[test]
fn damage_of_a_directory_in_a_tree() {
    assert_eq!(tree_with(|_| {}), (None, None, 4));
    let without = |position, part| {
        tree_with(|map| {
            map.remove(&(position, part)).unwrap();
        })
    };
    assert_eq!(without(32, 2), (Some(505), Some(505), 3));
    assert_eq!(without(32, 1), (Some(505), Some(505), 3));
    assert_eq!(without(32, 0), (Some(505), Some(505), 3));
    let with =
        |key, at: usize, byte: u8| tree_with(|map| map.entry(key).or_insert([0; 31])[at] = byte);
    assert_eq!(with((16, 1), 0, 1), (Some(505), Some(505), 4));
    assert_eq!(with((15, 0), 0, 1), (Some(501), Some(501), 4));
    assert_eq!(with((1 << 63, 0), 0, 1), (Some(501), Some(501), 4));
    assert_eq!(with((16, 0), 9, 0), (Some(502), Some(502), 3));
    assert_eq!(with((16, 0), 10, b'/'), (Some(502), Some(502), 3));
    assert_eq!(with((32, 2), 5, 0), (Some(502), Some(502), 3));
    assert_eq!(with((16, 0), 8, 99), (Some(503), Some(503), 3));
    assert_eq!(with((16, 0), 0, 1), (Some(504), Some(504), 4));
    assert_eq!(with((16, 0), 10, b'b'), (None, Some(506), 4));
    assert_eq!(
        tree_with(|map| {
            let head = map[&(33, 0)];
            map.insert((40, 0), head);
        }),
        (None, Some(507), 5)
    );
}

proptest! {
    #[test]
    fn garbage_in_an_inode_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..396)) {
        let fix = inline(&bytes);
        let (read, wrong, _) = told(&fix);
        prop_assert!(bytes.is_empty() || read.is_some() && wrong.is_some());
        let _ = fix.dir.lookup(&fix.nodes, &fix.core, b"a");
    }

    #[test]
    fn a_byte_that_is_not_right_is_no_more_than_that(at in 0..71_usize, byte: u8) {
        let fix = three();
        let DataFork::Inline(bytes) = &fix.core.data else { panic!("a tree") };
        let mut bytes = bytes.to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let mut fix = inline(&bytes);
        told(&fix);
        let _ = fix.dir.remove(&mut fix.nodes, &mut fix.core, b"third");
        let to = (100, FileKind::Regular);
        let _ = fix.dir.insert(&mut fix.nodes, &mut fix.core, &[b'x'; 255], to);
    }

    #[test]
    fn garbage_in_a_tree_is_an_error(
        keys in prop::collection::btree_set((14..60_u64, 0..4_u8), 1..60),
        values in prop::collection::vec(any::<[u8; 31]>(), 60),
    ) {
        tree_with(|map| map.extend(keys.into_iter().zip(values.into_iter().map(|mut value| {
            (value[8], value[9]) = (value[8] % 13, value[9] % 90);
            value
        }))));
    }
}

#[test]
fn bytes_of_an_entry_lie_where_format_md_says() {
    let name = [b'n'; 30];
    let entry = DirEntry { position: 0x0102, ino: 0x0304, kind: FileKind::Link, name: &name };
    let mut fix = Fixture::new(NameHash::planted(|_| 0x0102));
    let _ = fix.insert(b"abc", 0x0304);
    let DataFork::Inline(bytes) = &fix.core.data else { panic!("a tree") };
    assert_eq!(bytes[..18], [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 8, 3]);
    assert_eq!(&bytes[18..], b"abc");
    let records: Vec<_> = tree::records(&entry).collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].value.as_bytes()[..10], [4, 3, 0, 0, 0, 0, 0, 0, 10, 30]);
    assert_eq!(records[0].value.0[10..], [b'n'; 21]);
    assert_eq!(records[1].key, DirKey::new(0x0102, 1));
    assert_eq!(
        (&records[1].value.0[..9], &records[1].value.0[9..]),
        (&[b'n'; 9][..], &[0; 22][..])
    );
}
