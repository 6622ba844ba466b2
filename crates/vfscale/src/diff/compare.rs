//! Comparing two versions of one inode.

use std::ops::Range;
use std::path::Path;

use vfscale_diskfs::{AttrFork, BLOCK_BYTES, DataFork, InodeCore};

use super::side::Side;
use crate::error::pool::PoolError;

const UNIT: u64 = BLOCK_BYTES as u64;
/// Most bytes that are compared at a time.
const PIECE: u64 = 1 << 20;

/// The parts of a file that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Changes {
    /// The contents of a file, or the target of a link.
    pub content: bool,
    /// Permissions, owner, group, flags, device numbers; and the time of the last change of the
    /// contents, but not of a directory.
    pub attributes: bool,
    /// Extended attributes, which access control lists are too.
    pub xattrs: bool,
}

impl Changes {
    pub(crate) fn any(self) -> bool {
        self.content || self.attributes || self.xattrs
    }
}

/// Compares an inode of one branch with one of another branch, of the same type.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(crate) fn changes(
    (a, ino, one): (&Side, u64, &InodeCore),
    (b, ino_of_other, other): (&Side, u64, &InodeCore),
    path: &Path,
) -> Result<Changes, PoolError> {
    let mtime = |core: &InodeCore| if core.is_directory() { 0 } else { core.mtime };
    let attributes =
        |core: &InodeCore| (core.mode, core.uid, core.gid, core.flags, core.rdev, mtime(core));
    let xattrs = match (&one.attr, &other.attr) {
        (AttrFork::None, AttrFork::None) => false,
        (AttrFork::Inline(one), AttrFork::Inline(other)) if one == other => false,
        _ => a.xattrs(ino, one, path)? != b.xattrs(ino_of_other, other, path)?,
    };
    let content = if one.is_link() {
        a.target(ino, one, path)? != b.target(ino_of_other, other, path)?
    } else if one.is_regular() {
        one.size != other.size
            || !equal(
                &Data::of(a, ino, one, path)?,
                &Data::of(b, ino_of_other, other, path)?,
                one.size,
            )?
    } else {
        false
    };
    Ok(Changes { content, attributes: attributes(one) != attributes(other), xattrs })
}

/// The contents of a file: bytes in the inode, or ranges of the file with their places on the
/// volume. The rest is zeros.
pub(crate) struct Data<'s> {
    side: &'s Side,
    path: &'s Path,
    inline: &'s [u8],
    /// In ascending order: the bytes of the file, and the first byte on the volume.
    ranges: Vec<(Range<u64>, u64)>,
}

/// The kind of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Zeros,
    Inline,
    /// From this byte of the volume on.
    At(u64),
}

impl<'s> Data<'s> {
    pub(crate) fn of(
        side: &'s Side,
        ino: u64,
        core: &'s InodeCore,
        path: &'s Path,
    ) -> Result<Self, PoolError> {
        let inline = match &core.data {
            DataFork::Inline(bytes) => &bytes[..],
            _ => &[],
        };
        let written = |extent: &vfscale_diskfs::Extent| {
            let bytes = extent.file_block * UNIT..extent.end() * UNIT;
            (!extent.is_unwritten).then_some((bytes, extent.start * UNIT))
        };
        let ranges = side.extents(ino, core, path)?.iter().filter_map(written).collect();
        Ok(Self { side, path, inline, ranges })
    }

    /// Returns what is at a position, and where that ends.
    pub(crate) fn part(&self, at: u64) -> (Part, u64) {
        if at < self.inline.len() as u64 {
            return (Part::Inline, self.inline.len() as u64);
        }
        let next = self.ranges.partition_point(|(bytes, _)| bytes.end <= at);
        match self.ranges.get(next) {
            Some((bytes, place)) if bytes.start <= at => {
                (Part::At(place + (at - bytes.start)), bytes.end)
            }
            Some((bytes, _)) => (Part::Zeros, bytes.start),
            None => (Part::Zeros, u64::MAX),
        }
    }

    /// Returns whether a range that is in one part, at the same place in both branches, is known to
    /// have the same bytes.
    pub(crate) fn shares(&self, other: &Data<'_>, range: Range<u64>) -> Result<bool, PoolError> {
        let Part::At(place) = self.part(range.start).0 else { return Ok(false) };
        let blocks = place / UNIT..(place + (range.end - range.start)).div_ceil(UNIT);
        let shares = self.side.branch().shares(other.side.branch(), blocks);
        shares.map_err(|error| self.side.damaged(self.path, error))
    }

    /// Fills `buf` with the bytes from `at` on, all of them in one part.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), PoolError> {
        match self.part(at).0 {
            Part::Zeros => buf.fill(0),
            Part::Inline => buf.copy_from_slice(&self.inline[at as usize..][..buf.len()]),
            Part::At(place) => self.side.read(place, buf, self.path)?,
        }
        Ok(())
    }
}

/// Returns the contents of a file.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(crate) fn contents(
    side: &Side,
    ino: u64,
    core: &InodeCore,
    path: &Path,
) -> Result<Vec<u8>, PoolError> {
    let data = Data::of(side, ino, core, path)?;
    let (mut bytes, mut at) = (vec![0; core.size as usize], 0);
    while at < core.size {
        let end = data.part(at).1.min(core.size);
        data.read(at, &mut bytes[at as usize..end as usize])?;
        at = end;
    }
    Ok(bytes)
}

/// Returns whether two files of `size` bytes have the same contents.
fn equal(a: &Data<'_>, b: &Data<'_>, size: u64) -> Result<bool, PoolError> {
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < size {
        let ((left, left_end), (right, right_end)) = (a.part(at), b.part(at));
        let end = left_end.min(right_end).min(size);
        if (left, right) == (Part::Zeros, Part::Zeros) {
            at = end;
            continue;
        }
        let end = end.min(at + PIECE);
        if left == right && a.shares(b, at..end)? {
            at = end;
            continue;
        }
        one.resize((end - at) as usize, 0);
        other.resize((end - at) as usize, 0);
        a.read(at, &mut one)?;
        b.read(at, &mut other)?;
        if one != other {
            return Ok(false);
        }
        at = end;
    }
    Ok(true)
}
