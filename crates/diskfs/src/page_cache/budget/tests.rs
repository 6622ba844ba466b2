use super::super::cache::PageCache;
use super::*;

const LIMIT: u64 = 500;

fn room() -> Arc<PageRoom> {
    Arc::new(PageRoom::new(1000 * PAGE, 1, true))
}

#[test]
fn room_of_its_own_has_one_limit() {
    let room = PageRoom::new(1000 * PAGE, 1, false);
    room.join();
    room.add_unstable(400);
    assert_eq!((room.limit_of_one(LIMIT, 400), room.caches()), (LIMIT, 1));
}

#[test]
fn a_cache_may_have_what_others_leave_and_always_its_share() {
    let room = room();
    (0..4).for_each(|_| room.join());
    assert_eq!(room.limit_of_one(LIMIT, 0), LIMIT);
    room.add_unstable(300);
    // For the one that has them, and for another.
    assert_eq!((room.limit_of_one(LIMIT, 300), room.limit_of_one(LIMIT, 0)), (LIMIT, 200));
    room.add_unstable(300);
    assert_eq!(room.limit_of_one(LIMIT, 0), LIMIT / 8);
    room.leave(600);
    assert_eq!((room.limit_of_one(LIMIT, 0), room.caches()), (LIMIT, 3));
}

/// All of a cache's counts go with it, those that it had not added up yet as well.
#[test]
fn caches_leave_nothing_behind() {
    let room = room();
    let caches = [(); 3].map(|()| PageCache::in_room(Arc::clone(&room), 1, None));
    for cache in &caches {
        cache.add_unstable(600);
        cache.remove_unstable(37);
    }
    assert!(caches[0].is_too_dirty());
    assert!(room.limit_of_one(LIMIT, 0) < LIMIT);
    for cache in &caches {
        cache.remove_unstable(600 - 37);
    }
    drop(caches);
    assert_eq!((room.limit_of_one(LIMIT, 0), room.caches()), (LIMIT, 1));
}
