//! The thread that discards freed blocks, which exists while there are some.

use std::sync::Arc;

use vfscale_sync::atomic::thread::{self, JoinHandle};
use vfscale_sync::{Mutex, lock_class};

use super::threads::join_others;
use crate::volume::Volume;

lock_class! {
    /// The thread that discards, if there is one.
    pub DiscarderLock = ("discarder", 31165);
}

#[derive(Default)]
struct DiscarderState {
    is_running: bool,
    is_over: bool,
    thread: Option<JoinHandle<()>>,
}

/// The discards of a volume in the background. `Send` and `Sync`.
#[derive(Default)]
pub(super) struct Discarder {
    state: Mutex<DiscarderState, DiscarderLock>,
}

impl Discarder {
    /// Starts a thread for what was freed before the last pass, unless one is still at work. Never
    /// blocks for I/O.
    pub(super) fn pass(self: &Arc<Self>, volume: &Arc<Volume>) {
        let has_work = volume.begin_discards();
        let mut state = self.state.lock();
        if !has_work || state.is_running || state.is_over {
            return;
        }
        state.is_running = true;
        let (this, volume) = (Arc::clone(self), Arc::clone(volume));
        // The former thread, if any, has nothing left to do.
        state.thread = Some(thread::spawn(move || this.run(&volume)));
    }

    fn run(&self, volume: &Volume) {
        while !self.state.lock().is_over {
            match volume.discard_next() {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => {
                    let device = volume.device().name();
                    tracing::warn!(device, %fault, "freed blocks are not discarded any more");
                    break;
                }
            }
        }
        self.state.lock().is_running = false;
    }

    /// Ends the thread, and waits for the discard under way. May be called again.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let thread = state.thread.take();
        drop(state);
        join_others(thread);
    }
}
