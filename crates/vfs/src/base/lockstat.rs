//! lockstat: how often each lock is taken and waited for, and for how long it is held.
//!
//! The counters belong to the process and to classes of locks, as in the kernel's `lock_stat`. A
//! class has the kernel's name if the kernel has such a lock. Contention is always counted, the
//! rest only while recording is on; recording costs nothing while it is off. [`record_for`] records
//! one volume of several: it leaves out the threads of the others.
//!
//! ```
//! use vfscale_vfs::lockstat;
//!
//! lockstat::record(true);
//! // ... calls ...
//! lockstat::record(false);
//! print!("{}", lockstat::Table::now());
//! ```

pub use vfscale_sync::lock::{
    LockStatRow as Row, LockStatTable as Table, LockTimes as Times, ThreadOwner, lockstat as rows,
    lockstat_record as record, lockstat_record_for as record_for,
    lockstat_recording as is_recording, lockstat_reset as reset,
};
