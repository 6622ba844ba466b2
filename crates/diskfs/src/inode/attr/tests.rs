use proptest::prelude::*;

use super::*;
use crate::btree::memory::Memory;
use crate::format::inode::{ATTR_BYTES_MAX, DATA_BYTES_MAX};
use crate::inode::core::{DataFork, TYPE_REGULAR};

const INO: u64 = 77;

fn core() -> InodeCore {
    InodeCore::new(TYPE_REGULAR | 0o644, 1, 0)
}

fn pair(name: &str, value_bytes: usize) -> Attribute {
    let value: Vec<u8> = (0..value_bytes).map(|at| at as u8).collect();
    (name.as_bytes().into(), value.into())
}

fn stored(nodes: &mut Memory, core: &mut InodeCore, list: &[Attribute]) {
    store(nodes, INO, 0, core, &encode(list).unwrap()).unwrap();
    assert_eq!(load(nodes, INO, &core.attr).unwrap(), list);
}

#[test]
fn they_lie_where_there_is_room_and_give_their_blocks_back() {
    let (mut nodes, mut core) = (Memory::new(), core());
    stored(&mut nodes, &mut core, &[pair("user.a", 10)]);
    assert!(matches!(core.attr, AttrFork::Inline(_)) && core.blocks == 0);
    stored(&mut nodes, &mut core, &[pair("user.a", 10), pair("user.b", 65_536)]);
    assert!(matches!(core.attr, AttrFork::Tree { .. }) && core.blocks > 16);
    assert_eq!(core.blocks, nodes.blocks.len() as u64);
    stored(&mut nodes, &mut core, &[pair("user.a", 10), pair("user.b", 5_000)]);
    assert_eq!(core.blocks, nodes.blocks.len() as u64);
    stored(&mut nodes, &mut core, &[pair("user.b", 200)]);
    assert!(matches!(core.attr, AttrFork::Inline(_)) && core.blocks == 0);
    stored(&mut nodes, &mut core, &[]);
    assert_eq!((core.attr, nodes.blocks.len()), (AttrFork::None, 0));
}

#[test]
fn data_in_the_inode_leave_them_the_room_that_is_left() {
    let (mut nodes, mut core) = (Memory::new(), core());
    core.data = DataFork::Inline(vec![7; DATA_BYTES_MAX].into());
    core.size = DATA_BYTES_MAX as u64;
    stored(&mut nodes, &mut core, &[pair("user.a", 20)]);
    assert!(matches!(core.attr, AttrFork::Tree { .. }));
    core.data = DataFork::None;
    stored(&mut nodes, &mut core, &[pair("user.a", 20)]);
    assert!(matches!(core.attr, AttrFork::Inline(_)));
    assert_eq!(load(&nodes, INO, &core.attr).unwrap(), [pair("user.a", 20)]);
}

#[test]
fn an_attribute_that_is_too_large_is_refused() {
    assert_eq!(encode(&[pair("", 1)]), Err(Refusal::Length));
    assert_eq!(encode(&[pair("user.a", 65_537)]), Err(Refusal::Length));
    assert_eq!(encode(&[pair(&"n".repeat(256), 1)]), Err(Refusal::Length));
    let full = [pair("user.a", 65_536), pair("user.b", 65_536)];
    assert_eq!(encode(&full), Err(Refusal::Full));
    assert!(encode(&full[..1]).is_ok());
}

#[test]
fn damage_of_an_attribute_blob_has_a_number() {
    let good = encode(&[pair("user.a", 3), pair("user.b", 3)]).unwrap();
    let twice = [&good[..], &good[..]].concat();
    let fault = |blob: &[u8]| decode(blob).unwrap_err().number();
    assert_eq!(fault(&twice), 603);
    assert_eq!(fault(&good[..good.len() - 1]), 602);
    assert_eq!(fault(&[&good[..], &[1, 2]].concat()), 604);
    assert_eq!(fault(&[0, 0, 0, 0, 0]), 602);
}

#[test]
fn a_tree_with_too_few_or_too_many_chunks_is_damaged() {
    let (mut nodes, mut core) = (Memory::new(), core());
    stored(&mut nodes, &mut core, &[pair("user.a", 5_000)]);
    let AttrFork::Tree { root, bytes } = core.attr else { panic!("{:?}", core.attr) };
    for (bytes, number) in [(bytes + 480, 600), (bytes - 480, 601)] {
        match load(&nodes, INO, &AttrFork::Tree { root, bytes }) {
            Err(Error::Damage(damage)) => assert_eq!(damage.number(), number),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_list_stays_in_order() {
    let mut list = Vec::new();
    for name in ["user.c", "user.a", "user.b", "user.a"] {
        set(&mut list, name.as_bytes(), Some(b"x"));
    }
    set(&mut list, b"user.b", None);
    set(&mut list, b"user.z", None);
    let names: Vec<_> = list.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, [b"user.a", b"user.c"]);
}

const _: () = assert!(ATTR_BYTES_MAX < 5_000);

proptest! {
    #[test]
    fn any_bytes_are_a_list_or_an_error(blob in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(list) = decode(&blob) {
            prop_assert_eq!(encode(&list).unwrap(), blob);
        }
    }
}
