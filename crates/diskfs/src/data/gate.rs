//! The gate of calls that change data, for a cut of the volume.
//!
//! A write to a file begins no transaction, so the journal's gate does not stop it. Each call that
//! changes data or the size of a file is inside of this gate, as a reader of a big-reader lock; a
//! cut shuts it as the writer, and then has all data written that is still dirty. The gate comes
//! before the journal's: a thread that is inside may begin transactions, and none that has begun a
//! transaction enters. Write-back does not enter: it changes nothing that a call has promised.

use vfscale_sync::brlock::{BrLock, BrReadGuard, BrWriteGuard};
use vfscale_sync::lock_class;

lock_class! {
    /// Calls that change the data of a volume's files, against a cut (a brlock).
    pub DataGate = ("data_gate", 28500) sleeping;
}

/// The gate. See the [module](self).
pub(super) type Gate = BrLock<DataGate>;

/// The right to change data, until it is dropped.
pub type Inside<'f> = BrReadGuard<'f, DataGate>;

/// The gate is shut, until this is dropped.
pub type Shut<'f> = BrWriteGuard<'f, DataGate>;
