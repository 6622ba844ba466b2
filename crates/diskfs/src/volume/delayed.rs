//! The transactions that log delayed changes of groups, at the end of each context of the log.

use std::sync::Arc;

use vfscale_journal::Delayed;
use vfscale_sync::percpu_arc::Kept;

use super::block_map::Places;
use super::hooks::DelayedWork;
use super::tx::shadows::{BlockRef, Shadows, Slot};
use super::{Shared, Volume};
use crate::Uuid;
use crate::alloc::{Changes, GroupNodes};
use crate::base::fault::Fault;
use crate::btree::{Error, Nodes};
use crate::buffer::BufferCache;
use crate::format::{Block, Expected};

/// The writer of the delayed changes of a volume's groups.
#[derive(Debug)]
pub(super) struct GroupWriter {
    uuid: Uuid,
    places: Arc<Places>,
    cache: Kept<BufferCache>,
    shared: Kept<Shared>,
}

impl GroupWriter {
    pub(super) fn new(volume: &Volume) -> Self {
        Self {
            uuid: volume.uuid,
            places: volume.places.clone(),
            cache: volume.cache.keep(),
            shared: volume.shared.keep(),
        }
    }

    fn write(&self, delayed: &dyn Delayed, group: u32) -> Result<(), Fault> {
        let shadows = Shadows::new(&self.cache, self.uuid);
        let mut nodes = GroupBlocks { shadows, places: &self.places };
        let written = self.shared.groups.write_delayed(&mut nodes, group)?;
        let Some(mut finished) = written else { return Ok(()) };
        let mut changes = delayed.begin();
        finished.prepare(&mut changes);
        nodes.shadows.publish(&mut changes);
        finished.committed(Changes::new(), delayed.commit(changes)?.order);
        Ok(())
    }
}

impl DelayedWork for GroupWriter {
    fn run(&self, delayed: &dyn Delayed) -> Result<(), Fault> {
        let groups = &self.shared.groups;
        groups.close_delayed();
        while let Some(group) = groups.next_delayed() {
            let written = self.write(delayed, group);
            groups.delayed_written();
            written?;
        }
        Ok(())
    }

    fn is_any(&self) -> bool {
        self.shared.groups.has_delayed()
    }

    fn ended(&self, items: usize) {
        self.shared.groups.open_delayed(items);
    }
}

/// The blocks of a group's header and trees, of which none is allocated or freed.
struct GroupBlocks<'w> {
    shadows: Shadows<'w>,
    places: &'w Places,
}

impl Nodes for GroupBlocks<'_> {
    type Error = Fault;
    type Ref<'a>
        = BlockRef<'a>
    where
        Self: 'a;
    type Slot = Slot;

    fn is_possible(&self, address: u64) -> bool {
        self.places.is_for_trees(address)
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        self.places.is_run_for_files(start, blocks)
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<BlockRef<'_>, Error<Fault>> {
        Ok(self.shadows.read(address, expected)?)
    }

    fn writable(&mut self, address: u64, expected: &Expected) -> Result<Slot, Error<Fault>> {
        Ok(self.shadows.prepare(address, expected)?)
    }

    fn freeable(&mut self, address: u64, expected: &Expected) -> Result<Slot, Error<Fault>> {
        Ok(self.shadows.prepare(address, expected)?)
    }

    fn allocate(&mut self, _hint: u64, _expected: &Expected) -> Result<(u64, Slot), Error<Fault>> {
        Err(Error::Nodes(Fault::NoSpace))
    }

    fn edit(&mut self, slot: Slot) -> &mut Block {
        self.shadows.edit(slot)
    }

    fn free(&mut self, slot: Slot) {
        self.shadows.destroy(slot);
    }

    fn cancel(&mut self, slot: Slot) {
        self.shadows.destroy(slot);
    }
}

impl GroupNodes for GroupBlocks<'_> {
    fn create(&mut self, _address: u64, _expected: &Expected) -> Result<Slot, Error<Fault>> {
        Err(Error::Nodes(Fault::NoSpace))
    }

    fn destroy(&mut self, slot: Slot) {
        self.shadows.destroy(slot);
    }

    fn uncreate(&mut self, slot: Slot) {
        self.shadows.destroy(slot);
    }

    fn no_space() -> Fault {
        Fault::NoSpace
    }
}
