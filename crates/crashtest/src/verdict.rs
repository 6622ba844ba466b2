//! Whether a tree that was recovered may be what a crash has left of a script.
//!
//! # How
//!
//! For each prefix that may have been recovered ([`History::floor`], up to the call that was running) the
//! trees are compared, data apart; the prefix tells which inode of the model each file is. Then, for
//! each file, [`Data`] follows its changes since it was last made durable, and collects what each of its
//! sectors may hold and where it may end; and [`Clock`](crate::times::Clock) says which times it may have.
//! It is enough that one prefix explains everything.

use std::ops::RangeInclusive;

use crate::history::{Change, History};
use crate::op::Op;
use crate::pattern;
use crate::tree::Tree;

/// What a device writes atomically: parts of a page may be old and parts new, but none smaller.
const SECTOR: usize = 512;
/// What a volume reads and writes at once.
const BLOCK: usize = 4096;

/// Judges a tree that was recovered when the first `done` calls had returned and no other than the next had
/// begun. Gives the prefix that it is.
///
/// # Errors
/// Why no prefix explains it, for the longest that agrees best.
pub fn judge(history: &History, done: usize, recovered: &Tree) -> Result<usize, String> {
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
                    judge_times(history, when, *ours, recovered, *theirs)
                });
                match files {
                    Ok(()) => return Ok(prefix),
                    Err(why) if !has_shape => complaint = format!("after {prefix} calls: {why}"),
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
    let mut data = Data::new(durable.unwrap_or_default());
    let partial = history.first_partial(ours);
    data.may_be_lost = history.loses_data() || partial.is_some();
    for (number, step) in history.steps.iter().enumerate().take(ceiling).skip(base) {
        if let Some((ino, change)) = &step.change
            && *ino == ours
        {
            if matches!(step.op, Op::Append { .. }) && partial.is_some_and(|first| first < number) {
                // Where the file ended is not known.
                return Ok(());
            }
            data.change(change, number < prefix && !step.is_partial);
        }
    }
    data.judge(found).map_err(|why| format!("{}: {why}", recovered.path_of(theirs)))
}

fn judge_times(
    history: &History,
    when: (usize, usize, usize),
    ours: u64,
    recovered: &Tree,
    theirs: u64,
) -> Result<(), String> {
    let (Some(clock), Some(node)) = (&history.clock, recovered.nodes.get(&theirs)) else {
        return Ok(());
    };
    let judged = clock.judge(history, when, ours, &node.times);
    judged.map_err(|why| format!("{}: {why}", recovered.path_of(theirs)))
}

/// What may be found in a file.
#[derive(Clone, Debug)]
pub struct Data {
    /// What it may have held at some moment: each sector is that of one of them.
    versions: Vec<Vec<u8>>,
    /// What it holds when everything has been done.
    latest: Vec<u8>,
    /// Where it may end.
    sizes: Vec<RangeInclusive<usize>>,
    /// What is written may not arrive, or in part, though the file has become longer by it.
    may_be_lost: bool,
}

impl Data {
    /// A file that holds this for sure.
    #[must_use]
    pub fn new(durable: &[u8]) -> Self {
        let size = durable.len();
        let (versions, latest) = (vec![durable.into()], durable.into());
        Self { versions, latest, sizes: vec![size..=size], may_be_lost: false }
    }

    /// Another change was made. `counts`: it is known to have taken its turn, which makes a difference
    /// for changes that do so.
    pub fn change(&mut self, change: &Change, counts: bool) {
        let old = self.latest.len();
        match change {
            Change::Write(offset, bytes) => {
                let start = *offset as usize;
                self.grow(start + bytes.len());
                self.latest[start..][..bytes.len()].copy_from_slice(bytes);
            }
            Change::Grow(size) => self.grow(*size as usize),
            Change::Cut(size) if counts => {
                let size = *size as usize;
                // The zeros behind the end in the last block are data as well, and may be lost.
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
                // The rest of the block that it cuts is made zeros before it takes its turn.
                let start = (*size as usize).min(old);
                let mut end = start.next_multiple_of(BLOCK).min(old);
                if self.may_be_lost {
                    // It may have been made, as far as anybody knows.
                    end = old;
                    self.sizes.push(start..=old);
                }
                self.latest[start..end].fill(0);
            }
            Change::Zero(range, size) => {
                self.grow(*size as usize);
                let end = (range.end as usize).min(self.latest.len());
                self.latest[(range.start as usize).min(end)..end].fill(0);
            }
        }
        // What is behind the old end is written page by page, and the end follows.
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

    /// Whether each byte of what lies at `start` is that of some version: a page that was given up is as it
    /// was once, and what was written to it since is not.
    fn is_mixture(&self, start: usize, found: &[u8]) -> bool {
        found
            .iter()
            .zip(start..)
            .all(|(byte, at)| self.versions.iter().any(|version| version.get(at) == Some(byte)))
    }

    /// Whether a file may hold this.
    ///
    /// # Errors
    /// What must not be there.
    pub fn judge(&self, found: &[u8]) -> Result<(), String> {
        let size = found.len();
        if !self.sizes.iter().any(|range| range.contains(&size)) {
            return Err(format!("ends at {size}, instead of one of {:?}", self.sizes));
        }
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let start = number * SECTOR;
            let end = start + sector.len();
            // A version that ends before this does not explain why the file goes on.
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
