//! The zones of a group, and a summary of those that are not loaded.

/// log2 of the blocks in a zone: 16 MiB; less in tests, whose groups are small.
pub(super) const ZONE_LOG2: u32 = if cfg!(test) { 8 } else { 12 };
/// Blocks of a zone. A multiple of the blocks of a chunk of inodes, so no chunk lies in two zones.
pub(super) const ZONE_BLOCKS: u64 = 1 << ZONE_LOG2;

/// The summary of a zone that was never loaded.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// The zones of a group, by number: equal parts of its range of blocks, which are read into an
/// index and dropped from it as wholes. The summary of a zone that is not loaded tells whether
/// reading it is worthwhile. Takes two bytes and two bits for a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Zones {
    /// The first block of the group.
    start: u64,
    /// The summaries of zones that are not loaded; [`UNKNOWN`] at first.
    summaries: Box<[u16]>,
    /// One bit for each zone.
    loaded: Box<[u64]>,
    used: Box<[u64]>,
    /// Number of zones that are not loaded.
    missing: usize,
}

impl Zones {
    /// Creates the zones of a group that has `blocks` blocks from `start` on. None is loaded.
    pub(super) fn new(start: u64, blocks: u64) -> Self {
        let count = blocks.div_ceil(ZONE_BLOCKS) as usize;
        let bits = || vec![0; count.div_ceil(64)].into();
        let summaries = vec![UNKNOWN; count].into();
        Self { start, summaries, loaded: bits(), used: bits(), missing: count }
    }

    /// Returns the zone that a block is in; the last one for a block behind the group.
    pub(super) fn of(&self, block: u64) -> usize {
        let zone = block.saturating_sub(self.start) >> ZONE_LOG2;
        (zone as usize).min(self.summaries.len().saturating_sub(1))
    }

    /// Returns the first block of a zone.
    pub(super) fn first(&self, zone: usize) -> u64 {
        self.start + zone as u64 * ZONE_BLOCKS
    }

    /// Returns the number of zones.
    pub(super) fn len(&self) -> usize {
        self.summaries.len()
    }

    /// Returns whether all zones are loaded.
    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn is_loaded(&self, zone: usize) -> bool {
        self.loaded.get(zone / 64).is_some_and(|bits| bits & 1 << (zone % 64) != 0)
    }

    /// Returns the first loaded zone from `zone` on; the number of zones if there is none.
    pub(super) fn next_loaded(&self, zone: usize) -> usize {
        (zone..self.len()).find(|zone| self.is_loaded(*zone)).unwrap_or(self.len())
    }

    /// Notes that something was taken from the zone, or put into it.
    pub(super) fn touch(&mut self, zone: usize) {
        if let Some(bits) = self.used.get_mut(zone / 64) {
            *bits |= 1 << (zone % 64);
        }
    }

    /// Returns whether the zone was touched since the last call for it.
    pub(super) fn was_touched(&mut self, zone: usize) -> bool {
        let Some(bits) = self.used.get_mut(zone / 64) else { return false };
        let was_touched = *bits & 1 << (zone % 64) != 0;
        *bits &= !(1 << (zone % 64));
        was_touched
    }

    /// Marks the zone as loaded.
    pub(super) fn load(&mut self, zone: usize) {
        if !self.is_loaded(zone) {
            self.loaded[zone / 64] |= 1 << (zone % 64);
            self.missing -= 1;
        }
        self.touch(zone);
    }

    /// Marks the zone as not loaded, with this summary.
    pub(super) fn drop(&mut self, zone: usize, summary: u16) {
        if self.is_loaded(zone) {
            self.loaded[zone / 64] &= !(1 << (zone % 64));
            self.missing += 1;
        }
        self.summaries[zone] = summary;
    }

    /// Marks all zones as not loaded and unknown.
    pub(super) fn reset(&mut self) {
        self.loaded.fill(0);
        self.summaries.fill(UNKNOWN);
        self.missing = self.summaries.len();
    }

    /// Returns the summary of a zone that is not loaded; `None` if it is.
    pub(super) fn summary(&self, zone: usize) -> Option<u16> {
        (!self.is_loaded(zone)).then(|| self.summaries[zone])
    }

    /// Sets the summary of a zone that is not loaded.
    pub(super) fn set_summary(&mut self, zone: usize, summary: u16) {
        self.summaries[zone] = summary;
    }

    /// Finds the first zone that is not loaded and whose summary is `wanted`; from `zone` on, with
    /// wrap-around.
    pub(super) fn find(&self, zone: usize, wanted: impl Fn(u16) -> bool) -> Option<usize> {
        if self.is_whole() {
            return None;
        }
        let is_wanted = |zone: &usize| self.summary(*zone).is_some_and(&wanted);
        (zone..self.len()).chain(0..zone.min(self.len())).find(is_wanted)
    }

    /// Finds the zone that is not loaded whose summary has the greatest `value`, if that is not 0.
    pub(super) fn best(&self, value: impl Fn(u16) -> u64) -> Option<(usize, u64)> {
        if self.is_whole() {
            return None;
        }
        let values = (0..self.len()).filter_map(|zone| Some((zone, value(self.summary(zone)?))));
        values.filter(|(_, value)| *value > 0).max_by_key(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests;
