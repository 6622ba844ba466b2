use super::*;

/// A cache of objects of which some are in use.
struct Objects {
    limit: Arc<SharedLimit>,
    unused: Mutex<usize, ObjectsOfTest>,
}

lock_class! {
    ObjectsOfTest = ("objects_of_test", 32000);
}

impl Objects {
    fn new(limit: &Arc<SharedLimit>) -> Arc<Self> {
        let objects = Arc::new(Self { limit: Arc::clone(limit), unused: Mutex::default() });
        let weak: Weak<Self> = Arc::downgrade(&objects);
        limit.join(weak);
        objects
    }

    fn add(&self, number: usize) {
        *self.unused.lock() += number;
        self.limit.changed(0, number);
        self.limit.trim();
    }

    fn unused(&self) -> usize {
        *self.unused.lock()
    }
}

impl SharedCache for Objects {
    fn drop_unused(&self, most: usize) -> usize {
        let mut unused = self.unused.lock();
        let dropped = most.min(*unused);
        *unused -= dropped;
        self.limit.changed(dropped, 0);
        dropped
    }
}

#[test]
fn caches_give_in_turn_and_only_what_is_too_much() {
    let limit = Arc::new(SharedLimit::new(1000));
    let (first, second) = (Objects::new(&limit), Objects::new(&limit));
    first.add(600);
    second.add(400);
    assert_eq!((first.unused(), second.unused()), (600, 400));
    second.add(100);
    // 64 of the first, the rest of the second.
    assert_eq!((first.unused(), second.unused()), (536, 464));
    first.add(100);
    assert_eq!(limit.count(), 1000);
    assert_eq!(first.unused() + second.unused(), 1000);
}

#[test]
fn a_cache_that_is_gone_is_not_asked() {
    let limit = Arc::new(SharedLimit::new(10));
    let (first, second) = (Objects::new(&limit), Objects::new(&limit));
    first.add(10);
    limit.changed(first.unused(), 0);
    drop(first);
    second.add(12);
    assert_eq!((limit.count(), second.unused()), (10, 10));
}

#[test]
fn caches_that_have_nothing_to_give_end_the_search() {
    let limit = Arc::new(SharedLimit::new(0));
    let _empty: Vec<_> = (0..100).map(|_| Objects::new(&limit)).collect();
    limit.changed(0, 5);
    limit.trim();
    assert_eq!(limit.count(), 5);
}

#[test]
fn each_cpu_adds_up_a_part_of_the_limit() {
    let limit = SharedLimit::new(1 << 14);
    let slots = cpu::most_slots();
    let common = || limit.count.load(Ordering::Relaxed);
    for number in 0..slots {
        let _cpu = cpu::pretend(number);
        (0..limit.parts.most() / i64::from(slots)).for_each(|_| limit.changed(0, 1));
    }
    assert_eq!(common(), 0);
    assert_eq!(limit.count(), limit.parts.most() as u64);
    for number in (0..slots).cycle().take(10_000) {
        let _cpu = cpu::pretend(number);
        limit.changed(1, 2);
        assert!(limit.count() as i64 - common() <= limit.most / BATCHES_SHARE as i64);
    }
    for number in 0..slots {
        let _cpu = cpu::pretend(number);
        limit.changed(limit.count() as usize, 0);
    }
    assert_eq!(limit.count(), 0);
}
