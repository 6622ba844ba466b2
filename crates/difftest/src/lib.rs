//! The differential test: makes random calls on vfscale and on the kernel's tmpfs and compares the
//! results.
//!
//! A sequence ([`generate`]) is a list of [`Step`]s: a task and a call.
//! [`campaign::lockstep::play`] makes each call on two [`World`]s and compares results, error
//! numbers, attributes, data and directory entries. The [`Oracle`] consists of threads of this
//! process that make system calls in their own mount namespace, whose root is a tmpfs. The
//! [`Subject`] consists of tasks of the library. Now and then, and at the end, the whole trees are
//! compared ([`tree`]). [`ThroughMount`] is a subject that is reached by system calls, too.
//! [`campaign`] plays many sequences from one seed and shrinks those that differ.
//!
//! # Comparison
//!
//! * Error numbers exactly; descriptor numbers too, since both sides allocate the lowest free one.
//! * Inode numbers by a mapping: one inode of one side always corresponds to one inode of the
//!   other.
//! * Times set explicitly exactly, others as "recent" ([`TimeClass`]). Probes ([`Probe`])
//!   additionally compare which calls update which times.
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
//!
//! [`generate`]: vfscale_testkit::generate
//! [`Oracle`]: vfscale_testkit::world::oracle::Oracle
//! [`Probe`]: vfscale_testkit::calls::op::Probe
//! [`Step`]: vfscale_testkit::calls::op::Step
//! [`Subject`]: vfscale_testkit::world::subject::Subject
//! [`ThroughMount`]: vfscale_testkit::world::mounted::ThroughMount
//! [`TimeClass`]: vfscale_testkit::calls::outcome::TimeClass
//! [`World`]: vfscale_testkit::world::World
//! [`tree`]: vfscale_testkit::world::tree

pub mod campaign;
