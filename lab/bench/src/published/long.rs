//! The experiments of lockref and seqrwlock.

use super::table::{LOCKREF, OurFigures, PublishedTable, SEQRWLOCK};

/// The short mix, in the description of patch 1.
pub(super) const AIM_SHORT: PublishedTable = PublishedTable {
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
    on_volumes: false,
    figures: OurFigures::Rates,
};

/// The other mixes, in the description of patch 1.
pub(super) const AIM_MIXES: PublishedTable = PublishedTable {
    source: LOCKREF,
    title: "AIM7's other mixes, mean change by lockref",
    machine: "8 nodes with 80 CPUs, kernel 3.10-rc1; whole processes. Of ours only the jobs that call a file \
              system, as often as AIM7's work files say; jobs per minute.",
    columns: &["mix", "10-100 users", "200-1000 users", "1100-2000 users"],
    rows: &[
        &["alltests", "-0.2%", "-0.5%", "-2.7%"],
        &["five_sec", "-1.0%", "+2.6%", "+2.4%"],
        &["fserver", "+1.3%", "+1.9%", "+1.0%"],
        &["high_systime", "+0.1%", "+1.3%", "+4.8%"],
        &["new_fserver", "-1.5%", "+0.8%", "+1.1%"],
        &["shared", "+0.5%", "+0.4%", "-0.1%"],
    ],
    workloads: &[
        "aim-alltests",
        "aim-five-sec",
        "aim-fserver",
        "aim-high-systime",
        "aim-new-fserver",
        "aim-shared",
    ],
    before: &["lockref"],
    on_volumes: false,
    figures: OurFigures::Rates,
};

/// Paths of new mappings, in the cover letter.
pub(super) const MAPPINGS: PublishedTable = PublishedTable {
    source: LOCKREF,
    title: "paths told while jobs begin: share of the time in locks",
    machine: "80 CPUs, AIM7's high_systime mix under `perf record`, whose perf_event_mmap_event calls d_path; \
              the share of _raw_spin_lock in all samples. Ours is the share of the workers' time for which \
              they waited for locks.",
    columns: &["program", "before", "after"],
    rows: &[
        &["reaim", "13.37%", "2.82%"],
        &["ls", "7.61%", "1.11%"],
        &["true", "3.54%", "0.26%"],
        &["together", "24.52%", "4.19%"],
    ],
    workloads: &["path-jobs"],
    before: &["lockref", "seqrwlock"],
    on_volumes: false,
    figures: OurFigures::Waiting,
};

/// Programs, in both cover letters.
pub(super) const PROGRAMS: PublishedTable = PublishedTable {
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
    workloads: &["find-size", "cat-fds", "git-diff", "d-path"],
    before: &["lockref", "seqrwlock"],
    on_volumes: false,
    figures: OurFigures::Rates,
};

/// The machine of both tables of Oracle.
const ORACLE: &str = "80 CPUs, 1 TB of memory, kernel 3.8-rc3, the database on tmpfs. Readers and writers of \
                      ours are as many, on fewer CPUs.";

/// The first table of the seqrwlock patches.
pub(super) const SLOB: PublishedTable = PublishedTable {
    source: SEQRWLOCK,
    title: "Oracle SLOB, MB/s of redo",
    machine: ORACLE,
    columns: &["readers", "writers", "before", "after", "change"],
    rows: &[
        &["8", "64", "802", "903", "+12.6%"],
        &["32", "64", "798", "892", "+11.8%"],
        &["80", "64", "658", "714", "+8.5%"],
        &["128", "64", "748", "907", "+21.3%"],
    ],
    workloads: &["slob"],
    before: &["lockref", "seqrwlock"],
    on_volumes: false,
    figures: OurFigures::Rates,
};

/// The second table of the seqrwlock patches. There the figure without the patches is in brackets.
pub(super) const SLOB_LOAD: PublishedTable = PublishedTable {
    source: SEQRWLOCK,
    title: "Oracle SLOB, shares of the time in percent, before and after",
    machine: "the same; times of Oracle's AWR tool, and the time spent in the kernel's spinlocks. The document \
              calls the larger of these the ones with the patch, presumably by mistake. The library \
              of ours works in the process, so its locks are time of the user.",
    columns: &[
        "readers",
        "writers",
        "system, before",
        "after",
        "user, before",
        "after",
        "spinlock, before",
        "after",
    ],
    rows: &[
        &["32", "0", "0.3", "0.3", "39.0", "39.0", "17.4", "6.3"],
        &["80", "0", "0.7", "0.7", "94.2", "97.4", "31.7", "2.9"],
        &["128", "0", "1.4", "1.4", "32.2", "34.4", "62.2", "43.5"],
        &["32", "64", "3.5", "3.8", "53.6", "55.4", "35.0", "9.1"],
        &["80", "64", "2.9", "3.0", "93.9", "94.4", "38.8", "4.5"],
        &["128", "64", "4.3", "4.7", "40.3", "38.2", "58.7", "34.8"],
    ],
    workloads: &["slob"],
    before: &["lockref", "seqrwlock"],
    on_volumes: false,
    figures: OurFigures::Load,
};
