//! Whether anything in a tree has changed.

use std::sync::{Mutex, PoisonError};

use vfscale::{Vfs, Watcher};

/// Tells whether a tree is as it was. Any change counts, by any task, anywhere in the tree: a file
/// may have names in several places, and a name above a directory changes its path.
///
/// The tree is watched from a call of [`watch`](Self::watch) until somebody sees that it changed.
/// Meanwhile each change takes some tenths of a microsecond longer.
#[derive(Default)]
pub(crate) struct Changes(Mutex<State>);

#[derive(Default)]
struct State {
    watcher: Option<Watcher>,
    generation: u64,
}

impl State {
    /// Returns the generation, unless the tree is not watched. Ends the watch if it has changed.
    fn current(&mut self) -> Option<u64> {
        if self.watcher.as_ref()?.try_next().is_none() {
            return Some(self.generation);
        }
        self.watcher = None;
        None
    }
}

impl Changes {
    /// Returns the generation of the tree, which a change raises; `None` if it is not watched.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).current()
    }

    /// Watches the tree, and returns its generation; `None` if it can't be watched. A listing that
    /// begins after this call is right while the generation is the same.
    pub(crate) fn watch(&self, vfs: &Vfs) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(generation) = state.current() {
            return Some(generation);
        }
        // One event tells all.
        let watcher = Watcher::with_capacity(1);
        watcher.watch_tree(&vfs.task(), "/").ok()?;
        state.watcher = Some(watcher);
        state.generation += 1;
        Some(state.generation)
    }
}
