//! Every interleaving of small programs, for flags of things on a list. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom listed::
//! ```

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use vfscale_sync::atomic::ListedFlag;
use vfscale_sync::{Mutex, lock_class};

use crate::common::{check, spawn};

lock_class! { ThingsLock = ("things", 1); }

/// A thing with the changes of two threads, and the list that it may be on.
struct Thing {
    is_listed: ListedFlag,
    changes: [AtomicU32; 2],
    /// How often the thing is on the list.
    listed: Mutex<u32, ThingsLock>,
}

impl Thing {
    /// Creates a thing without changes that is on the list.
    fn listed() -> Arc<Thing> {
        let thing = Thing {
            is_listed: ListedFlag::default(),
            changes: [AtomicU32::new(0), AtomicU32::new(0)],
            listed: Mutex::new(1),
        };
        thing.is_listed.set();
        Arc::new(thing)
    }

    /// Notes a change and lists the thing, as a transaction that changes a name.
    fn change(&self, thread: usize) {
        self.changes[thread].store(1, Ordering::Release);
        if self.is_listed.is_set_for_change() {
            return;
        }
        let mut listed = self.listed.lock();
        if !self.is_listed.is_set() {
            *listed += 1;
            self.is_listed.set();
        }
    }

    /// Takes the thing off the list, and returns which changes are there, as a push.
    fn take(&self) -> [bool; 2] {
        *self.listed.lock() -= 1;
        self.is_listed.clear();
        [0, 1].map(|thread: usize| self.changes[thread].load(Ordering::Acquire) != 0)
    }
}

/// A thing is taken off its list while two threads change it: who takes it sees a change, or the
/// thing is listed again, once.
///
/// Race: Names that are changed side by side against the end of a context.
///
/// A push takes a directory off the list of its volume without the directory's lock. It clears the
/// flag and then looks for changes; a thread notes its change and then looks at the flag. Loads may
/// be performed before stores, so each of the two has a full fence in between. Seen to fail without
/// either fence, and with either before both accesses, none of which fails under shuttle, whose
/// threads share one memory.
///
/// Seam: a noted change / the list of changed directories; parties: two that change names, one that
/// pushes.
#[test]
fn two_changes_beside_a_push() {
    check(3, || {
        let thing = Thing::listed();
        let changers =
            [0, 1].map(|thread: usize| spawn(thing.clone(), move |thing| thing.change(thread)));
        let seen = thing.take();
        changers.into_iter().for_each(|changer| changer.join().unwrap());
        let listed = *thing.listed.lock();
        assert!(listed <= 1, "listed {listed} times");
        assert_eq!(listed == 1, thing.is_listed.is_set());
        assert!(seen == [true, true] || listed == 1, "{seen:?} were seen, and it is not listed");
    });
}
