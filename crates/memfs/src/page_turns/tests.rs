use super::*;

fn places(turns: &PageTurns, ino: u64, first: u64, count: usize) -> Vec<usize> {
    turns.places(ino, first, count).collect()
}

#[test]
fn locks_are_taken_in_one_order_wherever_a_range_begins() {
    let turns = PageTurns::new(1);
    for first in 0..2 * PER_CPU as u64 {
        let places = places(&turns, 7, first, PAGES_MAX);
        assert_eq!(places.len(), PAGES_MAX);
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        assert!(places.iter().all(|&place| place < turns.len), "{places:?}");
    }
}

#[test]
fn a_page_has_one_lock_in_whatever_range_it_is() {
    let turns = PageTurns::new(3);
    assert_eq!(turns.len, 256);
    for page in 0..600 {
        let alone = places(&turns, 7, page, 1)[0];
        for first in page.saturating_sub(PAGES_MAX as u64 - 1)..=page {
            assert!(places(&turns, 7, first, PAGES_MAX).contains(&alone), "{page} from {first}");
        }
    }
}

#[test]
fn files_that_are_numbered_one_after_the_other_begin_far_from_each_other() {
    let turns = PageTurns::new(4);
    let begins: std::collections::HashSet<usize> =
        (1..=16).map(|ino| places(&turns, ino, 0, 1)[0] / PAGES_MAX).collect();
    assert!(begins.len() > 12, "{begins:?}");
}

#[test]
fn a_turn_at_one_of_several_pages_keeps_others_out() {
    let turns = PageTurns::new(1);
    let held = turns.take(7, 10, 3);
    assert_eq!(held.iter().flatten().count(), 3);
    let lock = |page| &turns.locks.get().unwrap()[places(&turns, 7, page, 1)[0]];
    assert!((10..13).all(|page| lock(page).try_lock().is_none()));
    assert!([9, 13].iter().all(|&page| lock(page).try_lock().is_some()));
    drop(held);
    assert!((10..13).all(|page| lock(page).try_lock().is_some()));
}
