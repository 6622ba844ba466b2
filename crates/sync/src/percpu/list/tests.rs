use super::*;
use crate::{cpu, lock_class};
use std::sync::atomic::AtomicUsize;

lock_class! { Lists = ("lists", 1); }

struct Object {
    number: usize,
    links: PerCpuLinks<Object>,
    visits: AtomicUsize,
}

impl Linked for Object {
    fn links(&self) -> &PerCpuLinks<Object> {
        &self.links
    }
}

fn objects(n: usize) -> Vec<Object> {
    (0..n)
        .map(|number| Object { number, links: PerCpuLinks::new(), visits: AtomicUsize::new(0) })
        .collect()
}

fn insert(list: &PerCpuList<Object, Lists>, object: &Object) -> bool {
    // SAFETY: the tests remove every object before they end.
    unsafe { list.insert(NonNull::from(object)) }
}

fn on_cpu<T>(cpu: u32, body: impl FnOnce() -> T) -> T {
    let _pretended = cpu::pretend(cpu);
    body()
}

fn in_order(list: &PerCpuList<Object, Lists>) -> Vec<usize> {
    let mut numbers = Vec::new();
    list.each(|object| {
        numbers.push(object.number);
        ControlFlow::Continue(())
    });
    numbers
}

/// An object that comes and goes writes no other one, and the order is that of the entries however
/// many of them are linked.
#[test]
fn the_newest_objects_are_not_linked() {
    let list = PerCpuList::<Object, Lists>::new(1);
    let objects = objects(3 * NEWEST);
    let is_linked = |object: &Object| {
        // SAFETY: this thread alone uses the list.
        let (next, prev) = unsafe { (*object.links.next.get(), *object.links.prev.get()) };
        !next.is_null() || !prev.is_null()
    };
    for object in &objects[..NEWEST - 1] {
        insert(&list, object);
    }
    for _ in 0..3 * NEWEST {
        insert(&list, &objects[NEWEST]);
        assert!(list.remove(&objects[NEWEST]));
    }
    assert!(list.remove(&objects[2]) && !objects.iter().any(is_linked));
    let expected: Vec<_> = (0..NEWEST - 1).rev().filter(|number| *number != 2).collect();
    assert_eq!(in_order(&list), expected);
    for object in &objects[NEWEST..] {
        insert(&list, object);
    }
    assert!(is_linked(&objects[0]) && !is_linked(&objects[3 * NEWEST - 1]));
    let expected: Vec<_> =
        (0..3 * NEWEST).rev().filter(|number| ![2, NEWEST - 1].contains(number)).collect();
    assert_eq!((in_order(&list), list.len()), (expected.clone(), expected.len()));
    // An object of each kind: linked, and in the array.
    for number in [NEWEST + 1, 3 * NEWEST - 2] {
        assert!(list.remove(&objects[number]) && !list.remove(&objects[number]));
    }
    let rest: Vec<_> = in_order(&list);
    assert_eq!(rest.len(), expected.len() - 2);
    assert_eq!(
        list.age(0, 1, |object| {
            assert_eq!(object.number, 0);
            Age::Young
        }),
        1
    );
    assert_eq!(in_order(&list)[0], 0);
    rest.iter().for_each(|number| assert!(list.remove(&objects[*number])));
}

#[test]
fn objects_enter_at_the_front_and_leave_from_anywhere() {
    let list = PerCpuList::<Object, Lists>::new(1);
    let objects = objects(4);
    for (i, object) in objects.iter().enumerate() {
        assert!(!object.links.is_listed());
        insert(&list, object);
        assert_eq!(list.len(), i + 1);
    }
    assert_eq!(in_order(&list), [3, 2, 1, 0]);
    assert!(list.remove(&objects[2]), "from the middle");
    assert!(!list.remove(&objects[2]), "once");
    assert!(list.remove(&objects[0]), "the last");
    assert!(list.remove(&objects[3]), "the first");
    assert_eq!(in_order(&list), [1]);
    assert!(list.remove(&objects[1]));
    assert!(list.is_empty());
    insert(&list, &objects[2]);
    assert_eq!(in_order(&list), [2], "again");
    list.remove(&objects[2]);
}

#[test]
fn ageing_starts_at_the_back_and_moves_the_young_to_the_front() {
    let list = PerCpuList::<Object, Lists>::new(1);
    let objects = objects(4);
    for object in &objects {
        insert(&list, object);
    }
    let mut seen = Vec::new();
    let looked = list.age(0, 3, |object| {
        seen.push(object.number);
        if object.number < 2 { Age::Young } else { Age::Stop }
    });
    assert_eq!((looked, seen), (2, vec![0, 1, 2]));
    assert_eq!(in_order(&list), [1, 0, 3, 2]);
    assert_eq!(list.age(0, 99, |_| Age::Young), 4, "each once");
    assert_eq!(in_order(&list), [1, 0, 3, 2]);
    assert_eq!(list.age(1, 99, |_| Age::Young), 0, "no such slot");
    for object in &objects {
        list.remove(object);
    }
}

#[test]
fn an_object_leaves_the_slot_it_came_on() {
    let list = PerCpuList::<Object, Lists>::new(4);
    let objects = objects(2);
    on_cpu(1, || insert(&list, &objects[0]));
    on_cpu(3, || insert(&list, &objects[1]));
    assert_eq!(list.age(3, 9, |_| Age::Young), 1);
    on_cpu(2, || assert!(list.remove(&objects[1])));
    assert_eq!(list.age(3, 9, |_| Age::Young), 0);
    assert_eq!((list.len(), list.slots()), (1, 4));
    assert!(list.remove(&objects[0]));
}

/// The total that is read without a lock is off by less than a report of each slot, and an object
/// that comes and goes on the edge of one reports nothing.
#[test]
fn the_approximate_length_is_close_and_seldom_written() {
    const SLOTS: usize = 4;
    const EACH: usize = 100;
    let list = PerCpuList::<Object, Lists>::new(SLOTS);
    let objects = objects(SLOTS * EACH);
    let is_close = |len: usize| list.approximate_len().abs_diff(len) < SLOTS * REPORT;
    let mut reports = 0;
    for (n, object) in objects.iter().enumerate() {
        reports += usize::from(on_cpu((n % SLOTS) as u32, || insert(&list, object)));
        assert!(is_close(n + 1));
    }
    assert_eq!(reports, SLOTS * (EACH / REPORT));
    for object in &objects[..SLOTS * (EACH % REPORT)] {
        assert!(list.remove(object));
    }
    let before = list.approximate_len();
    let on_edge = &objects[0];
    for _ in 0..1000 {
        assert!(!on_cpu(0, || insert(&list, on_edge)), "on the edge, and again");
        assert!(list.remove(on_edge));
    }
    assert_eq!(list.approximate_len(), before);
    for (n, object) in objects[SLOTS * (EACH % REPORT)..].iter().rev().enumerate() {
        assert!(list.remove(object));
        assert!(is_close(SLOTS * (EACH - EACH % REPORT) - n - 1));
    }
    assert_eq!(list.len(), 0);
}

#[test]
fn stress_comings_and_goings_beside_walks() {
    const THREADS: usize = 4;
    const EACH: usize = 64;
    let list = PerCpuList::<Object, Lists>::new(3);
    let objects = objects(THREADS * EACH);
    std::thread::scope(|scope| {
        for (t, mine) in objects.chunks(EACH).enumerate() {
            let list = &list;
            scope.spawn(move || {
                for round in 0..200 {
                    on_cpu((t + round) as u32, || {
                        for object in mine {
                            insert(list, object);
                        }
                    });
                    list.age(round % 3, 40, |object| {
                        object.visits.fetch_add(1, Ordering::Relaxed);
                        if object.number % 7 == 0 { Age::Stop } else { Age::Young }
                    });
                    on_cpu(t as u32, || {
                        mine.iter().for_each(|object| assert!(list.remove(object)));
                    });
                }
            });
        }
    });
    assert!(list.is_empty());
    assert!(objects.iter().any(|object| object.visits.load(Ordering::Relaxed) > 0));
}
