//! The freeze gate: counts active transactions and blocks new ones.
//!
//! # Purpose
//!
//! A freeze must wait until no transaction is active. As in Chinner's per-CPU delayed logging
//! (2020, patch 2), their count is sharded: each CPU has a part, and the thread that freezes adds
//! the parts up. With one part it is the single counter that every transaction used to write.
//!
//! # Why the sum can't miss a transaction
//!
//! A transaction first adds itself and then checks whether the gate is shut. The freezing thread
//! first shuts the gate and then adds up. Both have a full fence in between. So a transaction that
//! did not see the shut gate is in every later sum, and only the transaction itself can subtract
//! itself, after it has ended. A transaction that saw the shut gate subtracts itself from the part
//! to which it added itself. A sum of zero therefore means that no transaction is active and that
//! none begins: a part that was read too early can only make the sum too large, as do transactions
//! that are about to be refused. A transaction that leaves (or withdraws) and sees the gate shut
//! wakes the freezing thread, which adds up again.

use vfscale_sync::atomic::{Ordering, fence, fence_after_rmw, thread};
use vfscale_sync::percpu::PerCpuCounter;
use vfscale_sync::{Condvar, Mutex};

use crate::ranks::FreezeGate;
use crate::read_mostly::SharedFields;

/// The gate that transactions pass when they begin.
pub(crate) struct Gate {
    /// The sharded count; `None` if it is the single number in [`SharedFields`].
    parts: Option<PerCpuCounter>,
    state: Mutex<GateState, FreezeGate>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Number of freezes that no thaw has ended yet.
    depth: u32,
    is_closed: bool,
}

/// The reason why a transaction may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Shut,
    Closed,
}

impl Gate {
    pub(crate) fn new(slots: usize) -> Self {
        let parts = (slots > 1).then(|| PerCpuCounter::new(slots));
        Self { parts, state: Mutex::new(GateState::default()), changed: Condvar::new() }
    }

    /// Counts a new transaction on a CPU. Sleeps while the gate is frozen.
    #[inline]
    pub(crate) fn enter(&self, cpu: u32, shared: &SharedFields) -> Result<(), Refused> {
        while !self.add_unless_frozen(cpu, shared) {
            self.wait(shared)?;
        }
        Ok(())
    }

    #[inline]
    fn add_unless_frozen(&self, cpu: u32, shared: &SharedFields) -> bool {
        let is_open = || {
            fence_after_rmw();
            // Acquire: a transaction that begins after a thaw sees the freezing thread's changes.
            !shared.read.is_frozen.load(Ordering::Acquire)
        };
        if let Some(parts) = &self.parts {
            return parts.add_if_at(cpu, 1, is_open);
        }
        let active = &shared.written().active;
        active.fetch_add(1, Ordering::Release);
        let was_open = is_open();
        if !was_open {
            active.fetch_sub(1, Ordering::Release);
        }
        was_open
    }

    #[cold]
    fn wait(&self, shared: &SharedFields) -> Result<(), Refused> {
        let mut state = self.state.lock();
        // The freezing thread may have counted what was just subtracted.
        self.changed.notify_all();
        loop {
            if state.is_closed {
                return Err(Refused::Closed);
            }
            if shared.read.is_shut.load(Ordering::Relaxed) {
                return Err(Refused::Shut);
            }
            if state.depth == 0 {
                return Ok(());
            }
            state = self.changed.wait(state);
        }
    }

    /// Counts a transaction as ended, on a CPU.
    #[inline]
    pub(crate) fn leave(&self, cpu: u32, shared: &SharedFields) {
        match &self.parts {
            Some(parts) => parts.add_at(cpu, -1),
            None => {
                shared.written().active.fetch_sub(1, Ordering::Release);
            }
        }
        fence_after_rmw();
        if shared.read.is_frozen.load(Ordering::Relaxed) {
            // Under the lock: either the freezing thread already sleeps, or it adds up after this.
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// Returns the number of active transactions.
    pub(crate) fn active(&self, shared: &SharedFields) -> i64 {
        match &self.parts {
            Some(parts) => parts.sum(),
            None => shared.written().active.load(Ordering::Acquire),
        }
    }

    /// Returns the part of the count in each shard.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn lines(&self, shared: &SharedFields) -> Vec<i64> {
        match &self.parts {
            Some(parts) => parts.parts().collect(),
            None => vec![self.active(shared)],
        }
    }

    /// Shuts the gate and waits until no transaction is active. Freezes nest. With `is_final` the
    /// gate stays shut for good.
    pub(crate) fn freeze(&self, shared: &SharedFields, is_final: bool) {
        let mut state = self.state.lock();
        state.depth += 1;
        state.is_closed |= is_final;
        shared.read.is_frozen.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // A transaction that waits for a thaw must learn that no thaw will follow.
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |_| self.active(shared) != 0));
    }

    /// Opens the gate again, if this ends the last freeze. A thaw without a freeze does nothing.
    ///
    /// The caller may hold locks of any rank, such as those of a pool that has captured the device:
    /// whoever holds the lock of the gate waits for nothing, so this tries until it has it.
    pub(crate) fn thaw(&self, shared: &SharedFields) {
        let mut state = loop {
            match self.state.try_lock() {
                Some(state) => break state,
                None => thread::yield_now(),
            }
        };
        state.depth = state.depth.saturating_sub(1);
        if state.depth == 0 && !state.is_closed {
            shared.read.is_frozen.store(false, Ordering::SeqCst);
        }
        self.changed.notify_all();
    }

    /// Wakes the transactions that wait at the gate, because the journal is shut down.
    pub(crate) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
