//! The crash test: what may be left of a script of calls when the machine stops in the middle of it.
//!
//! A [`Script`](scripts::Script) is a list of calls ([`op::Op`]). It runs twice: on a memory file system,
//! which gives the tree after each of its prefixes ([`history::History`]), and on a volume over a recording
//! device. For each state that a crash might have left on the device ([`sweep`]), the volume is opened, so
//! that it recovers, its whole tree is read ([`tree::Tree`]) and judged ([`verdict`]), and the image checked.
//!
//! # What is promised
//!
//! * Changes of names and attributes take effect in their order: the tree that is recovered is, data
//!   apart, that after some prefix of the calls, none of which had not begun.
//! * That prefix has all that was synced: after `sync` everything; after `fsync` of a file or directory
//!   all that had changed it, its names included, and so everything before that.
//! * What a file held at its last `fsync` (or `fdatasync`, or `sync`) is there. Of what was written since,
//!   each sector is there or not. A file ends where it ended before or after one of the calls since, or
//!   somewhere within what one of them appended, and nothing behind the old end is visible that was not
//!   written: neither other files' bytes nor what a truncation had cut off.
//! * A file has the times that some call had left it with: none before its last `fsync` or `sync`, nor before
//!   the last change of its names and attributes that is there.
//! * A truncation that makes a file shorter takes its turn among the changes of names; only the rest of
//!   the block in which it cuts may be zeros before.
//!
//! # Invariants
//!
//! * What a script writes can be told from everything else that it writes ([`pattern`]).
//! * Nothing depends on chance but what follows from the seed, and on when background threads run.
//!
//! # Locks
//!
//! None of its own. One thread makes all calls of a script.

pub mod beside;
pub mod churn;
pub mod faults;
pub mod fuzz;
pub mod history;
pub mod kills;
pub mod op;
pub mod pattern;
pub mod scripts;
pub mod subject;
pub mod sweep;
pub mod tangle;
pub mod times;
pub mod tree;
pub mod verdict;
pub mod volume;
pub mod watch;

/// A number from the environment, or `default`.
#[must_use]
pub fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
