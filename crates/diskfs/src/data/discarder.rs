//! The discards of freed blocks in the background.

use std::sync::Arc;

use vfscale_sync::worker::{Priority, WorkItem};
use vfscale_sync::{Mutex, lock_class};

use crate::volume::Volume;

lock_class! {
    /// The work item that discards, if there is one.
    pub DiscarderLock = ("discarder", 31165);
}

#[derive(Default)]
struct DiscarderState {
    is_over: bool,
    /// Owns a reference to the discarder until it is cancelled.
    item: Option<WorkItem>,
}

/// The discards of a volume in the background. `Send` and `Sync`.
#[derive(Default)]
pub(super) struct Discarder {
    state: Mutex<DiscarderState, DiscarderLock>,
}

impl Discarder {
    /// Begins to discard what was freed before the last pass. Never blocks for I/O.
    pub(super) fn pass(self: &Arc<Self>, volume: &Arc<Volume>) {
        let has_work = volume.begin_discards();
        let mut state = self.state.lock();
        if !has_work || state.is_over {
            return;
        }
        let item = state.item.get_or_insert_with(|| {
            let (this, volume) = (Arc::clone(self), Arc::clone(volume));
            WorkItem::new(Priority::Normal, 1, move || this.run(&volume))
        });
        item.queue();
    }

    fn run(&self, volume: &Volume) {
        while !self.state.lock().is_over {
            match volume.discard_next() {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => {
                    let device = volume.device().name();
                    tracing::warn!(device, %fault, "freed blocks are not discarded any more");
                    return;
                }
            }
        }
    }

    /// Ends the discards, and waits for the one under way. May be called again.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let item = state.item.take();
        drop(state);
        if let Some(item) = item {
            item.cancel();
        }
    }
}
