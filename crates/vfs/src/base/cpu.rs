//! The CPU that a thread runs on, or pretends to run on.
//!
//! The current CPU selects the slots of sharded structures. A thread that pretends to run on
//! another CPU uses that CPU's slots. So a tree made for many CPUs
//! ([`Scaling::with_slots`](crate::Scaling::with_slots)) can be exercised on few.
//!
//! ```
//! use vfscale_vfs::cpu;
//!
//! let pretence = cpu::pretend(79);
//! assert_eq!(cpu::current(), 79);
//! drop(pretence);
//! assert!(cpu::possible() >= 1);
//! ```

pub use vfscale_sync::cpu::{Pretend, current, possible, pretend, slots};
