//! A volume becomes a pool in place, with itself as the first branch.
//!
//! Nothing of the volume is copied but the three blocks with its superblocks. The pool is made in
//! the space behind the volume. The map of the branch says of all other blocks, in a few entries,
//! that they are where they were. Then the places of the superblocks get blocks that lead to the
//! pool, so programs that do not know pools refuse the device: first the one at place 0, which
//! decides whether the device is the volume or the pool, then the others.
//!
//! The time does not depend on the size of the volume.

use std::sync::Arc;

use vfscale_block::Device;

use crate::branch::Inner;
use crate::calls::pool::next_id;
use crate::disk::device::{Disk, offset};
use crate::disk::format::{Bytes, Entry, PLACE_BYTES};
use crate::disk::layout::Layout;
use crate::disk::record::{Record, is_name};
use crate::state::commit::{Shared, check_layout};
use crate::{Error, Pool};

/// How a volume becomes a pool; see [`Pool::convert`].
#[derive(Clone, Copy, Debug)]
pub struct Conversion<'c> {
    /// The id of the pool, which has to differ from that of any other.
    pub id: [u8; 16],
    /// The name of the branch that the volume becomes.
    pub name: &'c str,
    /// The size of the volume, in blocks of 4096 bytes: where the pool begins.
    pub first: u64,
    /// The copies of the volume's superblock are in this block and in the one with twice the
    /// number.
    pub group: u64,
    /// The size that the pool gets, in blocks of 4096 bytes, with the volume.
    pub blocks: u64,
    /// The blocks that replace the superblock and its copies. They lead to the block `first`, and
    /// make programs refuse the volume that do not know pools.
    pub leads: [&'c [u8; 4096]; 3],
}

impl Conversion<'_> {
    fn layout(&self) -> Layout {
        Layout { first: self.first, group: self.group, places: self.blocks }
    }

    /// Returns the places of the volume's superblock and its copies.
    fn places(&self) -> [u64; 3] {
        [0, self.group, 2 * self.group]
    }
}

impl Pool {
    /// Makes a pool of the volume on a device, which becomes its only branch. A smaller device is
    /// enlarged first. After a power cut there is the volume or the pool, each with all contents,
    /// and [`finish_conversion`](Self::finish_conversion) is to be called before the pool is
    /// opened. Nothing else may use the device.
    ///
    /// Blocks for the I/O: six flushes.
    ///
    /// # Errors
    /// [`Error::Size`], [`Error::Name`], and errors of the device, in particular if it has a fixed
    /// size: there is the volume or the pool then.
    pub fn convert(device: &Arc<dyn Device>, conversion: &Conversion<'_>) -> Result<(), Error> {
        let layout = conversion.layout();
        check_layout(&layout)?;
        if !is_name(conversion.name) {
            return Err(Error::Name(conversion.name.into()));
        }
        if device.size() < offset(layout.places) {
            device.set_size(offset(layout.places))?;
        }
        let disk = Disk::new(device.clone(), conversion.id, layout);
        let own = layout.first - 3;
        Shared::begin(&disk, own)?;
        let shared = Arc::new(Shared::open(device.clone(), layout.first, 1)?);
        let record = {
            let mut state = shared.state.lock();
            let id = next_id(&mut state);
            let (root, name) = (Entry::row(0, 1), conversion.name.into());
            let blocks = layout.first;
            let record = Record { own, root, name, ..Record::new(id, blocks) };
            state.table.insert(record.clone());
            record
        };
        let inner = Inner::open(&shared, &record, 0)?;
        for place in conversion.places() {
            let mut content = [0; PLACE_BYTES];
            device.read_at(offset(place), &mut content)?;
            inner.relocate(place, &content)?;
        }
        // Two flushes: all that the first block of the volume is to lead to.
        inner.close()?;
        let [first, ..] = conversion.leads;
        device.write_at(0, first)?;
        device.flush()?;
        Self::finish_conversion(&**device, conversion.group, &conversion.leads)
    }

    /// Writes the blocks that lead to a pool to the places of copies of the volume's superblock.
    ///
    /// Blocks for the I/O, with a flush.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn finish_conversion(
        device: &dyn Device,
        group: u64,
        leads: &[&Bytes; 3],
    ) -> Result<(), Error> {
        let [_, second, third] = leads;
        device.write_many(&[(offset(group), &second[..]), (offset(2 * group), &third[..])])?;
        Ok(device.flush()?)
    }
}
