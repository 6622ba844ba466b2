//! lockstat: who waits for which lock, how often it is taken, and for how long it is held.
//!
//! The counters belong to the process and to classes of locks, as in the kernel's `lock_stat`; the
//! classes have the kernel's names where it has such a lock. Contention is counted always, the rest
//! while recording is on, which costs nothing while it is off.
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
    LockStatRow as Row, LockStatTable as Table, LockTimes as Times, lockstat as rows,
    lockstat_record as record, lockstat_recording as is_recording, lockstat_reset as reset,
};
