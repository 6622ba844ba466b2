//! Files of text that is generated when it is read, like those of `/proc`. Counterpart of
//! `seq_file` in Linux.
//!
//! Such a file has size 0. The driver generates the whole text when an open file is read for the
//! first time, and again when it is read from the beginning. So consecutive short reads return
//! parts of one text. A text belongs to one open file and is freed with it.
//!
//! A read looks for the text only when it reaches the end of the file, as every read of an empty
//! file does, so reads of data have no extra cost. Generating it may take any lock. So the read
//! stops with [`Unread`] first, unlocks the position, has the text generated with no lock held, and
//! starts again.

use std::collections::HashMap;
use std::sync::Arc;

use vfscale_sync::lock::Mutex;

use crate::base::error::Stop;
use crate::base::lock_classes::TextSnapshots;

/// The reason to stop a read whose text must first be generated.
pub(crate) struct Unread;

/// Result of a part of a read.
pub(crate) type ReadResult<T> = Result<T, Stop<Unread>>;

/// Texts of the open files of an inode, by the number of the file.
#[derive(Default)]
pub(crate) struct Text(Mutex<HashMap<u64, Snapshot>, TextSnapshots>);

struct Snapshot {
    bytes: Arc<[u8]>,
    /// Whether its beginning has not been read yet.
    is_new: bool,
}

impl Text {
    /// Reads from the text of an open file.
    ///
    /// # Errors
    /// Returns [`Unread`] if the text must first be generated.
    pub(crate) fn read(&self, file: u64, offset: u64, buf: &mut [u8]) -> ReadResult<usize> {
        let bytes = {
            let mut all = self.0.lock();
            let snapshot = all.get_mut(&file).ok_or(Stop::Deferred(Unread))?;
            if offset == 0 && !std::mem::take(&mut snapshot.is_new) {
                return Err(Stop::Deferred(Unread));
            }
            snapshot.bytes.clone()
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let n = buf.len().min(bytes.len() - start);
        buf[..n].copy_from_slice(&bytes[start..start + n]);
        Ok(n)
    }

    /// Stores the generated text of an open file.
    pub(crate) fn keep(&self, file: u64, bytes: Vec<u8>) {
        let snapshot = Snapshot { bytes: bytes.into(), is_new: true };
        let old = self.0.lock().insert(file, snapshot);
        drop(old);
    }

    /// Drops the text of an open file that is closed.
    pub(crate) fn forget(&self, file: u64) {
        let old = self.0.lock().remove(&file);
        drop(old);
    }
}
