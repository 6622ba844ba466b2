//! Groups that several CPUs contend for.

use std::thread;
use std::time::{Duration, Instant};

use vfscale_sync::cpu;

use super::world::World;
use crate::alloc::Changes;
use crate::alloc::heat::Came;

/// Heats a group until it is hot.
fn heat(world: &World, group: u32) {
    let heat = &world.groups.at(group).unwrap().heat;
    while !heat.is_hot() {
        heat.note(Came::Waiting);
    }
}

fn cool(world: &World, group: u32) {
    let heat = &world.groups.at(group).unwrap().heat;
    while heat.is_hot() {
        heat.note(Came::FromSame);
    }
}

/// Returns the groups in which a file, and blocks, near the start of group 0 are claimed.
fn claimed_in(world: &mut World) -> [u64; 2] {
    let mut changes = Changes::new();
    let ino = world.groups.claim_inode(&world.nodes, 8, false, &mut changes).unwrap().unwrap();
    world.groups.abandon(changes);
    let run = world.claim(16, 1, 16).unwrap();
    world.unclaim(0);
    world.check();
    [ino / 8, run.start].map(|block| block / 1024)
}

#[test]
fn claims_avoid_a_contended_group() {
    let mut world = World::new(4096, 10);
    // Otherwise the test could move to another CPU between two claims.
    let _here = cpu::pretend(0);
    assert_eq!(claimed_in(&mut world), [0, 0]);
    heat(&world, 0);
    let [of_file, of_blocks] = claimed_in(&mut world);
    assert_eq!(of_file, of_blocks);
    assert_ne!(of_file, 0);
    // The next one, if CPUs contend for that as well.
    heat(&world, of_file as u32);
    let next = claimed_in(&mut world);
    assert!(next[0] != 0 && next[0] != of_file && next[0] == next[1], "{next:?}");
    cool(&world, 0);
    assert_eq!(claimed_in(&mut world), [0, 0]);
}

#[test]
fn claims_stay_where_all_groups_are_contended() {
    let mut world = World::new(4096, 10);
    (0..4).for_each(|group| heat(&world, group));
    assert_eq!(claimed_in(&mut world), [0, 0]);
}

#[test]
fn a_full_group_of_the_cpu_is_left_for_others() {
    let mut world = World::new(4096, 10);
    heat(&world, 0);
    for group in 1..4 {
        while world.claim(group * 1024, 1, 1024).is_some_and(|run| run.start / 1024 == group) {}
        // The last claim is elsewhere.
        world.unclaim(world.claims.len() - 1);
    }
    let mut changes = Changes::new();
    let ino = world.groups.claim_inode(&world.nodes, 8, false, &mut changes).unwrap().unwrap();
    assert_eq!(ino / 8 / 1024, 0);
    world.groups.abandon(changes);
    world.check();
}

#[test]
fn waits_for_a_group_are_noted() {
    let world = World::new(4096, 10);
    let group = world.groups.at(0).unwrap();
    thread::scope(|scope| {
        let held = group.lock_to_change();
        // More than twelve, since a note that meets another one may be lost.
        for _ in 0..32 {
            scope.spawn(|| drop(group.lock_to_change()));
        }
        let end = Instant::now() + Duration::from_secs(60);
        while !group.heat.is_hot() {
            assert!(Instant::now() < end, "nobody has noted a wait");
            thread::yield_now();
        }
        drop(held);
    });
}
