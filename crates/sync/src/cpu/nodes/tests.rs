use super::*;

fn lists(nodes: &[&str]) -> Vec<(u32, String)> {
    nodes.iter().enumerate().map(|(node, list)| (node as u32, format!("{list}\n"))).collect()
}

#[test]
fn each_cpu_is_on_the_node_that_lists_it() {
    assert_eq!(by_cpu(&lists(&["0-1,4", "2-3,5"])), [0, 0, 1, 1, 0, 1]);
}

#[test]
fn nodes_without_cpus_do_not_count() {
    assert_eq!(by_cpu(&lists(&["0-3", ""])), []);
    assert_eq!(by_cpu(&lists(&[])), []);
}

#[test]
fn lists_that_are_not_well_formed_name_fewer_cpus() {
    for (list, expected) in [
        ("0,x,2-", vec![0]),
        ("3-1", vec![]),
        ("0-99999999999999999999,1", vec![1]),
        ("0-4294967295,1", vec![1]),
    ] {
        assert_eq!(cpus(list).collect::<Vec<_>>(), expected, "{list}");
    }
}

#[test]
fn pretended_nodes_have_neighbours() {
    let nodes = SlotNodes::pretended(6, 2);
    assert_eq!((0..6).map(|slot| nodes.node(slot)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1]);
    assert_eq!((nodes.count(), nodes.slots_of(1)), (2, 3));
    assert_eq!(SlotNodes::pretended(2, 8).count(), 2);
}

/// A process that may use the CPUs of nodes 5 and 3 only has two parts.
#[test]
fn nodes_are_numbered_by_use() {
    let nodes = SlotNodes::numbered([5, 3, 5].into_iter());
    assert_eq!((0..4).map(|slot| nodes.node(slot)).collect::<Vec<_>>(), [0, 1, 0, 0]);
}

#[test]
fn each_slot_has_a_node_of_this_machine() {
    let nodes = SlotNodes::of_machine(8);
    assert!(nodes.count() >= 1);
    assert!((0..8).all(|slot| nodes.node(slot) < nodes.count()));
    assert_eq!((0..nodes.count()).map(|node| nodes.slots_of(node)).sum::<usize>(), 8);
}
