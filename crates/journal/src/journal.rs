//! The journal as its users see it.

use std::slice::from_ref;
use std::sync::Arc;

use vfscale_block::Device;
use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::cpu;

use crate::admission::grant::ReserveKind;
use crate::disk::iclog::Writer;
use crate::disk::known;
use crate::disk::record::{self, RecordKind};
use crate::disk::recovery;
use crate::log::{Log, Stats};
use crate::lsn::LOG_BLOCK_BYTES;
use crate::{
    Admitted, Error, Hooks, Known, Options, Recovered, RecoverySink, Region, Reservation, Result,
    Transaction, VolumeId,
};

/// An open log. `Send` and `Sync`.
///
/// Dropping it without [`close`](Self::close) ends its work and writes nothing more: the next
/// opening replays the durable checkpoints, like after a crash.
pub struct Journal {
    log: Arc<Log>,
    /// Whether a thread has begun to end it.
    is_over: AtomicBool,
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
        // Nothing is erased for a region that is refused.
        recovery::geometry(device, region)?;
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
        Self::begin_new(device, region, volume, known)?;
        Ok(device.flush()?)
    }

    /// Reserves storage for all of a log in `region`, so that writes of it don't fail for lack of
    /// storage. Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn reserve(device: &dyn Device, region: Region) -> Result<()> {
        let range = region.offset..region.offset.saturating_add(region.length);
        Ok(device.reserve_ranges(from_ref(&range))?)
    }

    /// Writes the first record of a log whose state is `known`. Does not flush.
    ///
    /// # Errors
    /// [`Error::Region`] and [`Error::Device`].
    pub(crate) fn begin_new(
        device: &dyn Device,
        region: Region,
        volume: VolumeId,
        known: &Known,
    ) -> Result<()> {
        let geometry = recovery::geometry(device, region)?;
        Ok(device.write_at(geometry.offset, &known::first_record(geometry, volume, known))?)
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
    /// written back, and begins an epoch, unless it may do so later ([`Options::opens_late`]). The
    /// log is usable when this returns.
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::Damaged`], [`Error::BadCheckpoint`], [`Error::Stale`],
    /// [`Error::OtherLog`], [`Error::Features`]; [`Error::Device`], [`Error::EndUnread`] and errors
    /// of the sink, after which it can be tried again.
    pub fn open(
        device: Arc<dyn Device>,
        region: Region,
        volume: VolumeId,
        hooks: Arc<dyn Hooks>,
        sink: &mut dyn RecoverySink,
        options: Options,
    ) -> Result<(Self, Recovered)> {
        let geometry = recovery::geometry(&*device, region)?;
        let (known, is_unused, may_cut) = (&options.known, options.is_unused, options.may_cut);
        let (found, is_late) = match options.opens_late {
            true => known::find_late(&*device, geometry, volume, known, is_unused, may_cut)?,
            false => (known::find(&*device, geometry, volume, known, may_cut)?, false),
        };
        let mut recovered = if is_late {
            sink.begin(found.last.lsn)?;
            found.replayed_nothing()
        } else {
            // The records that the new epoch follows must be durable before the epoch is.
            device.flush()?;
            let recovered = recovery::replay(&*device, geometry, volume, &found, sink)?;
            recovery::clear_unread(&*device, geometry, &found)?;
            recovered
        };
        let epoch = found.epoch.checked_add(1).ok_or(Error::WornOut)?;
        recovered.epoch = epoch;
        let end = found.end(geometry);
        let (record_blocks, device_id) = (options.record_blocks(), options.known.device);
        let mut writer =
            Writer::new(device, geometry, volume, epoch, end, record_blocks, device_id);
        let opening = geometry.lsn(end.head);
        if !is_late {
            writer.begin_epoch()?;
        }
        tracing::debug!(?recovered, is_late, "log opened");
        let log = Log::new(geometry, writer, opening, found.checkpoint + 1, hooks, options);
        log.shared.read.has_epoch.store(!is_late, Ordering::Release);
        Ok((Self::start(Arc::new(log)), recovered))
    }

    /// Replays into `sink` what is not written back, as [`open`](Self::open) does, but does not
    /// change the log: for a caller that only reads, and stores the replayed contents elsewhere. If
    /// `may_cut`, the log ends where it can't be read any further ([`Options::may_cut`]).
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn replay(
        device: &dyn Device,
        region: Region,
        volume: VolumeId,
        known: &Known,
        may_cut: bool,
        sink: &mut dyn RecoverySink,
    ) -> Result<Recovered> {
        let geometry = recovery::geometry(device, region)?;
        let found = known::find(device, geometry, volume, known, may_cut)?;
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
        let found = known::find(device, geometry, volume, known, false)?;
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

    /// Returns whether the epoch of this opening has begun: at once, or with the first transaction
    /// ([`Options::opens_late`]). If not, the log is closed as it was before the opening.
    #[must_use]
    pub fn has_epoch(&self) -> bool {
        self.log.has_epoch()
    }

    /// Returns the state of the log for its owner to record, when it is opened and when it is
    /// closed. `None` while a record is being written, and before the epoch has begun.
    #[must_use]
    pub fn known(&self) -> Option<Known> {
        let progress = self.log.progress.lock();
        let durable = progress.durable;
        let writer = progress.writer.as_deref().filter(|_| self.log.has_epoch());
        writer.map(|writer| writer.known(durable))
    }

    /// Begins the work in the background.
    fn start(log: Arc<Log>) -> Self {
        log.start_work();
        Self { log, is_over: AtomicBool::new(false) }
    }

    /// Begins a transaction: reserves its worst case. Sleeps while the journal is frozen, while log
    /// space is short, while items that are not written back take too much memory, and while the
    /// CIL has twice the size that triggers a push, until a push has begun. In the latter three
    /// cases the journal frees the space or the memory.
    ///
    /// # Errors
    /// [`Error::ReservationTooLarge`], [`Error::Full`], [`Error::Shutdown`], [`Error::Closed`].
    pub fn begin(&self, reservation: Reservation) -> Result<Transaction<'_>> {
        let admitted = self.admit_if(reservation, || true)?;
        Ok(admitted.ok_or(Error::Closed)?.begin())
    }

    /// Admits a transaction like [`begin`](Self::begin), if `may_begin` says so once the journal is
    /// not frozen: what a thread has changed while it was frozen is seen there. Otherwise returns
    /// `None`, and has written nothing.
    ///
    /// # Errors
    /// Returns the errors of [`begin`](Self::begin).
    pub fn admit_if(
        &self,
        reservation: Reservation,
        may_begin: impl FnOnce() -> bool,
    ) -> Result<Option<Admitted<'_>>> {
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
        if log.is_cil_crowded() {
            log.wait_for_push()?;
        }
        let cpu = cpu::current();
        log.gate.enter(cpu, &log.shared).map_err(|refused| log.refused(refused))?;
        if !may_begin() {
            log.leave(cpu);
            return Ok(None);
        }
        let begun = if log.has_epoch() { Ok(()) } else { log.begin_epoch() };
        if let Err(error) = begun.and_then(|()| log.reserve(cpu, bytes, ReserveKind::New)) {
            log.leave(cpu);
            return Err(error);
        }
        Ok(Some(Admitted::new(log, unit, reservation)))
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

    /// Returns the most blocks that writing back would write now: those of the items that are
    /// committed and not written back. An item counts twice if it was logged again since it became
    /// durable in the log. Items of transactions that end during the call may be missing.
    #[must_use]
    pub fn unwritten_blocks(&self) -> u64 {
        // First: of an item that is settled in between, both counts have to be newer, or neither.
        let settled = self.log.ail.settled();
        self.log.cil.homes().saturating_sub(settled)
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

    /// Stops transactions from beginning, waits until none is active, and makes all that were
    /// committed durable. Nothing is written back, in contrast to [`freeze`](Self::freeze): a
    /// recovery would replay what is in the log. Lasts until [`thaw`](Self::thaw), and nests with
    /// freezes. Blocks for the I/O. The caller has no transaction.
    ///
    /// # Errors
    /// [`Error::Shutdown`]; the journal is then thawed again.
    pub fn cut(&self) -> Result<()> {
        let log = &self.log;
        log.gate.freeze(&log.shared, false);
        let forced = log.force_all();
        if forced.is_err() {
            log.gate.thaw(&log.shared);
        }
        forced
    }

    /// Ends a freeze, or a cut.
    pub fn thaw(&self) {
        self.log.gate.thaw(&self.log.shared);
    }

    /// Waits for active transactions, refuses new ones, writes all items back, writes the record
    /// that closes the log, and ends the journal's work. A second call does nothing.
    ///
    /// # Errors
    /// [`Error::Shutdown`]; the work has ended nevertheless.
    pub fn close(&self) -> Result<()> {
        let log = &self.log;
        if self.is_over.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        log.gate.freeze(&log.shared, true);
        let closed = log.quiesce().and_then(|()| log.cover(RecordKind::Unmount));
        self.stop();
        if closed.is_ok() {
            debug_assert!(self.is_cil_empty(), "a transaction came to a closed journal");
            debug_assert_eq!(log.ail.len(), 0, "a closed journal has items to write back");
        }
        closed
    }

    /// Ends the journal's work, and writes no more than the record that is being written: the
    /// next opening replays the durable checkpoints, like after a crash. Every later call fails.
    /// Does nothing after [`close`](Self::close). Blocks until that record is written.
    pub fn abandon(&self) {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.log.shut_down(Error::Closed);
        self.stop();
    }

    /// Ends the work.
    fn stop(&self) {
        self.log.stop_work();
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

#[cfg(all(test, not(shuttle)))]
mod tests;
