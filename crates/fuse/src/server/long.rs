//! The requests that may take long, for a transport on which a request must not delay the next ones
//! of its CPU.

use super::Server;
use super::durable::change_of;
use crate::base::syncing::Syncing;
use crate::wire::request::Operation;

/// Bytes of data from which on another thread transfers them: above it, waking that thread takes
/// less time than the copy.
const BIG: usize = 128 << 10;

impl Server {
    /// Returns whether an operation transfers much data, waits for I/O by its nature, or works on
    /// many blocks. Any operation on a volume may still have to read a block from disk.
    pub(super) fn takes_long(&self, operation: &Operation<'_>) -> bool {
        use Operation as Op;
        match operation {
            Op::Read(at) => at.size as usize >= BIG,
            Op::Write(write) => write.data.len() >= BIG,
            Op::FAllocate { .. } | Op::CopyFileRange { .. } | Op::Ioctl { .. } => true,
            Op::FSync { .. } | Op::FSyncDir { .. } | Op::SyncFs => !self.config.volatile,
            // Such a request may have to be answered later.
            Op::SetLk { .. } => false,
            Op::SetAttr(set) if set.sets_time() => false,
            _ => self.is_durable_at_once() && change_of(operation, 0).is_some(),
        }
    }

    /// Returns whether the mount promises that changes are durable when their calls return.
    fn is_durable_at_once(&self) -> bool {
        self.config.syncing != Syncing::OnRequest && !self.config.volatile
    }
}
