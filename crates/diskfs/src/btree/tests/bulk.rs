//! Trees built from sorted records.

use super::*;
use crate::format::damage::TreeDamage;

fn records(count: u64) -> Vec<Record<Small<6>>> {
    (0..count).map(|key| Entry { key: (key * 3).into(), value: (key as u32).into() }).collect()
}

#[test]
fn a_tree_of_any_size_and_fill_is_right_and_can_be_changed() {
    for count in (0..90).chain([1000]) {
        for fill in [0, 50, 67, 80, 100, 255] {
            let mut nodes = Memory::new();
            let tree =
                Tree::<Small<6>>::build(&mut nodes, OWNER, 5, &records(count), fill).unwrap();
            nodes.commit();
            assert_eq!(sound(&tree, &nodes).records, count);
            let expected: Vec<_> = (0..count).map(|key| key * 3).collect();
            assert_eq!(keys(&tree, &nodes), expected);
            for key in (0..count).step_by(4) {
                assert!(tree.insert(&mut nodes, (key * 3 + 1).into(), 0.into()).unwrap());
                assert_eq!(
                    tree.remove(&mut nodes, (key * 3).into()).unwrap(),
                    Some((key as u32).into())
                );
                nodes.commit();
            }
            assert_eq!(sound(&tree, &nodes).records, count);
        }
    }
}

#[test]
fn fill_is_what_was_wanted() {
    for fill in [50, 75, 100] {
        let mut nodes = Memory::new();
        let records: Vec<_> =
            (0..50_000).map(|key| Entry { key: double(key), value: 1.into() }).collect();
        let tree = Tree::<Large>::build(&mut nodes, OWNER, 5, &records, fill).unwrap();
        nodes.commit();
        let summary = sound(&tree, &nodes);
        let percent = summary.records * 100 / summary.room;
        assert!(percent.abs_diff(u64::from(fill)) <= 1, "{percent} percent");
    }
}

#[test]
fn disorder_and_a_full_volume_leave_nothing_behind() {
    let mut nodes = Memory::new();
    for at in 1..20 {
        let mut records = records(20);
        records[at].key = records[at - 1].key;
        let error = Tree::<Small<6>>::build(&mut nodes, OWNER, 5, &records, 100).unwrap_err();
        let fault = TreeFault::Order { record: at as u16 };
        assert_eq!(error, Error::Damage(TreeDamage { address: 5, fault }.into()));
        assert_eq!(nodes.blocks.len(), 0);
    }
    for limit in 1.. {
        nodes.limit = limit;
        match Tree::<Small<6>>::build(&mut nodes, OWNER, 5, &records(100), 100) {
            Ok(_) => {
                assert_eq!(nodes.blocks.len() as u64, limit);
                break;
            }
            Err(error) => assert_eq!(error, Error::Nodes(Failure::NoSpace)),
        }
        assert_eq!(nodes.blocks.len(), 0);
    }
}
