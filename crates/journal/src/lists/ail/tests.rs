#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::support_tests::Thing;

fn items(things: &[&Arc<Thing>]) -> impl Iterator<Item = Item> {
    let items: Vec<_> = things.iter().map(|thing| Arc::clone(thing) as Item).collect();
    items.into_iter()
}

fn lsn(block: u32) -> Lsn {
    Lsn::new(1, block)
}

#[test]
fn the_tail_is_the_first_item_or_the_last_durable_record() {
    let ail = Ail::new(lsn(3), Levels::of(None));
    assert_eq!(ail.tail(), (lsn(3), true));
    let (one, two) = (Thing::new(1, b""), Thing::new(2, b""));
    ail.insert(items(&[&one]), lsn(4), lsn(5));
    ail.insert(items(&[&two]), lsn(6), lsn(7));
    assert_eq!(ail.tail(), (lsn(4), false));
    let batch = ail.batch(None, lsn(5));
    assert_eq!(batch.len(), 1);
    ail.remove(batch);
    assert_eq!(ail.tail(), (lsn(6), false));
    ail.remove(ail.batch(None, Lsn::new(9, 0)));
    assert_eq!((ail.tail(), ail.sync_lsn()), ((lsn(7), true), lsn(7)));
}

/// The item is logged again while it is written back, so the written version is not the one that
/// the tail would pass.
///
/// Race: Writing an item back against logging it again.
///
/// An item that is pushed may be changed, committed and made durable at a later LSN before it
/// leaves the AIL. It leaves only from the LSN at which it was pushed. It is not written back with
/// changes that the log does not have: it is pinned before it is changed, and the pin is checked
/// under the lock under which each change is made. And one thread at a time writes items back, so
/// no older version overwrites a newer one.
#[test]
fn an_item_that_moved_meanwhile_stays() {
    let ail = Ail::new(lsn(1), Levels::of(None));
    let thing = Thing::new(1, b"");
    ail.insert(items(&[&thing]), lsn(2), lsn(2));
    let pushed = ail.batch(None, lsn(9));
    ail.insert(items(&[&thing]), lsn(3), lsn(3));
    ail.remove(pushed);
    assert_eq!((ail.tail(), ail.len()), ((lsn(3), false), 1));
}

#[test]
fn batches_go_on_behind_the_last_one() {
    let ail = Ail::new(lsn(1), Levels::of(None));
    let things: Vec<_> = (0..BATCH as u64 + 10).map(|id| Thing::new(id, b"")).collect();
    ail.insert(items(&things.iter().collect::<Vec<_>>()), lsn(2), lsn(2));
    let first = ail.batch(None, lsn(2));
    let second = ail.batch(first.last().map(|(key, _)| *key), lsn(2));
    assert_eq!((first.len(), second.len()), (BATCH, 10));
}

proptest! {
    /// Items are inserted again in other checkpoints and removed at any position: the list equals a
    /// sorted map of its expected contents, as a whole and from any position on.
    #[test]
    fn the_ail_equals_a_sorted_map(
        steps in proptest::collection::vec((any::<u16>(), any::<u16>()), 1..60),
        from in 0..60u32,
    ) {
        let things: Vec<_> = (0..16).map(|id| Thing::new(id, b"")).collect();
        let chosen = |bits: u16| (0..16usize).filter(move |id| bits >> id & 1 == 1);
        let (ail, mut model) = (Ail::new(lsn(1), Levels::of(None)), BTreeMap::new());
        for (at, (logged, written)) in (2..).zip(steps) {
            let came: Vec<_> = chosen(logged).map(|id| &things[id]).collect();
            ail.insert(items(&came), lsn(at), lsn(at));
            model.extend(chosen(logged).map(|id| (id as u64, lsn(at))));
            // Some of the listed items are written back.
            let is_written_back = |item: &Item| written >> item.key().id & 1 == 1;
            let mut batch = ail.batch(None, lsn(at));
            batch.retain(|(_, item)| is_written_back(item));
            ail.remove(batch);
            model.retain(|id, _| written >> id & 1 == 0);

            let mut expected: Vec<_> = model.iter().map(|(id, lsn)| (*lsn, *id)).collect();
            expected.sort_unstable();
            let tail = expected.first().map_or((lsn(at), true), |(lsn, _)| (*lsn, false));
            prop_assert_eq!((ail.tail(), ail.len()), (tail, expected.len()));
            let all = ail.batch(None, lsn(at));
            let seen = |batch: &[(AilPosition, Item)]| -> Vec<_> {
                batch.iter().map(|(position, item)| (position.lsn, item.key().id)).collect()
            };
            prop_assert_eq!(seen(&all), expected);
            let later = all.iter().enumerate().filter(|(_, (at, _))| at.lsn >= lsn(from));
            for (index, (position, _)) in later {
                prop_assert_eq!(seen(&ail.batch(Some(*position), lsn(at))), seen(&all[index + 1..]));
            }
        }
    }
}

#[test]
fn a_request_is_taken_once_and_not_after_the_end() {
    let ail = Ail::new(lsn(1), Levels::of(None));
    assert_eq!(ail.take_request(), None);
    assert_eq!((ail.request_tail_push(), ail.request_tail_push()), (true, false));
    assert_eq!((ail.take_request(), ail.take_request()), (Some(Goal::Tail), None));
    assert!(ail.request_tail_push(), "a request that was taken does not count");
    ail.stop();
    assert_eq!(ail.take_request(), None);
}

/// Only an insertion requests memory from the worker, and only the oldest items are written back
/// for it. No transaction is admitted before there is enough memory.
#[test]
fn the_ail_requests_write_back_once_and_bounds_memory() {
    // The bound is eight things: the worker is woken from the fourth on, and no transaction begins
    // from the fifth on.
    let levels = Levels::of(Some(8 * Thing::MEMORY_BYTES as u64));
    let ail = Ail::new(lsn(1), levels);
    let things: Vec<_> = (0..6).map(|id| Thing::new(id, b"")).collect();
    let mut at = 2;
    let mut came = |range: std::ops::Range<usize>| {
        ail.insert(items(&things[range].iter().collect::<Vec<_>>()), lsn(at), lsn(at));
        at += 1;
        let asked = std::mem::take(&mut ail.state.lock().is_heavy);
        (ail.len(), asked, ail.is_crowded())
    };
    assert_eq!(came(0..3), (3, false, false));
    assert_eq!(came(3..4), (4, true, false));
    // An item that is logged again takes no more memory than before.
    assert_eq!(came(0..1), (4, true, false));
    assert_eq!(came(4..6), (6, true, true));
    assert_eq!(ail.memory().0, 6 * Thing::MEMORY_BYTES as u64);
    let mut batch = ail.batch(None, lsn(9));
    batch.truncate(1);
    ail.remove(batch);
    assert!(ail.is_crowded() && !ail.is_light());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ail.wait_for_memory(|| false));
        let mut batch = ail.batch(None, lsn(9));
        batch.truncate(3);
        ail.remove(batch);
        waiter.join().unwrap();
    });
    assert_eq!((ail.len(), ail.is_light(), ail.is_crowded()), (2, true, false));
    assert!(!ail.state.lock().is_heavy, "a removal requests no write-back");
}
