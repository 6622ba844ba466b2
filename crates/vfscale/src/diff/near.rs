//! The names of files that have changed, by a search.
//!
//! The inode of a file does not tell the directory that it is in. A file is made near its
//! directory, so the directories are searched from the chunk of its inode on, in both directions,
//! and then all others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use vfscale_diskfs::rescue::Rescue;

use super::candidates::Unclear;
use super::side::Side;
use super::tree::Edge;

/// The search for the names of some files.
struct Search<'s> {
    side: &'s Side,
    /// How many names are missing of each file.
    wanted: HashMap<u64, usize>,
    searched: HashSet<u64>,
}

/// Finds names of files: as many as `wanted` says, in all directories but `known` ones.
///
/// # Errors
/// [`Unclear`]: damage, or names are missing.
pub(super) fn search(
    side: &Side,
    wanted: HashMap<u64, usize>,
    known: &BTreeSet<u64>,
    found: &mut HashMap<u64, Vec<Edge>>,
) -> Result<(), Unclear> {
    let mut nearby: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for ino in wanted.keys() {
        nearby.entry(Rescue::chunk_of(*ino)).or_default().push(*ino);
    }
    let mut search = Search { side, wanted, searched: HashSet::new() };
    let mut ends: Vec<_> = nearby.into_iter().map(|(at, inos)| (inos, [Some(at); 2])).collect();
    for chunk in ends.iter().filter_map(|(_, [at, _])| *at).collect::<Vec<_>>() {
        search.chunk(chunk, known, found)?;
    }
    while !ends.is_empty() {
        ends.retain(|(inos, ends)| {
            ends.iter().any(Option::is_some)
                && inos.iter().any(|ino| search.wanted.contains_key(ino))
        });
        for (_, ends) in &mut ends {
            for (end, is_behind) in ends.iter_mut().zip([false, true]) {
                let Some(at) = *end else { continue };
                *end = side.volume().next_chunk(at, is_behind)?;
                if let Some(chunk) = *end {
                    search.chunk(chunk, known, found)?;
                }
            }
        }
    }
    if !search.wanted.is_empty() {
        for chunk in side.volume().chunks_in(0..side.volume().blocks())? {
            search.chunk(chunk.start, known, found)?;
        }
    }
    if search.wanted.is_empty() { Ok(()) } else { Err(Unclear) }
}

impl Search<'_> {
    /// Searches the directories in a chunk, unless that was done.
    fn chunk(
        &mut self,
        chunk: u64,
        known: &BTreeSet<u64>,
        found: &mut HashMap<u64, Vec<Edge>>,
    ) -> Result<(), Unclear> {
        if self.wanted.is_empty() || !self.searched.insert(chunk) {
            return Ok(());
        }
        for (dir, core) in self.side.volume().directories_in(chunk)? {
            if core.nlink == 0 || known.contains(&dir) {
                continue;
            }
            for name in self.side.names(dir, &core, "/".as_ref())? {
                let Some(missing) = self.wanted.get_mut(&name.ino) else { continue };
                found.entry(name.ino).or_default().push(Edge { dir, name: name.name });
                *missing -= 1;
                if *missing == 0 {
                    self.wanted.remove(&name.ino);
                }
            }
        }
        Ok(())
    }
}
