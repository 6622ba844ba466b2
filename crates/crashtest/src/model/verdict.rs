//! Decides whether a recovered tree may be the result of a crash during a script.
//!
//! # How
//!
//! The recovered tree is compared, apart from data, with the tree after each prefix that may have
//! been recovered (from [`History::floor`] up to the running call). The prefix identifies each
//! file's inode in the model. Then [`PossibleData`] follows the changes of each file since it was
//! last made durable, and collects the possible contents of each sector and the possible sizes.
//! [`Clock`] decides which times are possible. One prefix that
//! explains everything suffices.

use std::ops::RangeInclusive;

use vfscale_testkit::calls::pattern;

use crate::model::clock::Clock;
use crate::model::history::{Change, History};
use crate::model::tree::Tree;

/// Unit that a device writes atomically: of a page, some sectors may be old and others new.
const SECTOR: usize = 512;
/// Unit in which a volume reads and writes.
const BLOCK: usize = 4096;

/// Judges a tree that was recovered when the first `done` calls had returned and at most one more
/// had begun. Returns the matching prefix. Without a `clock`, the times of files are not judged.
///
/// # Errors
/// Describes the mismatch of the longest prefix with the best agreement, and those of shorter ones
/// with the same names and attributes, if they differ.
pub fn judge(
    history: &History,
    clock: Option<&Clock>,
    done: usize,
    recovered: &Tree,
) -> Result<usize, String> {
    let calls = history.steps.len();
    let (floor, ceiling) = (history.floor(done), (done + 1).min(calls));
    let mut complaint = String::new();
    let mut has_shape = false;
    for prefix in (floor..=ceiling).rev() {
        match history.trees[prefix].match_shape(recovered) {
            Err(why) => {
                if complaint.is_empty() {
                    complaint = format!("not as after {prefix} calls: {why}");
                }
            }
            Ok(pairs) => {
                let when = (done, ceiling, prefix);
                let files = pairs.iter().try_for_each(|(ours, theirs)| {
                    judge_file(history, when, *ours, recovered, *theirs)?;
                    judge_times((history, clock), when, *ours, recovered, *theirs)
                });
                match files {
                    Ok(()) => return Ok(prefix),
                    Err(why) if !has_shape => complaint = format!("after {prefix} calls: {why}"),
                    Err(why) if !complaint.ends_with(&why) => {
                        complaint += &format!("; after {prefix} calls: {why}");
                    }
                    Err(_) => {}
                }
                has_shape = true;
            }
        }
    }
    Err(format!("no prefix of {floor} to {ceiling} calls explains it; {complaint}"))
}

fn judge_file(
    history: &History,
    (done, ceiling, prefix): (usize, usize, usize),
    ours: u64,
    recovered: &Tree,
    theirs: u64,
) -> Result<(), String> {
    let Some(found) = recovered.nodes.get(&theirs).and_then(|node| node.data()) else {
        return Ok(());
    };
    let base = history.durable_data(ours, done);
    let durable = history.trees[base].nodes.get(&ours).and_then(|node| node.data());
    let mut data = PossibleData::new(durable.unwrap_or_default());
    let partial = history.first_partial(ours);
    data.may_be_lost = history.loses_data() || partial.is_some();
    for (number, step) in history.steps.iter().enumerate().take(ceiling).skip(base) {
        if let Some((ino, change)) = &step.change
            && *ino == ours
        {
            let is_known = partial.is_none_or(|first| first > number);
            let copies = step.op.copies();
            if (step.op.appends() || copies) && !is_known || copies && history.loses_data() {
                // The end of the file, or what is copied, is unknown.
                return Ok(());
            }
            for part in change.parts(&step.op.seams()) {
                data.change(&part, number < prefix && !step.is_partial);
            }
        }
    }
    data.judge(found).map_err(|why| format!("{}: {why}", recovered.path_of(theirs)))
}

fn judge_times(
    (history, clock): (&History, Option<&Clock>),
    when: (usize, usize, usize),
    ours: u64,
    recovered: &Tree,
    theirs: u64,
) -> Result<(), String> {
    let (Some(clock), Some(node)) = (clock, recovered.nodes.get(&theirs)) else {
        return Ok(());
    };
    let judged = clock.judge(history, when, ours, &node.times);
    judged.map_err(|why| format!("{}: {why}", recovered.path_of(theirs)))
}

/// The possible content of a file.
#[derive(Clone, Debug)]
pub struct PossibleData {
    /// Contents at different moments: each sector must be that of one of them.
    versions: Vec<Vec<u8>>,
    /// Content after all calls.
    latest: Vec<u8>,
    /// Ranges of possible sizes.
    sizes: Vec<RangeInclusive<usize>>,
    /// Whether written data may be lost, entirely or in part, even if the file grew by them.
    may_be_lost: bool,
}

impl PossibleData {
    /// Starts with the known content of a file.
    pub fn new(durable: &[u8]) -> Self {
        let size = durable.len();
        let (versions, latest) = (vec![durable.into()], durable.into());
        Self { versions, latest, sizes: vec![size..=size], may_be_lost: false }
    }

    /// Applies a change. `counts`: whether the change certainly took effect, which matters for
    /// changes that are ordered with changes of names.
    pub fn change(&mut self, change: &Change, counts: bool) {
        let old = self.latest.len();
        match change {
            Change::Write(offset, bytes) => {
                self.grow(offset + bytes.len());
                self.latest[*offset..][..bytes.len()].copy_from_slice(bytes);
            }
            Change::Cut(size) if counts => {
                let size = *size;
                // The zeros beyond the end in the last block are data as well, and may be lost.
                let kept = if self.may_be_lost { size.next_multiple_of(BLOCK) } else { size };
                for version in &mut self.versions {
                    version.truncate(kept);
                }
                self.latest.truncate(size);
                self.versions.push(self.latest.clone());
                for range in &mut self.sizes {
                    *range = (*range.start()).min(size)..=(*range.end()).min(size);
                }
                return;
            }
            Change::Cut(size) => {
                // The rest of the block that it cuts may become zeros before the truncation takes
                // effect.
                let start = (*size).min(old);
                let mut end = start.next_multiple_of(BLOCK).min(old);
                if self.may_be_lost {
                    // The truncation may have taken effect.
                    end = old;
                    self.sizes.push(start..=old);
                }
                self.latest[start..end].fill(0);
            }
        }
        // Data beyond the old end are written page by page, and the size follows.
        self.sizes.push(old..=self.latest.len());
        self.versions.push(self.latest.clone());
    }

    fn grow(&mut self, size: usize) {
        if size > self.latest.len() {
            self.latest.resize(size, 0);
        }
        if self.may_be_lost {
            for version in &mut self.versions {
                version.resize(size.max(version.len()), 0);
            }
        }
    }

    /// Returns whether each byte from `start` on is that of some version: a lost page has an older
    /// content without the later writes to it.
    fn is_mixture(&self, start: usize, found: &[u8]) -> bool {
        found
            .iter()
            .zip(start..)
            .all(|(byte, at)| self.versions.iter().any(|version| version.get(at) == Some(byte)))
    }

    /// Checks that a file may have this content.
    ///
    /// # Errors
    /// Describes the first impossible sector or size.
    pub fn judge(&self, found: &[u8]) -> Result<(), String> {
        let size = found.len();
        if !self.sizes.iter().any(|range| range.contains(&size)) {
            return Err(format!("ends at {size}, instead of one of {:?}", self.sizes));
        }
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let start = number * SECTOR;
            let end = start + sector.len();
            // A version that ends before this range does not explain bytes in it.
            let mut versions = self.versions.iter().filter_map(|version| version.get(start..end));
            let is_known = versions.any(|version| version == sector)
                || self.may_be_lost && self.is_mixture(start, sector);
            if !is_known {
                let versions: Vec<String> = self
                    .versions
                    .iter()
                    .filter_map(|version| version.get(start..end))
                    .map(pattern::explain)
                    .collect();
                let what = pattern::explain(sector);
                let latest = self.latest.get(start..end).unwrap_or_default();
                let same = sector.iter().zip(latest).take_while(|(a, b)| a == b).count();
                let behind = pattern::explain(&sector[same / 16 * 16..]);
                return Err(format!(
                    "at {start} of {size}: {what}, instead of one of {versions:?}; as the latest for \
                     {same} bytes, then {behind}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
