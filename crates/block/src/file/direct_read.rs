//! Direct reads of blocks that can't be read through the page cache of the system.
//!
//! The page cache reads folios: of a block device often 16 KiB and more at a time. If the disk
//! can't read one sector of a folio, the system fails a read of any byte in the folio, again and
//! again. A recovery that believed this would treat the neighbours of a torn sector as lost. So the
//! device retries the read with direct I/O, in the units of the disk; for that it opens the file a
//! second time, for one call. The system first writes dirty data of the page cache.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use super::FileDevice;
use super::open::{Direct, Units};
use super::segment::Alignment;
use crate::{Error, Operation, OsError};

impl FileDevice {
    /// Returns whether a read that failed with `error` went through the page cache, and may succeed
    /// without it.
    pub(super) fn may_succeed_direct(&self, error: &Error) -> bool {
        let unreadable = |source: &OsError| *source == OsError::IO;
        self.alignment == Alignment::NONE
            && matches!(error, Error::Io { operation: Operation::Read, source, .. } if unreadable(source))
    }

    /// Opens the file once more, to repeat the read that failed with `error` with direct I/O. The
    /// new open file has no lock, and closing it does not affect the lock of the first one.
    ///
    /// # Errors
    /// `error`, if direct I/O would not help or is not possible.
    pub(super) fn reopen_direct(&self, error: Error) -> Result<(File, Alignment), Error> {
        let opened = self.may_succeed_direct(&error).then(|| self.open_direct()).flatten();
        opened.ok_or(error)
    }

    fn open_direct(&self) -> Option<(File, Alignment)> {
        let Direct::Aligned { memory, block_size } = Units::of(&self.file, self.kind).direct else {
            return None;
        };
        let alignment = Alignment::direct(memory, block_size.max(512))?;
        let flags = (OFlags::DIRECT | OFlags::NOCTTY).bits() as i32;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        Some((file, alignment))
    }
}
