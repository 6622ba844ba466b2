#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Std};

use vfscale_sync::cpu;

use super::*;
use crate::LogItem;
use crate::support_tests::{Thing, bytes_of};

fn parts(slots: usize) -> (SharedFields, Cil) {
    let costs = Costs::new(8);
    (
        SharedFields::new(true, 1, 100_000, 100),
        Cil::new(&Scaling::with_slots(slots), costs, Levels::of(None)),
    )
}

fn commit(things: &[&Arc<Thing>]) -> ChangeList {
    let format = |thing: &&Arc<Thing>| {
        let mut vector = LogVector::new();
        thing.format(&mut vector);
        // Like a transaction that adds the item.
        thing.state().pin();
        (Arc::clone(thing) as Item, vector)
    };
    let items = things.iter().map(format).collect();
    ChangeList { items, ..ChangeList::new(Costs::new(8), 1 << 20) }
}

fn insert(parts: &(SharedFields, Cil), cpu: u32, things: &[&Arc<Thing>]) -> Inserted {
    let _here = cpu::pretend(cpu);
    parts.1.insert(cpu::current(), &parts.0, &mut commit(things)).unwrap()
}

/// Ends the context; returns `None` if it is empty.
fn end(parts: &(SharedFields, Cil)) -> Option<Context> {
    match parts.1.switch(&parts.0, || false) {
        Switch::Taken(context) => Some(context),
        Switch::Empty => None,
        Switch::Delayed => panic!("nothing is delayed"),
    }
}

fn ids(context: &Context) -> Vec<u64> {
    context.entries.iter().map(|entry| entry.item.key().id).collect()
}

#[test]
fn a_relogged_item_keeps_its_place_and_gets_a_new_vector() {
    let cil = parts(2);
    let (one, two) = (Thing::new(1, b"one"), Thing::new(2, b"two"));
    insert(&cil, 0, &[&one]);
    insert(&cil, 0, &[&two]);
    one.set(Some(b"one, later"));
    // On another CPU: it stays on its first list.
    insert(&cil, 1, &[&one]);
    let context = end(&cil).unwrap();
    assert_eq!(ids(&context), [1, 2]);
    assert_eq!(bytes_of(&context.entries[0].vector), b"one, later");
    assert!(one.state().is_pinned());
    one.state().unpin();
    assert!(!one.state().is_pinned(), "one context, one pin");
}

/// Two commits without a common item or list are in the order that one of them asks for.
#[test]
fn a_commit_follows_another_on_demand() {
    let cil = parts(2);
    let things: Vec<_> = (0..6).map(|id| Thing::new(id, b"")).collect();
    let mut last = 0;
    for (thing, cpu) in things.iter().zip([1, 1, 1, 0, 1, 0]) {
        let _here = cpu::pretend(cpu);
        let mut commit = ChangeList { follows: last, ..commit(&[thing]) };
        let inserted = cil.1.insert(cpu::current(), &cil.0, &mut commit).unwrap();
        assert!(inserted.order > last);
        last = inserted.order;
    }
    assert_eq!(ids(&end(&cil).unwrap()), [0, 1, 2, 3, 4, 5]);
}

/// A context that is being written to the log has not yet taken the contents of an item when the
/// item is logged in the next context, more than once: each context gets its own contents.
///
/// Race: A commit against the push.
#[test]
fn an_item_is_in_two_contexts_at_once() {
    let cil = parts(2);
    let one = Thing::new(1, b"first");
    let log = |cpu, bytes: &[u8]| {
        one.set(Some(bytes));
        insert(&cil, cpu, &[&one])
    };
    log(0, b"first");
    log(1, b"first, later");
    // The lists are taken; the contents in the items are not.
    let taken: Vec<Entry> =
        cil.1.lists.iter().flat_map(|l| mem::take(&mut l.lock().entries)).collect();
    assert_eq!(taken.len(), 1);
    cil.0.read.sequence.store(2, Ordering::Relaxed);
    let in_list = || {
        let vectors = cil.1.lists.iter().flat_map(|list| {
            list.lock().entries.iter().map(|entry| bytes_of(&entry.vector)).collect::<Vec<_>>()
        });
        vectors.collect::<Vec<_>>()
    };
    log(1, b"second");
    log(0, b"second, later");
    assert_eq!(in_list(), [b"second, later"]);
    assert_eq!(bytes_of(&one.state().take_vector(1).unwrap()), b"first, later");
    assert!(one.state().take_vector(1).is_none() && one.state().take_vector(2).is_none());
    log(0, b"second, latest");
    assert_eq!(in_list(), [b"second, later"], "the vector is stored in the item from now on");
    let context = end(&cil).unwrap();
    assert_eq!((context.sequence, ids(&context)), (2, vec![1]));
    assert_eq!(bytes_of(&context.entries[0].vector), b"second, latest");
}

/// An image that counts how often it was encoded and released.
struct CountedImage {
    made: AtomicU64,
    released: AtomicU64,
}

impl crate::Image for CountedImage {
    fn log_bytes(&self) -> usize {
        6
    }

    fn write(&self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.made.fetch_add(1, Ordering::Relaxed);
        write(b"image!")
    }

    fn release(self: Arc<Self>) {
        self.released.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_image_is_made_into_bytes_when_it_is_written_and_not_by_commits() {
    let images: Vec<_> = (0..3)
        .map(|_| Arc::new(CountedImage { made: AtomicU64::new(0), released: AtomicU64::new(0) }))
        .collect();
    let cil = parts(1);
    let one = Thing::new(1, b"");
    for image in &images {
        let mut commit = commit(&[&one]);
        commit.items[0].1.share(Arc::clone(image) as _);
        let given = cil.1.insert(cpu::current(), &cil.0, &mut commit).unwrap().given;
        assert_eq!(given > 0, Arc::ptr_eq(image, &images[0]), "later ones are no longer");
    }
    let figures = |image: &Arc<CountedImage>| {
        (image.made.load(Ordering::Relaxed), image.released.load(Ordering::Relaxed))
    };
    assert_eq!(images.iter().map(figures).collect::<Vec<_>>(), [(0, 1), (0, 1), (0, 0)]);
    let context = end(&cil).unwrap();
    assert_eq!(context.stream_bytes, CHECKPOINT_HEADER_BYTES as u64 + 24 + 8);
    assert_eq!(bytes_of(&context.entries[0].vector), b"image!");
    drop(context);
    assert_eq!(figures(&images[2]), (1, 1));
    assert!(images.iter().all(|image| Arc::strong_count(image) == 1));
    one.state().unpin();
}

/// Chinner, per-CPU delayed logging (2020), patch 5: a callback gets the checkpoint of its own
/// transaction, on whatever list it waits.
#[test]
fn a_cil_callback_gets_its_own_checkpoint() {
    let default = Scaling::with_slots(2);
    for (scaling, on_lists) in [(default, 1), (default.and_before("busy-extents").unwrap(), 0)] {
        let shared = SharedFields::new(true, 1, 100_000, 100);
        let cil = (shared, Cil::new(&scaling, Costs::new(8), Levels::of(None)));
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let free = |cpu: u32, what: u32| {
            let (_here, told) = (cpu::pretend(cpu), told.clone());
            let mut commit = commit(&[&Thing::new(u64::from(what), b"x")]);
            commit.callbacks.push(Box::new(move |_| told.lock().unwrap().push(what)));
            cil.1.insert(cpu::current(), &cil.0, &mut commit).unwrap();
        };
        free(0, 10);
        free(1, 11);
        assert!(cil.1.lists.iter().all(|list| list.lock().callbacks.len() == on_lists));
        let first = end(&cil).unwrap();
        free(0, 20);
        let second = end(&cil).unwrap();
        let tell = |context: Context| {
            context.callbacks.into_iter().for_each(|callback| callback(Err(Error::Closed)));
            std::mem::take(&mut *told.lock().unwrap())
        };
        let mut of_first = tell(first);
        of_first.sort_unstable();
        assert_eq!((of_first, tell(second)), (vec![10, 11], vec![20]));
    }
}

#[test]
fn the_cil_orders_transactions_that_share_an_item() {
    let cil = parts(8);
    let shared = Thing::new(0, b"shared");
    let things: Vec<_> = (1..=40).map(|id| Thing::new(id, b"x")).collect();
    // Each transaction shares an item with the one before: a chain over all CPUs, backwards.
    for (number, thing) in (0_u32..).zip(&things) {
        insert(&cil, (80 - number) % 8, &[&shared, thing]);
    }
    let context = end(&cil).unwrap();
    assert_eq!(ids(&context), (0..=40).collect::<Vec<_>>());
}

#[test]
fn a_slot_whose_cpu_vanished_loses_no_item() {
    let cil = parts(4);
    let things: Vec<_> = (0..12).map(|id| Thing::new(id, b"x")).collect();
    for (cpu, thing) in (0..).zip(&things) {
        // CPUs beyond the slots share them; none of them runs any more when the push happens.
        insert(&cil, cpu, &[thing]);
    }
    let mut found = ids(&end(&cil).unwrap());
    found.sort_unstable();
    assert_eq!(found, (0..12).collect::<Vec<_>>());
}

#[test]
fn the_first_commit_of_a_context_gives_its_unit_at_once() {
    let cil = parts(4);
    let (one, two) = (Thing::new(1, b"12345678"), Thing::new(2, b"12345678"));
    assert!(cil.1.is_empty(&cil.0));
    assert!(end(&cil).is_none());
    let first = insert(&cil, 0, &[&one]);
    assert!(!cil.1.is_empty(&cil.0));
    let second = insert(&cil, 3, &[&two]);
    assert_eq!(first.given, second.given + signed(Costs::new(8).unit()));
    assert_eq!(second.given, 32 + 1);
    // Logged again with the same length: nothing is added.
    assert_eq!(insert(&cil, 2, &[&two]).given, 0);
    let context = end(&cil).unwrap();
    assert_eq!(signed(context.reserved), first.given + second.given);
    assert_eq!(context.stream_bytes, 2 * 32 + CHECKPOINT_HEADER_BYTES as u64);
    assert!(cil.1.is_empty(&cil.0));
    // The next context has its own entry.
    assert!(insert(&cil, 1, &[&two]).given > signed(Costs::new(8).unit()));
}

#[test]
fn a_vector_that_shrinks_and_grows_is_always_paid_for() {
    let (cil, costs) = (parts(2), Costs::new(8));
    let thing = Thing::new(1, &[1; 5000]);
    let lengths = [5000, 10, 7000, 7000, 0, 9000, 16];
    for (cpu, len) in (0..).zip(lengths) {
        thing.set(Some(&vec![1; len]));
        insert(&cil, cpu, &[&thing]);
    }
    let context = end(&cil).unwrap();
    let used = costs.stream(context.stream_bytes);
    assert!(used <= context.reserved);
    assert!(context.reserved <= used + costs.unit() + lengths.len() as u64, "none came back");
}

/// An item that is deleted needs no more than its cancellation: the rest comes back to the commit
/// that deletes it, whatever CPU has given it.
#[test]
fn a_deleted_item_gives_its_log_space_back() {
    let cil = parts(2);
    let things: Vec<_> = (0..10).map(|id| Thing::new(id, &[0; 1000])).collect();
    let first = insert(&cil, 0, &[&things[0]]).given;
    let given: i64 = things[1..].iter().map(|thing| insert(&cil, 0, &[thing]).given).sum();
    things.iter().for_each(|thing| thing.set(None));
    let back: i64 = things.iter().map(|thing| insert(&cil, 1, &[thing]).given).sum();
    let context = end(&cil).unwrap();
    assert_eq!(context.stream_bytes, 10 * 24 + CHECKPOINT_HEADER_BYTES as u64);
    assert_eq!(signed(context.reserved), first + given + back);
    assert!(back <= -10 * 1000, "{back}");
    assert!(context.reserved <= Costs::new(8).unit() + 10 * 24 + 20, "{}", context.reserved);
}

#[test]
fn the_common_sum_lags_by_a_batch_per_slot_at_most() {
    let cil = parts(4);
    let things: Vec<_> = (0..200).map(|id| Thing::new(id, &[0; 16])).collect();
    for (cpu, thing) in (0..).zip(&things) {
        insert(&cil, cpu, &[thing]);
    }
    let (exact, seen) = (200_i64 * 40, cil.0.written().cil_bytes.load(Ordering::Relaxed));
    assert!(seen <= exact && seen + 4 * 100 > exact, "{seen} of {exact}");
    end(&cil).unwrap();
    assert_eq!(cil.0.written().cil_bytes.load(Ordering::Relaxed), 0);
}

/// Items that grow on one CPU and shrink on another, or swing on one: what is taken back leaves the
/// sum again, which rose with each turn once and made pushes of a context of a few bytes.
#[test]
fn the_common_sum_falls_as_far_as_it_rises() {
    let (large, small) = ([0; 20_000], [0; 100]);
    for cpus in [[0, 1], [2, 2]] {
        let cil = parts(4);
        let thing = Thing::new(1, &small);
        let mut most = 0;
        for turn in 0..200 {
            thing.set(Some(if turn % 2 == 0 { &large } else { &small }));
            insert(&cil, cpus[turn % 2], &[&thing]);
            most = most.max(cil.0.written().cil_bytes.load(Ordering::Relaxed));
        }
        assert!(most < 20_000 + 24 + 4 * 100, "{most}");
        assert!(cil.0.written().cil_bytes.load(Ordering::Relaxed) < 124 + 4 * 100);
    }
}

/// A push takes what is there, wherever it is, and nothing of a CPU is left for a later one.
#[test]
fn a_switch_finds_the_items_of_any_cpu() {
    let cil = parts(200);
    for cpus in [vec![0, 63, 64, 199], vec![5], (0..200).collect(), vec![199, 64]] {
        let things: Vec<_> = cpus.iter().map(|cpu| Thing::new(u64::from(*cpu), b"")).collect();
        for (cpu, thing) in cpus.iter().zip(&things) {
            insert(&cil, *cpu, &[thing]);
        }
        let context = end(&cil).unwrap();
        let mut found = ids(&context);
        found.sort_unstable();
        let mut wanted: Vec<u64> = cpus.iter().map(|cpu| u64::from(*cpu)).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        assert!(context.reserved > 0 && cil.1.reserved_parts().iter().all(|part| *part == 0));
    }
}

#[test]
fn a_transaction_that_logs_more_than_reserved_overruns() {
    let cil = parts(1);
    let thing = Thing::new(1, &[0; 100]);
    let mut small = ChangeList { left: 50, ..commit(&[&thing]) };
    assert!(matches!(
        cil.1.insert(cpu::current(), &cil.0, &mut small),
        Err(Error::Overrun { reserved: 50, .. })
    ));
}

/// Race: A commit against the push.
#[test]
fn stress_nothing_is_lost_between_commits_and_switches() {
    for slots in [1, 4] {
        let cil = parts(slots);
        let is_over = AtomicBool::new(false);
        let mut found = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let cil = &cil;
                    scope.spawn(move || {
                        for round in 0..800_u64 {
                            let cpu = u32::try_from(round / 50).unwrap() + thread;
                            let id = u64::from(thread) * 10_000 + 2 * round;
                            let pair = [Thing::new(id, b"a"), Thing::new(id + 1, b"b")];
                            insert(cil, cpu, &[&pair[0], &pair[1]]);
                        }
                    })
                })
                .collect();
            let switches = scope.spawn(|| {
                let mut contexts = Vec::new();
                while !is_over.load(Std::SeqCst) {
                    contexts.extend(end(&cil));
                }
                contexts.extend(end(&cil));
                contexts
            });
            for thread in threads {
                thread.join().unwrap();
            }
            is_over.store(true, Std::SeqCst);
            for context in switches.join().unwrap() {
                let mut ids = ids(&context);
                ids.sort_unstable();
                // A transaction is in one context as a whole.
                assert!(ids.chunks(2).all(|pair| pair[0] + 1 == pair[1]));
                assert!(Costs::new(8).stream(context.stream_bytes) <= context.reserved);
                found.extend(ids);
            }
        });
        assert_eq!(found.len(), 3 * 2 * 800);
    }
}
