//! A cut: a moment at which the device has everything that calls have returned for.
//!
//! # Order
//!
//! 1. Writers are held to 8 MiB of dirty data. What is dirty is written while calls go on.
//! 2. The log is forced, so the last push is small.
//! 3. The gate of data is shut, and what is left is written. Then the gate of the journal, and what
//!    was committed is pushed to the log. Nothing is written home: whoever opens the contents
//!    replays the log.
//! 4. The caller captures the device, for example by a fork in a pool.
//! 5. Both gates are opened, as soon as the caller says that it has what it needs.
//!
//! # Why it is one moment
//!
//! A call that has returned before the gate of data is shut has its data on the device, since all
//! dirty pages are written after that; and its transactions are committed, and pushed. Between both
//! gates only calls without data go on. If one of them is in the log, so is everything that had
//! returned before it began: data from before the first gate, transactions from before the second.
//! So the cut has, of each thread, a beginning of its calls, and none that another thread could
//! have built upon is missing. A call that runs during the cut is there, or not, or a write is
//! there in part.
//!
//! Times that calls leave behind are an exception while the cut is made: those of reads, and those
//! of a directory whose names change. They are stored with the data, so one that is set between
//! both gates may be missing although a later change is there. Times that a call sets (`utimensat`)
//! are changes like others.
//!
//! A *freeze* is a cut for somebody who can't be told to replay the log: in step 3 everything is
//! written home, and the log is covered.
//!
//! A *swap* is a freeze in which the caller may put another device below the open volume, with the
//! same contents. Then the superblock must not be written either, nor the volume grow.

use std::fmt;
use std::time::{Duration, Instant};

use vfscale_sync::atomic::{AtomicU64, Ordering};

use super::disk_fs::DiskFs;
use crate::base::fault::Fault;
use crate::data::Shut;
use crate::volume::Frozen;

/// A volume whose device has everything that calls have returned for, while it is held.
#[must_use = "the volume changes again when this is dropped"]
pub struct Cut<'c> {
    /// Opened in this order.
    gates: Option<(Frozen<'c>, Shut<'c>)>,
    /// When the first of them was shut, and where the time until the end is stored.
    held: Option<(Instant, &'c AtomicU64)>,
}

impl Cut<'_> {
    /// Lets the volume change again: the caller has captured the device. Calls that change it sleep
    /// until then.
    pub fn thaw(&mut self) {
        self.gates = None;
        if let Some((since, held_up)) = self.held.take() {
            let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            held_up.store(nanos, Ordering::Relaxed);
        }
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.thaw();
    }
}

impl fmt::Debug for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("is_held", &self.gates.is_some()).finish()
    }
}

impl DiskFs {
    /// Calls `capture` at a moment at which the device has everything that calls have returned for,
    /// in place or in the log; see the module's page. Not all of it is durable: who captures the
    /// device makes it so. Meanwhile calls that change the volume sleep, until `capture`
    /// [thaws](Cut::thaw) it or returns. Returns the result of `capture`, which must make no call
    /// in this volume before it thaws it: a change would wait for ever.
    ///
    /// A volume that is open for reading only is passed as it is.
    ///
    /// Blocks for the I/O, and while another cut is made. The caller has no call under way in this
    /// volume.
    ///
    /// # Errors
    /// The errors of write-back, the log and the device; `capture` was not called then.
    pub fn cut<T>(&self, capture: impl FnOnce(&mut Cut<'_>) -> T) -> Result<T, Fault> {
        if self.volume.is_read_only() {
            return Ok(capture(&mut Cut { gates: None, held: None }));
        }
        let low = self.files.drain()?;
        self.volume.sync()?;
        let since = Instant::now();
        let shut = self.files.shut()?;
        let frozen = self.volume.cut()?;
        drop(low);
        let held = Some((since, &self.held_up));
        Ok(capture(&mut Cut { gates: Some((frozen, shut)), held }))
    }

    /// Returns for how long the last [cut](Self::cut) has held calls up: from the moment at which
    /// it began to shut the gate of data until both gates were open again.
    #[must_use]
    pub fn held_up(&self) -> Duration {
        Duration::from_nanos(self.held_up.load(Ordering::Relaxed))
    }

    /// Calls `meanwhile` at a moment as [`cut`](Self::cut) does, with all that calls have returned
    /// for in place and durable: whoever copies the device, and that of the log, has nothing to
    /// replay. Calls that change the volume sleep until `meanwhile` returns; it must make none.
    /// Returns its result.
    ///
    /// A volume that is open for reading only is passed as it is.
    ///
    /// Blocks for the I/O, and while another cut is made. The caller has no call under way in this
    /// volume.
    ///
    /// # Errors
    /// The errors of write-back, the log and the device; `meanwhile` was not called then.
    pub fn freeze<T>(&self, meanwhile: impl FnOnce() -> T) -> Result<T, Fault> {
        if self.volume.is_read_only() {
            return Ok(meanwhile());
        }
        self.frozen(|| (), |()| meanwhile())
    }

    /// Calls `swap` while the volume is frozen as by [`freeze`](Self::freeze), and its
    /// superblock and its size do not change either: nothing is written to its device. So
    /// `swap` may put another device below, by a handle that the volume was opened on; that has
    /// to have the same contents and the same size, and may need reservations. Reads go on
    /// meanwhile, and one that has begun before may end on the former device, which has to keep
    /// what it has until somebody writes to the other one. Returns the result of `swap`.
    ///
    /// Blocks for the I/O, and while another cut is made. The caller has no call under way in this
    /// volume.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`], and errors of [`freeze`](Self::freeze); `swap` was not called then.
    pub fn swap_device<T>(&self, swap: impl FnOnce() -> T) -> Result<T, Fault> {
        if self.volume.is_read_only() {
            return Err(Fault::ReadOnly);
        }
        let growth = || self.volume.groups().growth();
        self.frozen(growth, |growth| self.volume.swap_device(&growth, swap))
    }

    /// Calls `meanwhile` while the volume is frozen, with what `lock` returned before the gate of
    /// the journal was shut.
    fn frozen<L, T>(
        &self,
        lock: impl FnOnce() -> L,
        meanwhile: impl FnOnce(L) -> T,
    ) -> Result<T, Fault> {
        self.inactivator.flush();
        let low = self.files.drain()?;
        self.volume.sync()?;
        let shut = self.files.shut()?;
        self.volume.flush_data(self.volume.data_written())?;
        let locked = lock();
        let frozen = self.volume.freeze()?;
        drop(low);
        let result = meanwhile(locked);
        drop((frozen, shut));
        Ok(result)
    }
}
