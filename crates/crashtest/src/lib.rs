//! The crash test: checks the states that a crash may leave in the middle of a script of calls.
//!
//! A [`Script`](script::Script) is a list of calls ([`Compound`]). It runs twice: on a memory
//! file system, the model, which gives the tree after each prefix of the calls
//! ([`model::history::History`]), and on a volume over a recording device. Each state that a crash
//! might have left on the device ([`sweep`]) is opened, which recovers the volume. Its whole tree
//! is read ([`model::tree::Tree`]) and judged ([`model::verdict`]), and the image is checked.
//!
//! # Guarantees under test
//!
//! * Changes of names and attributes take effect in order: apart from data, the recovered tree is
//!   the one after some prefix of the calls that had begun.
//! * That prefix contains every synced change: after `sync` everything; after `fsync` of a file or
//!   directory all earlier changes of its attributes and names, and so everything before them.
//! * The data of a file at its last `fsync` (or `fdatasync`, or `sync`) are present. Each sector
//!   written since is either present or not. A file ends where it ended before or after one of the
//!   calls since, or somewhere within an append. No unwritten bytes are visible beyond the old end:
//!   neither other files' bytes nor truncated ones.
//! * Each time of a file was set by some call. It is not older than the file's last `fsync` or
//!   `sync`, nor than the last recovered change of its names and attributes.
//! * A truncation that shortens a file is ordered with the changes of names. Only the rest of the
//!   block in which it cuts may become zeros before.
//!
//! # Invariants
//!
//! * The bytes of each write are distinguishable from all other writes of the script
//!   ([`pattern`]).
//! * Runs are deterministic, given the seed and the timing of background threads.
//!
//! # Locks
//!
//! The crate defines no locks. One thread makes all calls of a script.
//!
//! [`Compound`]: vfscale_testkit::calls::compound::Compound
//! [`pattern`]: vfscale_testkit::calls::pattern

pub mod ace;
pub mod faults;
pub mod fuzz;
pub mod load;
pub mod model;
pub mod passing;
pub mod script;
pub mod subject;
pub mod sweep;

/// Returns the number in an environment variable, or `default`.
pub fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
