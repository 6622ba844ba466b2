//! Blocks that are to read as zeros.

use std::ops::Range;

use super::Inner;
use crate::Error;
use crate::disk::format::{FANOUT, PLACE_BYTES};

impl Inner {
    /// Has blocks read as zeros: gives their places up, and writes zeros where that would take more
    /// places than it gives. Takes time for the blocks that have places. Nobody else may write them
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::Full`], errors of the device and [`Error::Damage`].
    pub(crate) fn zero(&self, mut blocks: Range<u64>) -> Result<(), Error> {
        self.discard(blocks.clone())?;
        let next = |blocks| {
            let _inside = self.gate.read();
            self.map().skip(blocks, 0)
        };
        while let Some(first) = next(blocks.clone())? {
            let end = (first / FANOUT as u64 + 1) * FANOUT as u64;
            blocks.start = end.min(blocks.end);
            for block in first..blocks.start {
                let (at, mut content) = (block * PLACE_BYTES as u64, [0; PLACE_BYTES]);
                self.read(at, &mut content)?;
                if content != [0; PLACE_BYTES] {
                    self.write(at, &[0; PLACE_BYTES])?;
                }
            }
        }
        Ok(())
    }
}
