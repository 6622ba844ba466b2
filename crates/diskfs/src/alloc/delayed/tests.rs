use super::*;

/// Returns how many of the next 100 transactions may delay changes.
fn delaying(list: &DelayedList) -> usize {
    (0..100).filter(|_| list.is_open()).count()
}

#[test]
fn after_a_small_context_the_first_transactions_delay_nothing() {
    let list = DelayedList::default();
    assert_eq!(delaying(&list), 0, "no push writes them");
    list.open(1 << 20);
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
fn a_share_of_the_log_is_set_aside_at_most() {
    let list = DelayedList::default();
    list.open(1 << 20);
    list.set_aside((1 << 20) / LOG_SHARE - 1);
    assert!(list.is_open());
    list.set_aside(1);
    assert!(!list.is_open());
    list.use_up(1);
    assert!(list.is_open());
}
