#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

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
    let ail = Ail::new(lsn(3));
    assert_eq!(ail.tail(), (lsn(3), true));
    let (one, two) = (Thing::new(1, b""), Thing::new(2, b""));
    ail.insert(items(&[&one]), lsn(4), lsn(5));
    ail.insert(items(&[&two]), lsn(6), lsn(7));
    assert_eq!(ail.tail(), (lsn(4), false));
    let batch = ail.batch(None, lsn(5));
    assert_eq!(batch.len(), 1);
    ail.remove(&batch);
    assert_eq!(ail.tail(), (lsn(6), false));
    ail.remove(&ail.batch(None, Lsn::new(9, 0)));
    assert_eq!((ail.tail(), ail.sync_lsn()), ((lsn(7), true), lsn(7)));
}

/// The item was logged again while it was written home: what is home is not what the tail would pass.
#[test]
fn an_item_that_moved_meanwhile_stays() {
    let ail = Ail::new(lsn(1));
    let thing = Thing::new(1, b"");
    ail.insert(items(&[&thing]), lsn(2), lsn(2));
    let pushed = ail.batch(None, lsn(9));
    ail.insert(items(&[&thing]), lsn(3), lsn(3));
    ail.remove(&pushed);
    assert_eq!((ail.tail(), ail.len()), ((lsn(3), false), 1));
}

#[test]
fn batches_go_on_behind_the_last_one() {
    let ail = Ail::new(lsn(1));
    let things: Vec<_> = (0..BATCH as u64 + 10).map(|id| Thing::new(id, b"")).collect();
    ail.insert(items(&things.iter().collect::<Vec<_>>()), lsn(2), lsn(2));
    let first = ail.batch(None, lsn(2));
    let second = ail.batch(first.last().map(|(key, _)| *key), lsn(2));
    assert_eq!((first.len(), second.len()), (BATCH, 10));
}

#[test]
fn the_worker_is_woken_and_ended() {
    let ail = Ail::new(lsn(1));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| (ail.wait_wanted(), ail.wait_wanted()));
        ail.want();
        while ail.state.lock().is_wanted {
            std::thread::yield_now();
        }
        ail.stop();
        assert_eq!(worker.join().unwrap(), (true, false));
    });
}
