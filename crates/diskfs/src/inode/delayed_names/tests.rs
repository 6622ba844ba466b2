use std::collections::BTreeMap;

use proptest::prelude::*;
use vfscale_journal::DelayedList;

use super::*;
use crate::base::ranks::DelayedDirsLock;

/// The first positions of all names: few, so that names meet.
const BASES: [u64; 3] = [16, 32, POSITION_MAX - 15];
const NAMES: u8 = 40;

/// A directory on disk, as the fold leaves it, with its delayed names and a model of both.
#[derive(Default)]
struct World {
    disk: BTreeMap<u64, NamedInode>,
    range: NameRange,
    /// The inode and the position of each name.
    model: BTreeMap<Vec<u8>, (u64, u64)>,
}

fn name(number: u8) -> Vec<u8> {
    vec![b'a' + number]
}

fn base(number: u8) -> u64 {
    BASES[usize::from(number) % BASES.len()]
}

impl World {
    fn stored(&self, number: u8) -> (Option<Place>, u16) {
        let (base, name) = (base(number), name(number));
        let (mut found, mut taken) = (None, 0);
        for (position, entry) in self.disk.range(base..base + COLLISIONS_MAX) {
            taken |= 1 << (position - base);
            if *entry.name == *name {
                found = Some((*position, entry.ino, entry.kind));
            }
        }
        (found, taken)
    }

    fn step(&mut self, number: u8, step: NameStep) -> Result<(), Refused> {
        let at = (base(number), &name(number)[..]);
        let (position, change) = self.range.plan(at, self.stored(number), step)?;
        self.range.put(position, change);
        let name = name(number);
        match step {
            NameStep::Remove(_) => drop(self.model.remove(&name)),
            NameStep::Add(ino, _) => {
                let others = self.model.values().any(|(_, other)| *other == position);
                assert!(!others, "position {position} is taken");
                self.model.insert(name, (ino, position));
            }
            NameStep::Replace(_, (ino, _)) => {
                let entry = self.model.get_mut(&name).unwrap();
                assert_eq!(entry.1, position, "it has moved");
                entry.0 = ino;
            }
        }
        Ok(())
    }

    fn fold(&mut self) {
        for (position, change) in std::mem::take(&mut self.range.changes) {
            assert_eq!(self.disk.remove(&position), change.stored, "at {position}");
            self.disk.extend(change.now.map(|now| (position, now)));
        }
    }

    /// Compares what readers see with the model.
    fn check(&self) {
        for number in 0..NAMES {
            let shown = self.range.shown(base(number), &name(number), self.stored(number).0);
            let expected = self.model.get(&name(number)).copied();
            assert_eq!(shown.map(|(position, ino, _)| (ino, position)), expected, "{number}");
        }
        assert!(self.range.changes.is_sorted_by_key(|(position, _)| *position));
        for (position, change) in &self.range.changes {
            assert_ne!(change.stored, change.now, "at {position}");
            assert_eq!(change.stored.as_ref(), self.disk.get(position), "at {position}");
        }
    }
}

proptest! {
    #[test]
    fn names_are_those_of_a_map(
        steps in prop::collection::vec((0..5_u8, 0..NAMES, 1..4_u64), 1..300),
    ) {
        let mut world = World::default();
        for (what, number, ino) in steps {
            let present = world.model.get(&name(number)).map(|(ino, _)| *ino);
            let kind = FileKind::Regular;
            match what {
                0 | 1 => {
                    let same = world.model.keys().filter(|other| {
                        base(other[0] - b'a') == base(number)
                    }).count();
                    let expected = match present {
                        Some(_) => Err(Refused::Exists),
                        None if same == 16 => Err(Refused::Full),
                        None => Ok(()),
                    };
                    assert_eq!(world.step(number, NameStep::Add(ino, kind)), expected);
                }
                2 => {
                    let expected = present.map(drop).ok_or(Refused::IsOther);
                    let former = present.unwrap_or(ino);
                    assert_eq!(world.step(number, NameStep::Remove(former + 9)), Err(Refused::IsOther));
                    assert_eq!(world.step(number, NameStep::Remove(former)), expected);
                }
                3 => {
                    let expected = present.map(drop).ok_or(Refused::IsOther);
                    let step = NameStep::Replace(present.unwrap_or(ino), (ino, kind));
                    assert_eq!(world.step(number, step), expected);
                }
                _ => world.fold(),
            }
            world.check();
        }
    }
}

#[test]
fn a_name_that_comes_and_goes_leaves_nothing() {
    let mut world = World::default();
    world.step(0, NameStep::Add(1, FileKind::Regular)).unwrap();
    world.step(3, NameStep::Add(2, FileKind::Regular)).unwrap();
    world.fold();
    for number in [0, 3] {
        let ino = world.model[&name(number)].0;
        world.step(number, NameStep::Remove(ino)).unwrap();
        world.step(6, NameStep::Add(7, FileKind::Regular)).unwrap();
        world.step(6, NameStep::Remove(7)).unwrap();
        world.step(number, NameStep::Add(ino, FileKind::Regular)).unwrap();
    }
    assert!(world.range.changes.is_empty(), "{:?}", world.range);
}

/// Positions with one hash share a range, and ranges are in the order of positions.
#[test]
fn ranges_are_in_the_order_of_positions() {
    let names = DelayedNames::new(&InodeCore::new(0o040_755, 1, 0));
    let (step, last) = (POSITION_MAX / 997, names.ranges.len() - 1);
    let indexes: Vec<_> = (0..997).map(|nth| names.index(nth * step)).collect();
    assert!(indexes.is_sorted() && indexes[0] == 0 && indexes.contains(&last));
    assert_eq!(names.index(POSITION_MAX), last);
    for base in [16, step & !15, POSITION_MAX - 15] {
        assert_eq!(names.index(base), names.index(base + COLLISIONS_MAX - 1), "{base}");
    }
}

#[test]
fn changes_between_two_positions_are_listed_in_order() {
    let names = DelayedNames::new(&InodeCore::new(0o040_755, 1, 0));
    let node = Mutex::<_, NodeLock>::new(());
    let _locked = node.lock();
    let positions: Vec<_> = (1..=50).map(|nth| nth * (POSITION_MAX / 50)).collect();
    for position in &positions {
        let now = Some(NamedInode { ino: *position, kind: FileKind::Regular, name: [b'n'].into() });
        let change = NameChange { stored: None, now, held: HeldSpace::default(), blocks: None };
        names.range(*position).put(*position, Some(change));
    }
    let listed = |behind, last| -> Vec<u64> {
        names.between(behind, last).into_iter().map(|(position, _)| position).collect()
    };
    assert_eq!(listed(0, POSITION_MAX), positions);
    assert_eq!(listed(positions[3], positions[9]), positions[4..=9]);
    assert!(listed(POSITION_MAX, POSITION_MAX).is_empty());
    let all: Vec<_> = names.all().into_iter().map(|(position, _)| position).collect();
    assert_eq!(all, positions);
    names.clear();
    assert!(names.all().is_empty());
}

/// A push takes a directory off the list without its lock, while a thread notes its first change:
/// the push sees the change, or the thread lists the directory again.
///
/// Race: Names that are changed side by side against the end of a context.
#[test]
fn stress_a_change_is_seen_or_listed_again() {
    const ROUNDS: usize = 30_000;
    let names = DelayedNames::new(&InodeCore::new(0o040_755, 1, 0));
    let list = DelayedList::<(), DelayedDirsLock>::default();
    let (turn, seen) = (AtomicUsize::new(0), AtomicBool::new(false));
    let entry = |ino| Some(NamedInode { ino, kind: FileKind::Regular, name: (*b"a").into() });
    let change =
        || NameChange { stored: None, now: entry(20), held: HeldSpace::default(), blocks: None };
    let node = Mutex::<_, NodeLock>::new(());
    let _locked = node.lock();
    let mut lost = 0;
    // Both threads begin each round at once.
    let begin = |round: usize| {
        turn.fetch_add(1, Ordering::AcqRel);
        while turn.load(Ordering::Acquire) < 2 * round {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                begin(2 * round - 1);
                names.range(16).put(16, Some(change()));
                list.add_once(names.is_listed(), || ());
                begin(2 * round);
            }
        });
        for round in 1..=ROUNDS {
            list.add_once(names.is_listed(), || ());
            begin(2 * round - 1);
            assert!(list.take().is_some());
            seen.store(names.note_taken(), Ordering::Relaxed);
            list.written();
            begin(2 * round);
            lost += usize::from(!seen.load(Ordering::Relaxed) && !list.is_any());
            while list.take().is_some() {
                list.written();
            }
            names.note_taken();
            names.clear();
        }
    });
    assert_eq!(lost, 0, "of {ROUNDS} changes");
}
