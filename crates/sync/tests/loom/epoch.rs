//! Every interleaving of the protocol of the epochs: sections, a thread that defers, and two that
//! drive grace periods. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom epoch::
//! ```
//!
//! The model's fences are symmetric, as on a system without `membarrier`.

use crate::common::{check, spawn};
use fences::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use protocol::{Epoch, Quiescent, Section};

/// The model's atomics and fences, in place of those of the crate.
mod fences {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

#[path = "../../src/epoch/protocol.rs"]
mod protocol;

/// Objects that readers find by their number, and the state of the engine.
struct Shared {
    epoch: Epoch,
    sections: [Section; 2],
    /// The number of the grace period that is not over, and whether threads were suspected in it.
    driver: Mutex<Option<(u64, bool)>>,
    current: AtomicU64,
    objects: [UnsafeCell<bool>; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: Epoch::new(AtomicU64::new(1), AtomicU64::new(1)),
            sections: [(); 2].map(|()| Section::new(AtomicU64::new(0), AtomicU64::new(0))),
            driver: Mutex::new(None),
            current: AtomicU64::new(0),
            objects: [(); 2].map(|()| UnsafeCell::new(true)),
        })
    }

    /// Reads the object that is current, in a section. The thread is idle afterwards if it `rests`.
    fn read(&self, thread: usize, rests: bool) {
        let section = &self.sections[thread];
        self.epoch.enter(section);
        let object = self.current.load(Ordering::Acquire) as usize;
        // SAFETY: the model checks that nothing writes at the same time.
        self.objects[object].with(|object| assert!(unsafe { *object }, "it was freed"));
        section.leave();
        if rests {
            section.rest();
        }
    }

    /// Drives the grace period, as the crate does. Suspects threads that have not reported if
    /// `suspects`.
    fn drive(&self, suspects: bool) {
        let mut driver = self.driver.lock().unwrap();
        let (number, mut is_readable) = driver.unwrap_or_else(|| (self.epoch.begin(), false));
        *driver = Some((number, is_readable));
        let is_past = |section: &Section| section.quiescent(number) == Quiescent::Yes;
        if !is_readable && !self.sections.iter().all(is_past) {
            if !suspects {
                return;
            }
            self.sections.iter().for_each(|section| section.suspect(number));
            is_readable = Epoch::expedite();
            assert!(is_readable);
            *driver = Some((number, is_readable));
        }
        if !is_readable || self.sections.iter().all(|section| !section.delays(number)) {
            self.epoch.finish(number);
            *driver = None;
        }
    }

    /// Replaces the object, and frees the former one if its grace period is over in two attempts,
    /// of which the second suspects threads.
    fn replace(&self) {
        self.current.store(1, Ordering::Release);
        let tag = self.epoch.tag();
        for suspects in [false, true] {
            self.drive(suspects);
            if self.epoch.is_over(tag) {
                // SAFETY: the model checks that nothing reads at the same time.
                self.objects[0].with_mut(|object| unsafe { *object = false });
                return;
            }
        }
    }
}

/// Race: Grace periods: a reader / a thread that frees and drives / a second driver.
#[test]
fn a_grace_period_frees_nothing_that_a_section_reads() {
    check(3, || {
        let shared = Shared::new();
        let reader = spawn(shared.clone(), move |shared| shared.read(0, false));
        let driver = spawn(shared.clone(), move |shared| shared.drive(true));
        shared.replace();
        reader.join().unwrap();
        driver.join().unwrap();
    });
}

/// Race: Grace periods: two readers, one of them twice / a thread that frees and drives.
#[test]
fn a_section_that_begins_again_delays_only_what_it_can_find() {
    check(3, || {
        let shared = Shared::new();
        let readers = [1, 2].map(|times| {
            spawn(shared.clone(), move |shared| {
                (0..times).for_each(|_| shared.read(times - 1, times > 1))
            })
        });
        shared.replace();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        for _ in 0..2 {
            shared.drive(true);
        }
        assert!(shared.epoch.is_over(2), "no section is left that could delay it");
    });
}

/// A driver sees the report, and another one ends the grace period and frees, without a fence in
/// between.
///
/// Race: A reader that reports / a thread that sees the report / one that ends the grace period and
/// frees what the reader has read.
#[test]
fn a_handed_over_grace_period_ends_after_what_a_look_has_seen() {
    check(3, || {
        let shared = Shared::new();
        // The thread is not idle.
        shared.epoch.enter(&shared.sections[0]);
        shared.sections[0].leave();
        let reader = spawn(shared.clone(), move |shared| {
            shared.read(0, false);
            shared.epoch.report(&shared.sections[0]);
        });
        shared.current.store(1, Ordering::Release);
        let number = shared.epoch.begin();
        let looks = spawn(shared.clone(), move |shared| shared.sections[0].quiescent(number));
        if looks.join().unwrap() == Quiescent::Yes {
            shared.epoch.finish(number);
            // SAFETY: the model checks that nothing reads at the same time.
            shared.objects[0].with_mut(|object| unsafe { *object = false });
        }
        reader.join().unwrap();
    });
}
