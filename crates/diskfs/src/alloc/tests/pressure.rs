//! Groups that are full, and as fragmented as possible.

use vfscale_sync::random::Random;

use super::world::World;
use crate::alloc::Changes;
use crate::format::BlockRange;

/// Claims all available blocks in runs of up to `max` blocks.
fn claim_all(world: &mut World, max: u32) {
    while world.claim(0, 1, max).is_some() {}
    assert_eq!(world.groups.totals().available, 0);
}

/// Uses all claims in a random order, up to `together` in each transaction.
fn use_all(world: &mut World, random: &mut Random, together: u64) {
    while !world.claims.is_empty() {
        let mut changes = Changes::new();
        for _ in 0..=random.below(together) {
            if !world.claims.is_empty() {
                let at = random.below(world.claims.len() as u64) as usize;
                world.use_claim(at, &mut changes);
            }
        }
        world.commit(changes);
    }
}

/// Frees these blocks in a random order, up to `together` in each transaction.
fn free_all(world: &mut World, mut blocks: Vec<u64>, random: &mut Random, together: u64) {
    while !blocks.is_empty() {
        let mut changes = Changes::new();
        for _ in 0..=random.below(together) {
            if !blocks.is_empty() {
                let at = random.below(blocks.len() as u64) as usize;
                changes.free(BlockRange::new(blocks.swap_remove(at), 1));
            }
        }
        world.commit(changes);
        if random.below(4) == 0 {
            world.durable();
        }
    }
    world.durable();
}

/// Claims all blocks one by one and uses them in a random order, so that free space on disk is in
/// thousands of runs between claims of other transactions; then frees them in a random order.
#[test]
fn thousands_of_pieces_and_back() {
    let mut world = World::new(1 << 15, 13);
    let (mut random, blocks) = (Random::new(7), world.groups.totals().blocks);
    for together in [1, 40] {
        claim_all(&mut world, 1);
        use_all(&mut world, &mut random, together);
        world.check();
        assert_eq!(world.used.len() as u64, blocks - 8, "all but the root's chunk");
        let (even, odd): (Vec<_>, Vec<_>) = world.used.iter().partition(|block| *block % 2 == 0);
        free_all(&mut world, even, &mut random, together);
        world.check();
        let layout = &world.layouts[0];
        let pieces = layout.free_tree().count(&world.nodes).unwrap();
        assert!(pieces > 3000, "{pieces} pieces");
        free_all(&mut world, odd, &mut random, together);
        world.check();
        assert_eq!(world.groups.totals().available, blocks - 8);
    }
    world.reopen();
    assert_eq!(world.groups.totals().available, blocks - 8);
    world.check();
}

/// Uses every second block first, in ascending order, and frees in descending order: the leaves are
/// full, and then as empty as possible.
#[test]
fn regular_patterns() {
    let mut world = World::new(1 << 15, 13);
    claim_all(&mut world, 1);
    world.claims.sort_unstable_by_key(|run| run.start);
    let claims = std::mem::take(&mut world.claims);
    let (even, odd): (Vec<BlockRange>, Vec<BlockRange>) =
        claims.iter().partition(|run| run.start % 2 == 0);
    for runs in [even, odd] {
        for run in runs {
            world.claims = vec![run];
            let mut changes = Changes::new();
            world.use_claim(0, &mut changes);
            world.commit(changes);
        }
    }
    world.check();
    for step in [7, 5, 3, 2, 1] {
        let blocks: Vec<_> = world.used.iter().copied().filter(|block| block % step == 0).collect();
        for block in blocks.iter().rev() {
            let mut changes = Changes::new();
            changes.free(BlockRange::new(*block, 1));
            world.commit(changes);
        }
        world.durable();
        world.check();
    }
}

/// Blocks freed in a full group can be used by its trees immediately, and by files once they are
/// durable.
#[test]
fn a_full_group_takes_frees() {
    let mut world = World::new(4096, 10);
    let mut random = Random::new(3);
    claim_all(&mut world, 300);
    use_all(&mut world, &mut random, 3);
    world.check();
    assert!(world.claim(0, 1, 1).is_none());
    let run = BlockRange::new(*world.used.range(100..).next().unwrap(), 1);
    let mut changes = Changes::new();
    changes.free(run);
    world.commit(changes);
    assert!(world.claim(0, 1, 1).is_none(), "it is not durable yet");
    world.check();
    world.durable();
    assert!(world.claim(0, 1, 1).is_some());
    world.check();
}

/// Many concurrent transactions, each with claims of many runs, end in another order than they
/// began, or are abandoned.
#[test]
fn transactions_overlap() {
    let mut world = World::new(1 << 14, 12);
    let mut random = Random::new(11);
    for round in 0..60 {
        let mut under_way: Vec<Changes> = Vec::new();
        for _ in 0..5 {
            let mut changes = Changes::new();
            for _ in 0..random.below(30) {
                let near = random.below(1 << 14);
                if world.claim(near, 1, 1 + random.below(9) as u32).is_some() {
                    world.use_claim(world.claims.len() - 1, &mut changes);
                }
            }
            under_way.push(changes);
        }
        while !under_way.is_empty() {
            let mut changes = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
            if random.below(3) == 0 {
                world.groups.abandon(changes);
                continue;
            }
            for _ in 0..random.below(20) {
                let near = random.below(1 << 14);
                let found = world.used.range(near..).next().copied();
                if let Some(block) = found
                    && !changes.freed().any(|run| run == BlockRange::new(block, 1))
                {
                    changes.free(BlockRange::new(block, 1));
                }
            }
            world.commit(changes);
        }
        if round % 3 == 0 {
            world.durable();
        }
        world.check();
    }
}
