//! The queue of a watcher, and the events in it.

use std::collections::VecDeque;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::base::lock_classes::EventQueueLock;
use crate::base::types::FileType;
use crate::locks::wait_queue::{Monitor, Settle, SleepList, Waiting, Wake};

/// The number of a watch, unique within its [`Watcher`](crate::Watcher).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(pub(crate) u64);

/// A change that a [`Watcher`](crate::Watcher) reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileChange {
    /// The path is new: a file was made there, or linked.
    Created,
    /// The path is gone: it was removed. With an empty path: a name of the watched file itself was
    /// removed or replaced.
    Removed,
    /// The file at the path was written or truncated. Writes through a mapping are not reported.
    Modified,
    /// Owner, mode, times, or extended attributes were changed.
    Attributes,
    /// An open file was closed through which the file had been changed while it was watched.
    Closed,
    /// The file was at the path `from`, and replaced what was at the new one. A whiteout that it
    /// left is not reported, as in Linux.
    Renamed {
        /// The old path.
        from: PathBuf,
    },
    /// The files of the two paths were exchanged.
    Exchanged {
        /// The other path.
        with: PathBuf,
    },
    /// The file came from a place that this watch does not watch, with everything in it, and
    /// replaced what was at the path.
    MovedIn,
    /// The file went to a place that this watch does not watch, with everything in it. With an
    /// empty path: the watched file itself was renamed.
    MovedOut,
    /// Events of this watcher were lost here, since its queue was full. Look at everything anew.
    Overflow,
}

/// An event of a [`Watcher`](crate::Watcher).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchEvent {
    /// The watch that it belongs to. For an [`Overflow`](FileChange::Overflow), the watch of the
    /// first lost event.
    pub watch: WatchId,
    /// The path from the watched directory; empty for the watched file or directory itself.
    pub path: PathBuf,
    /// The type of the file.
    pub file_type: FileType,
    /// The change that was made to it.
    pub change: FileChange,
}

/// Events that wait to be read, and the threads that wait for one.
pub(crate) struct EventQueue(Monitor<State, EventQueueLock>);

struct State {
    events: VecDeque<WatchEvent>,
    events_max: usize,
    readers: SleepList,
}

impl Settle for State {
    fn settle(&mut self) -> Wake {
        let mut wake = Wake::default();
        if !self.events.is_empty() {
            self.readers.pop(&mut wake);
        }
        wake
    }
}

impl EventQueue {
    /// Creates a queue of at most `events_max` events, and one that says that others were lost.
    pub(crate) fn new(events_max: usize) -> EventQueue {
        let (events, readers) = (VecDeque::new(), SleepList::default());
        EventQueue(Monitor::new(State { events, events_max, readers }))
    }

    /// Adds an event, unless it repeats the last one. Wakes a reader.
    pub(crate) fn push(&self, event: WatchEvent) {
        self.0.with(|state| {
            let last = state.events.back();
            if last == Some(&event) {
                return;
            }
            if state.events.len() < state.events_max {
                state.events.push_back(event);
            } else if last.is_none_or(|last| last.change != FileChange::Overflow) {
                let change = FileChange::Overflow;
                state.events.push_back(WatchEvent { path: PathBuf::new(), change, ..event });
            }
        });
    }

    /// Removes the first event, if there is one.
    pub(crate) fn try_pop(&self) -> Option<WatchEvent> {
        self.0.with(|state| state.events.pop_front())
    }

    /// Removes the first event, and waits for one if there is none. The caller holds nothing.
    ///
    /// # Errors
    /// `EINTR` if the token is cancelled, `ETIMEDOUT`.
    pub(crate) fn pop(&self, wait: Waiting<'_>) -> Result<WatchEvent, Errno> {
        let mut event = None;
        let step = |state: &mut State| {
            event = state.events.pop_front();
            Ok(event.is_some())
        };
        self.0.repeat(wait, |state| &mut state.readers, step)?;
        event.ok_or(Errno::INTR)
    }
}
