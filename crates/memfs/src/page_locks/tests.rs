use super::*;

fn indices(locks: &PageLocks, ino: u64, first: u64, count: usize) -> Vec<usize> {
    locks.indices(ino, first, count).collect()
}

#[test]
fn locks_are_taken_in_one_order_wherever_a_range_begins() {
    let locks = PageLocks::new(1);
    for first in 0..2 * PER_CPU as u64 {
        let indices = indices(&locks, 7, first, PAGES_MAX);
        assert_eq!(indices.len(), PAGES_MAX);
        assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "{indices:?}");
        assert!(indices.iter().all(|&index| index < locks.len), "{indices:?}");
    }
}

/// Returns the indices of the locks that an overwrite holds.
fn held(locks: &PageLocks, ino: u64, first: u64, count: usize) -> Vec<usize> {
    let _guards = locks.lock(ino, first, count);
    let all = locks.locks.get().unwrap();
    (0..all.len()).filter(|&index| all[index].try_lock().is_none()).collect()
}

#[test]
fn a_page_has_one_lock_in_whatever_range_it_is() {
    let locks = PageLocks::new(3);
    assert_eq!(locks.len, 256);
    for page in (0..600).step_by(5) {
        let alone = indices(&locks, 7, page, 1)[0];
        for first in page.saturating_sub(PAGES_MAX as u64 - 1)..=page {
            assert!(held(&locks, 7, first, PAGES_MAX).contains(&alone), "{page} from {first}");
        }
    }
}

/// Pages of two laps that have a lock in common take it once.
#[test]
fn a_range_across_laps_takes_each_lock_once() {
    let locks = PageLocks::new(1);
    let end = locks.len as u64;
    let common = (1..500).find(|&ino| held(&locks, ino, end - 1, PAGES_MAX).len() < PAGES_MAX);
    assert!(common.is_some());
}

/// Threads that write to regions of one file, as databases and FxMark do.
#[test]
fn pages_at_a_stride_have_locks_far_from_each_other() {
    let locks = PageLocks::new(8);
    for stride in [512, 1024, 2048, 4096, 1 << 20] {
        let used: std::collections::HashSet<usize> =
            (0..8).map(|part| indices(&locks, 7, part * stride, 1)[0]).collect();
        assert!(used.len() > 6, "every {stride} pages: {used:?}");
    }
}

#[test]
fn files_that_are_numbered_one_after_the_other_begin_far_from_each_other() {
    let locks = PageLocks::new(4);
    let begins: std::collections::HashSet<usize> =
        (1..=16).map(|ino| indices(&locks, ino, 0, 1)[0] / PAGES_MAX).collect();
    assert!(begins.len() > 12, "{begins:?}");
}

#[test]
fn a_lock_of_several_pages_excludes_others() {
    let locks = PageLocks::new(1);
    let held = locks.lock(7, 10, 3);
    assert_eq!(held.iter().flatten().count(), 3);
    let lock = |page| &locks.locks.get().unwrap()[indices(&locks, 7, page, 1)[0]];
    assert!((10..13).all(|page| lock(page).try_lock().is_none()));
    assert!([9, 13].iter().all(|&page| lock(page).try_lock().is_some()));
    drop(held);
    assert!((10..13).all(|page| lock(page).try_lock().is_some()));
}
