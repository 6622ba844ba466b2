use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Contents, Entry, Slot};
use crate::rcu;

/// A leaf that counts the live leaves.
struct Leaf {
    value: u64,
    live: Arc<AtomicUsize>,
}

impl Leaf {
    fn boxed(value: u64, live: &Arc<AtomicUsize>) -> Box<Leaf> {
        live.fetch_add(1, Ordering::SeqCst);
        Box::new(Leaf { value, live: Arc::clone(live) })
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.value = u64::MAX;
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Node {
    slots: [Slot<Box<Leaf>, Node>; 2],
}

impl Node {
    fn boxed() -> Box<Node> {
        Box::new(Node { slots: [const { Slot::empty() }; 2] })
    }
}

type Root = Slot<Box<Leaf>, Node>;

fn live() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

fn count(live: &AtomicUsize) -> usize {
    live.load(Ordering::SeqCst)
}

#[test]
fn a_slot_is_one_word() {
    assert_eq!(size_of::<Root>(), size_of::<usize>());
}

#[test]
fn each_kind_of_contents_reads_back() {
    let live = live();
    let root = Root::default();
    let guard = rcu::pin();
    assert!(root.is_empty() && matches!(root.read(&guard), Entry::Empty));
    drop(root.replace(Contents::Reserved, &guard));
    assert!(!root.is_empty() && matches!(root.read(&guard), Entry::Reserved));
    let before = root.replace(Contents::Leaf(Leaf::boxed(7, &live)), &guard);
    assert!(matches!(before.entry(), Entry::Reserved));
    assert!(matches!(root.read(&guard), Entry::Leaf(leaf) if leaf.value == 7));
    let before = root.replace(Contents::Node(Node::boxed()), &guard);
    assert!(matches!(before.entry(), Entry::Leaf(leaf) if leaf.value == 7));
    assert!(matches!(root.read(&guard), Entry::Node(node) if node.slots[1].is_empty()));
}

#[test]
fn retired_contents_live_as_long_as_a_guard_and_no_longer() {
    let live = live();
    let root = Root::empty();
    let guard = rcu::pin();
    drop(root.replace(Contents::Leaf(Leaf::boxed(1, &live)), &guard));
    let Entry::Leaf(leaf) = root.read(&guard) else { panic!("a leaf was put in") };
    drop(root.replace(Contents::Empty, &guard));
    assert_eq!((leaf.value, count(&live)), (1, 1));
    drop(guard);
    rcu::synchronize();
    assert_eq!(count(&live), 0);
}

#[test]
fn then_runs_after_the_contents_are_freed() {
    let live = live();
    let seen = Arc::new(AtomicUsize::new(usize::MAX));
    let root = Root::empty();
    let guard = rcu::pin();
    drop(root.replace(Contents::Leaf(Leaf::boxed(1, &live)), &guard));
    let (live_then, seen_then) = (Arc::clone(&live), Arc::clone(&seen));
    root.replace(Contents::Empty, &guard)
        .then(move || seen_then.store(count(&live_then), Ordering::SeqCst));
    assert_eq!(count(&seen), usize::MAX);
    drop(guard);
    rcu::synchronize();
    assert_eq!(count(&seen), 0);
}

#[test]
fn dropping_a_slot_drops_everything_below_at_once() {
    let live = live();
    let root = Root::empty();
    {
        let guard = rcu::pin();
        let node = Node::boxed();
        drop(node.slots[0].replace(Contents::Leaf(Leaf::boxed(1, &live)), &guard));
        drop(node.slots[1].replace(Contents::Node(Node::boxed()), &guard));
        drop(root.replace(Contents::Node(node), &guard));
    }
    assert_eq!(count(&live), 1);
    drop(root);
    assert_eq!(count(&live), 0);
}

#[test]
fn nesting_keeps_the_contents() {
    let live = live();
    let root = Root::empty();
    let guard = rcu::pin();
    drop(root.replace(Contents::Leaf(Leaf::boxed(3, &live)), &guard));
    root.nest(Node::boxed(), |node| &mut node.slots[0], &guard);
    root.nest(Node::boxed(), |node| &mut node.slots[1], &guard);
    let Entry::Node(top) = root.read(&guard) else { panic!("nested twice") };
    assert!(top.slots[0].is_empty());
    let Entry::Node(low) = top.slots[1].read(&guard) else { panic!("nested once") };
    assert!(matches!(low.slots[0].read(&guard), Entry::Leaf(leaf) if leaf.value == 3));
    drop(guard);
    drop(root);
    assert_eq!(count(&live), 0);
}

#[test]
#[should_panic(expected = "already taken")]
fn nesting_into_a_taken_slot_panics() {
    let guard = rcu::pin();
    let node = Node::boxed();
    drop(node.slots[0].replace(Contents::Reserved, &guard));
    Root::empty().nest(node, |node| &mut node.slots[0], &guard);
}

/// Readers follow the left edge while one thread replaces the leaf and another one nests: no leaf
/// is seen after its death, none is missed, none is lost or freed twice.
#[test]
fn readers_never_miss_or_outlive_a_leaf() {
    let live = live();
    let root = Root::empty();
    drop(root.replace(Contents::Leaf(Leaf::boxed(0, &live)), &rcu::pin()));
    let done = AtomicBool::new(false);
    let read = || {
        let guard = rcu::pin();
        let mut slot = &root;
        loop {
            match slot.read(&guard) {
                Entry::Node(node) => slot = &node.slots[0],
                Entry::Leaf(leaf) => return leaf.value,
                other => panic!("found {other:?} on the way to the leaf"),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(read() < 2_000);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..200 {
                root.nest(Node::boxed(), |node| &mut node.slots[0], &rcu::pin());
                std::thread::yield_now();
            }
        });
        for value in 1..2_000 {
            // The root's contents are removed, a leaf or a tree.
            drop(root.replace(Contents::Leaf(Leaf::boxed(value, &live)), &rcu::pin()));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(read(), 1_999);
    rcu::synchronize();
    assert_eq!(count(&live), 1);
}
