//! Delayed logging: transactions in memory, checkpoints on disk, recovery.
//!
//! # Purpose
//!
//! A file system changes several objects in one step, and a crash must leave all of them changed or
//! none. Here a transaction reserves its worst case of log space, changes objects in memory, and
//! puts the changed objects on the committed item list (CIL) of its CPU; an item that is logged a
//! thousand times is written once. A push takes the whole list as one checkpoint, in order, and
//! writes it to the log. Only then may the objects be written back to their on-disk locations, and
//! only when that is done is their log space free again.
//!
//! This is the design of XFS's delayed logging (Dave Chinner), with its lists and counters per CPU
//! as in his patch series of 2020 ("xfs: fix a couple of performance issues"). Where the discussion
//! of that series left something shared, this crate goes further: the context lock is a brlock, log
//! space is handed out in batches, and the order of commits needs no shared counter.
//!
//! The crate knows no file system. Logged objects are [`LogItem`]s, and a recovery replays into a
//! [`RecoverySink`].
//!
//! # Invariants
//!
//! * A transaction whose reservation was granted never runs out of log space.
//! * A commit writes only data of its CPU and its items, and does no I/O.
//! * After a successful [`Journal::force`] the forced transactions are in the log as a whole. A
//!   recovery replays them, in order, and any other transaction wholly or not at all.
//! * No item is written back before it is in the log, and none leaves the log before it is written
//!   back and durable on disk.
//! * The head never reaches the tail that the latest durable record names.
//! * After an error of the device nothing more becomes durable, every waiting thread is woken, and
//!   every later call returns the error. The journal never reports a transaction as durable that is
//!   not.
//! * Any bytes in the region are an error or a log: they never cause a panic, a hang, or a read
//!   outside of the region.
//!
//! # Modules
//!
//! Each module imports only from those below it.
//!
//! | module | contents |
//! | --- | --- |
//! | `journal` | the public interface |
//! | `transaction` | the life of a transaction |
//! | `log` | the state that transactions and threads share |
//! | `log/push`, `progress`, `spin_wait`, `work` | contexts become checkpoints; group commit; the work in the background |
//! | `lists/cil` | committed items per CPU; the context lock; order |
//! | `lists/ail` | items that are not written back yet, and the tail |
//! | [`delayed_list`] | things whose changes are delayed until the end of the context |
//! | `admission/ticket`, `grant` | how much log space a transaction needs, and in which order |
//! | `admission/freeze`, `memory` | active transactions; the memory of items at most |
//! | `hooks`, `options` | callbacks to the owner; settings |
//! | `change_list` | the items of one commit, and its log space |
//! | `disk/iclog` | the head of the log, where records are written |
//! | `disk/inspect`, `known`, `recovery` | inspecting, finding the end, replaying |
//! | `disk/checkpoint`, `record` | every byte of the log (`docs/FORMAT.md`) |
//! | `read_mostly` | fields that commits read, separate from those that they write |
//! | `item`, `lsn`, `error`, `ranks` | logged objects, log sequence numbers, errors, lock classes |
//!
//! # Locks
//!
//! In ascending rank; a thread that holds one takes only locks of higher rank. No lock is held
//! during I/O, or while a hook or an item's method runs, except the client's own, and except for
//! methods whose description says that they take no lock.
//!
//! ```text
//! freeze_gate     30000   threads that wait for a thaw
//! grant_queue     30010   transactions that wait for log space
//!   budget_pool   65000
//! xc_ctx_lock     30020   commits (readers, one slot each), the switch of contexts (writer)
//!   xc_cil        30040   the list of a slot
//!     xc_cil_item 30042   the contents logged of one item
//!   xc_cil_lock   30045   the callbacks of all CPUs; only without `Scaling::busy_extents`
//! l_icloglock     30050   the writer, and up to where the log is durable
//!   ail_lock      30060   items by LSN, the tail
//! log_trace       30070   tickets of checkpoints
//! log_shutdown    30080   the error that shut the journal down
//! ```
//!
//! The right to write the log is not a lock but an object that is taken and returned (`Writer`),
//! since it is held during I/O.
//!
//! # References
//!
//! A transaction, the CIL, a checkpoint that is being written and the AIL hold references to their
//! items. The CIL and a checkpoint also hold a pin on each, which prevents it from being written
//! back. Transactions and runs of the journal's two work items hold references to the shared state.

mod admission;
mod change_list;
mod disk;
mod error;
mod hooks;
mod item;
mod journal;
mod lists;
mod log;
mod lsn;
mod options;
pub mod ranks;
mod read_mostly;
mod transaction;

#[cfg(all(test, not(shuttle)))]
mod support_tests;

pub use admission::ticket::{Reservation, TicketTrace};
pub use change_list::{ChangeList, Committed};
pub use disk::checkpoint::{Durable, Operation, Operations};
pub use disk::inspect::{Checkpoint, Inspection};
pub use disk::known::Known;
pub use disk::record::{
    FLAG_COMMIT, FLAG_START, LOG_VERSION, RECORD_BLOCKS_MAX, RECORD_MAGIC, RecordHeader,
    RecordKind, VolumeId,
};
pub use disk::recovery::{Recovered, RecoverySink};
pub use error::{Error, Result};
pub use hooks::{Delayed, Hooks, NoHooks};
pub use item::{Image, ItemState, LogItem, LogKey, LogVector, Pushed};
pub use journal::Journal;
pub use lists::delayed_list::{self, DelayedList};
pub use log::Stats;
pub use lsn::{LOG_BLOCK_BYTES, LOG_BLOCKS_MAX, LOG_BLOCKS_MIN, Lsn, Region};
pub use options::Options;
pub use transaction::{Admitted, Transaction};
