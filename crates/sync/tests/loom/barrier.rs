//! The protocol of the epochs with asymmetric fences: a light fence is nothing, and a heavy one has
//! the reader execute a fence at some point of its program, as the interrupt of `membarrier` does.

use crate::common::{check, spawn};
use fences::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, fence};
use loom::thread;
use protocol::{Epoch, Quiescent, Section};
use std::cell::Cell;

loom::lazy_static! {
    static ref INTERRUPT: Interrupt = Interrupt {
        is_asked: AtomicBool::new(false),
        is_done: AtomicBool::new(false),
    };
}

loom::thread_local! {
    /// Whether the thread is one that the interrupt goes to.
    static IS_READER: Cell<bool> = Cell::new(false);
}

/// An interrupt of the reader's CPU, on which it executes a fence.
struct Interrupt {
    is_asked: AtomicBool,
    is_done: AtomicBool,
}

impl Interrupt {
    /// Takes the interrupt, if it has been asked for.
    fn take(&self) {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if IS_READER.with(Cell::get) && is(&self.is_asked) && !is(&self.is_done) {
            fence(Ordering::SeqCst);
            self.is_done.store(true, Ordering::Relaxed);
        }
    }

    /// Has the reader execute a fence, and waits for it.
    fn send(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        while !self.is_done.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }
}

/// The model's atomics, before each of which an interrupt may come, and its fences.
mod fences {
    use loom::sync::atomic;
    pub(crate) use loom::sync::atomic::{Ordering, fence};

    use super::INTERRUPT;

    pub(crate) struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            INTERRUPT.take();
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            INTERRUPT.take();
            self.0.store(value, order);
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            set: Ordering,
            failed: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange(current, new, set, failed)
        }
    }

    pub(crate) fn light_fence() {}

    pub(crate) fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

#[path = "../../src/epoch/protocol.rs"]
#[expect(dead_code, reason = "some of it is in other models only")]
mod protocol;

struct Shared {
    epoch: Epoch,
    section: Section,
    current: AtomicU64,
    objects: [UnsafeCell<bool>; 2],
}

impl Shared {
    /// Reads the object that is current, in a section.
    fn read(&self) {
        self.epoch.enter(&self.section);
        let object = self.current.load(Ordering::Acquire) as usize;
        // SAFETY: the model checks that nothing writes at the same time.
        self.objects[object].with(|object| assert!(unsafe { *object }, "it was freed"));
        self.section.leave();
    }

    /// Replaces the object, suspects the reader, and frees the former object if that shows that
    /// nothing delays the grace period.
    fn replace(&self, interrupts: bool) {
        self.current.store(1, Ordering::Release);
        let tag = self.epoch.tag();
        let number = self.epoch.begin();
        let mut is_over = self.section.quiescent(number) == Quiescent::Yes;
        if !is_over {
            self.section.suspect(number);
            assert!(Epoch::expedite());
            if interrupts {
                INTERRUPT.send();
                assert!(Epoch::expedite());
            }
            is_over = !self.section.delays(number);
        }
        if is_over {
            self.epoch.finish(number);
            assert!(self.epoch.is_over(tag));
            // SAFETY: the model checks that nothing reads at the same time.
            self.objects[0].with_mut(|object| unsafe { *object = false });
        }
    }
}

/// Runs a reader, which enters `times` sections, beside a thread that frees.
fn reads_beside_a_free(times: usize, interrupts: bool) {
    check(3, move || {
        let shared = Arc::new(Shared {
            epoch: Epoch::new(AtomicU64::new(1), AtomicU64::new(1)),
            section: Section::new(AtomicU64::new(0), AtomicU64::new(0)),
            current: AtomicU64::new(0),
            objects: [(); 2].map(|()| UnsafeCell::new(true)),
        });
        // The reader is not idle.
        shared.epoch.enter(&shared.section);
        shared.section.leave();
        let reader = spawn(shared.clone(), move |shared| {
            IS_READER.with(|is| is.set(true));
            (0..times).for_each(|_| shared.read());
            // A thread that leaves its CPU executes a fence.
            fence(Ordering::SeqCst);
            INTERRUPT.is_done.store(true, Ordering::Relaxed);
        });
        shared.replace(interrupts);
        reader.join().unwrap();
    });
}

/// Race: Grace periods that are ended by `membarrier`: sections without a fence / a thread that
/// frees.
#[test]
fn an_interrupt_makes_notes_readable() {
    reads_beside_a_free(1, true);
    reads_beside_a_free(2, true);
}

/// The model can fail: a fence of the driver's own does not suffice.
///
/// Race: Grace periods that are ended by a fence of the driver alone: sections without a fence / a
/// thread that frees.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_fence_of_the_driver_alone_does_not() {
    reads_beside_a_free(1, false);
}
