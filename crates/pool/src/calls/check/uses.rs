//! Uses of the places of a zone, as bits beside those of its bitmaps: 64 places are compared at
//! once, and only those that contradict each other are looked at one by one.

use std::collections::HashMap;
use std::ops::Range;

use crate::disk::layout::Layout;
use crate::space::bitmaps::{Bits, WORDS};

/// Places that are used one by one, of each zone that has some.
#[derive(Debug, Default)]
pub(super) struct Uses(HashMap<usize, Box<Bits>>);

impl Uses {
    /// Sorts places by their zones. Those that the pool does not have are left out.
    pub(super) fn new(layout: &Layout, places: impl Iterator<Item = u64>) -> Self {
        let mut zones: HashMap<usize, Box<Bits>> = HashMap::new();
        for (zone, at) in places.filter(|place| layout.has(*place)).map(|at| layout.locate(at)) {
            set(zones.entry(zone).or_insert_with(|| Box::new([0; WORDS])), at..at + 1);
        }
        Self(zones)
    }

    /// Returns the places of a zone whose uses contradict its bitmaps, or each other, in order.
    /// `rows` are the places that rows have; all are counted from the first of the zone.
    pub(super) fn suspects(
        &self,
        zone: usize,
        (committed, used): &(Box<Bits>, Box<Bits>),
        rows: impl Iterator<Item = Range<u64>>,
    ) -> Vec<u64> {
        let mut in_rows = Box::new([0; WORDS]);
        rows.for_each(|run| set(&mut in_rows, run));
        let alone = self.0.get(&zone);
        let mut found = Vec::new();
        for word in 0..WORDS {
            let (alone, row) = (alone.map_or(0, |bits| bits[word]), in_rows[word]);
            let (committed, used) = (committed[word], used[word]);
            let mut bits = committed ^ (alone | row) | committed & !used | alone & row;
            while bits != 0 {
                found.push(word as u64 * 64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
        found
    }
}

/// Sets the bits of a run, as far as a zone has them.
fn set(bits: &mut Bits, run: Range<u64>) {
    let (mut at, end) = (run.start, run.end.min(WORDS as u64 * 64));
    while at < end {
        let next = (at / 64 * 64 + 64).min(end);
        bits[at as usize / 64] |= u64::MAX >> (64 - (next - at)) << (at % 64);
        at = next;
    }
}

#[cfg(test)]
mod tests;
