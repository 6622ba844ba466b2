//! The journal as its users see it, and the state that its parts share.

use std::collections::VecDeque;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_sync::atomic::{Ordering, thread};
use vfscale_sync::percpu::Apart;
use vfscale_sync::{Condvar, Mutex};

use crate::ail::Ail;
use crate::cil::{Cil, Commit, Inserted};
use crate::freeze::{Gate, Refused};
use crate::grant::{Grant, ReserveKind};
use crate::iclog::{self, RecordContents, Writer};
use crate::known;
use crate::lsn::{Geometry, LOG_BLOCK_BYTES, Position};
use crate::memory::Levels;
use crate::push::{LogProgress, WriterGuard};
use crate::ranks::{LogState, ShutdownLock, TicketTrace as TicketTraceLock, Workers};
use crate::read_mostly::SharedFields;
use crate::record::{self, RecordKind};
use crate::recovery;
use crate::spin_wait::SpinWait;
use crate::ticket::Costs;
use crate::{
    Error, Hooks, Known, Lsn, Options, Recovered, RecoverySink, Region, Reservation, Result,
    TicketTrace, Transaction,
};

/// Number of blocks that no transaction can reserve: for records that publish the tail, open the
/// log and close it.
pub(crate) const SET_ASIDE_BLOCKS: u32 = 32;
/// Number of checkpoints whose tickets are retained.
const TRACES: usize = 64;
/// Largest size of the CIL before it is pushed in the background, in bytes.
const CIL_BYTES_MAX: u64 = 32 << 20;

/// The identity of a volume. A log ignores records of other volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub [u8; 16]);

/// An open log. `Send` and `Sync`.
///
/// Dropping it without [`close`](Self::close) ends its threads and writes nothing more: the next
/// opening replays the durable checkpoints, like after a crash.
pub struct Journal {
    log: Arc<Log>,
    workers: Mutex<Vec<thread::JoinHandle<()>>, Workers>,
}

/// The state that transactions and threads share. Counterpart of `struct xlog` in XFS.
pub(crate) struct Log {
    pub(crate) shared: SharedFields,
    // Each of these has a lock, which must not be on a cache line that other threads read.
    pub(crate) grant: Apart<Grant>,
    pub(crate) cil: Apart<Cil>,
    pub(crate) ail: Apart<Ail>,
    gate: Apart<Gate>,
    pub(crate) costs: Costs,
    pub(crate) geometry: Geometry,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) options: Options,
    pub(crate) progress: Apart<Mutex<LogProgress, LogState>>,
    /// Notified when the writer is free, and its records are durable.
    pub(crate) log_changed: Condvar,
    /// Notified when a context was switched, so that there is room in the CIL.
    pub(crate) context_switched: Condvar,
    /// Notified when the push worker has something to do.
    pub(crate) push_wanted: Condvar,
    pub(crate) spin_wait: Apart<SpinWait>,
    error: Mutex<Option<Error>, ShutdownLock>,
    traces: Mutex<VecDeque<TicketTrace>, TicketTraceLock>,
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
    /// Number of times that a transaction has waited for memory before it began.
    pub memory_waits: u64,
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

impl Journal {
    /// Creates an empty log for `volume` in `region`, and overwrites all of the region. Returns the
    /// state that its owner records, so that the first opening need not read all of the log.
    ///
    /// # Errors
    /// [`Error::Region`] and [`Error::Device`].
    pub fn format(device: &dyn Device, region: Region, volume: VolumeId) -> Result<Known> {
        Self::renew(device, region, volume, &Known::FIRST)?;
        Ok(Known::FIRST)
    }

    /// Creates an empty log for `volume` in `region` that replaces another log, of which nothing
    /// remains: overwrites all of the region. The new log has the state `known`, is closed, and
    /// begins at the start of the region. It can be opened only after this has returned. Blocks for
    /// the I/O.
    ///
    /// # Errors
    /// [`Error::Region`] and [`Error::Device`]; [`Error::WornOut`] if no log can begin at `known`.
    pub fn renew(
        device: &dyn Device,
        region: Region,
        volume: VolumeId,
        known: &Known,
    ) -> Result<()> {
        let geometry = recovery::geometry(device, region)?;
        if known.last.block() != 0 || known.last.cycle() == 0 || known.epoch == u64::MAX {
            return Err(Error::WornOut);
        }
        // Records of an older log of the same volume must not be found. Zeros are not written
        // again, so that a sparse image stays sparse.
        let zeros = vec![0; 256 * LOG_BLOCK_BYTES];
        let mut there = zeros.clone();
        let mut at = 0;
        while at < region.length {
            let len = region.length.saturating_sub(at).min(zeros.len() as u64);
            let len = usize::try_from(len).unwrap_or(zeros.len());
            // A block that can't be read does not count as zeros.
            let is_read = device.read_at(region.offset + at, &mut there[..len]).is_ok();
            if !is_read || there[..len] != zeros[..len] {
                device.write_at(region.offset + at, &zeros[..len])?;
            }
            at += len as u64;
        }
        device.flush()?;
        // All of the former log is erased and durable, so its records can't be taken for successors
        // of this one.
        let block = iclog::first_record(geometry, volume, known);
        device.write_at(geometry.offset, &block)?;
        Ok(device.flush()?)
    }

    /// Returns the volumes that have records in `region`, whole or torn, as far as the region
    /// exists and can be read. Blocks for the I/O: it reads all of it.
    #[must_use]
    pub fn owners(device: &dyn Device, region: Region) -> Vec<VolumeId> {
        let (mut found, mut chunk) = (Vec::new(), vec![0; 256 * LOG_BLOCK_BYTES]);
        let end = device.size().min(region.offset.saturating_add(region.length));
        let mut at = region.offset;
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(chunk.len()).min(chunk.len());
            // If a part can't be read, the records around it show the same volume.
            let is_read = device.read_at(at, &mut chunk[..len]).is_ok();
            let blocks = chunk[..len].chunks_exact(LOG_BLOCK_BYTES).filter(|_| is_read);
            found.extend(blocks.filter_map(record::claimed_volume));
            found.sort_unstable();
            found.dedup();
            at += len as u64;
        }
        found
    }

    /// Opens the log of `volume` in `region`: finds its end, replays into `sink` what is not
    /// written back, and begins an epoch. The log is usable when this returns.
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::Damaged`], [`Error::BadCheckpoint`], [`Error::Stale`],
    /// [`Error::OtherLog`], [`Error::Features`]; [`Error::Device`] and errors of the sink, after
    /// which it can be tried again.
    pub fn open(
        device: Arc<dyn Device>,
        region: Region,
        volume: VolumeId,
        hooks: Arc<dyn Hooks>,
        sink: &mut dyn RecoverySink,
        options: Options,
    ) -> Result<(Self, Recovered)> {
        let geometry = recovery::geometry(&*device, region)?;
        let found = known::find(&*device, geometry, volume, &options.known)?;
        // The records that the new epoch follows must be durable before the epoch is.
        device.flush()?;
        let mut recovered = recovery::replay(&*device, geometry, volume, &found, sink)?;
        let epoch = found.epoch.checked_add(1).ok_or(Error::WornOut)?;
        recovered.epoch = epoch;
        let end = found.end(geometry);
        let mut writer = Writer::new(device, geometry, volume, epoch, end, &options);
        let opening = geometry.lsn(end.head);
        // The record before it is durable, and the only one that the opening record can refer to.
        let contents = RecordContents::plain(RecordKind::Open, opening, found.last.lsn);
        writer.write(contents, end.head + 1)?;
        writer.flush()?;
        tracing::debug!(?recovered, "log opened");
        let log = Log::new(geometry, writer, opening, found.checkpoint + 1, hooks, options);
        Ok((Self::start(Arc::new(log)), recovered))
    }

    /// Replays into `sink` what is not written back, as [`open`](Self::open) does, but does not
    /// change the log: for a caller that only reads, and stores the replayed contents elsewhere.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn replay(
        device: &dyn Device,
        region: Region,
        volume: VolumeId,
        known: &Known,
        sink: &mut dyn RecoverySink,
    ) -> Result<Recovered> {
        let geometry = recovery::geometry(device, region)?;
        let found = known::find(device, geometry, volume, known)?;
        recovery::replay(device, geometry, volume, &found, sink)
    }

    /// Returns whether a recovery would have nothing to do. Reads two blocks if the log is known to
    /// be closed.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn is_clean(
        device: &dyn Device,
        region: Region,
        volume: VolumeId,
        known: &Known,
    ) -> Result<bool> {
        let geometry = recovery::geometry(device, region)?;
        let found = known::find(device, geometry, volume, known)?;
        if found.last.kind == RecordKind::Unmount {
            return Ok(true);
        }
        let mut is_clean = true;
        recovery::checkpoints(device, geometry, volume, &found.live, |_| {
            is_clean = false;
            Ok(())
        })?;
        Ok(is_clean)
    }

    /// Returns the state of the log for its owner to record, when it is opened and when it is
    /// closed. `None` while a record is being written.
    #[must_use]
    pub fn known(&self) -> Option<Known> {
        let progress = self.log.progress.lock();
        let durable = progress.durable;
        progress.writer.as_deref().map(|writer| writer.known(durable))
    }

    /// Starts the threads.
    fn start(log: Arc<Log>) -> Self {
        let (for_log, for_ail) = (log.clone(), log.clone());
        let workers = vec![
            thread::spawn(move || for_log.push_worker()),
            thread::spawn(move || for_ail.ail_worker()),
        ];
        Self { log, workers: Mutex::new(workers) }
    }

    /// Begins a transaction: reserves its worst case. Sleeps while the journal is frozen, while log
    /// space is short, and while items that are not written back take too much memory. In the
    /// latter two cases the journal frees the space or the memory.
    ///
    /// # Errors
    /// [`Error::ReservationTooLarge`], [`Error::Shutdown`], [`Error::Closed`].
    pub fn begin(&self, reservation: Reservation) -> Result<Transaction<'_>> {
        let log = &*self.log;
        let unit = log.costs.transaction(reservation.bytes);
        let bytes = unit.saturating_mul(u64::from(reservation.count.max(1)));
        let bytes_max = log.grant.total() / 2;
        if bytes > bytes_max {
            return Err(Error::ReservationTooLarge { bytes, bytes_max });
        }
        log.check()?;
        if log.ail.is_crowded() {
            log.wait_for_memory()?;
        }
        log.gate.enter(&log.shared).map_err(|refused| log.refused(refused))?;
        if let Err(error) = log.reserve(bytes, ReserveKind::New) {
            log.leave();
            return Err(error);
        }
        Ok(Transaction::new(log, unit, reservation))
    }

    /// Makes all transactions durable that were committed up to checkpoint `sequence`
    /// ([`Committed`](crate::Committed)). Concurrent callers share one write: transactions that are
    /// committed while one checkpoint is written enter the next one together. Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Shutdown`]: the transactions may or may not be durable.
    pub fn force(&self, sequence: u64) -> Result<()> {
        self.log.force(sequence)
    }

    /// Makes all transactions durable that were committed before the call.
    ///
    /// # Errors
    /// Errors of [`force`](Self::force).
    pub fn force_all(&self) -> Result<()> {
        self.log.force_all()
    }

    /// Writes all items back that were committed before the call. Items that are committed during
    /// the call may be left. Blocks for the I/O, and while another thread is changing an item. The
    /// caller has no transaction.
    ///
    /// # Errors
    /// [`Error::Shutdown`].
    pub fn quiesce(&self) -> Result<()> {
        self.log.quiesce()
    }

    /// Stops transactions from beginning, waits until none is active, writes all items back, and
    /// covers the log: a recovery would have nothing to do. Lasts until [`thaw`](Self::thaw).
    /// Freezes nest. The caller has no transaction.
    ///
    /// # Errors
    /// [`Error::Shutdown`]; the journal is then thawed again.
    pub fn freeze(&self) -> Result<()> {
        let log = &self.log;
        log.gate.freeze(&log.shared, false);
        let frozen = log.quiesce().and_then(|()| log.cover(RecordKind::Tail));
        if frozen.is_err() {
            log.gate.thaw(&log.shared);
        }
        frozen
    }

    /// Ends a freeze.
    pub fn thaw(&self) {
        self.log.gate.thaw(&self.log.shared);
    }

    /// Waits for active transactions, refuses new ones, writes all items back, writes the record
    /// that closes the log, and ends the journal's threads. A second call does nothing.
    ///
    /// # Errors
    /// [`Error::Shutdown`]; the threads have ended nevertheless.
    pub fn close(&self) -> Result<()> {
        let log = &self.log;
        let workers = std::mem::take(&mut *self.workers.lock());
        if workers.is_empty() {
            return Ok(());
        }
        log.gate.freeze(&log.shared, true);
        let closed = log.quiesce().and_then(|()| log.cover(RecordKind::Unmount));
        self.stop(workers);
        closed
    }

    /// Ends the journal's threads, and writes no more than the record that is being written: the
    /// next opening replays the durable checkpoints, like after a crash. Every later call fails.
    /// Does nothing after [`close`](Self::close). Blocks until that record is written.
    pub fn abandon(&self) {
        let workers = std::mem::take(&mut *self.workers.lock());
        if workers.is_empty() {
            return;
        }
        self.log.shut_down(Error::Closed);
        self.stop(workers);
    }

    /// Ends the threads.
    fn stop(&self, workers: Vec<thread::JoinHandle<()>>) {
        self.log.stop_workers();
        for worker in workers {
            // A worker that panicked has shut the journal down.
            let _ = worker.join();
        }
        // After a shutdown, transactions that are committed and will never be durable are notified.
        self.log.abort_rest();
    }

    /// Shuts the journal down like an error of the device would: nothing more becomes durable, and
    /// every later call fails with `error`.
    pub fn shut_down(&self, error: Error) {
        self.log.shut_down(error);
    }

    /// Returns the error that shut the journal down, if it is shut down.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.log.error.lock().clone()
    }

    /// Returns whether the journal is shut down. Cheap: a load of a field that hardly ever changes.
    #[inline]
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.log.shared.read.is_shut.load(Ordering::Relaxed)
    }

    /// Returns the last durable checkpoint.
    #[must_use]
    pub fn durable_sequence(&self) -> u64 {
        self.log.progress.lock().durable
    }

    /// Returns whether every committed transaction is in the log or being written to it. Exact at
    /// one moment during the call; waits for commits.
    #[must_use]
    pub fn is_cil_empty(&self) -> bool {
        self.log.cil.is_empty(&self.log.shared)
    }

    /// Returns statistics, each true at a moment during the call. Visits all slots.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.log.stats()
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("geometry", &self.log.geometry).finish_non_exhaustive()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Log {
    fn new(
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
        let slots = scaling.cil_counter_slots.max(1) as u64;
        let batch = (cil_bytes / (8 * slots)).max(1);
        let costs = Costs::new(options.record_blocks());
        let opened_at = geometry.position(opening);
        let levels = Levels::of(options.memory_bytes);
        Self {
            shared: SharedFields::new(scaling.read_mostly, sequence, cil_bytes, batch),
            grant: Apart(Grant::new(usable, scaling.grant_slots)),
            cil: Apart(Cil::new(scaling, costs, levels)),
            ail: Apart(Ail::new(opening, levels)),
            gate: Apart(Gate::new(scaling.active_trans_slots)),
            costs,
            geometry,
            hooks,
            options,
            progress: Apart(Mutex::new(LogProgress::new(writer, sequence, opened_at))),
            log_changed: Condvar::new(),
            context_switched: Condvar::new(),
            push_wanted: Condvar::new(),
            spin_wait: Apart(SpinWait::new()),
            error: Mutex::new(None),
            traces: Mutex::new(VecDeque::new()),
        }
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
    fn refused(&self, refused: Refused) -> Error {
        match refused {
            Refused::Shut => self.shut_error(),
            Refused::Closed => Error::Closed,
        }
    }

    /// Reserves log space.
    pub(crate) fn reserve(&self, bytes: u64, kind: ReserveKind) -> Result<()> {
        let push_tail = || self.ail.request_tail_push();
        self.grant.take(bytes, kind, push_tail).map_err(|_| self.shut_error())
    }

    /// Waits until the memory of items that are not written back is within its bound.
    #[cold]
    fn wait_for_memory(&self) -> Result<()> {
        self.ail.wait_for_memory(|| self.shared.read.is_shut.load(Ordering::Relaxed));
        self.check()
    }

    /// Puts a transaction on the CIL.
    pub(crate) fn insert(&self, commit: &mut Commit) -> Result<Inserted> {
        self.cil.insert(&self.shared, commit)
    }

    /// Ends a transaction.
    pub(crate) fn leave(&self) {
        self.gate.leave(&self.shared);
    }

    /// Ends a commit that no longer holds any lock: wakes the push worker if the CIL is full, and
    /// waits for it if the CIL has twice its size.
    pub(crate) fn after_commit(&self, sequence: u64) {
        if self.want_push(sequence) {
            let passed = |progress: &mut LogProgress| {
                progress.begun < sequence && !self.shared.read.is_shut.load(Ordering::Relaxed)
            };
            drop(self.context_switched.wait_while(self.progress.lock(), passed));
        }
    }

    /// Wakes the push worker if the CIL is full, and the AIL's worker if a transaction waits for
    /// space. Returns whether the CIL has twice its size.
    pub(crate) fn want_push(&self, sequence: u64) -> bool {
        let bytes = self.shared.written().cil_bytes.load(Ordering::Relaxed);
        let full = self.shared.read.cil_bytes;
        if bytes >= full || self.cil.is_heavy(1) {
            let mut progress = self.progress.lock();
            if progress.wanted < sequence {
                progress.wanted = sequence;
                self.push_wanted.notify_all();
            }
        }
        if self.grant.has_waiters() {
            self.ail.request_tail_push();
        }
        bytes >= 2 * full || self.cil.is_heavy(2)
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
                // Its user dropped it, and wants no more of it to become durable.
                tracing::debug!("the journal is left as by a crash");
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
        self.push_wanted.notify_all();
        drop(progress);
        self.shut_error()
    }

    fn stop_workers(&self) {
        let mut progress = self.progress.lock();
        progress.is_stopped = true;
        self.push_wanted.notify_all();
        drop(progress);
        self.ail.stop();
    }

    /// Stores the ticket of a checkpoint.
    pub(crate) fn trace(&self, ticket: TicketTrace) {
        tracing::debug!(
            sequence = ticket.sequence,
            items = ticket.items,
            reserved = ticket.reserved,
            used = ticket.used,
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

    fn stats(&self) -> Stats {
        let tickets = self.traces.lock().iter().copied().collect();
        let lsn = |position: Position| self.geometry.lsn(position);
        let progress = self.progress.lock();
        let (head, durable_tail) = (lsn(progress.head), lsn(progress.durable_tail));
        let (checkpoints, writes, flushes) =
            (progress.checkpoints, progress.writes, progress.flushes);
        drop(progress);
        let (ail_bytes, memory_waits) = self.ail.memory();
        Stats {
            commits: self.cil.commits(),
            checkpoints,
            log_writes: writes,
            log_flushes: flushes,
            ail_items: self.ail.len() as u64,
            ail_bytes,
            memory_waits,
            active: self.gate.active(&self.shared),
            grant_total: self.grant.total(),
            grant_used: self.grant.used(),
            head,
            tail: self.ail.tail().0,
            durable_tail,
            tickets,
        }
    }

    /// Takes the writer, which makes the caller the only thread that writes the log. Sleeps while
    /// another thread holds it.
    pub(crate) fn writer(&self) -> Result<WriterGuard<'_>> {
        let mut progress = self.progress.lock();
        loop {
            self.check()?;
            if let Some(writer) = progress.writer.take() {
                return Ok(WriterGuard::new(self, writer));
            }
            progress = self.log_changed.wait(progress);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
