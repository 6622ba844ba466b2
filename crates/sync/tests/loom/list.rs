//! Every interleaving of small programs, for lists of shared values. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom list::
//! ```
//!
//! A walk reads each value's cell and dropping the value writes it: loom reports a walk that is not
//! ordered before the drop of a value that it sees.

use std::ops::ControlFlow;

use crate::common::{Cell, check, spawn};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use vfscale_sync::shared::{Bound, Listable, Listed, Shared, SharedList};
use vfscale_sync::{cpu, lock_class};

lock_class! { Lists = ("lists", 1); }

type List = std::sync::Arc<SharedList<Value, Lists>>;

struct Value {
    cell: Arc<Cell>,
    is_over: Arc<AtomicBool>,
    _list: List,
}

impl Value {
    fn read(&self) -> u32 {
        self.cell.get()
    }
}

impl Listable for Value {
    fn ended(&self) {
        assert_eq!(self.read(), 0, "ended once, and not dropped");
        self.is_over.store(true, Ordering::Release);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.cell.add();
    }
}

fn list(slots: usize) -> List {
    List::new(SharedList::new(slots))
}

fn insert(list: &List, cell: &Arc<Cell>) -> Shared<Value, Listed<Lists>> {
    let is_over = Arc::new(AtomicBool::new(false));
    // SAFETY: the value holds a reference to the list.
    unsafe { list.insert(Value { cell: Arc::clone(cell), is_over, _list: List::clone(list) }) }
        .unwrap_or_else(|_| panic!("the bound is reached"))
}

/// Inserts a value into a list that may have reached its bound.
fn try_insert(list: &List, cell: &Arc<Cell>) -> Option<Shared<Value, Listed<Lists>>> {
    let is_over = Arc::new(AtomicBool::new(false));
    // SAFETY: the value holds a reference to the list.
    unsafe { list.insert(Value { cell: Arc::clone(cell), is_over, _list: List::clone(list) }) }.ok()
}

fn cell() -> Arc<Cell> {
    Arc::new(Cell::new())
}

/// Returns the number of values that a walk saw; none has been dropped.
fn walk(list: &List) -> usize {
    let mut seen = 0;
    list.each(|value| {
        assert_eq!(value.read(), 0, "a walk saw a value that was dropped");
        seen += 1;
        ControlFlow::Continue(())
    });
    seen
}

/// A value of one CPU is freed on another, while the lists are walked.
///
/// Race: The last close against a walk of the open files.
///
/// A file leaves its list, under the lock of the slot it was opened on, before any part of it is
/// taken down, and its memory is not reused before that.
#[test]
fn a_walk_beside_an_end_on_another_cpu() {
    check(3, || {
        let (list, cell) = (list(2), cell());
        let value = insert(&list, &cell);
        let ending = thread::spawn(move || {
            let _there = cpu::pretend(1);
            drop(value);
        });
        assert!(walk(&list) <= 1);
        ending.join().unwrap();
        assert_eq!((walk(&list), cell.get()), (0, 1));
    });
}

/// One of two neighbours is freed while the other's successor is made, in its memory or next to it.
///
/// Race: A list of open files: beginning / end of neighbours.
#[test]
fn a_beginning_beside_an_end() {
    check(3, || {
        let (list, cells) = (list(1), [cell(), cell(), cell()]);
        let [first, second] = [insert(&list, &cells[0]), insert(&list, &cells[1])];
        let ending = thread::spawn(move || drop(first));
        let third = insert(&list, &cells[2]);
        ending.join().unwrap();
        assert_eq!((walk(&list), cells[0].get()), (2, 1));
        drop((second, third));
        assert_eq!((walk(&list), cells[1].get(), cells[2].get()), (0, 1, 1));
    });
}

/// Two neighbours are freed concurrently.
///
/// Race: A list of open files: ends of two neighbours.
#[test]
fn two_ends() {
    check(3, || {
        let (list, cells) = (list(1), [cell(), cell(), cell()]);
        let values = [0, 1, 2].map(|n: usize| insert(&list, &cells[n]));
        let [first, second, third] = values;
        let ending = thread::spawn(move || drop(first));
        drop(second);
        ending.join().unwrap();
        assert_eq!((walk(&list), cells[0].get(), cells[1].get()), (1, 1, 1));
        drop(third);
        assert_eq!((walk(&list), cells[2].get()), (0, 1));
    });
}

/// Two owners: the last one frees the value, once.
///
/// Race: A shared value: drops of two owners.
#[test]
fn the_last_of_two_owners_ends_it() {
    check(3, || {
        let (list, cell) = (list(2), cell());
        let first = insert(&list, &cell);
        let second = first.clone();
        let other = thread::spawn(move || {
            let _there = cpu::pretend(1);
            drop(second);
        });
        drop(first);
        other.join().unwrap();
        assert_eq!((walk(&list), cell.get()), (0, 1));
    });
}

/// A value that moves to a private list is on one of the two at the end, and walks see it alive.
///
/// Race: A list of open files: walk / move to a private list.
#[test]
fn a_walk_beside_a_move() {
    check(3, || {
        let (from, to, cell) = (list(1), list(1), cell());
        let value = insert(&from, &cell);
        let mover = spawn(to.clone(), move |to| {
            assert!(value.move_to(&to));
            drop(value);
        });
        assert!(walk(&to) + walk(&from) <= 1);
        mover.join().unwrap();
        assert_eq!((walk(&from), walk(&to), cell.get()), (0, 0, 1));
    });
}

/// A thread that sees the effect of `ended` does not find the value on a list.
///
/// Race: A remount to read-only against opening for writing.
#[test]
fn a_walk_after_an_end() {
    check(3, || {
        let (list, cell) = (list(1), cell());
        let value = insert(&list, &cell);
        let is_over = Arc::clone(&value.is_over);
        let ending = thread::spawn(move || drop(value));
        let was_over = is_over.load(Ordering::Acquire);
        let seen = walk(&list);
        assert!(!was_over || seen == 0, "on its list after its end");
        ending.join().unwrap();
        assert!(is_over.load(Ordering::Acquire));
    });
}

/// Only one of two moves succeeds.
///
/// Race: A list of open files: two moves of one value.
#[test]
fn two_moves_of_one_value() {
    check(3, || {
        let (from, cell) = (list(1), cell());
        let [left, right] = [list(1), list(1)];
        let first = insert(&from, &cell);
        let second = first.clone();
        let mover = spawn(right.clone(), move |right| second.move_to(&right));
        let moved_left = first.move_to(&left);
        let moved_right = mover.join().unwrap();
        assert!(moved_left != moved_right);
        assert_eq!(
            (walk(&from), walk(&left), walk(&right)),
            (0, moved_left.into(), moved_right.into())
        );
        drop(first);
        assert_eq!(cell.get(), 1);
    });
}

/// Two threads make values under a bound of two while a third trims the lists: no unit is lost or
/// created, and a later caller gets the rest.
///
/// Race: The last open file of a tree.
///
/// Each CPU's list of open files has taken units of the tree's bound in advance. One thread finds
/// none on its list and none left in the bound; a second closes a file on another CPU, whose list
/// retains the unit for the next one; and a third calls in the units of all lists. A list takes and
/// returns units under its slot's lock only, and never has fewer than values on it. So units are
/// neither lost nor made, and a refusal is only early: a refused thread calls in the units of all
/// lists, and tries again, before it reports `ENFILE`. The thread itself owns a unit while it
/// allocates outside of the lock. A list reports that the bound is low one batch before the end, so
/// an open with `O_CREAT` checks before it creates the file. Two opens that ask at one moment for
/// the last unit may both continue: one then has created its file and gets `ENFILE`, which is the
/// one difference from Linux.
#[test]
fn a_bound_beside_a_call_for_what_is_kept() {
    check(2, || {
        let bound = std::sync::Arc::new(Bound::new(2, 1));
        let list = List::new(SharedList::bounded(2, &bound));
        let begin = |cpu| {
            spawn(list.clone(), move |list| {
                let _there = cpu::pretend(cpu);
                drop(try_insert(&list, &cell()));
            })
        };
        let threads = [begin(0), begin(1)];
        list.trim();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        list.trim();
        assert_eq!(bound.used(), 0);
        let held = [(); 3].map(|()| try_insert(&list, &cell()));
        assert_eq!(held.iter().flatten().count(), 2);
        drop(held);
        list.trim();
        assert_eq!(bound.used(), 0);
    });
}
