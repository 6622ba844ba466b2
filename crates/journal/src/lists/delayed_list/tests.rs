use std::thread;

use super::*;

vfscale_sync::lock_class! {
    Listed = ("listed", 100);
}

type List = DelayedList<u32, Listed>;

/// Returns how many of the next 100 transactions may delay changes.
fn delaying(list: &List) -> usize {
    (0..100).filter(|_| list.is_open()).count()
}

#[test]
fn after_a_small_context_the_first_transactions_delay_nothing() {
    let list = List::default();
    assert_eq!(delaying(&list), 0, "no push writes them");
    list.open();
    assert_eq!(delaying(&list), 100);
    list.close();
    assert_eq!(delaying(&list), 0, "a push is under way");
    list.ended(1);
    assert_eq!(delaying(&list), 100 - DIRECT as usize);
    assert_eq!(delaying(&list), 100);
    for items in [0, ITEMS_MIN, 1000] {
        list.close();
        list.ended(items);
        assert_eq!(delaying(&list), 100, "after {items} items");
    }
}

#[test]
fn a_thing_counts_until_its_changes_are_written() {
    let (list, is_listed) = (List::default(), ListedFlag::default());
    list.add_once(&is_listed, || 7);
    list.add_once(&is_listed, || unreachable!("it is listed already"));
    assert!(is_listed.is_set() && list.is_any());
    assert_eq!((list.take(), list.take()), (Some(7), None));
    assert!(list.is_any());
    list.written();
    assert!(!list.is_any());
}

/// As the model `listing_against_push` has it (`tests/shuttle/delayed.rs`), with real threads.
#[test]
fn a_thing_is_taken_off_with_all_changes_that_found_it_listed() {
    const CHANGES: usize = 1_000_000;
    const CHANGING: usize = 4;
    let (list, is_listed) = (List::default(), ListedFlag::default());
    let (left, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let push = || {
        while list.take().is_some() {
            is_listed.clear();
            left.swap(0, Ordering::AcqRel);
            list.written();
        }
        thread::yield_now();
    };
    let change = || {
        for _ in 0..CHANGES {
            left.fetch_add(1, Ordering::AcqRel);
            list.add_once(&is_listed, || 7);
        }
        ended.fetch_add(1, Ordering::AcqRel);
    };
    thread::scope(|scope| {
        (0..CHANGING).for_each(|_| drop(scope.spawn(change)));
        while ended.load(Ordering::Acquire) < CHANGING {
            push();
        }
    });
    push();
    assert_eq!(left.into_inner(), 0, "changes of a thing that is not on the list");
    assert!(!list.is_any() && !is_listed.is_set());
}
