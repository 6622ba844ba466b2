//! Walks over a list of cached objects that drop those not used since the last walk.

use smallvec::SmallVec;
use vfscale_sync::cpu;
use vfscale_sync::lock::LockClass;
use vfscale_sync::percpu_list::{Age, Linked, PerCpuList};
use vfscale_sync::rcu::{self, Guard};

/// Number of objects that are looked at under one lock of a list.
const BATCH: usize = 32;

/// An object on a list that the shrinker may drop.
pub(crate) trait Droppable: Linked {
    /// Marks it. Returns whether it had the mark already and seems to be unused.
    fn may_be_dropped(&self) -> bool;

    /// Returns the object, for the rest of an RCU section that began before it was found on its
    /// list.
    fn during<'g>(&self, guard: &'g Guard) -> &'g Self;

    /// Drops it, if it is still listed and unused.
    fn drop_unused(&self, guard: &Guard) -> bool;
}

/// Drops up to `want` objects of a list, this CPU's slot first, and looks at no more than `enough`
/// objects of each slot. Takes the locks of as many slots as it needs for that. Returns the number
/// of dropped objects.
pub(crate) fn drop_from<T: Droppable, C: LockClass>(
    list: &PerCpuList<T, C>,
    want: usize,
    enough: usize,
) -> usize {
    let own = cpu::current() as usize;
    let mut dropped = 0;
    for slot in 0..list.slots() {
        if dropped >= want {
            break;
        }
        let slot = (own + slot) % list.slots();
        // Each may be looked at twice: a first look marks it, a second one finds it unused.
        let mut left = (2 * list.slot_len(slot)).min(enough);
        while dropped < want && left > 0 {
            let guard = rcu::pin();
            let (looked, unused) = find_unused(list, slot, left.min(BATCH), want - dropped, &guard);
            left = if looked == 0 { 0 } else { left - looked };
            dropped += unused.into_iter().filter(|object| object.drop_unused(&guard)).count();
        }
    }
    dropped
}

/// Looks at up to `max` objects from the back of a list. Returns the number of those looked at, and
/// up to `want` of them that were not used since the last look.
fn find_unused<'g, T: Droppable, C: LockClass>(
    list: &PerCpuList<T, C>,
    slot: usize,
    max: usize,
    want: usize,
    guard: &'g Guard,
) -> (usize, SmallVec<[&'g T; BATCH]>) {
    let mut unused = SmallVec::new();
    let looked = list.age(slot, max, |object| {
        if unused.len() == want {
            return Age::Stop;
        }
        if object.may_be_dropped() {
            unused.push(object.during(guard));
        }
        Age::Young
    });
    (looked, unused)
}
