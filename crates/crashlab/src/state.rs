//! A state after a power cut.

use std::collections::BTreeSet;

/// The remains of a log after a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The steps before the power cut.
    pub(crate) cut: usize,
    /// The ones of them that are lost, in whole or in part.
    pub(crate) lost: BTreeSet<usize>,
    /// The write of which a part has arrived, and that part: offsets in it, in bytes.
    pub(crate) torn: Option<(usize, (usize, usize))>,
}

impl State {
    /// Returns the state after a step, in which nothing is lost.
    pub(crate) fn whole(cut: usize) -> Self {
        Self { cut, lost: BTreeSet::new(), torn: None }
    }

    /// Returns the number of steps before the power cut.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Returns the numbers of the steps that are lost, in whole or in part.
    pub fn lost(&self) -> impl Iterator<Item = usize> + '_ {
        self.lost.iter().copied()
    }

    /// Returns the write of which a part has arrived, and the offsets of that part in it, in bytes.
    pub fn torn(&self) -> Option<(usize, (usize, usize))> {
        self.torn
    }

    /// Returns whether a step has arrived as a whole.
    pub(crate) fn has(&self, index: usize) -> bool {
        index < self.cut && !self.lost.contains(&index)
    }

    /// Returns whether all that this one has lost is lost in the other one too, no later.
    pub fn is_within(&self, other: &State) -> bool {
        self.cut <= other.cut
            && self.lost.is_subset(&other.lost)
            && (self.torn == other.torn || self.torn.is_none_or(|(it, _)| other.lost.contains(&it)))
    }
}
