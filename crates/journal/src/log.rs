//! The state that transactions and the journal's work in the background share.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, OnceLock};

use vfscale_sync::atomic::Ordering;
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::{Condvar, Mutex, cpu};

use crate::admission::freeze::{Gate, Refused};
use crate::admission::grant::{Grant, ReserveKind, Unserved};
use crate::admission::memory::Levels;
use crate::admission::ticket::{Costs, signed};
use crate::change_list::ChangeList;
use crate::disk::iclog::Writer;
use crate::lists::ail::Ail;
use crate::lists::cil::{Cil, Inserted};
use crate::log::progress::{LogProgress, SET_ASIDE_BLOCKS};
use crate::log::spin_wait::SpinWait;
use crate::log::work::LogWork;
use crate::lsn::{Geometry, LOG_BLOCK_BYTES, Position};
use crate::ranks::{LogState, ShutdownLock, TicketTrace as TicketTraceLock};
use crate::read_mostly::SharedFields;
use crate::{Committed, Delayed, Error, Hooks, Lsn, Options, Result, TicketTrace};

pub(crate) mod progress;
pub(crate) mod push;
pub(crate) mod spin_wait;
pub(crate) mod work;

/// Number of checkpoints whose tickets are retained.
const TRACES: usize = 64;
/// Largest size of the CIL before it is pushed in the background, in bytes.
const CIL_BYTES_MAX: u64 = 32 << 20;

/// The state that transactions and threads share. Counterpart of `struct xlog` in XFS.
pub(crate) struct Log {
    pub(crate) shared: SharedFields,
    // Each of these has a lock, which must not be on a cache line that other threads read.
    pub(crate) grant: CachePadded<Grant>,
    pub(crate) cil: CachePadded<Cil>,
    pub(crate) ail: CachePadded<Ail>,
    pub(crate) gate: CachePadded<Gate>,
    pub(crate) costs: Costs,
    pub(crate) geometry: Geometry,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) options: Options,
    pub(crate) progress: CachePadded<Mutex<LogProgress, LogState>>,
    /// Notified when the writer is free, and its records are durable.
    pub(crate) log_changed: Condvar,
    /// Notified when a context was switched, which makes room in the CIL.
    pub(crate) context_switched: Condvar,
    /// The journal's work items; none while it is being opened.
    pub(crate) work: OnceLock<LogWork>,
    pub(crate) spin_wait: CachePadded<SpinWait>,
    pub(crate) error: Mutex<Option<Error>, ShutdownLock>,
    traces: Mutex<VecDeque<TicketTrace>, TicketTraceLock>,
}

impl Delayed for Log {
    fn begin(&self) -> ChangeList {
        ChangeList::new(self.costs, 0)
    }

    fn commit(&self, changes: &mut ChangeList) -> Result<Committed> {
        self.commit(cpu::current(), changes)
    }
}

/// Statistics of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of transactions that were committed since the journal was opened.
    pub commits: u64,
    /// Number of checkpoints that became durable.
    pub checkpoints: u64,
    /// Number of writes of the log device.
    pub log_writes: u64,
    /// Number of flushes of the log device.
    pub log_flushes: u64,
    /// Number of items in the AIL.
    pub ail_items: u64,
    /// Memory of the items in the AIL, in bytes.
    pub ail_bytes: u64,
    /// Number of times that a transaction has waited for log space.
    pub space_waits: u64,
    /// Number of times that a transaction has waited for memory before it began.
    pub memory_waits: u64,
    /// Number of times that a transaction has waited for a push of the CIL before it began.
    pub push_waits: u64,
    /// Number of active transactions; for a moment it includes those that the freeze gate refuses.
    pub active: i64,
    /// Total log space, in bytes.
    pub grant_total: u64,
    /// Log space that is reserved or on the log, in bytes.
    pub grant_used: u64,
    /// LSN of the next record.
    pub head: Lsn,
    /// The tail in memory.
    pub tail: Lsn,
    /// The tail that the latest durable record names.
    pub durable_tail: Lsn,
    /// Tickets of the latest checkpoints, at most 64.
    pub tickets: Vec<TicketTrace>,
}

impl Log {
    pub(crate) fn new(
        geometry: Geometry,
        writer: Writer,
        opening: Lsn,
        sequence: u64,
        hooks: Arc<dyn Hooks>,
        options: Options,
    ) -> Self {
        let scaling = &options.scaling;
        let block = LOG_BLOCK_BYTES as u64;
        let log_bytes = u64::from(geometry.blocks) * block;
        let usable = log_bytes - u64::from(SET_ASIDE_BLOCKS) * block;
        let cil_bytes = options.cil_bytes.unwrap_or(log_bytes / 8).clamp(1, CIL_BYTES_MAX);
        let slots = scaling.cil_counter_slots().max(1) as u64;
        let batch = (cil_bytes / (8 * slots)).max(1);
        let costs = Costs::new(options.record_blocks());
        let opened_at = geometry.position(opening);
        let levels = Levels::of(options.memory_bytes);
        Self {
            shared: SharedFields::new(scaling.read_mostly(), sequence, cil_bytes, batch),
            grant: CachePadded::new(Grant::new(usable, scaling.log_space_slots())),
            cil: CachePadded::new(Cil::new(scaling, costs, levels)),
            ail: CachePadded::new(Ail::new(opening, levels)),
            gate: CachePadded::new(Gate::new(scaling.active_trans_slots())),
            costs,
            geometry,
            hooks,
            options,
            progress: CachePadded::new(Mutex::new(LogProgress::new(writer, sequence, opened_at))),
            log_changed: Condvar::new(),
            context_switched: Condvar::new(),
            work: OnceLock::new(),
            spin_wait: CachePadded::new(SpinWait::new()),
            error: Mutex::new(None),
            traces: Mutex::new(VecDeque::new()),
        }
    }

    /// Returns whether the epoch has begun.
    #[inline]
    pub(crate) fn has_epoch(&self) -> bool {
        self.shared.read.has_epoch.load(Ordering::Acquire)
    }

    /// Begins the epoch of a log that was opened late, for the first transactions, which have
    /// entered the gate.
    #[cold]
    pub(crate) fn begin_epoch(&self) -> Result<()> {
        self.writer()?.begin_epoch()
    }

    /// Returns the error that shut the journal down, if it is shut down.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.shared.read.is_shut.load(Ordering::Relaxed) {
            return Err(self.shut_error());
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn shut_error(&self) -> Error {
        match &*self.error.lock() {
            Some(error) => Error::Shutdown(Arc::new(error.clone())),
            None => Error::Closed,
        }
    }

    #[cold]
    pub(crate) fn refused(&self, refused: Refused) -> Error {
        match refused {
            Refused::Shut => self.shut_error(),
            Refused::Closed => Error::Closed,
        }
    }

    /// Reserves log space, on a CPU.
    pub(crate) fn reserve(&self, cpu: u32, bytes: u64, kind: ReserveKind) -> Result<()> {
        let push_tail = || self.request_tail_push();
        self.grant.take(cpu, bytes, kind, push_tail).map_err(|why| match why {
            Unserved::Shut => self.shut_error(),
            Unserved::Refused => Error::Full,
        })
    }

    /// Waits until the memory of items that are not written back is within its bound.
    #[cold]
    pub(crate) fn wait_for_memory(&self) -> Result<()> {
        self.ail.wait_for_memory(|| self.shared.read.is_shut.load(Ordering::Relaxed));
        self.check()
    }

    /// Puts changes on the CIL of a CPU, and returns the unneeded part of their reservation. Does
    /// no I/O.
    pub(crate) fn commit(&self, cpu: u32, changes: &mut ChangeList) -> Result<Committed> {
        self.check()?;
        if changes.items.is_empty() && changes.callbacks.is_empty() {
            self.grant.give(cpu, mem::take(&mut changes.left));
            return Ok(Committed { sequence: 0, order: 0 });
        }
        for (item, vector) in &mut changes.items {
            if vector.is_empty() {
                item.format(vector);
            }
        }
        let inserted = self.cil.insert(cpu, &self.shared, changes);
        let left = mem::take(&mut changes.left);
        changes.follows = 0;
        match inserted {
            Ok(Inserted { sequence, given, order }) => {
                // A commit that takes space back returns that as well.
                self.grant.give(cpu, left.wrapping_add_signed(-given));
                Ok(Committed { sequence, order })
            }
            Err(error) => Err(self.shut_down(error)),
        }
    }

    /// Ends a transaction, on a CPU.
    pub(crate) fn leave(&self, cpu: u32) {
        self.gate.leave(cpu, &self.shared);
    }

    /// Returns whether the CIL has `times` the size that triggers a push. Only the switch of the
    /// context, and before it commits, change that.
    #[inline]
    fn is_cil_full(&self, times: u64) -> bool {
        let bytes = self.shared.written().cil_bytes.load(Ordering::Relaxed);
        bytes >= signed(times * self.shared.read.cil_bytes) || self.cil.is_heavy(times)
    }

    /// Returns whether the CIL is so large that no transaction may begin until a push has.
    #[inline]
    pub(crate) fn is_cil_crowded(&self) -> bool {
        self.is_cil_full(2)
    }

    /// Waits until a push has taken a CIL that is too large. The commit that made it so large has
    /// queued the push, which needs no lock of the caller and no transaction.
    #[cold]
    pub(crate) fn wait_for_push(&self) -> Result<()> {
        // The push empties the CIL before it takes the lock and wakes the waiting threads.
        let is_waiting = |_: &mut LogProgress| {
            self.is_cil_crowded() && !self.shared.read.is_shut.load(Ordering::Relaxed)
        };
        let mut progress = self.progress.lock();
        if is_waiting(&mut progress) {
            progress.push_waits += 1;
            drop(self.context_switched.wait_while(progress, is_waiting));
        }
        self.check()
    }

    /// Queues the push if the CIL is full, and the AIL push if a transaction waits for space.
    pub(crate) fn want_push(&self, sequence: u64) {
        if self.is_cil_full(1) {
            let mut progress = self.progress.lock();
            let is_new = progress.wanted < sequence;
            progress.wanted = progress.wanted.max(sequence);
            drop(progress);
            if is_new {
                self.queue_push();
            }
        }
        if self.grant.has_waiters() {
            self.request_tail_push();
        }
    }

    /// Shuts the journal down, unless it is already, and wakes every waiting thread. Returns the
    /// error for later callers.
    #[cold]
    pub(crate) fn shut_down(&self, error: Error) -> Error {
        let mut first = self.error.lock();
        if matches!(error, Error::Shutdown(_)) {
            return error;
        }
        if first.is_none() {
            if matches!(error, Error::Closed) {
                // Its user dropped it: no more changes become durable.
                tracing::debug!("the journal is dropped without closing it");
            } else {
                tracing::error!(%error, "the journal is shut down");
            }
            *first = Some(error);
        }
        self.shared.read.is_shut.store(true, Ordering::SeqCst);
        drop(first);
        self.grant.shut();
        self.gate.wake();
        self.ail.wake();
        let progress = self.progress.lock();
        self.log_changed.notify_all();
        self.context_switched.notify_all();
        drop(progress);
        self.queue_push();
        self.shut_error()
    }

    /// Stores the ticket of a checkpoint.
    pub(crate) fn trace(&self, ticket: TicketTrace) {
        tracing::debug!(
            sequence = ticket.sequence,
            items = ticket.items,
            reserved = ticket.reserved,
            used = ticket.used,
            spared = ticket.spared,
            returned = ticket.returned,
            records = ticket.records,
            "checkpoint ticket"
        );
        let mut traces = self.traces.lock();
        if traces.len() == TRACES {
            traces.pop_front();
        }
        traces.push_back(ticket);
    }

    pub(crate) fn stats(&self) -> Stats {
        let tickets = self.traces.lock().iter().copied().collect();
        let lsn = |position: Position| self.geometry.lsn(position);
        let progress = self.progress.lock();
        let (head, durable_tail) = (lsn(progress.head), lsn(progress.durable_tail));
        let (checkpoints, writes, flushes) =
            (progress.checkpoints, progress.writes, progress.flushes);
        let push_waits = progress.push_waits;
        drop(progress);
        let (ail_bytes, memory_waits) = self.ail.memory();
        Stats {
            commits: self.cil.commits(),
            checkpoints,
            log_writes: writes,
            log_flushes: flushes,
            ail_items: self.ail.len() as u64,
            ail_bytes,
            space_waits: self.grant.waits(),
            memory_waits,
            push_waits,
            active: self.gate.active(&self.shared),
            grant_total: self.grant.total(),
            grant_used: self.grant.used(),
            head,
            tail: self.ail.tail().0,
            durable_tail,
            tickets,
        }
    }
}
