use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Barrier};
use std::thread;

use super::*;

/// Counts the values that are dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn count(dropped: &Arc<AtomicUsize>) -> usize {
    dropped.load(std::sync::atomic::Ordering::Relaxed)
}

/// A counted value of a word and `N` further ones.
struct Large<const N: usize>(Counted, [usize; N]);

impl<const N: usize> Large<N> {
    fn is_counted_by(&self, dropped: &Arc<AtomicUsize>) -> bool {
        Arc::ptr_eq(&self.0.0, dropped)
    }
}

#[test]
fn values_of_every_size_are_found_by_their_type_and_dropped_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counted = || Counted(Arc::clone(&dropped));
    let part = Private::none();
    assert!(!part.is_some() && part.get::<Counted>().is_none());
    let small = ptr::from_ref(part.get_or_init(counted).unwrap());
    assert!(ptr::eq(small.cast(), part.words.get()), "a small value is in the inode");
    assert!(ptr::eq(small, part.get::<Counted>().unwrap()) && part.is_some());
    assert!(part.get::<u64>().is_none() && part.get_or_init(|| 1_u64).is_none());
    assert!(part.get_or_init(|| Large(counted(), [1; 1])).is_none(), "another type of the size");
    drop(part);
    assert_eq!(count(&dropped), 1);

    let part = Private::none();
    part.get_or_init(|| Large(counted(), [7; 1])).unwrap();
    let value = part.get::<Large<1>>().unwrap();
    assert!(value.is_counted_by(&dropped) && value.1 == [7]);
    drop(part);
    let part = Private::none();
    assert_eq!(part.get_or_init(|| Large(counted(), [8; 2])).unwrap().1, [8; 2]);
    assert!(part.get::<Large<1>>().is_none() && part.get::<Large<3>>().is_none());
    drop(part);
    assert_eq!(count(&dropped), 3);

    let part = Private::boxed(Box::new(Large(counted(), [9; 1])));
    assert_eq!(part.get::<Large<1>>().unwrap().1, [9]);
    assert_eq!(part.get_or_init(|| Large(counted(), [1; 1])).unwrap().1, [9], "made before");
    drop(part);
    assert_eq!(count(&dropped), 4);
}

#[test]
fn a_private_value_is_made_by_one_of_several_threads() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for round in 0..if cfg!(miri) { 4 } else { 200 } {
        let (part, barrier) = (Private::none(), Barrier::new(3));
        let make = |n: usize| {
            barrier.wait();
            let value = part.get_or_init(|| Large(Counted(Arc::clone(&dropped)), [n; 1])).unwrap();
            (ptr::from_ref(value).addr(), value.1[0])
        };
        let values = thread::scope(|scope| {
            let threads = [1, 2, 3].map(|n| scope.spawn(move || make(n)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        let before = count(&dropped);
        drop(part);
        assert_eq!(count(&dropped), before + 1, "in round {round}");
    }
}
