//! The experiments of the orphan list patches.

use super::table::{KARA, LOCK_COLUMNS_OF_A_CASE, OurFigures, PublishedTable};

/// Operations of each worker for which we give seconds. Kara does not say how many his were.
const OPERATIONS: u64 = 100_000;

const ROWS: &[&[&str]] = &[
    &["1", "2.769200", "0.056194", "2.750000", "0.054772", "-0.6%"],
    &["2", "5.756500", "0.313268", "5.669000", "0.587528", "-1.5%"],
    &["4", "11.852500", "0.130221", "8.311000", "0.257544", "-29.9%"],
    &["10", "33.590900", "0.394888", "20.162000", "0.189832", "-40%"],
    &["20", "71.035400", "0.320914", "55.854000", "0.478815", "-21.4%"],
    &["40", "236.671100", "2.856885", "174.543000", "0.974547", "-26.3%"],
];

const COLUMNS: &[&str] =
    &["processes", "before, s", "deviation", "after, s", "deviation", "change"];

const LOCK_ROWS: &[&[&str]] = &[
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
];

/// Kara's own program.
pub(super) const TRUNCATES: PublishedTable = PublishedTable {
    source: KARA,
    title: "truncating by one byte, average and deviation of 10 runs in seconds",
    machine: "48 CPUs, ext4 on a RAM disk, which puts each truncated file on the orphan list. Ours is a volume \
              in an image, in the kernel's tmpfs: a truncation within one block changes only the page \
              cache until it is written back, and asks whether the file is on the list. Seconds of ours are \
              those of 100,000 truncates of each worker.",
    columns: COLUMNS,
    rows: ROWS,
    workloads: &["orphan-truncate"],
    before: &["orphan"],
    on_volumes: true,
    figures: OurFigures::Seconds(OPERATIONS),
};

/// The lock of that program.
pub(super) const TRUNCATE_LOCKS: PublishedTable = PublishedTable {
    source: KARA,
    title: "the orphan list's lock, 10 processes, times in microseconds",
    machine: "the same. Of ours the round is as long before as after, and not the number of truncates; \
              without the lock there is no row.",
    columns: &LOCK_COLUMNS_OF_A_CASE,
    rows: LOCK_ROWS,
    workloads: &["orphan-truncate"],
    before: &["orphan"],
    on_volumes: true,
    figures: OurFigures::Locks("s_orphan_lock"),
};

/// A stress with files that are on our list, too.
pub(super) const ORPHANS: PublishedTable = PublishedTable {
    source: KARA,
    title: "the same stress with files that are on the list of a volume, too",
    machine: "the figures of truncating by one byte again. Ours: each operation puts a file on the orphan list \
              and takes it off again, because it unlinks an open file, or truncates a file in several \
              transactions.",
    columns: COLUMNS,
    rows: ROWS,
    workloads: &["orphan-unlink", "orphan-cut"],
    before: &["orphan"],
    on_volumes: true,
    figures: OurFigures::Seconds(OPERATIONS),
};

/// The lock of that stress.
pub(super) const ORPHAN_LOCKS: PublishedTable = PublishedTable {
    source: KARA,
    title: "the orphan list's lock under that stress, times in microseconds",
    machine: "10 processes that truncate by one byte.",
    columns: &LOCK_COLUMNS_OF_A_CASE,
    rows: LOCK_ROWS,
    workloads: &["orphan-unlink", "orphan-cut"],
    before: &["orphan"],
    on_volumes: true,
    figures: OurFigures::Locks("s_orphan_lock"),
};
