use super::*;

#[test]
fn prefetch_asks_once_for_later_items_and_not_behind_the_end() {
    let list: Vec<usize> = (0..3 * AHEAD).collect();
    let mut fetched = Vec::new();
    for at in 0..list.len() {
        soon(&list, at, |later| fetched.push(*later));
    }
    assert_eq!(fetched, list[AHEAD..]);
}

#[test]
fn values_of_all_sizes_can_be_asked_for() {
    prefetch(&());
    prefetch(&[0_u8; 1000]);
    prefetch::<[u64]>(&[]);
}
