//! Every call on the blocks fails once: the tree is unchanged.

use super::*;

type Deep = Tree<Small<4>>;
type Outcome<T> = Result<T, Error<Failure>>;

/// Calls `change` with its first call on the blocks failing, then its second, and so on, until it
/// succeeds. Returns the number of these calls.
fn with_every_fault<T>(
    nodes: &mut Memory,
    tree: &Deep,
    change: impl Fn(&Deep, &mut Memory) -> Outcome<T>,
) -> u64 {
    let (bodies, before) = (nodes.bodies(), keys(tree, nodes));
    for call in 1.. {
        nodes.failing = Some(nodes.calls.get() + call);
        let outcome = change(tree, nodes);
        nodes.failing = None;
        nodes.commit();
        match outcome {
            Ok(_) => return call - 1,
            Err(error) => assert_eq!(error, Error::Nodes(Failure::Injected)),
        }
        assert!(nodes.bodies() == bodies, "call {call} has changed the tree");
        assert_eq!(keys(tree, nodes), before);
    }
    unreachable!("a call that has no end")
}

#[test]
fn every_failing_call_leaves_the_tree_as_it_was() {
    let (mut nodes, tree) = tree_of::<4>([]);
    let mut most = 0;
    for key in scattered(70) {
        let insert = |tree: &Deep, nodes: &mut Memory| tree.insert(nodes, key.into(), 1.into());
        most = most.max(with_every_fault(&mut nodes, &tree, insert));
        sound(&tree, &nodes);
    }
    let height = u64::from(tree.height(&nodes).unwrap());
    // At least one split propagated up to the root.
    assert!(height >= 4 && most > 2 * height, "{height} levels, {most} calls");
    for key in scattered(70).collect::<BTreeSet<_>>() {
        let update = |tree: &Deep, nodes: &mut Memory| tree.update(nodes, key.into(), 2.into());
        assert!(with_every_fault(&mut nodes, &tree, update) > 1);
        let remove = |tree: &Deep, nodes: &mut Memory| tree.remove(nodes, key.into());
        with_every_fault(&mut nodes, &tree, remove);
        sound(&tree, &nodes);
    }
    assert_eq!(nodes.blocks.len(), 1);
}

#[test]
fn removing_in_any_order_survives_every_failing_call() {
    let (mut nodes, tree) = tree_of::<4>(0..60);
    for key in scattered(200).map(|key| key % 60) {
        let remove = |tree: &Deep, nodes: &mut Memory| tree.remove(nodes, key.into());
        with_every_fault(&mut nodes, &tree, remove);
        sound(&tree, &nodes);
    }
}

#[test]
fn a_full_volume_refuses_and_changes_nothing() {
    let (mut nodes, tree) = tree_of::<4>([]);
    let mut most = 0;
    for key in scattered(200) {
        let (bodies, blocks) = (nodes.bodies(), nodes.blocks.len() as u64);
        let height = u64::from(tree.height(&nodes).unwrap());
        let allocated = (0..).find(|more| {
            nodes.limit = blocks + more;
            let outcome = tree.insert(&mut nodes, key.into(), 1.into());
            nodes.commit();
            if let Err(error) = &outcome {
                assert_eq!(*error, Error::Nodes(Failure::NoSpace));
                assert!(nodes.bodies() == bodies, "a failed insertion has changed the tree");
            }
            outcome.is_ok()
        });
        let allocated = allocated.unwrap();
        assert_eq!(nodes.blocks.len() as u64, blocks + allocated);
        assert!(allocated <= height + 1);
        most = most.max(allocated);
        sound(&tree, &nodes);
    }
    assert!(most >= 4);
    // Removal works on a full volume.
    nodes.limit = 1;
    for key in scattered(200) {
        assert!(tree.remove(&mut nodes, key.into()).unwrap().is_some());
        nodes.commit();
    }
    assert_eq!(nodes.blocks.len(), 1);
}

#[test]
fn reading_calls_pass_errors_on() {
    let (mut nodes, tree) = tree_of::<4>(0..40);
    let height = u64::from(tree.height(&nodes).unwrap());
    for call in 1..=height {
        nodes.failing = Some(nodes.calls.get() + call);
        let injected = Error::Nodes(Failure::Injected);
        assert_eq!(tree.get(&nodes, 20.into()).unwrap_err(), injected);
        nodes.failing = Some(nodes.calls.get() + call);
        assert_eq!(tree.check(&nodes, |_| {}, |_| {}).unwrap_err(), injected);
        nodes.failing = Some(nodes.calls.get() + height + call);
        assert_eq!(tree.count(&nodes).unwrap_err(), injected);
    }
    // A cursor does not move when a call fails, and can continue.
    let mut cursor = tree.seek(&nodes, 0.into()).unwrap();
    nodes_fail_at_next_leaf(&nodes, &mut cursor);
}

/// Visits all records although each step to another leaf fails once.
fn nodes_fail_at_next_leaf(nodes: &Memory, cursor: &mut Cursor<'_, Small<4>, Memory>) {
    // The failing call is chosen through the count of calls, which a shared reference can set.
    let failing = nodes.failing.unwrap();
    let (mut key, mut failures) = (0, 0);
    loop {
        nodes.calls.set(failing - 1);
        let record = match cursor.forward() {
            Err(error) => {
                assert_eq!(error, Error::Nodes(Failure::Injected));
                failures += 1;
                nodes.calls.set(failing);
                cursor.forward().unwrap()
            }
            Ok(record) => record,
        };
        let Some(record) = record else { break };
        assert_eq!(record.key, key);
        key += 1;
    }
    assert_eq!(key, 40);
    assert!(failures >= 9);
}
