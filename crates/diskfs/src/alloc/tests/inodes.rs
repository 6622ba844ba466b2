//! Chunks of inodes: created, used, freed.

use super::world::World;
use crate::alloc::Changes;

impl World {
    fn make(&mut self, near: u64, is_dir: bool, changes: &mut Changes) -> u64 {
        let ino = self.groups.claim_inode(&self.nodes, near, is_dir, changes).unwrap().unwrap();
        assert!(!self.inodes.contains_key(&ino));
        ino
    }

    /// Creates a file in a transaction of its own.
    fn make_one(&mut self, near: u64) -> u64 {
        let mut changes = Changes::new();
        let ino = self.make(near, false, &mut changes);
        self.commit(changes);
        ino
    }

    fn free_one(&mut self, ino: u64) -> (Vec<u64>, Vec<u64>) {
        let mut changes = Changes::new();
        changes.free_inode(ino);
        self.commit(changes)
    }
}

#[test]
fn files_fill_the_chunk_of_their_directory() {
    let mut world = World::new(4096, 10);
    let first: Vec<_> = (0..63).map(|_| world.make_one(8)).collect();
    assert_eq!(first, (65..128).collect::<Vec<_>>());
    let next = world.make_one(8);
    assert_eq!(next % 8, 0);
    assert!(next / 8 < 1024 && next / 8 >= 16, "a new chunk, in the same group");
    assert_eq!(world.make_one(next / 8), next + 1);
    world.check();
    // A freed number is the next to be claimed.
    world.free_one(70);
    assert_eq!(world.make_one(8), 70);
    world.check();
}

#[test]
fn a_transaction_shares_the_chunk_that_it_makes() {
    let mut world = World::new(4096, 10);
    let mut changes = Changes::new();
    let of_group_1 = world.make(1024, false, &mut changes);
    assert_eq!(changes.new_chunks().collect::<Vec<_>>(), [of_group_1 / 8]);
    assert_eq!(world.make(1024, false, &mut changes), of_group_1 + 1);
    // Other transactions don't see it yet.
    let mut others = Changes::new();
    let other = world.make(1024, false, &mut others);
    assert_ne!(other / 64, of_group_1 / 64);
    world.groups.abandon(others);
    changes.set_orphan(of_group_1, true);
    world.commit(changes);
    world.check();
    assert_eq!(world.groups.orphans(&world.nodes, 1).unwrap(), [of_group_1]);
    assert_eq!(world.make_one(of_group_1 / 8), of_group_1 + 2);
    let mut changes = Changes::new();
    changes.set_orphan(of_group_1, true);
    changes.set_orphan(of_group_1 + 1, true);
    world.commit(changes);
    world.check();
    world.reopen();
    assert_eq!(world.groups.orphans(&world.nodes, 1).unwrap(), [of_group_1, of_group_1 + 1]);
    assert!(world.groups.orphans(&world.nodes, 0).unwrap().is_empty());
    world.free_one(of_group_1);
    let mut changes = Changes::new();
    changes.set_orphan(of_group_1 + 1, false);
    world.commit(changes);
    world.check();
    assert!(world.groups.orphans(&world.nodes, 1).unwrap().is_empty());
}

#[test]
fn an_abandoned_inode_number_is_allocated_again() {
    let mut world = World::new(4096, 10);
    let mut changes = Changes::new();
    let [old, new] = [8, 2500].map(|near| world.make(near, false, &mut changes));
    assert_eq!((old, changes.new_chunks().collect::<Vec<_>>()), (65, vec![new / 8]));
    world.groups.abandon(changes);
    world.check();
    assert_eq!(world.make_one(8), old);
    assert_eq!(world.make_one(2500), new);
    world.check();
}

#[test]
fn chunks_without_inodes_are_given_up_but_one() {
    let mut world = World::new(4096, 10);
    let free = world.groups.totals().available;
    let inos: Vec<_> = (0..400).map(|_| world.make_one(1024)).collect();
    world.check();
    let mut freed = 0;
    for ino in &inos {
        freed += world.free_one(*ino).1.len();
        world.check();
    }
    world.durable();
    world.check();
    assert_eq!(freed, 6, "of seven");
    assert_eq!(world.groups.totals().available, free - 8);
    // The first chunk is never freed.
    let inos: Vec<_> = (0..300).map(|_| world.make_one(8)).collect();
    let mut changes = Changes::new();
    inos.iter().for_each(|ino| changes.free_inode(*ino));
    world.commit(changes);
    world.durable();
    world.check();
    let first = world.layouts[0].chunk_tree().first(&world.nodes).unwrap().unwrap();
    assert_eq!(first.key.get(), 8);
    world.reopen();
    world.check();
}

#[test]
fn a_chunk_of_which_somebody_has_claimed_stays() {
    let mut world = World::new(4096, 10);
    let inos: Vec<_> = (0..128).map(|_| world.make_one(1024)).collect();
    world.free_one(inos[0]);
    let mut claimed = Changes::new();
    assert_eq!(world.make(inos[0] / 8, false, &mut claimed), inos[0]);
    let mut changes = Changes::new();
    inos[1..].iter().for_each(|ino| changes.free_inode(*ino));
    let (_, gone) = world.commit(changes);
    assert_eq!(gone, [inos[64] / 8], "not the first one, of which one is claimed");
    world.commit(claimed);
    world.check();
    assert!(world.inodes.contains_key(&inos[0]));
}

#[test]
fn directories_are_spread_and_files_are_not() {
    let mut world = World::new(1 << 16, 11);
    let mut changes = Changes::new();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..64 {
        let ino = world.make(8, true, &mut changes);
        *seen.entry((ino / 8) >> 11).or_insert(0) += 1;
    }
    world.commit(changes);
    assert!(seen.len() >= 16, "{seen:?}");
    assert!(seen.values().all(|count| *count <= 8), "{seen:?}");
    let mut changes = Changes::new();
    let near = 5 << 11;
    for _ in 0..200 {
        assert_eq!((world.make(near, false, &mut changes) / 8) >> 11, 5);
    }
    world.commit(changes);
    world.check();
}

#[test]
fn a_full_group_sends_its_files_elsewhere() {
    let mut world = World::new(4096, 10);
    let mut changes = Changes::new();
    while let Some(run) = world.claim(1024, 1, 64) {
        if run.start >= 2048 || run.start < 1024 {
            world.unclaim(world.claims.len() - 1);
            break;
        }
        world.use_claim(world.claims.len() - 1, &mut changes);
    }
    world.commit(changes);
    let ino = world.make_one(1024);
    assert!(ino / 8 >= 2048, "{ino}");
    world.check();
}

#[test]
fn generations_differ() {
    let world = World::new(4096, 10);
    let mut seen: Vec<_> = (0..5000).map(|_| world.groups.generation()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), seen[0] > 0), (5000, true));
}
