//! The published tables that workloads repeat.
//!
//! The documents are quoted as numbers only. Their machines had up to 80 CPUs and differ from the
//! one measured here. So the direction in which a patch moves a figure can be compared, but not the
//! distance. `docs/REFERENCES.md` lists the documents.

mod chinner;
mod kara;
mod long;
mod piggin;
mod prices;
mod table;

pub(crate) use prices::price_of;
pub use table::{
    CHINNER, FXMARK, KARA, LOCKREF, OWN, OurFigures, PIGGIN, PublishedTable, SEQRWLOCK,
};
pub(crate) use table::{LOCK_COLUMNS_OF_A_CASE, MIXES};

/// The tables, in the order of the report.
pub const TABLES: &[PublishedTable] = &[
    piggin::NAMES,
    piggin::SOCKETS,
    piggin::REAIM,
    piggin::MOUNTS_AND_HANDLES,
    piggin::EVICTION,
    piggin::SLOW_SIDE,
    piggin::SLOW_SIDE_OF_VOLUMES,
    long::AIM_SHORT,
    long::AIM_MIXES,
    long::MAPPINGS,
    long::PROGRAMS,
    long::SLOB,
    long::SLOB_LOAD,
    kara::TRUNCATES,
    kara::TRUNCATE_LOCKS,
    kara::ORPHANS,
    kara::ORPHAN_LOCKS,
    chinner::READ_MOSTLY,
    chinner::ACTIVE_TRANS,
    chinner::CIL_COUNTERS,
    chinner::CIL_LISTS,
    chinner::BUSY_EXTENTS,
    chinner::ALL,
    chinner::TIMES,
    chinner::TRANSACTIONS,
    chinner::COUNTS,
];

/// Returns the cases of volumes whose shared lines are counted ([`OurFigures::Counts`]): a
/// workload, and the patches that are disabled. For each workload one case has none disabled.
#[must_use]
pub fn cases_to_count() -> Vec<(&'static str, &'static [&'static str])> {
    let mut cases: Vec<(&str, &[&str])> = Vec::new();
    for table in TABLES.iter().filter(|table| table.figures == OurFigures::Counts) {
        for workload in table.workloads {
            cases.push((*workload, &[]));
            for other in TABLES.iter().filter(|other| other.workloads == table.workloads) {
                let case = (*workload, other.before);
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
    }
    cases
}
