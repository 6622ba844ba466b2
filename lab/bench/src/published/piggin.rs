//! The experiments of the vfs-scale patches, by the numbers of their slides.

use super::table::{OurFigures, PIGGIN, PublishedTable};

/// The parts that most tables have in common.
const OF_SLIDES: PublishedTable = PublishedTable {
    source: PIGGIN,
    title: "",
    machine: "",
    columns: &[],
    rows: &[],
    workloads: &[],
    before: &["all"],
    on_volumes: false,
    figures: OurFigures::Rates,
};

/// Opening and creating, slides 30 to 32.
pub(super) const NAMES: PublishedTable = PublishedTable {
    title: "open, close, create and unlink",
    machine: "1 to 8 CPUs. The talk shows graphs of total time (slides 31 and 32); the table quotes \
              its text (slide 30). Renames and the stat of a deep name are ours.",
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
    ..OF_SLIDES
};

/// Sockets, slide 33.
pub(super) const SOCKETS: PublishedTable = PublishedTable {
    title: "closing lots of sockets",
    machine: "a graph of total time (slide 33), many processes. In the library ours are threads; with \
              sockets alone, and with as many pipes.",
    columns: &["experiment", "with vfs-scale"],
    rows: &[&["close lots of sockets", "less time (a graph)"]],
    workloads: &["close-sockets", "close-many"],
    ..OF_SLIDES
};

/// The multiuser benchmark, slide 34.
pub(super) const REAIM: PublishedTable = PublishedTable {
    title: "reaim before and after all patches, jobs per minute",
    machine: "OSDL's reaim 7 with Peter Chubb's workload: a graph with an axis to 3,000,000 jobs per \
              minute (slide 34). The talk does not say which jobs that workload has; ours is aim-short.",
    columns: &["experiment", "with vfs-scale"],
    rows: &[&["maximum of jobs per minute", "more (a graph)"]],
    workloads: &["aim-short"],
    ..OF_SLIDES
};

/// Walks across mounts, slide 11, and inodes by number, slide 28.
pub(super) const MOUNTS_AND_HANDLES: PublishedTable = PublishedTable {
    title: "crossing a mount, and opening by handle",
    machine: "claims of slides 11, 13 and 28, without a figure.",
    columns: &["structure", "with vfs-scale"],
    rows: &[
        &["vfsmount lock", "\"perfect\" scalability for mount lookup, no extra atomics"],
        &["mnt count", "\"perfect\" scalability for vfsmount refcounting"],
        &["icache hash lock", "made per-bucket, lockless lookup"],
    ],
    workloads: &["mount-cross", "open-handle"],
    ..OF_SLIDES
};

/// Unused dentries and inodes, slides 22 and 28.
pub(super) const EVICTION: PublishedTable = PublishedTable {
    title: "eviction of names",
    machine: "claims of slides 22 and 28, without a figure. Names in memory alone are never dropped, so \
              ours is a volume.",
    columns: &["structure", "with vfs-scale"],
    rows: &[
        &["dcache LRU list", "last global dcache lock, could be made per-zone"],
        &["icache LRU list", "made lazy like dcache, could be made per-zone"],
    ],
    workloads: &["evict"],
    before: &["lru", "inode-list"],
    on_volumes: true,
    ..OF_SLIDES
};

/// Numbers of CPUs for which the structures of the slow side are made.
const SLOTS: &[usize] = &[2, 8, 64, 512];

/// The cons, slides 8 and 11.
pub(super) const SLOW_SIDE: PublishedTable = PublishedTable {
    title: "the slow side: calls that visit the part of every CPU",
    machine: "warnings of slides 8 and 11, without a figure. The CPUs of ours are pretended, and one \
              worker makes the calls.",
    columns: &["patch", "cons"],
    rows: &[
        &["files lock", "larger superblock struct, slow list walking on huge systems"],
        &["vfsmount lock", "slower umounts"],
    ],
    workloads: &["remount", "bind-umount"],
    before: &[],
    figures: OurFigures::Slots(SLOTS),
    ..OF_SLIDES
};

/// The cons that the patches of volumes share with those of slides 8 and 11.
pub(super) const SLOW_SIDE_OF_VOLUMES: PublishedTable = PublishedTable {
    title: "the slow side on volumes: push, and freeze by a remount",
    machine: "the same warnings; a push visits the list of every CPU, and a remount to read-only freezes \
              the log, which sums the counters of all CPUs. The CPUs of ours are pretended.",
    columns: &["patch", "cons"],
    rows: &[&["lists and counters for each CPU", "slow list walking on huge systems"]],
    workloads: &["push", "remount"],
    before: &[],
    on_volumes: true,
    figures: OurFigures::Slots(SLOTS),
    ..OF_SLIDES
};
