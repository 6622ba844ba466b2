//! The experiments of the patches of the committed item list.

use super::table::{CHINNER, OurFigures, PublishedTable};

const MACHINES: &str = "virtual machines with 16 and 32 CPUs, XFS, 50 million files; each patch on top of those \
                        before it; a machine's transactions are of another run than its files. Ours is a \
                        volume in an image, in the kernel's tmpfs; each worker makes 20,000 files, and 2,000 \
                        with --quick; a patch is taken back alone.";

const CREATE_AND_REMOVE: &[&str] = &["create-many", "remove-many"];

/// Files of each worker for which we give seconds.
const FILES: u64 = 20_000;

const ALL_PATCHES: &[&str] =
    &["read-mostly", "active-trans", "cil-counters", "cil-lists", "busy-extents"];

/// The parts that most tables have in common.
const OF_PATCHES: PublishedTable = PublishedTable {
    source: CHINNER,
    title: "",
    machine: MACHINES,
    columns: &[],
    rows: &[],
    workloads: CREATE_AND_REMOVE,
    before: ALL_PATCHES,
    on_volumes: true,
    figures: OurFigures::Rates,
};

/// Patch 1.
pub(super) const READ_MOSTLY: PublishedTable = PublishedTable {
    title: "many files removed, before and after fields that are only read are apart",
    columns: &["machine", "work", "before", "after"],
    rows: &[&["A", "remove", "13m20s", "8m30s"], &["B", "remove", "5m30s", "5m02s"]],
    before: &["read-mostly"],
    ..OF_PATCHES
};

/// Patch 2.
pub(super) const ACTIVE_TRANS: PublishedTable = PublishedTable {
    title: "many files created and removed, before and after the count of active transactions is per CPU",
    columns: &["machine", "work", "before", "after"],
    rows: &[
        &["A", "create", "246k+/-15k", "384k+/-10k"],
        &["B", "create", "225k+/-13k", "223k+/-11k"],
        &["A", "remove", "8m30s", "3m09s"],
        &["B", "remove", "5m02s", "4m51s"],
    ],
    before: &["active-trans"],
    ..OF_PATCHES
};

/// Patch 3.
pub(super) const CIL_COUNTERS: PublishedTable = PublishedTable {
    title: "the same, before and after the CIL's counters are per CPU",
    columns: &["ways", "work", "before", "after"],
    rows: &[
        &["32", "create", "472k/s+/-9k/s", "533k/s+/-28k/s"],
        &["32", "remove", "3m6s", "2m34"],
    ],
    before: &["cil-counters"],
    ..OF_PATCHES
};

/// Patch 4.
pub(super) const CIL_LISTS: PublishedTable = PublishedTable {
    title: "the same, before and after the CIL's lists are per CPU",
    columns: &["ways", "work", "before", "after"],
    rows: &[
        &["32", "create", "533k/s+/-28k/s", "523k/s+/-14k/s"],
        &["32", "remove", "2m34s", "2m00s"],
    ],
    before: &["cil-lists"],
    ..OF_PATCHES
};

/// Patch 5.
pub(super) const BUSY_EXTENTS: PublishedTable = PublishedTable {
    title: "the same, before and after the lists of busy extents are per CPU",
    columns: &["ways", "work", "before", "after"],
    rows: &[
        &["32", "create", "523k/s+/-14k/s", "535k/s+/-24k/s"],
        &["32", "remove", "2m00s", "1m51s"],
    ],
    before: &["busy-extents"],
    ..OF_PATCHES
};

/// The follow-up to the cover letter.
pub(super) const ALL: PublishedTable = PublishedTable {
    title: "the same, before and after all of these patches",
    columns: &["ways", "work", "before", "after"],
    rows: &[&["16", "create", "245k/s", "492k/s"], &["16", "remove", "150k/s", "420k/s"]],
    ..OF_PATCHES
};

/// Times of all patches.
pub(super) const TIMES: PublishedTable = PublishedTable {
    title: "the same, in seconds: times to create, and the time of the CPUs",
    columns: &[
        "patch",
        "machine or ways",
        "create, before",
        "create, after",
        "system time of create, before",
        "after",
    ],
    rows: &[
        &["active transactions", "A", "3m45s", "2m27s", "", ""],
        &["active transactions", "B", "4m13s", "4m14s", "", ""],
        &["CIL counters", "32", "2m03s", "1m56s", "44m20s", "38m37s"],
        &["CIL lists", "32", "1m56s", "1m49s", "", "more"],
        &["busy extents", "32", "1m49s", "1m48s", "", ""],
        &["all", "16", "", "1m54s", "", ""],
    ],
    figures: OurFigures::Seconds(FILES),
    ..OF_PATCHES
};

/// Counts of each patch, without a clock.
pub(super) const COUNTS: PublishedTable = PublishedTable {
    title: "the same, counted: cache lines that two CPUs share, and waits for locks",
    machine: "no such count; the documents name what bounced. Ours are the recorded accesses of two pretended \
              CPUs that work on files of their own, on a volume in memory with structures for 4 CPUs, in three recordings; and the \
              waits of the most workers, for locks in the round with lock statistics, and of transactions \
              for the log in all rounds.",
    columns: &["patch", "what bounced"],
    rows: &[
        &["read-mostly", "m_sectbb_log shares a cacheline with m_active_trans"],
        &["active transactions", "a global atomic counter, half a million times a second"],
        &["CIL counters", "the counters under xc_cil_lock"],
        &["CIL lists", "the list under xc_cil_lock"],
        &["busy extents", "the last use of the xc_cil_lock in the commit fast path"],
    ],
    figures: OurFigures::Counts,
    ..OF_PATCHES
};

/// Transactions of all patches.
pub(super) const TRANSACTIONS: PublishedTable = PublishedTable {
    title: "the same, transactions in a second, before and after each of these patches",
    columns: &["patch", "before", "after"],
    rows: &[
        &["active transactions, machine A", "250k/s", "600k/s"],
        &["CIL counters", "620,000/s", "750,000/s"],
        &["CIL lists", "750,000/s", "1.05M/s"],
        &["busy extents", "1.05M/s", "1.12M/s"],
    ],
    figures: OurFigures::Transactions,
    ..OF_PATCHES
};
