//! Equal calls on a tree and on a map of the standard library.

use std::ops::{Bound, RangeBounds};

use super::*;

#[derive(Clone, Debug)]
enum Call {
    Insert(u64, u32),
    Update(u64, u32),
    Remove(u64),
    /// Removes the first record that is not less.
    RemoveAfter(u64),
    Look(u64),
    Range(Bound<u64>, Bound<u64>),
}

fn bound(most: u64) -> impl Strategy<Value = Bound<u64>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        3 => (0..most).prop_map(Bound::Included),
        3 => (0..most).prop_map(Bound::Excluded),
    ]
}

fn call(most: u64) -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => (0..most, any::<u32>()).prop_map(|(key, value)| Call::Insert(key, value)),
        1 => (0..most, any::<u32>()).prop_map(|(key, value)| Call::Update(key, value)),
        2 => (0..most).prop_map(Call::Remove),
        3 => (0..most).prop_map(Call::RemoveAfter),
        1 => (0..most).prop_map(Call::Look),
        1 => (bound(most), bound(most)).prop_map(|(start, end)| Call::Range(start, end)),
    ]
}

type Model = BTreeMap<u64, u32>;

fn look<const MAX: usize>(tree: &Tree<Small<MAX>>, nodes: &Memory, model: &Model, key: u64) {
    let pair = |record: Option<Record<Small<MAX>>>| {
        record.map(|record| (record.key.get(), record.value.get()))
    };
    let copied = |(key, value): (&u64, &u32)| (*key, *value);
    let value = tree.get(nodes, key.into()).unwrap();
    assert_eq!(value.map(U32::get), model.get(&key).copied());
    let after = pair(tree.at_or_after(nodes, key.into()).unwrap());
    assert_eq!(after, model.range(key..).next().map(copied));
    let before = pair(tree.at_or_before(nodes, key.into()).unwrap());
    assert_eq!(before, model.range(..=key).next_back().map(copied));
    assert_eq!(pair(tree.first(nodes).unwrap()), model.first_key_value().map(copied));
    assert_eq!(pair(tree.last(nodes).unwrap()), model.last_key_value().map(copied));
    assert_eq!(tree.count(nodes).unwrap(), model.len() as u64);
}

fn range<const MAX: usize>(
    tree: &Tree<Small<MAX>>,
    nodes: &Memory,
    model: &Model,
    (start, end): (Bound<u64>, Bound<u64>),
) {
    let is_inside = |key: &u64| (start, end).contains(key);
    let expected: Vec<u64> = model.keys().copied().filter(is_inside).collect();
    let keys = (start.map(U64::from), end.map(U64::from));
    let found = tree.range(nodes, keys).unwrap().map(|record| record.unwrap().key.get());
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let found = backward(tree.seek_end(nodes).unwrap());
    let mut found: Vec<_> = found.map(|record| record.unwrap().key.get()).collect();
    found.reverse();
    found.retain(is_inside);
    assert_eq!(found, expected);
}

fn agrees<const MAX: usize>(calls: Vec<Call>) {
    let mut nodes = Memory::new();
    let tree = create::<Small<MAX>>(&mut nodes);
    let mut model = Model::new();
    for call in calls {
        match call {
            Call::Insert(key, value) => {
                let is_new = !model.contains_key(&key);
                assert_eq!(tree.insert(&mut nodes, key.into(), value.into()).unwrap(), is_new);
                model.entry(key).or_insert(value);
            }
            Call::Update(key, value) => {
                let former = tree.update(&mut nodes, key.into(), value.into()).unwrap();
                assert_eq!(former.map(U32::get), model.get(&key).copied());
                model.entry(key).and_modify(|old| *old = value);
            }
            Call::Remove(key) => {
                let former = tree.remove(&mut nodes, key.into()).unwrap();
                assert_eq!(former.map(U32::get), model.remove(&key));
            }
            Call::RemoveAfter(key) => {
                let Some((key, value)) = model.range(key..).next().map(|(k, v)| (*k, *v)) else {
                    continue;
                };
                assert_eq!(tree.remove(&mut nodes, key.into()).unwrap(), Some(value.into()));
                model.remove(&key);
            }
            Call::Look(key) => look(&tree, &nodes, &model, key),
            Call::Range(start, end) => range(&tree, &nodes, &model, (start, end)),
        }
        nodes.commit();
        assert_eq!(sound(&tree, &nodes).records, model.len() as u64);
    }
    range(&tree, &nodes, &model, (Bound::Unbounded, Bound::Unbounded));
    // Removes all records, starting in the middle.
    while let Some((key, value)) = model.range(40..).next().or(model.iter().next()) {
        let (key, value) = (*key, *value);
        assert_eq!(tree.remove(&mut nodes, key.into()).unwrap(), Some(value.into()));
        model.remove(&key);
        nodes.commit();
        sound(&tree, &nodes);
    }
    assert_eq!(nodes.blocks.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_tree_of_four_records_a_node_agrees(calls in prop::collection::vec(call(120), 1..300)) {
        agrees::<4>(calls);
    }

    #[test]
    fn a_tree_of_five_records_a_node_agrees(calls in prop::collection::vec(call(120), 1..300)) {
        agrees::<5>(calls);
    }

    #[test]
    fn a_tree_of_nine_records_a_node_agrees(calls in prop::collection::vec(call(300), 1..400)) {
        agrees::<9>(calls);
    }
}
