//! The growth of an open branch.
//!
//! One commit has the new size, together with a checkpoint. A map that gets more levels gets a node
//! above its former root for each of them, and is read anew: writers and readers wait meanwhile,
//! and then use the new map. The former one stays in memory, since others may refer to its nodes.
//!
//! Earlier reservations count a block with as many nodes as led to it at the opening. So the
//! few nodes of further levels are reserved here, all of them, until the branch is closed.

use std::sync::atomic::Ordering;

use super::Inner;
use super::flush::{Captured, LogFate};
use crate::Error;
use crate::disk::format::Entry;
use crate::state::map::{Map, levels, span};

impl Inner {
    /// Makes the branch larger. Durable when it returns. Does nothing if it has that size.
    ///
    /// Blocks for the I/O: two flushes, and four if the pool grows with it.
    ///
    /// # Errors
    /// [`Error::Full`], errors of the device, in particular of its growth, and [`Error::Failed`].
    pub(crate) fn grow(&self, blocks: u64) -> Result<(), Error> {
        self.shared.grow_with(blocks.saturating_sub(self.blocks()))?;
        self.grow_in_pool(blocks)
    }

    /// Makes the branch larger as [`grow`](Self::grow) does, in the pool as it is.
    ///
    /// # Errors
    /// Errors of [`grow`](Self::grow), but of a growth of the device.
    pub(crate) fn grow_in_pool(&self, blocks: u64) -> Result<(), Error> {
        let mut log = self.flush.lock();
        let mut state = self.shared.state.lock();
        self.shared.alive()?;
        let former = self.blocks();
        if blocks <= former {
            return Ok(());
        }
        let (from, to) = (levels(former), levels(blocks));
        // A node at a level has a level less than the tree below it.
        let above = (from..to).map(|level| blocks.div_ceil(span(level + 1))).sum();
        if !self.shared.space.budget.take(above) {
            return Err(Error::Full);
        }
        self.held.promise(above);
        let _readers = self.readers.write();
        let _writers = self.gate.write();
        let captured = self.capture(&mut state, &log, None, LogFate::Grows);
        let captured = captured.inspect_err(|_| self.shared.fail())?;
        let Some(Captured { mut change, mut record, is_changed, .. }) = captured else {
            return Err(Error::Full);
        };
        let generation = state.generation + 1;
        let raised = if record.root.is_none() { from..from } else { from..to };
        for level in raised {
            let place = self.shared.reserved(&mut state, &mut change);
            let home = Entry::new(place.inspect_err(|_| self.shared.fail())?, record.depth);
            let block = Map::above(&self.shared.disk, record.root, level, home, generation);
            change.written.blocks.push((home.place(), block));
            record.root = home;
            record.own += 1;
        }
        record.blocks = blocks;
        let (root, area) = (record.root, record.log);
        state.table.update(record.id, |old| *old = record);
        // Readers are out.
        self.shared.commit(&mut state, change, || ())?;
        if is_changed {
            self.captured(&mut log, area);
        }
        if to > from {
            let map = Map::open(&self.shared.disk, 0, root, to);
            let map = map.inspect_err(|_| self.shared.fail())?;
            let _ = self.maps[usize::from(to) - 1].set(map);
        }
        self.blocks.store(blocks, Ordering::Release);
        Ok(())
    }
}
