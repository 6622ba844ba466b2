//! Everything that lies on disk.
//!
//! # Rules
//!
//! * Little-endian, no padding, sizes and offsets asserted when compiled; `docs/FORMAT.md` has the
//!   same numbers, and a test compares them.
//! * Fields that have no meaning yet are written as zeros. They are not looked at, so that a later
//!   version may use them in volumes that this one still reads.
//! * A type on disk has no meaning of its own: it is decoded into a type that can only have
//!   possible values, and encoded from it.

pub mod attr;
pub mod btree;
mod damage;
pub mod dir;
mod expected;
pub mod extent;
pub mod geometry;
pub mod group;
pub mod header;
pub mod inode;
mod run;
pub mod superblock;
pub mod uuid;

pub use damage::Damage;
pub use expected::Expected;
pub(crate) use header::AlignedBlock;
pub use header::{Block, Header, Identity, Magic};
pub use run::Run;

/// The bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// The byte on the device where a block begins; the largest number for a block that no device has.
#[must_use]
pub const fn byte_of_block(block: u64) -> u64 {
    block.saturating_mul(BLOCK_BYTES as u64)
}

/// The table below a heading of `docs/FORMAT.md`: offset, bytes and name of each field.
#[cfg(test)]
pub(crate) fn documented(heading: &str) -> Vec<(usize, usize, &'static str)> {
    let page = include_str!("../../../docs/FORMAT.md");
    let start = page.find(heading).unwrap_or_else(|| panic!("no {heading}"));
    let rows = page[start..].lines().skip(1).take_while(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let &[_, offset, bytes, name, ..] = cells.as_slice() else { return None };
        Some((offset.parse().ok()?, bytes.parse().ok()?, name))
    });
    rows.collect()
}
