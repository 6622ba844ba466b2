//! A copy-on-write copy of a device.
//!
//! # Purpose
//!
//! A crash test mounts thousands of images that differ in a few blocks, and a trial repair must not
//! touch the disk. A [`CowDevice`] reads through to its base and stores written data in extents of
//! its own. Below its own extents it may have a layer that it shares with other copies, so a copy
//! costs no more than its changes.
//!
//! # Invariants
//!
//! * The base is not written while copies of it exist; the copies themselves never write it.
//! * The extents of a layer do not overlap.
//! * Bytes are looked up in the copy's own layer first, then in the shared one, then in the base.
//!   Past the end of the base they read as zeros.
//!
//! # Locks
//!
//! `CowLayer` guards the own extents. It is not held while the base is read, which is sound because
//! the base does not change.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale_sync::RwLock;
use vfscale_sync::page::{PAGE_SIZE, PageBox};

use crate::device::{CallRange, read_pages_by_copy};
use crate::{Device, Discards, Error, Operation, OsError};

vfscale_sync::lock_class! {
    /// The own extents of a [`CowDevice`]; a leaf.
    pub(crate) CowLayer = ("cow_layer", 64890);
}

/// Value of discarded bytes. It is unlikely to be mistaken for zeros or for the former contents.
pub const DISCARDED: u8 = 0xD5;

/// The contents of an extent.
#[derive(Clone, Debug)]
pub enum ExtentData {
    /// The bytes from the given index on, up to the length of the extent.
    Bytes(Arc<[u8]>, usize),
    /// One byte, repeated.
    Fill(u8),
    /// Unreadable until it is written again. Only above all other layers.
    Lost,
}

impl ExtentData {
    /// Returns the contents without the first `count` bytes.
    pub fn skip(&self, count: u64) -> Self {
        match self {
            Self::Bytes(bytes, from) => Self::Bytes(bytes.clone(), from + count as usize),
            Self::Fill(byte) => Self::Fill(*byte),
            Self::Lost => Self::Lost,
        }
    }

    fn copy_to(&self, buf: &mut [u8]) {
        match self {
            Self::Bytes(bytes, from) => buf.copy_from_slice(&bytes[*from..][..buf.len()]),
            Self::Fill(byte) => buf.fill(*byte),
            Self::Lost => {}
        }
    }
}

/// Extents by their start, each with its end and its contents.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    extents: BTreeMap<u64, (u64, ExtentData)>,
}

impl Layer {
    /// Replaces the contents of `start..end`.
    pub fn put(&mut self, start: u64, end: u64, data: ExtentData) {
        if start >= end {
            return;
        }
        self.carve(start, end);
        self.extents.insert(start, (end, data));
    }

    /// Removes the extents, or parts of them, that overlap `start..end`.
    fn carve(&mut self, start: u64, end: u64) {
        let before = self.extents.range(..start).next_back();
        let first = before.filter(|(_, (until, _))| *until > start).map_or(start, |(at, _)| *at);
        let overlapping: Vec<u64> = self.extents.range(first..end).map(|(at, _)| *at).collect();
        for at in overlapping {
            let Some((until, data)) = self.extents.remove(&at) else { continue };
            if until > end {
                self.extents.insert(end, (until, data.skip(end - at)));
            }
            if at < start {
                self.extents.insert(at, (start, data));
            }
        }
    }

    /// Returns whether an extent overlaps `start..end`.
    fn has_any(&self, start: u64, end: u64) -> bool {
        self.extents.range(..end).next_back().is_some_and(|(_, (until, _))| *until > start)
    }

    /// Returns whether a byte of `start..end` can't be read.
    fn has_lost(&self, start: u64, end: u64) -> bool {
        let before = self.extents.range(..end).rev();
        let mut inside = before.take_while(|(_, (until, _))| *until > start);
        inside.any(|(_, (_, data))| matches!(data, ExtentData::Lost))
    }

    /// Returns the parts of `start..end` that no extent covers.
    fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut gaps, mut at) = (Vec::new(), start);
        let first = self.extents.range(..=start).next_back().map_or(start, |(from, _)| *from);
        for (from, (until, _)) in self.extents.range(first..end) {
            if *from > at {
                gaps.push((at, *from));
            }
            at = at.max(*until);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Copies the bytes from `offset` on that extents cover into `buf`, and does not change the
    /// rest of it.
    fn copy_to(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(at, _)| *at);
        for (at, (until, data)) in self.extents.range(first..end) {
            let (from, to) = ((*at).max(offset), (*until).min(end));
            if from < to {
                let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
                data.skip(from - at).copy_to(part);
            }
        }
    }
}

/// A copy of a device that stores its changes in memory. Counterpart of `dm-snapshot` in Linux. See
/// the [module](self).
///
/// A write is atomic to readers as a whole. Nothing is ever durable: the changes are dropped with
/// the copy.
pub struct CowDevice {
    name: Arc<str>,
    base: Arc<dyn Device>,
    size: AtomicU64,
    shared: Arc<Layer>,
    own: RwLock<Layer, CowLayer>,
}

impl CowDevice {
    /// Creates a copy of `base`, which must not be written while the copy exists.
    pub fn new(base: Arc<dyn Device>) -> Self {
        let (name, size) = (format!("copy of {}", base.name()).into(), base.size());
        Self::with_layers(name, base, size, Arc::default(), Layer::default())
    }

    /// Creates a copy under the name of `base`, for a caller that uses it instead of `base`.
    pub fn in_place_of(base: Arc<dyn Device>) -> Self {
        let (name, size) = (base.name().into(), base.size());
        Self::with_layers(name, base, size, Arc::default(), Layer::default())
    }

    /// Creates a copy of `base` with the changes in `shared` and, above them, those in `own`.
    pub fn with_layers(
        name: Arc<str>,
        base: Arc<dyn Device>,
        size: u64,
        shared: Arc<Layer>,
        own: Layer,
    ) -> Self {
        Self { name, base, size: AtomicU64::new(size), shared, own: RwLock::new(own) }
    }

    /// Replaces the contents of `start..end`, which the caller has checked.
    pub fn put(&self, start: u64, end: u64, data: ExtentData) {
        self.own.write().put(start, end, data);
    }

    /// Replaces all own changes.
    pub fn replace(&self, own: Layer) {
        *self.own.write() = own;
    }

    /// Returns the ranges of bytes that were written or discarded in this copy, in order.
    pub fn changed(&self) -> Vec<Range<u64>> {
        self.own.read().extents.iter().map(|(start, (end, _))| *start..*end).collect()
    }

    /// Returns whether the contents of a whole range equal the base's.
    fn is_as_base(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        let is_changed = |layer: &Layer| layer.has_any(offset, end);
        end <= self.base.size() && !is_changed(&self.shared) && !is_changed(&self.own.read())
    }

    fn read_base(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let there = self.base.size().saturating_sub(offset).min(buf.len() as u64);
        let (old, new) = buf.split_at_mut(there as usize);
        new.fill(0);
        if old.is_empty() { Ok(()) } else { self.base.read_at(offset, old) }
    }

    /// Reads the parts that no layer covers from the base, and does not change the rest of `buf`.
    fn read_gaps(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let own = self.own.read().gaps(offset, offset + buf.len() as u64);
        for (start, end) in own.iter().flat_map(|(start, end)| self.shared.gaps(*start, *end)) {
            let (from, to) = ((start - offset) as usize, (end - offset) as usize);
            self.read_base(start, &mut buf[from..to])?;
        }
        Ok(())
    }
}

impl Device for CowDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("{}, changes in memory", self.name)
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn block_size(&self) -> u32 {
        self.base.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        CallRange::new(Operation::Read, offset, buf.len()).inside(self)?;
        // Bytes that were written here can be read even if the base can't read its own contents.
        self.read_base(offset, buf).or_else(|_| self.read_gaps(offset, buf))?;
        self.shared.copy_to(offset, buf);
        let own = self.own.read();
        if own.has_lost(offset, offset + buf.len() as u64) {
            let (device, operation, length) =
                (self.name.clone(), Operation::Read, buf.len() as u64);
            return Err(Error::Io { device, operation, offset, length, source: OsError::IO });
        }
        own.copy_to(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        CallRange::new(Operation::Write, offset, buf.len()).inside(self)?.in_blocks(self)?;
        self.put(offset, offset + buf.len() as u64, ExtentData::Bytes(buf.into(), 0));
        Ok(())
    }

    /// Passes the reads of unchanged ranges to the base in one call, which may run them in
    /// parallel.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        let mut as_base: Vec<(u64, &mut [u8])> = Vec::new();
        for (offset, buf) in reads {
            if self.is_as_base(*offset, buf.len() as u64) {
                as_base.push((*offset, buf));
            } else {
                self.read_at(*offset, buf)?;
            }
        }
        self.base.read_many(&mut as_base)
    }

    fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        if self.is_as_base(offset, (pages.len() * PAGE_SIZE) as u64) {
            return self.base.read_pages(offset, pages);
        }
        read_pages_by_copy(self, offset, pages)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Fills the range with [`DISCARDED`], so that callers can't rely on its contents.
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let range =
            CallRange { operation: Operation::Discard, offset, length: len }.inside(self)?;
        let (start, end) = range.whole_blocks(self.block_size());
        self.put(start, end, ExtentData::Fill(DISCARDED));
        Ok(())
    }

    fn discards(&self) -> Option<Discards> {
        Some(Discards { granularity: self.block_size(), is_thin: false })
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.base.identity()
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        CallRange { operation: Operation::Resize, offset: 0, length: size }.in_blocks(self)?;
        if self.size.fetch_max(size, Ordering::AcqRel) <= size {
            return Ok(());
        }
        let (device, operation) = (self.name.clone(), Operation::Resize);
        Err(Error::Unsupported { device, operation, why: "a device does not shrink" })
    }
}

impl fmt::Debug for CowDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CowDevice")
            .field("name", &self.name)
            .field("base", &self.base)
            .field("size", &self.size())
            .field("extents", &self.own.read().extents.len())
            .field("shared_extents", &self.shared.extents.len())
            .finish()
    }
}

#[cfg(test)]
mod tests;
