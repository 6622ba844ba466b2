//! Which CPU a thread runs on, or claims to run on.
//!
//! Slots are chosen by the current CPU. A thread that claims to run on another one uses that CPU's
//! slots, so that a tree made for many CPUs ([`Scaling::with_slots`](crate::Scaling::with_slots))
//! can be exercised on few.
//!
//! ```
//! use vfscale_vfs::cpu;
//!
//! let pretence = cpu::pretend(79);
//! assert_eq!(cpu::current(), 79);
//! drop(pretence);
//! assert!(cpu::possible() >= 1);
//! ```

pub use vfscale_sync::cpu::{Pretend, current, possible, pretend};
