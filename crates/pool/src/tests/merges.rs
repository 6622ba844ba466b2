//! The merges that the history tells, and what two branches have in common by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::{Random, seed};

use crate::state::commit::{Change, Shared};
use crate::tests::harness::{self, UNIT, assert_whole, merge, reap};
use crate::{Branch, Error, Pool};

fn new_pool(places: u64) -> (Arc<MemoryDevice>, Pool) {
    let (device, pool) = harness::new_pool(places, 4000 * UNIT);
    put(&pool, "main", 1);
    (device, pool)
}

fn put(pool: &Pool, name: &str, state: u64) {
    let branch = pool.branch(name).unwrap();
    branch.write_at(7 * UNIT, &state.to_le_bytes().repeat(512)).unwrap();
    branch.close().unwrap();
}

fn get(branch: &Branch) -> u64 {
    let mut bytes = [0; 8];
    branch.read_at(7 * UNIT, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Returns the last state that two branches have in common, from both sides.
fn common(pool: &Pool, a: &str, b: &str) -> u64 {
    let [one, other] = [(a, b), (b, a)].map(|(a, b)| {
        let common = pool.common(a, b).unwrap();
        let state = get(&common);
        common.close().unwrap();
        state
    });
    assert_eq!(one, other, "{a} {b}");
    one
}

fn merges(pool: &Pool) -> usize {
    pool.shared.state.lock().table.records().filter(|record| record.merged != 0).count()
}

#[test]
fn what_was_merged_is_common_from_then_on() {
    let (device, pool) = new_pool(2000);
    for name in ["a", "b"] {
        pool.fork("main", name, false).unwrap();
    }
    put(&pool, "a", 2);
    put(&pool, "b", 3);
    merge(&pool, "a", "main", |name| put(&pool, name, 4));
    assert_eq!((common(&pool, "main", "a"), common(&pool, "main", "b")), (2, 1));
    put(&pool, "a", 5);
    put(&pool, "main", 6);
    reap(&pool);
    assert_eq!((common(&pool, "main", "a"), common(&pool, "a", "b")), (2, 1));
    // By another branch, and in the other direction.
    merge(&pool, "main", "b", |name| put(&pool, name, 7));
    assert_eq!((common(&pool, "main", "b"), common(&pool, "a", "b")), (6, 2));
    pool.close().unwrap();
    let pool = Pool::open(device).unwrap();
    reap(&pool);
    assert_eq!((common(&pool, "main", "b"), common(&pool, "a", "b")), (6, 2));
    // Merges in both directions, of states that do not know each other: the later one counts.
    let [of_main, of_a] = ["main", "a"].map(|name| pool.snapshot(name, || ()).unwrap());
    for (into, merged, state) in [("main", &of_a, 8), ("a", &of_main, 9)] {
        pool.fork(into, "fork", false).unwrap();
        put(&pool, "fork", state);
        let adoption = pool.adoption(into, "fork").unwrap();
        pool.adopt_merged(&adoption, (merged, "x")).unwrap();
    }
    drop((of_main, of_a));
    let met = common(&pool, "main", "a");
    assert!([5, 6].contains(&met), "{met}");
    reap(&pool);
    assert_eq!(common(&pool, "main", "a"), met);
    // A merge of the same state, or of an older one, says nothing new.
    let before = merges(&pool);
    merge(&pool, "a", "main", |name| put(&pool, name, 10));
    merge(&pool, "a", "main", |name| put(&pool, name, 11));
    reap(&pool);
    assert_eq!((common(&pool, "main", "a"), merges(&pool)), (9, before));
}

/// A branch that is merged and deleted leaves nothing. What was forked from it has in common with
/// the result what it has in common with the branch.
/// A branch takes over what was made from its state, and only from that.
#[test]
fn a_rebase_acts_on_the_state_that_it_was_decided_on() {
    let (device, pool) = new_pool(20_000);
    pool.fork("main", "branch", false).unwrap();
    put(&pool, "branch", 2);
    put(&pool, "main", 3);
    pool.fork("main", "made", false).unwrap();
    let decided = pool.snapshot("branch", || ()).unwrap();
    put(&pool, "made", 4);
    put(&pool, "branch", 5);
    assert_eq!(pool.rebase("branch", &decided, "made"), Err(Error::Changed("branch".into())));
    decided.close().unwrap();
    let decided = pool.snapshot("branch", || ()).unwrap();
    assert!(matches!(pool.rebase("branch", &decided, "none"), Err(Error::NoBranch(_))));
    assert!(matches!(pool.rebase("branch", &decided, "branch"), Err(Error::Refused { .. })));
    assert_eq!(pool.rebase("branch", &decided, "made"), Ok(Some("branch@1".into())));
    decided.close().unwrap();
    let states = |pool: &Pool| {
        let of = |name: &str| {
            let branch = pool.branch(name).unwrap();
            let state = get(&branch);
            branch.close().unwrap();
            state
        };
        ["branch", "branch@1", "main"].map(of)
    };
    assert_eq!((states(&pool), pool.list().len()), ([4, 5, 3], 3));
    assert_eq!([common(&pool, "branch", "main"), common(&pool, "branch", "branch@1")], [3, 5]);
    reap(&pool);
    pool.close_branches().unwrap();
    drop(pool);
    let pool = Pool::open(device).unwrap();
    assert_eq!((states(&pool), merges(&pool)), ([4, 5, 3], 1));
    assert_eq!(common(&pool, "branch", "branch@1"), 5);
    reap(&pool);
}

#[test]
fn a_deleted_branch_leaves_its_merges_to_its_history() {
    let (device, pool) = new_pool(2000);
    pool.fork("main", "other", true).unwrap();
    reap(&pool);
    let used = pool.check().unwrap().used;
    pool.fork("main", "a", false).unwrap();
    put(&pool, "a", 2);
    pool.fork("a", "child", false).unwrap();
    put(&pool, "child", 3);
    pool.fork("a", "merged", false).unwrap();
    put(&pool, "merged", 4);
    put(&pool, "a", 5);
    merge(&pool, "merged", "a", |name| put(&pool, name, 6));
    merge(&pool, "a", "main", |name| put(&pool, name, 7));
    pool.delete("a").unwrap();
    reap(&pool);
    assert_eq!((common(&pool, "main", "child"), common(&pool, "main", "merged")), (2, 4));
    drop(pool);
    let pool = Pool::open(device).unwrap();
    assert_eq!((common(&pool, "main", "child"), common(&pool, "main", "merged")), (2, 4));
    ["child", "merged"].iter().for_each(|name| pool.delete(name).unwrap());
    reap(&pool);
    assert_eq!(merges(&pool), 0);
    // The state of the adoption is kept until the next fork.
    put(&pool, "main", 8);
    pool.fork("main", "end", true).unwrap();
    pool.delete("end").unwrap();
    reap(&pool);
    assert!(pool.check().unwrap().used <= used + 4);
}

/// A state that was merged goes before a pool is full. Then both have the one before in common.
#[test]
fn a_nearly_full_pool_forgets_merges() {
    let (_, pool) = new_pool(2000);
    pool.fork("main", "a", false).unwrap();
    let large = pool.branch("a").unwrap();
    (0..1000_u64).for_each(|n| large.write_at((100 + n) * UNIT, &[2; 4096]).unwrap());
    large.close().unwrap();
    put(&pool, "a", 2);
    merge(&pool, "a", "main", |name| put(&pool, name, 3));
    reap(&pool);
    let main = pool.branch("main").unwrap();
    let full = (0..3000_u64).find(|n| main.write_at((100 + n) * UNIT, &[3; 4096]).is_err());
    assert!(full.is_some());
    main.close().unwrap();
    let large = pool.branch("a").unwrap();
    (0..1000_u64).for_each(|n| large.discard((100 + n) * UNIT, UNIT).unwrap());
    large.close().unwrap();
    reap(&pool);
    assert_eq!((common(&pool, "main", "a"), merges(&pool)), (1, 0));
    let main = pool.branch("main").unwrap();
    (0..250_u64).for_each(|n| main.write_at((2000 + n) * UNIT, &[3; 4096]).unwrap());
    main.close().unwrap();
}

/// A program that does not know merges drops the field, and frees the records as nodes that nobody
/// needs, in any order.
#[test]
fn an_older_program_forgets_merges() {
    for is_partial in [false, true] {
        let (device, pool) = new_pool(2000);
        pool.fork("main", "a", false).unwrap();
        put(&pool, "a", 2);
        merge(&pool, "a", "main", |name| put(&pool, name, 3));
        put(&pool, "main", 4);
        let mut state = pool.shared.state.lock();
        let told = state.table.records().find(|record| record.merged != 0).cloned().unwrap();
        if is_partial {
            // The result was merged into its child, and the record is still there.
            state.table.update(told.id, |record| record.merged = 1000);
        } else {
            state.table.update(told.id, |record| record.merged = 0);
        }
        pool.shared.commit(&mut state, Change::default(), || ()).unwrap();
        drop(state);
        drop(pool);
        let pool = Pool::open(device).unwrap();
        assert_whole(&pool);
        assert_eq!(common(&pool, "main", "a"), 1);
        reap(&pool);
        assert_eq!((common(&pool, "main", "a"), merges(&pool)), (1, 0));
    }
}

/// A wrong record is none, is told, and goes with a repair.
#[test]
fn wrong_records_of_merges_are_found_and_repaired() {
    type Damage = fn(&mut crate::disk::record::Record);
    let wrong: [(&str, Damage); 4] = [
        ("it is more than that", |record| record.name = "strange".into()),
        ("it is more than that", |record| record.own = 3),
        ("it has not the map of what was merged", |record| record.blocks -= 1),
        // The parent of both.
        ("what came of it was there before", |record| record.merged = 1),
    ];
    for (why, damage) in wrong {
        let (device, pool) = new_pool(2000);
        pool.fork("main", "a", false).unwrap();
        put(&pool, "a", 2);
        merge(&pool, "a", "main", |name| put(&pool, name, 3));
        pool.close().unwrap();
        let shared = Shared::open(device.clone(), 0, 1).unwrap();
        let mut state = shared.state.lock();
        let id = state.table.records().find(|record| record.merged != 0).unwrap().id;
        state.table.update(id, damage);
        shared.commit(&mut state, Change::default(), || ()).unwrap();
        drop(state);
        let pool = Pool::open(device.clone()).unwrap();
        assert_eq!(common(&pool, "main", "a"), 1, "{why}");
        let problems = pool.check().unwrap().problems;
        assert!(problems.iter().any(|problem| problem.contains(why)), "{problems:?}");
        drop(pool);
        let (pool, repaired) = Pool::open_repaired(device, 0).unwrap();
        assert_eq!(repaired.merges, 1, "{why}");
        assert_eq!(pool.check().unwrap().problems, Vec::<String>::new(), "{why}");
        let main = pool.branch("main").unwrap();
        assert_eq!((get(&main), merges(&pool)), (3, 0));
        drop(main);
        reap(&pool);
    }
}

/// A full table loses merges, and nothing else.
#[test]
fn merges_count_as_nodes() {
    let (_, pool) = new_pool(2000);
    pool.fork("main", "a", false).unwrap();
    pool.shared.state.lock().table.nodes_max = 30;
    let refused = (2..100).find(|state| {
        put(&pool, "a", *state);
        pool.fork("main", "fork", false).is_err() || {
            let merged = pool.snapshot("a", || ());
            put(&pool, "fork", 1000 + state);
            let merged = merged.and_then(|merged| {
                let adoption = pool.adoption("main", "fork")?;
                pool.adopt_merged(&adoption, (&merged, "a"))
            });
            merged.is_err()
        }
    });
    assert!(refused.is_some());
    assert!(pool.shared.state.lock().table.records().count() <= 30);
    reap(&pool);
}

/// The model of a history: which states are in each state.
#[derive(Default)]
struct Model {
    branches: BTreeMap<String, u64>,
    past: BTreeMap<u64, BTreeSet<u64>>,
}

impl Model {
    /// Adds a state that has all of others.
    fn add(&mut self, state: u64, of: &[u64]) {
        let past = of.iter().flat_map(|it| self.past[it].clone()).chain([state]).collect();
        self.past.insert(state, past);
    }

    /// Returns the states that two have in common, and those that are in no other one of these.
    fn common(&self, a: u64, b: u64) -> [BTreeSet<u64>; 2] {
        let common: BTreeSet<u64> = self.past[&a].intersection(&self.past[&b]).copied().collect();
        let is_last =
            |it: &u64| !common.iter().any(|other| other != it && self.past[other].contains(it));
        let last = common.iter().copied().filter(is_last).collect();
        [common, last]
    }
}

/// Random histories: what two branches have in common is the last state that is in both, whatever
/// was freed between. If branches are deleted, it is a state that is in both.
#[test]
fn random_histories_agree_with_a_model() {
    let seed = seed();
    for round in 0..30 {
        let mut random = Random::new(seed + round);
        let (device, mut pool) = new_pool(4000);
        let mut model = Model::default();
        model.branches.insert("main".into(), 1);
        model.add(1, &[]);
        for state in 2..120_u64 {
            let names: Vec<String> = model.branches.keys().cloned().collect();
            let pick =
                |random: &mut Random| names[random.below(names.len() as u64) as usize].clone();
            let (name, other) = (pick(&mut random), pick(&mut random));
            match random.below(10) {
                0..3 => {
                    put(&pool, &name, state);
                    let now = model.branches[&name];
                    model.add(state, &[now]);
                    model.branches.insert(name, state);
                }
                3 if names.len() < 7 => {
                    let child = format!("b{state}");
                    pool.fork(&name, &child, false).unwrap();
                    model.branches.insert(child, model.branches[&name]);
                }
                4..6 if name != other => {
                    merge(&pool, &other, &name, |name| put(&pool, name, state));
                    model.add(state, &[model.branches[&name], model.branches[&other]]);
                    model.branches.insert(name, state);
                }
                6 if names.len() > 2 && round % 2 == 0 => {
                    pool.delete(&name).unwrap();
                    model.branches.remove(&name);
                }
                7 => _ = pool.reap(1).unwrap(),
                8 => reap(&pool),
                9 => {
                    drop(pool);
                    pool = Pool::open(device.clone()).unwrap();
                }
                _ => {}
            }
            for (a, one) in &model.branches {
                for (b, other) in model.branches.iter().filter(|(b, _)| a < *b) {
                    let (met, [all, last]) = (common(&pool, a, b), model.common(*one, *other));
                    let allowed = if round % 2 == 0 { all } else { last };
                    let context = format!("seed {seed}, round {round}, state {state}: {a} {b}");
                    assert!(allowed.contains(&met), "{context}: {met}, not of {allowed:?}");
                }
            }
        }
        reap(&pool);
        let all = pool.list();
        for info in all.iter().skip(1) {
            pool.delete(&info.name).unwrap();
        }
        reap(&pool);
        assert_eq!(merges(&pool), 0, "seed {seed}, round {round}");
    }
}
