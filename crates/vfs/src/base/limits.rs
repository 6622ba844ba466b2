//! Limits of the memory that a tree uses apart from the data of its file systems, and its
//! accounting.
//!
//! # Purpose
//!
//! A driver bounds the data of its files. Tasks use more memory, which belongs to no file: open
//! files, the contents of pipes and sockets, advisory locks. [`Limits`] bound each of these for a
//! tree and all trees that were copied from it, and the descriptors of each task. They bind every
//! task, whatever its credentials, because they bound the memory of the process.
//!
//! # Units
//!
//! | resource | unit | at the limit |
//! | --- | --- | --- |
//! | open files | one for each, however many descriptors it has | `ENFILE` |
//! | descriptors of a task | the highest number | `EMFILE` |
//! | pipes and fifos | the pages of their capacity, while an end is open | a pipe of one page, then `ENFILE` |
//! | sockets | bytes that are written and not read, messages with their overhead | waiting, or `ENOBUFS` if no reader could end the wait |
//! | advisory locks | a record, a lock of a whole file, or a request that waits | `ENOLCK` |
//!
//! # Accounting without a shared cache line
//!
//! Counts are [`Budget`]s, which have a shard for each CPU. Open files are counted by the lists
//! that hold them, under the lock of the CPU's list ([`Bound`]). A pipe, a pair of sockets or the
//! locks of a file refer to the counts by a reference that is itself counted for each CPU
//! ([`PerCpuArc`]).

pub use vfscale_sync::page::{idle_bytes, idle_max, set_idle_max, trim as trim_idle};

use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::percpu::Budget;
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::shared::Bound;

/// The size of a page of a pipe, in bytes.
const PAGE: u64 = 4096;

/// Limits of the memory that a tree takes beside the data of its files: open files, pipes, sockets,
/// locks, descriptors. Limits that the caller does not set have the values of [`Limits::default`].
///
/// ```
/// # mod vfscale { pub use vfscale_vfs::*; }
/// use vfscale::Limits;
///
/// let limits = Limits::for_size(64 << 20).open_files(1000).descriptors(100);
/// assert_eq!(limits.open_files_max(), 1000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    open_files: u64,
    descriptors: usize,
    pipe_pages_soft: u64,
    pipe_pages: u64,
    socket_bytes: u64,
    locks: u64,
}

impl Default for Limits {
    /// Returns the default limits: a million open files; 64 MiB of pipes of the usual size, and
    /// 256 MiB of all pipes; 256 MiB in sockets; a million locks; [`OPEN_MAX`] descriptors for each
    /// task.
    fn default() -> Limits {
        Limits {
            open_files: 1 << 20,
            descriptors: OPEN_MAX,
            pipe_pages_soft: (64 << 20) / PAGE,
            pipe_pages: (256 << 20) / PAGE,
            socket_bytes: 256 << 20,
            locks: 1 << 20,
        }
    }
}

impl Limits {
    /// Returns limits for a tree whose files take at most `bytes`: all that they allow takes about
    /// `bytes` again and a few megabytes. No limit exceeds the default.
    pub fn for_size(bytes: u64) -> Limits {
        let most = Limits::default();
        Limits {
            open_files: (bytes / 4096).clamp(4096, most.open_files),
            descriptors: most.descriptors,
            pipe_pages_soft: (bytes / 8 / PAGE).clamp(1024, most.pipe_pages_soft),
            pipe_pages: (bytes / 4 / PAGE).clamp(2048, most.pipe_pages),
            socket_bytes: (bytes / 4).clamp(4 << 20, most.socket_bytes),
            locks: (bytes / 512).clamp(8192, most.locks),
        }
    }

    /// Limits the open files of the tree (`ENFILE`), `O_PATH` files and the ends of pipes and
    /// sockets included. Each takes about 300 bytes; one of a pipe or socket about 1 KiB. A FUSE
    /// mount of the tree needs one for each inode that the kernel caches, so it needs a higher
    /// limit.
    pub fn open_files(mut self, files: u64) -> Limits {
        self.open_files = files;
        self
    }

    /// Limits the numbers of the descriptors of a new task to those below `descriptors` (`EMFILE`;
    /// `RLIMIT_NOFILE`), at most [`OPEN_MAX`]. A task that is made from another one inherits that
    /// one's limit; see [`Calls::set_descriptors_max`](crate::Calls::set_descriptors_max).
    pub fn descriptors(mut self, descriptors: usize) -> Limits {
        self.descriptors = descriptors.min(OPEN_MAX);
        self
    }

    /// Limits the capacity of all pipes and fifos, in pages of 4 KiB. Up to `soft` pages in total a
    /// new pipe gets 16 pages. Beyond, it gets one page and cannot grow (`EPERM`); beyond `hard`,
    /// which is at least `soft`, creation fails (`ENFILE`). Like `fs.pipe-user-pages-soft` and
    /// `-hard` of Linux.
    pub fn pipe_pages(mut self, soft: u64, hard: u64) -> Limits {
        self.pipe_pages_soft = soft;
        self.pipe_pages = hard.max(soft);
        self
    }

    /// Limits the unread bytes in all sockets. A writer beyond the limit waits as for a full
    /// socket, or gets `ENOBUFS` if its socket is empty.
    pub fn socket_bytes(mut self, bytes: u64) -> Limits {
        self.socket_bytes = bytes;
        self
    }

    /// Limits advisory locks (`ENOLCK`): records, locks of whole files, and requests that wait.
    /// Each takes about 50 bytes.
    pub fn locks(mut self, locks: u64) -> Limits {
        self.locks = locks;
        self
    }

    /// Returns the limit of [`open_files`](Self::open_files).
    pub fn open_files_max(&self) -> u64 {
        self.open_files
    }

    /// Returns the limit of [`descriptors`](Self::descriptors).
    pub fn descriptors_max(&self) -> usize {
        self.descriptors
    }
}

/// The part of a tree's limits that is in use.
///
/// ```
/// # fn example(vfs: &vfscale_vfs::Vfs) {
/// let usage = vfs.usage();
/// println!("{usage:?}");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Pages of the capacity of pipes and fifos.
    pub pipe_pages: u64,
    /// Bytes in sockets.
    pub socket_bytes: u64,
    /// Advisory locks, and requests that wait for one.
    pub locks: u64,
}

/// The accounting of trees that were copied from each other.
pub(crate) struct Quotas {
    limits: Limits,
    pub(crate) files: Arc<Bound>,
    pipe_pages: Budget,
    /// Single pages for pipes beyond the soft limit.
    pipe_pages_single: Budget,
    pub(crate) socket_bytes: Budget,
    pub(crate) locks: Budget,
}

/// A counted reference to the accounting.
pub(crate) type SharedQuotas = Arc<PerCpuArc<Quotas>>;

impl Quotas {
    /// Creates the accounting with `slots` shards.
    pub(crate) fn new(limits: Limits, slots: usize) -> SharedQuotas {
        let quotas = Quotas {
            limits,
            files: Arc::new(Bound::new(limits.open_files, slots)),
            pipe_pages: Budget::new(limits.pipe_pages_soft, slots),
            pipe_pages_single: Budget::new(limits.pipe_pages - limits.pipe_pages_soft, slots),
            socket_bytes: Budget::new(limits.socket_bytes, slots),
            locks: Budget::new(limits.locks, slots),
        };
        Arc::new(PerCpuArc::new(slots, Arc::new(quotas)))
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            pipe_pages: self.pipe_pages.used() + self.pipe_pages_single.used(),
            socket_bytes: self.socket_bytes.used(),
            locks: self.locks.used(),
        }
    }
}

/// The pages that are charged for a pipe.
#[derive(Default)]
pub(crate) struct PipePages {
    shared: u64,
    single: u64,
}

impl PipePages {
    /// Charges `pages`, or one page if fewer are available.
    ///
    /// # Errors
    /// `ENFILE` if no page is available.
    pub(crate) fn take(quotas: &Quotas, pages: u64) -> Result<PipePages, Errno> {
        if quotas.pipe_pages.take(pages) {
            Ok(PipePages { shared: pages, single: 0 })
        } else if quotas.pipe_pages_single.take(1) {
            Ok(PipePages { shared: 0, single: 1 })
        } else if quotas.pipe_pages.take(1) {
            Ok(PipePages { shared: 1, single: 0 })
        } else {
            Err(Errno::NFILE)
        }
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        (self.shared + self.single) as usize
    }

    /// Charges more pages, or uncharges some.
    ///
    /// # Errors
    /// `EPERM` if not enough pages are available.
    pub(crate) fn resize(&mut self, quotas: &Quotas, pages: u64) -> Result<(), Errno> {
        let have = self.shared + self.single;
        if pages > have {
            if !quotas.pipe_pages.take(pages - have) {
                return Err(Errno::PERM);
            }
            self.shared += pages - have;
            return Ok(());
        }
        let single = (have - pages).min(self.single);
        let shared = have - pages - single;
        self.single -= single;
        self.shared -= shared;
        quotas.pipe_pages_single.give(single);
        quotas.pipe_pages.give(shared);
        Ok(())
    }

    /// Uncharges all pages.
    pub(crate) fn give(&mut self, quotas: &Quotas) {
        let PipePages { shared, single } = std::mem::take(self);
        quotas.pipe_pages.give(shared);
        quotas.pipe_pages_single.give(single);
    }
}

/// The most descriptors of a task, whatever its limit is (`EMFILE` beyond).
pub const OPEN_MAX: usize = 1 << 20;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
