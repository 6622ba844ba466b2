//! Write-back of a small new file within a transaction that changes more than the file.

use std::ops::Deref;

use super::super::file::RegularFile;
use super::super::store::{Act, Change, Store};
use super::{Flight, Pass, Segment, SegmentTarget};
use crate::base::fault::Fault;
use crate::page_cache::FilePages;

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Writes back a file without blocks whose dirty pages are one segment, and has `commit` make
    /// the change of the file on the device, in a transaction of its own. Returns the result of
    /// `commit`, which gives the claim of the change back unless it returns `Some`: then the pages
    /// are still dirty. Returns `None` and changes nothing if the file is another one, or its pages
    /// can't be written so: [`write_back`](Self::write_back) does all that is possible. Blocks for
    /// I/O.
    pub fn write_back_within<T>(
        &self,
        commit: impl FnOnce(Change<'_>) -> Result<Option<T>, Fault>,
    ) -> Option<Result<Option<T>, Fault>> {
        let _writing = self.pages.writing_back.lock();
        let Flight { segment, batch, writing } = self.start(self.only_segment()?);
        let Segment { first, pages, target, .. } = segment;
        if writing.wait().is_err() {
            if let SegmentTarget::Claimed(claim) = target {
                self.store.give_back(claim, false);
            }
            self.redirty(first, pages, Some(batch));
            return None;
        }
        let committed = self.with_change(segment, |change| change.map(commit));
        match committed {
            Some(Ok(Some(_))) => self.finish(segment, batch),
            _ => self.redirty(first, pages, Some(batch)),
        }
        committed
    }

    /// Returns the segment of a file without blocks that has all of its dirty pages, with a target.
    /// The caller holds `i_writeback`.
    fn only_segment(&self) -> Option<Segment> {
        self.store.inline_room()?;
        self.store.may(Act::WriteBack).ok()?;
        let size = self.size();
        let pass = Pass::new(0, self.pages.read().last_unstable()?);
        let (first, run) = self.next_segment(&pass, size)?;
        if first + run <= pass.last {
            return None;
        }
        let (target, pages) = self.find_target(&pass, first, run, size, None).ok()?;
        match target {
            SegmentTarget::Claimed(claim) if pages < run => {
                self.store.give_back(claim, false);
                None
            }
            _ => Some(Segment { first, pages, size, target }),
        }
    }
}
