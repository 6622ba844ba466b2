//! Watching files, directories and trees for changes.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use vfscale::{Errno, FileChange, WatchEvent, WatchId, Watcher};
use vfscale_sync::lock::Mutex;

use crate::args::given;
use crate::border::{Failure, border};
use crate::dir::d_type;
use crate::handles::{Kind, Table};
use crate::ranks::WatchNumbers;
use crate::structs::{
    VFSCALE_EVENT_ATTRIBUTES, VFSCALE_EVENT_CLOSED, VFSCALE_EVENT_CREATED, VFSCALE_EVENT_EXCHANGED,
    VFSCALE_EVENT_MODIFIED, VFSCALE_EVENT_MOVED_IN, VFSCALE_EVENT_MOVED_OUT, VFSCALE_EVENT_OTHER,
    VFSCALE_EVENT_OVERFLOW, VFSCALE_EVENT_REMOVED, VFSCALE_EVENT_RENAMED, copy_name, vfscale_event,
    vfscale_task, vfscale_token, vfscale_watcher,
};
use crate::task_handle::task;
use crate::token::Waiting;

static WATCHERS: Table<Watching> = Table::new(Kind::Watcher, false);

/// A watcher, and the numbers by which C programs know its watches.
struct Watching {
    watcher: Watcher,
    numbers: Mutex<Numbers, WatchNumbers>,
}

#[derive(Default)]
struct Numbers {
    next: u64,
    of: HashMap<WatchId, u64>,
}

impl Numbers {
    fn number(&mut self, id: WatchId) -> u64 {
        let next = &mut self.next;
        *self.of.entry(id).or_insert_with(|| {
            *next += 1;
            *next
        })
    }
}

impl Watching {
    fn event(&self, event: &WatchEvent) -> vfscale_event {
        let watch = self.numbers.lock().number(event.watch);
        let (change, other) = change(&event.change);
        let mut to = vfscale_event {
            watch,
            change,
            file_type: d_type(event.file_type),
            path_len: 0,
            other_len: 0,
            path: [0; 4096],
            other: [0; 4096],
        };
        to.path_len = copy_name(event.path.as_os_str().as_bytes(), &mut to.path);
        to.other_len = copy_name(other.as_os_str().as_bytes(), &mut to.other);
        to
    }
}

/// Returns the number of a change, and its other path.
fn change(change: &FileChange) -> (u32, &Path) {
    let number = match change {
        FileChange::Created => VFSCALE_EVENT_CREATED,
        FileChange::Removed => VFSCALE_EVENT_REMOVED,
        FileChange::Modified => VFSCALE_EVENT_MODIFIED,
        FileChange::Attributes => VFSCALE_EVENT_ATTRIBUTES,
        FileChange::Closed => VFSCALE_EVENT_CLOSED,
        FileChange::Renamed { from } => return (VFSCALE_EVENT_RENAMED, from),
        FileChange::Exchanged { with } => return (VFSCALE_EVENT_EXCHANGED, with),
        FileChange::MovedIn => VFSCALE_EVENT_MOVED_IN,
        FileChange::MovedOut => VFSCALE_EVENT_MOVED_OUT,
        FileChange::Overflow => VFSCALE_EVENT_OVERFLOW,
        _ => VFSCALE_EVENT_OTHER,
    };
    (number, Path::new(""))
}

/// Makes a watcher whose queue holds at most `events_max` events, or 16,384 for 0, and stores its
/// handle in `watcher`. If the queue is full, further events are lost, and one says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_watcher_new(
    events_max: usize,
    watcher: *mut *mut vfscale_watcher,
) -> c_int {
    border("vfscale_watcher_new", || {
        let place = given!(place(watcher))?;
        let watcher =
            if events_max == 0 { Watcher::new() } else { Watcher::with_capacity(events_max) };
        let numbers = Mutex::new(Numbers::default());
        place.set(WATCHERS.insert(Watching { watcher, numbers })? as *mut vfscale_watcher);
        Ok(())
    })
}

/// Watches the file or directory at `path`, which the task must be allowed to read; with `tree` not
/// 0, the directory and everything below it. Returns the number of the watch, 1 or more. A watch
/// counts as an open file, until it or the watcher ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_watch(
    watcher: *mut vfscale_watcher,
    task: *mut vfscale_task,
    path: *const c_char,
    tree: c_int,
) -> i64 {
    border("vfscale_watch", || {
        let path = given!(path(path))?;
        let (watching, task) = (WATCHERS.get(watcher as u64)?, self::task(task)?);
        let watcher = &watching.watcher;
        let id =
            if tree == 0 { watcher.watch(&task, path) } else { watcher.watch_tree(&task, path) }?;
        Ok(watching.numbers.lock().number(id))
    })
}

/// Ends a watch. Events that are queued stay.
///
/// Errors: EINVAL if the watcher has no such watch.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_unwatch(watcher: *mut vfscale_watcher, watch: i64) -> c_int {
    border("vfscale_unwatch", || {
        let watching = WATCHERS.get(watcher as u64)?;
        let id = {
            let numbers = watching.numbers.lock();
            numbers.of.iter().find(|(_, number)| i64::try_from(**number) == Ok(watch)).map(|x| *x.0)
        };
        match id {
            Some(id) if watching.watcher.unwatch(id) => Ok(()),
            _ => Err(Failure::new(Errno::INVAL, "there is no such watch")),
        }
    })
}

/// Stores the first event of the queue in `event`. If there is none, waits for one: for
/// `timeout_ms` milliseconds, for ever with -1, not at all with 0. `token` interrupts a wait
/// without a time limit; NULL for none.
///
/// Errors: EAGAIN with 0; ETIMEDOUT; EINTR if the token is cancelled; EINVAL for a token with a
/// time limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_next_event(
    watcher: *mut vfscale_watcher,
    timeout_ms: i64,
    token: *mut vfscale_token,
    event: *mut vfscale_event,
) -> c_int {
    border("vfscale_next_event", || {
        let place = given!(place(event))?;
        let watching = WATCHERS.get(watcher as u64)?;
        if timeout_ms != -1 && !token.is_null() {
            return Err(Failure::new(Errno::INVAL, "a token is for a wait without a time limit"));
        }
        let next = match timeout_ms {
            -1 => watching.watcher.wait(Some(Waiting::new(token)?.token()))?,
            0 => watching
                .watcher
                .try_next()
                .ok_or_else(|| Failure::new(Errno::AGAIN, "there is no event"))?,
            time => {
                let time = crate::args::offset(time, "the time")?;
                watching.watcher.wait_timeout(Duration::from_millis(time))?
            }
        };
        place.set(watching.event(&next));
        Ok(())
    })
}

/// Ends a watcher and its watches, and frees its handle. Threads that wait for an event go on.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_watcher_free(watcher: *mut vfscale_watcher) -> c_int {
    border("vfscale_watcher_free", || WATCHERS.remove(watcher as u64))
}
