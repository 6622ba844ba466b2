//! An open volume.
//!
//! # Purpose
//!
//! A [`Volume`] holds the state that all parts of the file system share: the device, the log, the
//! blocks of metadata in memory, the division into groups. It is opened by its superblock, after
//! the log was replayed; from then on every change of it is a transaction.
//!
//! # Invariants
//!
//! * Nothing of the volume is read before the log was replayed. A volume that is open for reading
//!   only has no log, and its device is not written: the contents of the log are replayed into a
//!   copy of the device in memory, which stores only the changes
//!   ([`CowDevice`](vfscale_block::CowDevice)). With [`Settings::no_recovery`] the log is
//!   ignored, for a volume whose log can't be read.
//! * Data is durable before metadata that refers to it: a thread that has written data records this
//!   ([`Volume::mark_data_written`]) before its transaction is committed, and the log asks for a
//!   flush of the device before a checkpoint's last record (`hooks`).
//! * After an error of the log, or of a write-back, nothing more becomes durable, and every later
//!   transaction fails.
//!
//! # Locks
//!
//! `superblock` is held while the superblock is written, `data_flush` only briefly, `discard` while
//! a few runs are discarded. None is taken while another is held.
//!
//! # References
//!
//! A volume owns its device and its log, and the metadata in memory together with the callbacks of
//! the log (`volume/metadata.rs`). Transactions and readers borrow it. The callback that runs when
//! a transaction is durable holds a reference to the groups.

mod block_map;
pub mod copies;
pub(crate) mod credits;
mod delayed;
mod delayed_dirs;
mod discard;
mod freed;
pub mod grow;
mod hooks;
mod known;
mod log;
mod metadata;
mod open;
mod own_log;
mod reader;
pub(crate) mod recovery;
mod settings;
mod settle;
pub(crate) mod stopped;
pub mod tx;

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_journal::{Journal, Recovered};
use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::{Mutex, MutexGuard};

pub(crate) use block_map::Places;
pub use freed::TrimRange;
pub(crate) use known::{known, log_id, seen};
pub(crate) use log::{log_of, replay_in_memory};
pub(crate) use metadata::Metadata;
pub use reader::Reader;
pub use settings::Settings;

use crate::Uuid;
use crate::alloc::Groups;
use crate::alloc::space::Space;
use crate::base::fault::Fault;
use crate::base::ranks::{GrowthLock, SuperblockLock};
use crate::base::reserve::ReservePages;
use crate::buffer::BufferCache;
use crate::format::geometry::Geometry;
use crate::format::superblock::{LogSeen, Superblock};
use crate::inode::orphans::VolumeOrphans;
use credits::Credits;
use freed::VolumeDiscards;
use hooks::VolumeHooks;

/// An open volume. `Send` and `Sync`.
///
/// Dropping it without [`close`](Self::close) writes nothing more: as after a crash, the next
/// opening replays the durable transactions.
#[derive(Debug)]
pub struct Volume {
    device: Arc<dyn Device>,
    metadata: Arc<Metadata>,
    superblock: Arc<Mutex<Superblock, SuperblockLock>>,
    hooks: Arc<VolumeHooks>,
    /// `None` if the volume is open for reading only.
    journal: Option<Journal>,
    /// Whether no transaction may begin, although there is a journal.
    is_sealed: AtomicBool,
    /// Whether the superblock records why the volume stopped.
    is_noted: AtomicBool,
    recovered: Recovered,
    discards: VolumeDiscards,
}

/// A volume in which no transaction begins, until this is dropped.
#[derive(Debug)]
#[must_use = "transactions begin again when this is dropped"]
pub struct Frozen<'v>(&'v Journal);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

impl Volume {
    /// Updates the superblock and writes it, with all its copies. Durable when it returns.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`], and the errors of the device.
    pub fn update_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), Fault> {
        self.writable()?;
        let mut superblock = self.superblock.lock();
        change(&mut superblock);
        Ok(copies::write(&*self.device, &mut superblock)?)
    }

    /// Returns the superblock as it was written last.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.superblock.lock().clone()
    }

    /// Returns the device of the volume.
    #[must_use]
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Returns what reserves storage for pages, as long as what is written to the device has to be
    /// reserved.
    pub(crate) fn reserving(&self) -> Arc<dyn ReservePages> {
        Arc::clone(self.metadata.credits()) as Arc<dyn ReservePages>
    }

    /// Returns whether what is written to the device has to be reserved.
    pub(crate) fn must_reserve(&self) -> bool {
        self.credits().is_on()
    }

    /// Returns the geometry of the volume.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.groups().geometry()
    }

    /// Sets the geometry after growth. Returns false if the volume has grown too often.
    pub(crate) fn set_geometry(&self, geometry: Geometry) -> Result<bool, Fault> {
        // References to blocks of the new groups are valid from here on.
        self.metadata.places().grow(geometry.blocks());
        Ok(self.groups().grow(&self.reader(), geometry)?)
    }

    /// Returns the id of the volume.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.metadata.uuid()
    }

    /// Returns the log; `None` if the volume is open for reading only.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Returns the result of the recovery by the opening.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Returns the orphans: inodes to be freed or truncated, now or by the next mount.
    #[must_use]
    pub fn orphans(&self) -> &VolumeOrphans {
        self.metadata.orphans()
    }

    /// Returns the cache of metadata blocks.
    #[must_use]
    pub fn cache(&self) -> &PerCpuArc<BufferCache> {
        self.metadata.cache()
    }

    /// Returns the allocation groups: the owners of blocks and inodes.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        self.metadata.groups()
    }

    /// Returns the account of free blocks that are not reserved.
    #[must_use]
    pub fn space(&self) -> &Space {
        self.metadata.space()
    }

    pub(crate) fn credits(&self) -> &Credits {
        self.metadata.credits()
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(crate) fn places(&self) -> &Places {
        self.metadata.places()
    }

    /// Returns the number of transactions that were refused because they would have logged more
    /// than they had reserved: 0, unless the program has a defect.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.metadata.shared().overruns.load(Ordering::Relaxed)
    }

    /// Returns whether no change is possible: the volume is open for reading only, or
    /// [sealed](Self::seal).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.writable().is_err()
    }

    /// Makes the volume read-only: waits for transactions under way, refuses later ones, writes
    /// everything back and covers the log, so the next opening has nothing to replay. Lasts until
    /// [`unseal`](Self::unseal). Does nothing if the volume is read-only.
    ///
    /// # Errors
    /// The errors of the log and the device. Then the volume is not read-only.
    pub fn seal(&self) -> Result<(), Fault> {
        let Ok(journal) = self.writable() else { return Ok(()) };
        self.flush_data(self.data_written())?;
        journal.freeze()?;
        self.is_sealed.store(true, Ordering::Release);
        self.await_discard();
        journal.thaw();
        Ok(())
    }

    /// Stops transactions from beginning, waits until none is active, and makes everything durable
    /// in the log that was committed. Nothing is written home. Lasts until the result is dropped.
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`], and the errors of the log: transactions begin again then.
    pub fn cut(&self) -> Result<Frozen<'_>, Fault> {
        let journal = self.writable()?;
        journal.cut()?;
        Ok(Frozen(journal))
    }

    /// Stops transactions from beginning, waits until none is active, writes everything home that
    /// was committed, and covers the log: whoever opens the device has nothing to replay. Lasts
    /// until the result is dropped. Blocks for the I/O.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`], and the errors of the log and the device: transactions begin again
    /// then.
    pub fn freeze(&self) -> Result<Frozen<'_>, Fault> {
        let journal = self.writable()?;
        journal.freeze()?;
        Ok(Frozen(journal))
    }

    /// Calls `swap` while neither the superblock nor the size of the volume changes; then asks
    /// the device whether it needs reservations. The caller has frozen the volume, so nothing else
    /// of it is written either, and holds `growth`.
    pub(crate) fn swap_device<T>(
        &self,
        _growth: &MutexGuard<'_, (), GrowthLock>,
        swap: impl FnOnce() -> T,
    ) -> T {
        let superblock = self.superblock.lock();
        let result = swap();
        drop(superblock);
        self.credits().look_again();
        result
    }

    /// Makes the volume writable again after [`seal`](Self::seal).
    pub fn unseal(&self) {
        self.is_sealed.store(false, Ordering::Release);
    }

    /// Returns whether the block at this address is available to files: it is in the volume, and
    /// neither in the log nor among the blocks that describe a group.
    #[must_use]
    pub fn is_for_files(&self, address: u64) -> bool {
        self.places().is_for_files(address)
    }

    /// Returns whether all blocks of a run are available to files, and in one group.
    #[must_use]
    pub fn is_run_for_files(&self, start: u64, blocks: u64) -> bool {
        self.places().is_run_for_files(start, blocks)
    }

    /// Returns the log for a writer. In a transaction, the result stays valid until its end.
    pub(crate) fn writable(&self) -> Result<&Journal, Fault> {
        let is_sealed = || self.is_sealed.load(Ordering::Acquire);
        self.journal.as_ref().filter(|_| !is_sealed()).ok_or(Fault::ReadOnly)
    }

    /// Checks that changes are possible, for a call that would otherwise fail only at write-back.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`]; the error of the log, if that is shut down; [`Fault::NoSpace`] if the
    /// device has no storage for the log.
    pub fn changeable(&self) -> Result<(), Fault> {
        self.writable()?;
        self.check()?;
        self.credits().prepare()
    }

    /// Checks that changes can become durable.
    ///
    /// # Errors
    /// The error of the log, if that is shut down.
    pub fn check(&self) -> Result<(), Fault> {
        let failure = if self.is_shut_down() { self.failure() } else { None };
        failure.map_or(Ok(()), Err)
    }

    /// Returns whether nothing becomes durable any more ([`failure`](Self::failure)).
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_shut_down)
    }

    /// Returns a reader of the published state.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        self.metadata.reader()
    }

    /// Records that data was written to the device. The data is flushed before any transaction that
    /// commits from now on becomes durable. The caller's write has returned.
    ///
    /// Returns a count of the data marked so far, for [`flush_data`](Self::flush_data).
    pub fn mark_data_written(&self) -> u64 {
        self.hooks.mark_data_written()
    }

    /// Returns whether the present context can't end yet, because of delayed changes.
    #[cfg(test)]
    pub(crate) fn has_delayed(&self) -> bool {
        vfscale_journal::Hooks::has_delayed(&*self.hooks)
    }

    /// Returns a count of the data [marked](Self::mark_data_written) so far, for
    /// [`flush_data`](Self::flush_data).
    #[must_use]
    pub fn data_written(&self) -> u64 {
        self.hooks.data_written()
    }

    /// Makes the data durable that was marked before [`data_written`](Self::data_written) returned
    /// `written`. Blocks for the I/O; does nothing if an earlier flush has covered that data.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn flush_data(&self, written: u64) -> Result<(), Fault> {
        Ok(self.hooks.flush_data(written)?)
    }

    /// Makes everything durable that was committed up to `sequence`, the result of a commit. Blocks
    /// for the I/O.
    ///
    /// # Errors
    /// The errors of the log: the transactions may or may not be durable.
    pub fn force(&self, sequence: u64) -> Result<(), Fault> {
        self.journal.as_ref().map_or(Ok(()), |journal| Ok(journal.force(sequence)?))
    }

    /// Makes everything durable that was committed before the call, and the data that was marked
    /// before it. Blocks for the I/O.
    ///
    /// # Errors
    /// The errors of the log and the device: the changes may or may not be durable.
    pub fn sync(&self) -> Result<(), Fault> {
        let written = self.data_written();
        if let Some(journal) = &self.journal {
            journal.force_all()?;
        }
        self.flush_data(written)?;
        self.settle_credits();
        Ok(())
    }

    /// Returns the reason why nothing becomes durable any more, if there is one.
    #[must_use]
    pub fn failure(&self) -> Option<Fault> {
        self.journal.as_ref().and_then(Journal::failure).map(Fault::Journal)
    }

    /// Makes a change, and again while damage of a group fails it that nobody had found before: the
    /// group is left out then, and the change may need nothing of it.
    ///
    /// # Errors
    /// Errors of `change`.
    pub(crate) fn beside_damage<T>(
        &self,
        change: impl Fn() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match change() {
            Err(Fault::Local(_)) => self.change_beside(&change),
            done => done,
        }
    }

    #[cold]
    fn change_beside<T>(&self, change: &dyn Fn() -> Result<T, Fault>) -> Result<T, Fault> {
        loop {
            let left_out = self.groups().left_out();
            match change() {
                Err(Fault::Local(_)) if self.groups().left_out() > left_out => {}
                done => return done,
            }
        }
    }

    /// Makes the volume fail as an error of its log would: nothing more becomes durable.
    pub fn shut_down(&self, why: Fault) {
        if let Some(journal) = &self.journal {
            journal.shut_down(why.into());
        }
    }

    /// Ends the work of the log. Completes the writes under way, and starts no others: as after
    /// a crash, the next opening replays the durable transactions. Transactions fail from now on.
    /// Does nothing after [`close`](Self::close).
    pub fn abandon(&self) {
        if let Some(journal) = &self.journal {
            self.note_stop();
            journal.abandon();
        }
    }

    /// Writes everything back, closes the log and writes the superblock. Waits for transactions
    /// under way, and refuses later ones. The second call does nothing.
    ///
    /// # Errors
    /// The errors of the log and the device. The next opening replays the durable transactions.
    pub fn close(&self) -> Result<(), Fault> {
        let Some(journal) = &self.journal else { return Ok(()) };
        self.unseal();
        if let Err(fault) = self.flush_data(self.data_written()) {
            // The log must not be marked clean, and its work must end even so.
            self.shut_down(fault);
        }
        // Metadata for which storage is short get that of what was removed.
        if journal.quiesce().is_err_and(|error| error.is_no_space()) {
            self.discard_all_freed();
        }
        if let Err(error) = journal.close() {
            self.note_stop();
            return Err(error.into());
        }
        if !journal.has_epoch() {
            // Nothing was changed: the log and the superblock are those of a closed volume.
            return Ok(());
        }
        // The superblock's flush makes the discards durable.
        self.discard_all_freed();
        let (known, sums, geometry) = (journal.known(), self.groups().sums(), self.geometry());
        self.update_superblock(|superblock| {
            superblock.log_seen = known.map_or(superblock.log_seen, seen);
            // A growth that failed may have changed the superblock only: the next opening ends it.
            superblock.sums = sums.filter(|_| superblock.geometry() == geometry);
            if let Some(known) = known {
                own_log::enlarge(superblock, &*self.device, self.recovered.last, known);
            }
        })
    }

    /// Returns the end of the log, if the log is not being written.
    fn log_seen(&self) -> Option<LogSeen> {
        self.journal.as_ref().and_then(Journal::known).map(seen)
    }
}

#[cfg(test)]
mod tests;
