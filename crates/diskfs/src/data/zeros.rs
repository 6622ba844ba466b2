//! Zeros around blocks that become written.
//!
//! While tree blocks are short, unwritten extents are split at multiples of the grain only
//! ([`Space::grain`](crate::alloc::space::Space::grain)). A segment that is written back in between
//! then makes all blocks up to these written. Dirty pages of these blocks are written over the
//! zeros later.

use std::ops::Range;

use vfscale_sync::page::Page;

use super::file_blocks::FileBlocks;
use crate::base::fault::Fault;
use crate::file_io::Store;
use crate::format::byte_of_block;
use crate::page_cache::{Mapping, READ_PAGES_MAX, pages_of};

impl FileBlocks<'_> {
    /// Writes zeros around blocks of the file that were written and are marked as unwritten, as far
    /// as [`widened`](Self::widened) says. Returns the blocks that become written: only these if
    /// the device lacks storage for zeros. Blocks for I/O.
    pub(super) fn zero_around(&self, written: Range<u64>, size: u64) -> Result<Range<u64>, Fault> {
        let grain = self.volume().space().grain();
        if grain == 1 {
            return Ok(written);
        }
        let Mapping::Unwritten { start, .. } = self.map(written.start)? else {
            return Ok(written);
        };
        let wide = self.widened(&written, start, grain, size)?;
        let gaps = [wide.start..written.start, written.end..wide.end];
        let zeros = gaps.iter().map(|gap| gap.end - gap.start).sum();
        if zeros == 0 {
            return Ok(written);
        }
        let first = start - (written.start - wide.start);
        let zeroed = self.volume().reserve_blocks(zeros).and_then(|_reserved| {
            gaps.into_iter().try_for_each(|gap| {
                self.write_zeros(first + (gap.start - wide.start), gap.end - gap.start)
            })
        });
        match zeroed {
            Ok(()) => Ok(wide),
            Err(fault) if fault.is_refusal() => Ok(written),
            Err(fault) => Err(fault),
        }
    }

    /// Finds the blocks that become written with `written`, whose blocks of the device lie from
    /// `start` on: all up to multiples of `grain`, as far as they belong to the same extent, and
    /// not behind `size`, as blocks with bytes never lie there.
    fn widened(
        &self,
        written: &Range<u64>,
        start: u64,
        grain: u64,
        size: u64,
    ) -> Result<Range<u64>, Fault> {
        let Range { start: first, end } = *written;
        let mut to = end.checked_next_multiple_of(grain).unwrap_or(end);
        to = to.min(pages_of(size)).max(end);
        if to > end {
            to = match self.map(end)? {
                Mapping::Unwritten { start: behind, blocks } if behind == start + (end - first) => {
                    to.min(end + blocks)
                }
                _ => end,
            };
        }
        let mut from = first - first % grain;
        while from < first {
            from += match self.map(from)? {
                Mapping::Unwritten { start: before, blocks }
                    if blocks >= first - from && before + (first - from) == start =>
                {
                    break;
                }
                mapping => mapping.blocks(),
            };
        }
        Ok(from.min(first)..to)
    }

    /// Writes zeros to `blocks` blocks of the device. Blocks for I/O.
    fn write_zeros(&self, start: u64, blocks: u64) -> Result<(), Fault> {
        let zeros = Page::many_with(blocks.min(READ_PAGES_MAX) as usize, 0, &[]);
        let mut done = 0;
        while done < blocks {
            let count = (blocks - done).min(READ_PAGES_MAX);
            let pages = &zeros[..count as usize];
            self.volume().device().write_pages(byte_of_block(start + done), pages)?;
            self.has_written();
            done += count;
        }
        Ok(())
    }
}
