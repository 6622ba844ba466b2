//! The form of a published table, and the names of the documents.

use vfscale_vfs::lockstat;

/// Piggin, "Scaling the Linux VFS", 2009 (the vfs-scale patches).
pub const PIGGIN: &str = "Piggin 2009";

/// Long, "dcache: make it more scalable on large system", 2013 (lockref).
pub const LOCKREF: &str = "Long 2013, lockref";

/// Long, patches of `seq_path` and `d_path` for Oracle, 2013 (lockref and seqrwlock).
pub const SEQRWLOCK: &str = "Long 2013, seqrwlock";

/// Kara, "Improve orphan list scaling", 2014.
pub const KARA: &str = "Kara 2014";

/// Chinner, "xfs: fix a couple of performance issues", 2020 (per-CPU CIL and counters).
pub const CHINNER: &str = "Chinner 2020";

/// Min, Kashyap, Maass, Kang, Kim, "Understanding Manycore Scalability of File Systems", ATC 2016.
pub const FXMARK: &str = "FxMark 2016";

/// Source of a workload that repeats no document.
pub const OWN: &str = "own";

/// A published table, and the workloads that repeat its experiment.
pub struct PublishedTable {
    /// The document, such as [`PIGGIN`].
    pub source: &'static str,
    /// Title of the table.
    pub title: &'static str,
    /// The machine that was measured, and other differences from ours.
    pub machine: &'static str,
    /// The names of its columns.
    pub columns: &'static [&'static str],
    /// Its rows.
    pub rows: &'static [&'static [&'static str]],
    /// The workloads that repeat it.
    pub workloads: &'static [&'static str],
    /// The patches that it measures, by our names; `all` for all of them.
    pub before: &'static [&'static str],
    /// Whether our figures are of volumes, and not of a file system in memory.
    pub on_volumes: bool,
    /// Our figures to compare with it.
    pub figures: OurFigures,
}

/// The figures of a run that are shown next to a published table. Tables of the same workloads
/// share a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OurFigures {
    /// Rates, before and after, and rates of mounted directories.
    Rates,
    /// Mean and standard deviation of the seconds in which each worker makes this many operations,
    /// before and after, and the CPU time of all workers.
    Seconds(u64),
    /// Statistics of one lock class.
    Locks(&'static str),
    /// Share of the workers' time for which they waited for locks, before and after.
    Waiting,
    /// Shares of the CPUs' time in the kernel and in the process, and of the workers' time for
    /// which they waited for locks, before and after.
    Load,
    /// Transactions per second, before and after.
    Transactions,
    /// Lines that two CPUs share and waits for locks, before and after each patch of the tables
    /// with the same workloads.
    Counts,
    /// Times of an operation of one worker with structures for these numbers of CPUs.
    Slots(&'static [usize]),
}

/// Columns of lock statistics: the name of a case, and the columns of `lock_stat`.
pub(crate) const LOCK_COLUMNS_OF_A_CASE: [&str; 13] = {
    let mut columns = ["case"; 13];
    let (_, behind) = columns.split_at_mut(1);
    behind.copy_from_slice(&lockstat::Row::COLUMNS);
    columns
};

/// Readers and writers of `slob` in the tables of [`SEQRWLOCK`].
pub(crate) const MIXES: &[(usize, usize)] =
    &[(8, 64), (32, 64), (80, 64), (128, 64), (32, 0), (80, 0), (128, 0)];
