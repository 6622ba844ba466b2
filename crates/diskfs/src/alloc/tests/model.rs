//! Random claims, frees and transactions against a model, in groups whose trees have several
//! levels.

use proptest::prelude::*;

use super::world::World;
use crate::alloc::Changes;
use crate::format::BlockRange;

#[derive(Clone, Debug)]
enum Call {
    Claim {
        near: u64,
        min: u32,
        more: u32,
    },
    Unclaim(usize),
    /// Uses some of the claims, and frees runs of used blocks: address, number of blocks.
    Commit {
        claims: Vec<usize>,
        frees: Vec<(u64, u64)>,
    },
    Abandon(Vec<usize>),
    Durable,
    /// Drops zones.
    Shrink,
    /// Creates an inode, or frees one.
    Inode(bool, u64),
    /// Makes an inode an orphan, or ends its being one.
    Orphan(bool, u64),
    /// Delays changes of inodes from now on, or no longer.
    Delay(bool),
    /// Writes delayed changes, as the end of a context does.
    WriteDelayed,
    Reopen,
}

fn call() -> impl Strategy<Value = Call> {
    let index = any::<prop::sample::Index>().prop_map(|index| index.index(1 << 20));
    prop_oneof![
        6 => (0..4096u64, 1..9u32, 0..60u32)
            .prop_map(|(near, min, more)| Call::Claim { near, min, more }),
        1 => index.clone().prop_map(Call::Unclaim),
        4 => (prop::collection::vec(index.clone(), 0..6),
              prop::collection::vec((0..4096u64, 1..12u64), 0..6))
            .prop_map(|(claims, frees)| Call::Commit { claims, frees }),
        1 => prop::collection::vec(index, 0..4).prop_map(Call::Abandon),
        2 => Just(Call::Durable),
        2 => Just(Call::Shrink),
        4 => (any::<bool>(), 0..4096u64).prop_map(|(is_new, near)| Call::Inode(is_new, near)),
        2 => (any::<bool>(), 0..4096u64).prop_map(|(is_orphan, at)| Call::Orphan(is_orphan, at)),
        1 => any::<bool>().prop_map(Call::Delay),
        1 => Just(Call::WriteDelayed),
        1 => Just(Call::Reopen),
    ]
}

/// Returns up to `blocks` consecutive used blocks, from the first one at or behind `near` on.
fn piece(world: &World, near: u64, blocks: u64) -> Option<BlockRange> {
    let first = *world.used.range(near..).next()?;
    let group = first >> 10;
    let end = (first..first + blocks)
        .find(|block| !world.used.contains(block) || block >> 10 != group)
        .unwrap_or(first + blocks);
    Some(BlockRange::new(first, (end - first) as u32))
}

/// Returns an inode in or behind a block, not the root.
fn inode_behind(world: &World, block: u64) -> Option<u64> {
    world.inodes.range(block * 8..).map(|(ino, _)| *ino).find(|ino| *ino > 64)
}

/// Creates an inode, frees one, or makes one an orphan.
fn inode_step(world: &mut World, call: &Call) {
    let mut changes = Changes::new();
    match *call {
        Call::Inode(true, near) => {
            let claimed = world.groups.claim_inode(&world.nodes, near, near % 2 == 0, &mut changes);
            if claimed.unwrap().is_some() && near % 3 > 0 {
                world.commit(changes);
            } else {
                world.groups.abandon(changes);
            }
        }
        Call::Inode(false, near) => {
            let Some(ino) = inode_behind(world, near) else { return };
            changes.free_inode(ino);
            world.commit(changes);
            assert!(!world.groups.has_inode(&world.nodes, ino).unwrap());
        }
        Call::Orphan(is_orphan, near) => {
            let Some(ino) = inode_behind(world, near) else { return };
            changes.set_orphan(ino, is_orphan);
            world.commit(changes);
            let orphans = world.groups.orphans(&world.nodes, (ino >> 13) as u32).unwrap();
            assert_eq!(orphans.contains(&ino), is_orphan);
            assert!(world.groups.has_inode(&world.nodes, ino).unwrap());
        }
        _ => unreachable!("not about an inode"),
    }
}

fn step(world: &mut World, call: Call) {
    match call {
        Call::Claim { near, min, more } => {
            let available = world.groups.totals().available;
            if world.claim(near, min, min + more).is_none() {
                // Some group has a ninth of the free blocks of all groups, or all runs are short.
                assert!(min > 1 || available == 0, "{available} blocks are available");
            }
        }
        Call::Unclaim(at) if !world.claims.is_empty() => world.unclaim(at % world.claims.len()),
        Call::Commit { claims, frees } => {
            let mut changes = Changes::new();
            let mut freed: Vec<BlockRange> = Vec::new();
            for (near, blocks) in frees {
                let Some(run) = piece(world, near, blocks) else { continue };
                if !freed.iter().any(|other| other.start < run.end() && run.start < other.end()) {
                    freed.push(run);
                    // Blocks of metadata are freed one by one.
                    if near % 4 == 0 {
                        run.range().for_each(|block| changes.free_destroyed(block));
                    } else {
                        changes.free(run);
                    }
                }
            }
            for at in claims {
                if !world.claims.is_empty() {
                    world.use_claim(at % world.claims.len(), &mut changes);
                }
            }
            world.commit(changes);
        }
        Call::Abandon(claims) => {
            let mut changes = Changes::new();
            for at in claims {
                if !world.claims.is_empty() {
                    world.use_claim(at % world.claims.len(), &mut changes);
                }
            }
            world.groups.abandon(changes);
        }
        Call::Durable => world.durable(),
        Call::Shrink => world.shrink(),
        call @ (Call::Inode(..) | Call::Orphan(..)) => inode_step(world, &call),
        Call::Delay(true) => world.groups.delayed().open(1 << 24, true),
        Call::Delay(false) => world.groups.delayed().list.close(),
        Call::WriteDelayed => world.write_delayed(),
        Call::Reopen => world.reopen(),
        Call::Unclaim(_) => {}
    }
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Race: Loading a zone of a group's index against claims, frees and its being dropped.
    ///
    /// A zone is read from the group's trees with the group locked, so no commit changes them
    /// during that time; but other threads claim blocks in other zones and return claims, and frees
    /// become durable. The zone is entered under the index's lock, without the runs that are
    /// pending at that moment. A claim is pending from before its transaction removes it from the
    /// tree until that change is published; a freed run is pending from before it is inserted into
    /// the tree until that is durable. So the tree without the pending runs is one set of blocks at
    /// any moment, also as seen through the copies of a half-finished transaction, and when that is
    /// abandoned. A thread that drops a zone holds the index's lock alone, and needs no more: an
    /// index contains nothing that the trees and the pending runs do not record. A thread that has
    /// loaded a zone allocates from it before it releases the lock, so no two threads drop each
    /// other's zones for ever. The test drops zones between any two steps.
    #[test]
    fn every_block_is_one_thing(calls in prop::collection::vec(call(), 1..120)) {
        let mut world = World::new(4096, 10);
        world.groups.delayed().open(1 << 24, true);
        world.check();
        calls.into_iter().for_each(|call| step(&mut world, call));
    }
}
