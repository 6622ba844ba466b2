use super::super::cache::PageCache;
use super::*;

/// The most dirty pages of all volumes in a room of a thousand.
const MOST: u64 = 500;
const LIMIT: DirtyLimit = DirtyLimit { of_all: MOST, of_one: 450 };

fn room() -> Arc<PageRoom> {
    Arc::new(PageRoom::new(1000 * PAGE, 1, true))
}

#[test]
fn room_of_its_own_has_one_limit() {
    let room = PageRoom::new(1000 * PAGE, 1, false);
    room.join();
    room.add_unstable(400);
    assert_eq!((room.limit_of_one(room.too_dirty(), 400), room.caches()), (MOST, 1));
}

#[test]
fn a_cache_may_have_what_others_leave_and_always_its_share() {
    let room = room();
    (0..4).for_each(|_| room.join());
    assert_eq!(room.limit_of_one(LIMIT, 0), 450);
    room.add_unstable(300);
    // For the one that has them, and for another.
    assert_eq!((room.limit_of_one(LIMIT, 300), room.limit_of_one(LIMIT, 0)), (450, 200));
    room.add_unstable(300);
    assert_eq!(room.limit_of_one(LIMIT, 0), MOST / 8);
    assert_eq!(room.limit_of_one(LIMIT.at_most(40), 0), 40);
    room.leave(600);
    assert_eq!((room.limit_of_one(LIMIT, 0), room.caches()), (450, 3));
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
    assert!(room.limit_of_one(LIMIT, 0) < 450);
    for cache in &caches {
        cache.remove_unstable(600 - 37);
    }
    drop(caches);
    assert_eq!((room.limit_of_one(LIMIT, 0), room.caches()), (450, 1));
}

/// A volume in a large room has little dirty data, so a fork of it is short; one with room of its
/// own has as much as fits.
#[test]
fn a_volume_in_a_large_room_has_limits_of_its_own() {
    for is_shared in [false, true] {
        let room = Arc::new(PageRoom::new(256 << 20, 1, is_shared));
        let cache = PageCache::in_room(room, 1, None);
        cache.add_unstable(DIRTY_OF_ONE);
        assert!(!cache.is_dirty());
        cache.add_unstable(1);
        assert_eq!((cache.is_dirty(), cache.is_too_dirty()), (is_shared, false));
        cache.add_unstable(TOO_DIRTY_OF_ONE - DIRTY_OF_ONE - 1);
        assert!(!cache.is_too_dirty());
        cache.add_unstable(1);
        assert_eq!(cache.is_too_dirty(), is_shared);
        let low = cache.lower_dirty(10);
        assert!(cache.is_too_dirty());
        drop(low);
        assert_eq!(cache.is_too_dirty(), is_shared);
        cache.remove_unstable(TOO_DIRTY_OF_ONE + 1);
        assert!(!cache.is_dirty());
    }
}
