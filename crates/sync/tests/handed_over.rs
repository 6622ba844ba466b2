//! A grace period that one thread looks after and another one ends. For Miri, whose fences are
//! those of the language: nothing orders the end behind what the first thread has seen but the
//! protocol.
//!
//! ```sh
//! scripts/test miri
//! ```

#![cfg(miri)]
#![allow(clippy::unwrap_used, dead_code)]

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::thread;

use fences::{AtomicU64, Ordering};
use protocol::{Epoch, Quiescent, Section};

/// Fences of a system without `membarrier`.
mod fences {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

#[path = "../src/epoch/protocol.rs"]
mod protocol;

struct Shared {
    epoch: Epoch,
    sections: [Section; 2],
    /// The number of the grace period, and the first section that it has not been seen past.
    driver: Mutex<Option<(u64, usize)>>,
    object: UnsafeCell<u64>,
    /// Orders the steps in time and, being relaxed, in nothing else.
    step: AtomicU64,
}

// SAFETY: Miri finds every unordered access to the object.
unsafe impl Sync for Shared {}

impl Shared {
    /// Drives the grace period as the crate does until it has been seen past `sections`.
    fn drive(&self, sections: usize) {
        loop {
            let mut driver = self.driver.lock().unwrap();
            let (number, mut past) = driver.unwrap_or_else(|| (self.epoch.begin(), 0));
            let is_past = |at: usize| self.sections[at].quiescent(number) == Quiescent::Yes;
            while past < 2 && is_past(past) {
                past += 1;
            }
            *driver = Some((number, past));
            if past >= sections {
                if past == 2 {
                    self.epoch.finish(number);
                }
                return;
            }
            drop(driver);
            thread::yield_now();
        }
    }

    fn wait_for(&self, step: u64) {
        while self.step.load(Ordering::Relaxed) < step {
            thread::yield_now();
        }
    }
}

/// Race: A thread that has seen a report and hands the grace period over / one that ends it and
/// frees what the reporting thread has read.
#[test]
fn a_handed_over_grace_period_ends_after_what_a_look_has_seen() {
    let shared = Shared {
        epoch: Epoch::new(AtomicU64::new(1), AtomicU64::new(1)),
        sections: [(); 2].map(|()| Section::new(AtomicU64::new(0), AtomicU64::new(0))),
        driver: Mutex::new(None),
        object: UnsafeCell::new(7),
        step: AtomicU64::new(0),
    };
    // Neither thread is idle.
    for section in &shared.sections {
        shared.epoch.enter(section);
        section.leave();
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            shared.epoch.enter(&shared.sections[0]);
            // SAFETY: the section has found it; Miri checks that it is not freed.
            assert_eq!(unsafe { *shared.object.get() }, 7);
            shared.step.store(1, Ordering::Relaxed);
            shared.wait_for(2);
            shared.sections[0].leave();
            shared.epoch.report(&shared.sections[0]);
        });
        scope.spawn(|| {
            shared.wait_for(2);
            shared.drive(1);
            shared.step.store(3, Ordering::Relaxed);
        });
        scope.spawn(|| {
            shared.wait_for(3);
            shared.epoch.report(&shared.sections[1]);
        });
        shared.wait_for(1);
        let tag = shared.epoch.tag();
        shared.drive(0);
        shared.step.store(2, Ordering::Relaxed);
        // Between this and the end the thread executes no fence of its own.
        shared.wait_for(3);
        shared.drive(2);
        assert!(shared.epoch.is_over(tag));
        // SAFETY: Miri checks that nothing reads at the same time.
        unsafe { *shared.object.get() = 0 };
    });
}
