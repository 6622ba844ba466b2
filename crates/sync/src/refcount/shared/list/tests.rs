use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::cpu;

crate::lock_class! {
    Lists = ("lists", 7);
}

/// A value that holds a reference to its list, and logs its end.
struct Value {
    number: usize,
    ended: AtomicBool,
    log: Arc<Log>,
    _list: Arc<SharedList<Value, Lists>>,
}

#[derive(Default)]
struct Log {
    ended: AtomicUsize,
    dropped: AtomicUsize,
}

impl Listable for Value {
    fn ended(&self) {
        assert!(!self.ended.swap(true, Ordering::Relaxed), "ended twice");
        self.log.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert!(*self.ended.get_mut(), "dropped before its end");
        self.log.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

type List = Arc<SharedList<Value, Lists>>;

fn insert(list: &List, log: &Arc<Log>, number: usize) -> Shared<Value, Listed<Lists>> {
    let (ended, log) = (AtomicBool::new(false), Arc::clone(log));
    let value = Value { number, ended, log, _list: Arc::clone(list) };
    // SAFETY: the value holds a reference to the list.
    unsafe { list.insert(value) }.unwrap_or_else(|_| panic!("the bound is reached"))
}

fn numbers(list: &List) -> Vec<usize> {
    let mut numbers = Vec::new();
    list.each(|value| {
        numbers.push(value.number);
        ControlFlow::Continue(())
    });
    numbers.sort_unstable();
    numbers
}

fn kept(list: &List) -> Vec<u32> {
    list.slots.iter().map(|home| home.lock().kept_len).collect()
}

/// Returns the number of values of other slots that each slot stores.
fn ended(list: &List) -> Vec<u32> {
    list.slots.iter().map(|home| home.lock().ended_len).collect()
}

#[test]
fn a_value_is_listed_from_its_beginning_to_its_end() {
    let (list, log) = (List::new(SharedList::new(2)), Arc::new(Log::default()));
    let first = insert(&list, &log, 1);
    let second = insert(&list, &log, 2);
    let again = first.clone();
    assert_eq!((first.number, first.as_ptr()), (1, again.as_ptr()));
    drop(first);
    assert_eq!(numbers(&list), [1, 2]);
    drop(again);
    assert_eq!((numbers(&list), list.len()), (vec![2], 1));
    assert_eq!(log.dropped.load(Ordering::Relaxed), 1);
    drop(second);
    assert!(list.is_empty());
    assert_eq!((log.ended.load(Ordering::Relaxed), log.dropped.load(Ordering::Relaxed)), (2, 2));
}

#[test]
fn a_value_ended_on_another_cpu_leaves_the_list_it_is_on() {
    let (list, log) = (List::new(SharedList::new(4)), Arc::new(Log::default()));
    let values: Vec<_> = (0..8)
        .map(|n| {
            let _there = cpu::pretend(n % 4);
            insert(&list, &log, n as usize)
        })
        .collect();
    assert_eq!(numbers(&list), [0, 1, 2, 3, 4, 5, 6, 7]);
    let _elsewhere = cpu::pretend(2);
    for (n, value) in values.into_iter().enumerate() {
        drop(value);
        assert_eq!(numbers(&list), (n + 1..8).collect::<Vec<_>>());
    }
    // The memory of this slot's values is reused; the memory of others waits for more of them.
    assert_eq!((kept(&list), ended(&list)), (vec![0, 0, 2, 0], vec![0, 0, 6, 0]));
}

#[test]
fn places_on_other_cpus_are_cleared_together() {
    let (list, log) = (List::new(SharedList::new(2)), Arc::new(Log::default()));
    let end = |count: u32| {
        for n in 0..count {
            let before = list.len();
            let value = insert(&list, &log, n as usize);
            let _there = cpu::pretend(1);
            drop(value);
            assert_eq!(list.len(), before);
        }
    };
    let _here = cpu::pretend(0);
    let staying = insert(&list, &log, 100);
    let used = || list.slots.iter().map(|home| home.lock().used).collect::<Vec<_>>();
    end(ENDED_MAX - 1);
    assert_eq!((used(), ended(&list)), (vec![ENDED_MAX, 0], vec![0, ENDED_MAX - 1]));
    // Values that are freed on their own slot don't count.
    drop(insert(&list, &log, 101));
    assert_eq!(used(), [ENDED_MAX, 0]);
    let last = insert(&list, &log, 102);
    {
        let _there = cpu::pretend(1);
        drop(last);
    }
    assert_eq!((used(), ended(&list)), (vec![1, 0], vec![0, 0]));
    // The memory returned to its slot.
    assert_eq!(kept(&list), [KEPT_MAX, 0]);
    assert_eq!(numbers(&list), [100]);
    drop(staying);
    // More than once, and with values left over when the list ends.
    end(3 * ENDED_MAX + 5);
    assert_eq!(ended(&list), [0, 5]);
    let all = (ENDED_MAX + 2 + 3 * ENDED_MAX + 5) as usize;
    assert_eq!(
        (log.ended.load(Ordering::Relaxed), log.dropped.load(Ordering::Relaxed)),
        (all, all)
    );
}

/// A thread that frees a value of another slot while a walk reads it waits until the walk has
/// continued.
#[test]
fn a_visited_value_is_not_ended_under_the_walk() {
    let (list, log) = (List::new(SharedList::new(2)), Arc::new(Log::default()));
    let value = insert(&list, &log, 1);
    let mut ending = None;
    let going = Arc::new(AtomicBool::new(false));
    let mut value = Some(value);
    list.each(|seen| {
        let (value, going) = (value.take().unwrap(), Arc::clone(&going));
        let started = Arc::clone(&going);
        ending = Some(std::thread::spawn(move || {
            let _there = cpu::pretend(1);
            going.store(true, Ordering::Release);
            drop(value);
        }));
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        vfscale_harness::stays(
            "the end waits for a walk",
            std::time::Duration::from_millis(20),
            || !seen.ended.load(Ordering::Relaxed),
        );
        ControlFlow::Continue(())
    });
    ending.unwrap().join().unwrap();
    assert_eq!((list.len(), log.dropped.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn a_table_grows_and_is_given_back() {
    let (list, log) = (List::new(SharedList::new(1)), Arc::new(Log::default()));
    let rows = || list.slots.iter().map(|home| home.lock().rows.len()).collect::<Vec<_>>();
    let many = ROWS_KEPT_MAX * ROW_LEN as usize;
    let values: Vec<_> = (0..many).map(|n| insert(&list, &log, n)).collect();
    assert_eq!((numbers(&list), rows()), ((0..many).collect(), vec![ROWS_KEPT_MAX]));
    drop(values);
    assert_eq!(rows(), [ROWS_KEPT_MAX]);
    let values: Vec<_> = (0..=many).map(|n| insert(&list, &log, n)).collect();
    drop(values);
    assert_eq!(rows(), [0]);
    let value = insert(&list, &log, 5);
    assert_eq!((numbers(&list), rows()), (vec![5], vec![1]));
    drop(value);
}

#[test]
fn neighbours_are_joined_wherever_a_value_leaves() {
    let (list, log) = (List::new(SharedList::new(1)), Arc::new(Log::default()));
    for gone in 0..3 {
        let mut values: Vec<_> = (0..3).map(|n| insert(&list, &log, n)).collect();
        drop(values.remove(gone));
        let left: Vec<usize> = (0..3).filter(|n| *n != gone).collect();
        assert_eq!(numbers(&list), left);
        drop(values.pop());
        assert_eq!(numbers(&list), left[..1]);
    }
    assert!(list.is_empty());
}

#[test]
fn memory_is_used_again_and_not_hoarded() {
    let (list, log) = (List::new(SharedList::new(1)), Arc::new(Log::default()));
    let first = insert(&list, &log, 0);
    let address = first.as_ptr();
    drop(first);
    let second = insert(&list, &log, 1);
    assert_eq!(second.as_ptr(), address);
    let many: Vec<_> = (0..200).map(|n| insert(&list, &log, n)).collect();
    drop((many, second));
    assert_eq!(kept(&list), [KEPT_MAX]);
    assert_eq!(log.dropped.load(Ordering::Relaxed), 202);
}

#[test]
fn a_value_moves_to_another_list_once_and_keeps_it() {
    let log = Arc::new(Log::default());
    let [from, to, other] = [2, 1, 1].map(|slots| List::new(SharedList::new(slots)));
    let value = insert(&from, &log, 5);
    let beside = insert(&from, &log, 6);
    assert!(value.move_to(&to));
    assert_eq!((numbers(&from), numbers(&to)), (vec![6], vec![5]));
    assert!(!value.move_to(&other) && !value.clone().move_to(&from));
    assert_eq!((numbers(&from), numbers(&to), numbers(&other)), (vec![6], vec![5], vec![]));
    // The value holds the only reference to its list.
    let gone = Arc::downgrade(&to);
    drop(to);
    assert!(gone.upgrade().is_some());
    drop(value);
    assert!(gone.upgrade().is_none());
    drop(beside);
    assert!(from.is_empty());
}

#[test]
fn a_walk_stops_when_it_is_told_to() {
    let (list, log) = (List::new(SharedList::new(1)), Arc::new(Log::default()));
    let _values: Vec<_> = (0..10).map(|n| insert(&list, &log, n)).collect();
    let mut seen = 0;
    list.each(|_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((seen, list.len()), (3, 10));
}

/// Race: The last close against a walk of the open files.
#[test]
fn stress_walks_see_live_values_only() {
    const ROUNDS: usize = 20_000;
    let (list, log) = (List::new(SharedList::new(3)), Arc::new(Log::default()));
    let other = List::new(SharedList::new(1));
    let running = AtomicUsize::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (list, other, log, running) = (&list, &other, &log, &running);
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..ROUNDS {
                    let _there = cpu::pretend(((round + thread) % 3) as u32);
                    held.push(insert(list, log, round));
                    if round % 7 == 0 {
                        assert!(held[0].move_to(other) || round > 0);
                    }
                    if held.len() > 5 {
                        held.swap_remove(round % 5);
                    }
                }
                drop(held);
                running.fetch_sub(1, Ordering::Release);
            });
        }
        while running.load(Ordering::Acquire) > 0 {
            for list in [&list, &other] {
                list.each(|value| {
                    assert!(value.number < ROUNDS);
                    ControlFlow::Continue(())
                });
            }
        }
    });
    assert!(list.is_empty() && other.is_empty());
    assert_eq!(log.dropped.load(Ordering::Relaxed), 3 * ROUNDS);
}

/// Inserts a value into a list that may have reached its bound.
fn try_insert(list: &List, log: &Arc<Log>) -> Option<Shared<Value, Listed<Lists>>> {
    let value =
        Value { number: 0, ended: false.into(), log: Arc::clone(log), _list: Arc::clone(list) };
    // SAFETY: the value holds a reference to the list.
    let entered = unsafe { list.insert(value) };
    // A value that was not entered is never marked as ended.
    entered.map_err(|mut value| *value.ended.get_mut() = true).ok()
}

fn fill(list: &List, log: &Arc<Log>) -> Vec<Shared<Value, Listed<Lists>>> {
    std::iter::from_fn(|| try_insert(list, log)).collect()
}

#[test]
fn lists_share_a_bound_to_the_last_unit() {
    let _here = cpu::pretend(0);
    let log = Arc::new(Log::default());
    for total in [1, 7, 128, 1000, 10_000] {
        let bound = Arc::new(Bound::new(total, 2));
        let lists: [List; 2] = std::array::from_fn(|_| Arc::new(SharedList::bounded(2, &bound)));
        for _ in 0..3 {
            let [one, other] = &lists;
            // Units that one list holds for future values are available to the other after a trim.
            drop(fill(one, &log));
            let before = fill(other, &log);
            one.trim();
            let after = fill(other, &log);
            assert_eq!(before.len() + after.len(), total as usize);
            assert!(try_insert(one, &log).is_none());
            assert!(bound.is_low() && !bound.has_room());
        }
        assert!(bound.used() <= u64::from(bound.batch) * 2 * 2 * 2, "held for future values");
        lists.iter().for_each(|list| list.trim());
        assert_eq!(bound.used(), 0);
        assert!(bound.has_room() && !bound.is_low());
        drop(lists);
        assert_eq!(bound.used(), 0);
    }
}

#[test]
fn a_value_that_moves_takes_its_unit_along() {
    let log = Arc::new(Log::default());
    let bound = Arc::new(Bound::new(300, 2));
    let list: List = Arc::new(SharedList::bounded(2, &bound));
    let private: List = Arc::new(SharedList::new(1));
    let values = fill(&list, &log);
    assert_eq!(values.len(), 300);
    assert!(values.iter().all(|value| value.move_to(&private)));
    list.trim();
    assert_eq!(bound.used(), 300, "moved away, but still counted");
    drop(values);
    bound.give(300);
    drop((list, private));
    assert_eq!(bound.used(), 0);
}

#[test]
fn threads_fill_and_empty_bounded_lists() {
    const TOTAL: usize = 256;
    let log = Arc::new(Log::default());
    let bound = Arc::new(Bound::new(TOTAL as u64, 2));
    let list: List = Arc::new(SharedList::bounded(2, &bound));
    let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let in_use = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (list, log, most, in_use) = (&list, &log, &most, &in_use);
            scope.spawn(move || {
                for round in 0..400 {
                    let mut held = Vec::new();
                    while held.len() < 1 + (thread + round) % 150 {
                        let Some(value) = try_insert(list, log) else { break };
                        most.fetch_max(in_use.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
                        held.push(value);
                    }
                    in_use.fetch_sub(held.len(), Ordering::AcqRel);
                }
            });
        }
    });
    assert!(most.load(Ordering::Acquire) <= TOTAL);
    list.trim();
    assert_eq!(bound.used(), 0);
}
