//! Delayed logging: transactions in memory, checkpoints on disk, recovery.
//!
//! # Purpose
//!
//! A file system changes several things at once, and a crash must leave all of them changed or
//! none. Here a transaction reserves its worst case of log space, changes objects in memory, and
//! puts what changed on the committed item list of its CPU; the same item logged a thousand times
//! is written once. A push takes the whole list as one checkpoint, in order, to the log; only then
//! may the objects be written home, and only when they are home is log space free again. It is the
//! design of XFS's delayed logging (Dave Chinner), with its lists and counters per CPU as in seed
//! 003, and past it where its discussion left something shared: the context lock is a brlock, log
//! space is handed out in batches, and order needs no counter.
//!
//! The crate knows no file system. Logged things are [`LogItem`]s, and a recovery delivers into a
//! [`RecoverySink`].
//!
//! # Invariants
//!
//! * A transaction that was granted its reservation never runs out of log.
//! * A commit writes only what belongs to its CPU and its items, and does no I/O.
//! * What a successful [`Journal::force`] covers is in the log, whole; a recovery replays it, in
//!   order, and of every other transaction all or nothing.
//! * Nothing goes home before the log has it, and nothing leaves the log before it is home and durable there.
//! * The head never reaches the tail that the latest durable record names.
//! * After an error of the device nothing more becomes durable, every waiter is woken, and every
//!   later call gets the error. Nothing that was not durable is ever said to be.
//! * Any bytes in the log are an error or a log: never a panic, a hang, or a read outside of the region.
//!
//! # Where things are
//!
//! | file | what |
//! | --- | --- |
//! | `transaction` | the life of a transaction |
//! | `ticket`, `grant` | how much log a transaction needs, and who gets it |
//! | `cil` | what is committed, per CPU; the context lock; order |
//! | `push`, `pace` | contexts become checkpoints; group commit; the threads; waiting awake |
//! | `iclog`, `record`, `checkpoint` | the head of the log, and every byte of it (`docs/FORMAT.md`) |
//! | `ail` | what is not home yet, and the tail |
//! | `memory` | how much memory those take at most |
//! | `recovery`, `inspect` | finding the end, replaying, looking |
//! | `freeze`, `central` | active transactions; what commits read, apart from what they write |
//!
//! # Locks
//!
//! In ascending rank; a thread that holds one takes only those below it. No lock is held during
//! I/O, or while a hook or an item's method runs, but the client's own.
//!
//! ```text
//! freeze_gate     30000   who waits for a thaw
//! grant_queue     30010   who waits for log space
//!   budget_pool   65000
//! xc_ctx_lock     30020   commits (readers, one slot each) against the switch of contexts
//!   xc_cil        30040   the list of a slot
//!     xc_cil_item 30042   what is logged of one item
//!   xc_cil_lock   30045   what all CPUs have freed; only before seed 003, patch 5
//! l_icloglock     30050   who has the writer, what is durable
//!   ail_lock      30060   items by place, the tail
//! log_trace       30070   tickets of checkpoints
//! log_shutdown    30080   the error that shut the journal down
//! log_workers     30090   the threads, until the journal is closed
//! ```
//!
//! The right to write the log is no lock but an object that is taken and put back (`Writer`), since it is
//! held during I/O.
//!
//! # Who holds which reference
//!
//! A transaction, the CIL, a checkpoint on its way and the AIL hold their items. The CIL and a
//! checkpoint hold a pin on each as well, which keeps it from being written home. Transactions and
//! the journal's two threads hold the inner journal.

mod ail;
mod central;
mod checkpoint;
mod cil;
mod error;
mod freeze;
mod grant;
mod hooks;
mod iclog;
mod inspect;
mod item;
mod journal;
mod known;
mod lsn;
mod memory;
mod options;
mod pace;
mod push;
pub mod ranks;
mod record;
mod recovery;
mod ticket;
mod transaction;

#[cfg(all(test, not(shuttle)))]
mod support_tests;

pub use checkpoint::{Durable, Operation, Operations};
pub use error::{Error, Result};
pub use hooks::{Hooks, NoHooks};
pub use inspect::{Checkpoint, Inspection};
pub use item::{Image, ItemState, LogItem, LogKey, LogVector, Pushed};
pub use journal::{Journal, Stats, VolumeId};
pub use known::Known;
pub use lsn::{LOG_BLOCK_BYTES, LOG_BLOCKS_MAX, LOG_BLOCKS_MIN, Lsn, Region};
pub use options::{Options, Scaling};
pub use record::{
    FLAG_COMMIT, FLAG_START, LOG_VERSION, RECORD_BLOCKS_MAX, RECORD_MAGIC, RecordHeader, RecordKind,
};
pub use recovery::{Recovered, RecoverySink};
pub use ticket::{Reservation, TicketTrace};
pub use transaction::{Committed, Transaction};
