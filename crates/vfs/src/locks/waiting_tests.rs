//! Random requests that wait, on any ranges of a file. What is held at a time is compared with the
//! kernel in `crates/difftest`.
//!
//! Offsets are cut into cells, some of one byte and some huge, and every range begins and ends at
//! the edge of a cell; so a few cells cover all offsets, up to the last one.

use proptest::prelude::*;

use super::*;

/// The first bytes of the cells.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    3,
    10,
    4096,
    1 << 32,
    1 << 40,
    (1 << 62) + 1,
    LockRange::EOF - 2,
    LockRange::EOF - 1,
    LockRange::EOF,
];
const CELLS: usize = EDGES.len();

const OWNERS: [Owner; 4] = [Owner::Task(1), Owner::Task(2), Owner::File(1), Owner::File(2)];

/// Returns the last byte of a cell.
fn end(cell: usize) -> u64 {
    EDGES.get(cell + 1).map_or(LockRange::EOF, |next| next - 1)
}

fn range((from, to): (usize, usize)) -> LockRange {
    LockRange::new(EDGES[from], end(to)).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock(LockKind),
    Unlock,
}

fn steps() -> impl Strategy<Value = Vec<(usize, (usize, usize), Step)>> {
    let kind = || prop_oneof![2 => Just(LockKind::Shared), 1 => Just(LockKind::Exclusive)];
    let step = prop_oneof![
        2 => kind().prop_map(Step::Lock),
        1 => Just(Step::Unlock),
    ];
    let cells = (0..CELLS, 0..CELLS).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop::collection::vec((0..OWNERS.len(), cells, step), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Checks requests that wait: at any time each of them conflicts with a held lock, and no two
    /// held locks conflict.
    #[test]
    fn a_waiting_lock_conflicts_with_a_held_one(steps in steps()) {
        let (locks, graph) = (FileLocks::new(), std::sync::Arc::new(LockGraph::new()));
        let mut waiting = Vec::<(RecordLock, PendingLock)>::new();
        for (owner, cells, step) in steps {
            let owner_waits = |waiting: &[(RecordLock, _)]| {
                waiting.iter().any(|(request, _)| request.owner == OWNERS[owner])
            };
            match step {
                Step::Lock(kind) if !owner_waits(&waiting) => {
                    let request =
                        RecordLock { owner: OWNERS[owner], pid: 1, kind, range: range(cells) };
                    match locks.request(&request, &graph) {
                        Ok(Acquire::Granted) => {}
                        Ok(Acquire::Waiting(pending)) => waiting.push((request, pending)),
                        Err(errno) => prop_assert_eq!(errno, Errno::DEADLK),
                    }
                }
                _ => locks.unlock(OWNERS[owner], range(cells)).unwrap(),
            }
            for (request, pending) in &waiting {
                prop_assert_ne!(pending.outcome(), Some(Err(Errno::NOLCK)));
                let free = locks.test(request).is_none();
                prop_assert!(pending.outcome().is_some() || !free, "{:?}", request);
            }
            let held = locks.list();
            for (i, one) in held.iter().enumerate() {
                let clash = |two: &RecordLock| {
                    one.owner != two.owner
                        && one.range.overlaps(two.range)
                        && one.kind.conflicts(two.kind)
                };
                prop_assert!(!held[..i].iter().any(clash), "{:?}", held);
            }
            waiting.retain(|(_, pending)| pending.outcome().is_none());
            let tasks = |(request, _): &&(RecordLock, _)| {
                let blocked_by_task = |held: &RecordLock| {
                    matches!(held.owner, Owner::Task(_))
                        && held.owner != request.owner
                        && held.range.overlaps(request.range)
                        && held.kind.conflicts(request.kind)
                };
                matches!(request.owner, Owner::Task(_)) && held.iter().any(blocked_by_task)
            };
            prop_assert_eq!(graph.is_empty(), !waiting.iter().any(|waits| tasks(&waits)));
        }
        // Each round grants waiting requests, and then releases their locks.
        for owner in [1, 2].repeat(OWNERS.len()) {
            locks.release_posix(owner);
            locks.unlock(Owner::File(owner), LockRange::WHOLE).unwrap();
        }
        prop_assert!(waiting.iter().all(|(_, pending)| pending.outcome() == Some(Ok(()))));
        prop_assert!(locks.is_empty() && graph.is_empty());
    }
}
