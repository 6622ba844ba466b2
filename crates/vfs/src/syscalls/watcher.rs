//! Watching for changes: [`Watcher`].

use std::fmt;
use std::path::Path as StdPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vfscale_sync::lock::Mutex;
use vfscale_sync::rcu;

use crate::base::error::{Named, Result};
use crate::base::lock_classes::WatcherLock;
use crate::base::types::OFlags;
use crate::file::open_file::File;
use crate::locks::WaitToken;
use crate::locks::wait_queue::Waiting;
use crate::objects::fsnotify::queue::{EventQueue, WatchEvent, WatchId};
use crate::objects::fsnotify::{self, marks::Mark};
use crate::task::task_struct::Task;

/// The default length of a queue, that of `fs.inotify.max_queued_events` in Linux.
const EVENTS_MAX: usize = 16_384;

/// Watches files, directories and trees for changes, and queues what happens to them. Counterpart
/// of an `inotify(7)` instance in Linux, except that it can watch whole trees.
///
/// It reports changes by every task, through every mount, and through a FUSE mount of the tree. An
/// event that repeats the one before it is dropped, so a thousand writes may be one
/// [`Modified`](crate::FileChange::Modified). Events about one name are in the order of the
/// changes. A call that changes something has queued its event before it returns.
///
/// Each watch holds its file or directory open, and counts as an open file: its mount is busy. A
/// watch concerns one file system: neither a directory nor a tree includes what is mounted in it.
/// Reads and writes through mappings are not reported, and a file with several names is reported
/// under the name by which it was changed.
///
/// `Send + Sync`: any number of threads may add watches and wait for events, each of which one
/// thread gets. Dropping the watcher ends its watches.
///
/// ```
/// # mod vfscale { pub use vfscale_vfs::*; }
/// use vfscale::{FileChange, Watcher};
///
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// task.create_dir_all("/src/deep")?;
/// let watcher = Watcher::new();
/// watcher.watch_tree(task, "/src")?;
/// task.write("/src/deep/main.rs", "fn main() {}")?;
/// let event = watcher.wait(None)?;
/// assert_eq!(event.path.to_str(), Some("deep/main.rs"));
/// assert_eq!(event.change, FileChange::Created);
/// # Ok(())
/// # }
/// ```
pub struct Watcher {
    queue: Arc<EventQueue>,
    next: AtomicU64,
    watches: Mutex<Vec<Watch>, WatcherLock>,
}

/// A mark, and the file that keeps its inode.
struct Watch {
    mark: Arc<Mark>,
    file: File,
}

impl Drop for Watch {
    fn drop(&mut self) {
        fsnotify::remove_mark(self.file.inode(), &self.mark, &rcu::pin());
    }
}

impl Watcher {
    /// Creates a watcher whose queue holds at most 16,384 events.
    pub fn new() -> Watcher {
        Watcher::with_capacity(EVENTS_MAX)
    }

    /// Creates a watcher whose queue holds at most `events_max` events. If it is full, further ones
    /// are lost, and an [`Overflow`](crate::FileChange::Overflow) says so.
    pub fn with_capacity(events_max: usize) -> Watcher {
        Watcher {
            queue: Arc::new(EventQueue::new(events_max)),
            next: AtomicU64::new(0),
            watches: Mutex::new(Vec::new()),
        }
    }

    /// Watches the file or directory at `path`, which `task` must be allowed to read. Of a
    /// directory, it reports changes of its entries, and not of what is further below. A symbolic
    /// link is followed.
    ///
    /// # Errors
    /// The errors of [`Task::open`]; `ENFILE` if too many files are open.
    pub fn watch(&self, task: &Task, path: impl AsRef<StdPath>) -> Result<WatchId> {
        self.add(task, path.as_ref(), false)
    }

    /// Watches the directory at `path` and everything below it, including directories that are made
    /// later. Names below it are reported whether or not `task` might see them.
    ///
    /// A change anywhere in the file system then looks at all directories above it.
    ///
    /// # Errors
    /// The errors of [`watch`](Self::watch); `ENOTDIR`.
    pub fn watch_tree(&self, task: &Task, path: impl AsRef<StdPath>) -> Result<WatchId> {
        self.add(task, path.as_ref(), true)
    }

    fn add(&self, task: &Task, path: &StdPath, is_tree: bool) -> Result<WatchId> {
        let mut flags = OFlags::RDONLY | OFlags::NONBLOCK;
        flags.set(OFlags::DIRECTORY, is_tree);
        let file = task.posix().open(path, flags, 0)?;
        let id = WatchId(self.next.fetch_add(1, Ordering::Relaxed));
        let mark = Arc::new(Mark { id, is_tree, queue: self.queue.clone() });
        fsnotify::add_mark(file.inode(), mark.clone(), &rcu::pin());
        self.watches.lock().push(Watch { mark, file });
        Ok(id)
    }

    /// Ends a watch. Events that are queued stay. Returns false if the watch has ended already.
    pub fn unwatch(&self, id: WatchId) -> bool {
        let mut watches = self.watches.lock();
        let ended = watches.iter().position(|watch| watch.mark.id == id);
        let ended = ended.map(|i| watches.swap_remove(i));
        drop(watches);
        ended.is_some()
    }

    /// Returns the first event in the queue, if there is one.
    pub fn try_next(&self) -> Option<WatchEvent> {
        self.queue.try_pop()
    }

    /// Returns the first event in the queue, and waits for one if there is none.
    ///
    /// # Errors
    /// `EINTR` if `token` is cancelled.
    pub fn wait(&self, token: Option<&WaitToken>) -> Result<WatchEvent> {
        self.queue.pop(Waiting { never: false, token, until: None }).named("watch")
    }

    /// Does what [`wait`](Self::wait) does, for at most `time`.
    ///
    /// # Errors
    /// `ETIMEDOUT`.
    pub fn wait_timeout(&self, time: Duration) -> Result<WatchEvent> {
        let until = Instant::now().checked_add(time);
        self.queue.pop(Waiting { never: false, token: None, until }).named("watch")
    }
}

impl Default for Watcher {
    fn default() -> Watcher {
        Watcher::new()
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watches = self.watches.lock().len();
        f.debug_struct("Watcher").field("watches", &watches).finish_non_exhaustive()
    }
}
