use super::{Shared, SharedSlot};
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

#[test]
fn a_slot_gives_handles_and_keeps_its_mark() {
    let slot = SharedSlot::new();
    assert!(slot.get().is_none() && slot.take().is_none() && slot.mark().is_none());
    assert!(!slot.set_mark(true));
    assert_eq!(*slot.replace(Shared::new(7), true).err().unwrap(), 7);
    slot.fill(Shared::new(1), true);
    assert_eq!((*slot.get().unwrap(), slot.mark()), (1, Some(true)));
    assert!(slot.set_mark(false));
    assert_eq!((*slot.get().unwrap(), slot.mark()), (1, Some(false)));
    assert_eq!(*slot.replace(Shared::new(2), true).ok().unwrap(), 1);
    assert_eq!((*slot.take().unwrap(), slot.mark()), (2, None));
}

#[test]
fn a_slot_under_threads_drops_everything_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let made = AtomicUsize::new(1);
    let slot = SharedSlot::new();
    slot.fill(Shared::new(Dropped(Arc::clone(&drops))), false);
    std::thread::scope(|scope| {
        for turn in 0..4 {
            let (slot, drops, made) = (&slot, &drops, &made);
            scope.spawn(move || {
                for i in 0..2000 {
                    match (turn + i) % 4 {
                        0 => {
                            made.fetch_add(1, Ordering::Relaxed);
                            drop(slot.replace(Shared::new(Dropped(Arc::clone(drops))), false));
                        }
                        1 => drop(slot.set_mark(i % 8 == 1)),
                        _ => drop(slot.get()),
                    }
                }
            });
        }
    });
    drop(slot);
    assert_eq!(drops.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
}
