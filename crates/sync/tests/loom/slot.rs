//! Every interleaving of small programs on slots of radix trees. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom slot::
//! ```
//!
//! The value of a leaf is a loom cell, which reports any two accesses that are not ordered. Nothing
//! is removed from a slot here: retired contents would be freed outside of their model.

use crate::common::spawn;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use vfscale_sync::rcu;
use vfscale_sync::slot::{Contents, Entry, Slot};

/// Aligned, because a slot stores its tag in the low bits.
#[repr(align(8))]
struct Leaf(UnsafeCell<u32>);

// SAFETY: loom's cell finds every unordered access, which is what these tests look for.
unsafe impl Sync for Leaf {}
// SAFETY: loom's cell finds every unordered access.
unsafe impl Send for Leaf {}

impl Leaf {
    fn boxed(value: u32) -> Box<Leaf> {
        let leaf = Box::new(Leaf(UnsafeCell::new(0)));
        // SAFETY: loom checks it.
        leaf.0.with_mut(|cell| unsafe { *cell = value });
        leaf
    }

    fn value(&self) -> u32 {
        // SAFETY: loom checks it.
        self.0.with(|cell| unsafe { *cell })
    }
}

struct Node {
    slot: Slot<Box<Leaf>, Node>,
}

fn nest(root: &Slot<Box<Leaf>, Node>) {
    let node = Box::new(Node { slot: Slot::empty() });
    root.nest(node, |node| &mut node.slot, &rcu::pin());
}

/// Returns the leaf's value, if there is a leaf, and the number of nodes above it.
fn look(root: &Slot<Box<Leaf>, Node>) -> (Option<u32>, u32) {
    let guard = rcu::pin();
    let (mut slot, mut depth) = (root, 0);
    loop {
        match slot.read(&guard) {
            Entry::Node(node) => {
                slot = &node.slot;
                depth += 1;
            }
            Entry::Leaf(leaf) => return (Some(leaf.value()), depth),
            Entry::Empty | Entry::Reserved => return (None, depth),
        }
    }
}

/// Race: A slot of a radix tree: publishing / reading.
#[test]
fn a_reader_sees_what_a_leaf_was_published_with() {
    loom::model(|| {
        let root = Arc::new(Slot::empty());
        let writer = spawn(root.clone(), move |root| {
            drop(root.replace(Contents::Leaf(Leaf::boxed(7)), &rcu::pin()));
            nest(&root);
        });
        assert!(matches!(look(&root), (None, 0) | (Some(7), 0..=1)));
        writer.join().unwrap();
        assert_eq!(look(&root), (Some(7), 1));
    });
}

/// Race: A slot of a radix tree: a reader / two threads that nest a leaf.
#[test]
fn a_reader_never_misses_a_leaf_that_two_threads_nest() {
    loom::model(|| {
        let root = Arc::new(Slot::empty());
        drop(root.replace(Contents::Leaf(Leaf::boxed(7)), &rcu::pin()));
        let nesters = [0, 1].map(|_| spawn(root.clone(), move |root| nest(&root)));
        assert!(matches!(look(&root), (Some(7), 0..=2)));
        for nester in nesters {
            nester.join().unwrap();
        }
        assert_eq!(look(&root), (Some(7), 2));
    });
}

/// One thread stores the leaf and another one nests it: the nester has to publish a leaf that it
/// did not store itself.
///
/// Race: A slot of a radix tree: storing a leaf / nesting it.
#[test]
fn nesting_passes_on_what_another_thread_published() {
    loom::model(|| {
        let root = Arc::new(Slot::empty());
        let putter = spawn(root.clone(), move |root| {
            drop(root.replace(Contents::Leaf(Leaf::boxed(9)), &rcu::pin()));
        });
        let nester = spawn(root.clone(), move |root| {
            if !root.is_empty() {
                nest(&root);
            }
        });
        assert!(matches!(look(&root), (None, 0) | (Some(9), 0..=1)));
        putter.join().unwrap();
        nester.join().unwrap();
        assert!(matches!(look(&root), (Some(9), 0..=1)));
    });
}
