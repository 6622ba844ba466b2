//! On-disk format: every type that is stored on the device.
//!
//! # Rules
//!
//! * Little-endian, no padding, sizes and offsets asserted at compile time; `docs/FORMAT.md` lists
//!   the same numbers, and a test compares them.
//! * Fields without a meaning are written as zeros and ignored when read. A later version may use
//!   them in volumes that this version still reads.
//! * On-disk types are plain bytes without validity rules: each is decoded into a type that holds
//!   only valid values, and encoded from it.

pub mod attr;
mod block_range;
pub mod btree;
pub mod damage;
pub mod dir;
mod expected;
pub mod extent;
pub mod geometry;
pub mod group;
pub mod header;
pub mod inode;
mod magic;
pub mod superblock;
pub mod uuid;

pub use block_range::BlockRange;
pub use damage::Damage;
pub use expected::Expected;
pub(crate) use header::AlignedBlock;
pub use header::{Block, Header, Identity};
pub use magic::Magic;

/// Size of a block, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// Returns the byte offset of a block on the device; `u64::MAX` for a block beyond any device.
pub const fn byte_of_block(block: u64) -> u64 {
    block.saturating_mul(BLOCK_BYTES as u64)
}

/// Returns the table below a heading of `docs/FORMAT.md`: offset, bytes and name of each field.
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

/// Checks that `docs/FORMAT.md` has the fields below a heading, without gaps between two offsets.
#[cfg(test)]
pub(crate) fn check_fields(
    heading: &str,
    fields: &[(usize, usize, &str)],
    within: std::ops::Range<usize>,
) {
    assert_eq!(documented(heading), fields);
    let end = fields.iter().fold(within.start, |at, (offset, bytes, _)| {
        assert_eq!(*offset, at);
        at + bytes
    });
    assert_eq!(end, within.end);
}

/// Checks that `docs/FORMAT.md` has the numbers of these damages, which count up from `first`, and
/// that each text begins with the number and `begin`.
#[cfg(test)]
pub(crate) fn check_numbers(first: u32, begin: &str, damages: impl IntoIterator<Item = Damage>) {
    let page = include_str!("../../../docs/FORMAT.md");
    for (damage, number) in damages.into_iter().zip(first..) {
        assert_eq!(damage.number(), number);
        assert!(page.contains(&format!("| V{number} |")), "V{number} is not in FORMAT.md");
        assert!(damage.to_string().starts_with(&format!("V{number}: {begin}: ")), "{damage}");
    }
}
