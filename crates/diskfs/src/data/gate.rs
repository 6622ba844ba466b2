//! The gate of calls that change data, for a cut of the volume.
//!
//! A write to a file begins no transaction, so the journal's gate does not stop it. Each call that
//! changes data or the size of a file is inside of this gate, as a reader of a big-reader lock; a
//! cut shuts it as the writer, and then has all data written that is still dirty. The gate comes
//! before the journal's: a thread that is inside may begin transactions, and none that has begun a
//! transaction enters. Write-back does not enter: it changes nothing that a call has promised.
//!
//! The lock is taken slot by slot, and a thread that is inside may have lost its CPU. So a cut
//! first closes the *door*: calls that arrive sleep before the lock, whatever their slot, and leave
//! the CPUs to those that are inside.

use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::brlock::{BrLock, BrReadGuard, BrWriteGuard};
use vfscale_sync::{Mutex, MutexGuard, lock_class};

lock_class! {
    /// Cuts of a volume, one at a time; calls that change data wait for it while one is made.
    pub DataDoor = ("data_door", 28490) sleeping;
    /// Calls that change the data of a volume's files, against a cut (a brlock).
    pub DataGate = ("data_gate", 28500) sleeping;
}

/// The gate. See the [module](self).
pub(super) struct Gate {
    inside: BrLock<DataGate>,
    /// Whether a cut has closed the door. Calls may see it late.
    is_closed: AtomicBool,
    door: Mutex<(), DataDoor>,
}

/// The right to change data, until it is dropped.
pub type Inside<'f> = BrReadGuard<'f, DataGate>;

/// The gate is shut, until this is dropped.
#[must_use = "the gate opens when this is dropped"]
pub struct Shut<'f> {
    gate: &'f Gate,
    /// Dropped in this order.
    _alone: BrWriteGuard<'f, DataGate>,
    _door: MutexGuard<'f, (), DataDoor>,
}

impl Gate {
    pub(super) fn new(slots: usize) -> Self {
        let (is_closed, door) = (AtomicBool::new(false), Mutex::new(()));
        Self { inside: BrLock::new(slots), is_closed, door }
    }

    /// Enters. Sleeps while the gate is shut or being shut.
    pub(super) fn enter(&self) -> Inside<'_> {
        if self.is_closed.load(Ordering::Relaxed) {
            drop(self.door.lock());
        }
        self.inside.read()
    }

    /// Shuts the gate, and waits for the calls that are inside.
    pub(super) fn shut(&self) -> Shut<'_> {
        let door = self.door.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        Shut { gate: self, _alone: self.inside.write(), _door: door }
    }
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.gate.is_closed.store(false, Ordering::Relaxed);
    }
}
