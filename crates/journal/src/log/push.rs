//! The push, which writes a context to disk as a checkpoint, and the write-back of durable items.
//!
//! # Roles of threads
//!
//! * A thread that forces the log and finds the writer free pushes itself. Other threads that force
//!   during that time sleep until it is done; then one of them pushes all transactions that were
//!   committed in between. This is group commit: any number of callers share one write and one
//!   flush. One of the waiting threads spins if pushes are fast
//!   ([`spin_wait`](crate::log::spin_wait)). If they are slow, the first thread waits for as many
//!   as forced the log the last time (see [`GroupCommit`](crate::log::progress::GroupCommit)).
//! * Two work items of the journal run on the threads of the process
//!   ([`worker`](vfscale_sync::worker)), one run of each at a time. The *push* pushes when the CIL
//!   is full, and after the sync interval.
//! * The *AIL push* writes items back when half of the log is used or a transaction waits for
//!   space. It first pushes pinned items to the log. It also writes back the oldest items when
//!   items take much memory ([`memory`](crate::admission::memory)).
//!
//! When storage is short below the device, an item can't be written back, but the log has it: the
//! item stays in the AIL, and the next AIL push tries again. Only if a transaction waits for what
//! the item occupies, log space or memory, does the error shut the journal down.
//!
//! Transactions wait for both, so both have [`Priority::High`](vfscale_sync::worker::Priority): a
//! thread at once, whatever other volumes do. Neither waits for the other to get a thread: the AIL
//! push takes the writer and pushes itself, or waits for the thread that has the writer and so
//! runs.
//!
//! # Order of a checkpoint
//!
//! 1. The owner logs delayed changes ([`Hooks::run_delayed`](crate::Hooks::run_delayed)). The
//!    context is switched under the writer's side of the context lock, if there are no others: from
//!    then on commits enter the next one.
//! 2. Its records are written, without the zeros at the ends of images, which are reserved all the
//!    same ([`Image::bytes_used`](crate::Image::bytes_used)); the last one after
//!    [`Hooks::before_commit_record`](crate::Hooks::before_commit_record).
//! 3. One flush, of which the owner is told before and after: it may cover the owner's writes.
//! 4. Items enter the AIL, so that the tail accounts for them; then they are unpinned.
//! 5. Hooks and callbacks are called, then waiting threads are woken; and excess reservation is
//!    returned.
//!
//! Any failure before step 4 shuts the journal down: no success is reported, and no item of the
//! checkpoint is written back, for they stay pinned.

use std::sync::{Arc, Weak};
use std::time::Instant;

use vfscale_sync::atomic::{Ordering, thread};
use vfscale_sync::cpu;
use vfscale_sync::prefetch::{prefetch, soon};

use crate::disk::checkpoint::{OP_ALIGN, checkpoint_header, op_header};
use crate::disk::iclog::{RecordContents, Stream, WriteLimits, Writer};
use crate::disk::record::{FEATURE_SHORT, RecordKind};
use crate::item::Pushed;
use crate::lists::ail::Goal;
use crate::lists::cil::{Context, Entry, Switch};
use crate::log::Log;
use crate::log::progress::SET_ASIDE_BLOCKS;
use crate::log::spin_wait::GroupDeadline;
use crate::log::work::LogWork;
use crate::lsn::Position;
use crate::{Durable, Error, Lsn, Result, TicketTrace};

/// The exclusive right to write the log, until it is dropped.
pub(crate) struct WriterGuard<'i> {
    log: &'i Log,
    /// `Some` until the drop.
    writer: Option<Box<Writer>>,
    /// Whether a context was taken that is not durable yet.
    has_open_context: bool,
}

/// A checkpoint that is on the device.
struct WrittenCheckpoint {
    durable: Durable,
    tail: Lsn,
    used: u64,
    spared: u64,
    records: u64,
}

impl<'i> WriterGuard<'i> {
    pub(crate) fn new(log: &'i Log, writer: Box<Writer>) -> Self {
        Self { log, writer: Some(writer), has_open_context: false }
    }

    /// Begins the epoch of a log that was opened late, unless another thread has.
    pub(crate) fn begin_epoch(&mut self) -> Result<()> {
        let log = self.log;
        if log.has_epoch() {
            return Ok(());
        }
        let durable = log.progress.lock().durable;
        let Some(writer) = self.writer.as_deref_mut() else { return Err(Error::Closed) };
        // The records that the epoch follows must be durable before it is.
        let begun = writer.flush().and_then(|()| writer.begin_epoch());
        let begun = begun.and_then(|()| log.hooks.epoch_begun(writer.known(durable)));
        begun.map_err(|error| log.shut_down(error))?;
        log.shared.read.has_epoch.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes all committed transactions a durable checkpoint. Returns `None` if there are none.
    pub(crate) fn push(&mut self) -> Result<Option<Durable>> {
        match self.end_context() {
            Ok(Some(context)) => self.push_context(context).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(self.log.shut_down(error)),
        }
    }

    /// Has the owner log the delayed changes, and ends the context. Returns `None` if it is empty.
    fn end_context(&self) -> Result<Option<Context>> {
        let log = self.log;
        loop {
            log.hooks.run_delayed(log)?;
            let context = match log.cil.switch(&log.shared, || log.hooks.has_delayed()) {
                Switch::Taken(context) => Some(context),
                Switch::Empty => None,
                // A transaction that had begun to commit before has delayed a change, or is about
                // to, and may wait for this CPU.
                Switch::Delayed => {
                    thread::yield_now();
                    continue;
                }
            };
            log.hooks.context_ended(context.as_ref().map_or(0, |context| context.entries.len()));
            return Ok(context);
        }
    }

    /// Makes a context that was switched a durable checkpoint.
    pub(crate) fn push_context(&mut self, context: Context) -> Result<Durable> {
        let log = self.log;
        let started = Instant::now();
        let mut progress = log.progress.lock();
        progress.begun = context.sequence;
        log.context_switched.notify_all();
        let limit = progress.durable_tail + u64::from(log.geometry.blocks);
        drop(progress);
        self.has_open_context = true;
        let pushed = match self.write(&context, limit) {
            Ok(written) => {
                let durable = written.durable;
                self.complete(context, &written);
                Ok(durable)
            }
            Err(error) => {
                let error = log.shut_down(error);
                abort(context, &error);
                Err(error)
            }
        };
        self.has_open_context = false;
        log.spin_wait.note_push(started.elapsed());
        pushed
    }

    /// Writes the records of a context, and makes them durable. No block from `limit` on may be
    /// written.
    fn write(&mut self, context: &Context, limit: Position) -> Result<WrittenCheckpoint> {
        let log = self.log;
        log.check()?;
        let (sequence, bytes) = (context.sequence, context.stream_bytes);
        let used = log.costs.stream(bytes);
        let counted = log.costs.stream(bytes + context.spared_bytes);
        if counted > context.reserved {
            let reserved = context.reserved;
            return Err(Error::Underrun { sequence, needed: counted, reserved });
        }
        let Some(writer) = self.writer.as_deref_mut() else { return Err(Error::Closed) };
        let limits =
            || WriteLimits { tail_lsn: log.ail.tail().0, sync_lsn: log.ail.sync_lsn(), limit };
        let before_commit = || log.hooks.before_commit_record(sequence);
        let features = if context.spared_bytes > 0 { FEATURE_SHORT } else { 0 };
        let mut stream = Stream::new(writer, (sequence, features), bytes, limits, before_commit);
        stream.put(&checkpoint_header(sequence, context.entries.len() as u64, bytes))?;
        for (at, entry) in context.entries.iter().enumerate() {
            soon(&context.entries, at, |later| later.vector.prefetch());
            let len = entry.bytes;
            stream.put(&op_header(entry.key, &entry.vector, len))?;
            entry.vector.write(&mut |bytes| stream.put(bytes.get(..len).unwrap_or(bytes)))?;
            stream.put(&[0; OP_ALIGN][..len.next_multiple_of(OP_ALIGN) - len])?;
        }
        let (lsn, commit_lsn) = stream.lsns();
        let (tail, records) = (stream.tail_lsn, stream.records);
        drop(stream);
        log.hooks.flush_begins();
        writer.flush()?;
        let durable = Durable { sequence, lsn, commit_lsn };
        Ok(WrittenCheckpoint { durable, tail, used, spared: counted - used, records })
    }

    /// Completes a context that is durable: steps 4 and 5.
    fn complete(&mut self, context: Context, written: &WrittenCheckpoint) {
        let log = self.log;
        let Durable { sequence, lsn, commit_lsn } = written.durable;
        let items = context.entries.len() as u64;
        let all = context.entries.iter().enumerate().map(|(at, entry)| {
            soon(&context.entries, at, |later| prefetch(later.item.state()));
            entry.item.clone()
        });
        if log.ail.insert(all, lsn, commit_lsn) {
            log.queue_ail_push();
        }
        let mut entries = context.entries.into_iter();
        while let Some(entry) = entries.next() {
            soon(entries.as_slice(), 0, Entry::prefetch);
            entry.item.committed(lsn);
            entry.item.state().unpin();
        }
        log.hooks.on_durable(written.durable);
        for callback in context.callbacks {
            callback(Ok(written.durable));
        }
        let head = self.writer.as_ref().map_or(0, |writer| writer.head());
        let mut progress = log.progress.lock();
        let freed = progress.move_tail(log.geometry.position(written.tail));
        progress.durable = sequence;
        progress.checkpoints += 1;
        progress.group.end_round();
        let is_half_full = head - progress.durable_tail > u64::from(log.geometry.blocks / 2);
        // Waiting threads are woken once and not twice: when the writer is free, in a moment.
        drop(progress);
        let spared = written.spared;
        let returned = context.reserved - written.used - spared;
        log.grant.give(cpu::current(), returned + spared + freed);
        log.trace(TicketTrace {
            sequence,
            items,
            reserved: context.reserved,
            used: written.used,
            spared,
            returned,
            records: written.records,
        });
        if is_half_full || log.grant.has_waiters() {
            log.request_tail_push();
        }
    }

    /// Writes a record that names the tail, and makes it durable. If no item is left to be written
    /// back it names itself, and a recovery has nothing to do. Does nothing if it would only repeat
    /// the last record, or if many such records already exist.
    pub(crate) fn publish(&mut self, kind: RecordKind) -> Result<()> {
        let log = self.log;
        if !log.has_epoch() {
            // The log is still closed.
            return Ok(());
        }
        let Some(writer) = self.writer.as_deref_mut() else { return Err(Error::Closed) };
        let (mut tail, is_written_back) = log.ail.tail();
        let progress = log.progress.lock();
        let says_nothing_new = is_written_back && progress.durable_tail + 1 == writer.head();
        let too_many =
            progress.unreserved.len() >= (SET_ASIDE_BLOCKS / 2) as usize && !is_written_back;
        let limit = progress.durable_tail + u64::from(log.geometry.blocks);
        drop(progress);
        if kind == RecordKind::Tail && (says_nothing_new || too_many) {
            return Ok(());
        }
        let position = writer.head();
        if is_written_back {
            // This thread holds the writer, so all records are durable, and all items are written
            // back.
            tail = writer.head_lsn();
        }
        let lsn = writer.write(RecordContents::plain(kind, tail, log.ail.sync_lsn()), limit)?;
        writer.flush()?;
        log.ail.set_sync_lsn(lsn);
        let mut progress = log.progress.lock();
        progress.unreserved.push_back(position);
        let freed = progress.move_tail(log.geometry.position(tail));
        drop(progress);
        log.grant.give(cpu::current(), freed);
        Ok(())
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        if self.has_open_context {
            // A hook or an item panicked: the entries that were taken off the lists are lost, and
            // must not count as durable.
            self.log.shut_down(Error::Panicked);
        }
        let mut progress = self.log.progress.lock();
        if let Some(writer) = &self.writer {
            (progress.head, progress.writes, progress.flushes) =
                (writer.head(), writer.writes, writer.flushes);
        }
        progress.writer = self.writer.take();
        self.log.spin_wait.note_end();
        self.log.log_changed.notify_all();
        drop(progress);
        if self.log.check().is_err() {
            // Committed transactions will never be durable, and must be notified of it.
            self.log.queue_push();
        }
    }
}

/// A guard that shuts the journal down if a run of its items panics: what it had begun is not done.
struct ShutOnPanic<'i>(&'i Log);

impl Drop for ShutOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shut_down(Error::Panicked);
        }
    }
}

/// Notifies the items and callbacks of a context that will never be durable. Its items stay pinned,
/// so that none is written back.
fn abort(context: Context, why: &Error) {
    for entry in &context.entries {
        entry.item.aborted(why);
    }
    for callback in context.callbacks {
        callback(Err(why.clone()));
    }
}

impl Log {
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

    /// Implements [`Journal::force`](crate::Journal::force).
    pub(crate) fn force(&self, sequence: u64) -> Result<()> {
        // A context that has not begun can't be waited for.
        let sequence = sequence.min(self.shared.read.sequence.load(Ordering::Acquire));
        let mut progress = self.progress.lock();
        let (mut may_spin, mut seen, mut deadline) = (true, None, GroupDeadline::default());
        loop {
            if progress.durable >= sequence {
                return Ok(());
            }
            self.check()?;
            progress.group.count(&mut seen);
            if progress.writer.is_none() {
                if std::mem::take(&mut may_spin) {
                    let ended = self.spin_wait.ended();
                    drop(progress);
                    self.spin_wait.spin(ended);
                    progress = self.progress.lock();
                } else {
                    progress = self.log_changed.wait(progress);
                }
                continue;
            }
            if !progress.group.is_complete() {
                if let Some(rest) = deadline.remaining(&self.spin_wait) {
                    (progress, deadline.has_passed) = self.log_changed.wait_for(progress, rest);
                    continue;
                }
                progress.group.expected = progress.group.forcing;
            }
            let Some(writer) = progress.writer.take() else { continue };
            drop(progress);
            if WriterGuard::new(self, writer).push()?.is_none() {
                // Nothing to push: every earlier commit is durable, for this thread held the
                // writer. Or it was taken off the lists and notified, because of a shutdown since
                // the check above.
                return self.check();
            }
            progress = self.progress.lock();
        }
    }

    /// Forces all committed transactions.
    pub(crate) fn force_all(&self) -> Result<()> {
        self.force(self.shared.read.sequence.load(Ordering::Acquire))
    }

    /// Implements [`Journal::quiesce`](crate::Journal::quiesce).
    pub(crate) fn quiesce(&self) -> Result<()> {
        self.force_all()?;
        match self.write_back(self.ail.sync_lsn(), Goal::Tail) {
            Ok(None) => Ok(()),
            Ok(Some(full)) => Err(full),
            Err(error) => Err(self.shut_down(error)),
        }
    }

    /// Writes a record of `kind` that has itself as the tail, if all items are written back.
    pub(crate) fn cover(&self, kind: RecordKind) -> Result<()> {
        let published = self.writer()?.publish(kind);
        published.map_err(|error| self.shut_down(error))
    }

    /// Writes items back whose LSN is `target` at most: all of them, or for [`Goal::Memory`] until
    /// enough memory is free; in that case it pushes pinned items only if transactions wait for
    /// memory.
    /// Ends early if the workers must end, or with the error of a device below which storage is
    /// short: then items are left that have no place at home, and the log retains them.
    fn write_back(&self, target: Lsn, goal: Goal) -> Result<Option<Error>> {
        let _alone = self.ail.lock_writeback();
        let (mut after, mut written, mut pinned, mut full) = (None, 0, false, None);
        loop {
            self.check()?;
            let is_for_memory = goal == Goal::Memory;
            if is_for_memory && self.ail.is_light() {
                return Ok(None);
            }
            let batch = self.ail.batch(after, target);
            let Some((last, _)) = batch.last() else {
                let is_enough = is_for_memory && !self.ail.is_crowded();
                let is_over = after.is_none() || is_enough || self.ail.is_stopped();
                if is_over || full.is_some() && written == 0 {
                    return Ok(full);
                }
                if pinned || self.grant.has_waiters() {
                    // A rolling transaction that waits for space has logged its items again: once
                    // that is durable, they no longer hold the tail back.
                    self.force_all()?;
                    self.publish_for_waiters(1)?;
                }
                if written == 0 {
                    self.ail.pause();
                }
                (after, written, pinned, full) = (None, 0, false, None);
                continue;
            };
            after = Some(*last);
            let mut batch_written = Vec::with_capacity(batch.len());
            for (position, item) in batch {
                match item.push(position.lsn) {
                    Ok(Pushed::Written) => batch_written.push((position, item)),
                    Ok(Pushed::Pinned) => pinned = true,
                    Ok(Pushed::Busy) => {}
                    Err(error) if error.is_no_space() => full = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if !batch_written.is_empty() {
                match self.hooks.flush_home() {
                    Err(error) if error.is_no_space() => {
                        full = Some(error);
                        continue;
                    }
                    flushed => flushed?,
                }
                written += batch_written.len();
                self.ail.remove(batch_written);
                self.publish_for_waiters(self.geometry.blocks / 16)?;
            }
        }
    }

    /// Publishes the tail in the log, if a transaction waits for log space, and this frees at least
    /// `blocks_min` blocks or all of them.
    fn publish_for_waiters(&self, blocks_min: u32) -> Result<()> {
        if !self.grant.has_waiters() {
            return Ok(());
        }
        let (tail, is_written_back) = self.ail.tail();
        let lag = self.geometry.position(tail).saturating_sub(self.progress.lock().durable_tail);
        if is_written_back || lag >= u64::from(blocks_min) {
            self.writer()?.publish(RecordKind::Tail)?;
        }
        Ok(())
    }

    /// Moves the tail as far as the durable part of the log allows.
    fn move_tail(&self) -> Result<Option<Error>> {
        if self.grant.has_waiters() {
            // Items that are only in the CIL take space as well, and may hold the tail back.
            self.force_all()?;
        }
        let full = self.write_back(self.ail.sync_lsn(), Goal::Tail)?;
        self.publish_for_waiters(1)?;
        Ok(full)
    }

    /// Writes items back for `goal`. Returns the error of [`write_back`](Self::write_back).
    fn reach(&self, goal: Goal) -> Result<Option<Error>> {
        match goal {
            Goal::Tail => self.move_tail(),
            Goal::Memory => self.write_back(self.ail.sync_lsn(), goal),
        }
    }

    /// Creates the journal's work items, which do not keep this in memory.
    pub(crate) fn start_work(self: &Arc<Self>) {
        let item = |work: fn(&Self)| {
            let log: Weak<Self> = Arc::downgrade(self);
            move || {
                if let Some(log) = log.upgrade() {
                    work(&log);
                }
            }
        };
        let work =
            || LogWork::new(item(Self::push_in_background), item(Self::write_back_in_background));
        self.work.get_or_init(work);
        self.set_push_timer();
    }

    /// Has the items of the AIL written back that hold the tail, unless that is requested already.
    pub(crate) fn request_tail_push(&self) {
        if self.ail.request_tail_push() {
            self.queue_ail_push();
        }
    }

    /// Queues the AIL push, for which there is a request.
    fn queue_ail_push(&self) {
        if let Some(work) = self.work.get() {
            work.ail_push.queue();
        }
    }

    /// Queues the push, for which there is a reason.
    pub(crate) fn queue_push(&self) {
        if let Some(work) = self.work.get() {
            work.push.queue();
        }
    }

    /// Ends the journal's work, and waits for the runs that execute.
    pub(crate) fn stop_work(&self) {
        self.progress.lock().is_stopped = true;
        self.ail.stop();
        if let Some(work) = self.work.get() {
            work.cancel();
        }
    }

    /// Writes items back, as long as that is requested. Counterpart of `xfsaild`.
    fn write_back_in_background(&self) {
        let _guard = ShutOnPanic(self);
        while let Some(goal) = self.ail.take_request() {
            if self.check().is_err() {
                continue;
            }
            match self.reach(goal) {
                Ok(None) => {
                    self.ail.note_full(false);
                }
                // The next request, such as that of the next transaction which finds too little log
                // space, tries again: until then there may be room.
                Ok(Some(full)) if !self.ail.is_crowded() && self.grant.refuse() => {
                    if !self.ail.note_full(true) {
                        tracing::warn!("{full}; changes stay in the log until there is room");
                    }
                }
                Ok(Some(error)) | Err(error) => {
                    self.shut_down(error);
                }
            }
        }
    }

    /// Pushes, as long as there is a reason.
    fn push_in_background(&self) {
        let _guard = ShutOnPanic(self);
        while self.is_push_due() {
            let pushed = self.writer().and_then(|mut guard| guard.push());
            if pushed.is_err() {
                // The push has shut the journal down, or found it shut down.
                self.abort_rest();
            }
        }
        self.set_push_timer();
    }

    /// Returns whether there is something to push, or the sync interval has passed.
    fn is_push_due(&self) -> bool {
        let mut progress = self.progress.lock();
        if progress.is_stopped {
            return false;
        }
        if self.shared.read.is_shut.load(Ordering::Relaxed) {
            // The push will fail, and notify the committed transactions.
            return !self.shared.read.is_empty.load(Ordering::Relaxed);
        }
        let is_time = progress.next_push.is_some_and(|at| Instant::now() >= at);
        if is_time {
            progress.next_push = None;
        }
        is_time || progress.wanted > progress.begun
    }

    /// Has the push run once the sync interval has passed.
    fn set_push_timer(&self) {
        let Some(interval) = self.options.sync_interval.filter(|_| self.check().is_ok()) else {
            return;
        };
        let Some(at) = Instant::now().checked_add(interval) else { return };
        self.progress.lock().next_push = Some(at);
        if let Some(work) = self.work.get() {
            work.push.queue_at(at);
        }
    }

    /// Notifies committed transactions that will never be durable that the journal is shut down.
    pub(crate) fn abort_rest(&self) {
        // Delayed changes of these transactions need not be logged.
        if let Switch::Taken(context) = self.cil.switch(&self.shared, || false) {
            abort(context, &self.shut_error());
        }
    }
}
