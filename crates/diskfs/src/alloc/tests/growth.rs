//! Volumes that grow.

use super::world::{World, finish};
use crate::Geometry;
use crate::alloc::Changes;

#[test]
fn a_group_accounts_for_what_it_has_grown_by() {
    // The last group has 300 blocks of 1024.
    let mut world = World::new(3 * 1024 + 1024 + 300, 10);
    let (mut changes, former) = (Changes::new(), world.groups.totals());
    while world.claim(4096, 1, 50).is_some_and(|run| run.start >= 4096) {
        world.use_claim(0, &mut changes);
    }
    world.unclaim(0);
    world.commit(changes);
    world.check();
    assert_eq!(world.groups.unfinished().count(), 0);
    for blocks in [4096 + 300, 4096 + 700, 6 * 1024 + 500] {
        let geometry = Geometry::new(blocks, 10).unwrap();
        world.open_as(geometry);
        world.check();
        let unfinished: Vec<_> = world.groups.unfinished().collect();
        let is_larger = blocks > 4096 + 300;
        assert_eq!(unfinished, if is_larger { vec![4] } else { vec![] });
        assert!(world.groups.totals().available <= former.available + blocks - 4396);
        for abandoned in [true, false] {
            let mut changes = Changes::new();
            unfinished.iter().for_each(|group| changes.extend(*group));
            assert_eq!(changes.is_empty(), !is_larger);
            if abandoned {
                let before = world.nodes.clone();
                drop(finish(&world.groups, &mut world.nodes, &mut changes).unwrap());
                world.groups.abandon(changes);
                world.nodes = before;
            } else {
                world.commit(changes);
                let freed: u64 = world.busy.iter().map(|busy| busy.blocks()).sum();
                assert_eq!(freed, 0, "nobody has freed anything");
            }
            world.check();
        }
        world.durable();
        world.check();
        assert_eq!(world.groups.unfinished().count(), 0);
        world.reopen();
        assert_eq!(world.groups.unfinished().count(), 0);
        world.check();
        if is_larger {
            let run = world.claim(4396, 1, 300).unwrap();
            assert_eq!(run.start, 4396);
            world.unclaim(0);
        }
    }
}

#[test]
fn a_volume_grows_while_it_is_used() {
    let mut world = World::new(4096 + 300, 10);
    for near in [100, 1100, 4200] {
        assert!(world.claim(near, 1, 100).is_some());
        assert!(world.claim(near, 1, 100).is_some());
    }
    for blocks in [4096 + 300, 4096 + 301, 4096 + 900, 8192, 8192 + 256, 3 * 8192] {
        let before = world.groups.totals();
        assert!(world.grow(Geometry::new(blocks, 10).unwrap()));
        world.check();
        let added = world.groups.totals().blocks - before.blocks;
        assert_eq!(world.groups.totals().available, before.available + added, "the new groups");
        let mut extending = Changes::new();
        world.groups.unfinished().for_each(|group| extending.extend(group));
        world.commit(extending);
        world.check();
        world.durable();
        world.check();
        let added = world.groups.totals().blocks - before.blocks;
        assert_eq!(world.groups.totals().available, before.available + added, "and the former one");
    }
    let mut changes = Changes::new();
    for _ in 0..3 {
        world.use_claim(1, &mut changes);
    }
    world.commit(changes);
    world.check();
    let last = world.claim(3 * 8192 - 1, 1, 1).unwrap();
    assert_eq!(last.start, 3 * 8192 - 1);
    let mut changes = Changes::new();
    let ino = world.groups.claim_inode(&world.nodes, 20_000, false, &mut changes).unwrap();
    assert_eq!(ino.unwrap() >> 3 >> 10, 20_000 >> 10);
    world.commit(changes);
    world.check();
}

#[test]
fn a_volume_does_not_grow_too_often() {
    let mut world = World::new(4096, 10);
    let mut grown = 0;
    while world.grow(Geometry::new(4096 + 1024 * (grown + 1), 10).unwrap()) {
        grown += 1;
    }
    assert_eq!((grown, u64::from(world.groups.count())), (63, 67));
}

#[test]
fn a_group_accounts_for_what_it_has() {
    use crate::alloc::Groups;
    use crate::btree::Nodes;
    use crate::format::group::GroupHeader;
    for blocks in [0, 255, 1025, u64::MAX] {
        let mut world = World::new(4096, 10);
        let slot = world.nodes.writable(1025, &GroupHeader::expected(1)).unwrap();
        let block = world.nodes.edit(slot);
        let header = GroupHeader::decode(1025, block, |_| true).unwrap();
        GroupHeader { blocks, ..header }.encode(block);
        world.nodes.commit();
        let groups = Groups::load(&world.nodes, world.groups.geometry(), world.log, None).unwrap();
        let group = groups.at(1).unwrap();
        let block = world.nodes.read(1025, &GroupHeader::expected(1)).unwrap();
        let number = group.decode(block).unwrap_err().number();
        assert_eq!((number, group.is_left_out()), (308, true), "{blocks}");
    }
}

/// The sums of a volume hold if nothing is claimed, no group has an orphan, and all account for
/// their blocks. Then a volume that is opened with them has the same totals.
#[test]
fn the_sums_are_those_of_the_headers() {
    let mut world = World::new(4096, 10);
    let load = |world: &World, sums: Option<_>| {
        let geometry = world.groups.geometry();
        let recorded = sums.map(|sums| crate::alloc::Recorded { sums, last: None });
        crate::alloc::Groups::load(&world.nodes, geometry, world.log, recorded).unwrap()
    };
    let check = |world: &World| {
        let sums = world.groups.sums().unwrap();
        let (read, recorded) = (load(world, None), load(world, Some(sums)));
        assert_eq!((read.totals(), read.sums()), (world.groups.totals(), Some(sums)));
        assert_eq!((recorded.totals(), recorded.sums()), (read.totals(), Some(sums)));
        assert_eq!(recorded.log_blocks(3, 3), read.log_blocks(3, 3));
    };
    check(&world);
    let run = world.claim(1100, 1, 50).unwrap();
    assert_eq!(world.groups.sums(), None, "{run:?} is claimed");
    world.unclaim(0);
    check(&world);
    // Some of these claims are used, and freed.
    let mut changes = Changes::new();
    for near in [100, 1100, 3100] {
        world.claim(near, 1, 50).unwrap();
        world.use_claim(0, &mut changes);
    }
    world.commit(changes);
    check(&world);
    let geometry = Geometry::new(4096 + 300, 10).unwrap();
    world.open_as(geometry);
    check(&world);
    let geometry = Geometry::new(4096 + 900, 10).unwrap();
    world.open_as(geometry);
    assert_eq!(world.groups.sums(), None, "a group does not account for all");
}
