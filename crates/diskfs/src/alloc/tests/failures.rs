//! Refused changes, and failures, which leave no trace.

use vfscale_sync::random::Random;
use zerocopy::little_endian::U64;

use super::world::{World, finish};
use crate::alloc::{Changes, Effort, Groups, Layout, claim_inode_in};
use crate::btree::memory::{Failure, number};
use crate::btree::{Error, Nodes};
use crate::format::BlockRange;
use crate::format::group::{GroupHeader, RawChunk};
use crate::format::inode::block_of;

fn refused(world: &mut World, fill: impl FnOnce(&mut Changes)) -> Option<u32> {
    let before = world.nodes.clone();
    let mut changes = Changes::new();
    fill(&mut changes);
    let error = finish(&world.groups, &mut world.nodes, &mut changes).err().expect("is refused");
    // The transaction owns nothing, so only fetched blocks have to be given back.
    changes.blocks_mut().claims.clear();
    world.groups.abandon(changes);
    world.nodes = before;
    world.check();
    number(&error)
}

/// Creates a world with twenty blocks in use.
fn with_run(is_delayed: bool) -> (World, BlockRange) {
    let mut world = World::new(4096, 10);
    if is_delayed {
        world.groups.delayed().open(1 << 24, true);
    }
    let run = world.claim(500, 20, 20).unwrap();
    let mut changes = Changes::new();
    world.use_claim(0, &mut changes);
    world.commit(changes);
    (world, run)
}

/// Blocks that no transaction can have are a fault of who frees or uses them, and of no group.
#[test]
fn a_group_refuses_to_free_free_blocks_and_to_use_used_ones() {
    refuses(false);
}

#[test]
fn a_group_with_delayed_runs_refuses_the_same() {
    refuses(true);
}

fn refuses(is_delayed: bool) {
    let with_run = || with_run(is_delayed);
    let (mut world, run) = with_run();
    let (start, end) = (run.start, run.end());
    for (start, blocks) in
        [(start - 1, 1), (start - 1, 2), (end, 1), (end - 1, 2), (700, 30), (start - 1, 22)]
    {
        let run = BlockRange::new(start, blocks);
        let (mut world, _) = with_run();
        assert_eq!(refused(&mut world, |changes| changes.free(run)), Some(304), "{run:?}");
        let free = |changes: &mut Changes| {
            run.range().for_each(|block| changes.free_destroyed(block));
        };
        let (mut world, _) = with_run();
        assert_eq!(refused(&mut world, free), Some(304), "{run:?}");
        assert_eq!(world.groups.left_out(), 1);
    }
    let twice = |changes: &mut Changes| {
        changes.free(BlockRange::new(start, 5));
        changes.free(BlockRange::new(start + 4, 2));
    };
    assert_eq!(refused(&mut world, twice), Some(304));
    for (start, blocks) in [(start, 1), (start - 1, 2), (end - 1, 3), (start, 20)] {
        let run = BlockRange::new(start, blocks);
        let (mut world, _) = with_run();
        assert_eq!(refused(&mut world, |changes| changes.use_claim(run)), Some(305), "{run:?}");
    }
    // Reserved, of the log, of two groups, outside.
    for (start, blocks) in
        [(0, 1), (7, 3), (1023, 2), (1024, 8), (2056, 3), (4095, 2), (1 << 40, 1), (u64::MAX, 9)]
    {
        let run = BlockRange::new(start, blocks);
        assert_eq!(refused(&mut world, |changes| changes.free(run)), Some(304), "{run:?}");
        assert_eq!(refused(&mut world, |changes| changes.use_claim(run)), Some(305), "{run:?}");
    }
    assert_eq!(world.groups.left_out(), 0);
}

#[test]
fn inodes_are_freed_once_and_only_where_there_are_any() {
    for ino in [65, 127, 63, 128, 1024 * 8, 4096 * 8, u64::MAX] {
        let mut world = World::new(4096, 10);
        assert_eq!(refused(&mut world, |changes| changes.free_inode(ino)), Some(306), "{ino}");
        let mut world = World::new(4096, 10);
        let orphan = |changes: &mut Changes| changes.set_orphan(ino, true);
        assert_eq!(refused(&mut world, orphan), Some(306), "{ino}");
    }
}

/// A group that contradicts a free is left out: the free is forgotten when it is tried again, and
/// so are all others in the group. Nothing is claimed there.
#[test]
fn a_damaged_group_loses_what_is_freed_in_it() {
    let (mut world, run) = with_run(false);
    let group = world.groups.group_of(run.start).unwrap();
    let freed = |world: &mut World, run| {
        let mut changes = Changes::new();
        changes.free(run);
        let done = finish(&world.groups, &mut world.nodes, &mut changes);
        let done = done.map(|finished| finished.parts.len()).map_err(|error| number(&error));
        world.groups.abandon(changes);
        done
    };
    let before = world.nodes.clone();
    let wrong = BlockRange::new(run.end(), 1);
    assert_eq!(freed(&mut world, wrong), Err(Some(304)));
    world.nodes = before;
    for run in [wrong, run, run] {
        assert_eq!(freed(&mut world, run), Ok(0), "{run:?}");
    }
    assert!(world.groups.at(group).unwrap().is_damaged());
    let claimed = world.claim(run.start, 1, 100).unwrap();
    assert_ne!(world.groups.group_of(claimed.start), Some(group));
    let mut changes = Changes::new();
    let ino = world.groups.claim_inode(&world.nodes, run.start, false, &mut changes);
    let ino = ino.unwrap().unwrap();
    assert_ne!(world.groups.group_of(block_of(ino)), Some(group));
    world.groups.abandon(changes);
}

/// A search in which all groups are damaged has found nothing.
#[test]
fn no_space_is_left_if_all_groups_are_damaged() {
    let mut world = World::new(4096, 10);
    for layout in world.layouts.clone() {
        free_run(&mut world, &layout, layout.blocks().end - 1, 9);
    }
    world.nodes.commit();
    let log = crate::LogPlace::inside(world.groups.geometry(), None);
    let groups = Groups::load(&world.nodes, world.groups.geometry(), log, None).unwrap();
    assert_eq!(groups.claim(&world.nodes, 500, 1, 9).unwrap(), None);
    // One has the log, and nothing free.
    assert_eq!(groups.left_out() + 1, groups.count());
}

/// Each operation that can fail fails once, in a transaction with changes of all kinds.
#[test]
fn a_failure_at_any_call_leaves_nothing_behind() {
    let mut world = World::new(1 << 15, 13);
    let mut random = Random::new(5);
    // Fragments first, so that the trees have several levels.
    while world.claim(0, 1, 1).is_some_and(|run| run.start < 4000) {}
    while !world.claims.is_empty() {
        let mut changes = Changes::new();
        for _ in 0..world.claims.len().min(50) {
            let at = random.below(world.claims.len() as u64) as usize;
            if random.below(2) == 0 { world.unclaim(at) } else { world.use_claim(at, &mut changes) }
        }
        world.commit(changes);
    }
    let mut changes = Changes::new();
    for _ in 0..200 {
        world.groups.claim_inode(&world.nodes, 8, false, &mut changes).unwrap().unwrap();
    }
    world.commit(changes);
    world.durable();
    world.check();
    // Delayed runs remain as they are, whatever fails of those who write them.
    world.groups.delayed().open(1 << 26, true);
    for at in 0..20 {
        let mut changes = Changes::new();
        world.claim(at * 1300, 2, 5).unwrap();
        world.use_claim(0, &mut changes);
        let used = world.used.iter().copied().nth(at as usize * 31 + 5).unwrap();
        changes.free(BlockRange::new(used, 1));
        world.commit(changes);
    }
    world.groups.delayed().list.close();
    world.check();
    let delayed = world.groups.at(0).unwrap().lock.lock().delayed.runs.all();
    assert!(delayed.iter().map(Vec::len).sum::<usize>() > 10, "{delayed:?}");
    let mut failed = 0;
    for call in 1.. {
        let before = world.nodes.clone();
        let mut changes = Changes::new();
        for at in 0..20 {
            if world.claim(at * 300, 1, 3).is_some() {
                world.use_claim(world.claims.len() - 1, &mut changes);
            }
        }
        let used: Vec<_> = world.used.iter().copied().step_by(97).collect();
        used.iter().for_each(|block| changes.free(BlockRange::new(*block, 1)));
        let inodes: Vec<_> = world.inodes.keys().copied().filter(|ino| *ino >= 128).collect();
        inodes.iter().for_each(|ino| changes.free_inode(*ino));
        world.nodes.failing = Some(world.nodes.calls.get() + call);
        match finish(&world.groups, &mut world.nodes, &mut changes) {
            Err(error) => {
                assert_eq!(error, Error::Nodes(Failure::Injected));
                failed += 1;
            }
            Ok(finished) => {
                // All calls succeed from here on: the transaction is abandoned this time.
                drop(finished);
                world.groups.abandon(changes);
                world.nodes = before;
                world.nodes.failing = None;
                world.check();
                break;
            }
        }
        world.groups.abandon(changes);
        world.nodes = before;
        world.nodes.failing = None;
        world.check();
    }
    assert!(failed > 100, "{failed} calls");
}

/// Changes a group on disk without the knowledge of `Groups`, and returns the result of a claim in
/// it, which is left out if its header is wrong.
fn damaged(change: impl FnOnce(&mut World, &Layout)) -> Result<Option<BlockRange>, Option<u32>> {
    let mut world = World::new(4096, 10);
    let layout = world.layouts[1].clone();
    change(&mut world, &layout);
    world.nodes.commit();
    let log = crate::LogPlace::inside(world.groups.geometry(), None);
    let groups = Groups::load(&world.nodes, world.groups.geometry(), log, None);
    let groups = groups.map_err(|error| number(&error))?;
    let group = groups.at(1).unwrap();
    if group.is_left_out() {
        let block = world.nodes.read(layout.header(), &GroupHeader::expected(1));
        let block = block.map_err(|error| number(&error))?;
        return Err(group.decode(block).err().map(|damage| damage.number()));
    }
    // The error is reported again and again; corrupted chunks fail only claims of inodes.
    let effort = &mut Effort::anything();
    let mut inode =
        || claim_inode_in(group, &world.nodes, 1500, &mut Changes::new(), effort).map(drop);
    let (first, again) = (inode().map_err(|error| number(&error)), inode());
    assert_eq!(first.is_err(), again.is_err());
    let claim = group.claim(&world.nodes, 1500, (1, 1), effort).map_err(|error| number(&error));
    first.and(claim)
}

fn header(world: &mut World, layout: &Layout, change: impl FnOnce(&mut GroupHeader)) {
    let expected = GroupHeader::expected(layout.group());
    let slot = world.nodes.writable(layout.header(), &expected).unwrap();
    let block = world.nodes.edit(slot);
    let mut header = GroupHeader::decode(layout.header(), block, |_| true).unwrap();
    change(&mut header);
    header.encode(block);
}

fn free_run(world: &mut World, layout: &Layout, start: u64, blocks: u64) {
    let tree = layout.free_tree();
    if tree.update(&mut world.nodes, start.into(), blocks.into()).unwrap().is_none() {
        tree.insert(&mut world.nodes, start.into(), blocks.into()).unwrap();
    }
}

#[test]
fn damage_is_told_by_number() {
    assert_eq!(damaged(|_, _| {}), Ok(Some(BlockRange::new(1500, 1))));
    let first = |world: &World, layout: &Layout| {
        layout.free_tree().first(&world.nodes).unwrap().unwrap().key.get()
    };
    let of_run = |start: u64, blocks: u64| {
        damaged(move |world, layout| free_run(world, layout, start, blocks))
    };
    for (start, blocks) in [(1028, 1), (1100, 5), (2048, 1), (2047, 1), (2047, 2), (5, u64::MAX)] {
        assert_eq!(of_run(start, blocks), Err(Some(302)), "{start} {blocks}");
    }
    let changed = damaged(|world, layout| {
        let start = first(world, layout);
        free_run(world, layout, start, 0);
    });
    assert_eq!(changed, Err(Some(302)));
    let shorter = damaged(|world, layout| {
        let start = first(world, layout);
        free_run(world, layout, start, 700);
    });
    assert_eq!(shorter, Err(Some(307)));
    type Change = fn(&mut GroupHeader);
    let of_header: [(Change, u32); 6] = [
        (|header| header.free -= 1, 307),
        (|header| header.free = u64::MAX, 300),
        (|header| header.tree_blocks = u64::MAX, 300),
        (|header| header.orphans = 1, 300),
        (|header| header.inodes = 64, 0),
        (|header| header.set_aside[0] = 1030, 301),
    ];
    for (change, expected) in of_header {
        let found = damaged(|world, layout| header(world, layout, change));
        assert_eq!(found.err().flatten().unwrap_or(0), expected);
    }
    let of_chunk = |start: u64, free: u64, orphan: u64, free_inodes: u64| {
        damaged(move |world, layout| {
            let value = RawChunk { free: U64::from(free), orphan: U64::from(orphan) };
            layout.chunk_tree().insert(&mut world.nodes, start.into(), value).unwrap();
            header(world, layout, |header| (header.inodes, header.free_inodes) = (64, free_inodes));
        })
    };
    assert_eq!(
        of_chunk(1504, 0, 1, 0),
        Ok(Some(BlockRange::new(1500, 1))),
        "only a check finds that"
    );
    for (start, free, orphan) in
        [(1504, 1, 1), (1500, 0, 0), (1024, 0, 0), (2048, 0, 0), (u64::MAX, 0, 0)]
    {
        assert_eq!(of_chunk(start, free, orphan, 1), Err(Some(303)), "{start}");
    }
    assert_eq!(of_chunk(1504, 1, 0, 2), Err(Some(307)));
}
