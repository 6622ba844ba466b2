//! The published tables that workloads repeat.
//!
//! The documents are quoted as numbers only. Their machines had up to 80 CPUs and differ from the
//! one measured here. So the direction in which a patch moves a figure can be compared, but not the
//! distance. `docs/REFERENCES.md` lists the documents.

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
    /// Our figures to compare with it.
    pub figures: OurFigures,
}

/// The figures of a run that are shown next to a published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OurFigures {
    /// Rates in memory, before and after, and rates of mounted directories.
    Memory,
    /// Rates on volumes, before and after.
    Volumes,
    /// Statistics of one lock class on volumes, from the run of the table above.
    Locks(&'static str),
    /// Transactions per second on volumes, before and after, from the run of the tables above.
    Transactions,
}

/// Columns of lock statistics: the name of a case, and the columns of `lock_stat`.
pub(crate) const LOCK_COLUMNS_OF_A_CASE: [&str; 13] = {
    let mut columns = ["case"; 13];
    let (_, behind) = columns.split_at_mut(1);
    behind.copy_from_slice(&lockstat::Row::COLUMNS);
    columns
};

/// Machines of [`CHINNER`].
const CHINNERS_MACHINES: &str = "virtual machines with 16 and 32 CPUs, XFS; a machine's transactions are of another run than \
                        its files. Ours is a volume in an image, in the kernel's tmpfs.";

/// Workloads of [`CHINNER`].
const CREATE_AND_REMOVE: &[&str] = &["create-many", "remove-many"];

/// Patches of [`CHINNER`].
const ALL_OF_CHINNER: &[&str] =
    &["read-mostly", "active-trans", "cil-counters", "cil-lists", "busy-extents"];

/// The tables, in the order of the report.
pub const TABLES: &[PublishedTable] = &[
    PublishedTable {
        source: PIGGIN,
        title: "open, close, create and unlink",
        machine: "1 to 8 CPUs, kernel 2.6.31. The talk shows graphs of total time without numbers; the table \
                  quotes its text. Renames and the stat of a deep name are ours.",
        columns: &["experiment", "with vfs-scale"],
        rows: &[
            &["open and close, separate directories", "seems perfectly scalable"],
            &["create and unlink", "seems perfectly scalable"],
            &["lookup with a common directory", "less scalable, due to d_lock"],
            &["one thread", "worse in some cases, better in others"],
        ],
        workloads: &[
            "open-close-same-dir",
            "open-close-own-dir",
            "open-close-one-file",
            "create-unlink-same-dir",
            "create-unlink-own-dir",
            "stat-deep",
            "rename-same-dir",
            "rename-own-dir",
            "rename-cross-dir",
        ],
        before: &["all"],
        figures: OurFigures::Memory,
    },
    PublishedTable {
        source: PIGGIN,
        title: "closing lots of sockets",
        machine: "a graph of total time without numbers, many processes.",
        columns: &["experiment", "with vfs-scale"],
        rows: &[&["close lots of sockets", "less time (a graph)"]],
        workloads: &["close-many"],
        before: &["all"],
        figures: OurFigures::Memory,
    },
    PublishedTable {
        source: LOCKREF,
        title: "AIM7's short mix before and after lockref, jobs per minute",
        machine: "8 nodes with 80 CPUs, kernel 3.10-rc1, a RAM disk; whole processes, with the computing and the \
                  terminals that are left out here.",
        columns: &["nodes", "users", "before", "after", "change"],
        rows: &[
            &["8", "10-100", "1,546,813", "5,080,126", "+228.4%"],
            &["4", "10-100", "1,663,439", "4,703,083", "+182.7%"],
            &["2", "10-100", "2,545,389", "3,790,995", "+48.9%"],
            &["1", "10-100", "2,374,488", "2,394,846", "+0.9%"],
            &["8", "200-1000", "1,064,184", "7,391,382", "+594.6%"],
            &["4", "200-1000", "1,362,447", "7,325,475", "+437.7%"],
            &["2", "200-1000", "1,851,198", "4,539,511", "+145.2%"],
            &["1", "200-1000", "2,477,537", "2,457,513", "-0.8%"],
            &["8", "1100-2000", "1,056,243", "7,067,282", "+569.1%"],
            &["4", "1100-2000", "1,354,505", "6,930,437", "+411.7%"],
            &["2", "1100-2000", "1,735,881", "4,581,847", "+164.0%"],
            &["1", "1100-2000", "2,511,547", "2,496,594", "-0.6%"],
        ],
        workloads: &["aim-short"],
        before: &["lockref"],
        figures: OurFigures::Memory,
    },
    PublishedTable {
        source: LOCKREF,
        title: "find -size, cat of maps, git diff; and the path of an open file",
        machine: "80 CPUs, and a PC with 4. The path of an open file is ours: it is the call that the patches \
                  speed up.",
        columns: &["experiment", "change with both patches"],
        rows: &[
            &["find $HOME -size 0b", "within a few percent"],
            &["cat /proc/*/maps /proc/*/numa_maps", "within a few percent"],
            &["git diff", "none"],
        ],
        workloads: &["find-size", "cat-maps", "git-diff", "d-path"],
        before: &["lockref", "seqrwlock"],
        figures: OurFigures::Memory,
    },
    PublishedTable {
        source: SEQRWLOCK,
        title: "Oracle SLOB, MB/s of redo",
        machine: "80 CPUs, 1 TB of memory, kernel 3.8-rc3, the database on tmpfs.",
        columns: &["readers", "writers", "before", "after", "change"],
        rows: &[
            &["8", "64", "802", "903", "+12.6%"],
            &["32", "64", "798", "892", "+11.8%"],
            &["80", "64", "658", "714", "+8.5%"],
            &["128", "64", "748", "907", "+21.3%"],
        ],
        workloads: &["slob"],
        before: &["lockref", "seqrwlock"],
        figures: OurFigures::Memory,
    },
    PublishedTable {
        source: KARA,
        title: "truncating by one byte, average time in seconds",
        machine: "48 CPUs, ext4 on a RAM disk. Ours is a volume in an image, in the kernel's tmpfs.",
        columns: &["processes", "before", "after", "change"],
        rows: &[
            &["1", "2.769", "2.750", "-0.6%"],
            &["2", "5.757", "5.669", "-1.5%"],
            &["4", "11.853", "8.311", "-29.9%"],
            &["10", "33.591", "20.162", "-40%"],
            &["20", "71.035", "55.854", "-21.4%"],
            &["40", "236.671", "174.543", "-26.3%"],
        ],
        workloads: &["orphan-truncate"],
        before: &["orphan"],
        figures: OurFigures::Volumes,
    },
    PublishedTable {
        source: KARA,
        title: "the orphan list's lock, 10 processes, times in microseconds",
        machine: "the same. Of ours the round is as long before as after, and not the number of truncates; \
                  without the lock there is no row.",
        columns: &LOCK_COLUMNS_OF_A_CASE,
        rows: &[
            &[
                "before",
                "7089335",
                "7089335",
                "9.07",
                "3504220.69",
                "1473754546.28",
                "207.88",
                "14487647",
                "16381236",
                "0.16",
                "211.62",
                "79738146.84",
                "4.87",
            ],
            &[
                "after",
                "2547868",
                "2547868",
                "9.18",
                "8218.64",
                "547550185.12",
                "214.91",
                "7994533",
                "8191236",
                "0.16",
                "203.81",
                "30660307.81",
                "3.74",
            ],
        ],
        workloads: &["orphan-truncate"],
        before: &["orphan"],
        figures: OurFigures::Locks("s_orphan_lock"),
    },
    PublishedTable {
        source: CHINNER,
        title: "50 million files created and removed, before and after the count of active transactions is per CPU",
        machine: CHINNERS_MACHINES,
        columns: &["machine", "work", "before", "after"],
        rows: &[
            &["A", "create", "246k/s", "384k/s"],
            &["B", "create", "225k/s", "223k/s"],
            &["A", "remove", "8m30s", "3m09s"],
            &["B", "remove", "5m02s", "4m51s"],
            &["A", "transactions", "250k/s", "600k/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: &["active-trans"],
        figures: OurFigures::Volumes,
    },
    PublishedTable {
        source: CHINNER,
        title: "the same, before and after the CIL's counters are per CPU",
        machine: CHINNERS_MACHINES,
        columns: &["ways", "work", "before", "after"],
        rows: &[
            &["32", "create", "472k/s +/- 9k", "533k/s +/- 28k"],
            &["32", "remove", "3m06s", "2m34s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: &["cil-counters"],
        figures: OurFigures::Volumes,
    },
    PublishedTable {
        source: CHINNER,
        title: "the same, before and after the CIL's lists, and those of busy extents, are per CPU",
        machine: CHINNERS_MACHINES,
        columns: &["patch", "work", "before", "after"],
        rows: &[
            &["lists", "create", "533k/s +/- 28k", "523k/s +/- 14k"],
            &["lists", "remove", "2m34s", "2m00s"],
            &["busy extents", "create", "523k/s +/- 14k", "535k/s +/- 24k"],
            &["busy extents", "remove", "2m00s", "1m51s"],
            &["busy extents", "transactions", "", "1.12M/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: &["cil-lists", "busy-extents"],
        figures: OurFigures::Volumes,
    },
    PublishedTable {
        source: CHINNER,
        title: "the same, before and after all of these patches",
        machine: CHINNERS_MACHINES,
        columns: &["machine", "work", "before", "after"],
        rows: &[
            &["A, 16 ways", "create", "245k/s", "492k/s"],
            &["A, 16 ways", "remove", "150k/s", "420k/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: ALL_OF_CHINNER,
        figures: OurFigures::Volumes,
    },
    PublishedTable {
        source: CHINNER,
        title: "the same, transactions in a second, before and after each of these patches",
        machine: CHINNERS_MACHINES,
        columns: &["patch", "before", "after"],
        rows: &[
            &["active transactions, machine A", "250k/s", "600k/s"],
            &["all up to busy extents, 32 ways", "", "1.12M/s"],
        ],
        workloads: CREATE_AND_REMOVE,
        before: ALL_OF_CHINNER,
        figures: OurFigures::Transactions,
    },
];
