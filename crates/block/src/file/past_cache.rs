//! Reading past the page cache of the system what can't be read through it.
//!
//! The page cache reads folios: of a block device often 16 KiB and more at once. If the disk can't read one
//! sector of a folio, the system fails a read of any byte in it, and of that byte alone again and again. A
//! recovery that believed this would take the neighbours of a torn sector for lost. So the device asks
//! once more, past the page cache and in the units of the disk; that opens the file a second time, for
//! one call. The system writes what the page cache has not written yet before it reads so.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use super::FileDevice;
use super::open::{Direct, Units};
use super::piece::Alignment;
use crate::{Error, Operation, OsError};

impl FileDevice {
    /// Says whether a read that ended so went through the page cache, and may succeed past it.
    pub(super) fn may_be_readable(&self, error: &Error) -> bool {
        let unreadable = |source: &OsError| *source == OsError::IO;
        self.alignment == Alignment::NONE
            && matches!(error, Error::Io { operation: Operation::Read, source, .. } if unreadable(source))
    }

    /// Opens the file once more, to do past the page cache the read that ended with `error`. The new opening
    /// has no lock, and closing it leaves the lock of the first one alone.
    ///
    /// # Errors
    /// `error`, where that would not help or is not possible.
    pub(super) fn past_cache(&self, error: Error) -> Result<(File, Alignment), Error> {
        let opened = self.may_be_readable(&error).then(|| self.open_direct()).flatten();
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
