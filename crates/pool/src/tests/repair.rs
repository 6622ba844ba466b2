//! Damage of bitmaps, counts and dead lists, and its repair.

use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};

use crate::calls::repair::Repaired;
use crate::state::commit::{Change, Shared};
use crate::state::dead_list::{self, DeadList};
use crate::tests::harness::{UNIT, assert_whole, put};
use crate::{Conversion, Error, Pool};

pub(crate) const BLOCKS: u64 = 600;
/// The blocks that the log of a branch has.
pub(crate) const CUT: std::ops::Range<u64> = 60..80;
/// The blocks of a former volume that its branch has discarded.
pub(crate) const FREED: std::ops::Range<u64> = 100..200;

/// Returns a device with a pool of three branches, which has places that only some of them have.
pub(crate) fn device() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4000 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    pool.create_branch("main", BLOCKS * UNIT).unwrap();
    put(&pool, "main", 0..300, 1);
    pool.fork("main", "a", false).unwrap();
    put(&pool, "a", 100..200, 2);
    pool.fork("main", "b", false).unwrap();
    put(&pool, "b", 150..250, 3);
    put(&pool, "main", 0..50, 4);
    pool.close().unwrap();
    device
}

/// Returns the first byte of each block of a branch.
pub(crate) fn bytes(pool: &Pool, name: &str) -> Vec<u8> {
    let branch = pool.branch(name).unwrap();
    let read = |block| {
        let mut bytes = [0; UNIT as usize];
        branch.read_at(block * UNIT, &mut bytes).unwrap();
        bytes[0]
    };
    (0..BLOCKS).map(read).collect()
}

fn contents(device: &Arc<dyn Device>) -> Vec<Vec<u8>> {
    let pool = Pool::open(device.clone()).unwrap();
    let all = ["main", "a", "b"].map(|name| bytes(&pool, name)).into();
    pool.close().unwrap();
    all
}

/// Commits a change that is wrong.
fn damage(device: &Arc<dyn Device>, plant: impl FnOnce(&Shared) -> Change) {
    damage_behind(device, 0, plant);
}

fn damage_behind(device: &Arc<dyn Device>, first: u64, plant: impl FnOnce(&Shared) -> Change) {
    let shared = Shared::open(device.clone(), first, 1).unwrap();
    let change = plant(&shared);
    let mut state = shared.state.lock();
    shared.commit(&mut state, change, || ()).unwrap();
}

/// Returns the places that the last commit has, or has not.
fn places(shared: &Shared, is_used: bool) -> impl Iterator<Item = u64> {
    let layout = shared.disk.layout();
    let is = move |place: &u64| shared.space.status(*place).unwrap().0 == is_used;
    (0..layout.places).filter(move |place| layout.has(*place)).filter(is)
}

/// Repairs, and checks that nothing is left and that the branches have what they had. Returns what
/// was repaired, and how much is free then.
fn repaired_whole(device: &Arc<dyn Device>, before: &[Vec<u8>]) -> (Repaired, u64) {
    let (pool, repaired) = Pool::open_repaired(device.clone(), 0).unwrap();
    assert_whole(&pool);
    let free = pool.usage().free;
    pool.close().unwrap();
    assert_eq!(contents(device), before);
    (repaired, free)
}

/// Repairs twice, and checks that as much is free as before the damage, and that all of it can be
/// used. Returns what was repaired: places freed, places marked, counts, dead lists.
fn repaired(device: &Arc<dyn Device>, before: &[Vec<u8>]) -> (u64, u64, u64, u64) {
    let free = Pool::open(self::device()).unwrap().usage().free;
    let pool = Pool::open(device.clone()).unwrap();
    assert_ne!(pool.check().unwrap().problems, Vec::<String>::new());
    drop(pool);
    let (repaired, now_free) = repaired_whole(device, before);
    assert!(repaired.is_any());
    // As much is free as in a pool that was never damaged, but for what the commit has moved.
    assert!(now_free.abs_diff(free) <= 4 * UNIT, "{now_free} {free}");
    let (pool, again) = Pool::open_repaired(device.clone(), 0).unwrap();
    assert!(!again.is_any(), "{again:?}");
    // All free places can be used, and are nobody's.
    pool.create_branch("filler", 8000 * UNIT).unwrap();
    let filler = pool.branch("filler").unwrap();
    let mut block = 0;
    while filler.write_at(block * UNIT, &[9; UNIT as usize]).is_ok() {
        block += 1;
    }
    assert!(block > 1000);
    filler.close().unwrap();
    assert_whole(&pool);
    pool.close().unwrap();
    assert_eq!(contents(device), before);
    (repaired.freed, repaired.marked, repaired.counts, repaired.lists)
}

/// Marks places as used that nothing refers to.
pub(crate) fn lose_places(device: &Arc<dyn Device>) {
    damage(device, |shared| {
        let sets: Vec<u64> = places(shared, false).skip(50).step_by(3).take(200).collect();
        sets.iter().for_each(|place| assert!(shared.space.claim(*place).unwrap()));
        Change { sets, ..Change::default() }
    });
}

#[test]
fn lost_places_are_given_back() {
    let device = device();
    let before = contents(&device);
    lose_places(&device);
    assert_eq!(repaired(&device, &before), (200, 0, 1, 0));
}

/// Marks places as free that something refers to.
pub(crate) fn free_places(device: &Arc<dyn Device>) {
    damage(device, |shared| Change {
        clears: places(shared, true).step_by(7).take(40).collect(),
        ..Change::default()
    });
}

#[test]
fn places_that_are_marked_as_free_are_marked_as_used() {
    let device = device();
    let before = contents(&device);
    free_places(&device);
    assert_eq!(repaired(&device, &before), (0, 40, 1, 0));
}

/// Makes counts wrong.
pub(crate) fn miscount(device: &Arc<dyn Device>) {
    let shared = Shared::open(device.clone(), 0, 1).unwrap();
    let mut state = shared.state.lock();
    let id = state.table.named("a").unwrap().id;
    state.table.update(id, |record| record.own += 17);
    state.used += 1000;
    shared.commit(&mut state, Change::default(), || ()).unwrap();
}

#[test]
fn wrong_counts_are_corrected() {
    let device = device();
    let before = contents(&device);
    miscount(&device);
    assert_eq!(repaired(&device, &before), (0, 0, 2, 0));
}

/// Returns a device with a pool that was a volume, and its first place: places of the volume are
/// lost, or marked as free. A block of the branch `main` has its number, modulo 200, in each byte,
/// but for those from 100 on that [`FREED`] has.
pub(crate) fn damaged_former_volume() -> (Arc<dyn Device>, u64) {
    let (first, lead) = (600, [0xa0; UNIT as usize]);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(2000 * UNIT).unwrap());
    for block in 0..first {
        device.write_at(block * UNIT, &[(block % 200) as u8; UNIT as usize]).unwrap();
    }
    let (id, name, leads) = ([9; 16], "main", [&lead; 3]);
    let conversion = Conversion { id, name, first, group: 128, blocks: 2000, leads };
    Pool::convert(&device, &conversion).unwrap();
    let pool = Pool::open_behind(device.clone(), first).unwrap();
    let main = pool.branch("main").unwrap();
    // These places of the volume are free then.
    main.discard(FREED.start * UNIT, (FREED.end - FREED.start) * UNIT).unwrap();
    main.close().unwrap();
    pool.close().unwrap();
    damage_behind(&device, first, |shared| {
        let sets: Vec<u64> = (130..150).chain(first + 900..first + 950).collect();
        sets.iter().for_each(|place| assert!(shared.space.claim(*place).unwrap()));
        Change { sets, clears: (300..320).collect(), ..Change::default() }
    });
    (device, first)
}

/// Asserts that the branch `main` of [`damaged_former_volume`] has its blocks.
fn assert_former_volume(pool: &Pool, first: u64) {
    let main = pool.branch("main").unwrap();
    for block in (1..FREED.start).chain(FREED.end..first) {
        let mut bytes = [0; UNIT as usize];
        main.read_at(block * UNIT, &mut bytes).unwrap();
        assert_eq!(bytes[0], (block % 200) as u8, "{block}");
    }
}

#[test]
fn places_of_a_former_volume_are_repaired() {
    let (device, first) = damaged_former_volume();
    let (pool, repaired) = Pool::open_repaired(device.clone(), first).unwrap();
    assert_eq!((repaired.freed, repaired.marked, repaired.counts), (70, 20, 1));
    assert_whole(&pool);
    assert_former_volume(&pool, first);
}

/// Gives the branch `b` the map of the branch `a`.
pub(crate) fn share_map(device: &Arc<dyn Device>) {
    let shared = Shared::open(device.clone(), 0, 1).unwrap();
    let mut state = shared.state.lock();
    let root = state.table.named("a").unwrap().root;
    let id = state.table.named("b").unwrap().id;
    state.table.update(id, |record| record.root = root);
    shared.commit(&mut state, Change::default(), || ()).unwrap();
}

/// Two branches have one map by mistake: nobody can say whose it is, so the younger one is named.
#[test]
fn a_place_of_two_branches_names_the_younger_one() {
    let device = device();
    share_map(&device);
    let (pool, _) = Pool::open_repaired(device.clone(), 0).unwrap();
    let problems = pool.check().unwrap().problems;
    assert!(problems.iter().any(|it| it.starts_with("branch \"b\": ")), "{problems:?}");
    assert!(!problems.iter().any(|it| it.starts_with("branch \"a\": ")), "{problems:?}");
    assert!(!problems.iter().any(|it| it.starts_with("branch \"main\": ")), "{problems:?}");
    // The advice.
    let kept = bytes(&pool, "a");
    pool.delete("b").unwrap();
    while pool.reap(1000).is_ok_and(|reaped| reaped.more) {}
    drop(pool);
    let (pool, _) = Pool::open_repaired(device.clone(), 0).unwrap();
    assert_eq!(bytes(&pool, "a"), kept);
    assert!(matches!(pool.branch("b"), Err(Error::NoBranch(_))));
    let problems = pool.check().unwrap().problems;
    assert!(!problems.iter().any(|it| it.starts_with("place ")), "{problems:?}");
}

/// Leaves the pool of a device as a power cut does when the branch `main` has 8 in the blocks
/// [`CUT`], in its log only: they were shared with another branch before.
pub(crate) fn cut_with_log(device: &Arc<dyn Device>) {
    let pool = Pool::open(device.clone()).unwrap();
    let main = pool.branch("main").unwrap();
    // The first flush after an opening makes the log.
    for blocks in [CUT.start..CUT.start + 1, CUT.start + 1..CUT.end] {
        for block in blocks {
            main.write_at(block * UNIT, &[8; UNIT as usize]).unwrap();
        }
        main.flush().unwrap();
    }
    std::mem::forget((main, pool));
}

/// A branch that was not closed: what its log has is read after the repair, and kept.
#[test]
fn a_pool_with_a_log_is_repaired_first() {
    let device = device();
    cut_with_log(&device);
    let pool = Pool::open_repaired(device.clone(), 0).unwrap();
    assert!(!pool.1.is_any());
    assert_eq!(bytes(&pool.0, "main")[CUT.start as usize..CUT.end as usize], [8; 20]);
    assert_eq!(pool.0.check().unwrap().problems, Vec::<String>::new());
}

/// Returns a device with a pool as that of [`device`], in which the branch `a` has replaced so many
/// places that its dead list has two blocks; and the places of these.
pub(crate) fn device_with_long_list() -> (Arc<dyn Device>, Vec<u64>) {
    let device = device();
    let pool = Pool::open(device.clone()).unwrap();
    put(&pool, "main", 0..BLOCKS, 5);
    pool.delete("a").unwrap();
    pool.fork("main", "a", false).unwrap();
    put(&pool, "a", 0..BLOCKS, 6);
    while pool.reap(1000).unwrap().more {}
    pool.close().unwrap();
    let shared = Shared::open(device.clone(), 0, 1).unwrap();
    let state = shared.state.lock();
    let list = DeadList::of(state.table.named("a").unwrap());
    let blocks = dead_list::read(&shared.disk, list).unwrap().1;
    assert_eq!(blocks.len(), 2);
    drop(state);
    (device, blocks)
}

/// Deletes all branches but `a`, so that what its dead list has is freed: the check finds nothing,
/// and as much is free as in a pool that was never damaged.
fn assert_merged(device: &Arc<dyn Device>) {
    let free = [device_with_long_list().0, device.clone()].map(|device| {
        let pool = Pool::open(device).unwrap();
        let kept = bytes(&pool, "a");
        ["main", "b"].into_iter().for_each(|name| pool.delete(name).unwrap());
        while pool.reap(1000).unwrap().more {}
        assert_whole(&pool);
        assert_eq!(bytes(&pool, "a"), kept);
        pool.usage().free
    });
    assert!(free[0].abs_diff(free[1]) <= 8 * UNIT, "{free:?}");
}

/// Repairs a pool of [`device_with_long_list`], and checks that nothing is left, that the branches
/// have what they had, and that the lists are right.
fn mended(device: &Arc<dyn Device>, before: &[Vec<u8>]) -> Repaired {
    let (repaired, _) = repaired_whole(device, before);
    assert!(!Pool::open_repaired(device.clone(), 0).unwrap().1.is_any());
    assert_merged(device);
    repaired
}

/// Writes the list of the branch `a`, which has these blocks, anew: it lacks places, and has some
/// that the parent still has.
pub(crate) fn rewrite_list(device: &Arc<dyn Device>, blocks: Vec<u64>) {
    let shared = Shared::open(device.clone(), 0, 1).unwrap();
    let mut state = shared.state.lock();
    let (id, list) = state.table.named("a").map(|it| (it.id, DeadList::of(it))).unwrap();
    let mut wrong = dead_list::read(&shared.disk, list).unwrap().0;
    wrong.truncate(100);
    wrong.extend(state.table.named("b").map(|it| it.root));
    let mut change = Change { clears: blocks, ..Change::default() };
    let empty = DeadList::default();
    let list = dead_list::append(&shared, &mut state, &mut change, id, empty, wrong).unwrap();
    state.table.update(id, |it| list.store(it));
    shared.commit(&mut state, change, || ()).unwrap();
}

/// A list that lacks places, and has some that the parent still has: these would be freed with it.
#[test]
fn a_wrong_dead_list_is_written_anew() {
    let (device, blocks) = device_with_long_list();
    let before = contents(&device);
    rewrite_list(&device, blocks);
    let repaired = mended(&device, &before);
    assert_eq!((repaired.freed, repaired.marked, repaired.counts, repaired.lists), (0, 0, 0, 1));
}

/// Makes blocks of a list unreadable.
pub(crate) fn overwrite(device: &Arc<dyn Device>, blocks: &[u64]) {
    for place in blocks {
        device.write_at(place * UNIT, &[0xd1; UNIT as usize]).unwrap();
    }
}

/// Blocks of a list can't be read: the newest one, the other one, or both. All are lost.
#[test]
fn a_damaged_dead_list_is_written_anew() {
    for damaged in [0..1, 1..2, 0..2] {
        let (device, blocks) = device_with_long_list();
        let before = contents(&device);
        overwrite(&device, &blocks[damaged]);
        let pool = Pool::open(device.clone()).unwrap();
        let problems = pool.check().unwrap().problems;
        assert!(problems.iter().any(|it| it.contains("the dead list is damaged")), "{problems:?}");
        drop(pool);
        let repaired = mended(&device, &before);
        let found = (repaired.freed, repaired.marked, repaired.counts, repaired.lists);
        assert_eq!(found, (2, 0, 1, 1));
    }
}

/// Gives the branch `b` the list of the branch `a`.
pub(crate) fn share_list(device: &Arc<dyn Device>) {
    let shared = Shared::open(device.clone(), 0, 1).unwrap();
    let mut state = shared.state.lock();
    let list = DeadList::of(state.table.named("a").unwrap());
    let id = state.table.named("b").unwrap().id;
    state.table.update(id, |it| list.store(it));
    shared.commit(&mut state, Change::default(), || ()).unwrap();
}

/// Two lists have one block by mistake: it stays that of the one that is right.
#[test]
fn a_dead_list_with_a_block_of_another_leaves_that() {
    let (device, _) = device_with_long_list();
    let before = contents(&device);
    share_list(&device);
    let repaired = mended(&device, &before);
    // The former list of `b` is lost.
    assert_eq!((repaired.freed, repaired.marked, repaired.lists), (1, 0, 1));
}

/// Returns a device with a pool whose branch `a` is being deleted, and has a list that can't be
/// read.
pub(crate) fn device_with_damaged_zombie() -> Arc<dyn Device> {
    let (device, blocks) = device_with_long_list();
    let pool = Pool::open(device.clone()).unwrap();
    pool.delete("a").unwrap();
    assert!(pool.reap(10).unwrap().more);
    drop(pool);
    overwrite(&device, &blocks[..1]);
    device
}

/// A branch that is being deleted has a list that can't be read: it goes nevertheless.
#[test]
fn a_deleted_branch_with_a_damaged_dead_list_goes() {
    let device = device_with_damaged_zombie();
    let pool = Pool::open(device.clone()).unwrap();
    assert!(matches!(pool.reap(10_000), Err(Error::Damage { .. })));
    drop(pool);
    let (pool, repaired) = Pool::open_repaired(device.clone(), 0).unwrap();
    assert_eq!((repaired.freed, repaired.lists), (2, 1));
    while pool.reap(1000).unwrap().more {}
    assert_whole(&pool);
}
