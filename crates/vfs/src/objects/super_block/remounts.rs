//! The mounts of a superblock, and remounts, which make it read-only or writable.

use std::collections::HashSet;
use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicUsize, Ordering};
use vfscale_sync::lock::Mutex;

use super::SuperBlock;
use crate::base::lock_classes::{SuperMounts, SuperRemount, WriteHold};
use crate::base::types::MountFlags;
use crate::objects::remount_flags::RemountFlags;
use crate::objects::vfsmount::Mount;

/// The mounts of a superblock, and the locks of their remounts.
pub(super) struct Remounts {
    /// The mounts, attached or not, until the grace period after their last use is over.
    mounts: Mutex<HashSet<NonNull<Mount>>, SuperMounts>,
    /// Number of mounts in use.
    used: AtomicUsize,
    /// Held while the superblock, or a mount of it, is remounted.
    serial: Mutex<(), SuperRemount>,
    /// Held while a remount looks for writers; see the page of `vfsmount`.
    write_hold: Mutex<(), WriteHold>,
}

impl Remounts {
    pub(super) fn new() -> Remounts {
        Remounts {
            mounts: Mutex::new(HashSet::new()),
            used: AtomicUsize::new(0),
            serial: Mutex::new(()),
            write_hold: Mutex::new(()),
        }
    }
}

impl SuperBlock {
    /// Changes the superblock's flags and notifies the driver. Changes to read-only only while no
    /// file is open for writing on any of its mounts, and no open file is without a name. Blocks
    /// for the driver's I/O, and the first time for a grace period if it has mounts: the caller
    /// is in no RCU section and holds no lock.
    pub(crate) fn remount(&self, flags: MountFlags) -> Result<(), Errno> {
        self.remount_and(flags, || ())
    }

    /// Does what [`remount`](Self::remount) does, and runs `then` before another remount begins.
    pub(crate) fn remount_and(&self, flags: MountFlags, then: impl FnOnce()) -> Result<(), Errno> {
        if !self.is_writable() && !flags.contains(MountFlags::RDONLY) {
            return Err(Errno::ROFS);
        }
        let is_readonly = |flags: MountFlags| flags.contains(MountFlags::RDONLY);
        // A mount that has ended is listed until no section can make a change through it.
        if is_readonly(flags) && !self.written.remounts.mounts.lock().is_empty() {
            self.flags.count_sections();
        }
        let _serialized = self.lock_remounts();
        let before = self.flags();
        // The driver must be ready before a thread may make a change.
        if is_readonly(before) && !is_readonly(flags) {
            self.fs.set_read_only(false)?;
        }
        self.set_flags(flags)?;
        if !is_readonly(before)
            && is_readonly(flags)
            && let Err(errno) = self.fs.set_read_only(true)
        {
            self.flags.set(before);
            return Err(errno);
        }
        then();
        Ok(())
    }

    /// Changes the flags, unless changes in progress or open files prevent it.
    fn set_flags(&self, flags: MountFlags) -> Result<(), Errno> {
        let is_readonly = |flags: MountFlags| flags.contains(MountFlags::RDONLY);
        let before = self.flags();
        if is_readonly(flags) && !is_readonly(before) {
            let mounts = self.written.remounts.mounts.lock();
            let _write_hold = self.lock_write_hold();
            self.flags.hold();
            // SAFETY: a mount is removed from the list, under its lock, before it is freed.
            let any = |has: fn(&Mount) -> bool| mounts.iter().any(|m| has(unsafe { m.as_ref() }));
            // The page of `vfsmount` explains this order.
            let busy =
                any(Mount::has_changes) || self.has_open_writers() || any(Mount::has_unlisted);
            self.flags.set(if busy { before } else { flags });
            return if busy { Err(Errno::BUSY) } else { Ok(()) };
        }
        self.flags.set(flags);
        Ok(())
    }

    /// Returns the flags in the form that writers check.
    #[inline]
    pub(crate) fn remount_flags(&self) -> &RemountFlags {
        &self.flags
    }

    /// Locks out remounts of the superblock and its mounts from looking for writers. Blocks while
    /// one is looking.
    pub(crate) fn lock_write_hold(&self) -> impl Drop + '_ {
        self.written.remounts.write_hold.lock()
    }

    /// Locks out other remounts of the superblock and of its mounts: a remount that fails restores
    /// its flags, and another one must neither see nor undo the temporary ones.
    pub(crate) fn lock_remounts(&self) -> impl Drop + '_ {
        self.written.remounts.serial.lock()
    }

    /// Lists a new mount that is in use. A mount is cloned only from one that is in use.
    pub(crate) fn add_mount(&self, mount: NonNull<Mount>) {
        self.written.remounts.used.fetch_add(1, Ordering::Relaxed);
        self.written.remounts.mounts.lock().insert(mount);
    }

    /// Notes the end of a mount's last use. With the last mount, notifies the driver immediately:
    /// deferred work may be delayed for as long as any walk takes.
    pub(crate) fn leave_mount(&self) {
        if self.written.remounts.used.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fs.unmounted();
        }
    }

    pub(crate) fn remove_mount(&self, mount: NonNull<Mount>) {
        self.written.remounts.mounts.lock().remove(&mount);
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn mount_count(&self) -> usize {
        self.written.remounts.mounts.lock().len()
    }
}
