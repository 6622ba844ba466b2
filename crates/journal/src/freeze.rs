//! Active transactions, and keeping new ones out.
//!
//! # Purpose
//!
//! A freeze has to wait until no transaction is active. Seed 003, patch 2: the count of them is a
//! part for each CPU, and whoever freezes adds the parts up; with one part it is the counter that
//! every transaction wrote.
//!
//! # Why the sum can't miss a transaction
//!
//! A transaction adds itself and then looks whether the gate is shut; the freezer shuts it and then
//! adds up; both have a full fence between. So a transaction that did not see the shut gate is in
//! every sum that follows, and only it can take itself out, after it has ended. One that did see it
//! takes itself back from the very part that it went to. So a sum of zero says that nobody is
//! inside, and that nobody comes in: a part that was read too early can only make the sum too
//! large, as do those who are about to be refused. Whoever leaves (or takes itself back) and sees
//! the gate shut wakes the freezer, which adds up again.

use vfscale_sync::atomic::{Ordering, fence, fence_after_rmw};
use vfscale_sync::percpu::PerCpuCounter;
use vfscale_sync::{Condvar, Mutex};

use crate::central::Central;
use crate::ranks::FreezeGate;

/// The gate that transactions go through.
pub(crate) struct Gate {
    /// The parts, or nothing if it is the one number in [`Central`].
    parts: Option<PerCpuCounter>,
    state: Mutex<State, FreezeGate>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many freezes there are without their thaws.
    depth: u32,
    is_closed: bool,
}

/// Why nobody may go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Shut,
    Closed,
}

impl Gate {
    pub(crate) fn new(slots: usize) -> Self {
        let parts = (slots > 1).then(|| PerCpuCounter::new(slots));
        Self { parts, state: Mutex::new(State::default()), changed: Condvar::new() }
    }

    /// Goes in. Sleeps while the gate is frozen.
    #[inline]
    pub(crate) fn enter(&self, central: &Central) -> Result<(), Refused> {
        while !self.add_unless_frozen(central) {
            self.wait(central)?;
        }
        Ok(())
    }

    #[inline]
    fn add_unless_frozen(&self, central: &Central) -> bool {
        let keep = || {
            fence_after_rmw();
            // Acquire: who comes in after a thaw sees what the freezer has done.
            !central.read.is_frozen.load(Ordering::Acquire)
        };
        if let Some(parts) = &self.parts {
            return parts.add_if(1, keep);
        }
        let active = &central.written().active;
        active.fetch_add(1, Ordering::Release);
        let kept = keep();
        if !kept {
            active.fetch_sub(1, Ordering::Release);
        }
        kept
    }

    #[cold]
    fn wait(&self, central: &Central) -> Result<(), Refused> {
        let mut state = self.state.lock();
        // The freezer may have counted what was just taken back.
        self.changed.notify_all();
        loop {
            if state.is_closed {
                return Err(Refused::Closed);
            }
            if central.read.is_shut.load(Ordering::Relaxed) {
                return Err(Refused::Shut);
            }
            if state.depth == 0 {
                return Ok(());
            }
            state = self.changed.wait(state);
        }
    }

    /// Comes out again.
    #[inline]
    pub(crate) fn leave(&self, central: &Central) {
        match &self.parts {
            Some(parts) => parts.add(-1),
            None => {
                central.written().active.fetch_sub(1, Ordering::Release);
            }
        }
        fence_after_rmw();
        if central.read.is_frozen.load(Ordering::Relaxed) {
            // Under the lock: the freezer either sleeps by now or adds up after this.
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// How many are inside.
    pub(crate) fn active(&self, central: &Central) -> i64 {
        match &self.parts {
            Some(parts) => parts.sum(),
            None => central.written().active.load(Ordering::Acquire),
        }
    }

    /// What each line has of that.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn lines(&self, central: &Central) -> Vec<i64> {
        match &self.parts {
            Some(parts) => parts.parts().collect(),
            None => vec![self.active(central)],
        }
    }

    /// Shuts the gate and waits until nobody is inside. Nests. `is_final`: for good.
    pub(crate) fn freeze(&self, central: &Central, is_final: bool) {
        let mut state = self.state.lock();
        state.depth += 1;
        state.is_closed |= is_final;
        central.read.is_frozen.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Who waits for a thaw that does not come any more has to know.
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |_| self.active(central) != 0));
    }

    /// Opens the gate again, if this was the last freeze. A thaw without a freeze does nothing.
    pub(crate) fn thaw(&self, central: &Central) {
        let mut state = self.state.lock();
        state.depth = state.depth.saturating_sub(1);
        if state.depth == 0 && !state.is_closed {
            central.read.is_frozen.store(false, Ordering::SeqCst);
        }
        self.changed.notify_all();
    }

    /// Wakes those who wait to come in: the journal is shut down.
    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
