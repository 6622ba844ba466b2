//! The search for data and for holes.

use std::ops::Deref;

use super::file::RegularFile;
use super::store::Store;
use crate::base::fault::Fault;
use crate::page_cache::{FilePages, offset_of, page_of, pages_of};

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Returns the first offset at or after `offset` that has data; `None` if none exists before
    /// the end of the file. Dirty pages are data, unwritten blocks are not. May block for I/O.
    ///
    /// # Errors
    /// Of the device, damage.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, Fault> {
        let size = self.size();
        let end = pages_of(size);
        let mut at = page_of(offset);
        while at < end {
            // Memory first: a page that is dropped from it is on the device by then.
            let cached = self.pages.read().next_unstable(at);
            let cached = cached.unwrap_or(u64::MAX);
            if cached == at {
                break;
            }
            let mapping = self.store.map(at)?;
            if mapping.has_bytes() {
                break;
            }
            at = at.saturating_add(mapping.blocks()).min(cached);
        }
        let found = offset.max(offset_of(at));
        Ok((at < end && found < size).then_some(found))
    }

    /// Returns the first offset at or after `offset` in a hole: at the latest the end of the file.
    /// `None` if `offset` is not before that. May block for I/O.
    ///
    /// # Errors
    /// Of the device, damage.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>, Fault> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        let end = pages_of(size);
        let mut at = page_of(offset);
        while at < end {
            if self.pages.read().is_unstable(at) {
                at += 1;
                continue;
            }
            let mapping = self.store.map(at)?;
            if !mapping.has_bytes() {
                break;
            }
            at = at.saturating_add(mapping.blocks());
        }
        Ok(Some(offset.max(offset_of(at)).min(size)))
    }
}
