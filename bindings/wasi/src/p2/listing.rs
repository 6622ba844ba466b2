//! A directory that is being read.

use std::collections::VecDeque;

use vfscale::posix::DirEntryBuf;
use vfscale::{Errno, FileType};

use crate::errors::Outcome;
use crate::node::Node;

/// The entries of a directory that are still to come.
pub(crate) struct Listing {
    dir: Node,
    next: u64,
    batch: VecDeque<DirEntryBuf>,
}

impl Listing {
    /// Begins to read a directory.
    pub(crate) fn new(dir: Node) -> Outcome<Listing> {
        if !dir.is_dir() {
            return Err(Errno::NOTDIR);
        }
        Ok(Listing { dir, next: 0, batch: VecDeque::new() })
    }

    /// Returns the next name and its type, without `.` and `..`. A name that is not UTF-8 is an
    /// error once, and the names after it come with the next calls.
    pub(crate) fn next(&mut self) -> Outcome<Option<(String, FileType)>> {
        loop {
            if self.batch.is_empty() {
                self.batch = self.dir.entries(self.next)?.into();
            }
            let Some(entry) = self.batch.pop_front() else { return Ok(None) };
            self.next = entry.next;
            if entry.name == "." || entry.name == ".." {
                continue;
            }
            let name = entry.name.into_string().map_err(|_| Errno::ILSEQ)?;
            return Ok(Some((name, entry.file_type)));
        }
    }
}
