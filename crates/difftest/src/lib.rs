//! The differential test: makes random calls on vfscale and on the kernel's tmpfs and compares the
//! results.
//!
//! A sequence ([`campaign::generate`]) is a list of [`calls::op::Step`]s: a task and a call.
//! [`campaign::lockstep::play`] makes each call on two [`world::World`]s and compares results,
//! error numbers, attributes, data and directory entries. The [`world::oracle::Oracle`] consists of
//! threads of this process that make system calls in their own mount namespace, whose root is a
//! tmpfs. The [`world::subject::Subject`] consists of tasks of the library. Now and then, and at
//! the end, the whole trees are compared ([`tree`]). [`world::mounted::ThroughMount`] is a subject
//! that is reached by system calls, too. [`campaign`] plays many sequences from one seed and
//! shrinks those that differ.
//!
//! # Comparison
//!
//! * Error numbers exactly; descriptor numbers too, since both sides allocate the lowest free one.
//! * Inode numbers by a mapping: one inode of one side always corresponds to one inode of the
//!   other.
//! * Times set explicitly exactly, others as "recent" ([`calls::outcome::TimeClass`]). Probes
//!   ([`calls::op::Probe`]) additionally compare which calls update which times.
//! * Directories as sets of names with types; file data by the chunks that are not all zero.
//! * Intended differences are listed in [`campaign::known`], with a reason each.
//!
//! # Invariants
//!
//! * Arguments do not depend on earlier results, so any part of a sequence is a sequence.
//! * No call blocks: files are opened with `O_NONBLOCK`, and locks are never waited for.
//! * The oracle's threads cannot reach any file outside their namespace.
//!
//! # Locks
//!
//! None are held across calls. The oracle's threads wait for jobs on channels; the harness waits
//! for one answer at a time.

pub mod calls;
pub mod campaign;
mod sys;
pub mod tree;
pub mod world;
