//! Fragmented groups, whose indexes are loaded by zone.

use vfscale_sync::random::Random;

use super::super::load::RECORDS_MAX;
use super::super::memory::ENTRY_BYTES;
use super::super::zones::ZONE_BLOCKS;
use super::world::World;
use crate::alloc::Changes;
use crate::format::BlockRange;

/// Creates a volume of four groups of 64 zones in which every second block is free, and reopens it.
fn in_pieces() -> World {
    let mut world = World::new(1 << 16, 14);
    while world.claim(0, 1, 1 << 14).is_some() {}
    let mut changes = Changes::new();
    while !world.claims.is_empty() {
        world.use_claim(0, &mut changes);
    }
    world.commit(changes);
    let mut changes = Changes::new();
    let odd = world.used.iter().filter(|block| *block % 2 == 1);
    odd.for_each(|block| changes.free(BlockRange::new(*block, 1)));
    world.commit(changes);
    world.reopen();
    world
}

/// Returns the number of blocks that `call` reads.
fn reads<T>(world: &mut World, call: impl FnOnce(&mut World) -> T) -> (u64, T) {
    let before = world.nodes.reads.get();
    let result = call(world);
    (world.nodes.reads.get() - before, result)
}

/// A leaf has at least a third of 252 records, and the tree has two levels.
const READS_OF_PART: u64 = RECORDS_MAX / 84 + 6;

#[test]
fn a_first_claim_reads_a_part() {
    let mut world = in_pieces();
    let records = world.layouts[1].free_tree().count(&world.nodes).unwrap();
    assert!(records > 8000, "{records} runs");
    for near in [20_001, 30_001, 16_384] {
        let (read, run) = reads(&mut world, |world| world.claim(near, 1, 1));
        // The first blocks of a group are its own.
        assert!(run.unwrap().start.abs_diff(near) < 32, "{run:?}");
        assert!(read <= READS_OF_PART + 2, "{read} blocks, with the header");
    }
    // A search for a better location reads at most four zones' records.
    world.reopen();
    let (read, run) = reads(&mut world, |world| world.claim(20_001, 1, 16));
    assert_eq!(run, Some(BlockRange::new(20_001, 1)));
    assert!(read <= 4 * READS_OF_PART + 2, "{read} blocks");
    world.check();
}

#[test]
fn a_place_that_is_far_away_is_found() {
    let mut world = in_pieces();
    // The reserve for the trees is one run, at the end of a group.
    let place = 16_384 - 2 * ZONE_BLOCKS..16_384;
    for is_known in [false, true] {
        let mut changes = Changes::new();
        for _ in 0..63 {
            let claimed = world.groups.claim_inode(&world.nodes, 8, false, &mut changes);
            assert_eq!(claimed.unwrap().unwrap() / 64, 1, "in the chunk of the root");
        }
        let (read, claimed) = reads(&mut world, |world| {
            world.groups.claim_inode(&world.nodes, 8, false, &mut changes).unwrap()
        });
        assert!(place.contains(&(claimed.unwrap() / 8)), "{claimed:?}");
        assert!((read > 100) != is_known, "{read} blocks");
        world.groups.abandon(changes);
        world.shrink();
        world.check();
    }
}

/// Claims and frees all over the volume, with memory for an eighth of its runs.
///
/// Race: Loading a zone of a group's index against claims, frees and its being dropped.
#[test]
fn indexes_keep_to_their_memory() {
    let mut world = in_pieces();
    world.groups.set_index_bytes(0);
    // The minimum limit, zones that have just been loaded, and entries that are not counted yet.
    let most = (4096 + 2 * RECORDS_MAX + 4 * 64) * ENTRY_BYTES;
    let mut random = Random::new(19);
    let mut loaded = 0;
    for round in 0..150 {
        let mut changes = Changes::new();
        for _ in 0..40 {
            let near = random.below(1 << 16);
            assert!(world.claim(near, 1, 1 + random.below(4) as u32).is_some());
            let last = world.claims.len() - 1;
            if random.below(4) == 0 {
                world.unclaim(last)
            } else {
                world.use_claim(last, &mut changes)
            }
            let used = world.used.range(random.below(1 << 16)..).next().copied();
            if let Some(block) =
                used.filter(|block| !changes.freed().any(|run| run == BlockRange::new(*block, 1)))
            {
                changes.free(BlockRange::new(block, 1));
            }
            let bytes = world.groups.index_bytes();
            assert!(bytes <= most, "{bytes} bytes");
            loaded = loaded.max(bytes);
        }
        world.commit(changes);
        if round % 3 == 0 {
            world.durable();
        }
        if round % 50 == 0 {
            world.check();
        }
    }
    world.check();
    assert!(loaded > most / 2, "{loaded} bytes");
    world.durable();
    world.shrink();
    assert!(world.groups.index_bytes() <= 4 * 64 * ENTRY_BYTES, "{}", world.groups.index_bytes());
}
