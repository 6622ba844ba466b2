//! The differential test: the same random calls on vfscale and on the kernel's tmpfs.
//!
//! A sequence ([`generate`]) is a list of [`op::Step`]s: a task and a call. [`lockstep::play`] makes
//! each call on two [`world::World`]s, the [`oracle::Oracle`] (threads of this process that make
//! system calls in a mount namespace of their own, on a tmpfs that is its root) and the
//! [`subject::Subject`] (tasks of the library), and compares what they give: results, error numbers,
//! attributes, data, directory entries. Now and then, and at the end, it compares the whole tree
//! ([`tree`]). [`mounted::ThroughMount`] is a subject that is reached by system calls, too.
//! [`campaign`] plays many sequences from one seed and shrinks those that differ.
//!
//! # What is compared, and how
//!
//! * Error numbers exactly; so are descriptor numbers, which both sides give out lowest first.
//! * Inode numbers by a mapping: one inode of one side is always the same inode of the other.
//! * Times that were set by hand exactly, others as "recent" ([`outcome::TimeClass`]); what moves
//!   which time is watched besides by probes ([`op::Probe`]).
//! * Directories as sets of names with types; file data by pieces that are not all zero.
//! * What is meant to differ is listed in [`known`], with a reason each.
//!
//! # Invariants
//!
//! * Nothing in a call depends on results: any part of a sequence is a sequence.
//! * No call blocks: `O_NONBLOCK` is everywhere, and locks are never waited for.
//! * The oracle's threads cannot reach any file outside their namespace.
//!
//! # Locks
//!
//! None are held across calls. The oracle's threads wait for jobs on channels; the harness waits
//! for one answer at a time.

pub mod arena;
pub mod calls;
pub mod campaign;
mod clean;
pub mod generate;
mod kernel;
pub mod known;
pub mod lockstep;
pub mod mounted;
mod mountinfo;
pub mod op;
pub mod oracle;
pub mod outcome;
mod show;
pub mod shrink;
pub mod subject;
mod sys;
pub mod tree;
pub mod users;
pub mod world;
