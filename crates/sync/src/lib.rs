//! Scalable locks and structures, the bottom layer of vfscale.
//!
//! # Purpose
//!
//! Everything above this crate shares memory only through the types of this crate: locks with
//! classes and ranks, sequence counts, per-CPU arrays, reference counts that carry their own lock
//! ([`lockref`]), RCU, and tables whose lookups write nothing. Each of them exists because a
//! simpler tool puts a written cache line on the path of calls that commute.
//!
//! # Invariants
//!
//! * A read path that is documented as free of writes stores to no shared line.
//! * The number of slots of a scaled structure is set when it is created; with one slot it is the
//!   unscaled structure.
//! * Every wait is bounded by the holder's critical section: waiters spin for about a
//!   microsecond, then sleep in the kernel. Retrying readers ([`seqcount`]) spin, then yield, then
//!   sleep briefly.
//! * No lock is poisoned by a panic: guards release on unwinding, and the owner of the data
//!   decides what an interrupted change means.
//!
//! # Which lock
//!
//! | if | use | a reader writes |
//! | --- | --- | --- |
//! | sections are short, or mostly change the data | [`Mutex`] | the lock's line |
//! | readers are many and take long, or sleep | [`RwLock`] | the lock's line |
//! | every call reads, hardly any writes, there are few such locks | [`brlock::BrLock`] | its CPU's line |
//! | there are millions of them, and some become hot | [`sharded_rwlock::ShardedRwLock`] | the lock's line; once hot, its CPU's |
//! | a few words are read, and readers may retry | [`seqcount::SeqCount`], or with a lock for writers [`seqlock::SeqLock`] | nothing |
//! | some readers may retry and others may not | [`seqrwlock::SeqRwLock`] | nothing; blocking readers the lock's line |
//! | readers follow pointers, and may see old objects | [`rcu`] | its thread's line |
//!
//! # Which pointer
//!
//! | if | use | taking and dropping a reference |
//! | --- | --- | --- |
//! | nothing below applies | `Arc` | writes the count's line |
//! | the object is often dropped by its only owner, or is on a list | [`shared::Shared`] | writes the count's line; the only owner writes nothing |
//! | one object is referred to by all CPUs, and lives long | [`percpu_arc::PerCpuArc`] | writes its CPU's line |
//! | the owner ends the object, and waits for its users | [`percpu_ref::PerCpuRef`] | writes its CPU's line until it is closed |
//! | the object needs a count and a lock, and may become hot | [`lockref::Lockref`] | writes the count's line; once sharded, its CPU's |
//! | the object is only used inside a section | a reference under an [`rcu`] guard | writes nothing |
//!
//! # Folders
//!
//! The modules are in folders, each of which uses only earlier ones: `atomic`, `clock`, `cpu`,
//! `machine`, `fork`, `hash` and `random`; `lock` (locks of one word); `seq` (sequence counts);
//! `percpu` (arrays, counters, budgets, lists and locks with a part for each CPU); `rcu` (grace
//! periods, hash tables, radix tree slots) with `reclaim`; `worker` (threads for work in the
//! background); `refcount`; `mem` (pages) with `slab`. `scaling` holds how many slots each
//! structure gets.
//! Their modules are exported here by their own names.
//!
//! # Lock order
//!
//! Each lock belongs to a class declared with [`lock_class!`], and each class has a rank. A thread
//! takes locks in strictly ascending rank; debug builds check it ([`lock`]). The lock inside a
//! lockref has no rank: its users order it by a rule of their own (a parent before its child).
//!
//! # Model checking
//!
//! Under `cfg(loom)` and `cfg(shuttle)` atomics and threads are the model checker's, sleepers sleep
//! on the checker's condition variables, and retrying readers yield. Code built on these
//! locks can therefore be checked too, deadlocks included. Under shuttle each thread of a model has
//! RCU sections of its own, deferred calls run at any moment after their grace period, and a use of
//! freed memory fails (`epoch/model.rs`, `atomic/freed.rs`). Under loom all threads of a model are
//! one to RCU: the guard of any of them delays every grace period, so no missing guard is found.

pub mod atomic;
mod caught;
pub mod clock;
pub mod cpu;
mod epoch;
pub mod fork;
pub mod hash;
pub mod lock;
pub mod machine;
#[cfg(all(shuttle, not(loom)))]
pub mod model;
pub mod percpu;
pub mod random;
pub mod rcu;
pub mod reclaim;
pub mod scaling;
pub mod slab;
pub mod thread;
pub mod worker;

mod mem;
mod refcount;
mod seq;
#[cfg(not(any(loom, shuttle, miri)))]
mod shrink;

pub use mem::{page, prefetch};
pub use percpu::{brlock, list as percpu_list, sharded_rwlock, spread};
pub use rcu::{slot, table};
pub use refcount::{lockref, percpu_arc, percpu_ref, shared};
pub use seq::{errseq, seqcount, seqlock, seqrwlock};

pub use lock::{
    Condvar, LockClass, LockStat, LockStatRow, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockWriteGuard, lockstat,
};
