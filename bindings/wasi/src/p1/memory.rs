//! The memory of a guest.

use std::io::IoSlice;
use std::ops::Range;

use vfscale::Errno;

use super::{Done, Fault};

/// The most buffers of one call, as in Linux.
const IOV_MAX: u32 = 1024;

/// The memory of a guest during a call. A place that it does not have ends the guest.
pub(super) struct Memory<'a>(&'a mut [u8]);

impl<'a> Memory<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Memory<'a> {
        Memory(bytes)
    }

    pub(super) fn into_bytes(self) -> &'a mut [u8] {
        self.0
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.0
    }

    fn range(&self, at: u32, len: u32) -> Done<Range<usize>> {
        let (start, len) = (at as usize, len as usize);
        match start.checked_add(len) {
            Some(end) if end <= self.0.len() => Ok(start..end),
            _ => Err(Fault::Trap(wasmtime::Error::msg(format!(
                "{len} bytes at {at:#x} are not in the memory of {} bytes",
                self.0.len()
            )))),
        }
    }

    pub(super) fn slice(&self, at: u32, len: u32) -> Done<&[u8]> {
        Ok(&self.0[self.range(at, len)?])
    }

    pub(super) fn slice_mut(&mut self, at: u32, len: u32) -> Done<&mut [u8]> {
        let range = self.range(at, len)?;
        Ok(&mut self.0[range])
    }

    pub(super) fn text(&self, at: u32, len: u32) -> Done<&str> {
        Ok(std::str::from_utf8(self.slice(at, len)?).map_err(|_| Errno::ILSEQ)?)
    }

    pub(super) fn put(&mut self, at: u32, bytes: &[u8]) -> Done {
        // Longer than any structure of the guest only by a mistake of ours.
        let len = u32::try_from(bytes.len()).map_err(|_| Errno::OVERFLOW)?;
        self.slice_mut(at, len)?.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn get<const N: usize>(&self, at: u32) -> Done<[u8; N]> {
        let mut bytes = [0; N];
        let len = u32::try_from(N).map_err(|_| Errno::OVERFLOW)?;
        bytes.copy_from_slice(self.slice(at, len)?);
        Ok(bytes)
    }

    /// Returns place and length of buffer `n` of a list.
    pub(super) fn iovec(&self, iovs: u32, count: u32, n: u32) -> Done<(u32, u32)> {
        if count > IOV_MAX {
            return Err(Errno::INVAL.into());
        }
        let at = iovs.checked_add(n * 8).ok_or(Errno::FAULT)?;
        let word = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
        let end = at.checked_add(4).ok_or(Errno::FAULT)?;
        Ok((word(self.get(at)?), word(self.get(end)?)))
    }

    /// Returns the buffers of a list, which have at most as many bytes as a call can count.
    pub(super) fn buffers(&self, iovs: u32, count: u32) -> Done<Vec<IoSlice<'_>>> {
        let mut room = u32::MAX;
        let buffer = |n| {
            let (at, len) = self.iovec(iovs, count, n)?;
            room = room.checked_sub(len).ok_or(Errno::INVAL)?;
            Ok(IoSlice::new(self.slice(at, len)?))
        };
        (0..count).map(buffer).collect()
    }
}
