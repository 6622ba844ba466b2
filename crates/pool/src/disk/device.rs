//! The device of a pool, in blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale_block::Device;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::Error;
use crate::disk::format::{self, Bytes, Entry, Expected, PLACE_BYTES};
use crate::disk::layout::Layout;

/// The device of a pool, and what every block of the pool names.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) device: Arc<dyn Device>,
    /// The id of the pool.
    pub(crate) pool: [u8; 16],
    first: u64,
    group: u64,
    /// The size of the pool, which grows.
    places: Arc<AtomicU64>,
}

/// Returns the offset of a place in bytes.
pub(crate) fn offset(place: u64) -> u64 {
    place * PLACE_BYTES as u64
}

impl Disk {
    pub(crate) fn new(device: Arc<dyn Device>, pool: [u8; 16], layout: Layout) -> Self {
        let Layout { first, group, places } = layout;
        Self { device, pool, first, group, places: Arc::new(places.into()) }
    }

    /// Returns its zones and its size, which may be larger a moment later.
    pub(crate) fn layout(&self) -> Layout {
        let places = self.places.load(Ordering::Acquire);
        Layout { first: self.first, group: self.group, places }
    }

    /// Makes the pool larger, for all clones. The last commit says so.
    pub(crate) fn set_places(&self, places: u64) {
        self.places.store(places, Ordering::Release);
    }

    /// Returns the identity of a block of this pool.
    pub(crate) fn expect(&self, magic: [u8; 4], place: u64) -> Expected {
        Expected { magic, pool: self.pool, place }
    }

    /// Reads a block of the pool, and checks its header.
    pub(crate) fn read<T>(&self, magic: [u8; 4], place: u64) -> Result<T, Error>
    where
        T: FromBytes + Immutable + KnownLayout + Unaligned + Clone,
    {
        self.read_copy(magic, place, place)
    }

    /// Reads a block of the pool from the place `at`, which has it or a copy of it.
    pub(crate) fn read_copy<T>(&self, magic: [u8; 4], place: u64, at: u64) -> Result<T, Error>
    where
        T: FromBytes + Immutable + KnownLayout + Unaligned + Clone,
    {
        if at >= self.layout().places {
            return Err(Error::Damage { place: at, what: "the place is outside of the pool" });
        }
        let mut bytes = [0; PLACE_BYTES];
        self.device.read_at(offset(at), &mut bytes)?;
        Ok(format::read::<T>(&bytes, self.expect(magic, place))?.clone())
    }

    /// Reads a block of the branch table, or of its tree, or else its copy.
    pub(crate) fn read_twice<T>(&self, magic: [u8; 4], entry: Entry) -> Result<T, Error>
    where
        T: FromBytes + Immutable + KnownLayout + Unaligned + Clone,
    {
        let read = |at| self.read_copy(magic, entry.place(), at);
        let mut places = entry.table_places();
        let first = read(places.next().unwrap_or(0));
        first.or_else(|error| places.next().and_then(|at| read(at).ok()).ok_or(error))
    }

    /// Writes blocks.
    pub(crate) fn write(&self, blocks: &[(u64, Box<Bytes>)]) -> Result<(), Error> {
        self.write_twice(blocks, &[])
    }

    /// Writes blocks, those with the indices `twice` to the next place, too.
    pub(crate) fn write_twice(
        &self,
        blocks: &[(u64, Box<Bytes>)],
        twice: &[usize],
    ) -> Result<(), Error> {
        let copies = twice.iter().map(|index| (blocks[*index].0 + 1, &blocks[*index].1));
        let writes = blocks.iter().map(|(place, bytes)| (*place, bytes)).chain(copies);
        let writes: Vec<(u64, &[u8])> =
            writes.map(|(place, bytes)| (offset(place), &bytes[..])).collect();
        Ok(self.device.write_many(&writes)?)
    }
}
