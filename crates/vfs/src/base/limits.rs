//! Limits of what a tree takes beside the data of its file systems, and the counts of it.
//!
//! # Purpose
//!
//! A driver bounds what is stored in its files. What tasks hold besides takes memory, too, with no
//! file to charge it to: open files, what pipes and sockets hold, advisory locks. [`Limits`] bound
//! each of these for a tree and all that were copied from it, and the descriptors of each task.
//! They bind everybody, whatever the credentials: they are there to keep the memory of the process
//! bounded.
//!
//! # What is counted
//!
//! | what | unit | when there is no more |
//! | --- | --- | --- |
//! | open files | one for each, however many descriptors it has | `ENFILE` |
//! | descriptors of a task | the highest number | `EMFILE` |
//! | pipes and fifos | the pages of their capacity, while an end is open | a pipe of one page, then `ENFILE` |
//! | sockets | bytes that are written and not read, messages with what they take themselves | waiting, or `ENOBUFS` when nobody could end that |
//! | advisory locks | a record, a lock of a whole file, or a request that waits | `ENOLCK` |
//!
//! # Counting without a shared line
//!
//! Counts are [`Budget`]s, which have a part for each CPU. Open files are counted by the lists they
//! are on anyway, under the lock of the CPU's list ([`Bound`]). A pipe, a pair of sockets or the
//! locks of a file keep the counts by a reference that is itself counted for each CPU
//! ([`PerCpuArc`]).

use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::percpu::Budget;
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::shared::Bound;

/// Bytes of a page of a pipe.
const PAGE: u64 = 4096;

/// Limits of a tree; see the [module](self). What is not set is as [`Limits::default`] says.
///
/// ```
/// use vfscale_vfs::Limits;
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
    /// A million open files; 64 MiB of pipes as long as they have their usual size, and 256 MiB of
    /// all; 256 MiB in sockets; a million locks; as many descriptors for each task as there can be
    /// ([`OPEN_MAX`]).
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
    /// Limits for a tree whose files take `bytes` at most: in all, what they allow takes about as
    /// much again and a few megabytes. None is higher than by default.
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

    /// The most open files of the tree (`ENFILE`), with those that are only a place, and the ends
    /// of pipes and sockets. Each takes about 300 bytes; one of a pipe or socket about 1 KiB. Who
    /// mounts the tree through FUSE needs one for each inode that the kernel knows, and sets a
    /// limit that is beyond those.
    pub fn open_files(mut self, files: u64) -> Limits {
        self.open_files = files;
        self
    }

    /// The number below which the descriptors of a new task are (`EMFILE`; `RLIMIT_NOFILE`); never
    /// more than [`OPEN_MAX`]. A task that is made of another one gets that one's; see
    /// [`Task::set_descriptors_max`](crate::Task::set_descriptors_max).
    pub fn descriptors(mut self, descriptors: usize) -> Limits {
        self.descriptors = descriptors.min(OPEN_MAX);
        self
    }

    /// The most pages of 4 KiB that pipes and fifos may have, by their capacity. Up to `soft` pages
    /// of all of them, one gets its 16 pages; beyond, it gets one, and can't be made larger
    /// (`EPERM`); and beyond `hard`, which is `soft` at least, there is none (`ENFILE`). As
    /// `fs.pipe-user-pages-soft` and `-hard`.
    pub fn pipe_pages(mut self, soft: u64, hard: u64) -> Limits {
        self.pipe_pages_soft = soft;
        self.pipe_pages = hard.max(soft);
        self
    }

    /// The most bytes that all sockets hold that nobody has read yet. Who writes more waits as for
    /// a full socket, or if there is nothing in the socket gets `ENOBUFS`.
    pub fn socket_bytes(mut self, bytes: u64) -> Limits {
        self.socket_bytes = bytes;
        self
    }

    /// The most advisory locks (`ENOLCK`): records, locks of whole files, and requests that wait.
    /// Each takes about 50 bytes.
    pub fn locks(mut self, locks: u64) -> Limits {
        self.locks = locks;
        self
    }

    /// See [`open_files`](Self::open_files).
    #[must_use]
    pub fn open_files_max(&self) -> u64 {
        self.open_files
    }

    /// See [`descriptors`](Self::descriptors).
    #[must_use]
    pub fn descriptors_max(&self) -> usize {
        self.descriptors
    }
}

/// How much of the limits of a tree is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Pages of pipes and fifos, by their capacity.
    pub pipe_pages: u64,
    /// Bytes in sockets.
    pub socket_bytes: u64,
    /// Advisory locks, and requests for some.
    pub locks: u64,
}

/// The counts of a forest of trees.
pub(crate) struct Quotas {
    limits: Limits,
    pub(crate) files: Arc<Bound>,
    pipe_pages: Budget,
    /// Pages that pipes get one by one, when there are no more of the others.
    pipe_pages_single: Budget,
    pub(crate) socket_bytes: Budget,
    pub(crate) locks: Budget,
}

/// The counts, and references to them.
pub(crate) type SharedQuotas = Arc<PerCpuArc<Quotas>>;

impl Quotas {
    /// In `slots` slots.
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

/// The pages that a pipe was given.
#[derive(Default)]
pub(crate) struct PipePages {
    shared: u64,
    single: u64,
}

impl PipePages {
    /// Takes `pages`, or one if there are no more as many.
    ///
    /// # Errors
    /// `ENFILE` if there is none.
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        (self.shared + self.single) as usize
    }

    /// Takes more, or gives some back.
    ///
    /// # Errors
    /// `EPERM` if there are not as many.
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

    /// Gives all of them back.
    pub(crate) fn give(&mut self, quotas: &Quotas) {
        let PipePages { shared, single } = std::mem::take(self);
        quotas.pipe_pages.give(shared);
        quotas.pipe_pages_single.give(single);
    }
}

/// The largest number of descriptors that a task may have, whatever its limit is (`EMFILE` beyond).
pub const OPEN_MAX: usize = 1 << 20;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
