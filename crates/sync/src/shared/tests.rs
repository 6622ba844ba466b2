use super::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_value_goes_with_its_last_owner() {
    let drops = Arc::new(AtomicUsize::new(0));
    let first = Shared::new(Dropped(Arc::clone(&drops)));
    let second = first.clone();
    assert_eq!(first.as_ptr(), second.as_ptr());
    drop(first);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(second);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn owners_on_many_threads_drop_it_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    for round in 1..=100 {
        let shared = Shared::new(Dropped(Arc::clone(&drops)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mine = shared.clone();
                scope.spawn(move || drop((mine.clone(), mine)));
            }
            drop(shared);
        });
        assert_eq!(drops.load(Ordering::Relaxed), round);
    }
}
