//! The times of an inode: of the last access, of the last change of its data, and of its last
//! change.
//!
//! # Guarantees
//!
//! * A change time never decreases, except from a time in the future, which was set by hand or by a
//!   clock that was set back later, or if a caller that keeps the times itself sets an earlier one.
//! * A change after a reader saw a time is always visible: a reader that reads a time, and reads it
//!   again after a change that began later, gets a different one. The clock of ticks is too coarse
//!   for that, so a time that a reader has seen is followed by an exact one (like multigrain
//!   timestamps in Linux).
//! * A change that begins after another has ended gets no earlier time than that, also if they are
//!   of different inodes, so programs may compare times of files, as `make` does; the exceptions
//!   are those above. The clock does that ([`clock`](vfscale_sync::clock)), and for changes through
//!   a mount also among files of other file systems.
//! * Changes by any number of CPUs within a tick of the clock write nothing here, as long as no
//!   reader reads the times of an inode that then changes.
//!
//! A change stamps after its effect is visible, with a clock that is read then, and takes no lock.
//!
//! # How it works
//!
//! `stamps` records for each change time whether a reader has seen it, and how many stamps that
//! cleared such a flag are in progress. A change whose tick is newer than the stored time stores
//! its tick, unless another thread has stored a later one; if the flag is set, it clears the flag
//! and counts itself in one step before that, and counts itself out afterwards. Otherwise, if
//! `stamps` is zero, the change is done. If `stamps` is not zero, the change stamps exactly: it
//! clears the flag and counts itself, reads the clock, replaces the time that it read before, and
//! counts itself out.
//!
//! A reader sets the flag, reads the time, and starts again if the flag is cleared: the thread that
//! cleared it may have stored the time just before the reader read it. With two writers and a
//! reader: a change that finds the flag cleared by a stamp which has not stored its time yet finds
//! that stamp counted, and stamps exactly itself. So it never ends while the stored time is still
//! the one that the reader saw.

use vfscale_sync::atomic::{AtomicI64, Ordering};
use vfscale_sync::lock::assert_held;

use super::Inode;
use crate::base::lock_classes::InodeData;
use crate::base::time;
use crate::base::types::Timestamp;

/// In `stamps`: a reader has seen this time.
const CTIME_SEEN: u32 = 1;
const MTIME_SEEN: u32 = 2;
const BOTH_SEEN: u32 = CTIME_SEEN | MTIME_SEEN;
/// In `stamps`: one stamp in progress that has cleared a flag.
const STAMPING: u32 = 4;

impl Inode {
    /// Returns the time of the last access.
    pub fn atime(&self) -> Timestamp {
        Timestamp(self.data.atime.load(Ordering::Relaxed))
    }

    /// Returns the time of the last change of the data. A caller that shows it to a reader which
    /// may compare it with a later one calls `shown_times` instead.
    pub fn mtime(&self) -> Timestamp {
        Timestamp(self.data.mtime.load(Ordering::Acquire))
    }

    /// Returns the time of the last change of the inode; see [`mtime`](Self::mtime).
    pub fn ctime(&self) -> Timestamp {
        Timestamp(self.data.ctime.load(Ordering::Acquire))
    }

    /// Returns the time of creation.
    pub fn btime(&self) -> Timestamp {
        self.btime
    }

    /// Returns the times of the last change of the data and of the inode, and notes that a reader
    /// sees them.
    #[inline]
    pub(crate) fn shown_times(&self) -> (Timestamp, Timestamp) {
        let stamps = &self.data.stamps;
        loop {
            if stamps.load(Ordering::Relaxed) & BOTH_SEEN != BOTH_SEEN {
                stamps.fetch_or(BOTH_SEEN, Ordering::AcqRel);
            }
            let times = (self.mtime(), self.ctime());
            // A thread that stored a time cleared its flag before, so this load sees that if those
            // loads saw the time.
            if stamps.load(Ordering::Relaxed) & BOTH_SEEN == BOTH_SEEN {
                return times;
            }
        }
    }

    /// Returns the time of a change that is made now, for drivers that store it with the change:
    /// the last tick of the clock, or the time of the last change if that is later and no reader
    /// has seen it; or else the exact time.
    pub fn change_time(&self) -> Timestamp {
        let now = time::to_store(time::now());
        let last = self.ctime().max(self.mtime());
        if last < now {
            now
        } else if self.is_seen(BOTH_SEEN) || last.0 > now.0 + time::SKEW_NANOS {
            time::now_fine()
        } else {
            last
        }
    }

    /// Notes a change of data and inode at `time`, which [`change_time`](Self::change_time)
    /// returned and the driver has stored; a later time, if a reader has read the times since.
    /// Notifies the driver: it may need that later time, or have stored an older one for a thread
    /// that read the time before this call.
    pub fn changed_at(&self, time: Timestamp) {
        self.touch_at(time);
        self.tell_driver(true);
    }

    /// Notes a change of the inode, and not of its data; see [`changed_at`](Self::changed_at).
    pub fn inode_changed_at(&self, time: Timestamp) {
        self.touch_ctime_at(time);
        self.tell_driver(true);
    }

    /// Notifies a driver that stores times of a change for which it had no call.
    #[inline]
    fn tell_driver(&self, changed: bool) {
        if changed && self.is_backed() {
            self.sb().fs().dirtied(self);
        }
    }

    /// Stamps a change of data and inode.
    #[inline]
    pub fn touch(&self) {
        self.touch_at(time::now());
    }

    /// Does what [`touch`](Self::touch) does, and notifies a driver that stores times.
    #[inline]
    pub(crate) fn touch_in_passing(&self) {
        let now = time::now();
        let changed = self.stamp(&self.data.mtime, MTIME_SEEN, now)
            | self.stamp(&self.data.ctime, CTIME_SEEN, now);
        self.tell_driver(changed);
    }

    /// Does what [`touch`](Self::touch) does with a clock that the caller has just read, after the
    /// change.
    #[inline]
    pub(crate) fn touch_at(&self, now: Timestamp) {
        self.stamp(&self.data.mtime, MTIME_SEEN, now);
        self.stamp(&self.data.ctime, CTIME_SEEN, now);
    }

    /// Stamps a change of the inode, and not of its data.
    #[inline]
    pub fn touch_ctime(&self) {
        self.touch_ctime_at(time::now());
    }

    /// Does what [`touch_ctime`](Self::touch_ctime) does with a clock that the caller has just
    /// read, after the change.
    #[inline]
    pub(crate) fn touch_ctime_at(&self, now: Timestamp) {
        self.stamp(&self.data.ctime, CTIME_SEEN, now);
    }

    /// Returns whether a change must stamp exactly, if its tick is no later than the time.
    #[inline]
    fn is_seen(&self, seen: u32) -> bool {
        self.data.stamps.load(Ordering::Acquire) & (seen | !BOTH_SEEN) != 0
    }

    /// Stamps a change with the tick `coarse`, or exactly if that is needed; see the
    /// [module](self). Returns whether the time was written.
    #[inline]
    fn stamp(&self, which: &AtomicI64, seen: u32, coarse: Timestamp) -> bool {
        let stored = which.load(Ordering::Acquire);
        if stored < coarse.0 {
            let is_flagged = self.data.stamps.load(Ordering::Acquire) & seen != 0;
            if is_flagged {
                self.begin_stamp(seen);
                which.fetch_max(time::to_store(coarse).0, Ordering::AcqRel);
                self.end_stamp();
            } else {
                // Many small writes in a row cost no exact times.
                which.fetch_max(coarse.0, Ordering::AcqRel);
            }
            true
        } else if self.is_seen(seen) {
            self.stamp_exactly(which, seen);
            true
        } else {
            stored > coarse.0 + time::SKEW_NANOS && stamp_back(which)
        }
    }

    /// Stamps a change with an exact time, which differs from the stored one.
    #[cold]
    fn stamp_exactly(&self, which: &AtomicI64, seen: u32) {
        self.begin_stamp(seen);
        loop {
            let stored = which.load(Ordering::Acquire);
            // Read after the time: it is later, unless that lies in the future.
            let now = time::now_fine().0;
            let is_other = stored != now;
            if is_other && replace(which, stored, now) {
                break;
            }
        }
        self.end_stamp();
    }

    /// Clears a flag and counts a stamp in progress, in one step.
    fn begin_stamp(&self, seen: u32) {
        let stamps = &self.data.stamps;
        let mut found = stamps.load(Ordering::Relaxed);
        while let Err(other) = stamps.compare_exchange(
            found,
            (found & !seen) + STAMPING,
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            found = other;
        }
    }

    fn end_stamp(&self) {
        self.data.stamps.fetch_sub(STAMPING, Ordering::Release);
    }

    /// Sets access or data change time by hand.
    pub(crate) fn set_times(&self, atime: Option<Timestamp>, mtime: Option<Timestamp>) {
        assert_held::<InodeData>();
        if let Some(t) = atime {
            self.data.atime.store(t.0, Ordering::Relaxed);
        }
        if let Some(t) = mtime {
            self.data.mtime.store(t.0, Ordering::Release);
        }
    }

    /// Sets the time of the last change of the inode, for a caller that keeps the times itself, and
    /// notifies a driver that stores times.
    pub(crate) fn set_ctime(&self, ctime: Timestamp) {
        assert_held::<InodeData>();
        self.data.ctime.store(ctime.0, Ordering::Release);
        self.tell_driver(true);
    }

    /// Returns the time to store for an access now, under the `relatime` rule: only if the stored
    /// one is not after the last change, or is more than a day old (or always, if `strict`).
    #[inline]
    pub(crate) fn next_atime(&self, strict: bool) -> Option<Timestamp> {
        let atime = self.data.atime.load(Ordering::Relaxed);
        let changed = atime <= self.data.mtime.load(Ordering::Relaxed)
            || atime <= self.data.ctime.load(Ordering::Relaxed);
        let now = time::now().0;
        let is_old = strict || changed || now.saturating_sub(atime) >= time::DAY_NANOS;
        (is_old && atime != now).then_some(Timestamp(now))
    }

    /// Stores the time of an access.
    pub(crate) fn accessed(&self, atime: Timestamp) {
        self.data.atime.store(atime.0, Ordering::Relaxed);
        self.tell_driver(true);
    }
}

/// Sets a time that lies in the future back to now: it was set by hand, or the clock was set back.
/// A time that a faster thread has stored since the caller read its clock stays. Returns whether
/// the time was written.
#[cold]
fn stamp_back(which: &AtomicI64) -> bool {
    loop {
        let stored = which.load(Ordering::Acquire);
        let now = time::now_fine().0;
        if stored <= now {
            return false;
        }
        if replace(which, stored, now) {
            return true;
        }
    }
}

/// Replaces a time, if it is still `stored`.
fn replace(which: &AtomicI64, stored: i64, now: i64) -> bool {
    which.compare_exchange(stored, now, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests;
