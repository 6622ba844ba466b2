use super::*;
use crate::{cpu, rcu};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Instant;

/// A value that counts its drops, and detects that its memory was overwritten before.
struct Probe {
    id: u64,
    check: u64,
    dropped: Arc<AtomicU64>,
    body: [u64; 17],
}

impl Probe {
    fn new(id: u64, dropped: &Arc<AtomicU64>) -> Self {
        Self { id, check: !id, dropped: dropped.clone(), body: [id; 17] }
    }

    fn assert_whole(&self) {
        assert_eq!(self.check, !self.id);
        assert_eq!(self.body, [self.id; 17]);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.assert_whole();
        self.id = 0xdead;
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn settle() {
    for _ in 0..4 {
        rcu::synchronize();
    }
}

/// The number of objects in use is the same, wherever it is counted, on whatever slots they end.
#[test]
fn slab_counts_objects_of_all_slots() {
    for slab in [Slab::<u64>::new(4), Slab::<u64>::with_one_count(4)] {
        let objects: Vec<_> = (0..40)
            .map(|i| {
                let _cpu = cpu::pretend(i as u32 % 4);
                slab.alloc(i)
            })
            .collect();
        assert_eq!(slab.in_use(), 40);
        let guard = rcu::pin();
        for (i, object) in objects.into_iter().enumerate() {
            let _cpu = cpu::pretend((i as u32 + 1) % 3);
            match i % 3 {
                // SAFETY: Each object is freed once, and used by nobody.
                0 => unsafe { slab.free(object) },
                // SAFETY: As above.
                1 => unsafe { slab.free_rcu(object, &guard) },
                // SAFETY: As above.
                _ => unsafe { slab.free_rcu_large(object, &guard) },
            }
            assert_eq!(slab.in_use(), 39 - i);
        }
    }
}

#[test]
fn objects_are_distinct_aligned_and_keep_their_values() {
    #[repr(align(256))]
    struct Wide(u64);
    let (narrow, wide) = (Slab::<u64>::new(2), Slab::<Wide>::new(2));
    let count = if cfg!(miri) { 200 } else { 5000 };
    let narrows: Vec<_> = (0..count).map(|i| narrow.alloc(i)).collect();
    let wides: Vec<_> = (0..count).map(|i| wide.alloc(Wide(i))).collect();
    let places: BTreeSet<usize> = narrows.iter().map(|p| p.addr().get()).collect();
    assert_eq!(places.len(), narrows.len());
    assert!(places.iter().all(|p| p % 64 == 0));
    assert!(wides.iter().all(|p| p.addr().get() % 256 == 0));
    for (i, (n, w)) in narrows.iter().zip(&wides).enumerate() {
        // SAFETY: Allocated above and not freed.
        unsafe { assert_eq!((*n.as_ref(), w.as_ref().0), (i as u64, i as u64)) };
    }
    assert_eq!((narrow.live(), wide.live()), (count as usize, count as usize));
    // SAFETY: Freed once.
    unsafe {
        narrows.into_iter().for_each(|p| narrow.free(p));
        wides.into_iter().for_each(|p| wide.free(p));
    }
    assert_eq!((narrow.live(), wide.live()), (0, 0));
}

#[test]
fn free_drops_at_once_and_memory_is_reused() {
    let dropped = Arc::new(AtomicU64::new(0));
    let slab = Slab::new(1);
    let first = slab.alloc(Probe::new(1, &dropped));
    // SAFETY: Freed once.
    unsafe { slab.free(first) };
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    let second = slab.alloc(Probe::new(2, &dropped));
    assert_eq!(first, second, "the hottest memory comes first");
    // SAFETY: Freed once.
    unsafe { slab.free(second) };
}

#[test]
fn memory_goes_back_to_the_system() {
    // A move to another CPU in the middle would leave memory in the magazines of both.
    let _on = cpu::pretend(0);
    let slab = Slab::<[u8; 1024]>::new(2);
    let count = if cfg!(miri) { 500 } else { 20_000 };
    let objects: Vec<_> = (0..count).map(|_| slab.alloc([1; 1024])).collect();
    let most = slab.bytes();
    assert!(most >= count * 1024 && most <= count * 1024 * 11 / 10 + 2 * chunk::CHUNK);
    // SAFETY: Freed once.
    objects.into_iter().for_each(|object| unsafe { slab.free(object) });
    // Magazines: four of the slot and four of the depot, of 64 KiB each.
    assert!(slab.bytes() <= 14 * chunk::CHUNK, "{} bytes are kept", slab.bytes());
    slab.trim();
    assert_eq!((slab.bytes(), slab.live()), (0, 0));
    // The slab can be used again.
    let object = slab.alloc([7; 1024]);
    assert_eq!(slab.bytes(), chunk::CHUNK);
    // SAFETY: Freed once, and valid before.
    unsafe {
        assert_eq!(object.as_ref()[1023], 7);
        slab.free(object);
    }
}

#[test]
fn rcu_frees_wait_for_readers_and_happen_in_the_end() {
    let dropped = Arc::new(AtomicU64::new(0));
    let slab = Slab::new(2);
    let count = 100;
    let guard = rcu::pin();
    for id in 0..count {
        let object = slab.alloc(Probe::new(id, &dropped));
        // SAFETY: No other thread has seen it.
        unsafe { slab.free_rcu(object, &guard) };
        // SAFETY: The guard is held.
        unsafe { object.as_ref() }.assert_whole();
    }
    slab.flush(&guard);
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "the guard is still held");
    assert_eq!(slab.live(), 100);
    drop(guard);
    settle();
    // A batch that another thread has run on the other CPU has returned to its slot, which drops it
    // now.
    slab.flush(&rcu::pin());
    assert_eq!(dropped.load(Ordering::Relaxed), count);
    assert_eq!(slab.live(), 0);
}

/// A batch that never fills is sent off without `flush`.
#[test]
fn a_single_free_is_swept() {
    let dropped = Arc::new(AtomicU64::new(0));
    let slab = Slab::new(1);
    let object = slab.alloc(Probe::new(1, &dropped));
    // SAFETY: No other thread has seen it.
    unsafe { slab.free_rcu(object, &rcu::pin()) };
    settle();
    assert_eq!((dropped.load(Ordering::Relaxed), slab.live()), (1, 0));
}

/// An idle CPU retains small objects, and none that own much memory.
///
/// Race: A removal against the idle CPU that it happened on.
#[test]
fn large_objects_do_not_wait_for_an_idle_cpu() {
    let dropped = [0, 1].map(|_| Arc::new(AtomicU64::new(0)));
    let counts = || dropped.each_ref().map(|count| count.load(Ordering::Relaxed));
    let slab = Slab::new(2);
    {
        let _there = cpu::pretend(1);
        let [small, large] = dropped.each_ref().map(|dropped| slab.alloc(Probe::new(1, dropped)));
        // SAFETY: Nobody else ever saw them.
        unsafe {
            slab.free_rcu(small, &rcu::pin());
            slab.free_rcu_large(large, &rcu::pin());
        }
    }
    let _here = cpu::pretend(0);
    settle();
    assert_eq!(counts(), [0, 1]);
    slab.flush(&rcu::pin());
    assert_eq!((counts(), slab.live()), ([1, 1], 0));
}

#[test]
fn memory_returns_to_the_slot_it_was_freed_on() {
    let slab = Slab::<u64>::new(2);
    let batch = |cpu| {
        let _on = cpu::pretend(cpu);
        (0..BATCH as u64).map(|i| slab.alloc(i)).collect::<BTreeSet<_>>()
    };
    let objects = [batch(0), batch(1)];
    for (cpu, objects) in objects.iter().enumerate() {
        let _on = cpu::pretend(cpu as u32);
        // SAFETY: No other thread has seen them.
        objects.iter().for_each(|object| unsafe { slab.free_rcu(*object, &rcu::pin()) });
    }
    // The thread and CPU that end the grace period make no difference.
    let _on = cpu::pretend(1);
    settle();
    slab.flush(&rcu::pin());
    assert_eq!(slab.live(), 0);
    drop(_on);
    assert_eq!([batch(0), batch(1)], objects);
}

#[test]
fn last_handle_may_go_before_its_frees() {
    let dropped = Arc::new(AtomicU64::new(0));
    let slab = Slab::new(3);
    let other = slab.clone();
    for id in 0..50 {
        let _on = cpu::pretend(id % 3);
        let object = slab.alloc(Probe::new(u64::from(id), &dropped));
        // SAFETY: No other thread has seen it.
        unsafe { other.free_rcu(object, &rcu::pin()) };
    }
    drop(slab);
    drop(other);
    settle();
    assert_eq!(dropped.load(Ordering::Relaxed), 50);
    assert_eq!(Arc::strong_count(&dropped), 1);
}

#[test]
fn live_objects_are_not_dropped_with_the_slab() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    struct Forgotten;
    impl Drop for Forgotten {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let slab = Slab::new(1);
    let freed = slab.alloc(Forgotten);
    let _live = slab.alloc(Forgotten);
    // SAFETY: Freed once.
    unsafe { slab.free(freed) };
    drop(slab);
    settle();
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
}

/// Destructors may use the slab themselves.
#[test]
fn destructors_may_free_into_the_same_slab() {
    struct Node {
        child: Option<NonNull<Node>>,
        slab: NonNull<Slab<Node>>,
        dropped: Arc<AtomicU64>,
    }
    // SAFETY: The pointers are to objects that only the destructor uses.
    unsafe impl Send for Node {}
    impl Drop for Node {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if let Some(child) = self.child {
                // SAFETY: The child is ours, and the slab outlives its objects in this test.
                unsafe { self.slab.as_ref().free_rcu(child, &rcu::pin()) };
            }
        }
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let slab = Slab::<Node>::new(1);
    let mut child = None;
    for _ in 0..6 {
        let node = Node { child, slab: NonNull::from(&slab), dropped: dropped.clone() };
        child = Some(slab.alloc(node));
    }
    // SAFETY: No other thread has seen it.
    unsafe { slab.free_rcu(child.unwrap(), &rcu::pin()) };
    for _ in 0..100 {
        if dropped.load(Ordering::Relaxed) == 6 {
            break;
        }
        settle();
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 6);
    assert_eq!(slab.live(), 0);
}

/// Threads on changing CPUs allocate, free immediately and through RCU, and check the objects they
/// hold.
#[test]
fn stress_on_pretended_cpus() {
    let rounds = if cfg!(miri) { 60 } else { 20_000 };
    let dropped = Arc::new(AtomicU64::new(0));
    let slab = Slab::new(5);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|thread| {
                let (slab, dropped) = (slab.clone(), dropped.clone());
                scope.spawn(move || {
                    let mut held = VecDeque::new();
                    for round in 0..rounds {
                        let _on = cpu::pretend(((round / 64 + thread) % 7) as u32);
                        held.push_back(slab.alloc(Probe::new(thread << 32 | round, &dropped)));
                        if held.len() > 100 + (round as usize / 8) % 300 {
                            for _ in 0..2 {
                                let object = held.pop_front().unwrap();
                                // SAFETY: Held by this thread only, and freed once.
                                unsafe {
                                    object.as_ref().assert_whole();
                                    if round % 3 == 0 {
                                        slab.free(object);
                                    } else {
                                        slab.free_rcu(object, &rcu::pin());
                                    }
                                }
                            }
                        }
                    }
                    for object in held {
                        // SAFETY: Held by this thread only, and freed once.
                        unsafe { slab.free_rcu(object, &rcu::pin()) };
                    }
                })
            })
            .collect();
        let trimmer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                slab.trim();
                thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        trimmer.join().unwrap();
    });
    slab.flush(&rcu::pin());
    settle();
    slab.trim();
    assert_eq!(dropped.load(Ordering::Relaxed), 4 * rounds);
    assert_eq!(slab.live(), 0);
    assert_eq!(slab.bytes(), 0);
}

/// Objects that a CPU frees together come back to it, although more are free than two magazines
/// have room for, and another CPU does the same.
#[test]
fn a_burst_of_objects_stays_with_its_cpu() {
    const BURST: usize = 500;
    let slab = Slab::<usize>::new(2);
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for _ in 0..4 {
        let objects = [0, 1].map(|cpu| {
            let _on = cpu::pretend(cpu);
            (0..BURST).map(|value| slab.alloc(value)).collect::<Vec<_>>()
        });
        for (index, cpu) in (0..2 * BURST).map(|n| (n / 2, n % 2)) {
            let _on = cpu::pretend(cpu as u32);
            seen[cpu].insert(objects[cpu][index]);
            // SAFETY: Freed once.
            unsafe { slab.free(objects[cpu][index]) };
        }
    }
    assert!(seen[0].is_disjoint(&seen[1]));
    slab.trim();
    assert_eq!((slab.bytes(), slab.live()), (0, 0));
}

/// Objects that a busy CPU has freed are dropped there, up to a bound.
///
/// Race: A removal against the idle CPU that it happened on.
#[test]
fn batches_wait_for_their_cpu_up_to_a_bound() {
    const MORE: usize = 5;
    let dropped = Arc::new(AtomicU64::new(0));
    // No other test is on that CPU, so none can run the batches there.
    let slab = Slab::new(64);
    let free = |batches: usize| {
        let _there = cpu::pretend(37);
        for id in 0..(batches * BATCH) as u64 {
            let object = slab.alloc(Probe::new(id, &dropped));
            // SAFETY: No other thread has seen it.
            unsafe { slab.free_rcu(object, &rcu::pin()) };
        }
    };
    let guard = rcu::pin();
    free(RETURNED_MAX + MORE);
    let _here = cpu::pretend(0);
    drop(guard);
    settle();
    assert_eq!(dropped.load(Ordering::Relaxed), (MORE * BATCH) as u64);
    slab.flush(&rcu::pin());
    assert_eq!(slab.live(), 0);
}

/// A destructor may take a lock that is held during an allocation.
///
/// Race: An allocation with locks held against a removal whose grace period ends elsewhere.
#[test]
fn no_destructor_runs_in_an_allocation() {
    thread_local!(static ALLOCATES: Cell<bool> = const { Cell::new(false) });
    struct Object(Arc<AtomicU64>);
    impl Drop for Object {
        fn drop(&mut self) {
            assert!(!ALLOCATES.get(), "the allocation has taken the lock");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    // No other test is on that CPU.
    let (slab, dropped) = (Slab::new(64), Arc::new(AtomicU64::new(0)));
    let free = |objects: usize| {
        let objects = (0..objects).map(|_| slab.alloc(Object(Arc::clone(&dropped))));
        let objects: Vec<_> = objects.collect();
        let guard = rcu::pin();
        // SAFETY: No other thread has seen them.
        objects.into_iter().for_each(|object| unsafe { slab.free_rcu(object, &guard) });
    };
    let _there = cpu::pretend(38);
    free(4 * BATCH);
    {
        let _here = cpu::pretend(0);
        settle();
    }
    assert_eq!((dropped.load(Ordering::Relaxed), slab.live()), (0, 4 * BATCH));
    ALLOCATES.set(true);
    let objects: Vec<_> =
        (0..8 * BATCH).map(|_| slab.alloc(Object(Arc::clone(&dropped)))).collect();
    ALLOCATES.set(false);
    // SAFETY: Freed once.
    objects.into_iter().for_each(|object| unsafe { slab.free(object) });
    // They are dropped as soon as later frees are done on that CPU.
    let (before, begun) = (dropped.load(Ordering::Relaxed), Instant::now());
    let mut later = 0;
    while dropped.load(Ordering::Relaxed) < before + later + 4 * BATCH as u64 {
        assert!(begun.elapsed().as_secs() < 60);
        free(BATCH);
        later += BATCH as u64;
        settle();
    }
    slab.flush(&rcu::pin());
    assert_eq!(slab.live(), 0);
}

/// A slab with two slots on each of two pretended nodes.
fn on_two_nodes() -> Slab<[u8; 1024]> {
    Slab::with_nodes(4, &cpu::SlotNodes::pretended(4, 2))
}

#[test]
fn each_node_has_chunks_of_its_own() {
    let slab = on_two_nodes();
    for (on, node) in [(0, 0), (3, 1), (1, 0), (2, 1)] {
        let _on = cpu::pretend(on);
        let object = slab.alloc([1; 1024]);
        assert_eq!(chunk::depot_of(object.cast()), node);
        // SAFETY: Freed once.
        unsafe { slab.free(object) };
    }
}

#[test]
fn slab_objects_freed_on_another_node_return_to_their_chunks() {
    let slab = on_two_nodes();
    let count = if cfg!(miri) { 1_000 } else { 20_000 };
    let objects: Vec<_> = {
        let _on = cpu::pretend(0);
        (0..count).map(|_| slab.alloc([1; 1024])).collect()
    };
    let _on = cpu::pretend(2);
    // SAFETY: Freed once.
    objects.into_iter().for_each(|object| unsafe { slab.free(object) });
    // As much as on one node: what does not fit into the magazines has left them.
    assert!(slab.bytes() <= 14 * chunk::CHUNK, "{} bytes are kept", slab.bytes());
    // The last ones are used again here.
    let object = slab.alloc([2; 1024]);
    assert_eq!(chunk::depot_of(object.cast()), 0);
    // SAFETY: Freed once.
    unsafe { slab.free(object) };
    slab.trim();
    assert_eq!((slab.bytes(), slab.live()), (0, 0));
}

#[test]
fn objects_pass_between_nodes_and_none_is_lost() {
    let slab = on_two_nodes();
    let rounds = if cfg!(miri) { 3 } else { 300 };
    let (to_others, from_others): (Vec<_>, Vec<_>) =
        (0..4).map(|_| std::sync::mpsc::channel::<Vec<usize>>()).unzip();
    std::thread::scope(|scope| {
        for (on, received) in from_others.into_iter().enumerate() {
            let next = to_others[(on + 1) % 4].clone();
            let slab = &slab;
            scope.spawn(move || {
                let _on = cpu::pretend(on as u32);
                for round in 0..rounds {
                    let made = (0..100).map(|_| slab.alloc([round as u8; 1024]));
                    next.send(made.map(|object| object.as_ptr() as usize).collect()).unwrap();
                    for address in received.recv().unwrap() {
                        let object = NonNull::new(address as *mut [u8; 1024]).unwrap();
                        // SAFETY: The sender has given it away, and it is freed once.
                        unsafe {
                            assert!(object.as_ref().iter().all(|byte| *byte == round as u8));
                            slab.free(object);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(slab.live(), 0);
    slab.trim();
    assert_eq!(slab.bytes(), 0);
}
