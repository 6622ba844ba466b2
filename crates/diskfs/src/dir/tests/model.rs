//! Equal calls on a directory and on a map of the standard library.

use super::*;

#[derive(Clone, Debug)]
enum Call {
    Insert(Vec<u8>, u64),
    Remove(Vec<u8>),
    /// Removes the first name at or after this one.
    RemoveAfter(Vec<u8>),
    Replace(Vec<u8>, u64),
    Look(Vec<u8>),
}

/// Generates names of all lengths, with few enough short ones for collisions.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => (0..30_u8).prop_map(|number| vec![b'a' + number]),
        2 => (0..30_u8, 19..26_usize).prop_map(|(number, length)| vec![b'a' + number; length]),
        2 => (0..30_u8, 50..56_usize).prop_map(|(number, length)| vec![b'a' + number; length]),
        1 => (0..30_u8, 1..=255_usize).prop_map(|(number, length)| vec![b'a' + number; length]),
        1 => prop::collection::vec(128_u8.., 1..=255),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => (name(), 64..9999_u64).prop_map(|(name, ino)| Call::Insert(name, ino)),
        1 => name().prop_map(Call::Remove),
        4 => name().prop_map(Call::RemoveAfter),
        2 => (name(), 64..9999_u64).prop_map(|(name, ino)| Call::Replace(name, ino)),
        1 => name().prop_map(Call::Look),
    ]
}

fn agrees(hash: NameHash, calls: Vec<Call>) {
    let mut fix = Fixture::new(hash);
    let mut model = BTreeMap::<Vec<u8>, u64>::new();
    for call in calls {
        match call {
            Call::Insert(name, ino) => match fix.insert(&name, ino) {
                Insertion::At(_) => assert_eq!(model.insert(name, ino), None),
                Insertion::Exists => assert!(model.contains_key(&name)),
                Insertion::Full => {
                    let same = |other: &&Vec<u8>| hash.position(other) == hash.position(&name);
                    assert_eq!(model.keys().filter(same).count(), 16);
                }
                Insertion::BadName => panic!("{name:?}"),
            },
            Call::Remove(name) => assert_eq!(fix.remove(&name), model.remove(&name)),
            Call::RemoveAfter(name) => {
                if let Some((name, ino)) = model.range(name..).next() {
                    let (name, ino) = (name.clone(), *ino);
                    assert_eq!(fix.remove(&name), Some(ino));
                    model.remove(&name);
                }
            }
            Call::Replace(name, ino) => {
                let to = (ino, FileKind::Regular);
                let was = fix.dir.replace(&mut fix.nodes, &mut fix.core, &name, to).unwrap();
                fix.nodes.commit();
                assert_eq!(was.map(|found| found.ino), model.get(&name).copied());
                model.entry(name).and_modify(|value| *value = ino);
            }
            Call::Look(name) => assert_eq!(fix.ino(&name), model.get(&name).copied()),
        }
        is_same(&fix, &model);
    }
    while let Some((name, ino)) = model.pop_last() {
        assert_eq!(fix.remove(&name), Some(ino));
        is_same(&fix, &model);
    }
    assert!(fix.dir.is_empty(&fix.nodes, &fix.core).unwrap());
}

fn is_same(fix: &Fixture, model: &BTreeMap<Vec<u8>, u64>) {
    let (wrong, mut names, _) = fix.checked();
    assert!(wrong.is_empty(), "{wrong:?}");
    names.sort();
    assert!(names.iter().eq(model.keys()));
    let pieces = fix.piece(0, usize::MAX);
    assert!(pieces.is_sorted_by(|a, b| a.0 < b.0) && pieces.len() == model.len());
    let record = fix.core.encode();
    assert_eq!(InodeCore::decode(INO, &record, |block, _| block >= 8), Ok(fix.core.clone()));
}

/// Reads in several calls while other names are inserted and removed.
fn is_stable(hash: NameHash, first: BTreeSet<Vec<u8>>, changes: Vec<(Vec<u8>, usize)>) {
    let mut fix = Fixture::new(hash);
    for name in &first {
        let _ = fix.insert(name, 100);
    }
    let mut stays: BTreeSet<Vec<u8>> =
        fix.piece(0, usize::MAX).into_iter().map(|(_, name)| name).collect();
    let (mut seen, mut behind) = (Vec::new(), 0);
    for (name, most) in changes {
        let piece = fix.piece(behind, most);
        let Some((position, _)) = piece.last() else { break };
        behind = *position;
        seen.extend(piece.into_iter().map(|(_, name)| name));
        // Inserts the name if it does not exist, removes it otherwise.
        stays.remove(&name);
        if fix.remove(&name).is_none() {
            let _ = fix.insert(&name, 200);
        }
    }
    seen.extend(fix.piece(behind, usize::MAX).into_iter().map(|(_, name)| name));
    let times = |name: &Vec<u8>| seen.iter().filter(|other| *other == name).count();
    for name in stays {
        assert_eq!(times(&name), 1, "{name:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn with_the_real_hash(calls in prop::collection::vec(call(), 1..150)) {
        agrees(hash(), calls);
    }

    #[test]
    fn with_a_hash_that_collides(calls in prop::collection::vec(call(), 1..150)) {
        agrees(NameHash::planted(|name| 16 + u64::from(name[0] % 3) * 16), calls);
    }

    #[test]
    fn reading_is_stable(
        first in prop::collection::btree_set(name(), 0..80),
        changes in prop::collection::vec((name(), 1..6_usize), 0..60),
    ) {
        is_stable(hash(), first.clone(), changes.clone());
        is_stable(NameHash::planted(|name| 16 + u64::from(name[0] % 8) * 16), first, changes);
    }
}
