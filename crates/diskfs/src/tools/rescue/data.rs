//! The readable data of a file.

use super::{Loss, Rescue};
use crate::btree::{Nodes, Record, Tree};
use crate::format::extent::{Extent, check_order};
use crate::format::{BLOCK_BYTES, byte_of_block};
use crate::inode::core::{DataFork, InodeCore};
use crate::inode::extents::ExtentTree;
use crate::tools::check::Media;

/// The maximum number of bytes that one read requests.
const PIECE_BYTES: u64 = 1 << 20;

/// The receiver of data: an offset in the file, and bytes.
type Write<'w, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'w;

impl Rescue {
    /// Passes the data of a file to `write`, in order, from offset 0 to its size at most: an
    /// omitted range is a hole, or missing. Returns the missing parts. Blocks for I/O.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn data<E>(
        &self,
        ino: u64,
        core: &InodeCore,
        write: &mut Write<'_, E>,
    ) -> Result<Vec<Loss>, E> {
        if let DataFork::Inline(bytes) = &core.data {
            let size = usize::try_from(core.size).unwrap_or(usize::MAX).min(bytes.len());
            write(0, &bytes[..size])?;
        }
        let media = self.media();
        let (extents, mut losses) = self.file_extents(ino, core);
        for extent in &extents {
            self.extent(&media, extent, core.size, &mut losses, write)?;
        }
        Ok(losses)
    }

    /// Returns the readable extents of a file in ascending order, none for data in the inode, and
    /// the damage of others. Blocks for I/O.
    pub fn file_extents(&self, ino: u64, core: &InodeCore) -> (Vec<Extent>, Vec<Loss>) {
        let (media, mut losses) = (self.media(), Vec::new());
        let mut extents = match &core.data {
            DataFork::None | DataFork::Inline(_) => Vec::new(),
            DataFork::Extents(list) => list.to_vec(),
            DataFork::Tree { root } => self.extents(&media, *root, (ino, core), &mut losses),
        };
        let mut before: Option<Extent> = None;
        extents.retain(|extent| {
            let ordered = before.map_or(Ok(()), |before| check_order(ino, &before, extent));
            let checked = ordered.and_then(|()| {
                extent.checked(ino, |start, blocks| media.is_for_data(start, blocks))
            });
            if let Err(damage) = checked {
                losses.push(Loss::Damage(damage.into()));
                return false;
            }
            before = Some(*extent);
            true
        });
        (extents, losses)
    }

    /// Fills `buf` with the bytes of the volume from `offset` on, as they are after the replay of
    /// the log. Blocks for I/O.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), vfscale_block::Error> {
        self.device.read_at(offset, buf)
    }

    /// Returns the extents of a file that has them in a tree.
    fn extents(
        &self,
        media: &Media<'_>,
        root: u64,
        (ino, core): (u64, &InodeCore),
        losses: &mut Vec<Loss>,
    ) -> Vec<Extent> {
        let extent_of = |record: &Record<ExtentTree>| Extent::of(record.key.get(), &record.value);
        let (mut extents, mut is_whole) = (Vec::new(), true);
        let found = |damage| {
            is_whole = false;
            losses.push(Loss::Damage(damage));
        };
        let records =
            |records: &[Record<ExtentTree>]| extents.extend(records.iter().map(extent_of));
        // This walk changes no tree, so its only errors are damage.
        let tree = Tree::<ExtentTree>::at(root, ino);
        tree.check_records(media, found, |_| {}, records).unwrap_or_default();
        if is_whole {
            return extents;
        }
        let agrees = |records: &[Record<ExtentTree>], leaves: u64| {
            let blocks = records.iter().map(|record| u64::from(extent_of(record).blocks));
            core.blocks > blocks.sum::<u64>().saturating_add(leaves)
        };
        let kept = self.kept::<ExtentTree>(media, root, ino, agrees);
        kept.iter().map(extent_of).collect()
    }

    /// Passes the data of an extent to `write`, up to the end of the file.
    fn extent<E>(
        &self,
        media: &Media<'_>,
        extent: &Extent,
        size: u64,
        losses: &mut Vec<Loss>,
        write: &mut Write<'_, E>,
    ) -> Result<(), E> {
        let (from, to) = (byte_of_block(extent.file_block), byte_of_block(extent.end()).min(size));
        if extent.is_unwritten || from >= to {
            return Ok(());
        }
        if !media.is_common(&(extent.start..extent.place_end())) {
            losses.push(Loss::Place { bytes: from..to });
            return Ok(());
        }
        let mut buf = Vec::new();
        let mut at = from;
        while at < to {
            let len = PIECE_BYTES.min(to - at);
            let place = byte_of_block(extent.start) + (at - from);
            self.piece(place, at..at + len, &mut buf, losses, write)?;
            at += len;
        }
        Ok(())
    }

    /// Reads a range of an extent with one request or, if that fails, block by block, and passes
    /// its readable data to `write`.
    fn piece<E>(
        &self,
        place: u64,
        bytes: std::ops::Range<u64>,
        buf: &mut Vec<u8>,
        losses: &mut Vec<Loss>,
        write: &mut Write<'_, E>,
    ) -> Result<(), E> {
        buf.resize((bytes.end - bytes.start) as usize, 0);
        if self.device.read_at(place, buf).is_ok() {
            return write(bytes.start, buf);
        }
        for at in bytes.clone().step_by(BLOCK_BYTES) {
            let end = bytes.end.min(at + BLOCK_BYTES as u64);
            let block = &mut buf[..(end - at) as usize];
            match (self.device.read_at(place + (at - bytes.start), block), losses.last_mut()) {
                (Ok(()), _) => write(at, block)?,
                (Err(_), Some(Loss::Data { bytes, .. })) if bytes.end == at => bytes.end = end,
                (Err(error), _) => losses.push(Loss::Data { bytes: at..end, error }),
            }
        }
        Ok(())
    }
}
