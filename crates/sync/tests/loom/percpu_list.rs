//! Every interleaving of small programs, for lists of objects that carry their own links. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom percpu_list::
//! ```
//!
//! A walk reads the cell of each object that it finds, and a thread that has removed an object
//! writes its cell, as if its memory were reused: loom reports any two that are not ordered.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use crate::common::Cell;
use loom::sync::Arc;
use loom::thread;
use vfscale_sync::percpu_list::{Age, Linked, PerCpuLinks, PerCpuList};
use vfscale_sync::{cpu, lock_class};

lock_class! { Lists = ("lists", 1); }

struct Object {
    links: PerCpuLinks<Object>,
    cell: Cell,
}

impl Linked for Object {
    fn links(&self) -> &PerCpuLinks<Self> {
        &self.links
    }
}

impl Object {
    fn new() -> Arc<Object> {
        Arc::new(Object { links: PerCpuLinks::new(), cell: Cell::new() })
    }

    fn read(&self) -> u32 {
        self.cell.get()
    }

    fn use_again(&self) {
        self.cell.add();
    }
}

type List = PerCpuList<Object, Lists>;

/// Inserts the object into the list of CPU `on`.
fn enter(list: &List, object: &Object, on: u32) {
    let _there = cpu::pretend(on);
    // SAFETY: the caller has made the object or removed it; the tests remove it at the end.
    unsafe { list.insert(NonNull::from(object)) };
}

/// Race: A list for each CPU: walk / removal.
#[test]
fn a_walk_is_over_with_what_is_taken_off() {
    loom::model(|| {
        let (list, first, second) = (Arc::new(List::new(2)), Object::new(), Object::new());
        enter(&list, &first, 0);
        enter(&list, &second, 1);
        let (lists, object) = (list.clone(), first.clone());
        let takes = thread::spawn(move || {
            assert!(lists.remove(&object));
            object.use_again();
        });
        let mut seen = 0;
        list.each(|object| {
            assert_eq!(object.read(), 0, "it is on no list");
            seen += 1;
            ControlFlow::Continue(())
        });
        assert!(seen == 1 || seen == 2);
        takes.join().unwrap();
        assert!(list.len() == 1 && !first.links.is_listed());
        assert!(list.remove(&second));
    });
}

/// Race: A list for each CPU: ageing / removal.
#[test]
fn an_object_that_ages_is_taken_off_once() {
    loom::model(|| {
        let (list, first, second) = (Arc::new(List::new(1)), Object::new(), Object::new());
        enter(&list, &first, 0);
        enter(&list, &second, 0);
        let (lists, object) = (list.clone(), first.clone());
        let takes = thread::spawn(move || {
            assert!(lists.remove(&object));
            object.use_again();
        });
        let looked_at = list.age(0, 2, |object| {
            assert_eq!(object.read(), 0, "it is on no list");
            Age::Young
        });
        assert!(looked_at == 1 || looked_at == 2);
        takes.join().unwrap();
        assert!(!list.remove(&first) && list.remove(&second) && list.is_empty());
    });
}

/// One thread moves an object to another CPU's list while the other removes it from either.
///
/// Race: A list for each CPU: move to another CPU / removal.
#[test]
fn an_object_that_moves_is_taken_off_where_it_is() {
    loom::model(|| {
        let (list, object) = (Arc::new(List::new(2)), Object::new());
        enter(&list, &object, 0);
        let (lists, moved) = (list.clone(), object.clone());
        let moves = thread::spawn(move || {
            let had = lists.remove(&moved);
            if had {
                moved.use_again();
                enter(&lists, &moved, 1);
            }
            had
        });
        let taken = list.remove(&object);
        if taken {
            object.use_again();
        }
        let moved = moves.join().unwrap();
        assert!(taken || moved, "no thread found it");
        assert_eq!(list.len(), usize::from(!taken));
        assert_eq!(object.links.is_listed(), !taken);
        assert_eq!(object.read(), u32::from(taken) + u32::from(moved));
        assert_eq!(list.remove(&object), !taken);
    });
}
