//! How many records a block of a tree has.

use zerocopy::little_endian::U64;

use crate::format::btree::{AREA_BYTES, Entry, Kind};

/// Returns the maximum number of records with values of type `V` in a block.
pub(crate) const fn capacity<K: Kind, V>() -> usize {
    let fit = AREA_BYTES / size_of::<Entry<K::Key, V>>();
    if fit < K::RECORDS_MAX { fit } else { K::RECORDS_MAX }
}

/// Returns the maximum number of records of a block at `level`.
pub(crate) const fn records_max<K: Kind>(level: u16) -> usize {
    if level == 0 { capacity::<K, K::Value>() } else { capacity::<K, U64>() }
}

/// Returns the minimum number of records of the first and the last block of a level below the root.
pub(crate) const fn records_least(level: u16) -> usize {
    if level == 0 { 1 } else { 2 }
}

/// Returns the minimum number of records of every other block of the level.
pub(crate) const fn records_min<K: Kind>(level: u16) -> usize {
    let (third, least) = (records_max::<K>(level) / 3, records_least(level));
    if third > least { third } else { least }
}
